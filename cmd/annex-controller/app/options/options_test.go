// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
)

// parse returns the options of a command line, completed.
func parse(t *testing.T, args ...string) CompletedOptions {
	t.Helper()
	opts := NewOptions()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	sections := opts.Flags()
	for _, name := range sections.Order {
		flags.AddFlagSet(sections.FlagSet(name))
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	completed, err := opts.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return completed
}

func TestFlagsReachTheirFields(t *testing.T) {
	got := parse(t, "--kubeconfig=a", "--annex-kubeconfig=b", "--annex-service=ns/svc:1", "--annex-ca-file=c",
		"--host-endpoints=https://h1,https://h2", "--annex-endpoints=https://a1", "--host-sampling=1s", "--host-request-timeout=2m", "--dependents=/pods,apps/*", "--webhook-bind-address=d", "--webhook-port=2",
		"--webhook-cert-dir=e", "--webhook-ca-file=f", "--webhook-url=https://g/", "--namespace=h", "--leader-elect=false",
		"--health-probe-bind-address=i", "--metrics-bind-address=j",
		"--issue-certificates", "--certificate-validity=3h", "--authority-validity=4h", "--certificate-settling-time=5s", "--etcd-members=k,l", "--cluster-domain=m.test")
	want := Options{
		Kubeconfig: "a", AnnexKubeconfig: "b", AnnexService: "ns/svc:1", AnnexCAFile: "c",
		HostEndpoints: []string{"https://h1", "https://h2"}, AnnexEndpoints: []string{"https://a1"}, HostSampling: time.Second, HostRequestTimeout: 2 * time.Minute,
		Dependents: []string{"/pods", "apps/*"},
		Webhook:    WebhookOptions{BindAddress: "d", Port: 2, CertDir: "e", CAFile: "f", URL: "https://g"},
		Certificates: CertificateOptions{
			Issue: true, Validity: 3 * time.Hour, AuthorityValidity: 4 * time.Hour, Settling: 5 * time.Second,
			EtcdMembers: []string{"k", "l"}, ClusterDomain: "m.test",
		},
		Namespace: "h", HealthProbeBindAddress: "i", MetricsBindAddress: "j", Logs: got.Logs,
	}
	if diff := cmp.Diff(want, *got.Options); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestValidate(t *testing.T) {
	good := []string{"--annex-ca-file=ca", "--webhook-cert-dir=certs"}
	cases := map[string]struct {
		args []string
		want []string
	}{
		"enough":            {args: good},
		"nothing":           {want: []string{"--annex-ca-file is needed without --annex-kubeconfig", "--webhook-cert-dir is empty"}},
		"issued":            {args: []string{"--issue-certificates", "--etcd-members=a"}},
		"issued, and files": {args: append(good, "--issue-certificates"), want: []string{"--issue-certificates needs no files"}},
		"members alone":     {args: append(good, "--etcd-members=a"), want: []string{"--etcd-members needs --issue-certificates"}},
		"a short authority": {
			args: []string{"--issue-certificates", "--certificate-validity=24h", "--authority-validity=48h"},
			want: []string{"--authority-validity is 48h0m0s: it must be at least 3 times --certificate-validity, which is 24h0m0s"},
		},
		"a long settling": {
			args: []string{"--issue-certificates", "--certificate-validity=6m"},
			want: []string{"--certificate-settling-time is 5m0s: it must be at most a sixth of --certificate-validity, which is 6m0s"},
		},
		"no validity": {
			args: []string{"--issue-certificates", "--certificate-validity=0", "--certificate-settling-time=0"},
			want: []string{"--certificate-validity is 0s"},
		},
		"a domain that is none": {
			args: []string{"--issue-certificates", "--cluster-domain=.cluster.local"},
			want: []string{`--cluster-domain is ".cluster.local": write a domain such as cluster.local`},
		},
		"a bad service":    {args: append(good, "--annex-service=annex"), want: []string{`--annex-service is "annex": write namespace/name:port`}},
		"a bad port":       {args: append(good, "--annex-service=ns/annex:99999"), want: []string{`--annex-service is "ns/annex:99999"`}},
		"no namespace":     {args: append(good, "--namespace="), want: []string{"--namespace is empty"}},
		"no address":       {args: append(good, "--host-endpoints=10.0.0.1:6443"), want: []string{`--host-endpoints has "10.0.0.1:6443": write https://host:port`}},
		"without TLS":      {args: append(good, "--webhook-url=http://127.0.0.1:1"), want: []string{`--webhook-url has "http://127.0.0.1:1"`}},
		"a long sampling":  {args: append(good, "--host-sampling=5s"), want: []string{"--host-sampling is 5s: it must be between 0 and 1.5s"}},
		"kinds":            {args: append(good, "--dependents=/configmaps,apps/*,*/*")},
		"a kind alone":     {args: append(good, "--dependents=/pods,configmaps"), want: []string{`--dependents has "configmaps": write group/resource`}},
		"a group alone":    {args: append(good, "--dependents=apps/"), want: []string{`--dependents has "apps/"`}},
		"a subresource":    {args: append(good, "--dependents=/pods/status"), want: []string{`--dependents has "/pods/status"`}},
		"a webhook port 0": {args: append(good, "--webhook-port=0"), want: []string{"--webhook-port is 0"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			errs := parse(t, tc.args...).Validate()
			if len(errs) != len(tc.want) {
				t.Fatalf("got %v, want %d errors", errs, len(tc.want))
			}
			for i, want := range tc.want {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("%q does not say %q", errs[i], want)
				}
			}
		})
	}
}

// TestConnections builds the clients from files, without a server.
func TestConnections(t *testing.T) {
	dir := t.TempDir()
	authority := filepath.Join(dir, "ca.crt")
	// A client is made only of a certificate that can be parsed.
	if err := os.WriteFile(authority, []byte(testAuthority(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://cluster.test:6443", CertificateAuthority: authority}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	connections, authorities, err := parse(t, "--kubeconfig="+kubeconfig, "--annex-ca-file="+authority, "--webhook-cert-dir="+dir,
		"--host-endpoints=https://10.0.0.1:6443").Connections()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := connections.Annex.Config.Host, "https://annex.annex-system.svc:443"; got != want {
		t.Errorf("annex is reached at %s, want %s", got, want)
	}
	mustFollow(t, authority, authorities, connections.AnnexCA)
	if service := connections.Webhook.Service; service == nil || service.Name != webhookService || service.Namespace != defaultNamespace {
		t.Errorf("the webhook is reached at %v, want the Service", service)
	}
	endpoints, err := connections.HostEndpoints(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(endpoints) != 1 || endpoints[0].Config.ServerName != "cluster.test" || endpoints[0].Config.BearerToken != "secret" {
		t.Errorf("got endpoints %v, want one with the credentials and the name of the kubeconfig", endpoints)
	}
}

// mustFollow replaces the file of an authority as the kubelet does.
func mustFollow(t *testing.T, file string, authorities *Authorities, known func() []byte) {
	t.Helper()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(known()) != string(before) {
		t.Errorf("the authority is %q, want that of the file", known())
	}
	changed := make(chan struct{}, 2)
	authorities.OnChange(func() { changed <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- authorities.Start(ctx) }()
	after := testAuthority(t)
	if err := os.WriteFile(file+".new", []byte(after), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	for range 2 { // both authorities are in the same file
		select {
		case <-changed:
		case <-time.After(30 * time.Second):
			t.Fatal("the file is not read again")
		}
	}
	if string(known()) != after {
		t.Errorf("the authority is %q, want %q", known(), after)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestIssuedConnections needs no file, and trusts nobody before it is told.
func TestIssuedConnections(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://cluster.test:6443"}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		t.Fatal(err)
	}
	opts := parse(t, "--kubeconfig="+kubeconfig, "--issue-certificates", "--webhook-url=https://127.0.0.1:9443")
	connections, authorities, err := opts.Connections()
	if err != nil {
		t.Fatal(err)
	}
	if authorities.Annex != authorities.Webhooks || connections.AnnexCA() != nil || connections.WebhookClient().CABundle != nil {
		t.Error("somebody is trusted before the leader has made an authority")
	}
	_, err = connections.Annex.Kube.Discovery().ServerVersion()
	if err == nil || !strings.Contains(err.Error(), "annex-ca-bundle names no authority yet") {
		t.Errorf("got %v, want no connection that is not verified", err)
	}
	leaves, err := opts.Leaves()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"annex-controller.annex-system.svc", "annex-controller.annex-system.svc.cluster.local", "localhost", "127.0.0.1", "::1"}
	if diff := cmp.Diff(want, leaves[1].Names); diff != "" {
		t.Errorf("names of the webhook server (-want +got):\n%s", diff)
	}
	if leaves, err = parse(t, "--kubeconfig="+kubeconfig, "--issue-certificates", "--cluster-domain=corp.example").Leaves(); err != nil {
		t.Fatal(err)
	}
	for _, leaf := range leaves {
		if want := leaf.CommonName + ".corp.example"; !slices.Contains(leaf.Names, want) {
			t.Errorf("%s is for %v, want %s among them", leaf.Secret, leaf.Names, want)
		}
	}
}

func TestConnectionsRefusals(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, _, err := parse(t, "--kubeconfig="+missing, "--annex-ca-file=x", "--webhook-cert-dir=y").Connections()
	if err == nil || !strings.Contains(err.Error(), "--kubeconfig") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line that names the flag", err)
	}
}

func testAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "test"}, key)
	if err != nil {
		t.Fatal(err)
	}
	content, err := certutil.EncodeCertificates(authority)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
