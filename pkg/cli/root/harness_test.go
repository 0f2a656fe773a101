// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package root

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	kubeannexv1alpha1 "github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/cli/client"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	annexfake "github.com/kubeannex/annex/pkg/generated/clientset/versioned/fake"
	"github.com/kubeannex/annex/pkg/preflight"
	"github.com/kubeannex/annex/pkg/preflight/preflighttest"
	"github.com/kubeannex/annex/test/golden"
)

// now is the time at which all tests run.
func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

var _ client.Factory = (*fakeFactory)(nil)

type fakeFactory struct {
	groups  *annexfake.Clientset
	cluster preflight.Clients
	// annex takes the place of groups unless it is nil.
	annex annexclient.Interface
	// namespace is "default" of the kubeconfig when it is empty, a flag's otherwise.
	namespace string
	err       error
}

func (f *fakeFactory) Mapper() (meta.RESTMapper, error) { return fakeMapper(), f.err }

func (f *fakeFactory) Namespace() (name string, byFlag bool, err error) {
	return cmp.Or(f.namespace, "default"), f.namespace != "", f.err
}

func (f *fakeFactory) Groups() (annexclient.Interface, error) {
	if f.annex != nil {
		return f.annex, f.err
	}
	return f.groups, f.err
}

func (f *fakeFactory) Preflight() (preflight.Clients, error) { return f.cluster, f.err }

// session is one run of the plugin, against servers that are imagined.
type session struct {
	args  []string
	stdin string
	// groups are the AnnexedGroups that exist.
	groups []*kubeannexv1alpha1.AnnexedGroup
	// states are what a watch tells of, one after the other. A nil one says that
	// the last one was deleted.
	states []*kubeannexv1alpha1.AnnexedGroup
	// alter changes the cluster, answers the AnnexedGroups' server.
	alter   func(*preflighttest.Cluster)
	answers func(*annexfake.Clientset)
	// profiles are the ListProfiles. Imitated clients would lose what lists of them
	// have beside the items, so that these come from a server.
	profiles *kubeannexv1alpha1.ListProfileList
	// namespace is that of the flag --namespace.
	namespace string
}

// run returns all that a person sees, and the requests that change something.
func (s *session) run(t *testing.T) string {
	t.Helper()
	cluster := preflighttest.NewCluster()
	if s.alter != nil {
		s.alter(cluster)
	}
	clients, _, err := cluster.Clients()
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for _, group := range s.groups {
		objects = append(objects, group)
	}
	factory := &fakeFactory{groups: annexfake.NewSimpleClientset(objects...), cluster: clients, namespace: s.namespace}
	if s.profiles != nil {
		factory.annex = profileServer(t, s.profiles)
	}
	s.script(factory.groups)
	if s.answers != nil {
		s.answers(factory.groups)
	}
	var out, errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(s.stdin), Out: &out, ErrOut: &errOut}
	global := pflag.NewFlagSet("", pflag.ContinueOnError)
	global.String("context", "", "The name of the kubeconfig context to use")
	cmd := newCommand(factory, streams, clocktesting.NewFakePassiveClock(now()), global)
	cmd.SetArgs(s.args)
	code := Execute(t.Context(), cmd)
	return fmt.Sprintf("$ kubectl annex %s\n[exit code %d]\n--- output\n%s--- error output\n%s--- changes\n%s",
		strings.Join(s.args, " "), code, out.String(), errOut.String(), changes(t, factory.groups.Actions()))
}

// script lets watches tell of the states. They are all there when the watch
// begins, so that the order is all that matters.
func (s *session) script(groups *annexfake.Clientset) {
	if s.states == nil {
		return
	}
	groups.PrependWatchReactor("annexedgroups", func(clienttesting.Action) (bool, watch.Interface, error) {
		watcher := watch.NewRaceFreeFake()
		var last *kubeannexv1alpha1.AnnexedGroup
		for _, state := range s.states {
			if state == nil {
				watcher.Delete(last)
				continue
			}
			watcher.Modify(state)
			last = state
		}
		return true, watcher, nil
	})
}

// changes prints requests other than reads.
func changes(t *testing.T, actions []clienttesting.Action) string {
	t.Helper()
	var text strings.Builder
	for _, action := range actions {
		switch typed := action.(type) {
		case clienttesting.UpdateActionImpl:
			text.WriteString("update " + object(t, typed.Object))
		case clienttesting.CreateActionImpl:
			text.WriteString("create " + object(t, typed.Object))
		case clienttesting.DeleteActionImpl:
			fmt.Fprintf(&text, "delete %s, only UID %s\n", typed.Name, *typed.DeleteOptions.Preconditions.UID)
		}
	}
	return text.String()
}

func object(t *testing.T, object runtime.Object) string {
	t.Helper()
	accessor, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	var printed any
	switch typed := object.(type) {
	case *kubeannexv1alpha1.AnnexedGroup:
		printed = typed.Spec
	case *kubeannexv1alpha1.ListReview:
		printed = typed.Spec
	}
	spec, err := yaml.Marshal(printed)
	if err != nil {
		t.Fatal(err)
	}
	return accessor.GetName() + " with spec\n" + string(spec)
}

// compare holds what was printed against a file in testdata.
func compare(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, strings.NewReplacer(" ", "-", ",", "").Replace(strings.ToLower(name))+".txt", got)
}

// builder makes AnnexedGroups.
type builder struct {
	*kubeannexv1alpha1.AnnexedGroup
}

// in is the group example.com with its two resources, in a phase.
func in(phase kubeannexv1alpha1.AnnexedGroupPhase) builder {
	return builder{&kubeannexv1alpha1.AnnexedGroup{
		ObjectMeta: metav1.ObjectMeta{
			Name: preflighttest.Group, UID: "1234", Generation: 1, CreationTimestamp: metav1.Time{Time: now().Add(-5 * time.Minute)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl-annex"}},
		},
		Status: kubeannexv1alpha1.AnnexedGroupStatus{
			Phase: phase, ObservedGeneration: 1,
			Resources: []kubeannexv1alpha1.AnnexedResourceStatus{{Resource: "racks"}, {Resource: "widgets", Objects: 2000, Bytes: 3 << 20}},
		},
	}}
}

func (b builder) named(name string) builder {
	b.Name = name
	return b
}

func (b builder) copied(n int64) builder {
	b.Status.Resources[1].Copied = n
	return b
}

func (b builder) verified(n int64) builder {
	b.Status.Resources[1].Verified = n
	return b.copied(2000)
}

func (b builder) deleting() builder {
	b.DeletionTimestamp = &metav1.Time{Time: now()}
	b.Finalizers = []string{kubeannexv1alpha1.ReleaseFinalizer}
	return b
}

func (b builder) serving(mode kubeannexv1alpha1.ServingMode) builder {
	b.Status.Serving = mode
	return b
}

func (b builder) fenced(held time.Duration) builder {
	b.Status.FenceDuration = &metav1.Duration{Duration: held}
	return b
}

func (b builder) condition(kind string, status metav1.ConditionStatus, reason, message string) builder {
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: b.Generation,
		LastTransitionTime: metav1.Time{Time: now()},
	})
	return b
}

func (b builder) indexed(resource string, labels ...string) builder {
	b.Spec.Resources = append(b.Spec.Resources, kubeannexv1alpha1.AnnexedResourceSpec{Resource: resource, IndexLabels: labels})
	return b
}

func (b builder) generation(wanted, observed int64) builder {
	b.Generation, b.Status.ObservedGeneration = wanted, observed
	return b
}

func (b builder) purging() builder {
	b.Spec.HostCopies = kubeannexv1alpha1.HostCopiesPurge
	return b
}

func list(builders ...builder) []*kubeannexv1alpha1.AnnexedGroup {
	var groups []*kubeannexv1alpha1.AnnexedGroup
	for _, b := range builders {
		groups = append(groups, b.AnnexedGroup)
	}
	return groups
}
