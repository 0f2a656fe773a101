#!/usr/bin/env bash
# Starts a standalone server, fills it with the example objects of artifacts/,
# shows what can be asked of it, and serves until Ctrl-C.
#
# `make run` builds the server first. Environment: KUBECTL names a kubectl to use; ANNEX_RUN_DIR the directory to
# keep everything in (default _output/run); ANNEX_RUN_PORT the port (default 6443).
set -o errexit -o nounset -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
root_dir=${ANNEX_RUN_DIR:-_output/run}
port=${ANNEX_RUN_PORT:-6443}
server=_output/bin/annex-apiserver
log="${root_dir}/annex-apiserver.log"
export KUBECONFIG="${root_dir}/admin.kubeconfig"

go build -o _output/bin/ ./hack/samples

kubectl=${KUBECTL:-$(command -v kubectl || true)}
built_kubectl=false
if [[ -z ${kubectl} ]]; then
  built_kubectl=true
  echo "kubectl is not installed; building it from its module, which takes a few minutes once."
  hack/build-kubernetes.sh kubectl
  kubectl=_output/kubernetes/kubectl
fi

mkdir -p "${root_dir}"
chmod 700 "${root_dir}"
echo "Starting annex-apiserver on port ${port}; its log is ${log}"
# Another server may be at work in the directory and write its log: ours takes the name when it holds the directory.
new_log="${log}.$$"
# In a process group of its own the server does not see Ctrl-C: it is stopped once, by stop.
set -o monitor
"${server}" --standalone --root-dir="${root_dir}" --secure-port="${port}" >"${new_log}" 2>&1 &
server_pid=$!
set +o monitor

stop() {
  trap - EXIT INT TERM
  rm -f "${new_log}"
  kill -TERM "${server_pid}" 2>/dev/null || true
  wait "${server_pid}" 2>/dev/null || true
  echo
  echo "Stopped. Everything is kept in ${root_dir}; run it again to go on, or remove the directory."
}
trap 'stop; exit 0' INT TERM
trap stop EXIT

# The lock of the directory names the server that answers there: it may not be ours.
ready() {
  [[ $(cat "${root_dir}/annex-apiserver.lock" 2>/dev/null) == "${server_pid}" ]] &&
    "${kubectl}" get --raw /readyz >/dev/null 2>&1
}
for ((i = 0; ; i++)); do
  is_ready=false
  if ready; then is_ready=true; fi
  if ! kill -0 "${server_pid}" 2>/dev/null; then
    tail -n 1 "${new_log}" >&2
    rm -f "${new_log}"
    trap - EXIT
    exit 1
  fi
  ${is_ready} && break
  if ((i >= 300)); then
    mv "${new_log}" "${log}"
    echo "run: the server is not ready after a minute; see ${log}" >&2
    exit 1
  fi
  sleep 0.2
done
mv "${new_log}" "${log}"

show() {
  local lines=$1
  shift
  echo
  echo "\$ kubectl $*"
  "${kubectl}" "$@" | awk -v max="${lines}" 'NR <= max { print } END { if (NR > max) printf "... %d more lines\n", NR - max }'
}

show 5 apply --server-side -f artifacts/podendpoints-crd.yaml
"${kubectl}" wait --for=condition=Established crd/podendpoints.demo.kubeannex.io --timeout=30s >/dev/null
echo
echo "Loading 3000 objects"
_output/bin/samples --kubeconfig="${KUBECONFIG}" --count=3000

show 8 api-resources --api-group=demo.kubeannex.io
show 4 --namespace=team-0 get podendpoint nginx-0
show 6 --namespace=team-3 get podendpoints
show 6 get podendpoints --all-namespaces -l app=nginx
show 6 get podendpoints --all-namespaces --field-selector spec.nodeName=node7
show 12 explain podendpoint.spec.nodeName

echo
echo "\$ kubectl --namespace=team-7 get podendpoint nginx-7 --watch    (while its status is changed)"
watch_output="${root_dir}/watch.txt"
: >"${watch_output}" # the loop below may read it before kubectl's shell has opened it
"${kubectl}" --namespace=team-7 get podendpoint nginx-7 --watch --request-timeout=5s >"${watch_output}" 2>/dev/null &
watch_pid=$!
until [[ $(wc -l <"${watch_output}") -ge 2 ]] || ! kill -0 "${watch_pid}" 2>/dev/null; do sleep 0.1; done
state=not-ready
[[ $("${kubectl}" --namespace=team-7 get podendpoint nginx-7 -o 'jsonpath={.status.state}') == not-ready ]] && state=ready
"${kubectl}" --namespace=team-7 patch podendpoint nginx-7 --subresource=status --type=merge -p "{\"status\":{\"state\":\"${state}\"}}" >/dev/null
until [[ $(wc -l <"${watch_output}") -ge 3 ]] || ! kill -0 "${watch_pid}" 2>/dev/null; do sleep 0.1; done
kill "${watch_pid}" 2>/dev/null || true
wait "${watch_pid}" 2>/dev/null || true
cat "${watch_output}"

echo
echo "Now it is yours, in another terminal:"
if ${built_kubectl}; then
  echo "  export PATH=${PWD}/_output/kubernetes:\$PATH"
fi
echo "  export KUBECONFIG=$(realpath "${KUBECONFIG}")"
echo "  kubectl get podendpoints --all-namespaces --field-selector spec.nodeName=node7 --watch"
echo
echo "Serving https://127.0.0.1:${port} until Ctrl-C."
wait "${server_pid}"
