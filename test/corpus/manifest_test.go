// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package corpus

import (
	"fmt"
	"slices"
)

// files are YAML files of one module and how many objects of interest they hold.
// The number belongs to the pinned version: a folder that is gone or empty fails.
type files struct {
	module   string
	patterns []string
	want     int
}

// loaded are the CustomResourceDefinitions that are created all at once.
func loaded() []files {
	return []files{
		{argo, []string{"manifests/base/crds/full/*.yaml"}, 8},
		{certManager, []string{"deploy/crds/*.yaml"}, 6},
		{kyverno, []string{"config/crds/*/*.yaml"}, 22},
		{prometheusOperator, []string{"example/prometheus-operator-crd/*.yaml"}, 10},
		// The bgppeers of MetalLB have their conversion webhook inline.
		{istio, []string{"kubernetes/customresourcedefinitions.gen.yaml", "common/scripts/metallb-native.yaml"}, 15 + 6},
		{knative, []string{"config/core/300-resources/*.yaml"}, 7},
		// The bases, without the patches that add conversion webhooks; one has the plural "metadata".
		{clusterAPI, []string{
			"core/config/crd/bases/*.yaml", "controlplane/kubeadm/config/crd/bases/*.yaml",
			"cmd/clusterctl/config/crd/bases/*.yaml", "controllers/crdmigrator/test/t1/crd/*.yaml",
		}, 13 + 2 + 2 + 1},
		{gateway, []string{"config/crd/standard/*.yaml"}, 10},
		{karpenter, []string{"pkg/apis/crds/*.yaml"}, 4},
		{kueue, []string{"config/components/crd/bases/*.yaml"}, 11},
	}
}

// revision is another channel of definitions that are loaded: it updates them or
// adds to them.
type revision struct {
	files

	// migrated says that all objects are in the storage version by now: the other
	// stored versions are struck from the status first.
	migrated bool
	// refused definitions are no valid update of what is there.
	refused int
}

// revisions follow each other.
func revisions() []revision {
	migration := func(step string) files {
		return files{clusterAPI, []string{"controllers/crdmigrator/test/" + step + "/crd/*.yaml"}, 1}
	}
	return []revision{
		{files: files{argo, []string{"manifests/base/crds/minimal/*.yaml"}, 8}},
		{files: files{gateway, []string{"config/crd/experimental/*.yaml"}, 13}},
		{files: files{prometheusOperator, []string{"example/prometheus-operator-crd-full/*.yaml"}, 10}},
		// One definition through all steps of a change of its storage version. The
		// last one drops the old version, which a server refuses while it may be stored.
		{files: migration("t2")},
		{files: migration("t3")},
		{files: migration("t4"), refused: 1},
		{files: migration("t4"), migrated: true},
	}
}

// sampleSet are sample objects of one kind of use.
type sampleSet struct {
	files

	// accepted is how many of them the host takes.
	accepted int
}

// samples are created before the revisions. The istio module ships none.
func samples() []sampleSet {
	return []sampleSet{
		{files: files{argo, []string{"examples"}, 215}, accepted: 213},
		{files: files{argo, []string{"test/e2e", "workflow", "test/stress", "ui/test"}, 307}, accepted: 292},
		{files: files{certManager, []string{"test/fixtures"}, 3}, accepted: 3},
		{files: files{kyverno, []string{"test", "cmd", "docs"}, 1802}, accepted: 1606},
		{files: files{prometheusOperator, []string{"example"}, 29}, accepted: 26},
		{files: files{knative, []string{"test", "third_party"}, 30}, accepted: 30},
		{files: files{clusterAPI, []string{"*.yaml"}, 1}},
		{files: files{gateway, []string{"examples/standard"}, 92}, accepted: 92},
		{files: files{gateway, []string{"hack/invalid-examples/standard"}, 32}},
		{files: files{karpenter, []string{"dra-kwok-driver", "test"}, 1}, accepted: 1},
		{files: files{kueue, []string{"cmd", "test"}, 20}, accepted: 20},
	}
}

// revisedSamples are created after the revisions, over what samples left.
func revisedSamples() []sampleSet {
	return []sampleSet{
		{files: files{argo, []string{"examples"}, 215}, accepted: 213},
		{files: files{prometheusOperator, []string{"example"}, 29}, accepted: 26},
		{files: files{gateway, []string{"examples"}, 103}, accepted: 103},
		{files: files{gateway, []string{"hack/invalid-examples"}, 36}},
	}
}

// The modules, as in modules.txt.
const (
	argo               = "github.com/argoproj/argo-workflows/v4"
	certManager        = "github.com/cert-manager/cert-manager"
	kyverno            = "github.com/kyverno/kyverno"
	prometheusOperator = "github.com/prometheus-operator/prometheus-operator"
	istio              = "istio.io/api"
	knative            = "knative.dev/serving"
	clusterAPI         = "sigs.k8s.io/cluster-api"
	gateway            = "sigs.k8s.io/gateway-api"
	karpenter          = "sigs.k8s.io/karpenter"
	kueue              = "sigs.k8s.io/kueue"
)

// definitions reads the definitions of one entry and counts them.
func (f files) definitions(folders map[string]string) ([]definition, error) {
	found, err := readDefinitions(f.module, folders[f.module], f.patterns...)
	if err == nil && len(found) != f.want {
		err = fmt.Errorf("%s: %d definitions in %v, want %d", f.module, len(found), f.patterns, f.want)
	}
	return found, err
}

// samples reads the objects of one entry whose kind is in the catalog and counts them.
func (f files) samples(folders map[string]string, known catalog) ([]document, error) {
	found, err := readFiles(folders[f.module], f.patterns...)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(d document) bool {
		definition, ok := known[d.gk()]
		return !ok || definition.module != f.module
	})
	if len(found) != f.want {
		err = fmt.Errorf("%s: %d samples in %v, want %d", f.module, len(found), f.patterns, f.want)
	}
	return found, err
}
