#!/usr/bin/env bash
# Tidies every module of the repository.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

while IFS= read -r dir; do
  go -C "${dir}" mod tidy
done < <(modules)
