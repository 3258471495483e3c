# llama.cpp b11549, from the Python package xllamacpp 2026.10.11549 of PyPI; gguf 0.19.0 writes the file.
#
# The server of llama.cpp returns a log-probability for each token of its answer. Good guess: there are as
# many of them as usage.completion_tokens says, and their sum is that of the answer. Seen: a token that ends
# within a character has none. A character of three byte tokens gets one entry with all three bytes and the
# log-probability of the last byte alone. An answer that is cut within its first character has no list.
#
# The model here gives each token its next with a chosen probability: zero attention, one-hot embeddings.
# U+6F22 after "a" is the bytes E6, BC, A2 with 0.5, 0.6, 0.7, then the end with 0.8. So four numbers are
# expected: -0.6931 -0.5108 -0.3567 -0.2231. Two come.
source "$(dirname "$0")/common.bash"

python_with xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.2.6
cat >script.py <<'END'
import math

import gguf
import numpy as np
import xllamacpp

PIECES = ["<unk>", "<s>", "</s>", "<0x0A>", "<0xA2>", "<0xBC>", "<0xE6>", "\u2581", "a", "b"]
TYPES = [2, 3, 3, 6, 6, 6, 6, 1, 1, 1]  # unknown, control, byte, normal
NEXT = {"a": ("<0xE6>", 0.5), "<0xE6>": ("<0xBC>", 0.6), "<0xBC>": ("<0xA2>", 0.7),
        "<0xA2>": ("</s>", 0.8)}
DIM = 32  # the first len(PIECES) channels are one-hot

# [token, next token]: what the chosen successor leaves is shared among the others.
logits = np.zeros((len(PIECES), len(PIECES)))
for piece, (successor, probability) in NEXT.items():
    logits[PIECES.index(piece)] = math.log((1 - probability) / (len(PIECES) - 1))
    logits[PIECES.index(piece), PIECES.index(successor)] = math.log(probability)
output = np.zeros((len(PIECES), DIM))
output[:, :len(PIECES)] = logits.T / math.sqrt(DIM)  # the norm of a one-hot row is sqrt(DIM) times it

writer = gguf.GGUFWriter("model.gguf", "llama")
writer.add_context_length(256)
writer.add_embedding_length(DIM)
writer.add_block_count(1)
writer.add_feed_forward_length(DIM)
writer.add_head_count(1)
writer.add_head_count_kv(1)
writer.add_layer_norm_rms_eps(1e-9)
writer.add_rope_dimension_count(DIM)
writer.add_tokenizer_model("llama")
writer.add_token_list(PIECES)
writer.add_token_scores([-float(i) for i in range(len(PIECES))])
writer.add_token_types(TYPES)
writer.add_unk_token_id(0)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_tensor("token_embd.weight", np.eye(len(PIECES), DIM, dtype=np.float32))
writer.add_tensor("output.weight", output.astype(np.float32))
for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
    writer.add_tensor(name + ".weight", np.ones(DIM, np.float32))
for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    writer.add_tensor(f"blk.0.{name}.weight", np.zeros((DIM, DIM), np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

parameters = xllamacpp.CommonParams()
parameters.model.path = "model.gguf"
parameters.n_ctx = 256
parameters.n_parallel = 1
parameters.warmup = False
parameters.cpuparams.n_threads = 1
server = xllamacpp.Server(parameters)
for tokens_max in (8, 2):
    answer = server.handle_completions({"prompt": [PIECES.index("a")], "n_predict": tokens_max,
                                        "n_probs": 1, "temperature": -1.0})
    logprobs = answer["choices"][0]["logprobs"]
    print(answer["usage"]["completion_tokens"],
          None if logprobs is None else
          [(bytes(entry["bytes"]).hex(), f"{entry['logprob']:.4f}") for entry in logprobs["content"]])
END
"$python" script.py >output 2>errors || { cat errors >&2; exit 1; }
expect "tokens, log-probabilities" "4 [('e6bca2', '-0.3567'), ('', '-0.2231')]" "$(sed -n 1p output)"
expect "tokens, log-probabilities of an answer cut within the character" "2 None" "$(sed -n 2p output)"
