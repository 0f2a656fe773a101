#!/usr/bin/env bash
# Fails when a Go file does not begin with hack/boilerplate.go.txt; build constraints may come
# first, as code generators write them. Counterpart: hack/fix-boilerplate.sh.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

header=$(<hack/boilerplate.go.txt)
lines=$(wc -l <hack/boilerplate.go.txt)
status=0
while IFS= read -r file; do
  begin=$(awk -v lines="${lines}" '
    !started && (/^\/\/(go:build| \+build) / || /^$/) { next }
    { started = 1; print }
    ++printed == lines { exit }' "${file}")
  if [[ ${begin} != "${header}" ]]; then
    echo "${file}: licence header is missing, run hack/fix-boilerplate.sh" >&2
    status=1
  fi
done < <(files '*.go')
exit "${status}"
