// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quickstart does what the README tells a newcomer to do.
package quickstart

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubeannex/annex/test/env/ports"
)

// quickstartTimeout bounds building, starting, filling and asking the server.
const quickstartTimeout = 10 * time.Minute

// serving is the line that ends the demonstration.
const serving = "Serving https://127.0.0.1:"

// The sections of README and operations page whose commands are for the server of make run.
const (
	alone  = "Try it in two minutes"
	backup = "Backup"
)

func TestReadme(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	demonstration := startRun(t, root)

	t.Run("make run says where the kubectl is that it has built", func(t *testing.T) {
		if want := exportPath(root); !strings.Contains(demonstration.output, want) {
			t.Errorf("%q is not printed:\n%s", want, demonstration.output)
		}
	})
	t.Run("make run prints what the README shows", func(t *testing.T) {
		shown := transcripts(section(string(readme), alone))
		if len(shown) < 5 {
			t.Fatalf("the README shows %d commands with output, want at least 5", len(shown))
		}
		printed := transcripts("```console\n" + demonstration.output + "\n```\n")
		for _, want := range shown {
			index := slices.IndexFunc(printed, func(p transcript) bool { return p.command == want.command })
			if index < 0 {
				t.Errorf("make run does not print %q", want.command)
				continue
			}
			if diff := cmp.Diff(want.output, printed[index].output); diff != "" {
				t.Errorf("%q prints other than the README shows (-README +printed):\n%s", want.command, diff)
			}
		}
	})
	t.Run("the commands of the README work by hand", func(t *testing.T) {
		for _, shown := range transcripts(section(string(readme), alone)) {
			if strings.Contains(shown.command, "--watch") {
				continue // it does not end by itself; make run shows it with a change made meanwhile
			}
			output, err := demonstration.shell(t.Context(), shown.command)
			if err != nil {
				t.Errorf("%q: %v\n%s", shown.command, err, output)
			}
		}
	})
	t.Run("the backup of the operations page works", func(t *testing.T) {
		page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
		if err != nil {
			t.Fatal(err)
		}
		shown := transcripts(section(string(page), backup))
		if len(shown) == 0 {
			t.Fatalf("the section %q of the operations page shows no command", backup)
		}
		for _, shown := range shown {
			command := strings.NewReplacer("$PWD/_output/run/", demonstration.dir+"/", "_output/", demonstration.dir+"/").Replace(shown.command)
			output, err := demonstration.shell(t.Context(), command)
			if err != nil {
				t.Errorf("%q: %v\n%s", command, err, output)
			}
		}
	})
	t.Run("another make run leaves it alone", func(t *testing.T) {
		demonstration.refusesAnother(t, demonstration.port, "address already in use")
		demonstration.refusesAnother(t, ports.Free(t), "in use by another annex-apiserver")
	})
	t.Run("Ctrl-C ends it well", func(t *testing.T) { demonstration.interrupt(t) })
	t.Run("a second start reuses everything", func(t *testing.T) {
		again := startRunIn(t, root, demonstration.dir, "KUBECTL="+builtKubectl(root))
		again.interrupt(t)
		if strings.Contains(again.output, exportPath(root)) {
			t.Error("make run tells to use a kubectl of its own although it was given one")
		}
	})
}

func builtKubectl(root string) string { return filepath.Join(root, "_output", "kubernetes", "kubectl") }

// exportPath is the line that make run prints for those who have no kubectl.
func exportPath(root string) string {
	return "  export PATH=" + filepath.Dir(builtKubectl(root)) + ":$PATH\n"
}

// withoutKubectl is the PATH of a machine without kubectl: a folder that holds one is replaced by links to all else in it.
func withoutKubectl(t *testing.T) string {
	t.Helper()
	var folders []string
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(folder, "kubectl")); err != nil {
			folders = append(folders, folder)
			continue
		}
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		links := t.TempDir()
		for _, entry := range entries {
			if entry.Name() == "kubectl" {
				continue
			}
			if err := os.Symlink(filepath.Join(folder, entry.Name()), filepath.Join(links, entry.Name())); err != nil {
				t.Fatal(err)
			}
		}
		folders = append(folders, links)
	}
	return strings.Join(folders, string(filepath.ListSeparator))
}

// run is a running hack/run.sh.
type run struct {
	cmd    *exec.Cmd
	root   string
	dir    string
	port   int
	output string
	ended  chan error
}

func startRun(t *testing.T, root string) *run {
	t.Helper()
	dir, err := os.MkdirTemp("", "annex-run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return startRunIn(t, root, dir, "KUBECTL=", "PATH="+withoutKubectl(t))
}

// startRunIn starts the script in a process group of its own, as a terminal
// does, and returns when it serves.
func startRunIn(t *testing.T, root, dir string, environment ...string) *run {
	t.Helper()
	if _, err := os.Stat(builtKubectl(root)); err != nil {
		t.Fatalf("kubectl is not built (run make kubernetes): %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "_output", "bin", "annex-apiserver")); err != nil {
		t.Fatalf("annex-apiserver is not built (run make build): %v", err)
	}
	r := &run{root: root, dir: dir, port: ports.Free(t), ended: make(chan error, 1)}
	r.cmd = r.command(context.WithoutCancel(t.Context()), r.port, environment...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stdout, r.cmd.Stderr = writer, writer
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close() //nolint:errcheck // the script holds the other copy
	t.Cleanup(func() {
		syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // it may have ended
	})
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(reader)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	r.waitServing(t, lines)
	go func() {
		for range lines {
		}
		r.ended <- r.cmd.Wait()
	}()
	return r
}

// command is the script on the directory of the run.
func (r *run) command(ctx context.Context, port int, environment ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "hack/run.sh")
	cmd.Dir = r.root
	cmd.Env = append(append(os.Environ(), environment...), "ANNEX_RUN_DIR="+r.dir, fmt.Sprintf("ANNEX_RUN_PORT=%d", port))
	return cmd
}

// refusesAnother starts the script once more on the directory of a running
// server, and demands that it ends with the reason and touches nothing.
func (r *run) refusesAnother(t *testing.T, port int, reason string) {
	t.Helper()
	files := func() []string {
		entries, err := os.ReadDir(r.dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		return names
	}
	before, filesBefore := r.log(t), files()
	output, err := r.command(t.Context(), port, "KUBECTL="+builtKubectl(r.root)).CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 {
		t.Errorf("make run beside another ends with %v, want exit code 1", err)
	}
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "annex-apiserver: ") || !strings.Contains(last, reason) {
		t.Errorf("make run beside another does not end with %q:\n%s", reason, output)
	}
	if strings.Contains(string(output), "$ kubectl") {
		t.Errorf("the demonstration ran against the other server:\n%s", output)
	}
	if after := r.log(t); !strings.HasPrefix(after, before) || strings.Contains(after, reason) {
		t.Errorf("the log of the running server was\n%s\nand is now\n%s", before, after)
	}
	if diff := cmp.Diff(filesBefore, files()); diff != "" {
		t.Errorf("files in the directory (-before +after):\n%s", diff)
	}
}

func (r *run) log(t *testing.T) string {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(r.dir, "annex-apiserver.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

func (r *run) waitServing(t *testing.T, lines <-chan string) {
	t.Helper()
	var output strings.Builder
	timeout := time.After(quickstartTimeout)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				t.Fatalf("make run ended by itself:\n%s", output.String())
			}
			fmt.Fprintln(&output, line)
			if strings.HasPrefix(line, serving) {
				r.output = output.String()
				return
			}
		case <-timeout:
			t.Fatalf("make run does not serve:\n%s", output.String())
		}
	}
}

// shell runs a command line of the README as a newcomer would type it.
func (r *run) shell(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", command)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(),
		"PATH="+filepath.Join(r.root, "_output", "kubernetes")+":"+os.Getenv("PATH"),
		"KUBECONFIG="+filepath.Join(r.dir, "admin.kubeconfig"))
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// interrupt sends what a terminal sends on Ctrl-C: the signal goes to the whole group.
func (r *run) interrupt(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-r.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			t.Errorf("make run ends with code %d", exit.ExitCode())
		} else if err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("make run ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("make run does not end")
	}
	if log := r.log(t); !strings.Contains(log, "Stopping embedded etcd") {
		t.Errorf("the server did not stop in order; its log ends with\n%s", log[max(0, len(log)-1000):])
	}
}
