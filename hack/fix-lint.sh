#!/usr/bin/env bash
# Applies the automatic fixes of the linters; what remains is printed and needs a hand.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

golangci_lint run --fix ./...
