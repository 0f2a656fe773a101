// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeannex/annex/test/env/ports"
)

// readyTimeout bounds a start, and stopTimeout a stop, of a process with the race detector on a busy machine.
const (
	readyTimeout = time.Minute
	stopTimeout  = time.Minute
)

// startServer starts a standalone server on root and waits until it is ready.
func startServer(t *testing.T, root string, args ...string) *exec.Cmd {
	t.Helper()
	args = append([]string{"--standalone", "--root-dir=" + root, "--secure-port=" + strconv.Itoa(ports.Free(t))}, args...)
	cmd, output := serverCommand(context.WithoutCancel(t.Context()), args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill() //nolint:errcheck // it may have ended
			cmd.Wait()         //nolint:errcheck // it was killed
		}
		if t.Failed() {
			t.Logf("output of the server:\n%s", output)
		}
	})
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := get(ctx, root, "/readyz")
		return err == nil, nil
	})
	if err != nil {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		t.Fatalf("server is not ready: %v", err)
	}
	return cmd
}

// stopServer ends a server as an operator does and expects it to end well.
func stopServer(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("server ended with %v", err)
		}
	case <-time.After(stopTimeout):
		t.Fatal("server does not end")
	}
}

func serveOnce(t *testing.T, root string) {
	t.Helper()
	stopServer(t, startServer(t, root))
}

// get asks the server on root as administrator.
func get(ctx context.Context, root, path string) (string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(root, "admin.kubeconfig"))
	if err != nil {
		return "", err
	}
	return getWith(ctx, config, path)
}

func getWith(ctx context.Context, config *rest.Config, path string) (string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%d: %s", response.StatusCode, body.String())
	}
	return body.String(), nil
}

// tree returns the files below root with their content, but for locks and sockets.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(path, "lock") {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestSecondStartReusesRootDirectory(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	credentials := func() map[string]string {
		kept := map[string]string{}
		for name, content := range tree(t, root) {
			if strings.HasPrefix(name, "certificates/") || name == "tokens.csv" {
				kept[name] = content
			}
		}
		return kept
	}
	serveOnce(t, root)
	before := credentials()
	if len(before) < 7 {
		t.Fatalf("got %d credential files, want a certificate and a key for authority, server and administrator, and the tokens", len(before))
	}
	server := startServer(t, root)
	if diff := cmp.Diff(before, credentials()); diff != "" {
		t.Errorf("credentials changed (-before +after):\n%s", diff)
	}
	stopServer(t, server)
}

func TestStandaloneAuthentication(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	server := startServer(t, root)
	defer stopServer(t, server)
	admin, err := clientcmd.BuildConfigFromFlags("", filepath.Join(root, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	anonymous := rest.AnonymousClientConfig(admin)
	tokens, err := os.ReadFile(filepath.Join(root, "tokens.csv"))
	if err != nil {
		t.Fatal(err)
	}
	token, _, _ := strings.Cut(string(tokens), ",")
	withToken := rest.CopyConfig(anonymous)
	withToken.BearerToken = token
	wrongToken := rest.CopyConfig(anonymous)
	wrongToken.BearerToken = "wrong"

	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	tests := map[string]struct {
		config *rest.Config
		path   string
		want   string // the beginning of the error, empty for success
	}{
		"the administrator's certificate":   {config: admin, path: definitions},
		"the administrator's token":         {config: withToken, path: definitions},
		"a wrong token":                     {config: wrongToken, path: definitions, want: "401"},
		"nobody in particular":              {config: anonymous, path: definitions, want: "403"},
		"nobody in particular asks /readyz": {config: anonymous, path: "/readyz"},
		"nobody in particular asks metrics": {config: anonymous, path: "/metrics", want: "403"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := getWith(t.Context(), tc.config, tc.path)
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tc.want)):
				t.Errorf("got %v, want status %s", err, tc.want)
			}
		})
	}
}

func TestReadyReportsRevisionFloor(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "root")
	server := startServer(t, root)
	defer stopServer(t, server)
	body, err := get(t.Context(), root, "/readyz?verbose")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(body, "[+]etcd-revision-floor ok") {
		t.Errorf("readiness does not report the revision floor:\n%s", body)
	}
}

// TestFullOverride demands what docs/operations.md says: its floor is logged and so is its state, and all other
// resources are served.
func TestFullOverride(t *testing.T) {
	t.Parallel()
	override := fullEtcd(t)
	server := startServer(t, filepath.Join(t.TempDir(), "root"), "--etcd-servers-overrides=demo.kubeannex.io/podendpoints#"+override)
	defer stopServer(t, server)
	log := server.Stdout.(*output).String()
	for _, want := range [][]string{
		{"Etcd revision floor is met", override},
		{"Etcd is full: the server starts all the same", override, "alarm disarm"},
	} {
		found := slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool {
			return !slices.ContainsFunc(want, func(part string) bool { return !strings.Contains(line, part) })
		})
		if !found {
			t.Errorf("no line of the log holds all of %q", want)
		}
	}
}

func TestStopDuringStart(t *testing.T) {
	for _, marker := range []string{"Embedded etcd is ready", "Serving securely", "Starting DiscoveryController"} {
		t.Run(marker, func(t *testing.T) {
			t.Parallel()
			root := filepath.Join(t.TempDir(), "root")
			cmd, output := serverCommand(context.WithoutCancel(t.Context()), "--standalone", "--root-dir="+root, "--secure-port="+strconv.Itoa(ports.Free(t)))
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if cmd.ProcessState == nil {
					cmd.Process.Kill() //nolint:errcheck // it may have ended
				}
			})
			err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, readyTimeout, true, func(context.Context) (bool, error) {
				return strings.Contains(output.String(), marker), nil
			})
			if err != nil {
				t.Fatalf("%q is not logged: %v\n%s", marker, err, output)
			}
			stopServer(t, cmd)
			if !strings.Contains(output.String(), "Stopping embedded etcd") || strings.Contains(output.String(), "goroutine ") {
				t.Errorf("server did not stop in order:\n%s", output)
			}
		})
	}
}

func TestOwnServingCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	certFile, keyFile := certificate(t, dir, "own", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	// startServer asks with the administrator's kubeconfig, which does not know the authority of this certificate.
	server := startServer(t, root, "--tls-cert-file="+certFile, "--tls-private-key-file="+keyFile)
	defer stopServer(t, server)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(root, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	client := rest.AnonymousClientConfig(config)
	client.TLSClientConfig = rest.TLSClientConfig{CAFile: certFile, ServerName: "localhost"}
	if _, err := getWith(t.Context(), client, "/readyz"); err != nil {
		t.Errorf("the given certificate is not shown: %v", err)
	}
}
