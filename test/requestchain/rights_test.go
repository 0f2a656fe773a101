// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package requestchain

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeannex/annex/test/env"
)

const (
	// rightsNamespace is where users have rights or not.
	rightsNamespace = "rights"
	// otherNamespace is where only ben has.
	otherNamespace = "other"
	// identityNamespace is where everybody may create gadgets, even who is nobody.
	identityNamespace = "identity"
)

func namespaces() []string {
	return append([]string{rightsNamespace, otherNamespace, identityNamespace}, auditNamespaces()...)
}

// grant gives users their rights in the cluster with RBAC: ann reads in one namespace,
// ben does everything everywhere, dan gets one gadget, everybody creates in one
// namespace, imp impersonates some.
func grant(ctx context.Context, client kubernetes.Interface) error {
	groups := []string{env.FixtureGroup, judgeGroup}
	all := []string{"gadgets", "gadgets/status", "gadgets/scale"}
	read := []string{"get", "list", "watch"}
	for _, r := range []struct {
		name, namespace string
		rules           []rbacv1.PolicyRule
		subjects        []rbacv1.Subject
	}{
		{"ann", rightsNamespace, []rbacv1.PolicyRule{{APIGroups: groups, Resources: []string{"gadgets"}, Verbs: read}}, users("ann")},
		{"ben", "", []rbacv1.PolicyRule{{APIGroups: groups, Resources: all, Verbs: []string{"*"}}}, users("ben")},
		{"dan", rightsNamespace, []rbacv1.PolicyRule{{APIGroups: groups, Resources: []string{"gadgets"}, Verbs: []string{"get"}, ResourceNames: []string{"one"}}}, users("dan")},
		{"everybody", identityNamespace, []rbacv1.PolicyRule{{APIGroups: groups, Resources: []string{"gadgets"}, Verbs: []string{"create"}}},
			[]rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:authenticated"}, {APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:unauthenticated"}}},
		{"imp", "", []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"users"}, Verbs: []string{"impersonate"}, ResourceNames: []string{"ann", "ben"}},
			{APIGroups: []string{""}, Resources: []string{"groups"}, Verbs: []string{"impersonate"}, ResourceNames: []string{"readers"}},
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"uids"}, Verbs: []string{"impersonate"}, ResourceNames: []string{"7"}},
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"userextras/scopes"}, Verbs: []string{"impersonate"}, ResourceNames: []string{"view"}},
		}, users("imp")},
	} {
		if err := bind(ctx, client, r.name, r.namespace, r.rules, r.subjects); err != nil {
			return err
		}
	}
	return nil
}

func users(names ...string) []rbacv1.Subject {
	var subjects []rbacv1.Subject
	for _, name := range names {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: name})
	}
	return subjects
}

// bind gives subjects rights in a namespace, or everywhere without one.
func bind(ctx context.Context, client kubernetes.Interface, name, namespace string, rules []rbacv1.PolicyRule, subjects []rbacv1.Subject) error {
	meta := metav1.ObjectMeta{Name: "chain-" + name, Namespace: namespace}
	_, err := client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}
	if namespace == "" {
		_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}, metav1.CreateOptions{})
		return err
	}
	_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: subjects}, metav1.CreateOptions{})
	return err
}

// abacRules are the same rights by ABAC, as far as it can tell them: it knows no names,
// no subresources and no verbs but reading.
func abacRules() []env.ABACRule {
	var rules []env.ABACRule
	for _, group := range []string{env.FixtureGroup, judgeGroup} {
		rules = append(rules,
			env.ABACRule{User: "ann", Namespace: rightsNamespace, APIGroup: group, Resource: "gadgets", Readonly: true},
			env.ABACRule{User: "ben", Namespace: "*", APIGroup: group, Resource: "*"},
			env.ABACRule{Group: "readers", Namespace: otherNamespace, APIGroup: group, Resource: "*", Readonly: true},
		)
	}
	return rules
}

func grantList(ctx context.Context, w *world, user string) error {
	return bind(ctx, w.admin, user, rightsNamespace, []rbacv1.PolicyRule{
		{APIGroups: []string{env.FixtureGroup, judgeGroup}, Resources: []string{"gadgets"}, Verbs: []string{"list"}},
	}, users(user))
}

func revokeList(ctx context.Context, w *world, user string) error {
	return w.admin.RbacV1().RoleBindings(rightsNamespace).Delete(ctx, "chain-"+user, metav1.DeleteOptions{})
}
