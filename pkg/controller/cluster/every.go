// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// questionTimeout bounds one question to one process.
const questionTimeout = 5 * time.Second

// OnEvery asks all servers at the same time, each for five seconds at most. The errors name the servers, in a stable order.
func OnEvery(ctx context.Context, servers []*Server, ask func(context.Context, *Server) error) error {
	ctx, cancel := context.WithTimeout(ctx, questionTimeout)
	defer cancel()
	errs := make([]error, len(servers))
	var wait sync.WaitGroup
	for i, server := range servers {
		wait.Go(func() {
			if err := ask(ctx, server); err != nil {
				errs[i] = fmt.Errorf("%s: %w", server.Name, err)
			}
		})
	}
	wait.Wait()
	return utilerrors.NewAggregate(errs)
}
