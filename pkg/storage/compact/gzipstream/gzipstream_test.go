// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package gzipstream

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// piece is a text of a stream, compressed beforehand or not.
type piece struct {
	text string
	part bool
}

// stream writes pieces.
func stream(t *testing.T, target io.Writer, pieces ...piece) error {
	t.Helper()
	compressor, err := NewCompressor()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(target)
	for _, p := range pieces {
		if !p.part {
			_, _ = w.Write([]byte(p.text)) // Close returns the error
			continue
		}
		part, err := compressor.Compress([]byte(p.text))
		if err != nil {
			t.Fatal(err)
		}
		_ = w.WritePart(part)
	}
	return w.Close()
}

// unpack reads one gzip member and demands that nothing follows.
func unpack(t *testing.T, packed []byte) string {
	t.Helper()
	source := bytes.NewReader(packed)
	reader, err := gzip.NewReader(source)
	if err != nil {
		t.Fatal(err)
	}
	reader.Multistream(false)
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Fatalf("after %d bytes: %v", len(text), err)
	}
	if source.Len() != 0 {
		t.Errorf("%d bytes follow the stream", source.Len())
	}
	return string(text)
}

func TestStream(t *testing.T) {
	long := strings.Repeat("abcdefghij", 20_000)
	tests := map[string][]piece{
		"nothing":                       nil,
		"empty pieces":                  {{"", false}, {"", true}},
		"text":                          {{"text", false}},
		"text of two blocks":            {{long[:maxStored+1], false}},
		"text of one whole block":       {{long[:maxStored], false}},
		"a part":                        {{"text", true}},
		"parts":                         {{"text", true}, {"text", true}, {"more", true}},
		"parts that are alike":          {{long, true}, {long, true}},
		"parts and text":                {{"[", false}, {long, true}, {",", false}, {"{}", true}, {"]\n", false}},
		"a part that is incompressible": {{noise(100_000), true}, {noise(70_000), false}},
	}
	for name, pieces := range tests {
		t.Run(name, func(t *testing.T) {
			var packed bytes.Buffer
			if err := stream(t, &packed, pieces...); err != nil {
				t.Fatal(err)
			}
			var want strings.Builder
			for _, p := range pieces {
				want.WriteString(p.text)
			}
			if diff := cmp.Diff(want.String(), unpack(t, packed.Bytes())); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

// noise is text that cannot be compressed.
func noise(n int) string {
	random := rand.NewChaCha8([32]byte{})
	data := make([]byte, n)
	_, _ = random.Read(data) // never fails
	return string(data)
}

// TestPartsAreSmall sees that parts are compressed at all.
func TestPartsAreSmall(t *testing.T) {
	var packed bytes.Buffer
	if err := stream(t, &packed, piece{strings.Repeat("abcdefghij", 20_000), true}); err != nil {
		t.Fatal(err)
	}
	if packed.Len() > 20_000 {
		t.Errorf("200,000 bytes that repeat became %d", packed.Len())
	}
}

// limitedWriter takes n bytes.
type limitedWriter struct{ n int }

var errFull = errors.New("full")

func (w *limitedWriter) Write(data []byte) (int, error) {
	if w.n -= len(data); w.n < 0 {
		return 0, errFull
	}
	return len(data), nil
}

// TestErrors lets the target fail at each of its bytes.
func TestErrors(t *testing.T) {
	pieces := []piece{{"text", false}, {"part", true}}
	var packed bytes.Buffer
	if err := stream(t, &packed, pieces...); err != nil {
		t.Fatal(err)
	}
	for n := range packed.Len() {
		if err := stream(t, &limitedWriter{n: n}, pieces...); !errors.Is(err, errFull) {
			t.Errorf("error after %d bytes: %v, want %v", n, err, errFull)
		}
	}
}

// FuzzStream cuts a text into pieces at random and demands it back.
func FuzzStream(f *testing.F) {
	f.Add([]byte("some text that is cut"), uint64(1))
	f.Add(bytes.Repeat([]byte{0}, 100_000), uint64(2))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		var pieces []piece
		for rest := text; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			pieces = append(pieces, piece{string(rest[:n]), random.IntN(2) == 0})
			rest = rest[n:]
		}
		var packed bytes.Buffer
		if err := stream(t, &packed, pieces...); err != nil {
			t.Fatal(err)
		}
		if got := unpack(t, packed.Bytes()); got != string(text) {
			t.Errorf("%d pieces of %d bytes became other %d bytes", len(pieces), len(text), len(got))
		}
	})
}
