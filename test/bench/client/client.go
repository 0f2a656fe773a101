// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// errorBytes is how much of an unexpected answer an error shows.
	errorBytes = 500
	// gzipEncoding is the only encoding that API servers offer.
	gzipEncoding = "gzip"
)

// Client is a user who asks for one thing after another. It keeps its buffer, so
// an Answer is valid until the next request, and it must not be shared.
type Client struct {
	http *http.Client
	body bytes.Buffer
}

// New returns a client with connections of its own.
func New(config *rest.Config) (*Client, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	// Compression is asked for by hand, so that the time is not that of our gunzip.
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true, DisableCompression: true}
	return &Client{http: &http.Client{Transport: transport}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Answer is a complete answer of a server.
type Answer struct {
	// Took is the time from sending the request to the last byte.
	Took time.Duration
	// FirstByte is the time from sending the request to the header of the answer.
	FirstByte time.Duration
	// Body is what came over the wire, compressed or not.
	Body []byte
	// Compressed says that Body is.
	Compressed bool
}

// Get reads the answer to a request. Compressed says that the client accepts gzip;
// an answer that then is not compressed, or the other way round, is an error.
func (c *Client) Get(ctx context.Context, url string, compressed bool) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Answer{}, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	if compressed {
		request.Header.Set("Accept-Encoding", gzipEncoding)
	}
	c.body.Reset()
	start := time.Now()
	response, err := c.http.Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer response.Body.Close()
	answer := Answer{FirstByte: time.Since(start), Compressed: response.Header.Get("Content-Encoding") == gzipEncoding}
	if response.StatusCode != http.StatusOK {
		return Answer{}, refused(response)
	}
	if _, err := c.body.ReadFrom(response.Body); err != nil {
		return Answer{}, fmt.Errorf("GET %s: reading the answer: %w", url, err)
	}
	answer.Took, answer.Body = time.Since(start), c.body.Bytes()
	if answer.Compressed != compressed {
		return Answer{}, fmt.Errorf("GET %s: gzip was asked for: %t, used: %t", url, compressed, answer.Compressed)
	}
	return answer, nil
}

// List returns the summary of the list in the answer.
func (a Answer) List() (List, error) {
	if !a.Compressed {
		return Scan(a.Body)
	}
	reader, err := gzip.NewReader(bytes.NewReader(a.Body))
	if err != nil {
		return List{}, fmt.Errorf("decompressing an answer: %w", err)
	}
	plain, err := io.ReadAll(reader)
	if err != nil {
		return List{}, fmt.Errorf("decompressing an answer: %w", err)
	}
	return Scan(plain)
}

// Expect returns an error unless the answer is a whole list of so many items.
func (a Answer) Expect(items int) error {
	list, err := a.List()
	if err != nil {
		return err
	}
	if list.Items != items || list.Continue != "" {
		return fmt.Errorf("the answer has %d items and continue %q, wanted are all of %d", list.Items, list.Continue, items)
	}
	return nil
}
