// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package listwatch

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// documentFile holds the rules in words; its tables are generated.
const documentFile = "../../../docs/list-watch.md"

// TestDocument compares the tables of the document with the rules that the
// other tests send to the server. With -update it writes them.
func TestDocument(t *testing.T) {
	data, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	want := string(data)
	for name, table := range map[string]string{
		"get":            rulesTable(getRules()),
		"list":           rulesTable(listRules()),
		"watch":          rulesTable(watchRules()),
		"list-refusals":  checksTable(listChecks()),
		"watch-refusals": checksTable(watchChecks()),
	} {
		block := regexp.MustCompile(`(?s)(<!-- begin ` + name + ` -->\n).*?(<!-- end ` + name + ` -->)`)
		if !block.MatchString(want) {
			t.Errorf("%s has no place for the table %q", documentFile, name)
		}
		want = block.ReplaceAllString(want, "${1}"+strings.ReplaceAll(table, "$", "$$")+"${2}")
	}
	if *update {
		if err := os.WriteFile(documentFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Errorf("%s is not what the rules say; run go test ./test/integration/listwatch -run TestDocument -update (-want +got):\n%s", documentFile, diff)
	}
}

func rulesTable(rules []rule) string {
	var table strings.Builder
	table.WriteString("| Request | Answer | Served by | Kubernetes 1.24 |\n|---|---|---|---|\n")
	for _, r := range rules {
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", r.request, r.answer, r.today, r.then)
	}
	return table.String()
}

func checksTable(checks []check) string {
	var table strings.Builder
	table.WriteString("| Request | Cause |\n|---|---|\n")
	for _, c := range checks {
		fmt.Fprintf(&table, "| %s | %s |\n", c.request, c.cause)
	}
	return table.String()
}
