// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubeannex/annex/test/bench/cluster"
	"github.com/kubeannex/annex/test/bench/dataset"
)

const (
	// objectsPerNode gives the number of nodes unless it is set.
	objectsPerNode = 25
	// smokeShare and smokeShareLarge are which part of the small and of the large objects a smoke run has.
	smokeShare, smokeShareLarge = 5, 10
	// minRounds is the least number from which a median is taken.
	minRounds = 5
	// smokeRounds has to do for a run that shows that everything works.
	smokeRounds = 2
	// smokeOutput is the folder of its report.
	smokeOutput = "_output/bench-smoke"
)

// Options are the flags of the benchmark.
type Options struct {
	Objects, Reports, Workflows int
	Nodes, Namespaces           int
	Rounds                      int
	Agents                      int
	Scenarios                   string
	Output                      string
	Smoke                       bool
	Seed                        uint64
	Timeout                     time.Duration
	Keep                        bool
	Profile                     bool
	Publish                     bool

	// args are those that were parsed, for the report, and flags what they gave.
	args      []string
	flags     *pflag.FlagSet
	scenarios *regexp.Regexp
}

// Parse reads arguments and returns completed and valid options, pflag.ErrHelp, or
// everything that is wrong.
func Parse(args []string, usage io.Writer) (*Options, error) {
	o := &Options{args: args}
	flags := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	flags.SetOutput(usage)
	flags.SortFlags = false
	o.addSizeFlags(flags)
	o.addRunFlags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.flags = flags
	o.complete(flags)
	return o, o.validate()
}

func (o *Options) addSizeFlags(flags *pflag.FlagSet) {
	flags.IntVar(&o.Objects, "objects", 100_000, "How many small objects (endpoints, 1.5 KB) each side has.")
	flags.IntVar(&o.Reports, "reports", 2000, "How many objects of 100 KB each side has.")
	flags.IntVar(&o.Workflows, "workflows", 500, "How many objects of 0.5 MB each side has.")
	flags.IntVar(&o.Nodes, "nodes", 0, fmt.Sprintf("Over how many nodes objects are spread. 0 means one for every %d of --objects.", objectsPerNode))
	flags.IntVar(&o.Namespaces, "namespaces", 50, "Over how many namespaces objects are spread.")
	flags.Uint64Var(&o.Seed, "seed", 1, "What the content of the objects is made up from.")
}

func (o *Options) addRunFlags(flags *pflag.FlagSet) {
	flags.IntVar(&o.Rounds, "rounds", minRounds, "How often every side is measured, after one round that is thrown away.")
	flags.IntVar(&o.Agents, "agents", 0, "How many agents restart at once in restart-storm. 0 means as many as fit in the time of the run.")
	flags.StringVar(&o.Scenarios, "scenarios", "", "A regular expression for the names of the scenarios to run. Empty means all.")
	flags.StringVar(&o.Output, "output", "_output/bench", "The folder of the report. That of a smoke run is "+smokeOutput+". One that has less than the one there goes beside it, to "+partialSuffix+".")
	flags.BoolVar(&o.Smoke, "smoke", false, "Run a small and short benchmark, with less data unless sizes are set, and print one JSON line a scenario instead of a table.")
	flags.DurationVar(&o.Timeout, "timeout", time.Hour, "After how long to give up.")
	flags.BoolVar(&o.Keep, "keep", false, "Keep the data and logs of all processes.")
	flags.BoolVar(&o.Publish, "publish", false, "Measure nothing: write the report that is in --output into docs and into the table of the README. It must be of a whole run with the default options.")
	flags.BoolVar(&o.Profile, "profile", false, "Profile both API servers, idle and after the measured rounds of every scenario, into the folder profiles of --output.")
}

func (o *Options) complete(flags *pflag.FlagSet) {
	if o.Smoke {
		if !flags.Changed("output") {
			// That of a full run stays.
			o.Output = smokeOutput
		}
		if !flags.Changed("rounds") {
			o.Rounds = smokeRounds
		}
		for _, size := range []struct {
			flag  string
			value *int
			share int
		}{{"objects", &o.Objects, smokeShare}, {"reports", &o.Reports, smokeShareLarge}, {"workflows", &o.Workflows, smokeShareLarge}} {
			if !flags.Changed(size.flag) {
				*size.value /= size.share
			}
		}
	}
	if o.Nodes == 0 {
		o.Nodes = max(1, o.Objects/objectsPerNode)
	}
}

func (o *Options) validate() error {
	var problems []error
	for name, value := range map[string]int{
		"objects": o.Objects, "reports": o.Reports, "workflows": o.Workflows, "nodes": o.Nodes, "namespaces": o.Namespaces,
	} {
		if value < 1 {
			problems = append(problems, fmt.Errorf("--%s must be at least 1", name))
		}
	}
	if o.Agents < 0 {
		problems = append(problems, errors.New("--agents must not be negative"))
	}
	if o.Rounds < 1 {
		problems = append(problems, errors.New("--rounds must be at least 1"))
	}
	var err error
	if o.scenarios, err = regexp.Compile(o.Scenarios); err != nil {
		problems = append(problems, fmt.Errorf("--scenarios: %w", err))
	}
	return errors.Join(problems...)
}

// changes are the flags with which something else is measured than by default, or less often.
func (o *Options) changes() string {
	var changes []string
	o.flags.Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "output", "timeout", "keep", "profile", "publish":
			return
		case "rounds":
			if o.Rounds >= minRounds {
				return
			}
		}
		if flag.Value.String() != flag.DefValue {
			changes = append(changes, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return strings.Join(changes, " ")
}

func (o *Options) sizes() cluster.Sizes {
	return cluster.Sizes{
		Shape:     dataset.Shape{Seed: o.Seed, Nodes: o.Nodes, Namespaces: o.Namespaces},
		Endpoints: o.Objects, Reports: o.Reports, Flows: o.Workflows,
	}
}

// profiles is the folder for profiles, or empty when there are to be none.
func (o *Options) profiles() string {
	if !o.Profile {
		return ""
	}
	return filepath.Join(o.Output, "profiles")
}
