// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeannex/annex/test/env"
)

// testTimeout bounds every test of this package.
const testTimeout = 2 * time.Minute

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	env     *env.Env
	node    *Node
	kubectl *env.Kubectl
	client  kubernetes.Interface
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) error {
	programs, err := e.BuildStatic(context.WithoutCancel(ctx), "test/env/node", "./testdata/pod")
	if err != nil {
		return err
	}
	host, err := e.StartHost(ctx, env.HostOptions{LoopbackServices: true})
	if err != nil {
		return err
	}
	if err := host.StartControllerManager(ctx, Controllers()...); err != nil {
		return err
	}
	if suite.node, err = Start(ctx, e, Options{Host: host, Programs: programs}); err != nil {
		return err
	}
	config, err := host.AdminConfig()
	if err != nil {
		return err
	}
	if suite.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	suite.env = e
	suite.kubectl, err = host.Kubectl()
	return err
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// newNamespace makes a namespace for a test. When the test fails the logs of its
// pods and what kubectl says about them are printed.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := strings.ToLower(t.Name())
	suite.kubectl.MustRun(t, "create", "namespace", namespace)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx := context.WithoutCancel(t.Context())
		for _, args := range [][]string{{"describe", "pods"}, {"get", "all,events,pvc"}} {
			if result, err := suite.kubectl.Run(ctx, append(args, "--namespace", namespace)...); err == nil {
				fmt.Fprintln(t.Output(), result.Stdout)
			}
		}
		suite.node.PrintLogs(t.Output(), namespace, 20)
	})
	// The pods of a namespace need what two controllers make for it.
	eventually(t, func(ctx context.Context) error {
		if _, err := suite.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := suite.client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	return namespace
}

// eventually waits until check returns nil.
func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextCancel(testContext(t), 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v, last answer: %v", err, last)
	}
}

// apply creates objects.
func apply(t *testing.T, namespace, manifest string) {
	t.Helper()
	suite.kubectl.MustRunInput(t, manifest, "apply", "--namespace", namespace, "-f", "-")
}

// ask sends a request to a pod or a Service over a new connection.
func ask(ctx context.Context, ip, path string, query url.Values) (string, error) {
	address := url.URL{Scheme: "http", Host: ip + ":8000", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return "", err
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address.String(), answer.Status, body)
	}
	return string(body), err
}

func mustAsk(t *testing.T, ip, path string, query url.Values) string {
	t.Helper()
	answer, err := ask(testContext(t), ip, path, query)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// pods returns the pods of a namespace with a label app, by name.
func pods(t *testing.T, namespace, app string) []corev1.Pod {
	t.Helper()
	list, err := suite.client.CoreV1().Pods(namespace).List(testContext(t), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}
