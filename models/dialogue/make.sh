#!/usr/bin/env bash
# From nothing to the model file: prepares the data, trains (or resumes), converts, quantizes, and asks the held-out questions.
#
#   make.sh CORPUS WORK      WORK holds everything on the way and is not part of the project
#
# Needs Python 3.11 with the packages of ../shakespeare/requirements.txt ($PYTHON, default python3) and a built kvant.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kvant=${KVANT:-$here/../../build/release/kvant}
python=${PYTHON:-python3}
corpus=${1:?usage: make.sh CORPUS WORK}
work=${2:?usage: make.sh CORPUS WORK}

[[ -e $work/data/heldout.json ]] || "$python" "$here/prepare.py" "$corpus" "$work/data"
# The rate falls towards the end of each part; the next one begins with a higher one.
for steps in 2200 3200 3800; do "$python" "$here/train.py" "$work/data" "$work/run" --steps "$steps"; done
cp "$work/run/loss.csv" "$work/run/loss.svg" "$here"

rm -rf "$work/dialogue"
cp -r "$work/run/model" "$work/dialogue" # the folder's name becomes the model's
printf -- '---\nlicense: mit\nlanguage:\n- en\n---\n' > "$work/dialogue/README.md"
"$kvant" convert "$work/dialogue" "$work/dialogue-bf16.gguf" --type bf16
"$kvant" quantize "$work/dialogue-bf16.gguf" "$here/dialogue.gguf" Q8_0
"$python" "$here/evaluate.py" "$work/data" --kvant "$kvant"
