#!/usr/bin/env bash
# From nothing to the model files: the vocabulary, the training (or its resumption), conversion, and the held-out numbers.
#
#   make.sh WORK      WORK holds everything on the way and is not part of the project
#
# Needs Python 3.11 with the packages of ../shakespeare/requirements.txt ($PYTHON, default python3) and a
# built kvant.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kvant=${KVANT:-$here/../../build/release/kvant}
python=${PYTHON:-python3}
work=${1:?usage: make.sh WORK}

[[ -e $work/data/spiece.model ]] || "$python" "$here/prepare.py" "$work/data"
# Most of a long run, then a short end of it in which the rate falls to zero.
"$python" "$here/train.py" "$work/data" "$work/run" --steps 3000 --until 2000
"$python" "$here/train.py" "$work/data" "$work/run" --steps 2200
cp "$work/run/loss.csv" "$work/run/loss.svg" "$here"

rm -rf "$work/number-words"
cp -r "$work/run/model" "$work/number-words" # the folder's name becomes the model's
printf -- '---\nlicense: mit\nlanguage:\n- en\n---\n' > "$work/number-words/README.md"
"$kvant" convert "$work/number-words" "$here/number-words-bf16.gguf" --type bf16
"$kvant" quantize "$here/number-words-bf16.gguf" "$here/number-words.gguf" Q8_0
"$python" "$here/reference.py" "$work/run/model" "$here/reference"
"$python" "$here/evaluate.py" --kvant "$kvant"
