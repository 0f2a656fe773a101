// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bufio"
	"context"
	"io"
)

// bufferSize is what an Answer writes at once. A response that is written object by object takes
// three times as long.
const bufferSize = 64 << 10

// Answer takes the items of one list past the registry, whose own list type cannot carry bytes.
type Answer struct{ list *List }

// Taken reports whether a list was answered with it: then the registry's own list has no items.
func (a *Answer) Taken() bool { return a.list != nil }

// WriteItems writes the items as JSON with commas between them.
func (a *Answer) WriteItems(w io.Writer) error {
	buffered := bufio.NewWriterSize(w, bufferSize)
	for i := range a.list.Items {
		if i > 0 {
			if err := buffered.WriteByte(','); err != nil {
				return err
			}
		}
		if err := a.list.Items[i].writeTo(buffered); err != nil {
			return err
		}
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
