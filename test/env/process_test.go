// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shell starts a shell script as a process that is ready once the script has
// made the file "ready" in the folder it gets as $1.
func shell(t *testing.T, e *Env, script string) *Process {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "ready")
	p, err := e.StartProcess(Command{
		Name: "shell", Path: "/bin/sh", Args: []string{"-c", script, "shell", dir},
		Ready: func(context.Context) error {
			_, err := os.Stat(file)
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func shortContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// waitUntil waits for a condition.
func waitUntil(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ctx := shortContext(t)
	for !condition() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited too long until %s", what)
		case <-time.After(pollInterval / 10):
		}
	}
}

func TestProcessLife(t *testing.T) {
	e := ForTest(t)
	p := shell(t, e, `echo life; : >"$1/ready"; while :; do sleep 1; done`)
	if err := p.WaitReady(shortContext(t)); err != nil {
		t.Fatal(err)
	}
	first := p.PID()
	if err := p.Start(); err == nil {
		t.Error("Start of a running process succeeds")
	}
	if err := p.Restart(shortContext(t)); err != nil {
		t.Fatal(err)
	}
	if p.PID() == first {
		t.Error("Restart kept the process")
	}
	waitUntil(t, "the log shows two lives", func() bool { return strings.Count(p.Log(), "\nlife\n") == 2 })
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("killing an ended process: %v", err)
	}
	if got := p.ExitCode(); got != -1 {
		t.Errorf("exit code %d after SIGKILL, want -1", got)
	}
}

func TestProcessThatEndsEarly(t *testing.T) {
	e := ForTest(t)
	p := shell(t, e, `echo the reason; exit 3`)
	err := p.WaitReady(shortContext(t))
	if err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("WaitReady: %v, want the end of the log", err)
	}
	if got := p.ExitCode(); got != 3 {
		t.Errorf("exit code %d, want 3", got)
	}
}

func TestStopKillsWhatIgnoresIt(t *testing.T) {
	e := ForTest(t)
	p := shell(t, e, `trap "" TERM; : >"$1/ready"; while :; do sleep 1; done`)
	if err := p.WaitReady(shortContext(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop: %v, want a deadline error", err)
	}
	select {
	case <-p.Exited():
	default:
		t.Error("the process still runs")
	}
}

func TestPauseAndContinue(t *testing.T) {
	e := ForTest(t)
	p := shell(t, e, `: >"$1/ready"; while :; do echo tick; sleep 0.05; done`)
	if err := p.WaitReady(shortContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	waitForState(t, p.PID(), "T")
	if err := p.Continue(); err != nil {
		t.Fatal(err)
	}
	waitForState(t, p.PID(), "S")
}

// waitForState waits until the kernel reports the given one-letter state.
func waitForState(t *testing.T, pid int, want string) {
	t.Helper()
	waitUntil(t, "the process is in state "+want, func() bool { return processState(pid) == want })
}

// processState returns the one-letter state of a process, nothing when there is none.
func processState(pid int) string {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return ""
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[0]
}

// TestChildDiesWithTestProcess runs this test binary again, lets it start a
// child and kills it.
func TestChildDiesWithTestProcess(t *testing.T) {
	const role = "ANNEX_ENV_TEST_PARENT"
	if dir := os.Getenv(role); dir != "" {
		e, err := New(dir)
		if err != nil {
			t.Fatal(err)
		}
		p, err := e.StartProcess(Command{Name: "child", Path: "/bin/sleep", Args: []string{"600"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tmp"), []byte(strconv.Itoa(p.PID())), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "pid")); err != nil {
			t.Fatal(err)
		}
		<-p.Exited()
		return
	}
	dir := t.TempDir()
	parent := exec.Command(os.Args[0], "-test.run=^TestChildDiesWithTestProcess$")
	parent.Env = append(os.Environ(), role+"="+dir)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	child := waitForPID(t, filepath.Join(dir, "pid"))
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Fatal("the killed test process succeeds")
	}
	waitUntil(t, "the child is dead", func() bool {
		state := processState(child)
		return state == "" || state == "Z"
	})
}

func waitForPID(t *testing.T, file string) (pid int) {
	t.Helper()
	waitUntil(t, "the test process has started a child", func() bool {
		data, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		if pid, err = strconv.Atoi(string(data)); err != nil {
			t.Fatal(err)
		}
		return true
	})
	return pid
}

func TestMissingProgramNamesTheTarget(t *testing.T) {
	e := &Env{root: t.TempDir()}
	for program, want := range map[string]string{
		programKubeAPIServer: `kube-apiserver is not built: run "make kubernetes" first`,
		programAnnex:         `annex-apiserver is not built: run "make build" first`,
		programController:    `annex-controller is not built: run "make build" first`,
		programPlugin:        `kubectl-annex is not built: run "make build" first`,
	} {
		if _, err := e.Program(program); err == nil || err.Error() != want {
			t.Errorf("Program(%q): %v, want %q", program, err, want)
		}
	}
}
