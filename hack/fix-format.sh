#!/usr/bin/env bash
# Brings all Go files into gofmt form and their imports into three groups.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

golangci_lint fmt
