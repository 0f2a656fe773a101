// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adopted starts an annex-apiserver as it runs in a cluster, serving gate
// included, inside the process of a test. There is no cluster behind it: users
// prove who they are by client certificates, and all are members of system:masters.
package adopted

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/pkg/generated/clientset/versioned"
	"github.com/kubeannex/annex/test/env"
)

const (
	// Controller is the user that may import.
	Controller = "annex-controller"
	// Somebody is a user like any other.
	Somebody = "somebody"
	// patience bounds a wait for something that takes no time.
	patience = time.Minute
)

// World is a server with the definitions of the fixture group and its AnnexedGroup.
type World struct {
	// Server is nil when the server is a process of its own.
	*testserver.Server

	host string
	tls  rest.TLSClientConfig
	ca   *env.CA
}

// Start starts a server. The group is closed.
func Start(tb testing.TB, flags ...string) *World {
	tb.Helper()
	world, err := start(tb, flags)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := world.Stop(); err != nil {
			tb.Error(err)
		}
	})
	if err := world.adopt(tb.Context(), world.Config(tb, Controller)); err != nil {
		tb.Fatal(err)
	}
	return world
}

func start(tb testing.TB, flags []string) (*World, error) {
	ca, own, err := Flags(tb)
	if err != nil {
		return nil, err
	}
	server, err := testserver.StartExcept(tb.Context(), []string{"informer-sync"}, append(own, flags...)...)
	if err != nil {
		return nil, err
	}
	return &World{Server: server, host: server.ClientConfig.Host, tls: rest.AnonymousClientConfig(server.ClientConfig).TLSClientConfig, ca: ca}, nil
}

// At is the world of a server that somebody else has started with Flags. The
// group is closed, if it is new.
func At(tb testing.TB, ca *env.CA, host string, serving rest.TLSClientConfig) *World {
	tb.Helper()
	world := &World{host: host, tls: serving, ca: ca}
	if err := world.adopt(tb.Context(), world.Config(tb, Controller)); err != nil {
		tb.Fatal(err)
	}
	return world
}

// Flags are the flags of a server that asks no cluster, and the authority of its users.
func Flags(tb testing.TB) (*env.CA, []string, error) {
	tb.Helper()
	root := testserver.ShortTempDir(tb)
	ca, err := env.NewCA("users")
	if err != nil {
		return nil, nil, err
	}
	caFile, kubeconfig := filepath.Join(root, "users.crt"), filepath.Join(root, "cluster.kubeconfig")
	if err := os.WriteFile(caFile, ca.PEM(), 0o600); err != nil {
		return nil, nil, fmt.Errorf("writing the authority of the users: %w", err)
	}
	if err := writeKubeconfig(kubeconfig); err != nil {
		return nil, nil, err
	}
	return ca, []string{
		"--root-dir=" + root,
		"--client-ca-file=" + caFile,
		"--controller-user=" + Controller,
		"--authentication-skip-lookup",
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--kubeconfig=" + kubeconfig,
		// What asks the cluster for its objects.
		"--enable-priority-and-fairness=false",
		"--disable-admission-plugins=NamespaceLifecycle,ResourceQuota,MutatingAdmissionWebhook,ValidatingAdmissionWebhook," +
			"ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
	}, nil
}

// writeKubeconfig writes the kubeconfig of a cluster that does not exist.
func writeKubeconfig(path string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["none"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}
	config.Contexts["none"] = &clientcmdapi.Context{Cluster: "none"}
	config.CurrentContext = "none"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return nil
}

// adopt creates what the controller creates before it copies.
func (w *World) adopt(ctx context.Context, config *rest.Config) error {
	own, err := versioned.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	group := &v1alpha1.AnnexedGroup{ObjectMeta: metav1.ObjectMeta{Name: env.FixtureGroup}}
	if _, err := own.KubeannexV1alpha1().AnnexedGroups().Create(ctx, group, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the AnnexedGroup: %w", err)
	}
	for _, definition := range []func() (*apiextensionsv1.CustomResourceDefinition, error){env.GadgetCRD, env.PlanetCRD} {
		crd, err := definition()
		if err != nil {
			return err
		}
		if err := env.InstallCRD(ctx, config, crd); err != nil {
			return err
		}
	}
	return w.awaitServing(ctx, config, v1alpha1.ServingClosed)
}

// Config is a client configuration of a user.
func (w *World) Config(tb testing.TB, user string) *rest.Config {
	tb.Helper()
	pair, err := w.ca.Client(user, "system:masters")
	if err != nil {
		tb.Fatal(err)
	}
	config := &rest.Config{Host: w.host, TLSClientConfig: w.tls, QPS: -1}
	config.CertData, config.KeyData = pair.Cert, pair.Key
	return config
}

// HTTP is a plain client of a user.
func (w *World) HTTP(tb testing.TB, user string) *http.Client {
	tb.Helper()
	client, err := rest.HTTPClientFor(w.Config(tb, user))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.CloseIdleConnections)
	return client
}

// Dynamic is a client of a user.
func (w *World) Dynamic(tb testing.TB, user string) dynamic.Interface {
	tb.Helper()
	client, err := dynamic.NewForConfig(w.Config(tb, user))
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

// Serve changes the mode of the group without waiting for it.
func (w *World) Serve(tb testing.TB, mode v1alpha1.ServingMode) {
	tb.Helper()
	own, err := versioned.NewForConfig(w.Config(tb, Controller))
	if err != nil {
		tb.Fatal(err)
	}
	patch := fmt.Sprintf(`{"status":{"serving":%q}}`, mode)
	_, err = own.KubeannexV1alpha1().AnnexedGroups().Patch(tb.Context(), env.FixtureGroup, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		tb.Fatal(err)
	}
}

// ServeNow changes the mode of the group and waits until it is in force.
func (w *World) ServeNow(tb testing.TB, mode v1alpha1.ServingMode) {
	tb.Helper()
	w.Serve(tb, mode)
	if err := w.awaitServing(tb.Context(), w.Config(tb, Controller), mode); err != nil {
		tb.Fatal(err)
	}
}

func (w *World) awaitServing(ctx context.Context, config *rest.Config, mode v1alpha1.ServingMode) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	defer client.CloseIdleConnections()
	var last v1alpha1.ReplicaStatus
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		answer, err := w.do(ctx, client, http.MethodGet, "replica", nil)
		if err != nil {
			return false, err
		}
		last = v1alpha1.ReplicaStatus{}
		return answer.decode(&last) == nil && last.Serving == mode, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %s, last answer %+v: %w", mode, last, err)
	}
	return nil
}

// Answer is the answer to a request.
type Answer struct {
	Code   int
	Header http.Header
	Body   []byte
}

func (a Answer) decode(into any) error {
	if a.Code != http.StatusOK {
		return fmt.Errorf("code %d: %s", a.Code, a.Body)
	}
	return json.Unmarshal(a.Body, into)
}

// Decode fails the test when the answer is not a success or not what into takes.
func (a Answer) Decode(tb testing.TB, into any) {
	tb.Helper()
	if err := a.decode(into); err != nil {
		tb.Fatal(err)
	}
}

// Status is the status of a refusal.
func (a Answer) Status(tb testing.TB) metav1.Status {
	tb.Helper()
	var status metav1.Status
	if err := json.Unmarshal(a.Body, &status); err != nil || status.Kind != "Status" {
		tb.Fatalf("code %d, no Status: %s", a.Code, a.Body)
	}
	return status
}

// Subresource sends a request to a subresource of the AnnexedGroup, such as
// "import?resource=gadgets".
func (w *World) Subresource(tb testing.TB, user, method, path string, body io.Reader) Answer {
	tb.Helper()
	answer, err := w.do(tb.Context(), w.HTTP(tb, user), method, path, body)
	if err != nil {
		tb.Fatal(err)
	}
	return answer
}

func (w *World) do(ctx context.Context, client *http.Client, method, path string, body io.Reader) (Answer, error) {
	return Do(ctx, client, method, w.host+"/apis/kubeannex.io/v1alpha1/annexedgroups/"+env.FixtureGroup+"/"+path, body)
}

// Do sends a request and reads the whole answer.
func Do(ctx context.Context, client *http.Client, method, url string, body io.Reader) (Answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return Answer{}, fmt.Errorf("making a request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return Answer{}, fmt.Errorf("sending a request: %w", err)
	}
	content, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return Answer{}, fmt.Errorf("reading an answer: %w", err)
	}
	return Answer{Code: response.StatusCode, Header: response.Header, Body: content}, nil
}

// URL is the address of a path.
func (w *World) URL(path string) string { return w.host + path }

// Replica is what the server knows of the group.
func (w *World) Replica(tb testing.TB) v1alpha1.ReplicaStatus {
	tb.Helper()
	var status v1alpha1.ReplicaStatus
	w.Subresource(tb, Somebody, http.MethodGet, "replica", nil).Decode(tb, &status)
	return status
}

// Digest is that of what is stored of a resource.
func (w *World) Digest(tb testing.TB, resource string) v1alpha1.ResourceDigest {
	tb.Helper()
	var result v1alpha1.ResourceDigest
	w.Subresource(tb, Somebody, http.MethodGet, "digest?resource="+resource, nil).Decode(tb, &result)
	return result
}

// Import sends objects as the controller does and returns the result.
func (w *World) Import(tb testing.TB, resource string, objects ...*unstructured.Unstructured) v1alpha1.ImportResult {
	tb.Helper()
	var result v1alpha1.ImportResult
	w.Subresource(tb, Controller, http.MethodPost, "import?resource="+resource, Stream(tb, watch.Added, objects...)).Decode(tb, &result)
	return result
}

// Stream is objects as the body of an import.
func Stream(tb testing.TB, event watch.EventType, objects ...*unstructured.Unstructured) *bytes.Buffer {
	tb.Helper()
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	for _, object := range objects {
		raw, err := json.Marshal(object.Object)
		if err != nil {
			tb.Fatal(err)
		}
		if err := encoder.Encode(metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: raw}}); err != nil {
			tb.Fatal(err)
		}
	}
	return &body
}
