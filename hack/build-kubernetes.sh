#!/usr/bin/env bash
# Builds the real servers and kubectl that the tests and `make run` use, from
# their Go modules at the versions in hack/kubernetes/go.mod.
#
# Usage: hack/build-kubernetes.sh [kube-apiserver|kube-controller-manager|kubectl|etcd|etcdctl ...]
# Without arguments it builds all of them. Binaries go to _output/kubernetes,
# which git ignores. From an empty Go cache this takes about 12 minutes on two cores.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out="${root}/_output/kubernetes"
mkdir -p "${out}"
cd "${root}/hack/kubernetes"

kubernetes_version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
etcd_version=$(go list -m -f '{{.Version}}' go.etcd.io/etcd/server/v3)

# Without a stamped version the programs call themselves v0.0.0 and clients refuse or warn.
minor=${kubernetes_version#v1.}
ldflags="-s -w"
for pkg in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X ${pkg}.gitVersion=${kubernetes_version}"
  ldflags+=" -X ${pkg}.gitMajor=1 -X ${pkg}.gitMinor=${minor%%.*}"
done

package_of() {
  case "$1" in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    etcdctl) echo go.etcd.io/etcd/etcdctl/v3 ;;
    kube-apiserver | kube-controller-manager | kubectl) echo "k8s.io/kubernetes/cmd/$1" ;;
    *) echo "build-kubernetes: unknown program \"$1\"" >&2; return 1 ;;
  esac
}

programs=("$@")
if [[ ${#programs[@]} -eq 0 ]]; then
  programs=(etcd etcdctl kube-apiserver kube-controller-manager kubectl)
fi
for program in "${programs[@]}"; do
  version=${kubernetes_version}
  [[ ${program} == etcd* ]] && version=${etcd_version}
  stamp="${out}/.${program}-${version}"
  if [[ -x ${out}/${program} && -e ${stamp} ]]; then
    continue
  fi
  echo "building ${program} ${version}"
  go build -mod=readonly -ldflags "${ldflags}" -o "${out}/${program}" "$(package_of "${program}")"
  rm -f "${out}/.${program}-"*
  touch "${stamp}"
done
