#!/usr/bin/env bash
# Writes docs/flags.md, docs/metrics.md and docs/kubectl-annex.md from the code. Counterpart: hack/verify-docs.sh.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

go run ./hack/docs --output=docs
