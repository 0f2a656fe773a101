// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"sigs.k8s.io/yaml"
)

// The manifests that a cluster operator applies, below the repository root.
const (
	rbacManifest       = "config/rbac/annex-apiserver.yaml"
	apiServiceManifest = "config/apiservice/apiservice.yaml"
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
	if err := grantRights(ctx, client, rbacManifest, annexUser); err != nil {
		return fmt.Errorf("giving annex its rights in the host: %w", err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: AnnexNamespace, Name: a.name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	_, err = client.CoreV1().Services(AnnexNamespace).Create(ctx, service, metav1.CreateOptions{})
	return ignoreAlreadyExists(err)
}

// grantRights applies a manifest of rights for a user, who has a certificate
// here instead of a service account.
func grantRights(ctx context.Context, client kubernetes.Interface, manifest, user string) error {
	documents, err := readManifest(manifest)
	if err != nil {
		return err
	}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	roles, create := client.RbacV1(), metav1.CreateOptions{}
	for _, document := range documents {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err != nil {
			return fmt.Errorf("decoding %s: %w", manifest, err)
		}
		switch object := object.(type) {
		case *rbacv1.ClusterRole:
			_, err = roles.ClusterRoles().Create(ctx, object, create)
		case *rbacv1.ClusterRoleBinding:
			object.Subjects = subjects
			_, err = roles.ClusterRoleBindings().Create(ctx, object, create)
		case *rbacv1.Role:
			_, err = roles.Roles(object.Namespace).Create(ctx, object, create)
		case *rbacv1.RoleBinding:
			object.Subjects = subjects
			_, err = roles.RoleBindings(object.Namespace).Create(ctx, object, create)
		default:
			err = fmt.Errorf("%s holds an unexpected %T", manifest, object)
		}
		if err := ignoreAlreadyExists(err); err != nil {
			return err
		}
	}
	return nil
}

// readManifest returns the documents of a file of the repository.
func readManifest(name string) ([][]byte, error) {
	root, err := RepositoryRoot()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, fmt.Errorf("reading a manifest: %w", err)
	}
	var documents [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if content, err := yaml.YAMLToJSON(document); err == nil && string(content) == "null" {
			continue // nothing but comments
		}
		documents = append(documents, document)
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
	service, err := a.apiService(gv)
	if err != nil {
		return err
	}
	if _, err := client.ApiregistrationV1().APIServices().Create(ctx, service, metav1.CreateOptions{}); err != nil {
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

// apiService fills the manifest in.
func (a *Annex) apiService(gv schema.GroupVersion) (*apiregistrationv1.APIService, error) {
	documents, err := readManifest(apiServiceManifest)
	if err != nil {
		return nil, err
	}
	service := &apiregistrationv1.APIService{}
	if err := yaml.UnmarshalStrict(documents[0], service); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", apiServiceManifest, err)
	}
	port := int32(a.port)
	service.Name = gv.Version + "." + gv.Group
	service.Spec.Group, service.Spec.Version = gv.Group, gv.Version
	service.Spec.CABundle = a.host.pki.ca.PEM()
	service.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: AnnexNamespace, Name: a.name, Port: &port}
	return service, nil
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
