// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// ProfileKind is a profile that a Go server can make of a stretch of time.
type ProfileKind string

const (
	// ProfileCPU is where the server's threads were, a hundred times a second of CPU time.
	ProfileCPU ProfileKind = "profile"
	// ProfileAllocations is what the server has allocated, freed or not.
	ProfileAllocations ProfileKind = "allocs"
)

// ProfileKinds returns all kinds.
func ProfileKinds() []ProfileKind { return []ProfileKind{ProfileCPU, ProfileAllocations} }

// suffix is the end of a file's name.
func (k ProfileKind) suffix() string {
	if k == ProfileCPU {
		return ".pprof"
	}
	return "." + string(k) + ".pprof"
}

// WriteProfile profiles an API server from now on for the given time, in whole
// seconds, and writes what it answers to a file whose name begins with path. The
// server must be addressed directly and the client must be an administrator of it.
// A server can make one profile of a kind at a time.
func WriteProfile(ctx context.Context, config *rest.Config, kind ProfileKind, stretch time.Duration, path string) (err error) {
	client, address, err := pprofClient(config, string(kind), fmt.Sprintf("seconds=%d", int(stretch.Seconds())))
	if err != nil {
		return err
	}
	answer, err := getPprof(ctx, client, address)
	if err != nil {
		return fmt.Errorf("reading a profile from %s: %w", address, err)
	}
	defer answer.Body.Close()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // results are for everybody
		return fmt.Errorf("creating the folder of profiles: %w", err)
	}
	file, err := os.Create(path + kind.suffix())
	if err != nil {
		return fmt.Errorf("creating a profile: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := io.Copy(file, answer.Body); err != nil {
		return fmt.Errorf("reading a profile from %s: %w", address, err)
	}
	return nil
}

// pprofClient returns a client and the address of one page of /debug/pprof.
func pprofClient(config *rest.Config, page, query string) (*http.Client, string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, "", fmt.Errorf("creating a client: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, "", fmt.Errorf("reading the address of the server: %w", err)
	}
	address := base.JoinPath("debug", "pprof", page)
	address.RawQuery = query
	return client, address.String(), nil
}

// getPprof returns an answer that is no error. The caller closes its body.
func getPprof(ctx context.Context, client *http.Client, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, errors.Join(
			fmt.Errorf("the server answers %s; it needs --profiling and a client that may get it", answer.Status), answer.Body.Close())
	}
	return answer, nil
}
