#!/usr/bin/env bash
# One of the models of characters, from prepared texts to its files.
#
#   make_characters.sh lfm2-tiny|qwen35-tiny|qwen35-mtp DATA WORK      DATA is what shakespeare/prepare.py wrote
#
# Needs Python 3.11 with shakespeare/requirements.txt ($PYTHON, default python3), for the others than lfm2-tiny transformers 5.23.0 and tokenizers
# 0.23.3 in place of theirs, and a built kvant.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kvant=${KVANT:-$here/../build/release/kvant}
python=${PYTHON:-python3}
name=${1:?usage: make_characters.sh NAME DATA WORK}
data=${2:?usage: make_characters.sh NAME DATA WORK}
work=${3:?usage: make_characters.sh NAME DATA WORK}
out=$here/$name

mkdir -p "$out"
"$python" "$here/characters.py" "$name" train "$data" "$work/run"
cp "$work/run/loss.csv" "$work/run/loss.svg" "$out"
rm -rf "${work:?}/$name"
cp -r "$work/run/model" "$work/$name" # the folder's name becomes the model's
printf -- '---\nlicense: mit\nlanguage:\n- en\n---\n' > "$work/$name/README.md"
"$kvant" convert "$work/$name" "$out/$name-bf16.gguf" --type bf16
"$kvant" quantize "$out/$name-bf16.gguf" "$out/$name.gguf" Q8_0
"$python" "$here/characters.py" "$name" reference "$data" "$work/run" "$out/reference"
for type in BF16 Q8_0 Q6_K Q5_K_M Q4_K_M; do
  [[ $type == BF16 ]] && file=$out/$name-bf16.gguf || file=$work/$name-$type.gguf
  [[ $type == BF16 ]] || "$kvant" quantize "$out/$name-bf16.gguf" "$file" "$type"
  "$kvant" perplexity "$file" "$data/heldout.txt" -c 512 --chunks 40 --json
done
