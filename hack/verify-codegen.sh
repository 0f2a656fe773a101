#!/usr/bin/env bash
# Fails when generated code is stale: regenerates it in a temporary copy and
# compares. The work tree is never written to. Mend with hack/update-codegen.sh.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export TOOLS_BIN=${TOOLS_BIN:-${root}/_output/tools}

copy=$(mktemp -d)
trap 'rm -rf "${copy}"' EXIT
mkdir -p "${copy}/hack" "${copy}/pkg"
cp "${root}/go.mod" "${root}/go.sum" "${copy}/"
cp -R "${root}/hack/tools" "${root}/hack/models-schema" "${root}/hack/boilerplate.go.txt" "${root}/hack/update-codegen.sh" "${copy}/hack/"
cp -R "${root}/pkg/apis" "${copy}/pkg/"

"${copy}/hack/update-codegen.sh" >/dev/null

# list_generated prints the path of every generated file below a root, sorted.
list_generated() {
  (cd "$1" && find pkg/apis pkg/generated \( -path 'pkg/generated/*' -o -name 'zz_generated.*' \) -type f 2>/dev/null | LC_ALL=C sort)
}

stale=()
while IFS= read -r file; do
  if [[ ! -e ${copy}/${file} ]]; then
    stale+=("${file}: no generator writes this file, delete it")
  elif [[ ! -e ${root}/${file} ]]; then
    stale+=("${file}: missing")
  elif ! diff -u "${root}/${file}" "${copy}/${file}" >&2; then
    stale+=("${file}: differs")
  fi
done < <({ list_generated "${root}"; list_generated "${copy}"; } | LC_ALL=C sort -u)

# A generated file that was written but never added to git is missing for everybody else.
if git -C "${root}" rev-parse --verify --quiet HEAD >/dev/null 2>&1; then
  while IFS= read -r file; do
    stale+=("${file}: not in git, add it")
  done < <(git -C "${root}" ls-files --others --exclude-standard -- pkg/generated 'pkg/apis/**/zz_generated.*')
fi

if [[ ${#stale[@]} -ne 0 ]]; then
  echo "verify-codegen: generated code is stale, run hack/update-codegen.sh and commit the result:" >&2
  printf '  %s\n' "${stale[@]}" >&2
  exit 1
fi
