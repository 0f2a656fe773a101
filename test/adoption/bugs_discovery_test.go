// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

const aggregatedDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// TestDiscoveryStays compares everything that discovery says of a group before
// and after its adoption (kubernetes/kubernetes 116770), and writes through the
// version that is not stored.
func TestDiscoveryStays(t *testing.T) {
	group := suite.cluster.NewGroup(t, "seen.annex.test", nil)
	group.Seed(t, 5, 2)
	before := []map[string]any{discover(t, group, 0), discover(t, group, 1)}
	kubectl, err := suite.cluster.Host.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	resources := kubectl.MustRun(t, "api-resources", "--api-group="+group.Name, "--output=wide", "--no-headers")
	adopt(t, group)
	for server := range before {
		err := scenario.Poll(scenario.Context(t), func(context.Context) error {
			if diff := cmp.Diff(before[server], discover(t, group, server)); diff != "" {
				return fmt.Errorf("discovery of kube-apiserver %d (-before +after):\n%s", server, diff)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if err := kubectl.ForgetDiscovery(); err != nil {
		t.Fatal(err)
	}
	after := kubectl.MustRun(t, "api-resources", "--api-group="+group.Name, "--output=wide", "--no-headers")
	if diff := cmp.Diff(resources, after); diff != "" {
		t.Errorf("kubectl api-resources (-before +after):\n%s", diff)
	}
	beta := group.HostClient(t, group.Gadgets("v1beta1")).Namespace(group.Namespaces[0])
	patch := []byte(`{"spec":{"note":"through v1beta1"}}`)
	if _, err := beta.Patch(scenario.Context(t), "owner", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	read, err := group.HostClient(t, group.Gadgets("v1")).Namespace(group.Namespaces[0]).Get(scenario.Context(t), "owner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fmt.Sprint(read.Object["spec"]), "through v1beta1") || !scenario.FromAnnex(read.GetResourceVersion()) {
		t.Errorf("v1 shows %v at revision %s, want what was written through v1beta1", read.Object["spec"], read.GetResourceVersion())
	}
}

// discover returns all documents in which a kube-apiserver tells of the group,
// without the private version, which is there for a minute after an adoption.
func discover(t *testing.T, group *scenario.Group, server int) map[string]any {
	t.Helper()
	config := suite.cluster.HostConfig(t, server)
	documents := map[string]any{}
	read := func(path, accept string) any {
		code, body, _ := getWith(t, config, path, map[string]string{"Accept": accept})
		var document any
		if err := json.Unmarshal([]byte(body), &document); err != nil || code != 200 {
			return fmt.Sprintf("%d %.200s (%v)", code, body, err)
		}
		return document
	}
	documents["aggregated"] = ofGroup(read("/apis", aggregatedDiscovery), "items", group.Name)
	documents["groups"] = ofGroup(read("/apis", "application/json"), "groups", group.Name)
	for _, path := range []string{"/apis/" + group.Name, "/apis/" + group.Name + "/v1", "/apis/" + group.Name + "/v1beta1"} {
		documents[path] = inOrder(withoutPrivate(read(path, "application/json")))
	}
	return documents
}

// ofGroup picks the entry of a group out of a document that lists all.
func ofGroup(document any, list, group string) any {
	fields, _ := document.(map[string]any)
	items, _ := fields[list].([]any)
	for _, item := range items {
		entry, _ := item.(map[string]any)
		metadata, _ := entry["metadata"].(map[string]any)
		if entry["name"] == group || metadata["name"] == group {
			delete(metadata, "creationTimestamp")
			return withoutPrivate(entry)
		}
	}
	return nil
}

// withoutPrivate takes the private version out of the versions of a group.
func withoutPrivate(document any) any {
	fields, _ := document.(map[string]any)
	versions, _ := fields["versions"].([]any)
	var kept []any
	for _, version := range versions {
		if entry, _ := version.(map[string]any); entry["version"] != kubeannexv1alpha1.PrivateVersion {
			kept = append(kept, version)
		}
	}
	if kept != nil {
		fields["versions"] = kept
	}
	return document
}

// inOrder sorts the resources of a list, whose order is any with kube-apiserver too.
func inOrder(document any) any {
	fields, _ := document.(map[string]any)
	resources, _ := fields["resources"].([]any)
	slices.SortFunc(resources, func(a, b any) int {
		first, _ := a.(map[string]any)
		second, _ := b.(map[string]any)
		return strings.Compare(fmt.Sprint(first["name"]), fmt.Sprint(second["name"]))
	})
	return document
}

// TestOpenAPIStays looks at kubectl explain and at the documents behind it
// (deckhouse/deckhouse 23154): they are the same after an adoption, a changed
// schema shows soon, and kube-apiserver does not complain.
func TestOpenAPIStays(t *testing.T) {
	t.Parallel()
	group := suite.cluster.NewGroup(t, "openapi.annex.test", nil)
	group.Seed(t, 3, 1)
	kubectl, err := suite.cluster.Host.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	explain := func(more ...string) string {
		return kubectl.MustRun(t, append([]string{"explain", "gadgets.spec", "--recursive", "--api-version=" + group.Name + "/v1"}, more...)...)
	}
	waitExplained(t, group, kubectl, "What the gadget should look like.")
	before := explain()
	adopt(t, group)
	group.WaitRouted(t, true)
	if diff := cmp.Diff(before, explain()); diff != "" {
		t.Errorf("kubectl explain (-before +after):\n%s", diff)
	}
	for _, replica := range suite.cluster.Annex.Replicas {
		checkOpenAPI(t, group, replica)
	}
	const changed = "Changed while annexed."
	editDescription(t, group, changed)
	begin := time.Now()
	waitExplained(t, group, kubectl, changed)
	t.Logf("a changed description shows after %s", time.Since(begin).Round(time.Millisecond))
	for _, server := range suite.cluster.Host.APIServers {
		for line := range strings.SplitSeq(server.Log(), "\n") {
			if strings.Contains(line, group.Name) && strings.Contains(line, "OpenAPI") && strings.Contains(line, "failed") {
				t.Errorf("%s complains: %s", server.Name(), line)
				break
			}
		}
	}
}

func waitExplained(t *testing.T, group *scenario.Group, kubectl *env.Kubectl, text string) {
	t.Helper()
	err := scenario.Poll(scenario.Context(t), func(ctx context.Context) error {
		result, err := kubectl.Run(ctx, "explain", "gadgets.spec", "--api-version="+group.Name+"/v1")
		if err == nil && !strings.Contains(result.Stdout, text) {
			err = fmt.Errorf("kubectl explain says %q %q", result.Stdout, result.Stderr)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkOpenAPI asks a replica as kube-apiserver's aggregator does.
func checkOpenAPI(t *testing.T, group *scenario.Group, replica *env.AnnexServer) {
	t.Helper()
	config, err := suite.cluster.Annex.FrontProxyConfig(indexOf(replica), "system:aggregator", "system:authenticated")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/" + group.Name + "/v1"} {
		code, body, headers := getWith(t, config, path, nil)
		if code != 200 || !strings.Contains(body, group.Name) {
			t.Errorf("%s answers GET %s with %d %.100s, want 200 and the group", replica.Name(), path, code, body)
			continue
		}
		etag := headers.Get("Etag")
		if code, _, _ := getWith(t, config, path, map[string]string{"If-None-Match": etag}); path != "/openapi/v3" && (code != 304 || etag == "") {
			t.Errorf("%s answers GET %s with If-None-Match %s with %d, want 304", replica.Name(), path, etag, code)
		}
	}
}

func indexOf(replica *env.AnnexServer) int {
	for i, other := range suite.cluster.Annex.Replicas {
		if other == replica {
			return i
		}
	}
	return -1
}
