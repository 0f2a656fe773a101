// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package gzipstream

import "hash/crc32"

// A CRC-32 is a polynomial over GF(2) modulo crc32.IEEE, its highest power in the lowest bit.
// When n bytes follow a text, its checksum is multiplied by x^8n, and that of the n
// bytes is added, which is an exclusive or.

// one is the polynomial 1, and eighth is x^8.
const (
	one    uint32 = 1 << 31
	eighth uint32 = 1 << 23
)

// multiply returns a product modulo crc32.IEEE.
func multiply(a, b uint32) uint32 {
	var product uint32
	for power := one; power != 0; power >>= 1 {
		if a&power != 0 {
			product ^= b
		}
		// b times x: its highest power, if it has it, is what the modulus takes away.
		b = b>>1 ^ crc32.IEEE&-(b&1)
	}
	return product
}

// shiftOf returns x^8n.
func shiftOf(n int) uint32 {
	shift, power := one, eighth
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			shift = multiply(shift, power)
		}
		power = multiply(power, power)
	}
	return shift
}
