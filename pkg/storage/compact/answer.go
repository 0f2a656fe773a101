// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bufio"
	"context"
	"io"

	"github.com/kubeannex/annex/pkg/storage/compact/gzipstream"
)

// bufferSize is what an Answer writes at once. A response that is written object by object takes
// three times as long.
const bufferSize = 64 << 10

// Answer takes the items of one list past the registry, whose own list type cannot carry bytes.
type Answer struct {
	list *List
	// selected is whether a selector has parted neighbours.
	selected bool
}

// Taken reports whether a list was answered with it: then the registry's own list has no items.
func (a *Answer) Taken() bool { return a.list != nil }

// LongerThan reports whether the items, with commas between them, are longer than n bytes.
func (a *Answer) LongerThan(n int) bool {
	size := 0
	for i := range a.list.Items {
		if i > 0 {
			size++
		}
		if size += a.list.Items[i].size(); size > n {
			return true
		}
	}
	return false
}

// WriteItems writes the items as JSON with commas between them.
func (a *Answer) WriteItems(w io.Writer) error {
	buffered := bufio.NewWriterSize(w, bufferSize)
	if err := writeItems(buffered, a.list.Items); err != nil {
		return err
	}
	return buffered.Flush()
}

// buffer is what objects are written to piece by piece.
type buffer interface {
	io.Writer
	io.ByteWriter
}

// writeItems writes objects as JSON with commas between them.
func writeItems(w buffer, items []Object) error {
	for i := range items {
		if i > 0 {
			if err := w.WriteByte(','); err != nil {
				return err
			}
		}
		if err := items[i].writeTo(w); err != nil {
			return err
		}
	}
	return nil
}

// WriteGzip writes the items between two other texts, all of it as one gzip stream. What it has compressed it
// keeps for other lists, but for the last run, which other lists may continue, and what was selected.
func (a *Answer) WriteGzip(w io.Writer, before, after []byte) error {
	buffered := bufio.NewWriterSize(w, bufferSize)
	stream := gzipstream.NewWriter(buffered)
	if _, err := stream.Write(before); err != nil {
		return err
	}
	for items := a.list.Items; len(items) > 0; {
		length, whole := next(items)
		part, err := items[0].kind.runs.part(items[:length], whole && !a.selected)
		if err != nil {
			return err
		}
		if err := stream.WritePart(part); err != nil {
			return err
		}
		if items = items[length:]; len(items) == 0 {
			break
		}
		if _, err := stream.Write([]byte{','}); err != nil {
			return err
		}
	}
	if _, err := stream.Write(after); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	return buffered.Flush()
}

// mode is how a list is to be answered.
type mode struct {
	answer       *Answer
	metadataOnly bool
}

type modeKey struct{}

func modeOf(ctx context.Context) mode {
	m, _ := ctx.Value(modeKey{}).(mode)
	return m
}

// WithAnswer returns a context whose list leaves its items in an Answer.
func WithAnswer(ctx context.Context) (context.Context, *Answer) {
	answer := &Answer{}
	return context.WithValue(ctx, modeKey{}, mode{answer: answer}), answer
}

// WithMetadataOnly returns a context whose lists are decoded no further than the
// metadata of their objects.
func WithMetadataOnly(ctx context.Context) context.Context {
	return context.WithValue(ctx, modeKey{}, mode{metadataOnly: true})
}
