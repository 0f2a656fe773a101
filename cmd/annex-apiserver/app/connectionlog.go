// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

const (
	// connectionLogDepth is the number of gRPC's own frames between its caller and klog.
	connectionLogDepth = 4
	// connectionVerbosity shows gRPC's information, and all that is kept back.
	connectionVerbosity = 5
)

// connectionLog writes what gRPC says about connections to etcd to klog, as
// k8s.io/apiserver pkg/storage/etcd3/logger.go does, but keeps warnings back
// until show is called: a start that fails because of etcd says so in one line,
// and gRPC would repeat it at every attempt.
type connectionLog struct {
	shown atomic.Bool
}

var _ grpclog.LoggerV2 = &connectionLog{}

// routeConnectionLog makes gRPC use a new connectionLog. It must be called
// before any connection is made.
func routeConnectionLog() *connectionLog {
	log := &connectionLog{}
	grpclog.SetLoggerV2(log)
	return log
}

func (l *connectionLog) show() { l.shown.Store(true) }

func (l *connectionLog) info(message string) {
	if logger := klog.V(connectionVerbosity); logger.Enabled() {
		logger.InfoSDepth(connectionLogDepth+1, message)
	}
}

func (l *connectionLog) warning(message string) {
	if l.shown.Load() {
		klog.WarningDepth(connectionLogDepth+1, message)
		return
	}
	l.info(message)
}

// Info and the methods below implement grpclog.LoggerV2.
func (l *connectionLog) Info(args ...any)                 { l.info(fmt.Sprint(args...)) }
func (l *connectionLog) Infoln(args ...any)               { l.info(fmt.Sprintln(args...)) }
func (l *connectionLog) Infof(format string, args ...any) { l.info(fmt.Sprintf(format, args...)) }

// Warning implements grpclog.LoggerV2.
func (l *connectionLog) Warning(args ...any) { l.warning(fmt.Sprint(args...)) }

// Warningln implements grpclog.LoggerV2.
func (l *connectionLog) Warningln(args ...any) { l.warning(fmt.Sprintln(args...)) }

// Warningf implements grpclog.LoggerV2.
func (l *connectionLog) Warningf(format string, args ...any) { l.warning(fmt.Sprintf(format, args...)) }

// Error implements grpclog.LoggerV2.
func (l *connectionLog) Error(args ...any) { klog.ErrorDepth(connectionLogDepth, args...) }

// Errorln implements grpclog.LoggerV2.
func (l *connectionLog) Errorln(args ...any) {
	klog.ErrorDepth(connectionLogDepth, fmt.Sprintln(args...))
}

// Errorf implements grpclog.LoggerV2.
func (l *connectionLog) Errorf(format string, args ...any) {
	klog.ErrorDepth(connectionLogDepth, fmt.Sprintf(format, args...))
}

// Fatal implements grpclog.LoggerV2. gRPC ends the process after it.
func (l *connectionLog) Fatal(args ...any) { l.Error(args...) }

// Fatalln implements grpclog.LoggerV2.
func (l *connectionLog) Fatalln(args ...any) { l.Errorln(args...) }

// Fatalf implements grpclog.LoggerV2.
func (l *connectionLog) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

// V implements grpclog.LoggerV2.
func (l *connectionLog) V(level int) bool { return klog.V(klog.Level(level)).Enabled() }
