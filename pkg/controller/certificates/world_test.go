// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	certutil "k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/kubeannex/annex/pkg/controller/cluster"
)

const (
	namespace = "annex-system"
	annexName = "annex.annex-system.svc"
	domain    = "cluster.example"

	settling = 5 * time.Minute
)

// world is a cluster in memory whose time does not pass by itself.
type world struct {
	*testing.T

	clock    *clocktesting.FakePassiveClock
	kube     *fake.Clientset
	services *aggregatorfake.Clientset
	events   *events.FakeRecorder
	metrics  *Metrics
	issuer   *Issuer

	// untold makes kube-apiservers not know what they were told.
	untold error
	// history is what was stored, and when.
	history []snapshot
}

// snapshot is what was stored at a time.
type snapshot struct {
	at     time.Time
	server *corev1.Secret
	bundle []byte
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)), events: events.NewFakeRecorder(1000)}
	w.kube = fake.NewClientset(append(objects, ourWebhooks("annex-definitions"), foreignWebhooks())...)
	w.services = aggregatorfake.NewClientset(ourService("v1alpha1.kubeannex.io"), ourService("v1.lab.annex.test"), localService(), foreignService())
	w.restart()
	return w
}

// live begins now instead, for connections that are real.
func (w *world) live() { w.clock.SetTime(time.Now()) }

// restart forgets what a process of the controller knows.
func (w *world) restart() {
	bundles := w.bundles()
	w.issuer = &Issuer{
		Store:    w.store(),
		Settings: Settings{Validity: 90 * 24 * time.Hour, AuthorityValidity: 365 * 24 * time.Hour, Settling: settling},
		Leaves:   []Leaf{ServerLeaf(domain, annexName), ControllerLeaf(domain, "annex-controller.annex-system.svc", "127.0.0.1")},
		Publish:  func(ctx context.Context, bundle []byte) error { return bundles.Apply(ctx, bundle, bundle) },
		Told: func(ctx context.Context, bundle []byte) error {
			if w.untold != nil {
				return w.untold
			}
			return bundles.Check(ctx, bundles.Host, bundle, bundle)
		},
		Presented: func(_ context.Context, _ []byte, signer *x509.Certificate) error {
			if cert := certificateOf(w.at(0).server); cert == nil || !signedBy(cert, signer) {
				return errors.New("annex-apiserver presents another one")
			}
			return nil
		},
	}
}

func (w *world) store() Store {
	return Store{Client: w.kube, Namespace: namespace, Recorder: w.events, Clock: w.clock, Metrics: w.metrics}
}

func (w *world) bundles() *CABundles {
	return &CABundles{
		Host:         &cluster.Server{Name: "the cluster", Kube: w.kube, APIServices: w.services},
		AnnexService: apiregistrationv1.ServiceReference{Namespace: namespace, Name: "annex"},
		Webhook:      admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "annex-controller"}},
	}
}

// sync runs until there is nothing to do before some time passes, and remembers
// what is stored then.
func (w *world) sync() time.Time {
	w.Helper()
	next, err := w.trySync()
	if err != nil {
		w.Fatal(err)
	}
	return next
}

func (w *world) trySync() (time.Time, error) {
	defer w.remember()
	for range 10 {
		next, err := w.issuer.Sync(w.Context())
		if err != nil || next.After(w.clock.Now()) {
			return next, err
		}
		w.remember()
	}
	return time.Time{}, errors.New("there is always something to do")
}

func (w *world) remember() {
	w.history = append(w.history, snapshot{at: w.clock.Now(), server: w.secret(ServerSecret), bundle: w.bundle()})
}

// at is what was stored some time ago, the first of all for longer ago.
func (w *world) at(ago time.Duration) snapshot {
	then := w.clock.Now().Add(-ago)
	for index := len(w.history) - 1; index > 0; index-- {
		if !w.history[index].at.After(then) {
			return w.history[index]
		}
	}
	return w.history[0]
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func (w *world) secret(name string) *corev1.Secret {
	w.Helper()
	store := w.store()
	secret, err := store.secret(w.Context(), name)
	if err != nil {
		w.Fatal(err)
	}
	return secret
}

// state is what is stored of the authority.
func (w *world) state() *state {
	w.Helper()
	return parseState(w.secret(AuthoritySecret), w.clock.Now())
}

func (w *world) bundle() []byte {
	w.Helper()
	certs, err := w.issuer.readBundle(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	bundle, err := certutil.EncodeCertificates(certs...)
	if err != nil {
		w.Fatal(err)
	}
	return bundle
}

// cert is the certificate of a Secret.
func (w *world) cert(secret string) *x509.Certificate {
	w.Helper()
	cert := certificateOf(w.secret(secret))
	if cert == nil {
		w.Fatalf("Secret %s has no certificate with its key", secret)
	}
	return cert
}

func (w *world) change(name string, change func(*corev1.Secret)) {
	w.Helper()
	secret := w.secret(name)
	change(secret)
	if _, err := w.kube.CoreV1().Secrets(namespace).Update(w.Context(), secret, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.Helper()
	if err := w.kube.CoreV1().Secrets(namespace).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// ask asks for a rotation.
func (w *world) ask() {
	w.Helper()
	w.change(AuthoritySecret, func(s *corev1.Secret) { s.Annotations = map[string]string{RotateAnnotation: "now"} })
}

// writes are the requests of both clients that change something.
func (w *world) writes() []string {
	var writes []string
	for _, action := range append(w.kube.Actions(), w.services.Actions()...) {
		switch action.GetVerb() {
		case "create", "update", "delete", "patch":
			writes = append(writes, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	return writes
}

// crash makes one write fail: before it is stored, or after, as when the process ends there.
type crash struct {
	mu     sync.Mutex
	after  int
	stored bool
	paused bool
	done   string
}

var errCrash = errors.New("the process ended")

// pause lets something write without counting it.
func (c *crash) pause(do func()) {
	c.set(true)
	defer c.set(false)
	do()
}

func (c *crash) set(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = paused
}

func (c *crash) react(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action.GetVerb() {
		case "create", "update":
		default:
			return false, nil, nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.paused {
			return false, nil, nil
		}
		if c.after--; c.after != 0 {
			return false, nil, nil
		}
		c.done = action.GetVerb() + " " + action.GetResource().Resource
		if c.stored {
			if _, _, err := clienttesting.ObjectReaction(tracker)(action); err != nil {
				return true, nil, err
			}
		}
		return true, nil, errCrash
	}
}

// handshake connects a client that trusts a bundle to a server that presents a Secret.
func (w *world) handshake(server *corev1.Secret, bundle []byte) error {
	pair, err := tls.X509KeyPair(server.Data[corev1.TLSCertKey], server.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return errors.New("the server has no certificate")
	}
	pool, err := certutil.NewPoolFromBytes(bundle)
	if err != nil {
		return err
	}
	near, far := net.Pipe()
	defer near.Close() //nolint:errcheck // nothing was sent
	defer far.Close()  //nolint:errcheck // nothing was sent
	served := make(chan error, 1)
	go func() {
		served <- tls.Server(far, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, Time: w.clock.Now, SessionTicketsDisabled: true}).HandshakeContext(w.Context())
	}()
	client := tls.Client(near, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: annexName, Time: w.clock.Now})
	if err := client.HandshakeContext(w.Context()); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	return <-served
}

func ourService(name string) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiregistrationv1.APIServiceSpec{
		Service: &apiregistrationv1.ServiceReference{Namespace: namespace, Name: "annex", Port: ptr.To[int32](443)},
	}}
}

func localService() *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v1.local.test"}}
}

func foreignService() *apiregistrationv1.APIService {
	service := ourService("v1beta1.metrics.test")
	service.Spec.Service.Namespace, service.Spec.CABundle = "kube-system", []byte("theirs")
	return service
}

func ourWebhooks(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	service := &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "annex-controller", Path: ptr.To("/definitions")}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
		{Name: "a.kubeannex.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: service}},
		{Name: "b.kubeannex.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: service}},
	}}
}

func foreignWebhooks() *admissionregistrationv1.ValidatingWebhookConfiguration {
	configuration := ourWebhooks("somebody")
	for index := range configuration.Webhooks {
		configuration.Webhooks[index].ClientConfig = admissionregistrationv1.WebhookClientConfig{
			Service: &admissionregistrationv1.ServiceReference{Namespace: "elsewhere", Name: "annex-controller"}, CABundle: []byte("theirs"),
		}
	}
	return configuration
}
