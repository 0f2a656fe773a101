// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// maxAnswer bounds how much of a failed readiness answer an error repeats.
const maxAnswer = 2048

// ready returns a probe that is content when GET of path at the server of
// config answers 200.
func ready(config *rest.Config, path string) (func(context.Context) error, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", config.Host, err)
	}
	return func(ctx context.Context) error {
		return get(ctx, client, config.Host+path)
	}, nil
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", url, err)
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", url, answer.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
