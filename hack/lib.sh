#!/usr/bin/env bash
# What the verify and fix scripts share. Source it; it changes to the repository root.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "${root}"

# files prints each existing file that git tracks or would track and that matches one of the
# pathspecs; without arguments all of them.
files() {
  git ls-files --cached --others --exclude-standard --deduplicate -- "$@" |
    while IFS= read -r file; do
      if [[ -f ${file} ]]; then
        printf '%s\n' "${file}"
      fi
    done
}

# modules prints the folder of each Go module of the repository.
modules() {
  files ':(glob)**/go.mod' | while IFS= read -r file; do dirname "${file}"; done
}

# generated succeeds for a file that a program writes.
generated() {
  [[ $(basename "$1") == zz_generated.* || $1 == pkg/generated/* ]]
}

# golangci_lint runs the linter of hack/lint/go.mod, which carries the API conventions as a
# plugin. The first build takes some minutes; later calls find it up to date.
golangci_lint() {
  local binary="${root}/_output/lint/golangci-lint"
  if ! (cd hack/lint && go build -mod=readonly -o "${binary}" tool); then
    echo "building golangci-lint from hack/lint/go.mod failed" >&2
    return 1
  fi
  "${binary}" "$@"
}
