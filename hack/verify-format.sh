#!/usr/bin/env bash
# Fails when a Go file is not in gofmt form or its imports are not in three groups:
# standard library, others, ours. Counterpart: hack/fix-format.sh.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if ! golangci_lint fmt --diff; then
  echo "run hack/fix-format.sh" >&2
  exit 1
fi
