// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// transcript is a command and what it printed.
type transcript struct {
	command string
	output  string
}

// transcripts returns the commands, marked by "$ kubectl" or "$ etcdctl", in the console
// blocks of a text, with what changes between two runs blotted out. What make demo
// prints is left out: make test-full plays it.
func transcripts(text string) []transcript {
	var all []transcript
	for _, block := range regexp.MustCompile("(?s)( *)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if strings.HasPrefix(block[2], "$ make demo\n") {
			continue
		}
		body := strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n")
		for _, part := range strings.Split(body, "\n$ ")[1:] {
			command, output, _ := strings.Cut(part, "\n")
			output, _, _ = strings.Cut(output, "\n\n")
			if strings.HasPrefix(command, "kubectl ") || strings.HasPrefix(command, "etcdctl ") {
				command, _, _ = strings.Cut(command, "    ")
				all = append(all, transcript{command: strings.TrimSpace(command), output: blot(output)})
			}
		}
	}
	return all
}

// blot replaces ages and the width they cause.
func blot(output string) string {
	age := regexp.MustCompile(`\s+(\d+[smhd])+$`)
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSpace(output), "\n") {
		lines = append(lines, age.ReplaceAllString(strings.TrimRight(line, " "), " AGE"))
	}
	return strings.Join(lines, "\n")
}

// section returns the part of a Markdown text below a heading of the second level.
func section(text, heading string) string {
	_, body, _ := strings.Cut(text, "\n## "+heading+"\n")
	body, _, _ = strings.Cut(body, "\n## ")
	return body
}

// headings returns the headings of the second level.
func headings(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if heading, found := strings.CutPrefix(line, "## "); found {
			all = append(all, strings.TrimSpace(heading))
		}
	}
	return all
}

// commands returns the commands of a text, without what they print.
func commands(text string) []string {
	var all []string
	for _, t := range transcripts(text) {
		all = append(all, t.command)
	}
	return all
}

func TestCommandsOfAText(t *testing.T) {
	text := "# page\n## First\n1. step\n\n   ```console\n   $ kubectl one\n   $ kubectl two    (a note)\n   printed\n   ```\n" +
		"## Second\n```console\n$ make run\n\n$ etcdctl three\n```\n```yaml\n$ kubectl four\n```\n```console\n$ make demo\n$ kubectl five\n```\n"
	for heading, want := range map[string][]string{
		"First": {"kubectl one", "kubectl two"}, "Second": {"etcdctl three"}, "Third": nil,
	} {
		if got := commands(section(text, heading)); !slices.Equal(got, want) {
			t.Errorf("section %s has the commands %q, want %q", heading, got, want)
		}
	}
	if got, want := headings(text), []string{"First", "Second"}; !slices.Equal(got, want) {
		t.Errorf("headings %q, want %q", got, want)
	}
}
