// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
)

// collections is how often garbage is collected before the heap is read: what a
// sync.Pool holds survives the first.
const collections = 2

// Heap is the heap of a Go server right after garbage collection, in bytes.
type Heap struct {
	// Live is what objects in use take.
	Live int64
	// Inuse is Live with the gaps between objects.
	Inuse int64
	// System is what the runtime has asked the operating system for.
	System int64
	// Allocated is what was allocated since the start, freed or not.
	Allocated int64
}

// LiveHeap collects the garbage of an API server and reads its heap from its
// /debug/pprof. The server must be addressed directly and the client must be an
// administrator of it.
func LiveHeap(ctx context.Context, config *rest.Config) (Heap, error) {
	client, address, err := pprofClient(config, "heap", "gc=1&debug=1")
	if err != nil {
		return Heap{}, err
	}
	var heap Heap
	for range collections {
		if heap, err = readHeap(ctx, client, address); err != nil {
			return Heap{}, fmt.Errorf("reading the heap from %s: %w", address, err)
		}
	}
	return heap, nil
}

func readHeap(ctx context.Context, client *http.Client, address string) (Heap, error) {
	answer, err := getPprof(ctx, client, address)
	if err != nil {
		return Heap{}, err
	}
	defer answer.Body.Close()
	return parseHeap(answer.Body)
}

// parseHeap reads the runtime.MemStats that follow a heap profile in text form, by
// runtime/pprof writeHeapInternal.
func parseHeap(profile io.Reader) (Heap, error) {
	var heap Heap
	fields := map[string]*int64{
		"HeapAlloc": &heap.Live, "HeapInuse": &heap.Inuse, "Sys": &heap.System, "TotalAlloc": &heap.Allocated,
	}
	lines := bufio.NewReader(profile)
	for {
		line, err := lines.ReadString('\n')
		if name, value, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), " = "); found && fields[name] != nil {
			number, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return Heap{}, fmt.Errorf("reading %s: %w", name, err)
			}
			*fields[name] = number
			delete(fields, name)
		}
		switch {
		case errors.Is(err, io.EOF) && len(fields) > 0:
			return Heap{}, errors.New("the answer is no heap profile in text form")
		case errors.Is(err, io.EOF):
			return heap, nil
		case err != nil:
			return Heap{}, err
		}
	}
}
