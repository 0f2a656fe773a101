#!/usr/bin/env bash
# Regenerates everything that is generated from pkg/apis: zz_generated.* beside the
# types, and clientset, listers, informers, apply configurations and OpenAPI
# definitions in pkg/generated. Works offline once the modules are in the Go cache
# and writes only below this repository.
#
# Environment: TOOLS_BIN  folder for the built generators (default _output/tools)
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=${TOOLS_BIN:-${root}/_output/tools}
module=github.com/kubeannex/annex
internal=${module}/pkg/apis/kubeannex
served=${internal}/v1alpha1
generated=${module}/pkg/generated
header=${root}/hack/boilerplate.go.txt
out=${root}/pkg/generated

scratch=$(mktemp -d)
trap 'rm -rf "${scratch}"' EXIT

generators=(deepcopy-gen defaulter-gen conversion-gen applyconfiguration-gen client-gen lister-gen informer-gen)
mkdir -p "${bin}"
(
  cd "${root}/hack/tools"
  go build -o "${bin}/" "${generators[@]/#/k8s.io/code-generator/cmd/}" k8s.io/kube-openapi/cmd/openapi-gen
)

cd "${root}"
find pkg/apis -name 'zz_generated.*' -delete
rm -rf "${out}"

echo "generating deepcopy, defaults and conversions"
"${bin}/deepcopy-gen" --go-header-file "${header}" --output-file zz_generated.deepcopy.go "${internal}" "${served}"
"${bin}/defaulter-gen" --go-header-file "${header}" --output-file zz_generated.defaults.go "${served}"
"${bin}/conversion-gen" --go-header-file "${header}" --output-file zz_generated.conversion.go "${served}"

echo "generating OpenAPI definitions"
# Upstream's types are inputs, because ours refer to them, but their packages are
# read only: no model-name file may be written into the module cache.
upstream=(
  k8s.io/apimachinery/pkg/api/resource
  k8s.io/apimachinery/pkg/apis/meta/v1
  k8s.io/apimachinery/pkg/runtime
  k8s.io/apimachinery/pkg/version
)
read_only=()
for package in "${upstream[@]}" k8s.io/apimachinery/pkg/types k8s.io/apimachinery/pkg/util/intstr time; do
  read_only+=(--readonly-pkg "${package}")
done
# The API rules that the types break go to a report that is compared here: it must be empty.
"${bin}/openapi-gen" --go-header-file "${header}" \
  --output-dir "${out}/openapi" --output-pkg "${generated}/openapi" \
  --output-file zz_generated.openapi.go --output-model-name-file zz_generated.model_name.go \
  --report-filename "${scratch}/violations" "${read_only[@]}" "${upstream[@]}" "${served}"
if violations=$(grep "${module}" "${scratch}/violations"); then
  echo "update-codegen: the API types break upstream's API rules, mend the types:" >&2
  echo "${violations}" >&2
  exit 1
fi

echo "generating apply configurations, clientset, listers and informers"
go run ./hack/models-schema >"${scratch}/schema.json"
"${bin}/applyconfiguration-gen" --go-header-file "${header}" \
  --output-dir "${out}/applyconfiguration" --output-pkg "${generated}/applyconfiguration" \
  --openapi-schema "${scratch}/schema.json" "${served}"
"${bin}/client-gen" --go-header-file "${header}" \
  --output-dir "${out}/clientset" --output-pkg "${generated}/clientset" --clientset-name versioned \
  --apply-configuration-package "${generated}/applyconfiguration" \
  --input-base "${module}/pkg/apis" --input kubeannex/v1alpha1
"${bin}/lister-gen" --go-header-file "${header}" \
  --output-dir "${out}/listers" --output-pkg "${generated}/listers" "${served}"
"${bin}/informer-gen" --go-header-file "${header}" \
  --output-dir "${out}/informers" --output-pkg "${generated}/informers" \
  --versioned-clientset-package "${generated}/clientset/versioned" \
  --listers-package "${generated}/listers" "${served}"
