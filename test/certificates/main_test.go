// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeannex/annex/pkg/apis/kubeannex"
	"github.com/kubeannex/annex/pkg/controller/certificates"
	annexclient "github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/adoption/scenario"
	"github.com/kubeannex/annex/test/env"
)

const (
	controllerUser = "annex-controller"
	// mountDelay is how late the files of annex are.
	mountDelay = time.Second
	// settling is how long a step of a rotation lasts.
	settling = 3 * time.Second
)

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	cluster *scenario.Cluster
	kube    kubernetes.Interface
}

func TestMain(m *testing.M) {
	ctx, cancel := context.WithCancel(context.Background())
	mounted := make(chan struct{})
	code := env.Main(m, func(setupCtx context.Context, e *env.Env) error { return setup(setupCtx, ctx, e, mounted) })
	cancel()
	if suite.kube != nil {
		<-mounted
	}
	os.Exit(code)
}

// setup starts annex with certificates of somebody else, since its processes need
// some to start, then the controllers, whose certificates replace them.
func setup(ctx, life context.Context, e *env.Env, mounted chan<- struct{}) error {
	c := &scenario.Cluster{Env: e}
	var err error
	if c.Host, err = e.StartHost(ctx, env.HostOptions{APIServers: 2}); err != nil {
		return err
	}
	if c.Annex, err = e.StartAnnex(ctx, env.AnnexOptions{Host: c.Host, Replicas: 2, Args: []string{"--apiserver-count=1"}}); err != nil {
		return err
	}
	if err := c.Annex.RegisterAPIService(ctx, kubeannex.GroupName, "v1alpha1"); err != nil {
		return err
	}
	admin, err := c.Host.AdminConfig()
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(admin)
	if err != nil {
		return err
	}
	if err := grant(ctx, kube); err != nil {
		return err
	}
	kubeconfig, err := annexKubeconfig(c)
	if err != nil {
		return err
	}
	go func() {
		defer close(mounted)
		mount(life, kube, filepath.Dir(c.Host.CAFile()))
	}()
	suite.cluster, suite.kube = c, kube
	c.Controller, err = e.StartController(ctx, env.ControllerOptions{Host: c.Host, Annex: c.Annex, Replicas: 2, Args: []string{
		"--issue-certificates", "--annex-ca-file=", "--webhook-cert-dir=", "--webhook-ca-file=", "--annex-kubeconfig=" + kubeconfig,
		"--certificate-settling-time=" + settling.String(), "--host-request-timeout=3s",
		"--etcd-members=annex-etcd-0.annex-etcd.annex-system.svc,annex-etcd-1.annex-etcd.annex-system.svc",
	}})
	if err != nil {
		return err
	}
	groups, err := c.Host.BalancedConfig("admin", "system:masters")
	if err != nil {
		return err
	}
	if c.Groups, err = annexclient.NewForConfig(groups); err != nil {
		return err
	}
	return scenario.Poll(ctx, func(ctx context.Context) error {
		_, err := c.Groups.KubeannexV1alpha1().AnnexedGroups().List(ctx, metav1.ListOptions{})
		return err
	})
}

// annexKubeconfig is how the controllers reach annex: it names no authority.
func annexKubeconfig(c *scenario.Cluster) (string, error) {
	config, err := c.Annex.BalancedConfig(controllerUser)
	if err != nil {
		return "", err
	}
	config.CAData = nil
	path := filepath.Join(filepath.Dir(c.Host.CAFile()), "issued.kubeconfig")
	return path, env.WriteKubeconfig(path, config)
}

// grant gives the controllers exactly what they need to issue certificates.
func grant(ctx context.Context, kube kubernetes.Interface) error {
	secrets := []string{
		certificates.AuthoritySecret, certificates.ServerSecret, certificates.ControllerSecret,
		certificates.EtcdAuthoritySecret, certificates.EtcdServerSecret, certificates.EtcdPeerSecret, certificates.EtcdClientSecret,
	}
	const name = "annex-controller:certificates"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: env.AnnexNamespace, Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "update"}, ResourceNames: secrets},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "update"}, ResourceNames: []string{certificates.BundleConfigMap}},
	}}
	if _, err := kube.RbacV1().Roles(env.AnnexNamespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("giving the controller its rights: %w", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.AnnexNamespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: controllerUser}},
	}
	if _, err := kube.RbacV1().RoleBindings(env.AnnexNamespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("giving the controller its rights: %w", err)
	}
	return nil
}

// mount writes the Secret of annex into the files of its processes, until ctx is done.
func mount(ctx context.Context, kube kubernetes.Interface, dir string) {
	var mounted []byte
	ticker := time.NewTicker(mountDelay)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		secret, err := kube.CoreV1().Secrets(env.AnnexNamespace).Get(ctx, certificates.ServerSecret, metav1.GetOptions{})
		if err != nil || bytes.Equal(secret.Data[corev1.TLSCertKey], mounted) {
			continue // a kubelet tries again too
		}
		if err := errors.Join(
			replace(filepath.Join(dir, "annex-serving.key"), secret.Data[corev1.TLSPrivateKeyKey]),
			replace(filepath.Join(dir, "annex-serving.crt"), secret.Data[corev1.TLSCertKey]),
		); err != nil {
			fmt.Fprintln(os.Stderr, "writing the certificate of annex:", err)
			continue
		}
		mounted = secret.Data[corev1.TLSCertKey]
	}
}

// replace writes a file in one step.
func replace(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
