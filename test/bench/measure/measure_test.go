// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"
)

// one fills memory.
const one = 1

func TestProcesses(t *testing.T) {
	before, err := Self()
	if err != nil {
		t.Fatalf("Self: %v", err)
	}
	const work = 60 * time.Millisecond
	for start := time.Now(); ; {
		usage, err := Self()
		if err != nil {
			t.Fatalf("Self: %v", err)
		}
		used := usage.Since(before)
		if used.CPU >= work {
			if used.Resident < 1<<20 || used.Peak < used.Resident {
				t.Errorf("implausible memory: %+v", used)
			}
			return
		}
		if time.Since(start) > 20*time.Second {
			t.Fatalf("a busy process used %s of CPU in %s", used.CPU, time.Since(start))
		}
	}
}

func TestProcessesAddUp(t *testing.T) {
	once, err := Processes(os.Getpid())
	if err != nil {
		t.Fatalf("Processes: %v", err)
	}
	twice, err := Processes(os.Getpid(), os.Getpid())
	if err != nil {
		t.Fatalf("Processes: %v", err)
	}
	if twice.CPU < 2*once.CPU || twice.Resident < once.Resident*3/2 || twice.Peak < once.Peak*3/2 {
		t.Errorf("one process uses %+v, two use %+v", once, twice)
	}
	if none, err := Processes(); err != nil || none != (Usage{}) {
		t.Errorf("no processes use %+v, %v", none, err)
	}
}

func TestResetPeak(t *testing.T) {
	const size = 64 << 20
	memory := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		memory[i] = one
	}
	runtime.KeepAlive(memory)
	before, err := Self()
	if err != nil {
		t.Fatalf("Self: %v", err)
	}
	debug.FreeOSMemory()
	if err := ResetPeak(os.Getpid()); err != nil {
		t.Fatalf("ResetPeak: %v", err)
	}
	after, err := Self()
	if err != nil {
		t.Fatalf("Self: %v", err)
	}
	if before.Peak-after.Peak < size/2 {
		t.Errorf("the peak of %d bytes was reset to %d, want %d less", before.Peak, after.Peak, size)
	}
}

func TestEndedProcess(t *testing.T) {
	command := exec.CommandContext(t.Context(), "true")
	if err := command.Run(); err != nil {
		t.Fatalf("Run: %v", err)
	}
	pid := command.Process.Pid
	if usage, err := Processes(os.Getpid(), pid); err == nil {
		t.Errorf("an ended process uses %+v, want an error", usage)
	}
	if err := ResetPeak(pid); err == nil {
		t.Errorf("the peak of an ended process was reset, want an error")
	}
}

// pprofServer answers like a Go server with profiling.
func pprofServer(t *testing.T) (*rest.Config, *[]string) {
	t.Helper()
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.URL.String()+" "+r.Header.Get("Authorization"))
		runtime.GC()
		if err := pprof.Lookup("heap").WriteTo(w, 1); err != nil {
			t.Errorf("WriteTo: %v", err)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, BearerToken: "secret"}, &requests
}

func TestLiveHeap(t *testing.T) {
	config, requests := pprofServer(t)
	before, err := LiveHeap(t.Context(), config)
	if err != nil {
		t.Fatalf("LiveHeap: %v", err)
	}
	const size = 32 << 20
	memory := make([]byte, size)
	memory[0] = one
	after, err := LiveHeap(t.Context(), config)
	if err != nil {
		t.Fatalf("LiveHeap: %v", err)
	}
	runtime.KeepAlive(memory)
	if grown := after.Live - before.Live; grown < size*9/10 || grown > size*11/10 {
		t.Errorf("the heap has grown by %d, want %d", grown, size)
	}
	if after.Inuse < after.Live || after.System < after.Inuse || after.Allocated < before.Allocated+size {
		t.Errorf("implausible: %+v, before %+v", after, before)
	}
	want := "/debug/pprof/heap?gc=1&debug=1 Bearer secret"
	if diff := cmp.Diff([]string{want, want, want, want}, *requests); diff != "" {
		t.Errorf("unexpected requests, -want +got:\n%s", diff)
	}
}

func TestLiveHeapRefusals(t *testing.T) {
	cases := map[string]struct {
		status int
		body   string
		want   string
	}{
		"forbidden":       {http.StatusForbidden, "", "the server answers 403 Forbidden; it needs --profiling and a client that may get it"},
		"a binary answer": {http.StatusOK, "\x1f\x8b", "the answer is no heap profile in text form"},
		"a part of it":    {http.StatusOK, "# Sys = 12\n# HeapAlloc = 3\n", "the answer is no heap profile in text form"},
		"no number":       {http.StatusOK, "# Sys = many\n", "reading Sys"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				w.Write([]byte(tc.body)) //nolint:errcheck // the client fails then
			}))
			defer server.Close()
			heap, err := LiveHeap(t.Context(), &rest.Config{Host: server.URL})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %+v and the error %v, want %s", heap, err, tc.want)
			}
		})
	}
}

func TestLiveHeapEnds(t *testing.T) {
	config, _ := pprofServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := LiveHeap(ctx, config); err == nil {
		t.Errorf("no error after the end of the context")
	}
}

func TestSummarize(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	cases := map[string]struct {
		values []float64
		want   Summary
	}{
		"nothing": {},
		"one":     {values: []float64{3}, want: Summary{Count: 1, Min: 3, Max: 3, Median: 3, P99: 3, Lower: 3, Upper: 3}},
		"odd, in no order": {
			values: []float64{5, 1, 4, 2, 3},
			want:   Summary{Count: 5, Min: 1, Max: 5, Median: 3, P99: 5, Lower: 2, Upper: 4},
		},
		"even": {
			values: []float64{4, 1, 10, 2},
			want:   Summary{Count: 4, Min: 1, Max: 10, Median: 3, P99: 10, Lower: 1, Upper: 4},
		},
		"a hundred": {
			values: hundred,
			want:   Summary{Count: 100, Min: 1, Max: 100, Median: 50.5, P99: 99, Lower: 25, Upper: 75},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := append([]float64(nil), tc.values...)
			got := Summarize(tc.values)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("unexpected summary, -want +got:\n%s", diff)
			}
			if want := tc.want.Upper - tc.want.Lower; got.IQR() != want {
				t.Errorf("the IQR is %v, want %v", got.IQR(), want)
			}
			if diff := cmp.Diff(before, tc.values); diff != "" {
				t.Errorf("the values were changed, -want +got:\n%s", diff)
			}
		})
	}
}

func TestLatencies(t *testing.T) {
	const workers, each = 8, 1000
	var latencies Latencies
	record := func() {
		var wait sync.WaitGroup
		for worker := range workers {
			recorder := latencies.Recorder(each / 2)
			wait.Go(func() {
				for n := range each {
					recorder.Record(time.Duration(worker*each+n+1) * time.Millisecond)
				}
			})
		}
		// A summary may be made meanwhile.
		latencies.Summary()
		wait.Wait()
	}
	record()
	want := Summary{Count: 8000, Min: 0.001, Max: 8, Median: 4.0005, P99: 7.92, Lower: 2, Upper: 6}
	if diff := cmp.Diff(want, latencies.Summary(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("unexpected summary, -want +got:\n%s", diff)
	}
	latencies.Reset()
	if diff := cmp.Diff(Summary{}, latencies.Summary()); diff != "" {
		t.Errorf("unexpected summary after a reset, -want +got:\n%s", diff)
	}
	record()
	if diff := cmp.Diff(want, latencies.Summary(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("unexpected summary of the second round, -want +got:\n%s", diff)
	}
}

func TestRecorderSince(t *testing.T) {
	var latencies Latencies
	latencies.Recorder(0).Since(time.Now().Add(-time.Minute))
	if got := latencies.Summary().Max; got < 60 || got > 70 {
		t.Errorf("got %v seconds, want a minute", got)
	}
}

func BenchmarkRecord(b *testing.B) {
	var latencies Latencies
	b.RunParallel(func(pb *testing.PB) {
		recorder := latencies.Recorder(b.N)
		for pb.Next() {
			recorder.Record(time.Millisecond)
		}
	})
}
