# Python packages transformers 5.24.0 and tokenizers of PyPI; 4.57.1 does the same.
#
# A folder has tokenizer.json, in which an added token keeps the blanks beside it, and tokenizer_config.json, in
# which the entry of that id in "added_tokens_decoder" says lstrip and rstrip. Good guess: tokenizer.json is the whole
# tokenizer, so it decides, as in the tokenizers package. Seen: the ids follow tokenizer_config.json. A program that
# reads tokenizer.json alone, as most other than transformers do, gets other ids from the folder.
source "$(dirname "$0")/common.bash"

python_with transformers==5.24.0
cat >script.py <<'END'
import json
import os

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

flags = {"content": "<x>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
os.makedirs("model")
with open("model/tokenizer.json", "w", encoding="ascii") as file:
    json.dump({"version": "1.0", "added_tokens": [{"id": 3, **flags}], "normalizer": None, "pre_tokenizer": None, "post_processor": None,
               "decoder": None, "model": {"type": "BPE", "vocab": {"a": 0, " ": 1, "b": 2}, "merges": []}}, file)
with open("model/tokenizer_config.json", "w", encoding="ascii") as file:
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast",
               "added_tokens_decoder": {"3": {**flags, "lstrip": True, "rstrip": True}}}, file)
text = "a <x> b"
print(*Tokenizer.from_file("model/tokenizer.json").encode(text).ids)
print(*PreTrainedTokenizerFast(tokenizer_file="model/tokenizer.json").encode(text))
print(*PreTrainedTokenizerFast.from_pretrained("model").encode(text))
END
"$python" script.py >output 2>/dev/null
expect "tokenizers reads tokenizer.json" "0 1 3 1 2" "$(sed -n 1p output)"
expect "transformers reads tokenizer.json alone" "0 1 3 1 2" "$(sed -n 2p output)"
expect "transformers reads the folder" "0 3 2" "$(sed -n 3p output)"
