// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"slices"

	"gonum.org/v1/gonum/stat"
)

const (
	half         = 0.5
	firstQuarter = 0.25
	thirdQuarter = 0.75
	ninetyNinth  = 0.99
)

// Summary sums up values of any unit. Quantiles are values that occurred, the
// smallest that is at least as large as that part of the values (nearest rank);
// only the median of an even number is the mean of the middle two.
type Summary struct {
	Count       int
	Min, Max    float64
	Median, P99 float64
	// Lower and Upper are the quartiles: half of the values are between them.
	Lower, Upper float64
}

// IQR is the distance of the quartiles.
func (s Summary) IQR() float64 { return s.Upper - s.Lower }

// Summarize sums up values, which it leaves as they are. Without values, everything is 0.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Summary{
		Count:  len(sorted),
		Min:    sorted[0],
		Max:    sorted[len(sorted)-1],
		Median: (quantile(half, sorted) + sorted[len(sorted)/2]) / 2,
		P99:    quantile(ninetyNinth, sorted),
		Lower:  quantile(firstQuarter, sorted),
		Upper:  quantile(thirdQuarter, sorted),
	}
}

// Median is the median of values, which it leaves as they are.
func Median(values []float64) float64 { return Summarize(values).Median }

func quantile(p float64, sorted []float64) float64 {
	return stat.Quantile(p, stat.Empirical, sorted, nil)
}
