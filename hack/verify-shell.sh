#!/usr/bin/env bash
# Runs shellcheck over all shell scripts and fails for scripts that cannot be executed.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if ! command -v shellcheck >/dev/null; then
  echo "shellcheck is missing: apt-get install shellcheck" >&2
  exit 1
fi

scripts=()
status=0
while IFS= read -r file; do
  read -r first <"${file}" || true
  if [[ ${file} != *.sh && ${first} != '#!'*sh ]]; then
    continue
  fi
  scripts+=("${file}")
  if [[ ! -x ${file} ]]; then
    echo "${file}: not executable, run chmod +x ${file}" >&2
    status=1
  fi
done < <(files hack .ci test config artifacts)

shellcheck --external-sources --source-path=SCRIPTDIR "${scripts[@]}" || status=1
exit "${status}"
