// Copyright The Annex Authors.
// SPDX-License-Identifier: Apache-2.0

// Command annex-controller moves groups of custom resources into annex and back.
package main

import (
	"os"

	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"github.com/kubeannex/annex/cmd/annex-controller/app"
	"github.com/kubeannex/annex/pkg/command"
)

func main() {
	os.Exit(command.Execute(app.NewControllerCommand(signals.SetupSignalHandler()), os.Stderr))
}
