// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package skew

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/test/env"
)

const (
	timeout, pollInterval = time.Minute, 50 * time.Millisecond

	gadgets = "/apis/" + env.FixtureGroup + "/v1/namespaces/default/gadgets"
)

// cluster is a host with an annex that serves the gadgets.
type cluster struct {
	host  *env.Host
	annex *env.Annex
	kube  kubernetes.Interface
}

// suite is what the tests share: it is written by TestMain only.
var suite struct {
	// bare lacks mutating policies and flow control.
	bare cluster
	// beta serves mutating policies in the version v1beta1 only. Its own plug-in reads v1 and is off.
	beta cluster
}

func TestMain(m *testing.M) {
	os.Exit(env.Main(m, setup))
}

func setup(ctx context.Context, e *env.Env) error {
	begin := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return suite.bare.start(ctx, e, "bare", []string{"--max-mutating-requests-inflight=1"},
			"--emulated-version=1.34", "--enable-priority-and-fairness=false", "--runtime-config=flowcontrol.apiserver.k8s.io/v1=false")
	})
	group.Go(func() error {
		return suite.beta.start(ctx, e, "beta", nil,
			"--emulated-version=1.34", "--runtime-config=admissionregistration.k8s.io/v1beta1=true", "--disable-admission-plugins=MutatingAdmissionPolicy")
	})
	if err := group.Wait(); err != nil {
		return err
	}
	fmt.Printf("two hosts and their annexes serve after %s\n", time.Since(begin).Round(time.Millisecond))
	return nil
}

func (c *cluster) start(ctx context.Context, e *env.Env, name string, annexArgs []string, hostArgs ...string) (err error) {
	if c.host, err = e.StartHost(ctx, env.HostOptions{Name: name, APIServerArgs: hostArgs}); err != nil {
		return err
	}
	admin, err := c.host.AdminConfig()
	if err != nil {
		return err
	}
	if c.kube, err = kubernetes.NewForConfig(admin); err != nil {
		return err
	}
	if c.annex, err = e.StartAnnex(ctx, env.AnnexOptions{Name: name + "-annex", Host: c.host, Args: annexArgs}); err != nil {
		return err
	}
	direct, err := c.annex.AdminConfig(0)
	if err != nil {
		return err
	}
	if err := env.InstallGadgets(ctx, direct); err != nil {
		return err
	}
	for _, version := range []string{"v1", "v1beta1"} {
		if err := c.annex.RegisterAPIService(ctx, env.FixtureGroup, version); err != nil {
			return err
		}
	}
	return nil
}

// answer is what a server has answered once.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.code, a.body) }

// ask sends a request without retries.
func ask(ctx context.Context, config *rest.Config, method, path, body string) (answer, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return answer{}, err
	}
	request, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(data)}, err
}

func mustAsk(t *testing.T, config *rest.Config, method, path, body string) answer {
	t.Helper()
	got, err := ask(t.Context(), config, method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// configOf is a client configuration of an administrator at annex, or at the host.
func (c *cluster) configOf(t *testing.T, atHost bool) *rest.Config {
	t.Helper()
	config, err := c.annex.AdminConfig(0)
	if atHost {
		config, err = c.host.AdminConfig()
	}
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func gadget(name string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"Gadget","metadata":{"name":%q},"spec":{"color":"red"}}`, env.FixtureGroup+"/v1", name)
}

// until repeats a request until it is answered as wanted.
func until(t *testing.T, what string, config *rest.Config, method, path, body string, wanted func(answer) bool) answer {
	t.Helper()
	var last answer
	var lastErr error
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		last, lastErr = ask(ctx, config, method, path, body)
		return lastErr == nil && wanted(last), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v, last answer: %v, %v", what, err, last, lastErr)
	}
	return last
}
