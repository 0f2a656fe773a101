#!/usr/bin/env bash
# Runs every hack/verify-*.sh, shows the output of those that fail and lists them at the end.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

failed=()
for script in hack/verify-*.sh; do
  [[ ${script} == hack/verify-all.sh ]] && continue
  start=${SECONDS}
  if output=$("${script}" 2>&1 </dev/null); then
    printf 'ok    %-28s %4ds\n' "${script}" $((SECONDS - start))
  else
    printf 'FAIL  %-28s %4ds\n%s\n' "${script}" $((SECONDS - start)) "${output}"
    failed+=("${script}")
  fi
done

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "failed: ${failed[*]}; 'make fix' and 'make generate' mend most findings" >&2
  exit 1
fi
