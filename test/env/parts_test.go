// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kubeannex/annex/test/env/ports"
)

func TestCertificates(t *testing.T) {
	ca, err := NewCA("ca")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM())
	serving, err := ca.Serving("annex.annex-system.svc")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"annex.annex-system.svc", "localhost", "127.0.0.1"} {
		_, err := parse(t, serving).Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		if err != nil {
			t.Errorf("the serving certificate does not stand for %s: %v", name, err)
		}
	}
	client, err := ca.Client("ann", "readers", "writers")
	if err != nil {
		t.Fatal(err)
	}
	subject := parse(t, client).Subject
	if diff := cmp.Diff([]string{"ann", "readers", "writers"}, append([]string{subject.CommonName}, subject.Organization...)); diff != "" {
		t.Errorf("user and groups (-want +got):\n%s", diff)
	}
}

func parse(t *testing.T, pair KeyPair) *x509.Certificate {
	t.Helper()
	parsed, err := certutil.ParseCertsPEM(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	return parsed[0]
}

// TestBalancer sends connections to the backends in turn and to the one that is left.
func TestBalancer(t *testing.T) {
	e := ForTest(t)
	first, second := greeter(t, "first"), greeter(t, "second")
	port, err := e.startBalancer([]string{first.Addr().String(), second.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range 4 {
		if i == 2 {
			first.Close() //nolint:errcheck // the test wants it gone
		}
		got = append(got, greeting(t, port))
	}
	if diff := cmp.Diff([]string{"first", "second", "second", "second"}, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

// greeter listens and answers every connection with a text.
func greeter(t *testing.T, text string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() }) //nolint:errcheck // may be closed already
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, text) //nolint:errcheck // the reader notices
			conn.Close()               //nolint:errcheck // the reader notices
		}
	}()
	return listener
}

func greeting(t *testing.T, port int) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", ports.Address(port), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // read to the end
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestConversionWebhook converts both ways, stops the webhook and starts it again.
func TestConversionWebhook(t *testing.T) {
	webhook, err := ForTest(t).StartConversionWebhook()
	if err != nil {
		t.Fatal(err)
	}
	const v1 = `{"apiVersion":"lab.annex.test/v1","kind":"Morph","metadata":{"name":"one"},"spec":{"color":"red","size":9007199254740993}}`
	const v2 = `{"apiVersion":"lab.annex.test/v2","kind":"Morph","metadata":{"name":"one"},"spec":{"colour":"red","size":9007199254740993}}`
	for version, tc := range map[string]struct{ from, want string }{
		"v1": {from: v2, want: v1},
		"v2": {from: v1, want: v2},
	} {
		got, err := convert(t, webhook, version, tc.from)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("converted to %s (-want +got):\n%s", version, diff)
		}
	}
	if got := webhook.Requests(); got != 2 {
		t.Errorf("%d requests counted, want 2", got)
	}
	if err := webhook.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := convert(t, webhook, "v1", v2); err == nil {
		t.Error("the stopped webhook answers")
	}
	if err := webhook.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := convert(t, webhook, "v1", v2); err != nil {
		t.Errorf("the webhook does not come back: %v", err)
	}
}

// convert asks the webhook for one object in another version.
func convert(t *testing.T, webhook *ConversionWebhook, version, object string) (string, error) {
	t.Helper()
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: webhook.CA()}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	review := apiextensionsv1.ConversionReview{Request: &apiextensionsv1.ConversionRequest{
		UID:               "1",
		DesiredAPIVersion: FixtureGroup + "/" + version,
		Objects:           []runtime.RawExtension{{Raw: []byte(object)}},
	}}
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Post(webhook.URL(), "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&review); err != nil {
		t.Fatal(err)
	}
	if len(review.Response.ConvertedObjects) != 1 {
		t.Fatalf("response %+v, want one object", review.Response)
	}
	return strings.TrimSpace(string(review.Response.ConvertedObjects[0].Raw)), nil
}

// run is a Runner with a fixed exit code.
type run int

func (r run) Run() int { return int(r) }

func TestMainReturnsTheExitCode(t *testing.T) {
	for name, tc := range map[string]struct {
		setup error
		run   run
		want  int
	}{
		"tests pass":  {run: 0, want: 0},
		"tests fail":  {run: 1, want: 1},
		"setup fails": {setup: errors.New("no etcd"), run: 0, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var dir string
			var process *Process
			got := Main(tc.run, func(_ context.Context, e *Env) (err error) {
				dir = e.dir
				if process, err = e.StartProcess(Command{Name: "sleep", Path: "/bin/sleep", Args: []string{"600"}}); err != nil {
					return err
				}
				return tc.setup
			})
			if got != tc.want {
				t.Errorf("exit code %d, want %d", got, tc.want)
			}
			<-process.Exited()
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("%s is left behind", dir)
			}
		})
	}
}

func TestPrintLogs(t *testing.T) {
	e := ForTest(t)
	p := shell(t, e, `echo first; echo last; : >"$1/ready"; sleep 600`)
	if err := p.WaitReady(shortContext(t)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	e.PrintLogs(&out)
	if !strings.HasSuffix(out.String(), "first\nlast\n") {
		t.Errorf("printed %q, want the end of the log", out.String())
	}
}
