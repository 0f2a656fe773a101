// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubeannex/annex/test/env"
)

// TestPage is the life of a release by the commands of docs/install.md and of the README.
func TestPage(t *testing.T) {
	explainFailure(t)
	before := takeInventory(t)
	page := commandsOf(t, "docs/install.md")
	// The README's first command is the page's, so its others come after that.
	readme := commandsOf(t, "README.md")["Install in a cluster"]
	if len(readme) < 2 || !slices.Contains(page["Install with Helm"], readme[0]) {
		t.Fatalf("the README installs by %q, which the page does not have", readme)
	}
	for _, section := range []struct {
		name     string
		commands []string
	}{
		{"Before you install", page["Before you install"]},
		{"Install with Helm", page["Install with Helm"]},
		{"README", readme[1:]},
		{"Certificates", page["Certificates"]},
		{"Upgrade", page["Upgrade"]},
		{"Roll back", page["Roll back"]},
		{"Troubleshooting", page["Troubleshooting"]},
		{"Uninstall", page["Uninstall"]},
	} {
		delete(page, section.name)
		if len(section.commands) == 0 {
			t.Errorf("%s has no commands", section.name)
		}
		for _, command := range section.commands {
			output, err := shell(testContext(t), t, command)
			if err != nil {
				t.Fatalf("%s: %s: %v\n%s", section.name, command, err, output)
			}
		}
	}
	for section, commands := range page {
		t.Errorf("%s has commands that are not run: %q", section, commands)
	}
	if left := leftovers(t, before); len(left) > 0 {
		t.Errorf("left in the cluster:\n%s", strings.Join(left, "\n"))
	}
}

// commandsOf are the lines after a prompt in the console blocks of a page, by section of the second level.
func commandsOf(t *testing.T, name string) map[string][]string {
	t.Helper()
	root, err := env.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	commands, section, console := map[string][]string{}, "", false
	for line := range strings.Lines(string(content)) {
		line = strings.TrimRight(line, "\n")
		heading, isHeading := strings.CutPrefix(line, "## ")
		command, isCommand := strings.CutPrefix(strings.TrimLeft(line, " "), "$ ")
		switch {
		case strings.HasPrefix(strings.TrimLeft(line, " "), "```"):
			console = strings.HasSuffix(line, "```console")
		case console && isCommand:
			commands[section] = append(commands[section], command)
		case isHeading:
			section = heading
		}
	}
	return commands
}

// shell runs a command in the root of the repository, with kubectl and Helm in PATH.
func shell(ctx context.Context, t *testing.T, command string) (string, error) {
	t.Helper()
	root, err := env.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command)
	cmd.Dir = root
	cmd.Env = []string{
		"HOME=" + filepath.Dir(suite.kubeconfig), "KUBECONFIG=" + suite.kubeconfig,
		"PATH=" + filepath.Dir(suite.helm) + string(filepath.ListSeparator) + os.Getenv("PATH"),
	}
	output, err := cmd.CombinedOutput()
	t.Logf("$ %s\n%s", command, output)
	return string(output), err
}
