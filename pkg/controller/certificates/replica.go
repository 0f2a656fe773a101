// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubeannex/annex/pkg/controller/cluster"
)

var (
	_ manager.Runnable               = &Replica{}
	_ manager.LeaderElectionRunnable = &Replica{}
)

// Replica is what every process of the controller takes from the cluster, whether
// it leads or not: the certificate of its webhooks, and whom it trusts.
type Replica struct {
	// Client is of the host, Namespace that of the controller.
	Client    kubernetes.Interface
	Namespace string
	// Bundle is told of the authorities.
	Bundle *cluster.Bundle

	serving atomic.Pointer[tls.Certificate]
	// told is what was missing when it was logged last.
	told atomic.Pointer[string]
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (r *Replica) NeedLeaderElection() bool { return false }

// Start follows the Secret and the ConfigMap until ctx is done. What cannot be
// read, or is deleted, leaves in use what was there before.
func (r *Replica) Start(ctx context.Context) error {
	secrets := SecretInformer(r.Client, r.Namespace, ControllerSecret)
	maps := ConfigMapInformer(r.Client, r.Namespace, BundleConfigMap)
	for informer, learn := range map[cache.SharedIndexInformer]func(any) error{secrets: r.learnCertificate, maps: r.learnBundle} {
		tell := func(object any) {
			if err := learn(object); err != nil {
				klog.FromContext(ctx).Error(err, "A certificate that was changed is not used")
			}
		}
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, object any) { tell(object) }})
		if err != nil {
			return fmt.Errorf("watching certificates: %w", err)
		}
	}
	go secrets.RunWithContext(ctx)
	maps.RunWithContext(ctx)
	return nil
}

func (r *Replica) learnCertificate(object any) error {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return nil
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("the Secret %s has no certificate that can be read", secret.Name) // the cause could quote the key
	}
	r.serving.Store(&pair)
	return nil
}

func (r *Replica) learnBundle(object any) error {
	bundle, ok := object.(*corev1.ConfigMap)
	if !ok {
		return nil
	}
	return r.Bundle.Set([]byte(bundle.Data[authorityKey]))
}

// GetCertificate is for tls.Config.
func (r *Replica) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	pair := r.serving.Load()
	if pair == nil {
		return nil, r.missing("Secret", ControllerSecret)
	}
	return pair, nil
}

// Check says what is missing still, for readiness. It also logs each reason once: a
// probe of everything withholds it.
func (r *Replica) Check(*http.Request) error {
	err := r.check()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if last := r.told.Swap(&text); err != nil && (last == nil || *last != text) {
		klog.Background().Info("The webhooks cannot serve yet", "reason", text)
	}
	return err
}

func (r *Replica) check() error {
	if _, err := r.GetCertificate(nil); err != nil {
		return err
	}
	select {
	case <-r.Bundle.Known():
		return nil
	default:
		return r.missing("ConfigMap", BundleConfigMap)
	}
}

func (r *Replica) missing(kind, name string) error {
	return errors.New("the " + kind + " " + r.Namespace + "/" + name + " is not there or cannot be read yet: the annex-controller that leads makes it, look at its log")
}

// SecretInformer watches one Secret by name, which is all that the rights allow.
func SecretInformer(client kubernetes.Interface, namespace, name string) cache.SharedIndexInformer {
	return coreinformers.NewFilteredSecretInformer(client, namespace, 0, cache.Indexers{}, named(name))
}

// ConfigMapInformer watches one ConfigMap by name.
func ConfigMapInformer(client kubernetes.Interface, namespace, name string) cache.SharedIndexInformer {
	return coreinformers.NewFilteredConfigMapInformer(client, namespace, 0, cache.Indexers{}, named(name))
}

func named(name string) func(*metav1.ListOptions) {
	return func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
}
