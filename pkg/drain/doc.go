// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain lets clients leave a server before it stops, so that no request of theirs fails.
//
// An HTTP/2 server that stops sends GOAWAY with the number of the last stream that it has seen. What a
// client had sent after that one, when the frame reached it, is lost. A client that has kept
// no copy of a request's body cannot send it again; kube-apiserver's aggregator is one, and
// answers 503 then. RFC 9113, section 6.8, has the remedy: a first GOAWAY with the largest possible number loses nothing, as all
// streams are below it, and makes the client open its next stream on another connection. When
// that has had time to arrive, the server may stop. Go's server sends the last frame only
// (golang.org/x/net/http2/server.go, goAway), so this package sends the first one:
//
//	SIGTERM ──► not ready, delay ──► first GOAWAY on every connection ──► grace ──► Go's own shutdown
//
// A client of HTTP/1.1 is told with its next answer that the connection ends.
package drain
