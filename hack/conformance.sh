#!/usr/bin/env bash
# Runs upstream's CustomResourceDefinition suite (k8s.io/apiextensions-apiserver, test/integration)
# against annex. docs/conformance.md says how it works and what is left out.
#
# ANNEX_FEATURE_GATES in the environment is for all servers, for example CompactCache=false.
#
# Usage: hack/conformance.sh [--race] [-run PATTERN] [-timeout DURATION]
# Without -run it fails when a test of the suite neither passed nor is in hack/conformance/excluded.txt.
# Without arguments it is like go test: what has passed with the same binaries is not run again. Remove
# _output/conformance/passed to run it nevertheless.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

build_flags=()
if [[ ${1:-} == --race ]]; then
  build_flags=(-race)
  shift
fi

module=k8s.io/apiextensions-apiserver
out=_output/conformance
copy="${out}/apiextensions-apiserver"
bin="${out}/bin"

# The module as published. Files of the module cache cannot be changed, nor replaced by -overlay.
published=$(go list -m -f '{{.Dir}}' "${module}")
if [[ -z ${published} ]]; then
  go mod download "${module}"
  published=$(go list -m -f '{{.Dir}}' "${module}")
fi

# One file is exchanged. It is of the same package and has the same exported functions.
rm -rf "${copy}" "${bin}"
mkdir -p "${bin}"
cp -R "${published}" "${copy}"
chmod -R u+w "${copy}"
cp test/conformance/fixtures/server.go "${copy}/test/integration/fixtures/server.go"

# A second go.mod that names the copy; ours stays as it is.
cp go.mod go.sum "${out}/"
go mod edit -replace="${module}=./${copy}" "${out}/go.mod"

suite=()
while IFS= read -r package; do
  suite+=("${package}")
done < <(go list -modfile="${out}/go.mod" -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "${module}/test/integration/...")
echo "building ${#suite[@]} packages of ${module} against annex"
go test -c "${build_flags[@]}" -modfile="${out}/go.mod" -o "${bin}/" "${suite[@]}"

go build -buildvcs=false -o "${out}/conformance" ./hack/conformance
run=("${out}/conformance"
  -suite="${published}/test/integration" -copy="${copy}/test/integration"
  -binaries="${bin}" -excluded=hack/conformance/excluded.txt)
if [[ $# -gt 0 ]]; then
  exec "${run[@]}" "$@"
fi

# Everything that decides the result: the programs, the list of exclusions, the suite's version with its data files.
inputs=$(cat "${bin}"/* "${out}/conformance" hack/conformance/excluded.txt <(echo "${published} ${ANNEX_FEATURE_GATES:-}") | sha256sum)
if [[ -f ${out}/passed && $(head -n 1 "${out}/passed") == "${inputs}" ]]; then
  echo "$(tail -n 1 "${out}/passed") (cached)"
  exit
fi
"${run[@]}" | tee "${out}/printed"
{ echo "${inputs}" && tail -n 1 "${out}/printed"; } >"${out}/passed"
