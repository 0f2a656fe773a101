// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"crypto/x509"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kubeannex/annex/pkg/controller/certificates"
)

// TestEverySecretIsMade compares the Secrets that pods and ServiceMonitors name with
// those that are made, by whoever does it in each mode, or that the values name.
func TestEverySecretIsMade(t *testing.T) {
	onEverySet(t, func(t *testing.T, name string, all []document) {
		t.Helper()
		made := madeSecrets(t, name, all)
		used := map[string]bool{}
		for _, d := range all {
			if pod := podOf(t, d); pod != nil {
				for _, secret := range mounted(pod) {
					secret, _, _ = strings.Cut(secret, "/")
					used[secret] = true
				}
			}
			if d.GetKind() == "ServiceMonitor" {
				used[authorityOf(t, d)] = true
			}
		}
		delete(used, "")
		if valuesOf(t, name).Certificates.Mode == "annex" {
			used[certificates.ControllerSecret] = true // annex-controller reads its own from the API
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(made)), slices.Sorted(maps.Keys(used))); diff != "" {
			t.Errorf("Secrets with certificates (-made +used):\n%s", diff)
		}
	})
	monitored := documents(t, render(t, "--set=monitoring.serviceMonitor.enabled=true"))
	got, _, err := unstructured.NestedSlice(find(t, monitored, "ServiceMonitor", "annex-apiserver").Object, "spec", "endpoints")
	if err != nil {
		t.Fatal(err)
	}
	bundle, _, err := unstructured.NestedString(got[0].(map[string]any), "tlsConfig", "ca", "configMap", "name")
	if err != nil || bundle != certificates.BundleConfigMap {
		t.Errorf("Prometheus trusts %q, want %s: %v", bundle, certificates.BundleConfigMap, err)
	}
}

// authorityOf is the Secret by which a ServiceMonitor verifies, if there is one.
func authorityOf(t *testing.T, d document) string {
	t.Helper()
	endpoints, _, err := unstructured.NestedSlice(d.Object, "spec", "endpoints")
	if err != nil {
		t.Fatal(err)
	}
	name, _, err := unstructured.NestedString(endpoints[0].(map[string]any), "tlsConfig", "ca", "secret", "name")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// madeSecrets are the Secrets with certificates, without those of authorities.
func madeSecrets(t *testing.T, name string, all []document) map[string]bool {
	t.Helper()
	values := valuesOf(t, name)
	made := map[string]bool{}
	if values.Etcd.Mode == "external" {
		made[values.Etcd.External.SecretName] = true
	}
	switch values.Certificates.Mode {
	case "annex":
		made[certificates.ServerSecret], made[certificates.ControllerSecret] = true, true
		if valueOf(containerOf(t, all, "annex-controller"), "--etcd-members=") != "" {
			made[certificates.EtcdServerSecret], made[certificates.EtcdPeerSecret], made[certificates.EtcdClientSecret] = true, true, true
		}
	case "cert-manager":
		for _, c := range issued(t, all) {
			if !c.IsCA {
				made[c.SecretName] = true
			}
		}
	case "existing":
		for key, secret := range values.Certificates.Existing {
			if !strings.HasPrefix(key, "etcd") || values.Etcd.Mode == "statefulset" {
				made[secret] = true
			}
		}
	}
	return made
}

// values are those that decide which Secrets there are.
type values struct {
	ClusterDomain string `json:"clusterDomain"`
	Etcd          struct {
		Mode     string `json:"mode"`
		External struct {
			SecretName string `json:"secretName"`
		} `json:"external"`
	} `json:"etcd"`
	Certificates struct {
		Mode        string            `json:"mode"`
		Existing    map[string]string `json:"existing"`
		CertManager struct {
			IssuerRef issuerRef `json:"issuerRef"`
		} `json:"certManager"`
	} `json:"certificates"`
}

// valuesOf reads the default values and a set of config/chart/annex/ci over them.
func valuesOf(t *testing.T, name string) *values {
	t.Helper()
	v := &values{}
	for _, file := range []string{"values.yaml", "ci/" + name + ".yaml"} {
		content, err := os.ReadFile(filepath.Join(chart(t), file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(content, v); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

type issuerRef struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Group string `json:"group"`
}

// certificate is the spec of a Certificate of cert-manager.
type certificate struct {
	Name       string    `json:"-"`
	IsCA       bool      `json:"isCA"`
	CommonName string    `json:"commonName"`
	SecretName string    `json:"secretName"`
	DNSNames   []string  `json:"dnsNames"`
	Usages     []string  `json:"usages"`
	IssuerRef  issuerRef `json:"issuerRef"`
}

// issued are the Certificates.
func issued(t *testing.T, all []document) []certificate {
	t.Helper()
	var found []certificate
	for _, d := range all {
		if d.GetKind() == "Certificate" {
			spec := decode[struct {
				Spec certificate `json:"spec"`
			}](t, d).Spec
			spec.Name = d.GetName()
			found = append(found, spec)
		}
	}
	return found
}

// containerOf is the first container of a workload.
func containerOf(t *testing.T, all []document, name string) corev1.Container {
	t.Helper()
	for _, w := range workloads(t, all) {
		if w.name == name {
			return w.pod.Containers[0]
		}
	}
	t.Fatalf("there is no %s", name)
	return corev1.Container{}
}

// TestIssuers follows every Certificate of cert-manager to an issuer that exists,
// and every issuer to an authority that is made.
func TestIssuers(t *testing.T) {
	onEverySet(t, func(t *testing.T, name string, all []document) {
		t.Helper()
		values := valuesOf(t, name)
		authorities := map[string]bool{}
		for _, c := range issued(t, all) {
			authorities[c.SecretName] = c.IsCA
		}
		if (len(authorities) > 0) != (values.Certificates.Mode == "cert-manager") {
			t.Errorf("%d Certificates with mode %s", len(authorities), values.Certificates.Mode)
		}
		issuers := map[issuerRef]bool{}
		if given := values.Certificates.CertManager.IssuerRef; given.Name != "" {
			given.Group = "cert-manager.io"
			issuers[given] = true
		}
		for _, d := range all {
			if d.GetKind() != "Issuer" {
				continue
			}
			issuers[issuerRef{d.GetName(), "Issuer", "cert-manager.io"}] = true
			secret, found, err := unstructured.NestedString(d.Object, "spec", "ca", "secretName")
			if err != nil || (found && !authorities[secret]) {
				t.Errorf("Issuer %s signs by Secret %s, which is no authority: %v", d.GetName(), secret, err)
			}
		}
		for _, c := range issued(t, all) {
			if !issuers[c.IssuerRef] {
				t.Errorf("Certificate %s is of issuer %v, which is not there", c.Name, c.IssuerRef)
			}
		}
	})
}

// TestIssuedNames compares what cert-manager issues with what annex-controller
// would, in a domain of the cluster that is not the usual one.
func TestIssuedNames(t *testing.T) {
	const domain = "corp.example"
	all := documents(t, render(t, "--set=certificates.mode=cert-manager", "--set=clusterDomain="+domain))
	leaves := map[string]certificates.Leaf{}
	for _, leaf := range []certificates.Leaf{
		certificates.ServerLeaf(domain, "annex."+namespace+".svc"),
		certificates.ControllerLeaf(domain, "annex-controller."+namespace+".svc"),
	} {
		leaves[leaf.Secret] = leaf
	}
	members := membersOf(t, all)
	etcd := (&certificates.EtcdIssuer{Members: members, ClusterDomain: domain}).Leaves()
	for _, leaf := range etcd {
		leaves[leaf.Secret] = leaf
	}
	usages := map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: "server auth", x509.ExtKeyUsageClientAuth: "client auth"}
	for _, c := range issued(t, all) {
		if c.IsCA {
			continue
		}
		leaf := leaves[c.SecretName]
		delete(leaves, c.SecretName)
		want := certificate{CommonName: c.CommonName, Usages: []string{"digital signature"}}
		for _, usage := range leaf.Usages {
			want.Usages = append(want.Usages, usages[usage])
			if usage == x509.ExtKeyUsageClientAuth {
				want.CommonName = leaf.CommonName // by which etcd knows it
			}
		}
		for _, name := range leaf.Names {
			if net.ParseIP(name) == nil {
				want.DNSNames = append(want.DNSNames, name)
			}
		}
		slices.Sort(want.DNSNames)
		slices.Sort(c.DNSNames)
		if diff := cmp.Diff(want, certificate{CommonName: c.CommonName, DNSNames: c.DNSNames, Usages: c.Usages}); diff != "" {
			t.Errorf("Certificate %s (-annex-controller +cert-manager):\n%s", c.Name, diff)
		}
	}
	if len(leaves) > 0 {
		t.Errorf("cert-manager does not issue %v", slices.Sorted(maps.Keys(leaves)))
	}
	allowed := valueOf(containerOf(t, all, "annex-etcd"), "--peer-cert-allowed-cn=")
	if peer := etcd[slices.IndexFunc(etcd, func(leaf certificates.Leaf) bool { return leaf.Secret == certificates.EtcdPeerSecret })]; allowed != peer.CommonName {
		t.Errorf("etcd takes members by the name %q, certificates are for %q", allowed, peer.CommonName)
	}
	// With certificates of annex itself the controller is told both.
	controller := containerOf(t, documents(t, render(t, "--set=clusterDomain="+domain)), "annex-controller")
	if got := valueOf(controller, "--cluster-domain="); got != domain {
		t.Errorf("annex-controller issues certificates for the domain %q, want %s", got, domain)
	}
	if diff := cmp.Diff(members, strings.Split(valueOf(controller, "--etcd-members="), ",")); diff != "" {
		t.Errorf("members that certificates are issued for (-want +got):\n%s", diff)
	}
}

// membersOf are the names of the members of etcd, which its only client, the other
// members and etcd-seed have to agree on.
func membersOf(t *testing.T, all []document) []string {
	t.Helper()
	hosts := func(list string) []string {
		var names []string
		for entry := range strings.SplitSeq(list, ",") {
			member, address, ok := strings.Cut(entry, "=")
			if !ok {
				member, address = "", entry
			}
			parsed, err := url.Parse(address)
			if err != nil || parsed.Scheme != "https" || !strings.HasPrefix(parsed.Hostname(), member) {
				t.Errorf("a member of etcd is reached at %s: %v", entry, err)
			}
			names = append(names, parsed.Hostname())
		}
		return names
	}
	members := hosts(valueOf(containerOf(t, all, "annex-apiserver"), "--etcd-servers="))
	for _, w := range workloads(t, all) {
		if w.name != "annex-etcd" {
			continue
		}
		for _, container := range slices.Concat(w.pod.InitContainers, w.pod.Containers) {
			if diff := cmp.Diff(members, hosts(valueOf(container, "--initial-cluster="))); diff != "" {
				t.Errorf("members for annex-apiserver and for %s (-want +got):\n%s", container.Name, diff)
			}
		}
		if len(members) != int(w.replicas) {
			t.Errorf("%d members are named, %d run", len(members), w.replicas)
		}
	}
	return members
}

// TestOneWriterOfAuthorities says who tells kube-apiserver whom to trust: only
// annex-controller, by the authority of the very certificates that are presented.
func TestOneWriterOfAuthorities(t *testing.T) {
	onEverySet(t, func(t *testing.T, name string, all []document) {
		t.Helper()
		for _, d := range all {
			for annotation := range d.GetAnnotations() {
				if strings.HasPrefix(annotation, "cert-manager.io/inject-") {
					t.Errorf("%s %s has its authority from cert-manager too: both would write it", d.GetKind(), d.GetName())
				}
			}
			if d.GetKind() == "ValidatingWebhookConfiguration" || d.GetKind() == "MutatingWebhookConfiguration" {
				t.Errorf("%s %s is annex-controller's", d.GetKind(), d.GetName())
			}
		}
		if valuesOf(t, name).Certificates.Mode == "annex" {
			return // one authority signs all of them
		}
		presented := fileOf(t, all, "annex-apiserver", "--tls-cert-file=", "")
		told := fileOf(t, all, "annex-controller", "--annex-ca-file=", "")
		if want := strings.TrimSuffix(presented, "tls.crt") + "ca.crt"; told != want {
			t.Errorf("kube-apiserver is told to trust %s, annex-apiserver presents %s", told, presented)
		}
		webhooks := fileOf(t, all, "annex-controller", "--webhook-cert-dir=", "tls.crt")
		secret, _, _ := strings.Cut(webhooks, "/")
		for _, c := range issued(t, all) {
			if want := "annex-controller." + namespace + ".svc"; c.SecretName == secret && !slices.Contains(c.DNSNames, want) {
				t.Errorf("the certificate of the webhooks is for %v, want %s", c.DNSNames, want)
			}
		}
		if presented == webhooks {
			t.Errorf("annex-apiserver and annex-controller share the key %s", webhooks)
		}
	})
}

// fileOf resolves the value of a flag, a file or a folder with a file, to the Secret and key that it is.
func fileOf(t *testing.T, all []document, name, flag, file string) string {
	t.Helper()
	place := filepath.Join(valueOf(containerOf(t, all, name), flag), file)
	for _, w := range workloads(t, all) {
		if w.name != name {
			continue
		}
		for _, mount := range w.pod.Containers[0].VolumeMounts {
			key, ok := strings.CutPrefix(place, mount.MountPath+"/")
			if !ok {
				continue
			}
			for _, volume := range w.pod.Volumes {
				if volume.Name == mount.Name && volume.Secret != nil {
					return volume.Secret.SecretName + "/" + key
				}
			}
		}
	}
	t.Errorf("%s%s of %s is in no Secret", flag, place, name)
	return ""
}
