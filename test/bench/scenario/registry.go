// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

// Settings are what all scenarios are made with.
type Settings struct {
	// Smoke asks for fewer requests and clients in a round.
	Smoke bool
}

// All returns all scenarios in the order in which they run: those that leave the
// servers as they were come first.
func All(settings Settings) []Scenario {
	return []Scenario{
		newListSelective(settings.Smoke),
		newListFull(),
		newListLarge(),
		newCRUD(settings.Smoke),
		newLimit(),
	}
}
