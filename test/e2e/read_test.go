// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

func TestSelectors(t *testing.T) {
	runScript(t, "selectors", []step{
		{run: "create -f -", stdin: seed(t, 21), want: "g-00020 created"},
		{run: "get gdg -l team=a", want: "g-00002"},
		{run: "get gdg -l team!=a -o name", want: "g-00001"},
		{run: "get gdg --selector=team=a,!gone -o name", want: "g-00002"},
		{run: "get gdg -l nope=x", want: "No resources found"},
		{run: "get gdg -l a==b==c", wantExit: 1, want: "found"},
		{run: "get gdg --field-selector=spec.color=red -o name", want: "g-00003"},
		{run: "get gdg --field-selector=spec.color!=red -o name", want: "g-00001"},
		{run: "get gdg --field-selector=spec.color= -o name", want: "g-00010"},
		{run: "get gdg --field-selector=spec.size=3 -o name", want: "g-00003"},
		{run: "get gdg --field-selector=spec.hot=true,spec.color=blue -o name", want: "g-00001"},
		{run: "get gdg --field-selector=spec.color=red -l team=b", want: "g-00003"},
		{run: "get gdg --field-selector=metadata.name=g-00003", want: "g-00003"},
		{run: "get gdg --field-selector=metadata.name=g-00003,spec.color=blue", want: "No resources found"},
		{run: "get gdg --field-selector=metadata.namespace=selectors,spec.size=6 -o name", want: "g-00006"},
		{run: "get gdg -A --field-selector=metadata.namespace=selectors,spec.size=6", want: "selectors"},
		{run: "get gdg --field-selector=spec.note=x", wantExit: 1, want: "field label not supported"},
		{run: "get gadgets.v1beta1.lab.annex.test --field-selector=spec.color=red -o name", want: "g-00003"},
		{run: "get gadgets.v1beta1.lab.annex.test --field-selector=spec.size=3", wantExit: 1, want: "field label not supported"},
		{run: "get planets --field-selector=spec.moons=3", wantExit: 1, want: "field label not supported"},
		{run: "get gdg --chunk-size=5 -o name", want: "g-00020"},
		{run: "get gdg --chunk-size=4 -l team=b -o name", want: "g-00019"},
		{run: "get gdg --chunk-size=1 --field-selector=spec.color=green -o name", want: "g-00002"},
		{run: "get --raw /apis/lab.annex.test/v1/namespaces/selectors/gadgets?limit=5", want: `"remainingItemCount":16`},
		{run: "get --raw /apis/lab.annex.test/v1/namespaces/selectors/gadgets?limit=5&labelSelector=team%3Da", want: `"continue"`},
		{run: "get --raw /apis/lab.annex.test/v1/namespaces/selectors/gadgets?limit=2&resourceVersion=0", want: "g-00020"},
		{run: "get --raw /apis/lab.annex.test/v1/namespaces/selectors/gadgets?continue=nonsense", wantExit: 1, want: "continue"},
		{run: "get --raw /apis/lab.annex.test/v1/namespaces/selectors/gadgets?resourceVersion=0&resourceVersionMatch=Exact", wantExit: 1, want: "forbidden"},
		{run: "get --raw /apis/lab.annex.test/v1/namespaces/none/gadgets", want: `"items":[]`},
	})
}

func TestDiscoveryAndExplain(t *testing.T) {
	runScript(t, "explain", []step{
		{run: "api-resources --api-group=lab.annex.test -o wide", want: "gdg"},
		{run: "api-resources -o name", want: "gadgets.lab.annex.test"},
		{run: "api-versions", want: "lab.annex.test/v1beta1"},
		{run: "get --raw /apis/lab.annex.test", want: "preferredVersion"},
		{run: "get --raw /apis/lab.annex.test/v1", want: "gadgets/scale", unordered: true},
		{run: "get --raw /apis/lab.annex.test/v1beta1", want: "gadgets/status", unordered: true},
		{run: "get --raw /apis/lab.annex.test/v9", wantExit: 1},
		{run: "explain gdg", want: "Gadget is a namespaced object"},
		{run: "explain gadgets.spec.color", want: "Colour of the case."},
		{run: "explain gadgets.status.conditions", want: "Observations"},
		{run: "explain gadgets --recursive", want: "lastTransitionTime"},
		{run: "explain gadgets --api-version=lab.annex.test/v1beta1", want: "as it was before"},
		{run: "explain gadgets.spec.nope", wantExit: 1, want: "nope"},
		{run: "explain planets.spec", want: "Any fields at all."},
		{run: "explain gadgets.spec --output=plaintext-openapiv2", want: "Colour of the case.", eventually: true},
	})
}

func TestWait(t *testing.T) {
	runScript(t, "wait", []step{
		{run: "create -f -", stdin: gadget("one", "{color: red}")},
		{run: "wait gdg one --for=condition=Ready --timeout=1s", wantExit: 1, want: "timed out"},
		{run: `patch gdg one --subresource=status --type=merge -p={"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, want: "patched"},
		{run: "wait gdg one --for=condition=Ready --timeout=20s", want: "condition met"},
		{run: "wait gdg one --for=condition=Ready=False --timeout=1s", wantExit: 1, want: "timed out"},
		{run: "wait gdg --all --for=jsonpath={.spec.color}=red --timeout=20s", want: "condition met"},
		{run: "wait gdg one --for=create --timeout=20s", want: "condition met"},
		{run: "wait gdg two --for=create --timeout=1s", wantExit: 1, want: "timed out"},
		{run: "wait gdg one --for=delete --timeout=1s", wantExit: 1, want: "timed out"},
		{run: "wait gdg two --for=delete --timeout=1s"},
		{run: "wait gdg two --for=condition=Ready --timeout=1s", wantExit: 1, want: "not found"},
	})
}

// TestRights shows that the host's RBAC decides, whoever stores the objects.
func TestRights(t *testing.T) {
	runScript(t, "rights", []step{
		{run: "create role reader --verb=get,list,watch --resource=gadgets.lab.annex.test", want: "created"},
		{run: "create rolebinding reader --role=reader --user=ann", want: "created"},
		{run: "create -f -", stdin: gadget("one", "{color: red}")},
		{run: "--as=ann get gdg", want: "red"},
		{run: "--as=ann create -f -", stdin: gadget("two", "{}"), wantExit: 1, want: "Forbidden"},
		{run: "--as=ann get gdg one --subresource=status", wantExit: 1, want: "Forbidden"},
		{run: "--as=ann get gdg -A", wantExit: 1, want: "Forbidden"},
		{run: "--as=ann delete gdg one", wantExit: 1, want: "Forbidden"},
		{run: "--as=bob get gdg", wantExit: 1, want: "Forbidden"},
		{run: "--as=ann auth can-i get gadgets.lab.annex.test/one", want: "yes"},
		{run: "--as=ann auth can-i update gadgets.lab.annex.test", wantExit: 1, want: "no"},
	})
}

// TestNamespaces shows that the host's namespaces count.
func TestNamespaces(t *testing.T) {
	runScript(t, "spaces", []step{
		{run: "create -f - -n nowhere", stdin: gadget("one", "{color: red}"), wantExit: 1, want: `namespaces "nowhere" not found`},
		{run: "get gdg -n nowhere", want: "No resources found in nowhere namespace."},
		{run: "create namespace spaces-2", want: "created"},
		{run: "create -f - -n spaces-2", stdin: gadget("one", "{color: red}"), want: "created"},
		{run: "create -f -", stdin: gadget("one", "{color: blue}"), want: "created"},
		{run: "get gdg -A -l team!=a,team!=b --field-selector=metadata.name=one,metadata.namespace=spaces-2", want: "spaces-2"},
		{run: "create -f - -n spaces-2", stdin: labelled("{name: kept, finalizers: [lab.annex.test/hold]}", "{}"), want: "created"},
		{run: "delete namespace spaces-2 --wait=false", want: "deleted"},
		{run: "create -f - -n spaces-2", stdin: gadget("two", "{color: red}"), wantExit: 1, want: "being terminated"},
		{run: "wait -n spaces-2 gdg/one --for=delete --timeout=60s"},
		{run: "get gdg -n spaces-2 -o name", want: "kept"},
		{run: `patch gdg kept -n spaces-2 --type=merge -p={"metadata":{"finalizers":null}}`, want: "patched"},
		{run: "wait namespace/spaces-2 --for=delete --timeout=60s"},
		{run: "get gdg -A --field-selector=metadata.namespace=spaces-2", want: "No resources found"},
	})
}

// TestConversion reads and writes through a conversion webhook.
func TestConversion(t *testing.T) {
	runScript(t, "conversion", []step{
		{run: "create -f -", stdin: "{apiVersion: lab.annex.test/v1, kind: Morph, metadata: {name: one}, spec: {color: red, size: 2}}", want: "created"},
		{run: "create -f -", stdin: "{apiVersion: lab.annex.test/v2, kind: Morph, metadata: {name: two}, spec: {colour: blue}}", want: "created"},
		{run: "get morphs.v1.lab.annex.test", want: "COLOR"},
		{run: "get morphs.v2.lab.annex.test", want: "COLOUR"},
		{run: "get morphs.v2.lab.annex.test one -o yaml", want: "colour: red"},
		{run: "get morphs.v1.lab.annex.test two -o yaml", want: "color: blue"},
		{run: "get morphs.v2.lab.annex.test --field-selector=spec.colour=red -o name", want: "one"},
		{run: "get morphs.v1.lab.annex.test --field-selector=spec.colour=red", wantExit: 1, want: "field label not supported"},
		{run: `patch morphs.v2.lab.annex.test two --type=merge -p={"spec":{"colour":"green"}}`, want: "patched"},
		{run: "apply --server-side -f -", stdin: "{apiVersion: lab.annex.test/v2, kind: Morph, metadata: {name: two}, spec: {size: 4}}", want: "serverside-applied"},
		{run: "scale morphs.v2.lab.annex.test two --replicas=5", want: "scaled"},
		{run: "get morphs.v1.lab.annex.test two -o yaml --show-managed-fields", want: "color: green"},
	})
}
