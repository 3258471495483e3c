# Python package ctranslate2 4.8.5 of PyPI.
#
# Generator.generate_batch has the option include_prompt_in_result: "Include the start_tokens in the
# result". Good guess: it changes which tokens are shown, and the text that beam search finds after the
# prompt stays. Seen: the prompt also counts in the length by which scores are divided, so that a long
# prompt makes lengths look alike. The best of two beams is another one, and its score too.
#
# The model here gives each word its next word with a chosen probability: zero attention, one-hot
# embeddings. After the prompt comes "no" (0.5) and the end, or "yes please" (0.4) and the end. -0.3054
# is log(0.4) / 3, as guessed: two words and the end. -0.0693 is log(0.5) / 10: "no", the end and the
# eight words of the prompt.
source "$(dirname "$0")/common.bash"

python_with ctranslate2==4.8.5 numpy==2.2.6
cat >script.py <<'END'
import math
import os

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

WORDS = "<unk> <s> </s> word no yes please".split()
NEXT = {"<s>": {"word": 1.0}, "word": {"no": 0.5, "yes": 0.4, "word": 0.1}, "no": {"</s>": 1.0},
        "yes": {"please": 1.0}, "please": {"</s>": 1.0}}
DIM = 16  # the first len(WORDS) channels are one-hot

# [word, next word]
logits = np.full((len(WORDS), len(WORDS)), -30.0)
for word, successors in NEXT.items():
    for successor, probability in successors.items():
        logits[WORDS.index(word), WORDS.index(successor)] = math.log(probability)

spec = transformer_spec.TransformerDecoderModelSpec.from_config(
    num_layers=1, num_heads=1, activation=common_spec.Activation.RELU)


def set_zero(linear, rows, columns):
    linear.weight = np.zeros((rows, columns), np.float32)
    linear.bias = np.zeros(rows, np.float32)


def set_norm(norm):
    norm.gamma = np.ones(DIM, np.float32)
    norm.beta = np.zeros(DIM, np.float32)


decoder = spec.decoder
decoder.embeddings.weight = np.eye(len(WORDS), DIM, dtype=np.float32)
decoder.scale_embeddings = False
decoder.position_encodings.encodings = np.zeros((64, DIM), np.float32)
layer = decoder.layer[0]
set_norm(layer.self_attention.layer_norm)
set_zero(layer.self_attention.linear[0], 3 * DIM, DIM)
set_zero(layer.self_attention.linear[1], DIM, DIM)
set_norm(layer.ffn.layer_norm)
set_zero(layer.ffn.linear_0, DIM, DIM)
set_zero(layer.ffn.linear_1, DIM, DIM)
# The last norm turns a one-hot row into (row - 1 / DIM) / deviation; the projection undoes that.
set_norm(decoder.layer_norm)
deviation = math.sqrt(1 / DIM - 1 / DIM**2 + 1e-5)
weight = np.zeros((len(WORDS), DIM))
weight[:, :len(WORDS)] = logits.T * deviation
decoder.projection.weight = weight.astype(np.float32)
decoder.projection.bias = (logits.sum(axis=0) / DIM).astype(np.float32)
spec.register_vocabulary(WORDS)
spec.validate()
os.mkdir("model")
spec.save("model")

generator = ctranslate2.Generator("model", inter_threads=1, intra_threads=1)
prompt = ["<s>"] + ["word"] * 8
for include in (False, True):
    result = generator.generate_batch(
        [prompt], beam_size=2, max_length=60, return_scores=True,
        include_prompt_in_result=include)[0]
    words = [word for word in result.sequences[0] if word in ("no", "yes", "please")]
    print(" ".join(words), f"{result.scores[0]:.4f}")
END
"$python" script.py >output
expect "best without the prompt in the result" "yes please -0.3054" "$(sed -n 1p output)"
expect "best with the prompt in the result" "no -0.0693" "$(sed -n 2p output)"
