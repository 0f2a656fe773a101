// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"

	"github.com/kubeannex/annex/test/bench/report"
	"github.com/kubeannex/annex/test/bench/scenario"
)

// partialSuffix ends the folder of a report that would have replaced one with more in it.
const partialSuffix = "-partial"

// measuredRounds is how many rounds a report has of each scenario, of the result and the side with the fewest.
func measuredRounds(results []report.Result) map[string]int {
	rounds := map[string]int{}
	for _, result := range results {
		for _, side := range result.Sides {
			count, found := rounds[result.Scenario]
			if !found || len(side.Rounds) < count {
				rounds[result.Scenario] = len(side.Rounds)
			}
		}
	}
	return rounds
}

// checkComplete returns everything that a report lacks of one of all scenarios with all their rounds.
func checkComplete(results []report.Result) error {
	found := measuredRounds(results)
	var problems []error
	for _, s := range scenario.All(scenario.Settings{Rounds: minRounds}) {
		wanted, _ := scenario.RoundsOf(s, minRounds)
		switch has := found[s.Name()]; {
		case has == 0:
			problems = append(problems, fmt.Errorf("the report has nothing of %s", s.Name()))
		case has < wanted:
			problems = append(problems, fmt.Errorf("the report has %d rounds of %s, wanted are %d", has, s.Name(), wanted))
		}
	}
	return errors.Join(problems...)
}

// folder is where a report goes: into that of --output, unless the one that is there is complete
// and has a scenario that this one has not, or more rounds of one.
func (r *run) folder(now report.Report) string {
	last, err := report.Read(r.Output)
	if err != nil || last.Environment.Incomplete != "" {
		// There is none that is worth keeping.
		return r.Output
	}
	has := measuredRounds(now.Results)
	for name, rounds := range measuredRounds(last.Results) {
		if has[name] < rounds {
			return r.Output + partialSuffix
		}
	}
	return r.Output
}
