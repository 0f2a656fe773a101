// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
)

// TestOldProtocols compares answers over HTTP/1.1 and HTTP/1.0 as they are on the wire, where it can be seen whether a server knows
// the length of an answer when it begins.
func TestOldProtocols(t *testing.T) {
	w := shared
	w.mustSettle(t)
	var group sync.WaitGroup
	for name, path := range map[string]string{
		"list": gadgets("v1", "") + "?resourceVersion=0", "small list": gadgets("v1", small), "empty list": gadgets("v1", "empty"), "page": gadgets("v1", "") + "?limit=1",
		"object": gadgets("v1", small) + "/g-01", "fat object": gadgets("v1", large) + "/fat-0", "old list": gadgets("v1beta1", small), "refused": gadgets("v1", "") + "?limit=x",
		"watch": gadgets("v1", small) + "?watch=1&timeoutSeconds=1&resourceVersion=0", "planets": planets + "?pretty=1",
	} {
		for _, c := range pairwise([]string{"HTTP/1.1", "HTTP/1.0"}, []string{http.MethodGet, http.MethodHead}, []string{"identity", "gzip"}) {
			group.Go(func() { w.sameRaw(t, name, get(path), c) })
		}
	}
	group.Wait()
}

// sameRaw compares the answers to a request by a protocol, a method and a packing.
func (w *world) sameRaw(t *testing.T, name string, r request, c choice) {
	t.Helper()
	for {
		text := fmt.Sprintf("%s %s %s\r\nHost: x\r\nAccept: application/json\r\nAccept-Encoding: %s\r\nConnection: close\r\n", c[1], r.path, c[0], c[2])
		var answers []answer
		for _, s := range w.sides() {
			got, err := s.raw(t.Context(), text)
			if err != nil {
				t.Errorf("%s: %s: %v", name, s.name, err)
				return
			}
			answers = append(answers, got)
		}
		if longer, ok := r.longer(answers[0], answers[1]); ok {
			r = longer
			continue
		}
		if diff := differ(answers[0], answers[1]); diff != "" {
			t.Errorf("%s: %q\n%s", name, text, diff)
		}
		return
	}
}

// raw sends the text of a request and reads until the server closes. How an answer is cut into chunks is not compared, whether it is cut is.
func (s *side) raw(ctx context.Context, text string) (answer, error) {
	config, err := rest.TLSConfigFor(s.server.ClientConfig)
	if err != nil {
		return answer{}, err
	}
	config.NextProtos = []string{"http/1.1"}
	address, err := url.Parse(s.server.ClientConfig.Host)
	if err != nil {
		return answer{}, err
	}
	dialer := tls.Dialer{Config: config}
	conn, err := dialer.DialContext(ctx, "tcp", address.Host)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close() //nolint:errcheck // the server has closed it
	if err := conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return answer{}, err
	}
	if _, err := io.WriteString(conn, text+"Authorization: Bearer "+s.server.ClientConfig.BearerToken+"\r\n\r\n"); err != nil {
		return answer{}, err
	}
	reader := bufio.NewReader(conn)
	method, _, _ := strings.Cut(text, " ")
	response, err := http.ReadResponse(reader, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{}, err
	}
	got := answer{code: response.StatusCode, header: response.Header, body: body, zipped: response.Header.Get("Content-Encoding") == "gzip"}
	got.header.Set("Protocol", response.Proto)
	got.header["Transfer-Encoding"] = response.TransferEncoding
	if !got.zipped {
		got.header.Set("Content-Length", fmt.Sprint(response.ContentLength))
	} else if method == http.MethodGet {
		if got.body, err = unpack(body); err != nil {
			return answer{}, err
		}
	}
	return got, nil
}

// TestWatchByWebSocket compares the messages of watches that come in a web socket.
func TestWatchByWebSocket(t *testing.T) {
	w := shared
	w.mustSettle(t)
	var group sync.WaitGroup
	for name, path := range map[string]string{
		"gadgets": gadgets("v1", small) + "?watch=1&timeoutSeconds=1&resourceVersion=0", "history": gadgets("v1", "") + "?watch=1&timeoutSeconds=1&resourceVersion=" + fmt.Sprint(w.history),
		"initial events": planets + "?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true" + notOlder, "old gadgets": gadgets("v1beta1", small) + "?watch=1&timeoutSeconds=1&resourceVersion=0",
	} {
		for _, accept := range []string{jsonType, as(jsonType, "Table", "v1"), as(protobufType, "PartialObjectMetadata", "v1")} {
			group.Go(func() { w.sameMessages(t, name, get(path, "Accept", accept)) })
		}
	}
	group.Wait()
}

// sameMessages compares the messages of a watch.
func (w *world) sameMessages(t *testing.T, name string, r request) {
	t.Helper()
	for {
		var answers []answer
		for _, s := range w.sides() {
			messages, err := s.messages(t.Context(), r.path, r.header["Accept"])
			if err != nil || len(messages) == 0 {
				t.Errorf("%s: %s: %s: %d bytes: %v", name, s.name, r, len(messages), err)
				return
			}
			answers = append(answers, answer{code: http.StatusOK, body: messages})
		}
		if longer, ok := r.longer(answers[0], answers[1]); ok {
			r = longer
			continue
		}
		if diff := differ(answers[0], answers[1]); diff != "" {
			t.Errorf("%s: %s\n%s", name, r, diff)
		}
		return
	}
}

// messages reads a web socket to its end.
func (s *side) messages(ctx context.Context, path, accept string) ([]byte, error) {
	config, err := websocket.NewConfig(strings.Replace(s.server.ClientConfig.Host, "https:", "wss:", 1)+path, "https://localhost")
	if err != nil {
		return nil, err
	}
	if config.TlsConfig, err = rest.TLSConfigFor(s.server.ClientConfig); err != nil {
		return nil, err
	}
	config.TlsConfig.NextProtos = []string{"http/1.1"}
	config.Header.Set("Accept", accept)
	config.Header.Set("Authorization", "Bearer "+s.server.ClientConfig.BearerToken)
	socket, err := config.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	defer socket.Close() //nolint:errcheck // the server has closed it
	var all []byte
	for {
		var message []byte
		err := websocket.Message.Receive(socket, &message)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, fmt.Sprintf("%d bytes: ", len(message))...)
		all = append(append(all, message...), '\n')
	}
}
