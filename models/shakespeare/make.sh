#!/usr/bin/env bash
# From the corpus to the model files: prepares the data, trains (or resumes), converts and quantizes.
#
#   make.sh CORPUS WORK [TRAIN OPTIONS...]     WORK holds everything on the way and is not part of the project
#
# Needs Python 3.11 with requirements.txt ($PYTHON, default python3) and a built kvant.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kvant=${KVANT:-$here/../../build/release/kvant}
python=${PYTHON:-python3}
corpus=${1:?usage: make.sh CORPUS WORK [TRAIN OPTIONS...]}
work=${2:?usage: make.sh CORPUS WORK [TRAIN OPTIONS...]}
shift 2

[[ -e $work/data/heldout.txt ]] || "$python" "$here/prepare.py" "$corpus" "$work/data"
"$python" "$here/train.py" "$work/data" "$work/run" "$@"
cp "$work/run/loss.svg" "$here/loss.svg"

"$kvant" convert "$work/run/best" "$here/shakespeare-bf16.gguf" --type bf16 --name Shakespeare
for type in Q8_0 Q6_K Q5_K_M Q5_K_S Q4_K_M Q4_K_S Q4_0 IQ4_XS Q3_K_M Q2_K; do
  "$kvant" quantize "$here/shakespeare-bf16.gguf" "$work/shakespeare-$type.gguf" "$type"
done
"$kvant" perplexity "$here/shakespeare-bf16.gguf" "$work/data/heldout.txt" -c 1024 --chunks 40 --save-logits "$work/logits"
for file in "$work"/shakespeare-*.gguf; do
  "$kvant" perplexity "$file" "$work/data/heldout.txt" -c 1024 --kl-base "$work/logits" --json | tee "${file%.gguf}.json"
done
cp "$work/shakespeare-${DEFAULT_TYPE:-Q8_0}.gguf" "$here/shakespeare.gguf"
"$python" "$here/reference.py" "$work/run/best" "$work/data" "$here/reference"
