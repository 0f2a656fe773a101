// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	// rightsTimeout bounds the wait for rights.
	rightsTimeout = 30 * time.Second
	// rightsInterval is the pause between two looks at whether rights are known.
	rightsInterval = 100 * time.Millisecond
)

// Rights are a ClusterRole of the host, and the users who have it.
type Rights struct {
	// Name is that of the role and of its binding.
	Name  string
	Rules []rbacv1.PolicyRule
	Users []string
}

// Grant creates rights. Servers know them some time later, see AwaitRights.
func (c *Cluster) Grant(ctx context.Context, rights Rights) error {
	host, err := kubernetes.NewForConfig(c.hostConfig)
	if err != nil {
		return fmt.Errorf("making a client of the host: %w", err)
	}
	metadata := metav1.ObjectMeta{Name: rights.Name}
	role := &rbacv1.ClusterRole{ObjectMeta: metadata, Rules: rights.Rules}
	if _, err := host.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the ClusterRole %s: %w", rights.Name, err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metadata,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rights.Name},
	}
	for _, user := range rights.Users {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	if _, err := host.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the ClusterRoleBinding %s: %w", rights.Name, err)
	}
	return nil
}

// Revoke deletes rights. Those that are not there are no error.
func (c *Cluster) Revoke(ctx context.Context, name string) error {
	host, err := kubernetes.NewForConfig(c.hostConfig)
	if err != nil {
		return fmt.Errorf("making a client of the host: %w", err)
	}
	var problems []error
	for _, err := range []error{
		host.RbacV1().ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{}),
		host.RbacV1().ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{}),
	} {
		if err != nil && !apierrors.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("deleting the rights %s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}

// AwaitRights waits until a request that needs rights succeeds on a side.
func AwaitRights(ctx context.Context, side Side, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, rightsTimeout)
	defer cancel()
	var last error
	err := wait.PollUntilContextCancel(ctx, rightsInterval, true, func(ctx context.Context) (bool, error) {
		last = request(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for rights on %s: %w, last answer: %w", side.Name, err, last)
	}
	return nil
}
