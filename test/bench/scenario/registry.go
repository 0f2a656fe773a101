// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

// Settings are what all scenarios are made with.
type Settings struct {
	// Smoke asks for fewer requests and clients in a round.
	Smoke bool
	// Agents is how many agents restart in a storm. 0 means as many as fit in the time.
	Agents int
	// Rounds is how often every side is measured.
	Rounds int
}

// All returns all scenarios in the order in which they run: those that leave the
// servers as they were come first, and those that are Independent last.
func All(settings Settings) []Scenario {
	return []Scenario{
		newListSelective(settings.Smoke),
		newListFull(),
		newCRUD(settings.Smoke),
		newWatchFanout(settings),
		newStorm(settings),
		newIsolation(settings.Smoke),
		newStormAll(settings.Smoke),
		newColdStart(settings.Smoke),
		newListLarge(settings.Smoke),
		newMemory(settings.Smoke),
		newAdoption(settings.Smoke),
	}
}
