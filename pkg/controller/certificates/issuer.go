// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	// AuthoritySecret holds the authority that signs. Nobody else reads it.
	AuthoritySecret = "annex-ca"
	// BundleConfigMap holds all authorities that are trusted, in ca.crt.
	BundleConfigMap = "annex-ca-bundle"
	// ServerSecret is the certificate of annex-apiserver.
	ServerSecret = "annex-apiserver-tls"
	// ControllerSecret is the certificate of the controller's webhooks.
	ControllerSecret = "annex-controller-tls"

	// confirmPause is when to ask again who is not ready for the next step of a rotation.
	confirmPause = 5 * time.Second
)

// Settings say for how long certificates are valid.
type Settings struct {
	// Validity is that of a certificate, AuthorityValidity that of an authority. Both are
	// renewed when a third is left.
	Validity, AuthorityValidity time.Duration
	// Settling is how long a step of a rotation lasts after everybody was seen to be
	// ready: pods get a changed Secret up to two minutes late.
	Settling time.Duration
}

// Issuer keeps the authority, its bundle and the certificates of annex and of its
// controller. Only the leader may run it.
type Issuer struct {
	Store

	Settings Settings
	// Leaves are the certificates.
	Leaves []Leaf
	// Publish writes the bundle into every caBundle.
	Publish func(ctx context.Context, bundle []byte) error
	// Told returns nil when every kube-apiserver knows the bundle.
	Told func(ctx context.Context, bundle []byte) error
	// Presented returns nil when every server presents a certificate that signer has signed.
	Presented func(ctx context.Context, bundle []byte, signer *x509.Certificate) error

	// told is why the rotation waits, as it was logged last.
	told string
}

// Sync makes everything what it has to be and goes on with a rotation. It returns
// when to look again. It may be broken off anywhere, by the end of the process too.
func (i *Issuer) Sync(ctx context.Context) (time.Time, error) {
	secret, s, err := i.load(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if secret, err = i.begin(ctx, secret, s); err != nil {
		return time.Time{}, err
	}
	bundle, err := s.bundle()
	if err != nil {
		return time.Time{}, err
	}
	if err := i.writeBundle(ctx, bundle); err != nil {
		return time.Time{}, err
	}
	renew, err := i.signLeaves(ctx, s, bundle)
	if err != nil {
		return time.Time{}, err
	}
	if err := i.Publish(ctx, bundle); err != nil {
		return time.Time{}, err
	}
	if s.step() != "" {
		return i.advance(ctx, secret, s, bundle)
	}
	i.expires(AuthoritySecret, s.current.cert)
	return earlier(renew, renewAt(s.current.cert)), nil
}

// load reads the state. What a lost or damaged Secret does not tell any more is
// read from the certificates that are in use.
func (i *Issuer) load(ctx context.Context) (*corev1.Secret, *state, error) {
	secret, err := i.secret(ctx, AuthoritySecret)
	if err != nil {
		return nil, nil, err
	}
	now := i.Clock.Now()
	s := parseState(secret, now)
	if s.current != nil || s.next != nil {
		return secret, s, nil
	}
	known, err := i.readBundle(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, leaf := range i.Leaves {
		stored, err := i.secret(ctx, leaf.Secret)
		if err != nil {
			return nil, nil, err
		}
		cert := certificateOf(stored)
		if cert == nil || now.After(cert.NotAfter) {
			continue
		}
		// Only who has signed something in use: a bundle is no reason to trust somebody.
		for _, candidate := range append(known, parseAuthorities(stored.Data[authorityKey])...) {
			if signedBy(cert, candidate) {
				s.retire(now, candidate)
			}
		}
	}
	return secret, s, nil
}

// begin makes the first authority, or the next one when it is time.
func (i *Issuer) begin(ctx context.Context, secret *corev1.Secret, s *state) (*corev1.Secret, error) {
	reason := i.reasonToRotate(s)
	if reason == "" {
		return secret, nil
	}
	made, err := newAuthority(AuthoritySecret, i.Clock.Now(), i.Settings.AuthorityValidity)
	if err != nil {
		return nil, err
	}
	if len(s.trusted()) == 0 {
		s.current = made // nobody is there who would have to be told first
	} else {
		s.next, s.since = made, time.Time{}
	}
	s.asked = false
	if secret, err = i.writeState(ctx, secret, s); err != nil {
		return nil, err
	}
	if s.next != nil {
		i.event(AuthoritySecret, corev1.EventTypeNormal, "RotationStarted", "Rotate", fmt.Sprintf("A next authority was made because %s, everybody is told of it before it signs", reason))
	} else {
		i.event(AuthoritySecret, corev1.EventTypeNormal, "AuthorityIssued", "Issue", "The authority of annex was made because "+reason)
	}
	return secret, nil
}

func (i *Issuer) reasonToRotate(s *state) string {
	switch {
	case s.next != nil:
		return ""
	case s.current == nil:
		return "there was none that can sign"
	case len(s.old) > 0:
		return "" // one rotation ends before the next begins
	case s.asked:
		return "the annotation " + RotateAnnotation + " asked for it"
	case !i.Clock.Now().Before(renewAt(s.current.cert)):
		return "the present one ends at " + s.current.cert.NotAfter.Format(time.RFC3339)
	default:
		return ""
	}
}

// writeState stores the state as an update of what was read: who wrote since decides.
func (i *Issuer) writeState(ctx context.Context, secret *corev1.Secret, s *state) (*corev1.Secret, error) {
	there := secret != nil
	if !there {
		secret = i.newSecret(AuthoritySecret, corev1.SecretTypeOpaque)
	}
	secret = secret.DeepCopy()
	if err := s.write(secret); err != nil {
		return nil, err
	}
	return i.writeSecret(ctx, secret, there)
}

// signLeaves makes every certificate good and returns when the first has to be renewed.
func (i *Issuer) signLeaves(ctx context.Context, s *state, bundle []byte) (time.Time, error) {
	var renew time.Time
	var errs []error
	how := signing{signer: s.signer(), accepted: s.signers(), bundle: bundle, validity: i.Settings.Validity}
	for index := range i.Leaves {
		cert, err := i.signLeaf(ctx, &i.Leaves[index], how)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if at := renewAt(cert); renew.IsZero() || at.Before(renew) {
			renew = at
		}
	}
	return renew, joined(errs)
}

// advance ends a step when everybody is ready and has been for the settling time.
func (i *Issuer) advance(ctx context.Context, secret *corev1.Secret, s *state, bundle []byte) (time.Time, error) {
	now, step := i.Clock.Now(), s.step()
	if waits := i.ready(ctx, s, bundle); waits != nil {
		i.waiting(ctx, step, waits)
		if s.since.IsZero() {
			return now.Add(confirmPause), nil
		}
		s.since = time.Time{}
		_, err := i.writeState(ctx, secret, s)
		return now.Add(confirmPause), err
	}
	i.waiting(ctx, step, nil)
	if s.since.IsZero() {
		s.since = now
		if _, err := i.writeState(ctx, secret, s); err != nil {
			return time.Time{}, err
		}
	}
	if end := s.since.Add(i.Settings.Settling); now.Before(end) {
		return earlier(end, now.Add(confirmPause)), nil
	}
	message := "The next authority signs now, the one before stays trusted until nobody presents what it signed"
	if step == stepAnnouncing {
		s.promote(now)
	} else {
		message = "Authorities that sign nothing any more are no longer trusted"
		s.old, s.since = nil, time.Time{}
	}
	if _, err := i.writeState(ctx, secret, s); err != nil {
		return time.Time{}, err
	}
	i.event(AuthoritySecret, corev1.EventTypeNormal, "Rotation"+step+"Ended", "Rotate", message)
	return now, nil
}

// ready returns who is not ready for the end of the step.
func (i *Issuer) ready(ctx context.Context, s *state, bundle []byte) error {
	if err := i.Told(ctx, bundle); err != nil {
		return err
	}
	if s.step() == stepAnnouncing {
		return nil
	}
	return i.Presented(ctx, bundle, s.current.cert)
}

// waiting tells once of each reason why a rotation does not go on.
func (i *Issuer) waiting(ctx context.Context, step string, reason error) {
	text := ""
	if reason != nil {
		text = reason.Error()
	}
	if text != "" && text != i.told {
		klog.FromContext(ctx).Info("The rotation of the authority waits", "step", step, "reason", text)
	}
	i.told = text
}

// writeBundle keeps the ConfigMap by which the authorities are known.
func (i *Issuer) writeBundle(ctx context.Context, bundle []byte) error {
	maps := i.Client.CoreV1().ConfigMaps(i.Namespace)
	stored, err := maps.Get(ctx, BundleConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		stored = &corev1.ConfigMap{ObjectMeta: i.meta(BundleConfigMap), Data: map[string]string{authorityKey: string(bundle)}}
		_, err = maps.Create(ctx, stored, metav1.CreateOptions{})
		return wrapWrite("ConfigMap", BundleConfigMap, err)
	}
	if err != nil {
		return fmt.Errorf("reading the ConfigMap %s: %w", BundleConfigMap, err)
	}
	if bytes.Equal([]byte(stored.Data[authorityKey]), bundle) {
		return nil
	}
	stored.Data = map[string]string{authorityKey: string(bundle)}
	_, err = maps.Update(ctx, stored, metav1.UpdateOptions{})
	return wrapWrite("ConfigMap", BundleConfigMap, err)
}

func (i *Issuer) readBundle(ctx context.Context) ([]*x509.Certificate, error) {
	stored, err := i.Client.CoreV1().ConfigMaps(i.Namespace).Get(ctx, BundleConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the ConfigMap %s: %w", BundleConfigMap, err)
	}
	return parseAuthorities([]byte(stored.Data[authorityKey])), nil
}
