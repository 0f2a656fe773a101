#!/usr/bin/env bash
# Puts hack/boilerplate.go.txt at the top of hand-written Go files that have no licence line.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

while IFS= read -r file; do
  if generated "${file}" || grep --quiet 'SPDX-License-Identifier' "${file}"; then
    continue
  fi
  temp=$(mktemp)
  { cat hack/boilerplate.go.txt; echo; cat "${file}"; } >"${temp}"
  cat "${temp}" >"${file}"
  rm "${temp}"
done < <(files '*.go')
