// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"crypto/tls"
	"encoding/binary"
	"sync"

	"golang.org/x/net/http2"
)

const (
	// frameHeaderBytes is the size of the header of a frame (RFC 9113, section 4.1).
	frameHeaderBytes = 9
	// largestStream is the number that no stream exceeds.
	largestStream = 1<<31 - 1
)

// conn is a connection of an HTTP/2 server that follows the frames it writes, so that one more can be
// put between two of them. The server writes from one goroutine.
type conn struct {
	*tls.Conn

	lock sync.Mutex
	// header is that of the frame being written, of which the first known bytes are written.
	header [frameHeaderBytes]byte
	known  int
	// rest is what the frame lacks after its header, in bytes.
	rest int
	// open says that CONTINUATION frames follow, before which nothing else may come.
	open bool
	// answered says that a stream has been answered. A client that is told to leave before
	// it has had an answer would try the same server again.
	answered bool
	draining bool
	said     bool
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	n, err := c.Conn.Write(p)
	c.followLocked(p[:n])
	if err == nil {
		err = c.sayLocked()
	}
	return n, err
}

// drain tells the client to open no more streams here: at once, or after the frame that is being
// written. It blocks as long as the client does not read.
func (c *conn) drain() error {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.draining = true
	return c.sayLocked()
}

func (c *conn) betweenLocked() bool { return c.known == 0 && c.rest == 0 && !c.open }

// sayLocked sends the first GOAWAY if it is due and may be sent now.
func (c *conn) sayLocked() error {
	if !c.draining || c.said || !c.answered || !c.betweenLocked() {
		return nil
	}
	c.said = true
	_, err := c.Conn.Write(goAway())
	return err
}

// goAway is the frame (RFC 9113, section 6.8): eight bytes, no flags, stream 0, no error.
func goAway() []byte {
	frame := []byte{0, 0, 8, byte(http2.FrameGoAway), 0, 0, 0, 0, 0}
	frame = binary.BigEndian.AppendUint32(frame, largestStream)
	return binary.BigEndian.AppendUint32(frame, uint32(http2.ErrCodeNo))
}

// followLocked takes note of what was written.
func (c *conn) followLocked(p []byte) {
	for len(p) > 0 {
		if c.rest > 0 {
			n := min(c.rest, len(p))
			c.rest, p = c.rest-n, p[n:]
			continue
		}
		n := copy(c.header[c.known:], p)
		c.known, p = c.known+n, p[n:]
		if c.known == frameHeaderBytes {
			c.beginLocked()
		}
	}
}

// beginLocked reads the header of a frame.
func (c *conn) beginLocked() {
	c.known = 0
	c.rest = int(c.header[0])<<16 | int(c.header[1])<<8 | int(c.header[2])
	flags := http2.Flags(c.header[4])
	switch http2.FrameType(c.header[3]) {
	case http2.FrameHeaders, http2.FramePushPromise, http2.FrameContinuation:
		// The flag that ends the headers is the same in all three.
		c.open = !flags.Has(http2.FlagHeadersEndHeaders)
		c.answered = true
	}
}
