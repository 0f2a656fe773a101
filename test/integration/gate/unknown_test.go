// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kubeannex/annex/pkg/apis/kubeannex/v1alpha1"
	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// The group of a definition that has no AnnexedGroup, and a group that does not exist.
const (
	ownGroup     = "own.annex.test"
	unknownGroup = "unknown.annex.test"
)

// proxiedWorld is a server that trusts a front proxy, with three clients of one user.
type proxiedWorld struct {
	*adopted.World

	// proxied is sent by the front proxy, direct comes by itself, and pretending
	// comes by itself and sends the header of the front proxy.
	proxied, direct, pretending *http.Client
	// front is the configuration of the front proxy.
	front *rest.Config
}

func startProxied(t *testing.T) *proxiedWorld {
	t.Helper()
	ca, err := env.NewCA("front-proxy")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "front-proxy.crt")
	if err := os.WriteFile(file, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	world := &proxiedWorld{World: adopted.Start(t, "--requestheader-client-ca-file="+file, "--requestheader-allowed-names=front-proxy-client")}
	pair, err := ca.Client("front-proxy-client")
	if err != nil {
		t.Fatal(err)
	}
	front := world.Config(t, adopted.Somebody)
	front.CertData, front.KeyData = pair.Cert, pair.Key
	world.front = front
	world.proxied = withHeaders(t, front, adopted.Somebody)
	world.direct = world.HTTP(t, adopted.Somebody)
	world.pretending = withHeaders(t, world.Config(t, adopted.Somebody), adopted.Somebody)
	return world
}

// withHeaders is a client that names its user as kube-apiserver does, if there is one.
func withHeaders(t *testing.T, config *rest.Config, user string) *http.Client {
	t.Helper()
	config = rest.CopyConfig(config)
	if user != "" {
		config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
			return transport.NewAuthProxyRoundTripper(user, "", []string{"system:masters"}, nil, inner)
		})
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// installOwn installs a definition of a group without AnnexedGroup.
func installOwn(t *testing.T, world *proxiedWorld) {
	t.Helper()
	crd, err := env.GadgetCRD()
	if err != nil {
		t.Fatal(err)
	}
	crd.Spec.Group, crd.Name = ownGroup, "gadgets."+ownGroup
	if err := env.InstallCRD(t.Context(), world.Config(t, adopted.Controller), crd); err != nil {
		t.Fatal(err)
	}
}

// TestWhatTheClusterSends asks for what the server has not, as the cluster and as a client that comes by itself.
func TestWhatTheClusterSends(t *testing.T) {
	world := startProxied(t)
	world.ServeNow(t, v1alpha1.ServingOpen)
	installOwn(t, world)
	for _, path := range []string{collection, "/apis/" + ownGroup + "/v1/gadgets"} {
		await(t, "the cache of "+path, func() bool {
			return send(t, world.direct, world.URL(path), request{method: http.MethodGet}).Code == http.StatusOK
		})
	}
	const unknown = "/apis/" + unknownGroup + "/v1/namespaces/t/gadgets"
	object := `{"apiVersion":"` + unknownGroup + `/v1","kind":"Gadget","metadata":{"name":"new","namespace":"t"}}`
	tests := map[string]struct {
		request
		wantProxied, wantDirect int
	}{
		"get":                         {request{http.MethodGet, unknown + "/g0", ""}, 503, 404},
		"get a subresource":           {request{http.MethodGet, unknown + "/g0/status", ""}, 503, 404},
		"list":                        {request{http.MethodGet, unknown, ""}, 503, 404},
		"list all namespaces":         {request{http.MethodGet, "/apis/" + unknownGroup + "/v1/gadgets?resourceVersion=0", ""}, 503, 404},
		"watch":                       {request{http.MethodGet, unknown + "?watch=1", ""}, 503, 404},
		"watch, old form":             {request{http.MethodGet, "/apis/" + unknownGroup + "/v1/watch/namespaces/t/gadgets", ""}, 503, 404},
		"create":                      {request{http.MethodPost, unknown, object}, 503, 404},
		"update":                      {request{http.MethodPut, unknown + "/new", object}, 503, 404},
		"patch":                       {request{http.MethodPatch, unknown + "/new", "{}"}, 503, 404},
		"delete":                      {request{http.MethodDelete, unknown + "/g0", ""}, 503, 404},
		"delete many":                 {request{http.MethodDelete, unknown, ""}, 503, 404},
		"discovery of the version":    {request{http.MethodGet, "/apis/" + unknownGroup + "/v1", ""}, 404, 404},
		"discovery of the group":      {request{http.MethodGet, "/apis/" + unknownGroup, ""}, 404, 404},
		"no group":                    {request{http.MethodGet, "/api/v1/namespaces/t/pods/p", ""}, 404, 404},
		"no path":                     {request{http.MethodGet, "/nothing", ""}, 404, 404},
		"the server's own, no kind":   {request{http.MethodGet, "/apis/kubeannex.io/v1alpha1/nothings/x", ""}, 404, 404},
		"the server's own, no object": {request{http.MethodGet, "/apis/kubeannex.io/v1alpha1/annexedgroups/" + unknownGroup, ""}, 404, 404},
		"a definition that is not":    {request{http.MethodGet, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets." + unknownGroup, ""}, 404, 404},
		"annexed":                     {request{http.MethodGet, collection, ""}, 200, 200},
		"annexed, no object":          {request{http.MethodGet, collection + "/none", ""}, 404, 404},
		"annexed, no kind":            {request{http.MethodGet, strings.Replace(collection, "gadgets", "nothings", 1) + "/x", ""}, 404, 404},
		"annexed, no version":         {request{http.MethodGet, strings.Replace(collection, "v1", "v7", 1) + "/x", ""}, 404, 404},
		"not annexed":                 {request{http.MethodGet, "/apis/" + ownGroup + "/v1/gadgets", ""}, 200, 200},
		"not annexed, no object":      {request{http.MethodGet, "/apis/" + ownGroup + "/v1/namespaces/t/gadgets/none", ""}, 404, 404},
		"not annexed, no kind":        {request{http.MethodGet, "/apis/" + ownGroup + "/v1/nothings/x", ""}, 404, 404},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for who, way := range map[string]struct {
				client *http.Client
				want   int
			}{
				"the cluster":            {world.proxied, tc.wantProxied},
				"a client":               {world.direct, tc.wantDirect},
				"a client that pretends": {world.pretending, tc.wantProxied},
			} {
				answer := send(t, way.client, world.URL(tc.path), tc.request)
				if answer.Code != way.want {
					t.Errorf("%s: got code %d, want %d: %s", who, answer.Code, way.want, answer.Body)
				}
				if answer.Code == http.StatusServiceUnavailable {
					checkUnavailable(t, answer)
				}
			}
		})
	}
}

// TestNobodyElseIsTheServer asks for a group that is half imported under the name of
// the server's own client, which is that of kube-apiserver's too.
func TestNobodyElseIsTheServer(t *testing.T) {
	world := startProxied(t)
	own, err := rest.HTTPClientFor(world.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.CloseIdleConnections)
	for name, tc := range map[string]struct {
		client *http.Client
		want   int
	}{
		"kube-apiserver":      {withHeaders(t, world.front, user.APIServerUser), http.StatusServiceUnavailable},
		"a certificate of it": {world.HTTP(t, user.APIServerUser), http.StatusServiceUnavailable},
		"the server itself":   {own, http.StatusOK},
	} {
		for _, path := range []string{collection, collection + "?watch=1&timeoutSeconds=1", collection + "?resourceVersion=0"} {
			if got := send(t, tc.client, world.URL(path), request{method: http.MethodGet}); got.Code != tc.want {
				t.Errorf("%s, %s: got code %d, want %d: %s", name, path, got.Code, tc.want, got.Body)
			}
		}
	}
}

func checkUnavailable(t *testing.T, answer adopted.Answer) {
	t.Helper()
	status := answer.Status(t)
	if status.Reason != metav1.StatusReasonServiceUnavailable || status.Details == nil || status.Details.RetryAfterSeconds != 1 || answer.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q, status %s", answer.Header.Get("Retry-After"), answer.Body)
	}
	if !strings.Contains(status.Message, unknownGroup) || strings.Contains(status.Message, "\n") {
		t.Errorf("message: %s", status.Message)
	}
}

// TestLastDefinitionIsDeleted takes the definitions away: what has an AnnexedGroup stays known.
func TestLastDefinitionIsDeleted(t *testing.T) {
	world := startProxied(t)
	world.ServeNow(t, v1alpha1.ServingOpen)
	installOwn(t, world)
	client, err := apiextensionsclient.NewForConfig(world.Config(t, adopted.Controller))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"gadgets." + env.FixtureGroup, "planets." + env.FixtureGroup, "gadgets." + ownGroup} {
		if err := client.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	code := func(client *http.Client, group string) int {
		return send(t, client, world.URL("/apis/"+group+"/v1/gadgets"), request{method: http.MethodGet}).Code
	}
	for _, tc := range []struct {
		who    string
		client *http.Client
		group  string
		want   int
	}{
		{"the cluster", world.proxied, env.FixtureGroup, http.StatusNotFound},
		{"a client", world.direct, env.FixtureGroup, http.StatusNotFound},
		{"the cluster", world.proxied, ownGroup, http.StatusServiceUnavailable},
		{"a client", world.direct, ownGroup, http.StatusNotFound},
	} {
		await(t, "the end of "+tc.group+" for "+tc.who, func() bool { return code(tc.client, tc.group) == tc.want })
	}
	installOwn(t, world)
	await(t, "a definition that is back", func() bool { return code(world.proxied, ownGroup) == http.StatusOK })
}
