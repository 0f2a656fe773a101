#!/usr/bin/env bash
# Fails when a relative link in a Markdown file names a file or heading that does not exist.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# links prints "line<TAB>target" for each link outside of code.
links() {
  awk '
    /^[ \t]*(```|~~~)/ { fenced = !fenced; next }
    fenced { next }
    {
      gsub(/`[^`]*`/, "")
      if (match($0, /^\[[^]]+\]:[ \t]+[^ \t]+/)) {
        target = substr($0, RSTART, RLENGTH)
        sub(/^\[[^]]+\]:[ \t]+/, "", target)
        print NR "\t" target
      }
      while (match($0, /\]\([^)]+\)/)) {
        target = substr($0, RSTART + 2, RLENGTH - 3)
        $0 = substr($0, RSTART + RLENGTH)
        sub(/[ \t]+".*"$/, "", target)
        print NR "\t" target
      }
    }' "$1"
}

# anchors prints the fragment of each heading, in the way that code hosts derive it.
anchors() {
  awk '
    /^[ \t]*(```|~~~)/ { fenced = !fenced; next }
    fenced || !/^#+ / { next }
    {
      sub(/^#+ +/, "")
      $0 = tolower($0)
      gsub(/[^a-z0-9 _-]/, "")
      gsub(/ /, "-")
      print seen[$0]++ ? $0 "-" (seen[$0] - 1) : $0
    }' "$1"
}

status=0
complain() {
  echo "$1" >&2
  status=1
}

while IFS= read -r file; do
  while IFS=$'\t' read -r line target; do
    if [[ ${target} =~ ^[a-z]+: ]]; then
      continue
    fi
    path=${target%%#*}
    if [[ ${path} == /* ]]; then
      complain "${file}:${line}: ${target} is absolute, make it relative"
      continue
    fi
    goal=${file}
    [[ -n ${path} ]] && goal=$(dirname "${file}")/${path}
    if [[ ! -e ${goal} ]]; then
      complain "${file}:${line}: ${target} does not exist"
    elif [[ ${target} == *"#"* && ${goal} == *.md ]]; then
      anchors "${goal}" | grep --line-regexp --fixed-strings --quiet -e "${target#*#}" ||
        complain "${file}:${line}: ${target} names no heading of ${goal}"
    fi
  done < <(links "${file}")
done < <(files '*.md' ':(exclude,glob)**/testdata/**') # what a test prints has no neighbours there
exit "${status}"
