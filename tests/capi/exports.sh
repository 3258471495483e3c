#!/usr/bin/env bash
# What a shared library exports: exports.sh LIBRARY HEADER... Each symbol is declared in a header, and
# each declared call is exported; nothing else is.
set -euo pipefail
library=$1
shift
declared=$(grep -hoE '\bkvant_[a-z_]+\(' "$@" | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
extra=$(comm -13 <(echo "$declared") <(echo "$exported"))
missing=$(comm -23 <(grep -vE '_function$' <<<"$declared") <(echo "$exported"))
[[ -z $extra ]] || echo "exported, but in no header: $extra"
[[ -z $missing ]] || echo "declared, but not exported: $missing"
echo "$(wc -l <<<"$exported") symbols"
[[ -z $extra$missing ]]
