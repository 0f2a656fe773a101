// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

// Settings are what all scenarios are made with.
type Settings struct {
	// Smoke asks for fewer requests and clients in a round.
	Smoke bool
	// Agents is how many agents restart in a storm. 0 means as many as fit in the time.
	Agents int
}

// All returns all scenarios in the order in which they run: those that leave the
// servers as they were come first, and those that are Independent last.
func All(settings Settings) []Scenario {
	apart := &apart{}
	return []Scenario{
		newListSelective(settings.Smoke),
		newListFull(),
		newLimit(),
		newCRUD(settings.Smoke),
		newWatchFanout(settings.Smoke),
		newStorm(settings),
		newIsolation(settings.Smoke),
		newListLarge(),
		newMemory(apart, settings.Smoke),
		newColdStart(apart, settings.Smoke),
		newAdoption(settings.Smoke),
	}
}
