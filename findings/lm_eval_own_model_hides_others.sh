# Python package lm_eval 0.4.13 of PyPI.
#
# A module registers a model class of its own with `register_model`, as the documentation of new models asks for, and
# then another model of the harness is asked for by name. Good guess: the class is added to those that are there, which
# are found as always. Seen: the harness loads the list of its own models only while no model at all is registered, so
# that every other name is unknown; `import lm_eval.models` before brings them back.
source "$(dirname "$0")/common.bash"

python_with 'lm_eval[api]==0.4.13'
cat >script.py <<'END'
import sys

if sys.argv[2] == "list":
    import lm_eval.models
from lm_eval.api.model import LM
from lm_eval.api.registry import get_model, register_model

if sys.argv[1] == "own":
    @register_model("my-own")
    class MyOwn(LM):
        pass

try:
    print(get_model("local-completions").__name__)
except ValueError as error:
    print("supported:", str(error).rpartition(": ")[2])
END
expect "nothing of one's own" "LocalCompletionsAPI" "$("$python" script.py none none 2>/dev/null)"
expect "a class of one's own" "supported: my-own" "$("$python" script.py own none 2>/dev/null)"
expect "the list, then the class" "LocalCompletionsAPI" "$("$python" script.py own list 2>/dev/null)"
