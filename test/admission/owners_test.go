// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// grant gives a user rights in a namespace, or everywhere with an empty one.
func grant(t *testing.T, namespace, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: namespace + "-" + user, Namespace: namespace}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	roles, create := suite.kube.RbacV1(), metav1.CreateOptions{}
	var err error
	if namespace == "" {
		meta.Name = "admission-" + user
		if _, err = roles.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, create); err != nil {
			t.Fatal(err)
		}
		_, err = roles.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		}, create)
	} else {
		if _, err = roles.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: rules}, create); err != nil {
			t.Fatal(err)
		}
		_, err = roles.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		}, create)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func gadgetRights(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: append(groups(), movedGroup), Resources: []string{"gadgets", "gadgets/status"}, Verbs: verbs}
}

func finalizerRights(group, resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource + "/finalizers"}, Verbs: []string{"update"}}
}

// ownerUID is that of owners that do not exist.
const ownerUID = "5e1f0b52-7d0e-4b7c-9a55-0d6c6d1a7b11"

// owner is a list of one reference, with a comma behind it.
func owner(apiVersion, kind, name, uid string, block bool) string {
	return fmt.Sprintf(`"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q,"blockOwnerDeletion":%t}],`, apiVersion, kind, name, uid, block)
}

// TestOwnerReferences sets owners as users who may do it, and as users who may not. The writes
// are dry runs, since the garbage collector deletes what has an owner that does not exist.
func TestOwnerReferences(t *testing.T) {
	namespace := newNamespace(t, "owned")
	writer := gadgetRights("create", "update", "patch", "get")
	grant(t, namespace, "writer", writer)
	grant(t, namespace, "deleter", writer, gadgetRights("delete"))
	grant(t, namespace, "finalizer", writer, gadgetRights("delete"), finalizerRights("", "configmaps"))
	grant(t, "", "everywhere", writer, gadgetRights("delete"), finalizerRights("*", "*"))
	uid := realOwner(t, namespace)
	compare(t, namespace, func(s *session) {
		path := s.of("gadgets")
		for _, body := range []string{gadget("free", "red"), gadget("owned", "red", owner("v1", "ConfigMap", "real", uid, true))} {
			if got := s.ask("admin", "prepare", http.MethodPost, path, body); got.Code != http.StatusCreated {
				t.Fatalf("%s: %d %s", s.target.name, got.Code, got.Body)
			}
		}
		for _, user := range []string{"writer", "deleter", "finalizer", "everywhere", "admin"} {
			s.setOwners(user)
			s.changeOwners(user, uid)
		}
	})
}

// realOwner creates a ConfigMap and returns its UID.
func realOwner(t *testing.T, namespace string) string {
	t.Helper()
	created, err := suite.kube.CoreV1().ConfigMaps(namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "real"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(created.UID)
}

// setOwners gives owners to what had none.
func (s *session) setOwners(user string) {
	s.t.Helper()
	path := s.of("gadgets")
	for _, reference := range []struct{ what, owner string }{
		{"no owner", ""},
		{"an owner", owner("v1", "ConfigMap", "none", ownerUID, false)},
		{"a blocking owner", owner("v1", "ConfigMap", "none", ownerUID, true)},
		{"a blocking owner of a group", owner("apps/v1", "Deployment", "none", ownerUID, true)},
		{"a blocking owner without a namespace", owner("v1", "Node", "none", ownerUID, true)},
		{"a blocking owner of the same kind", owner(hostGroup+"/v1", "Gadget", "none", ownerUID, true)},
		{"a blocking owner of an unknown kind", owner("v1", "Nothing", "none", ownerUID, true)},
		{"a blocking owner of an unknown group", owner("nowhere.test/v1", "Nothing", "none", ownerUID, true)},
		{"a blocking owner of an unknown version", owner("apps/v9", "Deployment", "none", ownerUID, true)},
	} {
		s.as(user, user+" creates with "+reference.what, http.MethodPost, path+"?dryRun=All", gadget("new", "red", reference.owner))
		s.as(user, user+" updates to "+reference.what, http.MethodPatch, path+"/free?dryRun=All&fieldManager=m",
			`{"metadata":{`+reference.owner+`"labels":{"a":"b"}}}`)
		s.as(user, user+" updates by the status to "+reference.what, http.MethodPatch, path+"/free/status?dryRun=All&fieldManager=m",
			`{"metadata":{`+reference.owner+`"labels":{"a":"b"}},"status":{"size":1}}`)
	}
}

// changeOwners changes what has an owner.
func (s *session) changeOwners(user, uid string) {
	s.t.Helper()
	for _, change := range []struct{ what, metadata string }{
		{"keeps the owner", owner("v1", "ConfigMap", "real", uid, true)},
		{"makes the owner not blocking", owner("v1", "ConfigMap", "real", uid, false)},
		{"renames the owner", owner("v1", "ConfigMap", "other", uid, true)},
		{"replaces the owner", owner("v1", "Secret", "none", ownerUID, true)},
		{"removes the owner", `"ownerReferences":null,`},
	} {
		s.as(user, user+" "+change.what, http.MethodPatch, s.of("gadgets")+"/owned?dryRun=All&fieldManager=m",
			`{"metadata":{`+change.metadata+`"labels":{"a":"b"}}}`)
	}
}
