#!/usr/bin/env bash
# Builds the real servers, kubectl and Helm that the tests and `make run` use, from
# their Go modules at the versions in hack/kubernetes/go.mod and hack/helm/go.mod.
#
# Usage: hack/build-kubernetes.sh [kube-apiserver|kube-controller-manager|kubectl|etcd|etcdctl|helm ...]
# Without arguments it builds all of them. Binaries go to _output/kubernetes,
# which git ignores. From an empty Go cache this takes about 12 minutes on two cores.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out="${root}/_output/kubernetes"
mkdir -p "${out}"
cd "${root}/hack/kubernetes"

helm_version=$(go -C "${root}/hack/helm" list -m -f '{{.Version}}' helm.sh/helm/v4)
kubernetes_version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
etcd_version=$(go list -m -f '{{.Version}}' go.etcd.io/etcd/server/v3)

# Without a stamped version the programs call themselves v0.0.0 and clients refuse or warn.
minor=${kubernetes_version#v1.}
ldflags="-s -w"
for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X ${pkg}.gitVersion=${kubernetes_version}"
  ldflags+=" -X ${pkg}.gitMajor=1 -X ${pkg}.gitMinor=${minor%%.*}"
done
ldflags+=" -X helm.sh/helm/v4/internal/version.version=${helm_version}"

package_of() {
  case "$1" in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    etcdctl) echo go.etcd.io/etcd/etcdctl/v3 ;;
    helm) echo helm.sh/helm/v4/cmd/helm ;;
    kube-apiserver | kube-controller-manager | kubectl) echo "k8s.io/kubernetes/cmd/$1" ;;
    *) echo "build-kubernetes: unknown program \"$1\"" >&2; return 1 ;;
  esac
}

programs=("$@")
if [[ ${#programs[@]} -eq 0 ]]; then
  programs=(etcd etcdctl kube-apiserver kube-controller-manager kubectl helm)
fi
for program in "${programs[@]}"; do
  version=${kubernetes_version} module=kubernetes
  case "${program}" in
    etcd*) version=${etcd_version} ;;
    helm) version=${helm_version} module=helm ;;
  esac
  stamp="${out}/.${program}-${version}"
  if [[ -x ${out}/${program} && -e ${stamp} ]]; then
    continue
  fi
  echo "building ${program} ${version}"
  go -C "${root}/hack/${module}" build -mod=readonly -ldflags "${ldflags}" -o "${out}/${program}" "$(package_of "${program}")"
  rm -f "${out}/.${program}-"*
  touch "${stamp}"
done
