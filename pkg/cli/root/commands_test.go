// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package root

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	annexfake "github.com/kubeannex/annex/pkg/generated/clientset/versioned/fake"
	"github.com/kubeannex/annex/pkg/preflight"
)

func always(err error) func(*annexfake.Clientset) {
	return func(c *annexfake.Clientset) {
		c.PrependReactor("*", "annexedgroups", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
}

func resource() schema.GroupResource {
	return schema.GroupResource{Group: "kubeannex.io", Resource: "annexedgroups"}
}

// notInstalled answers as kube-apiserver does for paths that nothing serves.
func notInstalled(c *annexfake.Clientset) {
	always(apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource(), "example.com", "404 page not found", 0, true))(c)
}

func unavailable(c *annexfake.Clientset) {
	always(unavailableError())(c)
}

func unavailableError() error {
	return apierrors.NewGenericServerResponse(http.StatusServiceUnavailable, "get", resource(), "example.com", "error trying to reach service", 0, true)
}

func forbidden(c *annexfake.Clientset) {
	always(apierrors.NewForbidden(resource(), "example.com", errors.New("user jane may not")))(c)
}

func annexed() builder {
	return in(kubeannexv1alpha1.PhaseAnnexed).verified(2000).fenced(820*time.Millisecond).serving(kubeannexv1alpha1.ServingOpen).
		condition(kubeannexv1alpha1.ConditionPreflightPassed, metav1.ConditionTrue, "Passed", "The group can be adopted").
		condition(kubeannexv1alpha1.ConditionProgressing, metav1.ConditionFalse, "Done", "Nothing is left to do").
		condition(kubeannexv1alpha1.ConditionAnnexed, metav1.ConditionTrue, "Annexed", "Annex serves the group")
}

func stray(b builder) builder {
	return b.condition(kubeannexv1alpha1.ConditionStrayWrites, metav1.ConditionTrue, "Found", "The cluster's own copies changed\nafter they were verified: widgets default/one")
}

func watching(b builder) builder {
	return b.condition(kubeannexv1alpha1.ConditionStrayWrites, metav1.ConditionFalse, kubeannexv1alpha1.ReasonWatching, "The cluster's own copies stayed as they were verified")
}

func purgedAlready(b builder) builder {
	return b.purging().condition(kubeannexv1alpha1.ConditionHostCopiesPurged, metav1.ConditionTrue, "Purged", "The cluster keeps no copies")
}

func TestStatus(t *testing.T) {
	for name, s := range map[string]session{
		"status of nothing": {args: []string{"status"}},
		"status of all": {args: []string{"status"}, groups: list(
			annexed(),
			in(kubeannexv1alpha1.PhaseCopying).copied(1999).named("a.com"),
			in("").named("b.com"),
			in(kubeannexv1alpha1.PhasePreflight).named("c.com").condition(kubeannexv1alpha1.ConditionPreflightPassed, metav1.ConditionFalse, "Refused", "annex has no replica"),
			in(kubeannexv1alpha1.PhaseFencing).named("d.com").condition(kubeannexv1alpha1.ConditionProgressing, metav1.ConditionFalse, "HeldUp", "no answer"),
			stray(annexed().named("e.com")),
			annexed().named("f.com").condition(kubeannexv1alpha1.ConditionMirrored, metav1.ConditionFalse, "Failed", "no"),
			annexed().named("g.com").condition(kubeannexv1alpha1.ConditionAdmissionComplete, metav1.ConditionFalse, "PluginsDisabled", "MutatingAdmissionPolicy"),
			annexed().named("h.com").condition(kubeannexv1alpha1.ConditionStorageSpace, metav1.ConditionFalse, "Low", "Etcd is 90 % full"),
		)},
		"status of all as yaml":  {args: []string{"status", "-o", "yaml"}, groups: list(annexed())},
		"status of none as json": {args: []string{"status", "-o", "json"}},
		"status annexed":         {args: []string{"status", "example.com"}, groups: list(annexed().indexed("widgets", "app", "tier"))},
		"status as json":         {args: []string{"status", "example.com", "-o", "json"}, groups: list(annexed())},
		"status pending":         {args: []string{"status", "example.com"}, groups: list(in(""))},
		"status copying":         {args: []string{"status", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseCopying).copied(500))},
		"status held up": {args: []string{"status", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseCuttingOver).verified(2000).serving(kubeannexv1alpha1.ServingReadOnly).
			condition(kubeannexv1alpha1.ConditionProgressing, metav1.ConditionFalse, "HeldUp", "kube-apiserver a does not answer"))},
		"status aborted":          {args: []string{"status", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseAborted))},
		"status releasing":        {args: []string{"status", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseReleaseVerifying).verified(1000).deleting().serving(kubeannexv1alpha1.ServingReadOnly))},
		"status waits to release": {args: []string{"status", "example.com"}, groups: list(watching(in(kubeannexv1alpha1.PhaseReleasing).deleting()))},
		"status waits to purge":   {args: []string{"status", "example.com"}, groups: list(watching(annexed().purging()))},
		"status released":         {args: []string{"status", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseReleaseUnfencing).deleting().serving(kubeannexv1alpha1.ServingReleased))},
		"status purged":           {args: []string{"status", "example.com"}, groups: list(purgedAlready(annexed()))},
		"status purging":          {args: []string{"status", "example.com"}, groups: list(annexed().purging())},
		"status of unknown":       {args: []string{"status", "unknown.com"}},
		"status of two":           {args: []string{"status", "a.com", "b.com"}},
		"status odd format":       {args: []string{"status", "--output=table"}},
		"status annex gone":       {args: []string{"status"}, answers: notInstalled},
		"status annex down":       {args: []string{"status", "example.com"}, answers: unavailable},
		"status not allowed":      {args: []string{"status"}, answers: forbidden},
	} {
		t.Run(name, func(t *testing.T) { compare(t, name, s.run(t)) })
	}
}

func TestRelease(t *testing.T) {
	for name, s := range map[string]session{
		"release":                 {args: []string{"release", "example.com"}, groups: list(annexed())},
		"release as json":         {args: []string{"release", "example.com", "-ojson"}, groups: list(annexed())},
		"release before cut over": {args: []string{"release", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseCopying))},
		"release and wait": {
			args: []string{"release", "example.com", "--wait"}, groups: list(annexed()), answers: deletesLater,
			states: append(list(
				watching(in(kubeannexv1alpha1.PhaseReleasing).deleting()), in(kubeannexv1alpha1.PhaseReleasing).copied(1000).deleting(), in(kubeannexv1alpha1.PhaseReleaseFencing).copied(2000).deleting(),
				in(kubeannexv1alpha1.PhaseReleaseVerifying).verified(2000).deleting(), in(kubeannexv1alpha1.PhaseReleaseCuttingOver).deleting(),
				in(kubeannexv1alpha1.PhaseReleaseUnfencing).deleting()), nil),
		},
		"release is undone and wait": {
			args: []string{"release", "example.com", "--wait"}, groups: list(in(kubeannexv1alpha1.PhaseCopying)), answers: deletesLater,
			states: append(list(in(kubeannexv1alpha1.PhaseAborting).deleting()), nil),
		},
		"release is done at once":  {args: []string{"release", "example.com", "--wait"}, groups: list(annexed())},
		"release with new UIDs":    {args: []string{"release", "example.com", "--allow-new-uids"}, groups: list(annexed())},
		"release purged":           {args: []string{"release", "example.com"}, groups: list(purgedAlready(annexed()))},
		"release purged, new UIDs": {args: []string{"release", "example.com", "--allow-new-uids"}, groups: list(purgedAlready(annexed()))},
		"release twice":            {args: []string{"release", "example.com"}, groups: list(in(kubeannexv1alpha1.PhaseReleasing).deleting())},
		"release twice, new UIDs":  {args: []string{"release", "example.com", "--allow-new-uids"}, groups: list(in(kubeannexv1alpha1.PhaseReleasing).deleting())},
		"release twice and wait":   {args: []string{"release", "example.com", "--wait"}, groups: list(in(kubeannexv1alpha1.PhaseReleasing).deleting()), states: append(list(in(kubeannexv1alpha1.PhaseReleaseFencing).deleting()), nil)},
		"release needs new UIDs": {
			args: []string{"release", "example.com", "--wait"}, groups: list(annexed()), answers: deletesLater,
			states: list(needsNewUIDs().generation(2, 1), needsNewUIDs()),
		},
		"release with strays":           {args: []string{"release", "example.com", "--wait"}, groups: list(stray(annexed()))},
		"release with strays discarded": {args: []string{"release", "example.com", "--discard-stray-writes"}, groups: list(stray(annexed()))},
		"release allows both":           {args: []string{"release", "example.com", "--discard-stray-writes", "--allow-new-uids"}, groups: list(stray(purgedAlready(annexed())))},
		"release twice, strays":         {args: []string{"release", "example.com"}, groups: list(stray(in(kubeannexv1alpha1.PhaseReleasing).deleting()))},
		"release twice, discarding":     {args: []string{"release", "example.com", "--discard-stray-writes"}, groups: list(strayWritesInTheWay())},
		"release twice, discarded":      {args: []string{"release", "example.com", "--discard-stray-writes"}, groups: list(discarding(strayWritesInTheWay()))},
		"release discarding before":     {args: []string{"release", "example.com"}, groups: list(discarding(stray(annexed())))},
		"release finds strays": {
			args: []string{"release", "example.com", "--wait"}, groups: list(annexed()), answers: deletesLater,
			states: list(strayWritesInTheWay().generation(2, 1), strayWritesInTheWay()),
		},
		"release unknown":          {args: []string{"release", "unknown.com"}},
		"release without group":    {args: []string{"release"}},
		"release odd format":       {args: []string{"release", "example.com", "-oname"}},
		"release timeout, no wait": {args: []string{"release", "example.com", "--timeout=1s"}},
		"release annex not there":  {args: []string{"release", "example.com"}, answers: notInstalled},
		"release waits in vain":    {args: []string{"release", "example.com", "--wait", "--timeout=300ms"}, groups: list(annexed()), answers: deletesLater, states: list(in(kubeannexv1alpha1.PhaseReleasing).copied(20).deleting())},
	} {
		t.Run(name, func(t *testing.T) { compare(t, name, s.run(t)) })
	}
}

func needsNewUIDs() builder {
	return in(kubeannexv1alpha1.PhaseReleasing).deleting().condition(kubeannexv1alpha1.ConditionProgressing, metav1.ConditionFalse, kubeannexv1alpha1.ReasonNewUIDsNeeded,
		"the cluster has no copy of 1 widgets (default/new): set spec.allowNewUIDs to release them with new UIDs, or delete them; annex serves the group until then")
}

func strayWritesInTheWay() builder {
	return stray(in(kubeannexv1alpha1.PhaseReleasing).deleting()).condition(kubeannexv1alpha1.ConditionProgressing, metav1.ConditionFalse, kubeannexv1alpha1.ReasonStrayWrites,
		"the cluster's copies of 1 widgets (default/one) changed after they were verified: compare them and set spec.discardStrayWrites; annex serves the group until then")
}

func discarding(b builder) builder {
	b.Spec.DiscardStrayWrites = true
	return b
}

func purgeRefused() builder {
	return annexed().purging().condition(kubeannexv1alpha1.ConditionHostCopiesPurged, metav1.ConditionFalse, "Changed", "The cluster's copies are not what was verified")
}

// deletesLater keeps an object that is deleted, as a finalizer does.
func deletesLater(c *annexfake.Clientset) {
	c.PrependReactor("delete", "annexedgroups", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil })
}

func TestPurge(t *testing.T) {
	for name, s := range map[string]session{
		"purge":                {args: []string{"purge", "example.com"}, stdin: "example.com\n", groups: list(annexed())},
		"purge without asking": {args: []string{"purge", "example.com", "--yes"}, groups: list(annexed())},
		"purge wrong answer":   {args: []string{"purge", "example.com"}, stdin: "yes\n", groups: list(annexed())},
		"purge nobody answers": {args: []string{"purge", "example.com"}, groups: list(annexed())},
		"purge as yaml":        {args: []string{"purge", "example.com", "-y", "-oyaml"}, groups: list(annexed())},
		"purge and wait":       {args: []string{"purge", "example.com", "-y", "--wait"}, groups: list(annexed()), states: list(annexed().purging(), purgedAlready(annexed()))},
		"purge finds strays":   {args: []string{"purge", "example.com", "-y", "--wait"}, groups: list(annexed()), states: list(annexed().purging(), stray(annexed().purging()))},
		"purge shows progress": {
			args: []string{"purge", "example.com", "-y", "--wait"}, groups: list(annexed()), states: list(
				annexed().purging().condition(kubeannexv1alpha1.ConditionHostCopiesPurged, metav1.ConditionFalse, "Purging", "The cluster's copies are being deleted, 100 so far"),
				purgedAlready(annexed())),
		},
		"purge is refused":        {args: []string{"purge", "example.com", "-y", "--wait"}, groups: list(annexed()), states: list(purgeRefused().generation(2, 1), purgeRefused())},
		"purge once more":         {args: []string{"purge", "example.com"}, stdin: "example.com\n", groups: list(purgeRefused())},
		"purge released":          {args: []string{"purge", "example.com", "-y", "--wait"}, groups: list(annexed()), states: append(list(annexed().purging()), nil)},
		"purge again":             {args: []string{"purge", "example.com", "-y"}, groups: list(purgedAlready(annexed()))},
		"purge on its way":        {args: []string{"purge", "example.com"}, groups: list(annexed().purging())},
		"purge with stray writes": {args: []string{"purge", "example.com", "-y"}, groups: list(stray(annexed()))},
		"purge not annexed yet":   {args: []string{"purge", "example.com", "-y"}, groups: list(in(kubeannexv1alpha1.PhaseCopying))},
		"purge while releasing":   {args: []string{"purge", "example.com", "-y"}, groups: list(in(kubeannexv1alpha1.PhaseReleasing).deleting())},
		"purge unknown":           {args: []string{"purge", "unknown.com", "-y"}},
		"purge without group":     {args: []string{"purge", "-y"}},
		"purge annex down":        {args: []string{"purge", "example.com", "-y"}, answers: unavailable},
	} {
		t.Run(name, func(t *testing.T) { compare(t, name, s.run(t)) })
	}
}

func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"help":            {"--help"},
		"help of adopt":   {"adopt", "--help"},
		"help of status":  {"status", "--help"},
		"help of release": {"release", "-h"},
		"help of purge":   {"help", "purge"},
		"help of explain": {"explain", "--help"},
		"help of top":     {"top", "--help"},
		"help completion": {"completion", "--help"},
		"no command":      {},
		"unknown command": {"annex"},
		"options":         {"options"},
		"completion none": {"completion"},
		"completion odd":  {"completion", "ksh"},
	} {
		t.Run(name, func(t *testing.T) { compare(t, name, (&session{args: args}).run(t)) })
	}
}

func TestCompletion(t *testing.T) {
	groups := list(annexed(), in(kubeannexv1alpha1.PhaseCopying).named("a.com"))
	for name, s := range map[string]session{
		"complete commands":     {args: []string{"__complete", ""}},
		"complete annexed":      {args: []string{"__complete", "release", ""}, groups: groups},
		"complete definitions":  {args: []string{"__complete", "adopt", ""}, groups: groups},
		"complete only one":     {args: []string{"__complete", "status", "a.com", ""}, groups: groups},
		"complete format":       {args: []string{"__complete", "status", "-o", ""}},
		"complete wide format":  {args: []string{"__complete", "top", "-o", ""}},
		"complete order":        {args: []string{"__complete", "top", "--sort-by", ""}},
		"complete match":        {args: []string{"__complete", "explain", "--resource-version-match", ""}},
		"complete annex down":   {args: []string{"__complete", "purge", ""}, answers: unavailable},
		"complete shells":       {args: []string{"__complete", "completion", ""}},
		"complete adopt second": {args: []string{"__complete", "adopt", "a.com", ""}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, name, s.run(t)) })
	}
}

func TestCompletionScriptsAndVersion(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"bash":       {[]string{"completion", "bash"}, "# bash completion V2 for kubectl-annex"},
		"zsh":        {[]string{"completion", "zsh"}, "#compdef kubectl-annex"},
		"fish":       {[]string{"completion", "fish"}, "# fish completion for kubectl-annex"},
		"powershell": {[]string{"completion", "powershell"}, "# powershell completion for kubectl-annex"},
		"version":    {[]string{"version"}, "v"},
		"--version":  {[]string{"--version"}, "kubectl annex version v"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}
			cmd := newCommand(&fakeFactory{}, streams, clocktesting.NewFakePassiveClock(now()), pflag.NewFlagSet("", pflag.ContinueOnError))
			cmd.SetArgs(test.args)
			if code := Execute(t.Context(), cmd); code != 0 || !strings.HasPrefix(out.String(), test.want) {
				t.Errorf("exit code %d, got %.60q, want it to begin with %q", code, out.String(), test.want)
			}
		})
	}
}

func TestClientsThatCannotBeMade(t *testing.T) {
	for name, args := range map[string][]string{
		"adopt":         {"adopt", "example.com"},
		"adopt dry run": {"adopt", "example.com", "--dry-run"},
		"status":        {"status"},
		"release":       {"release", "example.com"},
		"purge":         {"purge", "example.com"},
		"explain":       {"explain", "widgets"},
		"top":           {"top"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}
			factory := &fakeFactory{err: errors.New("reading the kubeconfig: no such file"), cluster: preflight.Clients{}}
			cmd := newCommand(factory, streams, clocktesting.NewFakePassiveClock(now()), pflag.NewFlagSet("", pflag.ContinueOnError))
			cmd.SetArgs(args)
			if code := Execute(t.Context(), cmd); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			if diff := cmp.Diff("error: reading the kubeconfig: no such file\n", errOut.String()); diff != "" {
				t.Errorf("error output differs (-want +got):\n%s", diff)
			}
		})
	}
}
