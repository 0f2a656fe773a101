// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

func TestCreateAndGet(t *testing.T) {
	runScript(t, "create", []step{
		{run: "get gdg", want: "No resources found in create namespace."},
		{run: "create -f -", stdin: gadget("one", "{color: red, size: 3}"), want: "gadget.lab.annex.test/one created"},
		{run: "create -f -", stdin: gadget("one", "{color: red}"), wantExit: 1, want: "AlreadyExists"},
		{run: "create -f -", stdin: gadget("two", "{size: many}"), wantExit: 1, want: "spec.size: Invalid value"},
		{run: "create -f - --validate=false", stdin: gadget("two", "{size: many}"), wantExit: 1, want: "spec.size: Invalid value"},
		{run: "create -f -", stdin: gadget("two", "{shape: round}"), wantExit: 1, want: `unknown field "spec.shape"`},
		{run: "create -f - --validate=warn", stdin: gadget("two", "{shape: round}"), want: `Warning: unknown field "spec.shape"`},
		{run: "create -f - --validate=ignore", stdin: gadget("three", "{shape: round, hot: true}"), want: "created"},
		{run: "create -f -", stdin: gadget("UPPER", "{}"), wantExit: 1, want: "Invalid value"},
		{run: "create -f -", stdin: "{apiVersion: lab.annex.test/v1, kind: Gizmo, metadata: {name: x}}", wantExit: 1, want: "no matches for kind"},
		{run: "create -f -", stdin: "{apiVersion: lab.annex.test/v3, kind: Gadget, metadata: {name: x}}", wantExit: 1, want: "no matches for kind"},
		{run: "get gdg", want: "COLOR"},
		{run: "get gadgets.lab.annex.test -o wide", want: "SIZE"},
		{run: "get gadgets.v1beta1.lab.annex.test -o wide", want: "SIZE"},
		{run: "get lab", want: "one"},
		{run: "get gdg one -o yaml", want: "color: red"},
		{run: "get gdg one -o json", want: `"color": "red"`},
		{run: "get gadgets.v1beta1.lab.annex.test one -o yaml", want: "apiVersion: lab.annex.test/v1beta1"},
		{run: "get gdg -o name", want: "gadget.lab.annex.test/three"},
		{run: "get gdg three -o jsonpath={.spec}", want: `{"hot":true}`},
		{run: "get gdg -o custom-columns=N:.metadata.name,C:.spec.color", want: "<none>"},
		{run: "get gdg --show-labels --show-kind --no-headers", want: "gadget.lab.annex.test/one"},
		{run: "get gdg --sort-by=.metadata.name -o name", want: "gadget.lab.annex.test/one\n"},
		{run: "get gdg missing", wantExit: 1, want: `gadgets.lab.annex.test "missing" not found`},
		{run: "get gdg missing --ignore-not-found"},
		{run: "describe gdg one", want: "Color:  red"},
		{run: "get gdg one -o json --show-managed-fields", want: `"manager": "kubectl-create"`, unordered: true},
	})
}

func TestReplaceLabelAnnotate(t *testing.T) {
	runScript(t, "replace", []step{
		{run: "replace -f -", stdin: gadget("one", "{color: red}"), wantExit: 1, want: "NotFound"},
		{run: "create -f -", stdin: gadget("one", "{color: red, size: 3}")},
		{run: "replace -f -", stdin: gadget("one", "{color: blue}"), want: "replaced"},
		{run: "get gdg one -o yaml", want: "generation: 2"},
		{run: "replace -f -", stdin: gadget("one", "{color: blue}"), want: "replaced"},
		{run: "get gdg one -o yaml", want: "generation: 2"},
		{run: "replace -f -", stdin: labelled(`{name: one, resourceVersion: "1"}`, "{color: red}"), wantExit: 1, want: "Conflict"},
		{run: "replace --force -f -", stdin: gadget("one", "{color: green}"), want: "replaced"},
		{run: "get gdg one -o yaml", want: "generation: 1"},
		{run: "label gdg one team=a", want: "labeled"},
		{run: "label gdg one team=b", wantExit: 1, want: "already has a value"},
		{run: "label gdg one team=b --overwrite", want: "labeled"},
		{run: "annotate gdg --all note=yes", want: "annotated"},
		{run: "get gdg -L team", want: "TEAM"},
		{run: "label gdg one team-", want: "unlabeled"},
		{run: "get gdg one -o yaml", want: "note: \"yes\""},
	})
}

func TestPatch(t *testing.T) {
	runScript(t, "patch", []step{
		{run: "create -f -", stdin: gadget("one", "{color: red, size: 3}")},
		{run: `patch gdg one --type=merge -p={"spec":{"color":"blue","size":null}}`, want: "patched"},
		{run: `patch gdg one --type=merge -p={"spec":{"color":"blue"}}`, want: "patched (no change)"},
		{run: `patch gdg one --type=json -p=[{"op":"add","path":"/spec/size","value":9}]`, want: "patched"},
		{run: `patch gdg one --type=json -p=[{"op":"test","path":"/spec/size","value":1}]`, wantExit: 1, want: "The request is invalid"},
		{run: `patch gdg one --type=json -p=[{"op":"remove","path":"/spec/none"}]`, wantExit: 1, want: "The request is invalid"},
		{run: `patch gdg one -p={"spec":{"color":"blue"}}`, wantExit: 1, want: "application/strategic-merge-patch+json is not supported"},
		{run: `patch gdg one --type=merge -p={"spec":{"size":"many"}}`, wantExit: 1, want: "Invalid value"},
		{run: `patch gdg one --type=merge -p={"metadata":{"resourceVersion":"1"}}`, wantExit: 1, want: "Conflict"},
		{run: `patch gdg one --type=merge -p={"metadata":{"name":"two"}}`, wantExit: 1, want: "one"},
		{run: `patch gdg none --type=merge -p={"spec":{"size":1}}`, wantExit: 1, want: "not found"},
		{run: `patch gdg one --type=merge -p={"spec":{"hot":true}} --dry-run=server -o yaml`, want: "hot: true"},
		{run: "get gdg one -o yaml", want: "generation: 3"},
		{run: `patch gdg one --subresource=status --type=merge -p={"status":{"size":9},"spec":{"color":"pink"}}`, want: "patched"},
		{run: `patch gdg one --type=merge -p={"status":{"size":1}}`, want: "patched (no change)"},
		{run: "get gdg one -o yaml", want: "color: blue"},
		{run: `patch gdg one --subresource=nope --type=merge -p={"status":{"size":9}}`, wantExit: 1, want: "NotFound"},
		{run: "create -f -", stdin: "{apiVersion: lab.annex.test/v1, kind: Planet, metadata: {name: patched}, spec: {moons: 9007199254740993}}"},
		{run: `patch planet patched --type=merge -p={"spec":{"rings":-9223372036854775808,"mass":0.1}}`, want: "patched"},
		{run: `patch planet patched --subresource=status --type=merge -p={"status":{"x":1}}`, wantExit: 1, want: "not found"},
		{run: "get planet patched -o json", want: "9007199254740993"},
		{run: "delete planet patched", want: "deleted"},
	})
}

func TestEdit(t *testing.T) {
	setStatus := editor(t, `printf 'status:\n  size: 3\n  conditions:\n  - {type: Ready, status: "True"}\n' >>"$1"`)
	runScript(t, "edit", []step{
		{run: "create -f -", stdin: gadget("one", "{color: red, size: 3}")},
		{run: "edit gdg one", env: editor(t, `sed -i 's/color: red/color: blue/' "$1"`), want: "edited"},
		{run: "get gdg one -o yaml", want: "color: blue"},
		{run: "edit gdg one", env: editor(t, `:`), want: "Edit cancelled, no changes made."},
		{run: "edit gdg one", env: editor(t, `sed -i 's/size: 3/size: many/' "$1"`), wantExit: 1, want: "no valid changes were saved"},
		{run: "edit gdg one --subresource=status", env: setStatus, want: "edited"},
		{run: "get gdg one -o yaml", want: "generation: 2"},
		{run: "get gdg one", want: "True"},
		{run: "get gdg one --subresource=status -o yaml", want: "type: Ready"},
		{run: "edit gdg one --subresource=status", env: editor(t, `sed -i 's/size: 3/size: 4/' "$1"`), want: "edited"},
		{run: "get gdg one -o jsonpath={.spec.size}/{.status.size}", want: "3/4"},
		{run: "edit gdg one", env: editor(t, `sed -i 's/size: 4/size: 5/' "$1"`), want: "edited"},
		{run: "get gdg one -o jsonpath={.spec.size}/{.status.size}", want: "3/4"},
	})
}

func TestScale(t *testing.T) {
	runScript(t, "scale", []step{
		{run: "create -f -", stdin: gadget("one", "{size: 3}")},
		{run: "create -f -", stdin: gadget("none", "{color: red}")},
		{run: "get gdg one --subresource=scale -o yaml", want: "replicas: 3"},
		{run: "get gdg none --subresource=scale -o yaml", wantExit: 1, want: "spec.size"},
		{run: "scale gdg one --replicas=5", want: "scaled"},
		{run: "scale gdg one --replicas=6 --current-replicas=3", wantExit: 1, want: "Expected replicas to be 3"},
		{run: "scale gdg one --replicas=6 --current-replicas=5", want: "scaled"},
		{run: "scale gdg one --replicas=7 --resource-version=1", wantExit: 1, want: "resource version to be 1"},
		{run: "scale gdg one --replicas=8 --dry-run=server", want: "server dry run"},
		{run: `patch gdg one --subresource=status --type=merge -p={"status":{"size":6,"sel":"app=x"}}`, want: "patched"},
		{run: `patch gdg one --subresource=scale --type=merge -p={"spec":{"replicas":2}}`, want: "patched"},
		{run: `patch gdg one --subresource=scale --type=merge -p={"spec":{"replicas":-2}}`, wantExit: 1, want: "Invalid value"},
		{run: "get gdg one --subresource=scale -o yaml", want: "selector: app=x"},
		{run: "get gdg one -o yaml", want: "generation: 4"},
		{run: "get --raw /apis/lab.annex.test/v1/namespaces/scale/gadgets/one/scale", want: `"kind":"Scale"`},
	})
}

func TestDelete(t *testing.T) {
	gadgets := "/apis/lab.annex.test/v1/namespaces/delete/gadgets"
	runScript(t, "delete", []step{
		{run: "create -f -", stdin: seed(t, 12)},
		{run: "delete gdg g-00000", want: `gadget.lab.annex.test "g-00000" deleted`},
		{run: "delete gdg g-00000", wantExit: 1, want: "NotFound"},
		{run: "delete gdg g-00000 --ignore-not-found"},
		{run: "delete gdg g-00001 --dry-run=server", want: "server dry run"},
		{run: "delete gdg g-00001 --dry-run=client", want: "dry run"},
		{run: "delete gdg g-00001 --cascade=foreground", want: "deleted"},
		{run: "delete gdg g-00005 --cascade=orphan", want: "deleted"},
		{run: "delete gdg -l team=a,team!=b --field-selector=spec.color=red", want: "deleted"},
		{run: "get gdg -o name", want: "g-00003"},
		{run: "delete --raw " + gadgets + "?labelSelector=team%3Da", want: `"kind":"GadgetList"`},
		{run: "get gdg -o name", want: "g-00003"},
		{run: "delete --raw " + gadgets + "?dryRun=All", want: `"kind":"GadgetList"`},
		{run: "delete --raw " + gadgets + "?fieldSelector=spec.nope%3Dx", wantExit: 1, want: "field label not supported"},
		{run: "delete gdg --all", want: "g-00003"},
		{run: "get gdg", want: "No resources found"},
		{run: "create -f -", stdin: labelled("{name: kept, finalizers: [lab.annex.test/hold]}", "{color: red}")},
		{run: "delete gdg kept --wait=false", want: "deleted"},
		{run: "delete gdg kept --timeout=1s", wantExit: 1, want: "timed out"},
		{run: "get gdg kept -o yaml", want: "deletionTimestamp"},
		{run: `patch gdg kept --type=merge -p={"metadata":{"finalizers":["lab.annex.test/hold","lab.annex.test/more"]}}`, wantExit: 1, want: "Forbidden"},
		{run: `patch gdg kept --type=merge -p={"metadata":{"finalizers":null}}`, want: "patched"},
		{run: "get gdg kept", wantExit: 1, want: "NotFound"},
		{run: "delete --raw " + gadgets + "/none", wantExit: 1, want: "NotFound"},
	})
}
