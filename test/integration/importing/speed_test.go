// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// objectsVariable says how many objects the measurement moves.
const objectsVariable = "ANNEX_IMPORT_OBJECTS"

// batch is how many objects the controller sends at once.
const batch = 1000

// processorTime is what the process, server and etcd included, has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestSpeed prints how fast objects of 1.5 KB are imported, digested and dropped.
// The numbers mean something on a quiet machine only, so it asserts just that
// none gets lost; by default it is small.
func TestSpeed(t *testing.T) {
	count := 2 * batch
	if text := os.Getenv(objectsVariable); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s: %v", objectsVariable, err)
		}
	}
	world := adopted.Start(t)
	var bodies []*bytes.Buffer
	for start := 0; start < count; start += batch {
		var objects []*unstructured.Unstructured
		for i := start; i < min(start+batch, count); i++ {
			object := gadget(fmt.Sprintf("gadget-%06d", i), int64(i))
			object.SetAnnotations(map[string]string{"filler": strings.Repeat("x", 1150)})
			objects = append(objects, object)
		}
		bodies = append(bodies, adopted.Stream(t, watch.Added, objects...))
	}
	rate := func(name string, do func()) {
		start, used := time.Now(), processorTime(t)
		do()
		took, used := time.Since(start), processorTime(t)-used
		t.Logf("%s: %d objects in %v, %.0f a second, %v of processor time each", name, count, took, float64(count)/took.Seconds(), used/time.Duration(count))
	}
	var written int64
	rate("import", func() {
		for _, body := range bodies {
			var result v1alpha1.ImportResult
			world.Subresource(t, adopted.Controller, http.MethodPost, "import?resource=gadgets", body).Decode(t, &result)
			written += result.Written
		}
	})
	var digest v1alpha1.ResourceDigest
	rate("digest", func() {
		world.Subresource(t, adopted.Controller, http.MethodGet, "digest?resource=gadgets", nil).Decode(t, &digest)
	})
	rate("drop", func() {
		// A drop that does not end in the time of one request is repeated.
		for world.Subresource(t, adopted.Controller, http.MethodDelete, "import", nil).Code == http.StatusGatewayTimeout {
			t.Log("drop: once more")
		}
	})
	want := int64(count)
	if left := world.Digest(t, "gadgets").Objects; written != want || digest.Objects != want || left != 0 {
		t.Errorf("got %d written, %d in the digest and %d left, want %d, as many and none", written, digest.Objects, left, want)
	}
	t.Logf("%d bytes of an object on average", digest.Bytes/want)
}
