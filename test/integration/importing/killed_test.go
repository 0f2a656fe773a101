// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package importing

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app"
	"github.com/kubeannex/annex/cmd/annex-apiserver/app/testserver"
	"github.com/kubeannex/annex/pkg/command"
	"github.com/kubeannex/annex/pkg/etcd/embedded"
	"github.com/kubeannex/annex/test/env/ports"
	"github.com/kubeannex/annex/test/integration/importing/adopted"
)

// runAsServer makes the test binary behave as annex-apiserver, so that it can be killed.
const runAsServer = "ANNEX_TEST_RUN_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(runAsServer) != "" {
		os.Exit(command.Execute(app.NewServerCommand(genericapiserver.SetupSignalContext()), os.Stderr))
	}
	os.Exit(m.Run())
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("waiting for %s: %v", what, err)
	}
}

// process is a server that can be killed.
type process struct {
	command *exec.Cmd
	output  bytes.Buffer
}

func startProcess(t *testing.T, flags []string) *process {
	t.Helper()
	p := &process{command: exec.CommandContext(t.Context(), os.Args[0], flags...)}
	p.command.Env = append(os.Environ(), runAsServer+"=1", "KUBERNETES_SERVICE_HOST=", "KUBERNETES_SERVICE_PORT=")
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill(t) })
	return p
}

// kill ends the process without giving it a chance to clean up.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if p.command.ProcessState != nil {
		return
	}
	if err := p.command.Process.Kill(); err != nil {
		t.Error(err)
	}
	p.command.Wait() //nolint:errcheck // it was killed
	if t.Failed() {
		t.Logf("output of the server:\n%s", p.output.String())
	}
}

func awaitReady(t *testing.T, world http.Client, url string) {
	t.Helper()
	await(t, "the server", func() bool {
		answer, err := adopted.Do(t.Context(), &world, http.MethodGet, url+"/readyz?exclude=informer-sync", nil)
		return err == nil && answer.Code == http.StatusOK
	})
}

// TestKilledInTheMiddle kills the server while it imports, starts it again, and
// does the import once more: the digest is that of an import that was never disturbed.
func TestKilledInTheMiddle(t *testing.T) {
	etcd, err := embedded.Start(t.Context(), embedded.Options{RootDir: testserver.ShortTempDir(t), RevisionFloor: embedded.DefaultRevisionFloor})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := etcd.Close(); err != nil {
			t.Error(err)
		}
	})
	ca, flags, err := adopted.Flags(t)
	if err != nil {
		t.Fatal(err)
	}
	port := ports.Free(t)
	flags = append(flags, "--etcd-servers="+strings.Join(etcd.Endpoints(), ","), fmt.Sprintf("--secure-port=%d", port))
	root := strings.TrimPrefix(flags[0], "--root-dir=")
	host := fmt.Sprintf("https://127.0.0.1:%d", port)
	tls := rest.TLSClientConfig{CAFile: filepath.Join(root, "certificates", "apiserver.crt")}

	server := startProcess(t, flags)
	await(t, "the certificate", func() bool { _, err := os.Stat(tls.CAFile); return err == nil })
	insecure, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	awaitReady(t, *insecure, host)
	world := adopted.At(t, ca, host, tls)
	objects := gadgets(2000)
	killWhileImporting(t, world, server, objects)

	startProcess(t, flags)
	awaitReady(t, *insecure, host)
	if got := world.Digest(t, "gadgets").Objects; got == 0 || got >= 2000 {
		t.Fatalf("the killed server has stored %d objects, want some and not all", got)
	}
	await(t, "the gate", func() bool { return world.Replica(t).Serving != "" })
	result := world.Import(t, "gadgets", objects...)
	got := world.Digest(t, "gadgets")
	if got.Objects != 2000 || got.Digest != result.Digest || result.Unchanged == 0 {
		t.Errorf("after the second try: got %+v and %+v", got, result)
	}
}

// killWhileImporting sends half of the objects, waits until some are stored and kills the server.
func killWhileImporting(t *testing.T, world *adopted.World, server *process, objects []*unstructured.Unstructured) {
	t.Helper()
	body, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close() //nolint:errcheck // the other end is gone
	done := make(chan error, 1)
	go func() {
		_, err := adopted.Do(t.Context(), world.HTTP(t, adopted.Controller), http.MethodPost,
			world.URL("/apis/kubeannex.io/v1alpha1/annexedgroups/lab.annex.test/import?resource=gadgets"), body)
		done <- err
	}()
	if _, err := adopted.Stream(t, watch.Added, objects[:len(objects)/2]...).WriteTo(writer); err != nil {
		t.Fatal(err)
	}
	await(t, "some objects", func() bool { return world.Digest(t, "gadgets").Objects > 100 })
	server.kill(t)
	if err := <-done; err == nil {
		t.Error("an import succeeded whose server was killed")
	}
}
