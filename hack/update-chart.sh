#!/usr/bin/env bash
# Writes what follows from the chart: its README.md, from the comments of values.yaml, and config/rbac, the rights that
# tests run with and that the runbook applies, from its templates. Counterpart: hack/verify-chart.sh.
#
# Usage: hack/update-chart.sh [folder, by default config]
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

out=${1:-config}
chart=config/chart/annex
helm="${root}/_output/kubernetes/helm"
helm_docs="${root}/_output/tools/helm-docs"

hack/build-kubernetes.sh helm
(cd hack/helm-docs && go build -mod=readonly -o "${helm_docs}" github.com/norwoodj/helm-docs/cmd/helm-docs)

# Nothing is replaced before everything could be written.
fresh=$(mktemp -d)
trap 'rm -rf "${fresh}"' EXIT

"${helm_docs}" --chart-search-root="${chart}" --sort-values-order=file --skip-version-footer --log-level=warning --dry-run \
  >"${fresh}/README.md"
if grep --extended-regexp '\|[[:space:]]*\|$' "${fresh}/README.md" >&2; then
  echo "above: values without a comment \"# -- ...\" in ${chart}/values.yaml" >&2
  exit 1
fi

# Labels tell of a release, and these files are of none.
for part in apiserver controller; do
  {
    echo "# Written by hack/update-chart.sh from ${chart}/templates/${part}/rbac.yaml. Do not edit."
    "${helm}" template annex "${chart}" --namespace=annex-system --show-only="templates/${part}/rbac.yaml" |
      sed -e '1{/^---$/d}' -e '/^# Source: /d' -e '/^$/d' -e '/^  labels:$/d' -e '/^    \(helm\.sh\|app\.kubernetes\.io\)\//d'
  } >"${fresh}/annex-${part}.yaml"
done

mkdir -p "${out}/chart/annex" "${out}/rbac"
mv "${fresh}/README.md" "${out}/chart/annex/README.md"
mv "${fresh}/annex-apiserver.yaml" "${fresh}/annex-controller.yaml" "${out}/rbac/"
