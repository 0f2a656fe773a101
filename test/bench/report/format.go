// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"math"
	"strconv"
)

const (
	kibibyte    = 1 << 10
	mebibyte    = 1 << 20
	gibibyte    = 1 << 30
	millisecond = 1e-3
	micro       = 1e6
)

// format prints a value with its unit.
func format(value float64, unit string) string {
	switch unit {
	case Seconds:
		return formatSeconds(value)
	case Bytes:
		return formatBytes(value)
	case "":
		return digits(value)
	default:
		return digits(value) + " " + unit
	}
}

func formatSeconds(value float64) string {
	switch {
	case value == 0:
		return "0 s"
	case value < 0:
		return "-" + formatSeconds(-value)
	case value < millisecond:
		return digits(value*micro) + " µs"
	case value < 1:
		return digits(value/millisecond) + " ms"
	default:
		return digits(value) + " s"
	}
}

func formatBytes(value float64) string {
	switch {
	case value < kibibyte:
		return digits(value) + " B"
	case value < mebibyte:
		return digits(value/kibibyte) + " KiB"
	case value < gibibyte:
		return digits(value/mebibyte) + " MiB"
	default:
		return digits(value/gibibyte) + " GiB"
	}
}

// digits prints three digits, two of a value below 0.1, and all those before the point.
func digits(value float64) string {
	const ten, hundred = 10, 100
	size := max(value, -value)
	switch {
	case size == 0:
		return "0"
	case size >= hundred:
		return strconv.FormatFloat(value, 'f', 0, 64)
	case size >= ten:
		return strconv.FormatFloat(value, 'f', 1, 64)
	case size >= 1.0/ten:
		return strconv.FormatFloat(value, 'f', 2, 64)
	default:
		return strconv.FormatFloat(value, 'f', 1-int(math.Floor(math.Log10(size))), 64)
	}
}

func (r Ratio) String() string {
	return fmt.Sprintf("%s (%s to %s) %s", digits(r.Value), digits(r.Min), digits(r.Max), r.Verdict)
}
