// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// processSpec says how to start a process in a root directory.
type processSpec struct {
	// root is the root directory of the process on this machine.
	root string
	// dir is the working directory inside root.
	dir         string
	command     []string
	environment []string
	user        user
	// logFile takes what the process prints.
	logFile string
}

// user is what a process may do.
type user struct {
	uid, gid uint32
	groups   []uint32
}

// process is one life of a container, or a command run inside of it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	// ending is true from the first request to end.
	ending atomic.Bool
}

// ending is how a process ended.
type ending struct {
	code   int32
	signal int32
}

func (e ending) reason() string {
	if e.code == 0 {
		return "Completed"
	}
	return "Error"
}

// startProcess starts a process that dies with this one. The thread that starts
// it must live as long, because Linux sends the death signal when it ends.
func startProcess(spec processSpec) (*process, error) {
	program, err := findProgram(spec.root, spec.command[0])
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(spec.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	if _, err := fmt.Fprintf(log, "+ %s\n", strings.Join(spec.command, " ")); err != nil {
		return nil, fmt.Errorf("writing a log: %w", err)
	}
	devNull, err := os.Open(os.DevNull)
	if err != nil {
		return nil, fmt.Errorf("opening the input of a process: %w", err)
	}
	defer devNull.Close() //nolint:errcheck // opened for reading
	cmd := &exec.Cmd{
		Path: program, Args: spec.command, Env: spec.environment, Dir: "/" + strings.TrimPrefix(spec.dir, "/"),
		Stdin: devNull, Stdout: log, Stderr: log,
		SysProcAttr: isolate(spec.root, spec.user),
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // end tells how it ended
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, explainStart(err, program)
	}
	return p, nil
}

func explainStart(err error, program string) error {
	if errors.Is(err, syscall.EPERM) {
		return fmt.Errorf("starting %s in a root directory of its own: %w: run the test as root, or allow user namespaces", program, err)
	}
	return fmt.Errorf("starting %s: %w", program, err)
}

// findProgram returns the path of a program inside a root directory.
func findProgram(root, name string) (string, error) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(searchPath) {
			candidates = append(candidates, dir+"/"+name)
		}
	}
	inside, err := os.OpenRoot(root)
	if err != nil {
		return "", fmt.Errorf("opening the root directory of a pod: %w", err)
	}
	defer inside.Close() //nolint:errcheck // opened for reading
	for _, candidate := range candidates {
		info, err := inside.Stat(strings.TrimPrefix(candidate, "/"))
		if err == nil && info.Mode().IsRegular() {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("the image has no program %s: it has those of Options.Programs and nothing else", name)
}

// id stands for the id of a container.
func (p *process) id() string { return "process://" + strconv.Itoa(p.cmd.Process.Pid) }

// terminate asks the process to end.
func (p *process) terminate() { p.signal(syscall.SIGTERM) }

func (p *process) kill() { p.signal(syscall.SIGKILL) }

func (p *process) signal(signal syscall.Signal) {
	if closed(p.done) {
		return
	}
	_ = p.cmd.Process.Signal(signal) // it may have ended just now
}

// end says how the process ended; done is closed.
func (p *process) end() ending {
	state := p.cmd.ProcessState
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return ending{code: 128 + int32(status.Signal()), signal: int32(status.Signal())}
	}
	return ending{code: int32(state.ExitCode())}
}
