// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// Throttled counts the requests that a server has put off.
type Throttled struct{ atomic.Int64 }

// NewAgent returns a client that does what client-go does when the server answers
// 429 with Retry-After: it waits and asks again. Close ends it as a kill would: its
// connections are closed with the watches on them.
func NewAgent(config *rest.Config, throttled *Throttled) (*Client, error) {
	c, err := New(config)
	if err != nil {
		return nil, err
	}
	transport, ok := c.http.Transport.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("a client has the transport %T", c.http.Transport)
	}
	agent := &patient{next: transport, throttled: throttled}
	transport.DialContext = agent.dial
	c.http.Transport = agent
	return c, nil
}

// patient repeats requests without a body.
type patient struct {
	next      http.RoundTripper
	throttled *Throttled

	mu     sync.Mutex
	dialed []net.Conn
}

var _ http.RoundTripper = &patient{}

// RoundTrip implements http.RoundTripper.
func (p *patient) RoundTrip(request *http.Request) (*http.Response, error) {
	for {
		response, err := p.next.RoundTrip(request)
		if err != nil || response.StatusCode != http.StatusTooManyRequests || request.Body != nil && request.Body != http.NoBody {
			return response, err
		}
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err != nil {
			return response, nil
		}
		p.throttled.Add(1)
		if err := response.Body.Close(); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
	}
}

func (p *patient) dial(ctx context.Context, network, address string) (net.Conn, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dialed = append(p.dialed, connection)
	return connection, nil
}

// CloseIdleConnections is what Client.Close calls. It closes those that are in use too.
func (p *patient) CloseIdleConnections() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, connection := range p.dialed {
		// One that the server has closed already is closed.
		_ = connection.Close()
	}
	p.dialed = nil
}

// Send sends a request with a body, which may be nil, and reads the answer to its
// end. Any status but 2xx is an error. It may be called by several at once.
func (c *Client) Send(ctx context.Context, method, url, contentType string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", contentType)
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != http.StatusOK/100 {
		return refused(response)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("%s %s: reading the answer: %w", method, url, err)
	}
	return nil
}

// refused is the error of an answer that is not what was asked for.
func refused(response *http.Response) error {
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, errorBytes))
	if err != nil {
		text = []byte(err.Error())
	}
	return fmt.Errorf("%s %s: %s %s", response.Request.Method, response.Request.URL, response.Status, bytes.TrimSpace(text))
}
