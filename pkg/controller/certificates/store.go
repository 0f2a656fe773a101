// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// managedByLabel tells who made a Secret, for people.
const managedByLabel = "app.kubernetes.io/managed-by"

// Store is where certificates are kept. It reads past caches: what is decided by
// has to be what is stored.
type Store struct {
	// Client is of the host.
	Client kubernetes.Interface
	// Namespace holds everything.
	Namespace string
	// Recorder tells what happened, for users.
	Recorder events.EventRecorder
	// Clock is the real one outside tests.
	Clock clock.PassiveClock
	// Metrics may be nil.
	Metrics *Metrics
}

// signing is how certificates are signed at present.
type signing struct {
	signer *authority
	// accepted are the authorities whose certificates need not be replaced.
	accepted []*x509.Certificate
	// bundle is what is to be trusted, PEM.
	bundle   []byte
	validity time.Duration
}

// secret returns a Secret, nil when there is none.
func (s *Store) secret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret, err := s.Client.CoreV1().Secrets(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s: %w", name, err)
	}
	return secret, nil
}

// writeSecret creates a Secret, or updates one that was there when it was read.
func (s *Store) writeSecret(ctx context.Context, secret *corev1.Secret, there bool) (*corev1.Secret, error) {
	secrets := s.Client.CoreV1().Secrets(s.Namespace)
	if !there {
		created, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
		return created, wrapWrite("Secret", secret.Name, err)
	}
	updated, err := secrets.Update(ctx, secret, metav1.UpdateOptions{})
	return updated, wrapWrite("Secret", secret.Name, err)
}

// signLeaf makes the certificate of a Secret good, and what is to be trusted beside
// it, and returns it.
func (s *Store) signLeaf(ctx context.Context, leaf *Leaf, how signing) (*x509.Certificate, error) {
	stored, err := s.secret(ctx, leaf.Secret)
	if err != nil {
		return nil, err
	}
	flaw := leaf.flaw(stored, how.accepted, s.Clock.Now())
	if flaw == "" && bytes.Equal(stored.Data[authorityKey], how.bundle) {
		cert := certificateOf(stored)
		s.expires(leaf.Secret, cert)
		return cert, nil
	}
	secret := s.newSecret(leaf.Secret, corev1.SecretTypeTLS)
	if stored != nil {
		secret = stored.DeepCopy()
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[authorityKey] = how.bundle
	if flaw != "" {
		certPEM, keyPEM, err := how.signer.sign(leaf, s.Clock.Now(), how.validity)
		if err != nil {
			return nil, err
		}
		secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey] = certPEM, keyPEM
	}
	if secret, err = s.writeSecret(ctx, secret, stored != nil); err != nil {
		return nil, err
	}
	cert := certificateOf(secret)
	if flaw != "" {
		s.Metrics.issued(leaf.Secret)
		klog.FromContext(ctx).Info("Issued a certificate", "secret", leaf.Secret, "because the one before", flaw, "expires", cert.NotAfter)
	}
	s.expires(leaf.Secret, cert)
	return cert, nil
}

func (s *Store) newSecret(name string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: s.meta(name), Type: kind}
}

func (s *Store) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: name, Labels: map[string]string{managedByLabel: "annex-controller"}}
}

func (s *Store) expires(secret string, cert *x509.Certificate) {
	s.Metrics.expires(secret, cert.NotAfter)
}

// event tells something about a Secret.
func (s *Store) event(secret, kind, reason, action, message string) {
	regarding := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: secret}}
	s.Recorder.Eventf(regarding, nil, kind, reason, action, "%s", message)
}

func wrapWrite(kind, name string, err error) error {
	if err != nil {
		return fmt.Errorf("writing the %s %s: %w", kind, name, err)
	}
	return nil
}

// joined is one error for several, on one line. A single one stays what it is.
func joined(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return utilerrors.NewAggregate(errs)
}
