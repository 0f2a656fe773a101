// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

const (
	memberName = "annex"
	// peerURL is what the member would be called by peers. There are none and nothing listens on it.
	peerURL = "unix://annex"

	// closeTimeout bounds Close. Etcd gives open requests and watches seven seconds to end.
	closeTimeout = 30 * time.Second
	// abandonTimeout bounds Close after etcd has failed: parts of it may then never answer.
	abandonTimeout = 5 * time.Second
)

// Server is a running etcd. All methods are safe for concurrent use.
type Server struct {
	options Options
	logger  klog.Logger
	lock    *RootLock // nil when it is the caller's
	sockets socketDir
	etcd    *embed.Etcd
	fail    *failure
	quiet   *atomic.Bool

	// closing is closed when Close is called.
	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
	// done is closed when etcd has ended; err is written before that and never after.
	done     chan struct{}
	doneOnce sync.Once
	err      error
}

// Start runs etcd and returns when it serves. A missing data directory is created first, see Seed; an existing one
// is read from end to end and refused, without a change to any of its files, when it is damaged. Errors are one
// line and say how to mend their cause. ctx bounds the start only: the server runs until Close, so that it can
// outlive the drain of the API server in front of it. The caller owns the server and must call Close.
func Start(ctx context.Context, options Options) (*Server, error) {
	if err := options.Validate(); err != nil {
		return nil, err
	}
	options, err := options.complete()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(options.RootDir, 0o700); err != nil {
		return nil, fmt.Errorf("creating root directory, choose another --root-dir or mend its permissions: %w", err)
	}
	var lock *RootLock
	if options.Lock == nil {
		if lock, err = LockRootDir(options.RootDir); err != nil {
			return nil, err
		}
	}
	s := &Server{
		options: options,
		logger:  klog.FromContext(ctx),
		lock:    lock,
		fail:    newFailure(),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.sockets.remove(), lock.Release())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context) error {
	if err := prepareDataDir(ctx, s.options); err != nil {
		return err
	}
	var err error
	if s.sockets, err = makeSocketDir(s.options.RootDir); err != nil {
		return err
	}
	var zapLogger *zap.Logger
	zapLogger, s.quiet = newZapLogger(s.logger, s.fail)
	if err := s.launch(ctx, zapLogger); err != nil {
		return fmt.Errorf("starting embedded etcd in %s: %w", s.options.dataDir(), err)
	}
	go s.watch()
	s.logger.Info("Embedded etcd is ready", "dataDir", s.options.dataDir(), "endpoint", s.Endpoints()[0], "revision", s.Revision())
	return nil
}

// prepareDataDir makes sure that etcd finds a sound data directory.
func prepareDataDir(ctx context.Context, options Options) error {
	dir := options.dataDir()
	if isMissingOrEmpty(dir) {
		return Seed(ctx, dir, options.RevisionFloor, Member{Name: memberName, PeerURLs: []string{peerURL}})
	}
	if err := os.RemoveAll(dir + seedingSuffix); err != nil {
		return fmt.Errorf("removing an unfinished data directory: %w", err)
	}
	if err := checkDataDir(ctx, dir); err != nil {
		return err
	}
	return makePrivateDir(dir)
}

// launch starts etcd and waits until it can answer. When it fails, etcd is closed as far as it still reacts.
func (s *Server) launch(ctx context.Context, lg *zap.Logger) error {
	// Not cut short by ctx: a start that nobody waits for would keep the data open.
	err := guard(context.WithoutCancel(ctx), s.fail, func() (err error) {
		s.etcd, err = embed.StartEtcd(s.config(lg))
		return err
	})
	if err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return errors.Join(err, s.stop(abandonTimeout))
	}
	if err := os.Chmod(s.sockets.socket(), 0o600); err != nil {
		return errors.Join(fmt.Errorf("narrowing the mode of the etcd socket: %w", err), s.stop(abandonTimeout))
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case err := <-s.etcd.Err():
		return fmt.Errorf("etcd stopped: %w", err)
	case <-s.etcd.Server.StopNotify():
		return errors.New("etcd stopped")
	case <-s.fail.happened:
		return s.fail.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for etcd: %w", context.Cause(ctx))
	}
}

// config returns etcd's configuration. Compaction is left to the API server, which keeps the revisions that its clients
// may still ask for. Writes are synced to disk before they are acknowledged (UnsafeNoFsync stays false).
func (s *Server) config(lg *zap.Logger) *embed.Config {
	client := url.URL{Scheme: "unix", Path: s.sockets.socket()}
	cfg := embed.NewConfig()
	cfg.Name = memberName
	cfg.Dir = s.options.dataDir()
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.ListenPeerUrls = nil
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Host: "annex"}}
	cfg.InitialCluster = memberName + "=" + peerURL
	cfg.QuotaBackendBytes = s.options.QuotaBackendBytes
	cfg.MaxRequestBytes = s.options.MaxRequestBytes
	cfg.SnapshotCount = s.options.SnapshotCount
	cfg.AutoCompactionRetention = "0"
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(lg)
	return cfg
}

// watch ends when etcd does, and then closes done.
func (s *Server) watch() {
	var err error
	select {
	case <-s.closing:
		return
	case <-s.fail.happened:
		err = s.fail.err
	case err = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
	}
	select {
	case <-s.closing:
		return
	default:
	}
	if err == nil {
		err = errors.New("no reason given")
	}
	s.finish(fmt.Errorf("embedded etcd in %s stopped by itself, mend the cause (a full disk, a failing one) and start again: %w",
		s.options.dataDir(), err))
}

func (s *Server) finish(err error) {
	s.doneOnce.Do(func() {
		s.err = err
		close(s.done)
	})
}

// Endpoints returns the addresses for storagebackend.TransportConfig.ServerList. No certificates are needed: the
// socket is open to the user of this process only.
func (s *Server) Endpoints() []string {
	return []string{"unix://" + s.sockets.socket()}
}

// Revision returns the current revision of the store.
func (s *Server) Revision() int64 {
	return s.etcd.Server.KV().Rev()
}

// Done is closed when etcd has ended, by Close or by itself.
func (s *Server) Done() <-chan struct{} {
	return s.done
}

// Err returns nil until Done is closed. Afterwards it returns why etcd stopped, or nil if that was Close.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close stops etcd, waits until it has written everything and ended, and frees the root directory. Call it after
// the API server has drained: requests and watches that are still open have seven seconds to end. It returns an
// error when etcd does not end within half a minute; the root directory then stays locked until the process exits.
// Further calls wait for the first and return its result.
func (s *Server) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

func (s *Server) close() error {
	timeout := closeTimeout
	select {
	case <-s.done:
		timeout = abandonTimeout
	default:
	}
	close(s.closing)
	if err := s.stop(timeout); err != nil {
		return err
	}
	s.finish(nil)
	return errors.Join(s.sockets.remove(), s.lock.Release())
}

// stop ends etcd and waits for it.
func (s *Server) stop(timeout time.Duration) error {
	s.quiet.Store(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// A server that never became ready must be stopped first: closing it would wait for its listeners,
		// and those for its readiness.
		select {
		case <-s.etcd.Server.ReadyNotify():
		default:
			s.etcd.Server.Stop()
		}
		s.etcd.Close()
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return fmt.Errorf("embedded etcd in %s did not stop within %s", s.options.dataDir(), timeout)
	}
}
