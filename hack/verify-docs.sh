#!/usr/bin/env bash
# Fails when a page of docs that follows from the code does not. Counterpart: hack/update-docs.sh.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

fresh=$(mktemp -d)
trap 'rm -rf "${fresh}"' EXIT
go run ./hack/docs --output="${fresh}"
for page in flags.md metrics.md kubectl-annex.md; do
  if ! diff --unified "docs/${page}" "${fresh}/${page}"; then
    echo "docs/${page} is stale: run hack/update-docs.sh" >&2
    exit 1
  fi
done
