#!/usr/bin/env bash
# Lints the main module (.golangci.yaml) and the served API types (.golangci-api.yaml).
# Counterpart: hack/fix-lint.sh, for the findings that have an automatic fix.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

status=0
golangci_lint run ./... || status=1
golangci_lint run --config .golangci-api.yaml ./pkg/apis/... || status=1
exit "${status}"
