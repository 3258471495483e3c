# Python package transformers 5.24.0 of PyPI.
#
# Two configurations made with one dict for rope_scaling, the second with another rope_theta. Good guess: each
# configuration has the base that its call names. Seen: the first call writes its rope_theta into the caller's
# dict, and the second call takes it from there: its own rope_theta is dropped without a word.
source "$(dirname "$0")/common.bash"

python_with transformers==5.24.0

cat >bases.py <<'END'
from transformers import LlamaConfig

scaling = {"rope_type": "linear", "factor": 2.0}
first = LlamaConfig(rope_theta=10000.0, rope_scaling=scaling)
second = LlamaConfig(rope_theta=500.0, rope_scaling=scaling)
alone = LlamaConfig(rope_theta=500.0, rope_scaling={"rope_type": "linear", "factor": 2.0})
print(first.rope_parameters["rope_theta"], second.rope_parameters["rope_theta"],
      alone.rope_parameters["rope_theta"], scaling.get("rope_theta"))
END

expect "bases of the first, the second, one with a dict of its own, and what the dict has" "10000.0 10000.0 500.0 10000.0" \
  "$("$python" bases.py 2>/dev/null)"
