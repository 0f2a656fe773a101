// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tick is how often the world is looked at during a rotation.
const tick = time.Minute

// lag is how late servers and clients see what is stored.
const lag = 4 * time.Minute

// rotate runs until a rotation is over. At every tick clients of every age of the
// bundle connect to servers of every age of the certificate. It returns the steps.
func (w *world) rotate() []string {
	w.Helper()
	var steps []string
	// What is told in between is over when nobody can be behind any more.
	for quiet := time.Duration(0); quiet <= lag; {
		if w.clock.Now().Sub(w.history[0].at) > 400*24*time.Hour {
			w.Fatal("the rotation does not end")
		}
		if _, err := w.trySync(); err != nil {
			if !errors.Is(err, errCrash) {
				w.Fatal(err)
			}
			w.restart()
		}
		step := w.state().step()
		if len(steps) == 0 || steps[len(steps)-1] != step {
			steps = append(steps, step)
		}
		w.connect()
		w.pass(tick)
		if quiet += tick; step != "" {
			quiet = 0
		}
	}
	return steps
}

// connect makes all handshakes that can happen now.
func (w *world) connect() {
	w.Helper()
	for _, server := range []time.Duration{0, lag} {
		for _, client := range []time.Duration{0, lag} {
			if err := w.handshake(w.at(server).server, w.at(client).bundle); err != nil {
				w.Fatalf("in step %q, the server %s late and the client %s: %v", w.state().step(), server, client, err)
			}
		}
	}
}

func TestRotationKeepsEveryHandshake(t *testing.T) {
	cases := map[string]struct {
		begin func(*world)
		want  []string
	}{
		"asked for": {begin: func(w *world) { w.ask() }, want: []string{stepAnnouncing, stepRetiring, ""}},
		"near the end of the authority": {
			begin: func(w *world) {
				// Certificates are renewed on the way.
				for w.clock.Now().Before(renewAt(w.state().current.cert)) {
					w.pass(15 * 24 * time.Hour)
					w.sync()
					w.connect()
				}
			},
			want: []string{stepAnnouncing, stepRetiring, ""},
		},
		"the authority was deleted": {begin: func(w *world) { w.remove(AuthoritySecret) }, want: []string{stepAnnouncing, stepRetiring, ""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.sync()
			before := w.state().current.cert
			tc.begin(w)
			if diff := cmp.Diff(tc.want, w.rotate()); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
			after := w.state()
			if after.current.cert.Equal(before) || len(after.old) > 0 || after.asked {
				t.Errorf("the authority is %s, before it was %s, old %d, asked for %t", after.current.cert.Subject, before.Subject, len(after.old), after.asked)
			}
			for _, secret := range []string{ServerSecret, ControllerSecret} {
				if !signedBy(w.cert(secret), after.current.cert) {
					t.Errorf("Secret %s is signed by %s", secret, w.cert(secret).Issuer)
				}
			}
		})
	}
}

// TestRotationSurvivesAnEnd ends the process at every single write of the first
// issue and of a rotation, before and after it is stored.
func TestRotationSurvivesAnEnd(t *testing.T) {
	for _, stored := range []bool{false, true} {
		var ended []string
		for after := 1; ; after++ {
			c := &crash{after: after, stored: stored}
			t.Run(fmt.Sprintf("write %d, stored %t", after, stored), func(t *testing.T) { endAt(t, c) })
			if c.done == "" {
				break
			}
			ended = append(ended, c.done)
		}
		// 1 authority, bundle, 2 certificates, 3 caBundles; then again for each of the two steps, with the settling times.
		if got := len(ended); got < 20 {
			t.Errorf("the process ended at %d writes only: %v", got, ended)
		}
		for _, resource := range []string{"secrets", "configmaps", "apiservices", "validatingwebhookconfigurations"} {
			if !slices.ContainsFunc(ended, func(write string) bool { return strings.HasSuffix(write, resource) }) {
				t.Errorf("the process never ended at a write of %s: %v", resource, ended)
			}
		}
	}
}

func endAt(t *testing.T, c *crash) {
	w := newWorld(t)
	w.kube.PrependReactor("*", "*", c.react(w.kube.Tracker()))
	w.services.PrependReactor("*", "*", c.react(w.services.Tracker()))
	if _, err := w.trySync(); err != nil {
		w.restart()
		w.history = nil // before the first issue is over nobody connects
		w.sync()
	}
	before := w.state().current.cert
	c.pause(w.ask) // it is no write of the process
	w.rotate()
	if after := w.state(); after.current == nil || after.current.cert.Equal(before) || after.step() != "" {
		t.Errorf("ended at %s, the rotation is in step %q", c.done, after.step())
	}
}

// TestRotationWaits has kube-apiservers that do not know the next authority, for a
// while at the beginning and once more in between.
func TestRotationWaits(t *testing.T) {
	w := newWorld(t)
	w.sync()
	w.ask()
	w.untold = errors.New("kube-apiserver 2: it does not answer")
	for range 10 {
		w.sync()
		w.pass(settling)
	}
	if got := w.state(); got.step() != stepAnnouncing || !got.since.IsZero() {
		t.Fatalf("step %q since %s, want one that waits", got.step(), got.since)
	}
	w.untold = nil
	w.sync()
	w.pass(settling - time.Second)
	w.untold = errors.New("kube-apiserver 2: it does not answer")
	w.sync()
	w.untold = nil
	w.pass(time.Second)
	w.sync()
	if got := w.state().step(); got != stepAnnouncing {
		t.Fatalf("step %q, want the settling time to begin anew", got)
	}
	w.rotate()
}

// TestRotationsFollowEachOther asks again while one is under way.
func TestRotationsFollowEachOther(t *testing.T) {
	w := newWorld(t)
	w.sync()
	w.ask()
	w.sync()
	w.pass(settling)
	w.sync()
	if got := w.state().step(); got != stepRetiring {
		t.Fatalf("step %q, want %s", got, stepRetiring)
	}
	w.change(AuthoritySecret, func(s *secretType) { s.Annotations[RotateAnnotation] = "again" })
	if diff := cmp.Diff([]string{stepRetiring, stepAnnouncing, stepRetiring, ""}, w.rotate()); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// TestNobodyIsAheadOfTheAnnouncement loses a certificate while the next authority is announced.
func TestNobodyIsAheadOfTheAnnouncement(t *testing.T) {
	w := newWorld(t)
	w.sync()
	w.ask()
	w.sync()
	w.remove(ServerSecret)
	w.sync()
	got := w.state()
	if got.step() != stepAnnouncing || !signedBy(w.cert(ServerSecret), got.current.cert) {
		t.Errorf("in step %q a new certificate is signed by %s, want %s", got.step(), w.cert(ServerSecret).Issuer, got.current.cert.Subject)
	}
	w.rotate()
}
