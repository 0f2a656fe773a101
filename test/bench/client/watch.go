// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// InitialEventsEnd is the annotation of the bookmark after the last initial event,
// by k8s.io/apimachinery/pkg/apis/meta/v1 InitialEventsAnnotationKey.
const InitialEventsEnd = "k8s.io/initial-events-end"

// Watch is an open watch. It belongs to one goroutine, but for Close.
type Watch struct {
	body   io.ReadCloser
	reader *bufio.Reader
	long   bytes.Buffer
}

// Watch opens a watch: it returns when the server has answered the request, which
// it does before the first event. Cancelling the context ends it.
func (c *Client) Watch(ctx context.Context, url string) (*Watch, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, refused(response)
	}
	return newWatch(response.Body), nil
}

func newWatch(body io.ReadCloser) *Watch { return &Watch{body: body, reader: bufio.NewReader(body)} }

// Close ends the watch.
func (w *Watch) Close() error { return w.body.Close() }

// Next waits for the next event. An event of the type ERROR is an error.
func (w *Watch) Next() (Event, error) {
	line, err := w.line()
	if err != nil {
		return Event{}, fmt.Errorf("reading a watch: %w", err)
	}
	event, err := parseEvent(line)
	if err == nil && event.Type == "ERROR" {
		err = fmt.Errorf("the watch ended: %s", bytes.TrimSpace(line[:min(len(line), errorBytes)]))
	}
	return event, err
}

// Hold reads the watch until it ends, and returns why: an event of the type ERROR, the
// server that has closed it, or the context.
func (w *Watch) Hold() error {
	for {
		if _, err := w.Next(); err != nil {
			return err
		}
	}
}

// line returns one frame: the JSON serializer of API servers writes one object a line.
func (w *Watch) line() ([]byte, error) {
	line, err := w.reader.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	w.long.Reset()
	for errors.Is(err, bufio.ErrBufferFull) {
		w.long.Write(line)
		line, err = w.reader.ReadSlice('\n')
	}
	w.long.Write(line)
	return w.long.Bytes(), err
}

// Event is one frame of a watch. It is valid until the next one is read.
type Event struct {
	// Type is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
	Type string
	// Bytes is the size of the frame.
	Bytes int

	object []byte
}

// errNoEvent says that a frame is none of a watch.
var errNoEvent = errors.New("the frame is no complete watch event")

func parseEvent(frame []byte) (Event, error) {
	event := Event{Bytes: len(frame)}
	kind, object := member(frame, "type"), member(frame, "object")
	if len(kind) == 0 || len(object) == 0 || object[len(object)-1] != '}' {
		return Event{}, errNoEvent
	}
	event.Type, event.object = unquote(kind), object
	return event, nil
}

// Text returns a field of the object that is text, or nothing. Text with escapes in
// it is returned with them.
func (e Event) Text(path ...string) string {
	value := e.object
	for _, name := range path {
		value = member(value, name)
	}
	return unquote(value)
}

// member returns the value of a member of an object, without decoding anything. It
// returns nil if there is none.
func member(object []byte, name string) []byte {
	s := scanner{rest: object}
	for {
		key, ok := s.key()
		if !ok {
			return nil
		}
		value := s.rest
		if _, ok := s.skip(); !ok {
			return nil
		}
		if string(key) == name {
			return bytes.TrimSpace(value[:len(value)-len(s.rest)])
		}
	}
}

func unquote(value []byte) string {
	return strings.TrimSuffix(strings.TrimPrefix(string(value), `"`), `"`)
}
