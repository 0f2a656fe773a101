// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// String shows a frame in a failure.
func (f frame) String() string { return f.Type + " " + string(f.Object) }

// stream is a watch that is being read.
type stream struct {
	frames chan frame // closed when the server ends the stream
	cancel context.CancelFunc
}

// openStream starts a watch. The caller must close it.
func (w *World) openStream(ctx context.Context, path string) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.running.Config.Host+path, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		cancel()
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		cancel()
		return nil, fmt.Errorf("code %d, want a stream: %s (%w)", response.StatusCode, body, err)
	}
	s := &stream{frames: make(chan frame), cancel: cancel}
	go s.decode(ctx, response.Body)
	return s, nil
}

func (s *stream) decode(ctx context.Context, body io.ReadCloser) {
	defer close(s.frames)
	defer body.Close()
	decoder := json.NewDecoder(body)
	for {
		var next frame
		if err := decoder.Decode(&next); err != nil {
			return
		}
		select {
		case s.frames <- next:
		case <-ctx.Done():
			return
		}
	}
}

// close ends the watch from the client's side.
func (s *stream) close() { s.cancel() }

// read returns what comes until n frames have come and then for quietTime, and
// whether the server ended the stream before.
func (s *stream) read(n int) (all []frame, ended bool) {
	var quiet <-chan time.Time
	for {
		if len(all) >= n && quiet == nil {
			quiet = time.After(quietTime)
		}
		select {
		case next, ok := <-s.frames:
			if !ok {
				return all, true
			}
			all = append(all, next)
		case <-quiet:
			return all, false
		}
	}
}

// readAll returns what comes until the server ends the stream. It gives up when
// that takes as long as the watch may last.
func (s *stream) readAll() (all []frame, ended bool) {
	timeout := time.After(watchSeconds * time.Second / 2)
	for {
		select {
		case next, ok := <-s.frames:
			if !ok {
				return all, true
			}
			all = append(all, next)
		case <-timeout:
			return all, false
		}
	}
}
