#!/usr/bin/env python3
"""Write small random-weight GGUF models and the logits an independent forward pass gives for them.

For every model NAME three files are written:

    NAME.gguf    the model
    NAME.tokens  token ids, comma separated
    NAME.npy     float32 [tokens, vocab]: the logits after each token

The forward pass is plain numpy in float64, straight from the mathematics of the architecture: it sees the whole sequence
at once, so it knows neither a KV cache, nor batches, nor threads. Weights stored in a narrow type are read back from
their stored bytes first, so the reference holds for exactly the weights that are in the file.

Usage: make_random_llamas.py [OUTPUT_FOLDER [NAME ...]]

The pinned packages are in requirements.txt beside this file (gguf==0.19.0, numpy==2.4.6).
"""

import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

TOKEN_COUNT = 70  # well past the sliding window of 16, and past one block of 64


@dataclass
class Model:
    name: str
    dim: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    arch: str = "llama"
    layers: int = 2
    tied: bool = False
    eps: float = 1e-5
    rope_base: float = 10000.0
    rope_linear: float | None = None  # positions are divided by this
    rope_llama3: dict | None = None  # factors go into rope_freqs.weight
    window: int | None = None  # a query at p sees the keys p-window+1 .. p
    explicit_head_dim: bool = False  # attention.key_length and value_length are written
    types: dict = field(default_factory=dict)  # tensor name, or its last part before ".weight", to type; "*" for the rest


MODELS = [
    # Three heads of 48 with as many KV heads, own output matrix.
    Model("mha-3x48-f32", dim=144, ffn=344, heads=3, kv_heads=3, head_dim=48, vocab=101),
    # Two query heads to a KV head, output tied to the embedding, a single layer.
    Model("gqa-6q3kv-tied-f16", dim=288, ffn=344, heads=6, kv_heads=3, head_dim=48, vocab=96, layers=1, tied=True, eps=1e-6,
          types={"*": Q.F16}),
    # Llama 3 frequency factors. An original context of 64 puts the blend well inside the positions used here.
    Model("rope-llama3-f32", dim=64, ffn=88, heads=4, kv_heads=2, head_dim=64, vocab=128, rope_base=500000.0,
          explicit_head_dim=True,
          rope_llama3=dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=64)),
    # Position interpolation.
    Model("rope-linear4-f32", dim=64, ffn=88, heads=4, kv_heads=2, head_dim=16, vocab=97, rope_linear=4.0),
    # phi3: fused matrices, half-split rotation, sliding window. (llama.cpp asks for certain tokens when the name has "phi3".)
    Model("fused-window16-f32", arch="phi3", dim=96, ffn=88, heads=4, kv_heads=2, head_dim=24, vocab=103, tied=True,
          window=16),
    # Heads wider together than the model.
    Model("head-dim-explicit-f16", dim=160, ffn=40, heads=4, kv_heads=2, head_dim=48, vocab=120, explicit_head_dim=True,
          types={"*": Q.F16}),
    Model("gqa-4q1kv-bf16", dim=96, ffn=104, heads=4, kv_heads=1, head_dim=24, vocab=111, types={"*": Q.BF16}),
    # Every matrix in another type. Rows of 256 and 512: one and two super-blocks of the K types.
    Model("mixed-quants", dim=256, ffn=512, heads=4, kv_heads=2, head_dim=64, vocab=128, types={
        "token_embd": Q.Q6_K, "output": Q.Q8_0,
        "blk.0.attn_q": Q.Q4_K, "blk.0.attn_k": Q.Q5_K, "blk.0.attn_v": Q.Q6_K, "blk.0.attn_output": Q.Q3_K,
        "blk.0.ffn_gate": Q.Q4_K, "blk.0.ffn_up": Q.Q5_K, "blk.0.ffn_down": Q.Q6_K,
        "blk.1.attn_q": Q.Q4_0, "blk.1.attn_k": Q.Q4_1, "blk.1.attn_v": Q.Q5_0, "blk.1.attn_output": Q.Q5_1,
        "blk.1.ffn_gate": Q.Q2_K, "blk.1.ffn_up": Q.Q3_K, "blk.1.ffn_down": Q.Q4_K}),
]


# ---------------------------------------------------------------------------------------------------------------------
# K types: the gguf package decodes them but does not encode them. These encoders are simple (no search for the best
# scale), and what they write is checked by decoding it again.

def _f16(x):
    return x.astype(np.float16)


def _ratio(x, y):
    return np.divide(x, y, out=np.zeros(np.broadcast_shapes(x.shape, y.shape)), where=y != 0)


def _signed_blocks(x, sub, scale_max, q_max):
    """x [n, 256] = d * s * q, with q in -q_max-1 .. q_max for each `sub` values, and s in -scale_max .. scale_max."""
    x = x.reshape(len(x), -1, sub)
    s = np.abs(x).max(axis=2) / q_max
    d = _f16(s.max(axis=1, keepdims=True) / scale_max)
    si = np.clip(np.rint(_ratio(s, d.astype(float))), 0, scale_max)
    si *= np.where(np.arange(si.shape[1]) % 3 == 1, -1, 1)  # some scales negative, as the types allow
    q = np.clip(np.rint(_ratio(x, (d * si)[..., None])), -q_max - 1, q_max)
    return d, si.astype(np.int64), q.astype(np.int64).reshape(len(x), 256)


def _offset_blocks(x, sub, scale_max, q_max):
    """x [n, 256] = d * s * q - dmin * m, with q in 0 .. q_max for each `sub` values, and s, m in 0 .. scale_max."""
    x = x.reshape(len(x), -1, sub)
    low = np.minimum(x.min(axis=2), 0)
    s, m = (np.maximum(x.max(axis=2), 0) - low) / q_max, -low
    d, dmin = (_f16(v.max(axis=1, keepdims=True) / scale_max) for v in (s, m))
    si, mi = (np.clip(np.rint(_ratio(v, e.astype(float))), 0, scale_max) for v, e in ((s, d), (m, dmin)))
    q = np.clip(np.rint(_ratio(x + (dmin * mi)[..., None], (d * si)[..., None])), 0, q_max)
    return d, dmin, si.astype(np.int64), mi.astype(np.int64), q.astype(np.int64).reshape(len(x), 256)


def _bytes(*parts):
    return np.concatenate([p.view(np.uint8) if p.dtype == np.float16 else (p & 255).astype(np.uint8) for p in parts], axis=1)


def _six_bit_pairs(s, m):
    """Eight 6-bit scales and eight 6-bit minimums in 12 bytes, as Q4_K and Q5_K have them."""
    low = [v[:, :4] | v[:, 4:] >> 4 << 6 for v in (s, m)]
    return np.concatenate([*low, s[:, 4:] & 15 | (m[:, 4:] & 15) << 4], axis=1)


def _q2_k(x):
    d, dmin, s, m, q = _offset_blocks(x, 16, 15, 3)
    q = q.reshape(-1, 2, 4, 32)
    qs = (q << np.array([0, 2, 4, 6])[:, None]).sum(axis=2).reshape(-1, 64)
    return _bytes(s | m << 4, qs, d, dmin)


def _q3_k(x):
    d, s, q = _signed_blocks(x, 16, 31, 3)
    q, s = (q + 4).reshape(-1, 2, 4, 32), s + 32
    qs = ((q & 3) << np.array([0, 2, 4, 6])[:, None]).sum(axis=2).reshape(-1, 64)
    high = ((q >> 2).reshape(-1, 8, 32) << np.arange(8)[:, None]).sum(axis=1)
    low_scales = s[:, :8] & 15 | (s[:, 8:] & 15) << 4
    high_scales = ((s >> 4).reshape(-1, 4, 4) << np.array([0, 2, 4, 6])[:, None]).sum(axis=1)
    return _bytes(high, qs, low_scales, high_scales, d)


def _q4_k(x):
    d, dmin, s, m, q = _offset_blocks(x, 32, 63, 15)
    q = q.reshape(-1, 4, 2, 32)
    return _bytes(d, dmin, _six_bit_pairs(s, m), (q[:, :, 0] | q[:, :, 1] << 4).reshape(-1, 128))


def _q5_k(x):
    d, dmin, s, m, q = _offset_blocks(x, 32, 63, 31)
    high = ((q >> 4).reshape(-1, 8, 32) << np.arange(8)[:, None]).sum(axis=1)
    q = (q & 15).reshape(-1, 4, 2, 32)
    return _bytes(d, dmin, _six_bit_pairs(s, m), high, (q[:, :, 0] | q[:, :, 1] << 4).reshape(-1, 128))


def _q6_k(x):
    d, s, q = _signed_blocks(x, 16, 127, 31)
    q = (q + 32).reshape(-1, 2, 4, 32)
    low = np.concatenate([q[:, :, 0] & 15 | (q[:, :, 2] & 15) << 4, q[:, :, 1] & 15 | (q[:, :, 3] & 15) << 4], axis=2)
    high = ((q >> 4) << np.array([0, 2, 4, 6])[:, None]).sum(axis=2)
    return _bytes(low.reshape(-1, 128), high.reshape(-1, 64), s, d)


K_ENCODERS = {Q.Q2_K: (_q2_k, 0.6), Q.Q3_K: (_q3_k, 0.6), Q.Q4_K: (_q4_k, 0.15), Q.Q5_K: (_q5_k, 0.08), Q.Q6_K: (_q6_k, 0.08)}


def encode(weights, kind):
    """The stored bytes of a float32 matrix, and the values those bytes stand for."""
    if kind == Q.F32:
        return weights, weights
    if kind in K_ENCODERS:
        encoder, error = K_ENCODERS[kind]
        stored = encoder(weights.astype(np.float64).reshape(-1, 256)).reshape(len(weights), -1)
        values = gguf.quants.dequantize(stored, kind)
        assert np.abs(values - weights).max() < error * np.abs(weights).max(), kind
        return stored, values
    stored = gguf.quants.quantize(weights, kind)
    return stored, gguf.quants.dequantize(stored, kind)


# ---------------------------------------------------------------------------------------------------------------------
# Models

def vocabulary(size):
    """Pieces, scores and types of a small vocabulary of the "llama" (SentencePiece) kind."""
    kinds = gguf.TokenType
    entries = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL), ("<0x0A>", kinds.BYTE)]
    letters = "\u2581etaoinshrdlcumwfgypbvkjxqz.,!?'"
    pieces = [c for c in letters] + [a + b for a in letters[:13] for b in letters[1:13]]
    entries += [(piece, kinds.NORMAL) for piece in pieces][: size - len(entries)]
    assert len(entries) == size
    scores = [0.0 if kind != kinds.NORMAL else -float(i) for i, (_, kind) in enumerate(entries)]
    return [text for text, _ in entries], scores, [int(kind) for _, kind in entries]


def llama3_factors(model):
    """What Llama 3.1 divides each rotation frequency by: 1 for short waves, `factor` for long ones, a blend between."""
    p = model.rope_llama3
    wave = 2 * np.pi * model.rope_base ** (np.arange(0, model.head_dim, 2) / model.head_dim)
    blend = (p["original_context"] / wave - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
    blend = np.clip(blend, 0, 1)
    return (1 / ((1 - blend) / p["factor"] + blend)).astype(np.float32)


def make_weights(model):
    """float32 tensors by name. The scales keep attention peaked enough for positions to matter, and logits a few units wide."""
    random = np.random.default_rng(zlib.crc32(model.name.encode()))

    def matrix(rows, columns, gain):
        return (random.standard_normal((rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    def norm():
        return (1 + 0.2 * random.standard_normal(model.dim)).astype(np.float32)

    q_dim, kv_dim = model.heads * model.head_dim, model.kv_heads * model.head_dim
    w = {"token_embd.weight": matrix(model.vocab, model.dim, 2.5 if model.tied else np.sqrt(model.dim))}
    for i in range(model.layers):
        b = f"blk.{i}."
        q, k = matrix(q_dim, model.dim, 1.4), matrix(kv_dim, model.dim, 1.4)
        v, o = matrix(kv_dim, model.dim, 1.0), matrix(model.dim, q_dim, 1.0)
        gate, up, down = matrix(model.ffn, model.dim, 1.2), matrix(model.ffn, model.dim, 1.2), matrix(model.dim, model.ffn, 1.0)
        w[b + "attn_norm.weight"] = norm()
        if model.arch == "phi3":
            w |= {b + "attn_qkv.weight": np.concatenate([q, k, v]), b + "attn_output.weight": o}
            w |= {b + "ffn_norm.weight": norm(), b + "ffn_up.weight": np.concatenate([gate, up]), b + "ffn_down.weight": down}
        else:
            w |= {b + "attn_q.weight": q, b + "attn_k.weight": k, b + "attn_v.weight": v, b + "attn_output.weight": o}
            w |= {b + "ffn_norm.weight": norm(), b + "ffn_gate.weight": gate, b + "ffn_up.weight": up}
            w |= {b + "ffn_down.weight": down}
    w["output_norm.weight"] = norm()
    if not model.tied:
        w["output.weight"] = matrix(model.vocab, model.dim, 2.5)
    if model.rope_llama3:
        w["rope_freqs.weight"] = llama3_factors(model)
    tokens = np.concatenate([[1], random.integers(3, model.vocab, TOKEN_COUNT - 1)])
    return w, tokens


def write_gguf(model, stored, path):
    g = gguf.GGUFWriter(path, model.arch)
    g.add_name(model.name)
    g.add_context_length(256)
    g.add_embedding_length(model.dim)
    g.add_block_count(model.layers)
    g.add_feed_forward_length(model.ffn)
    g.add_head_count(model.heads)
    g.add_head_count_kv(model.kv_heads)
    g.add_layer_norm_rms_eps(model.eps)
    g.add_rope_dimension_count(model.head_dim)
    g.add_rope_freq_base(model.rope_base)
    g.add_vocab_size(model.vocab)
    if model.rope_linear:
        g.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        g.add_rope_scaling_factor(model.rope_linear)
    if model.window:
        g.add_sliding_window(model.window)
    if model.explicit_head_dim:
        g.add_key_length(model.head_dim)
        g.add_value_length(model.head_dim)
    pieces, scores, types = vocabulary(model.vocab)
    g.add_tokenizer_model("llama")
    g.add_token_list(pieces)
    g.add_token_scores(scores)
    g.add_token_types(types)
    g.add_unk_token_id(0)
    g.add_bos_token_id(1)
    g.add_eos_token_id(2)
    g.add_add_bos_token(True)
    for name, (data, kind) in stored.items():
        g.add_tensor(name, data, raw_dtype=kind)
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


# ---------------------------------------------------------------------------------------------------------------------
# Reference forward pass, float64

def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def rotate(x, model, factors):
    """Rotary positions on x [tokens, heads, head_dim]: neighbours form a pair in llama, the two halves do in phi3."""
    frequency = model.rope_base ** (-np.arange(0, model.head_dim, 2) / model.head_dim) / factors
    angle = (np.arange(len(x)) / (model.rope_linear or 1.0))[:, None] * frequency
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    half = model.head_dim // 2
    first, second = (slice(0, half), slice(half, None)) if model.arch == "phi3" else (slice(0, None, 2), slice(1, None, 2))
    y = np.empty_like(x)
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


def attention(q, k, v, window):
    n, heads, head_dim = q.shape
    group = heads // k.shape[1]
    query, key = np.arange(n)[:, None], np.arange(n)[None, :]
    visible = (key <= query) & (key > query - window if window else True)
    out = np.empty_like(q)
    for h in range(heads):
        score = q[:, h] @ k[:, h // group].T / np.sqrt(head_dim)
        score = np.where(visible, score, -np.inf)
        p = np.exp(score - score.max(axis=1, keepdims=True))
        out[:, h] = p / p.sum(axis=1, keepdims=True) @ v[:, h // group]
    return out


def forward(model, weights, tokens):
    w = {name: values.astype(np.float64) for name, values in weights.items()}
    n, q_dim, kv_dim = len(tokens), model.heads * model.head_dim, model.kv_heads * model.head_dim
    factors = w.get("rope_freqs.weight", 1.0)
    x = w["token_embd.weight"][tokens]
    for i in range(model.layers):
        def get(part):
            return w[f"blk.{i}.{part}.weight"]
        h = rms_norm(x, get("attn_norm"), model.eps)
        if model.arch == "phi3":
            q, k, v = np.split(h @ get("attn_qkv").T, [q_dim, q_dim + kv_dim], axis=1)
        else:
            q, k, v = h @ get("attn_q").T, h @ get("attn_k").T, h @ get("attn_v").T
        q, k, v = (t.reshape(n, -1, model.head_dim) for t in (q, k, v))
        q, k = rotate(q, model, factors), rotate(k, model, factors)
        x = x + attention(q, k, v, model.window).reshape(n, q_dim) @ get("attn_output").T
        h = rms_norm(x, get("ffn_norm"), model.eps)
        if model.arch == "phi3":
            gate, up = np.split(h @ get("ffn_up").T, 2, axis=1)
        else:
            gate, up = h @ get("ffn_gate").T, h @ get("ffn_up").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ get("ffn_down").T
    x = rms_norm(x, w["output_norm.weight"], model.eps)
    return x @ w["token_embd.weight" if model.tied else "output.weight"].T


# ---------------------------------------------------------------------------------------------------------------------

def make(model, folder):
    weights, tokens = make_weights(model)
    stored, exact = {}, {}
    for name, values in weights.items():
        kind = Q.F32
        if values.ndim == 2:
            kind = model.types.get(name.removesuffix(".weight"), model.types.get("*", Q.F32))
        data, exact[name] = encode(values, kind)
        stored[name] = (data, kind)
    write_gguf(model, stored, folder / f"{model.name}.gguf")
    logits = forward(model, exact, tokens)
    (folder / f"{model.name}.tokens").write_text(",".join(map(str, tokens)) + "\n")
    np.save(folder / f"{model.name}.npy", logits.astype(np.float32))
    size = (folder / f"{model.name}.gguf").stat().st_size
    print(f"{model.name:24} {size:8} bytes  logits {logits.min():.2f} .. {logits.max():.2f}, spread {logits.std():.2f}")


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "random_llamas"
    folder.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        if len(sys.argv) <= 2 or model.name in sys.argv[2:]:
            make(model, folder)


if __name__ == "__main__":
    main()
