#!/usr/bin/env bash
# Writes docs/flags.md and docs/metrics.md from the code. Counterpart: hack/verify-docs.sh.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

go run ./hack/docs --output=docs
