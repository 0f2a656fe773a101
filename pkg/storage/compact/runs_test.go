// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// shelf is the objects of a kind as a cache lists them, in the order of their names.
type shelf struct {
	t       *testing.T
	codec   runtime.Codec
	objects []Object
	version int
	// starts, if any, says which objects start a run, instead of chance.
	starts func(name string) bool
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	return &shelf{t: t, codec: gadgetKind(t).Codec(unstructured.UnstructuredJSONScheme)}
}

// put creates or replaces an object with about size bytes.
func (s *shelf) put(name string, size int) {
	s.t.Helper()
	s.version++
	var object Object
	data := fmt.Sprintf(`{"apiVersion":"lab.annex.test/v1","kind":"Gadget","metadata":{"name":%q,"namespace":"n"},"spec":"%d%s"}`, name, s.version, strings.Repeat("xyz", size/3))
	if _, _, err := s.codec.Decode([]byte(data), nil, &object); err != nil {
		s.t.Fatal(err)
	}
	object.SetResourceVersion(fmt.Sprint(s.version))
	if s.starts != nil {
		object.place.starts = s.starts(name)
	}
	at, found := s.find(name)
	if found {
		s.objects[at] = object
		return
	}
	s.objects = slices.Insert(s.objects, at, object)
}

func (s *shelf) find(name string) (int, bool) {
	return slices.BinarySearchFunc(s.objects, name, func(o Object, name string) int { return strings.Compare(o.GetName(), name) })
}

// fill puts n objects with about size bytes each.
func (s *shelf) fill(n, size int) {
	s.t.Helper()
	for i := range n {
		s.put(fmt.Sprintf("g-%05d", i), size)
	}
}

// chunks are those that objects have.
func (s *shelf) chunks() map[string]*chunk {
	chunks := map[string]*chunk{}
	for i := range s.objects {
		if c := s.objects[i].place.chunk.Load(); c != nil {
			chunks[s.objects[i].GetName()] = c
		}
	}
	return chunks
}

// changed are the names under which two sets of chunks differ.
func changed(before, after map[string]*chunk) []string {
	var names []string
	for name, c := range after {
		if before[name] != c {
			names = append(names, name)
		}
	}
	for name := range before {
		if after[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// check compares an answer in compressed form with the same one as it is.
func check(t *testing.T, items []Object, selected bool) {
	t.Helper()
	answer := &Answer{list: &List{Items: items}, selected: selected}
	var want, packed bytes.Buffer
	want.WriteString("[")
	err := answer.WriteItems(&want)
	want.WriteString("]\n")
	err = errors.Join(err, answer.WriteGzip(&packed, []byte("["), []byte("]\n")))
	got, unpackErr := unpack(&packed)
	if err = errors.Join(err, unpackErr); err != nil {
		t.Error(err)
		return
	}
	if !bytes.Equal(want.Bytes(), got) {
		t.Errorf("unpacked answer of %d items has %d bytes, the plain one %d, and they differ", len(items), len(got), want.Len())
	}
	if length := want.Len() - len("[]\n"); answer.LongerThan(length) || length > 0 && !answer.LongerThan(length-1) {
		t.Errorf("LongerThan() is wrong about %d bytes", length)
	}
}

// unpack reads one gzip member.
func unpack(packed io.Reader) ([]byte, error) {
	reader, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	reader.Multistream(false)
	return io.ReadAll(reader)
}

func TestWriteGzip(t *testing.T) {
	tests := map[string]struct{ objects, size int }{
		"no object":                      {},
		"one small object":               {1, 10},
		"one large object":               {1, 200_000},
		"one object longer than a run":   {1, 2 * maxRun},
		"small objects":                  {3000, 300},
		"objects of half a run":          {40, 30_000},
		"large objects":                  {20, 200_000},
		"objects as long as runs can be": {4, maxRun},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newShelf(t)
			s.fill(tc.objects, tc.size)
			check(t, s.objects, false)
			check(t, s.objects, false) // from what was kept
		})
	}
}

// TestChangesSpoilTheirOwnRun looks at what is compressed anew.
func TestChangesSpoilTheirOwnRun(t *testing.T) {
	s := newShelf(t)
	s.starts = func(name string) bool { return strings.HasSuffix(name, "00") }
	s.fill(2000, 1000)
	check(t, s.objects, false)
	kept := s.chunks()
	if len(kept) < 10 {
		t.Fatalf("%d of 20 runs are kept", len(kept))
	}
	check(t, s.objects, false)
	if names := changed(kept, s.chunks()); names != nil {
		t.Errorf("without a change the runs at %v were compressed again", names)
	}
	starts := slices.Sorted(func(yield func(string) bool) {
		for name := range kept {
			if !yield(name) {
				return
			}
		}
	})
	third := starts[2]
	at, _ := s.find(third)
	tests := map[string]struct {
		change func()
		want   []string
	}{
		"an object within a run": {func() { s.put(s.objects[at+1].GetName(), 1000) }, []string{third}},
		"a new object":           {func() { s.put(third+"-a", 10) }, []string{third}},
		"one object less":        {func() { s.objects = slices.Delete(s.objects, at+1, at+2) }, []string{third}},
		"the first object":       {func() { s.put(third, 1000) }, []string{third}},
		"another version of the same object": {func() {
			object := s.objects[at+1].DeepCopyObject().(*Object)
			object.SetResourceVersion("x")
			s.objects[at+1] = *object
		}, []string{third}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := s.chunks()
			tc.change()
			check(t, s.objects, false)
			if diff := cmp.Diff(tc.want, changed(before, s.chunks())); diff != "" {
				t.Errorf("compressed again (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPartsOfListsAreNotKept asks for lists whose runs other lists do not have.
func TestPartsOfListsAreNotKept(t *testing.T) {
	s := newShelf(t)
	s.fill(2000, 1000)
	var every []Object
	for i := 0; i < len(s.objects); i += 3 {
		every = append(every, s.objects[i])
	}
	check(t, every, true)
	if kept := s.chunks(); len(kept) != 0 {
		t.Errorf("%d runs of a selected list are kept", len(kept))
	}
	check(t, s.objects, false)
	whole := s.chunks()
	for from := 0; from < 1500; from += 70 {
		check(t, s.objects[from:from+500], false)
	}
	check(t, every, true)
	if names := changed(whole, s.chunks()); names != nil {
		t.Errorf("pages and selections have replaced the runs at %v", names)
	}
}

// TestRandomLists changes objects at random and asks for random parts of the list.
func TestRandomLists(t *testing.T) {
	s := newShelf(t)
	s.fill(300, 3000)
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		for range random.IntN(4) {
			name := fmt.Sprintf("g-%05d", random.IntN(400))
			if at, found := s.find(name); found && random.IntN(3) == 0 {
				s.objects = slices.Delete(s.objects, at, at+1)
				continue
			}
			s.put(name, random.IntN(1<<uint(4+random.IntN(14))))
		}
		from := random.IntN(len(s.objects))
		to := from + random.IntN(len(s.objects)-from+1)
		if random.IntN(2) == 0 {
			from, to = 0, len(s.objects)
		}
		check(t, s.objects[from:to], random.IntN(5) == 0)
	}
}

// TestListsAtOnce asks for many lists of the same objects at once, of all and of one namespace of two, for which the same
// run begins. Each has its own objects only.
func TestListsAtOnce(t *testing.T) {
	s := newShelf(t)
	s.fill(400, 1000)
	for i := range s.objects {
		s.objects[i].place.starts = i%40 == 0
	}
	border := 100 // within a run
	changed := slices.Clone(s.objects)
	other := newShelf(t)
	other.fill(1, 1000)
	changed[border+1] = other.objects[0]
	var group sync.WaitGroup
	for range 4 {
		for _, items := range [][]Object{s.objects, s.objects[:border], s.objects[border:], changed} {
			group.Go(func() {
				for range 5 {
					check(t, items, false)
				}
			})
		}
	}
	group.Wait()
}

// TestGzipForClientThatHasGone lets the connection fail.
func TestGzipForClientThatHasGone(t *testing.T) {
	s := newShelf(t)
	s.fill(500, 1000)
	answer := &Answer{list: &List{Items: s.objects}}
	if err := answer.WriteGzip(closedWriter{}, nil, nil); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("WriteGzip() = %v, want %v", err, io.ErrClosedPipe)
	}
}

type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestRunsAreBounded has objects of which none but the first starts a run.
func TestRunsAreBounded(t *testing.T) {
	s := newShelf(t)
	s.fill(2*maxRun/50_000, 50_000)
	for i := range s.objects {
		s.objects[i].place.starts = i == 0
	}
	for rest := s.objects; len(rest) > 0; {
		length, whole := next(rest)
		size := 0
		for i := range length {
			size += rest[i].size()
		}
		if first := len(rest) == len(s.objects); size > maxRun || whole != first {
			t.Errorf("a run of %d bytes, whole: %v, want at most %d bytes and whole only if an object starts it", size, whole, maxRun)
		}
		rest = rest[length:]
	}
}
