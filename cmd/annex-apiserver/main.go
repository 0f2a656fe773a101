// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command annex-apiserver serves custom resources from an etcd of its own.
package main

import (
	"os"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/kubeannex/annex/cmd/annex-apiserver/app"
	"github.com/kubeannex/annex/pkg/command"
)

func main() {
	ctx := genericapiserver.SetupSignalContext()
	os.Exit(command.Execute(app.NewServerCommand(ctx), os.Stderr))
}
