#!/usr/bin/env bash
# Fails when `go mod tidy` would change a module of the repository. Counterpart: hack/fix-modules.sh.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

status=0
while IFS= read -r dir; do
  # -diff prints the changes instead of making them.
  if ! go -C "${dir}" mod tidy -diff; then
    echo "${dir}/go.mod is not tidy, run hack/fix-modules.sh" >&2
    status=1
  fi
done < <(modules)
exit "${status}"
