// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// newTestLogger returns a logger of the given verbosity and a function that returns what it has written.
func newTestLogger(t *testing.T, verbosity int) (klog.Logger, func() string) {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(verbosity), ktesting.BufferLogs(true)))
	return logger, logger.GetSink().(ktesting.Underlier).GetBuffer().String
}

func TestLogLevels(t *testing.T) {
	cases := map[string]struct {
		verbosity int
		quiet     bool
		want      []string
	}{
		"warnings and errors by default":     {want: []string{"warning", "error"}},
		"information from verbosity four":    {verbosity: 4, want: []string{"information", "warning", "error"}},
		"everything from verbosity six":      {verbosity: 6, want: []string{"debugging", "information", "warning", "error"}},
		"nothing while etcd is closed":       {quiet: true},
		"all but debugging when it is asked": {quiet: true, verbosity: 4, want: []string{"information", "warning", "error"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			logger, written := newTestLogger(t, tc.verbosity)
			lg, quiet := newZapLogger(logger, newFailure())
			quiet.Store(tc.quiet)
			lg.Debug("debugging")
			lg.Info("information")
			lg.Warn("warning")
			lg.Error("error")
			var got []string
			for _, word := range []string{"debugging", "information", "warning", "error"} {
				if strings.Contains(written(), word) {
					got = append(got, word)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("written (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLogFields(t *testing.T) {
	logger, written := newTestLogger(t, 0)
	lg, _ := newZapLogger(logger, newFailure())
	lg.With(zap.String("path", "p")).Error("broken", zap.Int("count", 3), zap.Duration("took", time.Second), zap.Error(errors.New("why")))
	for _, want := range []string{"broken", `err="why"`, `path="p"`, "count=3", `took="1s"`} {
		if !strings.Contains(written(), want) {
			t.Errorf("log is %q, want %s in it", written(), want)
		}
	}
	if got := strings.Count(strings.TrimSpace(written()), "\n"); got != 0 {
		t.Errorf("log is %q, want one line", written())
	}
}

func TestFatalLogEndsOnlyItsGoroutine(t *testing.T) {
	cases := map[string]struct {
		run  func(lg *zap.Logger) error
		want string
	}{
		"fatal line": {run: func(lg *zap.Logger) error { lg.Fatal("no disk", zap.Error(errors.New("full"))); return nil }, want: "no disk: full"},
		"panic line": {run: func(lg *zap.Logger) error { lg.Panic("bad page"); return nil }, want: "bad page"},
		"panic": {
			run:  func(*zap.Logger) error { panic("assertion") }, //nolint:forbidigo // it is what the case is about
			want: "etcd code panicked: assertion",
		},
		"error": {run: func(*zap.Logger) error { return errors.New("refused") }, want: "refused"},
		"fatal line on another goroutine": {want: "lost", run: func(lg *zap.Logger) error {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				lg.Fatal("lost")
			}()
			<-ended
			runtime.Goexit()
			return nil
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			logger, _ := newTestLogger(t, 0)
			fail := newFailure()
			lg, _ := newZapLogger(logger, fail)
			got := guard(t.Context(), fail, func() error { return tc.run(lg) })
			if got == nil || got.Error() != tc.want {
				t.Errorf("guard() = %v, want %s", got, tc.want)
			}
		})
	}
}

func TestQuietByDefault(t *testing.T) {
	logger, written := newTestLogger(t, 0)
	root := t.TempDir()
	for range 2 {
		s, err := Start(klog.NewContext(t.Context(), logger), Options{RootDir: root})
		must(t, err)
		client := newClient(t, s.Endpoints())
		_, err = client.Put(t.Context(), "a", "1")
		must(t, err)
		must(t, client.Close(), s.Close())
	}
	for line := range strings.SplitSeq(strings.TrimSpace(written()), "\n") {
		// A slow disk is worth a warning of etcd, in a test as well.
		if !strings.Contains(line, "Embedded etcd is ready") && !strings.Contains(line, "took too long") && !strings.Contains(line, "slow") {
			t.Errorf("unexpected line in the log: %s", line)
		}
	}
}

func TestStartHonoursContext(t *testing.T) {
	root := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Options{RootDir: root}); !errors.Is(err, context.Canceled) {
		t.Errorf("Start() = %v, want %v", err, context.Canceled)
	}
	startServer(t, Options{RootDir: root})
}
