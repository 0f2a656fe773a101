#!/usr/bin/env bash
# Runs the smoke suite against the kube-apiserver of the oldest Kubernetes release that
# annex works with, built from hack/kubernetes-1.34. The other programs are today's.
#
# Usage: hack/test-skew.sh [arguments of go test ...]
# The first build takes about 8 minutes on two cores.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "${root}"
module="${root}/hack/kubernetes-1.34"
out="${root}/_output/kubernetes-1.34"

version=$(go -C "${module}" list -m -f '{{.Version}}' k8s.io/kubernetes)
stamp="${out}/.kube-apiserver-${version}"
if [[ ! -x ${out}/kube-apiserver || ! -e ${stamp} ]]; then
  echo "building kube-apiserver ${version}"
  minor=${version#v1.}
  ldflags="-s -w"
  for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    ldflags+=" -X ${pkg}.gitVersion=${version} -X ${pkg}.gitMajor=1 -X ${pkg}.gitMinor=${minor%%.*}"
  done
  mkdir -p "${out}"
  go -C "${module}" build -mod=readonly -ldflags "${ldflags}" -o "${out}/kube-apiserver" k8s.io/kubernetes/cmd/kube-apiserver
  rm -f "${out}"/.kube-apiserver-*
  touch "${stamp}"
fi

export ANNEX_KUBERNETES="${out}"
exec go test -count=1 -p 1 "$@" ./test/e2e
