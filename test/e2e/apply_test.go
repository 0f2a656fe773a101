// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

func TestClientSideApply(t *testing.T) {
	runScript(t, "apply", []step{
		{run: "apply -f - --dry-run=client", stdin: gadget("one", "{color: red}"), want: "created (dry run)"},
		{run: "apply -f - --dry-run=server", stdin: gadget("one", "{color: red}"), want: "created (server dry run)"},
		{run: "get gdg", want: "No resources found"},
		{run: "apply -f -", stdin: gadget("one", "{color: red, size: 3}"), want: "created"},
		{run: "apply -f -", stdin: gadget("one", "{color: red, size: 3}"), want: "unchanged"},
		{run: "apply -f - --dry-run=client -o yaml", stdin: gadget("one", "{color: blue, size: 3}"), want: "color: blue"},
		{run: "apply -f - --dry-run=server -o yaml", stdin: gadget("one", "{color: blue}"), want: "color: blue"},
		{run: "apply -f -", stdin: gadget("one", "{color: blue}"), want: "configured"},
		{run: "get gdg one -o yaml", want: "generation: 2"},
		{run: "get gdg one -o jsonpath={.spec}", want: `{"color":"blue"}`},
		{run: "apply -f -", stdin: gadget("one", "{color: 5}"), wantExit: 1, want: "Invalid value"},
		{run: "apply view-last-applied gdg one", want: "color: blue"},
		{run: "apply -f - --prune --all --prune-allowlist=lab.annex.test/v1/Gadget", stdin: gadget("two", "{color: red}"), want: "one pruned"},
		{run: "get gdg -o name", want: "two"},
		{run: "diff -f -", stdin: gadget("two", "{color: red}")},
		{run: "diff -f -", stdin: gadget("two", "{color: blue}"), wantExit: 1, want: "+  color: blue"},
		{run: "diff -f -", stdin: gadget("new", "{color: blue}"), wantExit: 1, want: "+  color: blue"},
		{run: "get gdg two -o yaml", want: "generation: 1"},
	})
}

func TestServerSideApply(t *testing.T) {
	// Managed fields are ordered by time first, of which only seconds are kept, then by manager: the order is no part of the comparison.
	runScript(t, "ssa", []step{
		{run: "apply --server-side -f - --dry-run=server", stdin: gadget("one", "{color: red}"), want: "serverside-applied (server dry run)"},
		{run: "get gdg", want: "No resources found"},
		{run: "apply --server-side -f -", stdin: gadget("one", "{color: red, size: 3}"), want: "serverside-applied"},
		{run: "apply --server-side -f -", stdin: gadget("one", "{color: red, size: 3}"), want: "serverside-applied"},
		{run: "apply --server-side --field-manager=other -f -", stdin: gadget("one", "{hot: true}"), want: "serverside-applied"},
		{run: "apply --server-side --field-manager=other -f -", stdin: gadget("one", "{color: blue}"), wantExit: 1, want: "conflict with \"kubectl\": .spec.color"},
		{run: "apply --server-side --field-manager=other --force-conflicts -f -", stdin: gadget("one", "{color: blue}"), want: "serverside-applied"},
		{run: "get gdg one -o json --show-managed-fields", want: "f:color", unordered: true},
		{run: "apply --server-side -f -", stdin: gadget("one", "{}"), want: "serverside-applied"},
		{run: "get gdg one -o jsonpath={.spec}", want: `{"color":"blue"}`},
		{run: "apply --server-side --field-manager=old -f -", stdin: "{apiVersion: lab.annex.test/v1beta1, kind: Gadget, metadata: {name: one}, spec: {note: x}}", want: "serverside-applied"},
		{run: "apply --server-side --subresource=status --field-manager=state -f -", stdin: "{apiVersion: lab.annex.test/v1, kind: Gadget, metadata: {name: one}, status: {size: 1, conditions: [{type: Ready, status: \"True\"}]}}", want: "serverside-applied"},
		{run: "apply --server-side --subresource=status --field-manager=more -f -", stdin: "{apiVersion: lab.annex.test/v1, kind: Gadget, metadata: {name: one}, status: {conditions: [{type: Warm, status: \"False\"}]}}", want: "serverside-applied"},
		{run: "get gdg one -o json --show-managed-fields", want: `"subresource": "status"`, unordered: true},
		{run: "apply --server-side -f -", stdin: gadget("one", "{color: 5}"), wantExit: 1, want: "color"},
		{run: "apply --server-side -f -", stdin: gadget("one", "{shape: round}"), wantExit: 1, want: "shape"},
		{run: "apply -f -", stdin: gadget("two", "{color: red}"), want: "created"},
		{run: "apply --server-side -f -", stdin: gadget("two", "{size: 1}"), want: "serverside-applied"},
		{run: "get gdg two -o json --show-managed-fields", want: `"size": 1`, unordered: true},
		{run: "diff --server-side -f -", stdin: gadget("two", "{size: 1}")},
		{run: "diff --server-side -f -", stdin: gadget("two", "{size: 2}"), wantExit: 1, want: "+  size: 2"},
		{run: "diff --server-side --field-manager=else -f -", stdin: gadget("two", "{size: 2}"), wantExit: 2, want: "conflict"},
		{run: "get gdg two -o yaml", want: "size: 1"},
	})
}

func TestDryRun(t *testing.T) {
	runScript(t, "dryrun", []step{
		{run: "create -f - --dry-run=client -o yaml", stdin: gadget("one", "{color: red}"), want: "color: red"},
		{run: "create -f - --dry-run=server -o yaml", stdin: gadget("one", "{color: red}"), want: "uid:"},
		{run: "create -f - --dry-run=server", stdin: gadget("one", "{color: 1}"), wantExit: 1, want: "Invalid value"},
		{run: "get gdg", want: "No resources found"},
		{run: "create -f -", stdin: gadget("one", "{color: red}")},
		{run: "create -f - --dry-run=server", stdin: gadget("one", "{color: red}"), wantExit: 1, want: "AlreadyExists"},
		{run: "label gdg one a=b --dry-run=server", want: "server dry run"},
		{run: "annotate gdg one a=b --dry-run=server -o yaml", want: "a: b"},
		{run: "replace -f - --dry-run=server", stdin: gadget("one", "{color: blue}"), want: "server dry run"},
		{run: "delete gdg --all --dry-run=server", want: "server dry run"},
		{run: "get gdg one -o yaml", want: "generation: 1"},
	})
}
