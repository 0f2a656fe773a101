#!/usr/bin/env bash
# Fails when Helm finds fault with the chart, or when a file that follows from it does not. Counterpart: hack/update-chart.sh.
# What a kube-apiserver says to the chart is tested in test/chart.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

fresh=$(mktemp -d)
trap 'rm -rf "${fresh}"' EXIT
hack/update-chart.sh "${fresh}"

status=0
for file in chart/annex/README.md rbac/annex-apiserver.yaml rbac/annex-controller.yaml; do
  if ! diff --unified "config/${file}" "${fresh}/${file}"; then
    echo "config/${file} is stale: run hack/update-chart.sh" >&2
    status=1
  fi
done
for values in config/chart/annex/ci/*.yaml; do
  if ! output=$(_output/kubernetes/helm lint --strict --quiet config/chart/annex --values="${values}" 2>&1); then
    printf '%s: %s\n' "${values}" "${output}" >&2
    status=1
  fi
done
exit "${status}"
