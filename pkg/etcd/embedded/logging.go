// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

const (
	infoVerbosity  = 4
	debugVerbosity = 6

	// loggingFrames is the number of zap's own frames between a line of etcd's code and klog.
	loggingFrames = 3
)

// logCore writes etcd's log lines to klog: errors and warnings always, information from verbosity 4, debug
// lines from verbosity 6.
type logCore struct {
	logger klog.Logger
	fields []zapcore.Field
	// quiet, shared by all cores derived from one, lowers everything to information: while etcd is closed on
	// purpose it reports each of its closing listeners as an error.
	quiet *atomic.Bool
}

var _ zapcore.Core = &logCore{}

// Enabled implements zapcore.LevelEnabler.
func (c *logCore) Enabled(level zapcore.Level) bool {
	return c.logger.V(verbosity(level, c.quiet.Load())).Enabled()
}

// With implements zapcore.Core.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	derived := *c
	derived.fields = append(append([]zapcore.Field{}, c.fields...), fields...)
	return &derived
}

// Check implements zapcore.Core.
func (c *logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(entry.Level) || !c.logger.V(minVerbosity(entry.Message)).Enabled() {
		return checked
	}
	return checked.AddCore(entry, c)
}

// Write implements zapcore.Core.
func (c *logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	encoder := zapcore.NewMapObjectEncoder()
	var keysAndValues []any
	var cause error
	for _, field := range append(append([]zapcore.Field{}, c.fields...), fields...) {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			cause = err
			continue
		}
		field.AddTo(encoder)
		if value, ok := encoder.Fields[field.Key]; ok {
			keysAndValues = append(keysAndValues, field.Key, value)
		}
	}
	if entry.Level >= zapcore.ErrorLevel && !c.quiet.Load() {
		c.logger.Error(cause, entry.Message, keysAndValues...)
		return nil
	}
	if cause != nil {
		keysAndValues = append(keysAndValues, "err", cause.Error())
	}
	c.logger.V(verbosity(entry.Level, c.quiet.Load())).Info(entry.Message, keysAndValues...)
	return nil
}

// Sync implements zapcore.Core.
func (c *logCore) Sync() error { return nil }

func verbosity(level zapcore.Level, quiet bool) int {
	switch {
	case level < zapcore.InfoLevel:
		return debugVerbosity
	case level == zapcore.InfoLevel || quiet:
		return infoVerbosity
	default:
		return 0
	}
}

// minVerbosity lowers warnings about choices that this package makes on purpose: they would open every log
// and ask for nothing. If etcd words them differently one day, they are merely shown again.
func minVerbosity(message string) int {
	switch message {
	case "Running http and grpc server on single port. This is not recommended for production.",
		"simple token is not cryptographically signed":
		return infoVerbosity
	default:
		return 0
	}
}

// failure holds the first fatal condition that etcd reported through its logger.
type failure struct {
	once     sync.Once
	happened chan struct{}
	err      error
}

var _ zapcore.CheckWriteHook = &failure{}

func newFailure() *failure {
	return &failure{happened: make(chan struct{})}
}

// OnWrite implements zapcore.CheckWriteHook. Etcd ends the process through its logger (Fatal, Panic) where
// it cannot go on; here only the goroutine ends, and whoever waits for the failure is told. The server is not
// usable afterwards.
func (f *failure) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(entry.Message)
	for _, field := range fields {
		if cause, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			err = fmt.Errorf("%s: %w", entry.Message, cause)
		}
	}
	f.set(err)
	runtime.Goexit()
}

func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = err
		close(f.happened)
	})
}

// newZapLogger returns the logger to hand to etcd's code, and the switch that makes it quiet.
func newZapLogger(logger klog.Logger, fail *failure) (*zap.Logger, *atomic.Bool) {
	quiet := &atomic.Bool{}
	core := &logCore{logger: logger.WithName("etcd").WithCallDepth(loggingFrames), quiet: quiet}
	return zap.New(core, zap.WithFatalHook(fail), zap.WithPanicHook(fail)), quiet
}

// guard runs etcd code on a goroutine of its own and turns every way in which it can give up into an error: a
// fatal log line, on whichever goroutine, and a panic on its own goroutine. It returns when ctx ends even if
// the code does not.
func guard(ctx context.Context, fail *failure, run func() error) error {
	result := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				fail.set(fmt.Errorf("etcd code panicked: %v", r))
			}
		}()
		result <- run()
	}()
	select {
	case err := <-result:
		return err
	case <-fail.happened:
		return fail.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
