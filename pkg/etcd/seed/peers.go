// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

const (
	// membersPath and clusterHeader are how an etcd tells its peers who is in the cluster
	// (go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp/peer.go).
	membersPath   = "/members"
	clusterHeader = "X-Etcd-Cluster-ID"
	// emptyHeader marks the answer of a member that is not an etcd yet, nameHeader tells such a member who asks.
	emptyHeader = "X-Annex-Etcd-Empty"
	nameHeader  = "X-Annex-Etcd-Member"

	// askTimeout bounds one question.
	askTimeout = 3 * time.Second
	// maxAnswer bounds one answer, in bytes.
	maxAnswer = 1 << 20
)

// asker asks other members on their peer addresses.
type asker struct {
	name      string
	transport *http.Transport
	client    *http.Client
}

func newAsker(name string, info transport.TLSInfo) (*asker, error) {
	trip, err := transport.NewTransport(info, askTimeout)
	if err != nil {
		return nil, fmt.Errorf("reading the peer certificate: %w: correct --peer-cert-file, --peer-key-file and --peer-trusted-ca-file", err)
	}
	// A new connection each time, so that the end of one process is not taken for that of the next at the same address.
	trip.DisableKeepAlives = true
	return &asker{name: name, transport: trip, client: &http.Client{
		Transport:     trip,
		Timeout:       askTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (a *asker) close() { a.transport.CloseIdleConnections() }

// askAll asks all members at once.
func (a *asker) askAll(ctx context.Context, others []*membership.Member) []view {
	views := make([]view, len(others))
	var group sync.WaitGroup
	for i, other := range others {
		group.Go(func() { views[i] = a.ask(ctx, other) })
	}
	group.Wait()
	return views
}

// ask tries the addresses of a member until one answers.
func (a *asker) ask(ctx context.Context, other *membership.Member) view {
	var errs []error
	for _, address := range other.PeerURLs {
		answer, err := a.get(ctx, address)
		if err == nil {
			answer.name = other.Name
			return answer
		}
		errs = append(errs, err)
	}
	return view{name: other.Name, err: errors.Join(errs...)}
}

func (a *asker) get(ctx context.Context, address string) (view, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+membersPath, nil)
	if err != nil {
		return view{}, err
	}
	request.Header.Set(nameHeader, a.name)
	response, err := a.client.Do(request)
	if err != nil {
		return view{}, errors.Unwrap(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return view{}, fmt.Errorf("answered %s", response.Status)
	}
	answer := view{empty: response.Header.Get(emptyHeader) != ""}
	if answer.cluster, err = types.IDFromString(response.Header.Get(clusterHeader)); err != nil {
		return view{}, fmt.Errorf("answered without a cluster id: %w", err)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer.members); err != nil {
		return view{}, fmt.Errorf("answered without a list of members: %w", err)
	}
	if len(answer.members) == 0 && !answer.empty {
		return view{}, errors.New("knows no members yet")
	}
	return answer, nil
}

// announcement tells other members that this one is empty.
type announcement struct {
	server *http.Server
	ended  sync.WaitGroup

	mu sync.Mutex
	// told are those who have asked, by name.
	told map[string]bool
}

func (a *announcement) tell(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.told[name] = true
}

// toldAll reports whether all of the names have asked.
func (a *announcement) toldAll(names []string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !slices.ContainsFunc(names, func(name string) bool { return !a.told[name] })
}

// announce listens like an etcd on its peer addresses, and answers all that is not a question for the
// members with 503, which an etcd takes for a peer that does not run.
func announce(ctx context.Context, listen []string, info transport.TLSInfo, cluster types.ID) (*announcement, error) {
	mux := http.NewServeMux()
	a := &announcement{server: &http.Server{Handler: mux, ReadHeaderTimeout: askTimeout}, told: map[string]bool{}}
	mux.HandleFunc("GET "+membersPath, func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set(clusterHeader, cluster.String())
		w.Header().Set(emptyHeader, "true")
		fmt.Fprintln(w, "[]")
		a.tell(request.Header.Get(nameHeader))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the data directory of this etcd member is not made yet", http.StatusServiceUnavailable)
	})
	for _, address := range listen {
		listener, err := listenPeer(ctx, address, info)
		if err != nil {
			a.close(ctx)
			return nil, fmt.Errorf("listening on %s: %w: correct --listen-peer-urls, or end what listens there", address, err)
		}
		a.ended.Go(func() { _ = a.server.Serve(listener) })
	}
	return a, nil
}

// listenPeer demands certificates of the peer authority from everybody.
func listenPeer(ctx context.Context, address string, info transport.TLSInfo) (net.Listener, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", parsed.Host)
	if err != nil || parsed.Scheme != "https" {
		return listener, err
	}
	info.ClientCertAuth = true
	// Etcd also compares the certificate's names with the address that a peer calls from, which takes the name service.
	secured, err := transport.NewTLSListener(listener, &info)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return secured, nil
}

// close lets those that ask right now have their answer, also when ctx is done.
func (a *announcement) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	if a.server.Shutdown(ctx) != nil {
		_ = a.server.Close()
	}
	a.ended.Wait()
}
