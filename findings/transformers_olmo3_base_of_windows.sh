# Python package transformers 5.24.0 of PyPI.
#
# OLMo 3 has layers with full and with sliding attention. Good guess: Olmo3Config(rope_theta=500.0) sets the base of
# both, as rope_theta does in transformers 4.57.1. Seen: layers with sliding attention keep 500000.
source "$(dirname "$0")/common.bash"

cat >bases.py <<'END'
from transformers import Olmo3Config

config = Olmo3Config(rope_theta=500.0, num_hidden_layers=4)
ropes = getattr(config, "rope_parameters", None)
if ropes is None:
    print(config.rope_theta)
else:
    print(ropes["full_attention"]["rope_theta"], ropes["sliding_attention"]["rope_theta"])
END

python_with transformers==4.57.1
expect "the base of all layers in 4.57.1" 500.0 "$("$python" bases.py 2>/dev/null)"
python_with transformers==5.24.0
expect "bases of full and sliding attention in 5.24.0" "500.0 500000.0" "$("$python" bases.py 2>/dev/null)"
