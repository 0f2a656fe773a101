// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package compact

import "testing"

// choice is a value of each of several properties, by the number of the property.
type choice []string

// pair is a value of one property together with a value of another.
type pair struct {
	first, second int
	a, b          string
}

// pairwise returns choices in which every value of a property meets every value of every other.
func pairwise(properties ...[]string) []choice {
	var open []pair
	missing := map[pair]bool{}
	for i := range properties {
		for j := i + 1; j < len(properties); j++ {
			for _, a := range properties[i] {
				for _, b := range properties[j] {
					open = append(open, pair{i, j, a, b})
					missing[pair{i, j, a, b}] = true
				}
			}
		}
	}
	var all []choice
	for _, seed := range open {
		if !missing[seed] {
			continue
		}
		next := make(choice, len(properties))
		next[seed.first], next[seed.second] = seed.a, seed.b
		for i := range properties {
			if next[i] == "" {
				next[i] = next.best(i, properties[i], missing)
			}
		}
		for _, p := range next.pairs() {
			delete(missing, p)
		}
		all = append(all, next)
	}
	return all
}

// best is the value that makes most missing pairs with those that are chosen.
func (c choice) best(i int, values []string, missing map[pair]bool) string {
	best, most := values[0], -1
	for _, value := range values {
		c[i] = value
		count := 0
		for _, p := range c.pairs() {
			if missing[p] {
				count++
			}
		}
		if count > most {
			best, most = value, count
		}
	}
	c[i] = ""
	return best
}

// pairs are those of the values that are chosen.
func (c choice) pairs() []pair {
	var all []pair
	for i, a := range c {
		for j := i + 1; j < len(c); j++ {
			if a != "" && c[j] != "" {
				all = append(all, pair{i, j, a, c[j]})
			}
		}
	}
	return all
}

func TestPairwise(t *testing.T) {
	properties := [][]string{{"a", "b", "c", "d"}, {"x", "y"}, {"1", "2", "3"}, {"k", "l"}}
	met := map[pair]bool{}
	all := pairwise(properties...)
	for _, c := range all {
		for _, p := range c.pairs() {
			met[p] = true
		}
	}
	if want := 4*2 + 4*3 + 4*2 + 2*3 + 2*2 + 3*2; len(met) != want {
		t.Errorf("%d pairs are met, want %d", len(met), want)
	}
	if len(all) > 16 {
		t.Errorf("%d choices, want few more than 12", len(all))
	}
}
