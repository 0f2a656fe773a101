// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// instruction is one line of a Dockerfile, with its continuations.
type instruction struct {
	name string
	// flags are what begins with two dashes.
	flags []string
	args  string
}

// flag returns the value of a flag, empty if it is not there.
func (i instruction) flag(name string) string {
	for _, flag := range i.flags {
		if value, found := strings.CutPrefix(flag, "--"+name+"="); found {
			return value
		}
	}
	return ""
}

// stages takes a Dockerfile apart. The first stage holds what stands before the first FROM.
func stages(text string) [][]instruction {
	result := [][]instruction{nil}
	for _, line := range logicalLines(text) {
		name, rest, _ := strings.Cut(line, " ")
		parsed := instruction{name: strings.ToUpper(name), args: strings.TrimSpace(rest)}
		for strings.HasPrefix(parsed.args, "--") {
			flag, rest, _ := strings.Cut(parsed.args, " ")
			parsed.flags, parsed.args = append(parsed.flags, flag), strings.TrimSpace(rest)
		}
		if parsed.name == "FROM" {
			result = append(result, nil)
		}
		result[len(result)-1] = append(result[len(result)-1], parsed)
	}
	return result
}

// logicalLines drops comments and empty lines and joins continued ones.
func logicalLines(text string) []string {
	var lines []string
	continued := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		content, more := strings.CutSuffix(line, `\`)
		if continued {
			lines[len(lines)-1] += " " + strings.TrimSpace(content)
		} else {
			lines = append(lines, strings.TrimSpace(content))
		}
		continued = more
	}
	return lines
}

// variables are the ARGs of a stage with their default values, overridden by given ones. Those that the
// builder sets by itself, such as the platform, are not among them.
func variables(stage []instruction, given map[string]string) []string {
	var result []string
	for _, i := range stage {
		if i.name != "ARG" {
			continue
		}
		name, value, _ := strings.Cut(i.args, "=")
		if override, ok := given[name]; ok {
			value = override
		}
		result = append(result, name+"="+value)
	}
	return result
}

func TestStagesOfADockerfile(t *testing.T) {
	text := "# comment\nARG A=1\n\nFROM --platform=x/${Y:-z} image AS build\nARG B=2\nRUN one \\\n  # inside\n  && two \\\n  && three\n" +
		"FROM base\nCOPY --from=build --chown=1:2 /a /b\n"
	want := [][]instruction{
		{{name: "ARG", args: "A=1"}},
		{
			{name: "FROM", flags: []string{"--platform=x/${Y:-z}"}, args: "image AS build"},
			{name: "ARG", args: "B=2"},
			{name: "RUN", args: "one && two && three"},
		},
		{{name: "FROM", args: "base"}, {name: "COPY", flags: []string{"--from=build", "--chown=1:2"}, args: "/a /b"}},
	}
	got := stages(text)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(instruction{})); diff != "" {
		t.Errorf("stages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"B=3"}, variables(got[1], map[string]string{"B": "3"})); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

// readStages reads the Dockerfile of the repository: what builds, and what becomes the image.
func readStages(path string) (build, final []instruction, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	all := stages(string(text))
	if len(all) != 3 {
		return nil, nil, fmt.Errorf("%s has %d stages, want a build stage and the image", path, len(all)-1)
	}
	return all[1], all[2], nil
}
