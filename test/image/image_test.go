// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image builds what the Dockerfile builds, without a container engine: the commands of its build stage run
// on a copy of the context, and the programs run in a root that holds nothing but what the image would.
package image

import (
	"context"
	"debug/elf"
	"fmt"
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

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeannex/annex/test/env"
	"github.com/kubeannex/annex/test/env/ports"
)

const (
	// stamped is the release that the image is built as.
	stamped = "v9.8.7-image-test"
	// buildTimeout bounds a build with an empty build cache.
	buildTimeout = 20 * time.Minute
	// startTimeout bounds the start of a server.
	startTimeout = 2 * time.Minute
)

// programs are what the image has to hold.
func programs() []string { return []string{"annex-apiserver", "annex-controller", "kubectl-annex"} }

// container is a root directory made of the final stage, and who runs in it.
type container struct {
	root string
	dir  string
	uid  int
	gid  int
}

func TestImage(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	c := build(ctx, t)
	c.mustRun(t)

	t.Run("the programs are static and there is nothing else", func(t *testing.T) {
		entries, err := os.ReadDir(c.path("/usr/local/bin"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
			assertStatic(t, c.path("/usr/local/bin/"+entry.Name()))
		}
		if !slices.Equal(names, programs()) {
			t.Errorf("/usr/local/bin holds %q, want %q", names, programs())
		}
	})
	t.Run("they show the version that was stamped, of an empty root", func(t *testing.T) {
		for _, program := range programs() {
			output, err := c.command(ctx, "/usr/local/bin/"+program, "--version").CombinedOutput()
			if err != nil || !strings.Contains(string(output), "+annex."+stamped) {
				t.Errorf("%s --version says %q (%v), want %s in it", program, output, err, stamped)
			}
		}
	})
	t.Run("annex-apiserver serves alone, of an empty root", func(t *testing.T) { c.serve(t) })
}

// build runs the build stage and lays the image out.
func build(ctx context.Context, t *testing.T) container {
	t.Helper()
	repository, err := env.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	buildStage, final, err := readStages(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	sent, src, out := t.TempDir(), t.TempDir(), t.TempDir()
	if err := copyContext(ctx, repository, sent); err != nil {
		t.Fatal(err)
	}
	variables := variables(buildStage, map[string]string{"VERSION": stamped})
	for _, i := range buildStage {
		switch i.name {
		case "COPY":
			if err := copyInto(sent, src, i.args); err != nil {
				t.Fatalf("COPY %s: %v", i.args, err)
			}
		case "RUN":
			// What the stage makes lies outside of its working directory.
			command := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(i.args, "/out/", out+"/"))
			command.Dir = src
			command.Env = append(os.Environ(), variables...)
			if output, err := command.CombinedOutput(); err != nil {
				t.Fatalf("RUN %s: %v\n%s", i.args, err, output)
			}
		}
	}
	return layOut(t, final, out)
}

// copyInto does a COPY from the context: the last word is the target.
func copyInto(from, to, args string) error {
	words := strings.Fields(args)
	sources, target := words[:len(words)-1], words[len(words)-1]
	for _, source := range sources {
		destination := filepath.Join(to, target)
		info, err := os.Stat(filepath.Join(from, source))
		if err != nil {
			return err
		}
		if info.IsDir() {
			if err := os.CopyFS(destination, os.DirFS(filepath.Join(from, source))); err != nil {
				return err
			}
			continue
		}
		if strings.HasSuffix(target, "/") {
			destination = filepath.Join(destination, filepath.Base(source))
		}
		if err := copyFile(filepath.Join(from, source), destination); err != nil {
			return err
		}
	}
	return nil
}

// layOut makes the root of the image. Nothing in it can be written to but what the Dockerfile gives its user.
func layOut(t *testing.T, final []instruction, out string) container {
	t.Helper()
	c := container{root: t.TempDir(), dir: "/", uid: -1}
	var owned []string
	for _, i := range final {
		switch i.name {
		case "COPY":
			words := strings.Fields(i.args)
			source, target := strings.TrimPrefix(words[0], "/out/"), words[1]
			if err := os.MkdirAll(c.path(filepath.Dir(target)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(c.path(target), os.DirFS(filepath.Join(out, source))); err != nil {
				t.Fatalf("COPY %s: %v", i.args, err)
			}
			if i.flag("chown") != "" {
				owned = append(owned, target)
			}
		case "WORKDIR":
			c.dir = i.args
		case "USER":
			uid, gid, _ := strings.Cut(i.args, ":")
			c.uid, c.gid = number(t, uid), number(t, gid)
		case "FROM", "LABEL":
		default:
			t.Errorf("the final stage has %s %s, which this test does not know", i.name, i.args)
		}
	}
	if c.uid <= 0 || c.gid <= 0 {
		t.Fatalf("the image runs as %d:%d, want a user by number that is not root", c.uid, c.gid)
	}
	c.protect(t, owned)
	return c
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("USER: %v", err)
	}
	return n
}

// protect makes the root read-only but for what its user owns.
func (c container) protect(t *testing.T, owned []string) {
	t.Helper()
	for _, target := range owned {
		if err := os.Chmod(c.path(target), 0o700); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 {
			if err := os.Chown(c.path(target), c.uid, c.gid); err != nil {
				t.Fatal(err)
			}
		}
	}
	// A root that belongs to whoever runs the test must not be writable for him either.
	for _, dir := range []string{"/usr/local/bin", "/usr/local", "/usr", "/var/lib", "/var", "/"} {
		if err := os.Chmod(c.path(dir), 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Chmod(c.path(dir), 0o755) }) //nolint:errcheck // it is removed
	}
}

func (c container) path(inside string) string { return filepath.Join(c.root, inside) }

// command runs a program of the image as its user, with no environment.
func (c container) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = c.dir, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(c.uid), Gid: uint32(c.gid)}
		return cmd
	}
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
	cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: c.uid, HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: c.gid, HostID: os.Getgid(), Size: 1}}
	return cmd
}

// mustRun fails early, with a way out, where nothing can be run in another root.
func (c container) mustRun(t *testing.T) {
	t.Helper()
	output, err := c.command(t.Context(), "/usr/local/bin/annex-apiserver", "--version").CombinedOutput()
	if err == nil {
		return
	}
	if os.IsPermission(err) {
		t.Fatalf("this machine does not allow a change of root: %v: run the test as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces)", err)
	}
	t.Fatalf("annex-apiserver --version: %v\n%s", err, output)
}

// assertStatic fails for a program that needs a loader or a library.
func assertStatic(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer file.Close() //nolint:errcheck // it was read
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("%s names a loader", filepath.Base(path))
	}
	if libraries, err := file.ImportedLibraries(); len(libraries) > 0 {
		t.Errorf("%s needs the libraries %q (%v)", filepath.Base(path), libraries, err)
	}
}

// serve starts a server of its own in the image, and stops it.
func (c container) serve(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	cmd := c.command(context.WithoutCancel(ctx), "/usr/local/bin/annex-apiserver", "--standalone", "--root-dir="+c.dir,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports.Free(t)))
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // it was written
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() }) //nolint:errcheck // it may have ended

	if err := c.awaitReady(ctx, ended); err != nil {
		written, _ := os.ReadFile(log.Name())
		t.Fatalf("%v\n%s", err, written)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server ends with %v", err)
		}
	case <-ctx.Done():
		t.Error("the server does not end")
	}
}

// awaitReady asks for /readyz with the credentials that the server makes.
func (c container) awaitReady(ctx context.Context, ended <-chan error) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	last := error(nil)
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("the server ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready: %w", last)
		case <-ticker.C:
		}
		if last = c.readyz(ctx); last == nil {
			return nil
		}
	}
}

func (c container) readyz(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", c.path(c.dir+"/admin.kubeconfig"))
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", answer.Status)
	}
	return nil
}
