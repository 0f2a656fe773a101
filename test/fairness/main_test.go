// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package fairness

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/test/env"
)

const (
	// testTimeout bounds every test of this package.
	testTimeout = 2 * time.Minute
	// namespace holds all gadgets but two.
	namespace = "t"
	// few holds two gadgets.
	few = "few"
	// gadgets is how many there are, each of noteBytes: a list of all is far more than what
	// the buffers between server and client hold.
	gadgets   = 240
	noteBytes = 25 << 10
	// rare is a colour that three gadgets have.
	rare = "rare"
)

// The users, each with a flow schema and a level of priority of its name.
const (
	noisy = "noisy"
	quiet = "quiet"
	seats = "seats"
)

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	env   *env.Env
	host  *env.Host
	annex *env.Annex
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) (err error) {
	begin := time.Now()
	suite.env = e
	if suite.host, err = e.StartHost(ctx, env.HostOptions{}); err != nil {
		return err
	}
	cluster, err := suite.host.AdminConfig()
	if err != nil {
		return err
	}
	if err := prepareUsers(ctx, cluster); err != nil {
		return err
	}
	if suite.annex, err = e.StartAnnex(ctx, env.AnnexOptions{Host: suite.host}); err != nil {
		return err
	}
	direct, err := suite.annex.AdminConfig(0)
	if err != nil {
		return err
	}
	if err := env.InstallGadgets(ctx, direct); err != nil {
		return err
	}
	if err := seed(ctx, direct); err != nil {
		return err
	}
	if err := suite.annex.RegisterAPIService(ctx, env.FixtureGroup, "v1"); err != nil {
		return err
	}
	fmt.Printf("a host and annex with %d gadgets serve after %s\n", gadgets, time.Since(begin).Round(time.Millisecond))
	return nil
}

// prepareUsers gives the users their rights and their places in priority and fairness.
func prepareUsers(ctx context.Context, cluster *rest.Config) error {
	for _, name := range []string{namespace, few} {
		if err := env.EnsureNamespace(ctx, cluster, name); err != nil {
			return err
		}
	}
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{env.FixtureGroup}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
	}
	// Seats enough for several lists of ten, for a few quick requests, and for one list of ten.
	for user, shares := range map[string]int32{noisy: 20, quiet: 10, seats: 60} {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
		if err := prepareFlow(ctx, client, user, shares); err != nil {
			return err
		}
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return err
}

// prepareFlow gives a user a level of its own that lends nothing and has room for four requests that wait.
func prepareFlow(ctx context.Context, client kubernetes.Interface, user string, shares int32) error {
	level := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: &shares,
				LendablePercent:          ptr.To(int32(0)),
				BorrowingLimitPercent:    ptr.To(int32(0)),
				LimitResponse: flowcontrolv1.LimitResponse{
					Type:    flowcontrolv1.LimitResponseTypeQueue,
					Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: 4},
				},
			},
		},
	}
	schema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: user},
			MatchingPrecedence:         100,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: user}}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{{
					Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, Namespaces: []string{"*"}, ClusterScope: true,
				}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
			}},
		},
	}
	if _, err := client.FlowcontrolV1().PriorityLevelConfigurations().Create(ctx, level, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.FlowcontrolV1().FlowSchemas().Create(ctx, schema, metav1.CreateOptions{})
	return err
}

// bigGadget is the i-th of those that make lists long.
func bigGadget(i int) *unstructured.Unstructured {
	gadget := env.SeedGadget(namespace, i)
	spec := gadget.Object["spec"].(map[string]any)
	spec["note"] = strings.Repeat("x", noteBytes)
	if i < 3 {
		spec["color"] = rare
	}
	if i < 2 {
		gadget.SetNamespace(few)
	}
	return gadget
}

func seed(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range gadgets {
		group.Go(func() error {
			gadget := bigGadget(i)
			_, err := client.Resource(env.GadgetResource("v1")).Namespace(gadget.GetNamespace()).Create(ctx, gadget, metav1.CreateOptions{})
			return err
		})
	}
	return group.Wait()
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// direct is a configuration of a user at annex itself.
func direct(t *testing.T, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := suite.annex.BalancedConfig(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// aggregated is a configuration of a user at kube-apiserver.
func aggregated(t *testing.T, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := suite.host.ConfigFor(0, user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
