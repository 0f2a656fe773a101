// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package readiness

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
)

var errVerdict = errors.New("no")

// refusing refuses everything.
type refusing struct{}

func (refusing) Handles(operation admission.Operation) bool { return operation == admission.Create }

func (refusing) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errVerdict
}

func (refusing) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return errVerdict
}

func TestWait(t *testing.T) {
	for name, tc := range map[string]struct {
		// syncedAfter is when the informers are synced, leaves when the client does.
		syncedAfter, leaves time.Duration
		wantAfter           time.Duration
		wantVerdict         bool
	}{
		"synced before":                  {leaves: time.Hour, wantVerdict: true},
		"synced while a request waits":   {syncedAfter: 4 * time.Second, leaves: time.Hour, wantAfter: 4 * time.Second, wantVerdict: true},
		"synced too late":                {syncedAfter: time.Minute, leaves: time.Hour, wantAfter: patience},
		"not synced as long as a client": {syncedAfter: time.Minute, leaves: time.Second, wantAfter: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				synced := make(chan struct{})
				if tc.syncedAfter == 0 {
					close(synced)
				} else {
					time.AfterFunc(tc.syncedAfter, func() { close(synced) })
				}
				chain := Wait(refusing{}, synced)
				ctx, cancel := context.WithTimeout(t.Context(), tc.leaves)
				defer cancel()
				begin := time.Now()
				err := chain.Admit(ctx, nil, nil)
				if took := time.Since(begin); took != tc.wantAfter {
					t.Errorf("it took %s, want %s", took, tc.wantAfter)
				}
				check(t, err, tc.wantVerdict)
				<-synced
				if err := chain.Validate(t.Context(), nil, nil); !errors.Is(err, errVerdict) {
					t.Errorf("validation in the end: %v", err)
				}
			})
		})
	}
	chain := Wait(refusing{}, nil)
	if !chain.Handles(admission.Create) || chain.Handles(admission.Delete) {
		t.Error("it does not handle what the chain behind it handles")
	}
}

func check(t *testing.T, err error, verdict bool) {
	t.Helper()
	if verdict != errors.Is(err, errVerdict) {
		t.Errorf("error %v, want the verdict of the chain: %t", err, verdict)
	}
	if seconds, retry := apierrors.SuggestsClientDelay(err); !verdict && (!apierrors.IsServiceUnavailable(err) || !retry || seconds != retryAfterSeconds) {
		t.Errorf("error %v with a delay of %d s, want 503 with one of %d s", err, seconds, retryAfterSeconds)
	}
}
