// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/kubeannex/annex/test/adoption/scenario"
)

// askInterval is the pause of an asker between two requests.
const askInterval = 5 * time.Millisecond

// TestUnknownGroupIsNotGone routes a group to an annex that knows nothing of it,
// as one does that has lost its etcd. kube-apiserver finds out by discovery a
// moment later; until then nobody may be told that the objects are gone, because
// the garbage collector would delete what they own.
func TestUnknownGroupIsNotGone(t *testing.T) {
	cluster := suite.cluster
	group := cluster.NewGroup(t, "lost.annex.test", nil)
	group.Seed(t, 3, 1)
	before := group.Snapshot(t, cluster.HostConfig(t, 0))
	checkReplicasKnowNothing(t, group)

	askers := startAskers(t, group)
	restore := sync.OnceFunc(func() { deleteServices(t, group) })
	defer restore()
	begin := time.Now()
	routeToAnnex(t, group)
	for _, a := range askers {
		a.waitRefusedByCluster(t)
	}
	t.Logf("every kube-apiserver refuses the group itself after %s", time.Since(begin).Round(time.Millisecond))
	byAnnex := 0
	for _, a := range askers {
		byAnnex += a.stop(t)
	}
	if byAnnex == 0 {
		t.Error("no request has reached annex, so nothing was tested")
	}
	restore()
	group.MustBeOnHost(t, before)
}

// lookups are requests that a client takes for the end of an object when they are answered by 404.
func lookups(group *scenario.Group) map[string]*asker {
	collection := "/apis/" + group.Name + "/v1/namespaces/" + group.Namespaces[0] + "/gadgets"
	// Where the object is, the condition does not hold.
	options := `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"none"}}`
	return map[string]*asker{
		"get":    {method: http.MethodGet, path: collection + "/owner", found: http.StatusOK},
		"list":   {method: http.MethodGet, path: collection, found: http.StatusOK},
		"watch":  {method: http.MethodGet, path: collection + "?watch=true&timeoutSeconds=1", found: http.StatusOK},
		"delete": {method: http.MethodDelete, path: collection + "/owner", body: options, found: http.StatusConflict},
	}
}

// asker sends one request again and again, without client-go's retries.
type asker struct {
	method, path, body string
	// found is the code of the answer where the object is.
	found int

	name   string
	url    string
	client *http.Client
	end    context.CancelFunc
	done   chan struct{}

	lock                       sync.Mutex
	byHost, byAnnex, byCluster int
	wrong                      error
}

// startAskers sends every request to every kube-apiserver, and returns when all are answered.
func startAskers(t *testing.T, group *scenario.Group) []*asker {
	t.Helper()
	var askers []*asker
	for i := range suite.cluster.Host.APIServers {
		for name, a := range lookups(group) {
			a.connect(t, suite.cluster.HostConfig(t, i), fmt.Sprintf("%s at kube-apiserver %d", name, i))
			askers = append(askers, a)
		}
	}
	for _, a := range askers {
		if err := a.ask(scenario.Context(t)); err != nil || a.byHost != 1 {
			t.Fatalf("%s: %v", a.name, errors.Join(err, a.wrong))
		}
		ctx, cancel := context.WithCancel(scenario.Context(t))
		a.end, a.done = cancel, make(chan struct{})
		go a.run(ctx)
		t.Cleanup(func() {
			cancel()
			<-a.done
		})
	}
	return askers
}

func (a *asker) connect(t *testing.T, config *rest.Config, name string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	a.client, a.url, a.name = client, config.Host+a.path, name
}

func (a *asker) run(ctx context.Context) {
	defer close(a.done)
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if err := a.ask(ctx); err != nil && ctx.Err() == nil {
			a.lock.Lock()
			a.wrong = err
			a.lock.Unlock()
			return
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// ask sends the request once and notes who has answered it.
func (a *asker) ask(ctx context.Context) error {
	got, err := a.send(ctx)
	if err != nil {
		return err
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	switch {
	case got.code == a.found:
		a.byHost++
	case got.code == http.StatusServiceUnavailable && strings.Contains(got.body, `"reason":"ServiceUnavailable"`) && got.retryAfter == "1":
		a.byAnnex++
	case got.code == http.StatusServiceUnavailable:
		a.byCluster++
	default:
		return fmt.Errorf("answered by %d: %.300s", got.code, got.body)
	}
	return nil
}

// told is what was answered to an asker.
type told struct {
	code             int
	retryAfter, body string
}

func (a *asker) send(ctx context.Context) (told, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, a.method, a.url, strings.NewReader(a.body))
	if err != nil {
		return told{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := a.client.Do(request)
	if err != nil {
		return told{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == a.found {
		// A watch goes on; what it says does not matter.
		return told{code: answer.StatusCode}, nil
	}
	content, err := io.ReadAll(answer.Body)
	return told{answer.StatusCode, answer.Header.Get("Retry-After"), string(content)}, err
}

// waitRefusedByCluster waits until kube-apiserver does not ask annex any more.
func (a *asker) waitRefusedByCluster(t *testing.T) {
	t.Helper()
	err := scenario.Poll(scenario.Context(t), func(context.Context) error {
		a.lock.Lock()
		defer a.lock.Unlock()
		if a.wrong == nil && a.byCluster == 0 {
			return errors.New("kube-apiserver has not refused it")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", a.name, err)
	}
}

// stop ends the requests, fails the test when one was answered wrongly, and returns how many annex has refused.
func (a *asker) stop(t *testing.T) int {
	t.Helper()
	a.end()
	<-a.done
	if a.wrong != nil {
		t.Errorf("%s: %v", a.name, a.wrong)
	}
	t.Logf("%s: answered %d times, refused by annex %d times, by kube-apiserver %d times", a.name, a.byHost, a.byAnnex, a.byCluster)
	return a.byAnnex
}

// checkReplicasKnowNothing asks every replica as the cluster does, and past it.
func checkReplicasKnowNothing(t *testing.T, group *scenario.Group) {
	t.Helper()
	for i := range suite.cluster.Annex.Replicas {
		proxied, err := suite.cluster.Annex.FrontProxyConfig(i, "ann", "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		for name, a := range lookups(group) {
			a.connect(t, proxied, name+" sent by the cluster")
			if err := a.ask(scenario.Context(t)); err != nil || a.byAnnex != 1 {
				t.Errorf("%s: %v, want 503", a.name, err)
			}
			a.connect(t, suite.cluster.AnnexConfig(t, i), name+" past the cluster")
			got, err := a.send(scenario.Context(t))
			if err != nil || got.code != http.StatusNotFound {
				t.Errorf("%s: %+v (%v), want 404", a.name, got, err)
			}
		}
	}
}

// routeToAnnex sends all versions of the group to annex, and nothing else.
func routeToAnnex(t *testing.T, group *scenario.Group) {
	t.Helper()
	client, err := aggregatorclient.NewForConfig(suite.cluster.HostConfig(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	services := client.ApiregistrationV1().APIServices()
	own, err := services.Get(scenario.Context(t), "v1alpha1.kubeannex.io", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"kube-aggregator.kubernetes.io/automanaged": nil}},
		"spec":     map[string]any{"service": own.Spec.Service, "caBundle": own.Spec.CABundle},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range group.APIServices(t) {
		if _, err := services.Patch(scenario.Context(t), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// deleteServices makes kube-apiserver serve the group itself again.
func deleteServices(t *testing.T, group *scenario.Group) {
	t.Helper()
	// Groups of other tests may be guarded.
	liftGuard(t, func(ctx context.Context, services apiServices) error {
		for name := range group.APIServices(t) {
			if err := services.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("deleting the APIService %s: %w", name, err)
			}
		}
		return nil
	})
}
