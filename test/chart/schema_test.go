// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"strings"
	"testing"
)

// TestRefusedValues holds values that must not be installed and what Helm says to them.
func TestRefusedValues(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"an unknown value": {
			args: []string{"--set=replicas=3"},
			want: []string{"additional properties 'replicas' not allowed"},
		},
		"a misspelt value of a part": {
			args: []string{"--set=apiserver.replicaCount=3"},
			want: []string{"at '/apiserver'", "additional properties 'replicaCount' not allowed"},
		},
		"an unknown place for objects": {
			args: []string{"--set=etcd.mode=sqlite"},
			want: []string{"at '/etcd/mode'", "value must be one of 'embedded', 'statefulset', 'external'"},
		},
		"an external etcd that is not named": {
			args: []string{"--set=etcd.mode=external", "--set=etcd.external.secretName=etcd"},
			want: []string{"at '/etcd/external/endpoints'", "minItems: got 0, want 1"},
		},
		"an external etcd without a client certificate": {
			args: []string{"--set=etcd.mode=external", "--set=etcd.external.endpoints={https://etcd.example.com:2379}"},
			want: []string{"at '/etcd/external/secretName'", "minLength: got 0, want 1"},
		},
		"an external etcd in clear text": {
			args: []string{"--set=etcd.mode=external", "--set=etcd.external.secretName=etcd", "--set=etcd.external.endpoints={http://etcd.example.com:2379}"},
			want: []string{"at '/etcd/external/endpoints/0'", "does not match pattern '^https://"},
		},
		"an unknown issuer of certificates": {
			args: []string{"--set=certificates.mode=self-signed"},
			want: []string{"at '/certificates/mode'", "value must be one of 'annex', 'cert-manager', 'existing'"},
		},
		"an issuer without its kind": {
			args: []string{"--set=certificates.mode=cert-manager", "--set=certificates.certManager.issuerRef.name=platform"},
			want: []string{"at '/certificates/certManager/issuerRef'", "properties 'kind' required, if 'name' exists"},
		},
		"a certificate that nobody issues and nobody names": {
			args: []string{"--set=certificates.mode=existing", "--set=certificates.existing.controllerSecretName=null"},
			want: []string{"at '/certificates/existing'", "missing property 'controllerSecretName'"},
		},
		"a Secret without a name": {
			args: []string{"--set=certificates.mode=existing", "--set=certificates.existing.apiserverSecretName="},
			want: []string{"at '/certificates/existing/apiserverSecretName'", "minLength: got 0, want 1"},
		},
		"a Secret by a name that is none": {
			args: []string{"--set=certificates.mode=existing", "--set=certificates.existing.etcdPeerSecretName=my_secret"},
			want: []string{"at '/certificates/existing/etcdPeerSecretName'", "does not match pattern"},
		},
		"a Secret in another namespace": {
			args: []string{"--set=etcd.mode=external", "--set=etcd.external.endpoints={https://etcd.example.com:2379}", "--set=etcd.external.secretName=vault/etcd"},
			want: []string{"at '/etcd/external/secretName'", "does not match pattern"},
		},
		"an issuer of an unknown kind": {
			args: []string{"--set=certificates.certManager.issuerRef.name=platform", "--set=certificates.certManager.issuerRef.kind=Vault"},
			want: []string{"at '/certificates/certManager/issuerRef/kind'", "value must be one of 'Issuer', 'ClusterIssuer'"},
		},
		"an issuer that is a kind only": {
			args: []string{"--set=certificates.certManager.issuerRef.kind=ClusterIssuer"},
			want: []string{"at '/certificates/certManager/issuerRef'", "properties 'name' required, if 'kind' exists"},
		},
		"an authority by the values": {
			args: []string{"--set=certificates.caBundle=x"},
			want: []string{"at '/certificates'", "additional properties 'caBundle' not allowed"},
		},
		"a domain with a dot before it": {
			args: []string{"--set=clusterDomain=.cluster.local"},
			want: []string{"at '/clusterDomain'", "does not match pattern"},
		},
		"a drain that is cut off": {
			args: []string{"--set=apiserver.terminationGracePeriodSeconds=30"},
			want: []string{"apiserver.terminationGracePeriodSeconds is 30: it must be more than preStopSeconds, shutdownDelaySeconds and watchTerminationSeconds together, which are 30"},
		},
		"a lifetime that is none": {
			args: []string{"--set=certificates.certManager.duration=90days"},
			want: []string{"at '/certificates/certManager/duration'", "does not match pattern"},
		},
		"unverified TLS": {
			args: []string{"--set=insecureSkipTLSVerify=true"},
			want: []string{"additional properties 'insecureSkipTLSVerify' not allowed"},
		},
		"no replica": {
			args: []string{"--set=apiserver.replicas=0"},
			want: []string{"at '/apiserver/replicas'", "minimum: got 0, want 1"},
		},
		"a number of replicas in quotes": {
			args: []string{"--set-string=controller.replicas=2"},
			want: []string{"at '/controller/replicas'", "got string, want integer"},
		},
		"a flag without dashes": {
			args: []string{"--set=apiserver.extraArgs={v=4}"},
			want: []string{"at '/apiserver/extraArgs/0'", "does not match pattern '^--'"},
		},
		"a plug-in that annex does not have": {
			args: []string{"--set=apiserver.enableAdmissionPlugins={PodSecurity}"},
			want: []string{"at '/apiserver/enableAdmissionPlugins/0'", "value must be one of"},
		},
		"a label that is no text": {
			args: []string{"--set=commonLabels.answer=42"},
			want: []string{"at '/commonLabels/answer'", "got number, want string"},
		},
		"a shortened digest": {
			args: []string{"--set=image.digest=sha256:0123"},
			want: []string{"at '/image/digest'", "does not match pattern"},
		},
		"a kind instead of a group": {
			args: []string{"--set=rbac.adoptedGroups={Workflow}"},
			want: []string{"at '/rbac/adoptedGroups/0'", "does not match pattern"},
		},
		"list reviews for all users by a role that is none": {
			args: []string{"--set=rbac.users.listReviews.aggregateTo={cluster-admin}"},
			want: []string{"at '/rbac/users/listReviews/aggregateTo/0'", "value must be one of 'view', 'edit', 'admin'"},
		},
		"a Prometheus without a namespace": {
			args: []string{"--set=monitoring.prometheusServiceAccount.name=prometheus"},
			want: []string{"at '/monitoring/prometheusServiceAccount'", "properties 'namespace' required, if 'name' exists"},
		},
		"a volume without a unit": {
			args: []string{"--set-string=etcd.statefulset.persistence.size=20"},
			want: []string{"at '/etcd/statefulset/persistence/size'", "does not match pattern"},
		},
		"a member of etcd more": {
			args: []string{"--set=etcd.statefulset.replicas=5"},
			want: []string{"at '/etcd/statefulset'", "additional properties 'replicas' not allowed"},
		},
		"a cluster that is too old": {
			args: []string{"--kube-version=1.33.9"},
			want: []string{"chart requires kubeVersion: >=1.34.0-0 which is incompatible with Kubernetes v1.33.9"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"template", "annex", chart(t), "--namespace=" + namespace}, test.args...)
			stdout, stderr, err := helm(t, args...)
			if err == nil {
				t.Fatalf("accepted: %d bytes", len(stdout))
			}
			for _, want := range test.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("helm says\n%s\nwithout %q", stderr, want)
				}
			}
		})
	}
}

// TestAcceptedKubeVersions renders for the oldest and the newest cluster.
func TestAcceptedKubeVersions(t *testing.T) {
	for _, version := range []string{"1.34.0", "1.34.6-gke.100", "1.37.2"} {
		t.Run(version, func(t *testing.T) { render(t, "--kube-version="+version) })
	}
}
