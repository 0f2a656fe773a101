// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/pflag"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/kubeannex/annex/pkg/controller/certificates"
	"github.com/kubeannex/annex/pkg/controller/cluster"
)

const (
	defaultValidity          = 90 * 24 * time.Hour
	defaultAuthorityValidity = 365 * 24 * time.Hour
	// defaultSettling is more than the two minutes after which every pod has a changed
	// Secret or ConfigMap: the kubelet's sync period and the lifetime of its cache.
	defaultSettling = 5 * time.Minute
	// defaultClusterDomain is what kubeadm and most others choose.
	defaultClusterDomain = "cluster.local"
	// validities is how many certificates an authority has to outlive: it is replaced
	// when a third of its life is left, and must not end before what it signed by then.
	validities = 3
)

// CertificateOptions say who issues certificates.
type CertificateOptions struct {
	// Issue makes the controller do it.
	Issue bool
	// Validity is that of certificates, AuthorityValidity that of their authority.
	Validity, AuthorityValidity time.Duration
	// Settling is how long each step of replacing the authority lasts at least.
	Settling time.Duration
	// EtcdMembers are the members of annex's own etcd. Empty issues nothing for etcd.
	EtcdMembers []string
	// ClusterDomain is the DNS domain of the cluster, the end of the long names of Services.
	ClusterDomain string
}

func (o *CertificateOptions) addFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Issue, "issue-certificates", o.Issue,
		"Makes annex-controller issue and renew the certificates of annex-apiserver and of its own webhooks, in Secrets of --namespace. "+
			"It replaces --webhook-cert-dir, --webhook-ca-file and --annex-ca-file.")
	fs.DurationVar(&o.Validity, "certificate-validity", o.Validity, "How long an issued certificate is valid. It is renewed when a third is left.")
	fs.DurationVar(&o.AuthorityValidity, "authority-validity", o.AuthorityValidity,
		"How long the authority that signs certificates is valid. The next one is made when a third is left, and signs when everybody trusts it.")
	fs.DurationVar(&o.Settling, "certificate-settling-time", o.Settling,
		"While the authority is replaced, how long each step lasts at least: longer than it takes until every pod has a changed Secret.")
	fs.StringSliceVar(&o.EtcdMembers, "etcd-members", o.EtcdMembers,
		"The names of all members of annex's own etcd, for which --issue-certificates issues certificates too, such as annex-etcd-0.annex-etcd.annex-system.svc.")
	fs.StringVar(&o.ClusterDomain, "cluster-domain", o.ClusterDomain,
		"The DNS domain of the cluster. Issued certificates are for the names of Services with it and without it.")
}

func (o *CertificateOptions) validate() []error {
	if !o.Issue {
		if len(o.EtcdMembers) > 0 {
			return []error{errors.New("--etcd-members needs --issue-certificates: add it, or leave --etcd-members out")}
		}
		return nil
	}
	var errs []error
	if o.Validity <= 0 || o.Settling < 0 {
		errs = append(errs, fmt.Errorf("--certificate-validity is %s and --certificate-settling-time is %s: give times above zero", o.Validity, o.Settling))
	}
	if o.AuthorityValidity < validities*o.Validity {
		errs = append(errs, fmt.Errorf("--authority-validity is %s: it must be at least %d times --certificate-validity, which is %s", o.AuthorityValidity, validities, o.Validity))
	}
	if flaws := utilvalidation.IsDNS1123Subdomain(o.ClusterDomain); len(flaws) > 0 {
		errs = append(errs, fmt.Errorf("--cluster-domain is %q: write a domain such as %s", o.ClusterDomain, defaultClusterDomain))
	}
	// An old authority has to stay trusted until the last step of its replacement is over.
	if o.Validity/validities < 2*o.Settling {
		errs = append(errs, fmt.Errorf("--certificate-settling-time is %s: it must be at most a sixth of --certificate-validity, which is %s", o.Settling, o.Validity))
	}
	return errs
}

// Settings are those of the issuer.
func (o *CertificateOptions) Settings() certificates.Settings {
	return certificates.Settings{Validity: o.Validity, AuthorityValidity: o.AuthorityValidity, Settling: o.Settling}
}

// Authorities are whom the controller trusts and whom it tells the cluster to trust.
type Authorities struct {
	// Annex has signed the certificate of annex, Webhooks that of the controller's webhooks.
	Annex, Webhooks *cluster.Bundle

	files []dynamiccertificates.ControllerRunner
}

// authorities reads the files. They are not followed before Start.
func (o CompletedOptions) authorities(annex *rest.Config) (*Authorities, error) {
	if o.Certificates.Issue {
		bundle := cluster.NewBundle("ConfigMap " + o.Namespace + "/" + certificates.BundleConfigMap)
		return &Authorities{Annex: bundle, Webhooks: bundle}, nil
	}
	a := &Authorities{Annex: cluster.NewBundle("the kubeconfig of annex"), Webhooks: cluster.NewBundle(o.Webhook.CAFile)}
	if err := a.follow("webhooks", o.Webhook.CAFile, a.Webhooks); err != nil {
		return nil, fmt.Errorf("reading the authority of the webhook server: %w: correct --webhook-ca-file", err)
	}
	if o.AnnexCAFile != "" {
		a.Annex = cluster.NewBundle(o.AnnexCAFile)
		if err := a.follow("annex", o.AnnexCAFile, a.Annex); err != nil {
			return nil, fmt.Errorf("reading the authority of annex: %w: correct --annex-ca-file", err)
		}
		return a, nil
	}
	content, err := authorityOf(annex)
	if err != nil {
		return nil, fmt.Errorf("reading the authority of annex: %w: correct --annex-kubeconfig", err)
	}
	if len(content) == 0 {
		return nil, fmt.Errorf("the kubeconfig %s names no authority: name it by --annex-ca-file", o.AnnexKubeconfig)
	}
	return a, a.Annex.Set(content)
}

// authorityOf reads the authority that a configuration names, from its file too.
func authorityOf(config *rest.Config) ([]byte, error) {
	tls, err := config.TransportConfig()
	if err != nil {
		return nil, err
	}
	if _, err := transport.TLSConfigFor(tls); err != nil {
		return nil, err
	}
	return tls.TLS.CAData, nil
}

// follow gives a bundle the content of a file, now and whenever it changes.
func (a *Authorities) follow(purpose, file string, bundle *cluster.Bundle) error {
	content, err := dynamiccertificates.NewDynamicCAContentFromFile(purpose, file)
	if err != nil {
		return err
	}
	content.AddListener(enqueue(func() { _ = bundle.Set(content.CurrentCABundleContent()) })) // it was parsed before it is told
	a.files = append(a.files, content)
	return bundle.Set(content.CurrentCABundleContent())
}

// enqueue is a dynamiccertificates.Listener.
type enqueue func()

// Enqueue implements dynamiccertificates.Listener.
func (e enqueue) Enqueue() { e() }

// OnChange calls listener when any of the authorities changes. It must not block.
func (a *Authorities) OnChange(listener func()) {
	a.Annex.OnChange(listener)
	if a.Webhooks != a.Annex {
		a.Webhooks.OnChange(listener)
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every process follows.
func (a *Authorities) NeedLeaderElection() bool { return false }

// Start follows the files until ctx is done.
func (a *Authorities) Start(ctx context.Context) error {
	var wait sync.WaitGroup
	for _, file := range a.files {
		wait.Go(func() { file.Run(ctx, 1) })
	}
	wait.Wait()
	return nil
}
