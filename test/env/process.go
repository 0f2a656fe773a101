// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// pollInterval is the pause between two readiness probes.
	pollInterval = 100 * time.Millisecond
	// probeTimeout bounds one readiness probe.
	probeTimeout = 5 * time.Second
	// killTimeout bounds the wait for the end of a killed process.
	killTimeout = 20 * time.Second
)

// Command says how to start a program.
type Command struct {
	// Name tells processes of one environment apart and names the log file.
	Name string
	// Path is the program.
	Path string
	Args []string
	// Env is added to PATH and HOME, the only variables that are passed on.
	Env []string
	// Ready returns nil once the program serves. Nil means: ready when started.
	Ready func(context.Context) error
}

// Process is one program on loopback. It survives its own end: Start runs it
// again with the same arguments, its log goes on in the same file. All methods
// may be called from any goroutine.
type Process struct {
	command Command
	home    string
	logFile string

	mu  sync.Mutex
	run *processRun
}

// processRun is one life of a Process. Fields besides process are valid after done.
type processRun struct {
	process *os.Process
	done    chan struct{}
	state   *os.ProcessState
}

// StartProcess starts a program and returns at once; use WaitReady next. The
// process ends with the environment at the latest, and with the test process
// when that one dies (Linux).
func (e *Env) StartProcess(command Command) (*Process, error) {
	command.Name = e.uniqueName(command.Name)
	p := &Process{
		command: command,
		home:    e.dir,
		logFile: filepath.Join(e.dir, command.Name+".log"),
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.processes = append(e.processes, p)
	return p, nil
}

// Name returns the name of the process in its environment.
func (p *Process) Name() string { return p.command.Name }

// LogFile returns the path of the file with everything the program printed.
func (p *Process) LogFile() string { return p.logFile }

// Start runs the program again after its end.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && !p.run.ended() {
		return fmt.Errorf("starting %s: it is running already", p.Name())
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.Name(), err)
	}
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	if _, err := fmt.Fprintf(log, "+ %s %s\n", p.command.Path, strings.Join(p.command.Args, " ")); err != nil {
		return fmt.Errorf("writing the log of %s: %w", p.Name(), err)
	}
	cmd := exec.Command(p.command.Path, p.command.Args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home}, p.command.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	run, err := launch(cmd)
	if err != nil {
		return fmt.Errorf("starting %s: %w", p.Name(), err)
	}
	p.run = run
	return nil
}

// launch starts cmd on a thread of its own: Linux sends the death signal when
// the thread that forked ends, so that thread must live as long as the child.
func launch(cmd *exec.Cmd) (*processRun, error) {
	run := &processRun{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			run.process = cmd.Process
		}
		started <- err
		if err != nil {
			return
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); err == nil || errors.As(err, &exit) {
			run.state = cmd.ProcessState
		}
		close(run.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return run, nil
}

func (r *processRun) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (p *Process) current() *processRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// WaitReady waits until the program serves. It fails at once, with the end of
// the log, when the program exits, and when ctx is done.
func (p *Process) WaitReady(ctx context.Context) error {
	if p.command.Ready == nil {
		return nil
	}
	run := p.current()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := p.probe(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-run.done:
			return fmt.Errorf("%s ended before it was ready (%s), last lines:\n%s", p.Name(), run.state, p.Tail(tailLines))
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w, last answer: %w", p.Name(), context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func (p *Process) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return p.command.Ready(ctx)
}

// Kill ends the process with SIGKILL and waits for its end. Killing a process
// that has ended is no error.
func (p *Process) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	return p.end(ctx, syscall.SIGKILL)
}

// Stop asks the process to end with SIGTERM and waits for that until ctx is
// done; then it kills the process and returns an error.
func (p *Process) Stop(ctx context.Context) error {
	err := p.end(ctx, syscall.SIGTERM)
	if err != nil {
		return errors.Join(err, p.Kill())
	}
	return nil
}

func (p *Process) end(ctx context.Context, signal syscall.Signal) error {
	run := p.current()
	if run.ended() {
		return nil
	}
	if err := run.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("sending %s to %s: %w", signal, p.Name(), err)
	}
	select {
	case <-run.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to end after %s: %w", p.Name(), signal, context.Cause(ctx))
	}
}

// Pause stops the process without its knowledge (SIGSTOP): connections stay
// open and nothing answers. Continue undoes it.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Continue lets a paused process run again.
func (p *Process) Continue() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(signal syscall.Signal) error {
	if err := p.current().process.Signal(signal); err != nil {
		return fmt.Errorf("sending %s to %s: %w", signal, p.Name(), err)
	}
	return nil
}

// Restart stops the process if it runs, starts it again and waits until it serves.
func (p *Process) Restart(ctx context.Context) error {
	if err := p.Stop(ctx); err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	return p.WaitReady(ctx)
}

// Exited is closed at the end of the current life of the process.
func (p *Process) Exited() <-chan struct{} { return p.current().done }

// ExitCode returns the exit code of the last life: -1 while the process runs
// and when a signal ended it.
func (p *Process) ExitCode() int {
	run := p.current()
	if !run.ended() || run.state == nil {
		return -1
	}
	return run.state.ExitCode()
}

// PID returns the process id of the current or last life.
func (p *Process) PID() int { return p.current().process.Pid }

// Log returns everything that the program has printed in all its lives.
func (p *Process) Log() string {
	data, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// Tail returns the last n lines of the log.
func (p *Process) Tail(n int) string {
	lines := bytes.Split(bytes.TrimRight([]byte(p.Log()), "\n"), []byte("\n"))
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return string(bytes.Join(lines, []byte("\n")))
}
