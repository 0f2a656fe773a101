// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
)

const (
	// RotateAnnotation on the Secret of the authority asks for a new one. It is taken
	// off when the rotation begins.
	RotateAnnotation = "kubeannex.io/rotate"

	// stepAnnotation tells people how far a rotation is. The step follows from what
	// the Secret holds.
	stepAnnotation = "kubeannex.io/rotation-step"
	// sinceAnnotation is from when on the settling time of the step counts.
	sinceAnnotation = "kubeannex.io/rotation-settling-since"

	nextCertKey = "next.crt"
	nextKeyKey  = "next.key"
	oldCertKey  = "old.crt"

	stepAnnouncing = "Announcing"
	stepRetiring   = "Retiring"
)

// state is what the Secret of the authority holds.
type state struct {
	// current signs. It is nil when the Secret was lost or damaged.
	current *authority
	// next is going to. It is nil outside of the step Announcing.
	next *authority
	// old do not sign any more and are trusted still.
	old []*x509.Certificate
	// since is when everybody was first seen to be ready for the next step. Zero means not yet.
	since time.Time
	// asked says that somebody wants a new authority.
	asked bool
}

// parseState reads a Secret. What cannot be read is left out, and a damaged pair
// leaves its certificate trusted.
func parseState(secret *corev1.Secret, now time.Time) *state {
	s := &state{}
	if secret == nil {
		return s
	}
	var err error
	if s.current, err = parseAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], now); err != nil {
		s.retire(now, parseAuthorities(secret.Data[corev1.TLSCertKey])...)
	}
	if s.next, err = parseAuthority(secret.Data[nextCertKey], secret.Data[nextKeyKey], now); err != nil {
		s.retire(now, parseAuthorities(secret.Data[nextCertKey])...)
	}
	s.retire(now, parseAuthorities(secret.Data[oldCertKey])...)
	if since, err := time.Parse(time.RFC3339Nano, secret.Annotations[sinceAnnotation]); err == nil && secret.Annotations[stepAnnotation] == s.step() {
		s.since = since
	}
	_, s.asked = secret.Annotations[RotateAnnotation]
	return s
}

// step is how far a rotation is, empty when there is none.
func (s *state) step() string {
	switch {
	case s.next != nil:
		return stepAnnouncing
	case len(s.old) > 0:
		return stepRetiring
	default:
		return ""
	}
}

// retire trusts authorities on, those left out that have expired or are known.
func (s *state) retire(now time.Time, certs ...*x509.Certificate) {
	for _, cert := range certs {
		if cert.IsCA && now.Before(cert.NotAfter) && !slices.ContainsFunc(s.trusted(), cert.Equal) {
			s.old = append(s.old, cert)
		}
	}
}

// trusted are all authorities, in the order current, next, old.
func (s *state) trusted() []*x509.Certificate {
	var trusted []*x509.Certificate
	for _, a := range []*authority{s.current, s.next} {
		if a != nil {
			trusted = append(trusted, a.cert)
		}
	}
	return append(trusted, s.old...)
}

// bundle is trusted as PEM.
func (s *state) bundle() ([]byte, error) {
	bundle, err := certutil.EncodeCertificates(s.trusted()...)
	if err != nil {
		return nil, fmt.Errorf("encoding the authorities: %w", err)
	}
	return bundle, nil
}

// signer is who signs now: before the first announcement of a lost authority's
// successor is over, the successor has to.
func (s *state) signer() *authority {
	if s.current != nil {
		return s.current
	}
	return s.next
}

// signers are the authorities by which a certificate may be signed to stay as it
// is. It need not be the one that signs as long as nobody was told of that one.
func (s *state) signers() []*x509.Certificate {
	if s.current != nil {
		return []*x509.Certificate{s.current.cert}
	}
	return s.trusted()
}

// promote ends the step Announcing.
func (s *state) promote(now time.Time) {
	before := s.current
	s.current, s.next, s.since = s.next, nil, time.Time{}
	if before != nil {
		s.retire(now, before.cert)
	}
}

// write puts the state into a Secret.
func (s *state) write(secret *corev1.Secret) error {
	data := map[string][]byte{}
	for _, pair := range []struct {
		authority *authority
		cert, key string
	}{{s.current, corev1.TLSCertKey, corev1.TLSPrivateKeyKey}, {s.next, nextCertKey, nextKeyKey}} {
		if pair.authority == nil {
			continue
		}
		var err error
		if data[pair.cert], data[pair.key], err = pair.authority.encode(); err != nil {
			return err
		}
	}
	if len(s.old) > 0 {
		old, err := certutil.EncodeCertificates(s.old...)
		if err != nil {
			return fmt.Errorf("encoding old authorities: %w", err)
		}
		data[oldCertKey] = old
	}
	secret.Data = data
	s.annotate(secret)
	return nil
}

func (s *state) annotate(secret *corev1.Secret) {
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	values := map[string]string{stepAnnotation: s.step()}
	if !s.since.IsZero() {
		values[sinceAnnotation] = s.since.UTC().Format(time.RFC3339Nano)
	}
	for _, key := range []string{stepAnnotation, sinceAnnotation} {
		if values[key] == "" {
			delete(secret.Annotations, key)
		} else {
			secret.Annotations[key] = values[key]
		}
	}
	if !s.asked {
		delete(secret.Annotations, RotateAnnotation)
	}
}

// parseAuthorities reads as many certificates as there are.
func parseAuthorities(content []byte) []*x509.Certificate {
	certs, _ := certutil.ParseCertsPEM(content) // the good ones before a bad one are returned
	return certs
}
