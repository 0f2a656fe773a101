// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/kubeannex/annex/pkg/storage/compact/gzipstream"
)

// Lists are compressed run by run, as neighbours are alike (docs/adr/0009-gzip.md). Which objects start
// a run is a property of each alone, so a change moves no run but its own.
const (
	// meanRun is how many bytes of JSON the runs have on average. Larger objects are runs of their own.
	meanRun = 64 << 10
	// maxRun bounds what is compressed at once.
	maxRun = 1 << 20
)

// place is where an object is among the runs of its kind.
type place struct {
	// serial tells the JSON of this object from that of all others of its kind.
	serial uint64
	starts bool
	// chunk is the run that starts here as it was compressed last. Its members may have changed since.
	chunk atomic.Pointer[chunk]
}

// member is an object of a chunk.
type member struct {
	serial          uint64
	resourceVersion string
}

// chunk is a run in compressed form, with commas between the objects. It does not change.
type chunk struct {
	members []member
	part    gzipstream.Part
}

// of reports whether a chunk is that of a run.
func (c *chunk) of(run []Object) bool {
	if c == nil || len(c.members) != len(run) {
		return false
	}
	for i := range run {
		if c.members[i] != run[i].member() {
			return false
		}
	}
	return true
}

func (o *Object) member() member { return member{o.place.serial, o.resourceVersion} }

// runs divides the objects of a kind.
type runs struct {
	seed    maphash.Seed
	serials atomic.Uint64
	// compressors has *compressor.
	compressors sync.Pool
}

func newRuns() *runs { return &runs{seed: maphash.MakeSeed()} }

// locate fills the place of an object that has been decoded.
func (r *runs) locate(c *content) {
	c.place.serial = r.serials.Add(1)
	hash := maphash.Comparable(r.seed, [2]string{c.namespace, c.name})
	c.place.starts = (hash>>32)*meanRun < uint64(len(c.text.json))<<32
}

// next is the length of the run at the beginning of items, which are not empty, and whether
// it is whole: the same in every list of all objects that goes on behind it.
func next(items []Object) (length int, whole bool) {
	size := items[0].size()
	for i := 1; i < len(items); i++ {
		if items[i].place.starts {
			return i, items[0].place.starts
		}
		if size += items[i].size(); size > maxRun {
			return i, items[0].place.starts
		}
	}
	return len(items), false
}

// part returns a run in compressed form, as it was kept if it was. It is kept if that is asked for.
func (r *runs) part(run []Object, keep bool) (gzipstream.Part, error) {
	kept := &run[0].place.chunk
	if c := kept.Load(); c.of(run) {
		return c.part, nil
	}
	c, err := r.compress(run)
	if err != nil {
		return gzipstream.Part{}, err
	}
	if keep {
		kept.Store(c)
	}
	return c.part, nil
}

// compressor has what it takes to compress a run.
type compressor struct {
	*gzipstream.Compressor
	text bytes.Buffer
}

// compress returns the chunk of a run.
func (r *runs) compress(run []Object) (*chunk, error) {
	c, ok := r.compressors.Get().(*compressor)
	if !ok {
		inner, err := gzipstream.NewCompressor()
		if err != nil {
			return nil, err
		}
		c = &compressor{Compressor: inner}
	}
	c.text.Reset()
	if err := writeItems(&c.text, run); err != nil {
		return nil, err
	}
	members := make([]member, len(run))
	for i := range run {
		members[i] = run[i].member()
	}
	part, err := c.Compress(c.text.Bytes())
	if err != nil {
		return nil, err
	}
	if c.text.Cap() <= 2*maxRun { // not after an object of several megabytes
		r.compressors.Put(c)
	}
	return &chunk{members: members, part: part}, nil
}
