// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

const (
	// transcriptCommand begins the transcript in a Markdown file.
	transcriptCommand = "$ make demo"
	// omission stands for lines of the output that the transcript leaves out.
	omission = "..."
)

// checkTranscript fails when the transcript in a Markdown file shows lines that
// were not printed, or not in that order. Numbers do not count.
func checkTranscript(file, printed string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the transcript: %w", err)
	}
	shown, err := transcript(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if line := firstDifference(shown, strings.Split(printed, "\n")); line != "" {
		return fmt.Errorf("%s shows a line that was not printed there: %q", file, line)
	}
	return nil
}

// transcript returns the lines below transcriptCommand in its block.
func transcript(markdown string) ([]string, error) {
	_, block, found := strings.Cut(markdown, "```console\n"+transcriptCommand+"\n")
	if !found {
		return nil, fmt.Errorf("no block begins with %q", transcriptCommand)
	}
	block, _, _ = strings.Cut(block, "```")
	lines := strings.Split(strings.TrimSpace(block), "\n")
	if len(lines) < 10 {
		return nil, errors.New("the transcript has less than ten lines")
	}
	return lines, nil
}

// firstDifference returns the first line that is shown and not printed, without
// regard to empty lines. An omission in what is shown stands for any lines.
func firstDifference(shown, printed []string) string {
	next, anywhere := 0, true
	for _, line := range shown {
		if strings.TrimSpace(line) == omission {
			anywhere = true
			continue
		}
		want := blot(line)
		if want == "" {
			continue
		}
		found := false
		for ; next < len(printed) && !found; next++ {
			got := blot(printed[next])
			if found = got == want; !found && got != "" && !anywhere {
				return line
			}
		}
		if !found {
			return line
		}
		anywhere = false
	}
	return ""
}

// blot replaces what differs between two runs: numbers, durations and the width of columns.
func blot(line string) string {
	line = regexp.MustCompile(`([0-9]+(\.[0-9]+)?(ms|[smhd])?)+`).ReplaceAllString(line, "N")
	return strings.Join(strings.Fields(line), " ")
}
