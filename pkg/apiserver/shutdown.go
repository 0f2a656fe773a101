// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubeannex/annex/pkg/drain"
)

// drainHookName is that of the hook that runs before the server stops to accept requests.
const drainHookName = "annex-drain-connections"

// letClientsLeave makes clients go to other replicas before the server stops, see the package drain. It
// must be called before the server runs. The delay of --shutdown-delay-duration comes first: as long as
// the Service still leads here, a client that leaves would come back.
func (s *Server) letClientsLeave(ctx context.Context) error {
	server := s.GenericAPIServer
	serving := server.SecureServingInfo
	trusted, err := rest.TLSConfigFor(server.LoopbackClientConfig)
	if err != nil {
		return fmt.Errorf("reading the certificate of the server's own client: %w", err)
	}
	connections := drain.New(serving.HTTP2MaxStreamsPerConnection, genericapiserver.LoopbackClientServerNameOverride)
	introduction := drain.Introduce(connections)
	serving.Listener = introduction.Listener(serving.Listener)
	server.Handler.FullHandlerChain = introduction.Handler(connections.Handler(server.Handler.FullHandlerChain))
	err = server.AddPreShutdownHook(drainHookName, func() error {
		<-time.After(server.ShutdownDelayDuration) // upstream waits for it at the same time
		connections.Drain()
		return nil
	})
	if err != nil {
		return fmt.Errorf("letting clients leave before a stop: %w", err)
	}
	go func() {
		if err := introduction.Run(ctx, trusted); err != nil {
			klog.FromContext(ctx).Error(err, "Requests may fail when this server stops; report this")
		}
	}()
	return nil
}
