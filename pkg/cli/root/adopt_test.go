// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package root

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/preflight/preflighttest"
)

// wholeAdoption is what an adoption looks like from outside.
func wholeAdoption() []*kubeannexv1alpha1.AnnexedGroup {
	return list(
		in(kubeannexv1alpha1.PhasePreflight), in(kubeannexv1alpha1.PhaseMirroring),
		in(kubeannexv1alpha1.PhaseCopying), in(kubeannexv1alpha1.PhaseCopying).copied(100), in(kubeannexv1alpha1.PhaseCopying).copied(1000),
		in(kubeannexv1alpha1.PhaseCopying).copied(1999), in(kubeannexv1alpha1.PhaseCatchingUp).copied(2000),
		in(kubeannexv1alpha1.PhaseFencing).copied(2000), in(kubeannexv1alpha1.PhaseVerifying).verified(1000), in(kubeannexv1alpha1.PhaseVerifying).verified(2000),
		in(kubeannexv1alpha1.PhaseCuttingOver).verified(2000),
		in(kubeannexv1alpha1.PhaseCuttingOver).verified(2000).condition(kubeannexv1alpha1.ConditionProgressing, metav1.ConditionFalse, "HeldUp", "kube-apiserver a does not\nanswer"),
		in(kubeannexv1alpha1.PhaseUnfencing).verified(2000),
		in(kubeannexv1alpha1.PhaseAnnexed).verified(2000).fenced(1234567*time.Microsecond).serving(kubeannexv1alpha1.ServingOpen),
	)
}

func TestAdopt(t *testing.T) {
	for name, s := range map[string]session{
		"adopt":                {args: []string{"adopt", "example.com"}},
		"adopt as yaml":        {args: []string{"adopt", "example.com", "-o", "yaml", "--resource=widgets", "--index-label=app"}},
		"adopt with indexes":   {args: []string{"adopt", "example.com", "--resource=widgets", "--index-label=app", "--index-label=racks=team", "--index-label=tier"}},
		"adopt and wait":       {args: []string{"adopt", "example.com", "--wait"}, states: wholeAdoption()},
		"adopt and wait json":  {args: []string{"adopt", "example.com", "--wait", "-o=json"}, states: wholeAdoption()[12:]},
		"adopt without group":  {args: []string{"adopt"}},
		"adopt two groups":     {args: []string{"adopt", "a.com", "b.com"}},
		"adopt unknown group":  {args: []string{"adopt", "unknown.com"}},
		"adopt built-in group": {args: []string{"adopt", "apps"}},
		"adopt protected":      {args: []string{"adopt", "x.k8s.io"}},
		"adopt start-up group": {args: []string{"adopt", "cilium.io"}, alter: func(c *preflighttest.Cluster) {
			c.Definitions[0].Spec.Group = "cilium.io"
		}},
		"adopt protected, allowed": {args: []string{"adopt", "x.k8s.io", "--allow-protected-group"}, alter: func(c *preflighttest.Cluster) {
			c.Definitions[0].Spec.Group = "x.k8s.io"
		}},
		"adopt index of unknown resource": {args: []string{"adopt", "example.com", "--index-label=gadgets=app"}},
		"adopt bad label":                 {args: []string{"adopt", "example.com", "--index-label=widgets=-"}},
		"adopt annexed":                   {args: []string{"adopt", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseAnnexed))},
		"adopt on its way":                {args: []string{"adopt", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseCopying))},
		"adopt on its way and wait": {
			args: []string{"adopt", "example.com", "--wait"}, groups: list(in(kubeannexv1alpha1.PhaseCopying).copied(1500)),
			states: list(in(kubeannexv1alpha1.PhaseAnnexed)),
		},
		"adopt while released": {args: []string{"adopt", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseReleasing).deleting())},
		"adopt after abort": {args: []string{"adopt", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseAborted).
			condition(kubeannexv1alpha1.ConditionAnnexed, metav1.ConditionFalse, "Aborted", "The adoption was undone, the cluster serves the group as before"))},
		"adopt changes indexes": {
			args:   []string{"adopt", "example.com", "--index-label=widgets=team", "--wait"},
			groups: list(in(kubeannexv1alpha1.PhaseAnnexed).indexed("racks", "row").indexed("widgets", "app")),
			states: list(in(kubeannexv1alpha1.PhaseAnnexed).generation(2, 1), in(kubeannexv1alpha1.PhaseAnnexed).generation(2, 2)),
		},
		"adopt same indexes": {
			args:   []string{"adopt", "example.com", "--index-label=widgets=app"},
			groups: list(in(kubeannexv1alpha1.PhaseAnnexed).indexed("widgets", "app")),
		},
		"adopt refused by preflight": {
			args: []string{"adopt", "example.com", "--wait"},
			states: list(
				// The condition of an older spec decides nothing.
				in(kubeannexv1alpha1.PhasePreflight).condition(kubeannexv1alpha1.ConditionPreflightPassed, metav1.ConditionFalse, "Refused", "old").generation(2, 1),
				in(kubeannexv1alpha1.PhasePreflight).condition(kubeannexv1alpha1.ConditionPreflightPassed, metav1.ConditionFalse, "Refused",
					"annex is not reachable through every kube-apiserver: see that it is;\nannex has no replica: start annex-apiserver"),
			),
		},
		"adopt aborted": {
			args: []string{"adopt", "example.com", "--wait"},
			states: list(in(kubeannexv1alpha1.PhaseAborting), in(kubeannexv1alpha1.PhaseAborted).
				condition(kubeannexv1alpha1.ConditionAnnexed, metav1.ConditionFalse, "Aborted", "annex's etcd is full")),
		},
		"adopt deleted meanwhile": {
			args:   []string{"adopt", "example.com", "--wait"},
			states: append(list(in(kubeannexv1alpha1.PhaseCopying)), nil),
		},
		"adopt released meanwhile": {
			args:   []string{"adopt", "example.com", "--wait"},
			states: list(in(kubeannexv1alpha1.PhaseCopying), in(kubeannexv1alpha1.PhaseAborting).deleting()),
		},
		"adopt takes too long": {
			args: []string{"adopt", "example.com", "--wait", "--timeout=300ms"}, states: list(in(kubeannexv1alpha1.PhaseCopying).copied(500)),
		},
		"adopt dry run":         {args: []string{"adopt", "example.com", "--dry-run"}, alter: remarkable},
		"adopt dry run plain":   {args: []string{"adopt", "example.com", "--dry-run"}},
		"adopt dry run as json": {args: []string{"adopt", "example.com", "--dry-run", "-ojson"}},
		"adopt dry run refused": {args: []string{"adopt", "example.com", "--dry-run"}, alter: func(c *preflighttest.Cluster) {
			c.APIServices[0] = preflighttest.APIService(preflighttest.Group, "v1", "shop/api")
		}},
		"adopt dry run unknown":            {args: []string{"adopt", "unknown.com", "--dry-run"}},
		"adopt dry run annexed":            {args: []string{"adopt", "example.com", "--dry-run"}, groups: list(in(kubeannexv1alpha1.PhaseAnnexed))},
		"adopt dry run and wait":           {args: []string{"adopt", "example.com", "--dry-run", "--wait"}},
		"adopt timeout without wait":       {args: []string{"adopt", "example.com", "--timeout=1m"}},
		"adopt negative timeout":           {args: []string{"adopt", "example.com", "--wait", "--timeout=-1m"}},
		"adopt unknown format":             {args: []string{"adopt", "example.com", "-owide"}},
		"adopt label without resource":     {args: []string{"adopt", "example.com", "--index-label=app"}},
		"adopt resource without label":     {args: []string{"adopt", "example.com", "--resource=widgets"}},
		"adopt label without key":          {args: []string{"adopt", "example.com", "--index-label=widgets="}},
		"adopt empty resource":             {args: []string{"adopt", "example.com", "--resource="}},
		"adopt unknown flag":               {args: []string{"adopt", "example.com", "--force"}},
		"adopt where annex does not exist": {args: []string{"adopt", "example.com"}, answers: notInstalled},
		"adopt where annex is down":        {args: []string{"adopt", "example.com"}, answers: unavailable},
		"adopt without permission":         {args: []string{"adopt", "example.com"}, answers: forbidden},
	} {
		t.Run(name, func(t *testing.T) { compare(t, name, s.run(t)) })
	}
}

// remarkable gives the cluster something to report in every table.
func remarkable(c *preflighttest.Cluster) {
	c.Definitions[0].Annotations = map[string]string{"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "prod"}
	c.Webhooks = []runtime.Object{preflighttest.Webhook("widgets", preflighttest.Group, "Fail", "widgets")}
	c.Objects[0].SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment"}})
}
