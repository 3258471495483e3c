# llama.cpp b11549, from the Python package xllamacpp 2026.10.11549 of PyPI; gguf 0.19.0 writes the files.
#
# GGUF has keys for the two ends of YaRN's ramp, rope.scaling.yarn_beta_fast and yarn_beta_slow. Good guess:
# a model of the architecture llama with YaRN is computed with them. Seen: the keys change nothing there.
# Under the architecture mistral3 the same tensors and keys give the same logits with the usual 32 and 1, and
# others with 4 and 0.25. So a llama file with other betas runs with wrong rotations, and nothing says so.
source "$(dirname "$0")/common.bash"

python_with xllamacpp==2026.10.11549 gguf==0.19.0 numpy==2.2.6
cat >script.py <<'END'
import gguf
import numpy as np
import xllamacpp

DIM = 64
PIECES = ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581"] + [chr(65 + i) for i in range(58)]
TYPES = [2, 3, 3, 6] + [1] * (len(PIECES) - 4)  # unknown, control, byte, normal


def write_model(path, architecture, beta_fast, beta_slow):
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(256)
    writer.add_embedding_length(DIM)
    writer.add_block_count(1)
    writer.add_feed_forward_length(DIM)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(8.0)
    writer.add_rope_scaling_orig_ctx_len(32)
    writer.add_rope_scaling_yarn_beta_fast(beta_fast)
    writer.add_rope_scaling_yarn_beta_slow(beta_slow)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(PIECES)
    writer.add_token_scores([-float(i) for i in range(len(PIECES))])
    writer.add_token_types(TYPES)
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    random = np.random.default_rng(1)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(name + ".weight", np.ones(DIM, np.float32))
    for name in ("token_embd", "output"):
        matrix = random.standard_normal((len(PIECES), DIM)) * 0.3
        writer.add_tensor(name + ".weight", matrix.astype(np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        matrix = random.standard_normal((DIM, DIM)) * 0.3
        writer.add_tensor(f"blk.0.{name}.weight", matrix.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def log_probabilities(path):
    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.n_ctx = 256
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.cpuparams.n_threads = 1
    parameters.cache_type_k = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    server = xllamacpp.Server(parameters)
    answer = server.handle_completions({
        "prompt": [3 + i * 7 % (len(PIECES) - 3) for i in range(100)], "n_predict": 1,
        "n_probs": len(PIECES), "temperature": -1.0, "ignore_eos": True})
    first = answer["choices"][0]["logprobs"]["content"][0]
    return {entry["id"]: entry["logprob"] for entry in first["top_logprobs"]}


def difference(left, right):
    common = left.keys() & right.keys()
    assert len(common) > 50, len(common)
    return max(abs(left[token] - right[token]) for token in common)


found = {}
for architecture in ("llama", "mistral3"):
    for betas in ((32.0, 1.0), (4.0, 0.25)):
        write_model("model.gguf", architecture, *betas)
        found[architecture, betas[0]] = log_probabilities("model.gguf")
print(difference(found["llama", 32.0], found["mistral3", 32.0]) < 1e-3)
for architecture in ("llama", "mistral3"):
    print(f"{difference(found[architecture, 32.0], found[architecture, 4.0]):.6f}")
END
"$python" script.py >output 2>errors || { cat errors >&2; exit 1; }
expect "llama and mistral3 agree with betas of 32 and 1" True "$(sed -n 1p output)"
expect "difference between betas of 32 and 1 and of 4 and 0.25, llama" 0.000000 "$(sed -n 2p output)"
expect "the same difference is more than 0.5, mistral3" 1 "$(awk 'NR == 3 {print ($1 > 0.5)}' output)"
expect "warnings that name YaRN or betas" 0 "$(grep -ciE ' [WE] .*(yarn|beta)' errors || true)"
