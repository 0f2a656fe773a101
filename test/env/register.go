// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

// The priorities of the APIService that kube-apiserver makes for a CRD
// (k8s.io/kubernetes pkg/controlplane/controller/crdregistration).
const (
	groupPriority   = 1000
	versionPriority = 100
)

// prepareHost makes annex's user, its rights, its Service and its serving certificate.
func (a *Annex) prepareHost(ctx context.Context) error {
	serving, err := a.host.pki.ca.Serving(a.name + "." + AnnexNamespace + ".svc")
	if err != nil {
		return err
	}
	if a.certFile, a.keyFile, err = serving.write(a.host.pki.dir, a.env.uniqueName(a.name+"-serving")); err != nil {
		return err
	}
	if a.kubeconfig, err = a.host.Kubeconfig(annexUser); err != nil {
		return err
	}
	config, err := a.host.AdminConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client of the host: %w", err)
	}
	if err := EnsureNamespace(ctx, config, AnnexNamespace); err != nil {
		return err
	}
	if err := grantRights(ctx, client); err != nil {
		return fmt.Errorf("giving annex its rights in the host: %w", err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: AnnexNamespace, Name: a.name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	_, err = client.CoreV1().Services(AnnexNamespace).Create(ctx, service, metav1.CreateOptions{})
	return ignoreAlreadyExists(err)
}

// grantRights lets annex's user delegate authentication and authorization and
// read what its admission, fairness and conversion webhooks need.
func grantRights(ctx context.Context, client kubernetes.Interface) error {
	roles, create := client.RbacV1(), metav1.CreateOptions{}
	_, err := roles.ClusterRoles().Create(ctx, annexRole(), create)
	if err := ignoreAlreadyExists(err); err != nil {
		return err
	}
	for name, role := range map[string]string{
		annexUser:                     annexUser,
		annexUser + ":auth-delegator": "system:auth-delegator",
	} {
		_, err := roles.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   annexSubjects(),
		}, create)
		if err := ignoreAlreadyExists(err); err != nil {
			return err
		}
	}
	_, err = roles.RoleBindings(metav1.NamespaceSystem).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: annexUser + ":authentication-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"},
		Subjects:   annexSubjects(),
	}, create)
	return ignoreAlreadyExists(err)
}

func annexSubjects() []rbacv1.Subject {
	return []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: annexUser}}
}

func annexRole() *rbacv1.ClusterRole {
	read := func(group string, resources ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"get", "list", "watch"}}
	}
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: annexUser},
		Rules: []rbacv1.PolicyRule{
			read("", "namespaces", "services"),
			read("admissionregistration.k8s.io",
				"mutatingwebhookconfigurations", "validatingwebhookconfigurations",
				"mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
				"validatingadmissionpolicies", "validatingadmissionpolicybindings"),
			read("flowcontrol.apiserver.k8s.io", "flowschemas", "prioritylevelconfigurations"),
		},
	}
}

// RegisterAPIService sends a group version of the host to annex and waits until
// every kube-apiserver finds it available and shows it in discovery and OpenAPI.
func (a *Annex) RegisterAPIService(ctx context.Context, group, version string) error {
	config, err := a.host.AdminConfig()
	if err != nil {
		return err
	}
	client, err := aggregatorclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client of the host: %w", err)
	}
	gv := schema.GroupVersion{Group: group, Version: version}
	_, err = client.ApiregistrationV1().APIServices().Create(ctx, a.apiService(gv), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating the APIService of %s: %w", gv, err)
	}
	for i := range a.host.APIServers {
		config, err := a.host.ConfigFor(i, "admin", "system:masters")
		if err != nil {
			return err
		}
		if err := WaitForGroupVersion(ctx, config, gv); err != nil {
			return err
		}
	}
	return nil
}

func (a *Annex) apiService(gv schema.GroupVersion) *apiregistrationv1.APIService {
	port := int32(a.port)
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group},
		Spec: apiregistrationv1.APIServiceSpec{
			Group:                gv.Group,
			Version:              gv.Version,
			GroupPriorityMinimum: groupPriority,
			VersionPriority:      versionPriority,
			CABundle:             a.host.pki.ca.PEM(),
			Service:              &apiregistrationv1.ServiceReference{Namespace: AnnexNamespace, Name: a.name, Port: &port},
		},
	}
}

// WaitForGroupVersion waits until the server of config finds the APIService of a
// group version available and shows it in discovery and OpenAPI v3, so that
// kubectl finds all of it.
func WaitForGroupVersion(ctx context.Context, config *rest.Config, gv schema.GroupVersion) error {
	client, err := aggregatorclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client of the host: %w", err)
	}
	last := errors.New("not asked yet")
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		last = checkGroupVersion(ctx, client, gv)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s: %w, last answer: %w", gv, err, last)
	}
	return nil
}

func checkGroupVersion(ctx context.Context, client aggregatorclient.Interface, gv schema.GroupVersion) error {
	service, err := client.ApiregistrationV1().APIServices().Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{})
	if err != nil {
		return err
	}
	available := false
	for _, condition := range service.Status.Conditions {
		if condition.Type == apiregistrationv1.Available {
			available = condition.Status == apiregistrationv1.ConditionTrue
		}
	}
	if !available {
		return fmt.Errorf("the APIService has conditions %v", service.Status.Conditions)
	}
	return checkDiscovery(client.Discovery(), gv)
}

func checkDiscovery(client discovery.DiscoveryInterface, gv schema.GroupVersion) error {
	aggregated, ok := client.(discovery.AggregatedDiscoveryInterface)
	if !ok {
		return errors.New("the client knows no aggregated discovery")
	}
	_, resources, failed, err := aggregated.GroupsAndMaybeResources()
	if err != nil {
		return err
	}
	if err := failed[gv]; err != nil {
		return fmt.Errorf("the group version fails in discovery: %w", err)
	}
	if resources[gv] == nil || len(resources[gv].APIResources) == 0 {
		return errors.New("the group version is missing in discovery")
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		return err
	}
	if paths["apis/"+gv.String()] == nil {
		return errors.New("the group version is missing in OpenAPI v3")
	}
	return nil
}

func ignoreAlreadyExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
