#!/usr/bin/env bash
# What a shared library exports: exports.sh LIBRARY HEADER... Each symbol is declared in a header,
# each declared call is exported and nothing else is, and the tests of bad arguments have them all.
set -euo pipefail
library=$1
folder=$(dirname "$0")
tests=("$folder/bad_arguments.c" "$folder/embed_test.c")
shift
declared=$(grep -hoE '\bkvant_[a-z_]+\(' "$@" | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
extra=$(comm -13 <(echo "$declared") <(echo "$exported"))
missing=$(comm -23 <(grep -vE '_function$' <<<"$declared") <(echo "$exported"))
untested=$(comm -23 <(echo "$exported") <(grep -ohE '\bkvant_[a-z_]+\(' "${tests[@]}" | tr -d '(' | sort -u))
[[ -z $extra ]] || echo "exported, but in no header: $extra"
[[ -z $missing ]] || echo "declared, but not exported: $missing"
echo "$(wc -l <<<"$exported") symbols"
[[ -z $untested ]] || echo "exported, but not in ${tests[*]##*/}: $untested"
[[ -z $extra$missing$untested ]]
