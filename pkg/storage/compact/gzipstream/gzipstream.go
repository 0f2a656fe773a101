// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package gzipstream writes gzip streams from parts that were compressed beforehand, in any order and as
// often as they are needed.
//
// A part is a sequence of deflate blocks that ends at a byte and refers to nothing before it
// (RFC 1951, section 3.2), so parts can follow one another and text that is not compressed. The
// stream is one gzip member (RFC 1952): there are clients that do not read a second.
package gzipstream

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
)

// Part is a text in compressed form. It does not change.
type Part struct {
	deflated []byte
	checksum uint32
	// shift is by what a checksum is multiplied when the text follows.
	shift uint32
	// length is that of the text modulo 2^32, as the trailer has it.
	length uint32
}

// Compressor makes parts. It has large tables, so it should be used again, by one goroutine
// at a time.
type Compressor struct {
	writer *flate.Writer
	buffer bytes.Buffer
}

// NewCompressor returns a Compressor that prefers speed.
func NewCompressor() (*Compressor, error) {
	writer, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	return &Compressor{writer: writer}, nil
}

// Compress returns the part of a text. It does not refer to the text.
func (c *Compressor) Compress(text []byte) (Part, error) {
	c.buffer.Reset()
	c.writer.Reset(&c.buffer)
	if _, err := c.writer.Write(text); err != nil {
		return Part{}, err
	}
	// Flush ends at a byte, and nothing that follows refers to what was before Reset.
	if err := c.writer.Flush(); err != nil {
		return Part{}, err
	}
	return Part{
		deflated: bytes.Clone(c.buffer.Bytes()),
		checksum: crc32.ChecksumIEEE(text), shift: shiftOf(len(text)), length: uint32(len(text)), //nolint:gosec // modulo 2^32
	}, nil
}

// maxStored is how much text a stored block takes.
const maxStored = 1<<16 - 1

// Writer writes one gzip member. An error of its target ends it: every call after that returns the same.
type Writer struct {
	target   io.Writer
	checksum uint32
	length   uint32
	err      error
}

// NewWriter returns a Writer to target, which should have a buffer, and writes the header to it.
func NewWriter(target io.Writer) *Writer {
	w := &Writer{target: target}
	// No name, no time, compressed for speed, unknown operating system: the header of compress/gzip.
	w.put([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255})
	return w
}

func (w *Writer) put(data []byte) {
	if w.err == nil {
		_, w.err = w.target.Write(data)
	}
}

// Write implements io.Writer: the text is not compressed.
func (w *Writer) Write(text []byte) (int, error) {
	for rest := text; len(rest) > 0; {
		block := rest[:min(len(rest), maxStored)]
		rest = rest[len(block):]
		w.stored(block, false)
	}
	w.checksum = crc32.Update(w.checksum, crc32.IEEETable, text)
	w.length += uint32(len(text)) //nolint:gosec // modulo 2^32
	if w.err != nil {
		return 0, w.err
	}
	return len(text), nil
}

// stored writes a stored block, the last of the stream or not.
func (w *Writer) stored(block []byte, last bool) {
	header := make([]byte, 5)
	if last {
		header[0] = 1
	}
	size := uint16(len(block)) //nolint:gosec // at most maxStored
	binary.LittleEndian.PutUint16(header[1:], size)
	binary.LittleEndian.PutUint16(header[3:], ^size)
	w.put(header)
	w.put(block)
}

// WritePart writes a text that was compressed before.
func (w *Writer) WritePart(part Part) error {
	w.put(part.deflated)
	w.checksum = multiply(part.shift, w.checksum) ^ part.checksum
	w.length += part.length
	return w.err
}

// Close ends the stream. It does not close the target.
func (w *Writer) Close() error {
	w.stored(nil, true)
	trailer := binary.LittleEndian.AppendUint32(nil, w.checksum)
	w.put(binary.LittleEndian.AppendUint32(trailer, w.length))
	return w.err
}
