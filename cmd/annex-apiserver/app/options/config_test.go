// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net"
	"testing"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// TestLoopbackTokenStaysInside asks what a conversion webhook is sent that a
// definition places behind the API of the cluster.
func TestLoopbackTokenStaysInside(t *testing.T) {
	options := NewOptions()
	options.Standalone.Enabled, options.Standalone.RootDir = true, t.TempDir()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
	options.SecureServing.Listener = listener
	completed, err := options.Complete()
	if err != nil {
		t.Fatal(err)
	}
	config, err := completed.Config()
	if err != nil {
		t.Fatal(err)
	}
	if config.GenericConfig.LoopbackClientConfig.BearerToken == "" {
		t.Fatal("the server has no token for itself")
	}
	none, err := webhook.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		t.Fatal(err)
	}
	resolver := config.ExtraConfig.AuthResolverWrapper(none)
	tests := map[string]func() (*rest.Config, error){
		"the cluster's Service": func() (*rest.Config, error) { return resolver.ClientConfigForService("kubernetes", "default", 443) },
		"its name":              func() (*rest.Config, error) { return resolver.ClientConfigFor("kubernetes.default.svc:443") },
		"another Service":       func() (*rest.Config, error) { return resolver.ClientConfigForService("converter", "default", 443) },
	}
	for name, clientConfig := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := clientConfig()
			if err != nil {
				t.Fatal(err)
			}
			if got.BearerToken+got.BearerTokenFile+got.Username+got.CertFile+string(got.CertData)+got.ServerName != "" {
				t.Errorf("it is not anonymous: %v", got)
			}
		})
	}
}
