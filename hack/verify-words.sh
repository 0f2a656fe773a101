#!/usr/bin/env bash
# Fails when a file holds text that must not be published: leftovers of sample projects, paths of
# one machine, package-registry hosts, notes about how the text was written, unfinished work.
# Each pattern has a one-letter bracket so that this file does not match itself.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

status=0
# forbid REASON PATTERN [git grep argument ...]
forbid() {
  local reason=$1 pattern=$2
  shift 2
  if git grep --untracked --line-number -I --extended-regexp -e "${pattern}" "$@"; then
    echo "found above: ${reason}" >&2
    status=1
  fi
}

forbid "a name of the sample API server" 'flun[d]er|war[d]le' --ignore-case
forbid "an absolute path of one machine" '(^|[^[:alnum:]_.~-])/(wor[k]|roo[t]|far[m]|Use[r]s|hom[e]/[a-z]+)(/|$|[^[:alnum:]_-])'
forbid "a folder outside the repository" '\.\./share[d]'
forbid "a package-registry host" \
  '(prox[y]|su[m])\.golang\.org|registr[y]\.npmjs\.org|deb\.debia[n]\.org|pyp[i]\.org|pythonhoste[d]\.org|goprox[y]\.'
forbid "a note about how the text was written" \
  '\b(A[I]|L[L]M|[Ll]anguage mode[l]|[Cc]laud[e]|[Cc]hat[Gg]p[t]|[Cc]opilo[t]|([Aa][Ii]|coding) assistan[t]|[Ss]ub-?agen[t]s?)\b'
forbid "a marker of unfinished work" '(//|#|<!--).*\b(TOD[O]|FIXM[E]|XX[X])\b' -- ':!pkg/generated' ':!*zz_generated.*'
forbid "an unresolved merge" '^(<<<<<<[<] |>>>>>>[>] )'

if files | grep --ignore-case --extended-regexp 'flun[d]er|war[d]le'; then
  echo "found above: a file named after the sample API server" >&2
  status=1
fi
exit "${status}"
