#!/usr/bin/env python3
"""Compare kvant and llama.cpp on the models of tests/reference/seeded: converted by kvant, run by both.

For each model the last position's logits are compared: of llama.cpp, of kvant, and of the reference that the fixtures hold. A line each:

    NAME  kvant DIFFERENCE  llama.cpp DIFFERENCE  (of logits that spread over so much)

DIFFERENCE is the largest one from the reference, or why llama.cpp did not load the file. llama.cpp computes in its own formats (16-bit
keys and values), so that differences of some 1e-3 of the spread are roundings; what is above `--tolerance` of the spread is marked "!".

Usage: compare_with_llama_cpp.py KVANT_PROGRAM [NAME_BEGINNING ...] [--tolerance 0.02] [--library libllama.so]
Needs numpy and a shared object that has llama.h: that of xllamacpp==2026.10.11549, or another build's with --library (b11739 is in
the package llama-cpp-py-sync==0.11739, which needs glibc 2.38).
"""
import argparse
import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

# What llama.cpp expects of a family, in settings, layers and rows of keys and values. These models have no reference, so it is compared
# with kvant: constants of the released models; their numbers of layers, by which it knows ALiBi; as many kv heads as heads; no layers
# without experts; weights of experts that are normalized; the multiplier of released models in YaRN.
ALIKE = {
    "llama4": dict(settings=dict(attention_chunk_size=8192, attn_scale=0.1, floor_scale=8192)),
    "baichuan": dict(settings=dict(num_hidden_layers=32), layers=32),
    "baichuan-alibi": dict(settings=dict(num_hidden_layers=40), layers=40),
    "dots1": dict(settings=dict(num_key_value_heads=4), kv_factor=2),
    "olmoe": dict(settings=dict(num_key_value_heads=4), kv_factor=2),
    "deepseek32": dict(settings=dict(rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 500.0, "mscale": 1.0, "mscale_all_dim": 1.0})),
    "kimi-linear-published": dict(settings=dict(moe_renormalize=True)),
    "minicpm-short": dict(settings=dict(original_max_position_embeddings=256, max_position_embeddings=1024)),
    "phi3-short": dict(settings=dict(original_max_position_embeddings=256, max_position_embeddings=1024)),
}

SEEDED = Path(__file__).parent / "seeded"
PARAMS_BYTES = 512  # more than any of llama.h's parameters have


def splitmix(seed, count):
    with np.errstate(over="ignore"):
        x = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def seeded(row):
    """The numbers of a tensor, as in make_seeded_models.py."""
    seed = 0xCBF29CE484222325
    for byte in row["name"].encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    top = (splitmix(seed, int(np.prod(row["shape"]))) >> np.uint64(48)).astype(np.float64)
    return (row["mean"] + row["spread"] * ((top - 32767.5) / 32768.0)).astype(np.float32).reshape(row["shape"])


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + values.nbytes]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def tokenizer(vocab):
    pieces = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{i:02X}>": 3 + i for i in range(vocab - 3)}
    special = [{"id": i, "content": text, "special": True} for i, text in enumerate(("<unk>", "<s>", "</s>"))]
    return {"added_tokens": special, "normalizer": None,
            "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
            "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "vocab": pieces, "merges": []}}


def make_alike(model, settings, layers=0, kv_factor=1):
    model["config"].update(settings)
    rows = model["tensors"]
    for row in rows:
        of_one_head = row["shape"] == [model["config"].get("head_dim")]
        if any(part in row["name"] for part in ("k_proj", "v_proj", "k_norm")) and not of_one_head:
            row["shape"] = [kv_factor * row["shape"][0]] + row["shape"][1:]
    for layer in range(layers):
        names = [row["name"] for row in rows]
        for row in [row for row in rows if ".layers.0." in row["name"]]:
            new = row["name"].replace(".layers.0.", f".layers.{layer}.")
            if new not in names:
                rows.append(dict(row, name=new))


def convert(program, name, folder):
    """Writes the model's folder and has it converted; the path of the GGUF file."""
    model = json.loads((SEEDED / f"{name}.json").read_text())
    if name in ALIKE:
        make_alike(model, **ALIKE[name])
    (folder / "config.json").write_text(json.dumps(model["config"]))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(model["config"]["vocab_size"])))
    write_safetensors(folder / "model.safetensors", {row["name"]: seeded(row) for row in model["tensors"]})
    output = folder / "model.gguf"
    subprocess.run([program, "convert", str(folder), str(output), "--type", "f32"], check=True, capture_output=True)
    return model, output


def kvant_logits(program, path, model, folder):
    tokens = ",".join(map(str, model["tokens"]))
    output = folder / "logits.npy"
    subprocess.run([program, "logits", str(path), "--tokens", tokens, "-o", str(output), "--kv-type", "f32", "-c", str(model["context"])],
                   check=True, capture_output=True)
    return np.load(output)[-1]


class Params(ctypes.Structure):
    """A struct of llama.h that is passed on as its default, but for numbers at its beginning."""
    _fields_ = [("bytes", ctypes.c_uint8 * PARAMS_BYTES)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("token", ctypes.c_void_p), ("embd", ctypes.c_void_p), ("pos", ctypes.c_void_p),
                ("n_seq_id", ctypes.c_void_p), ("seq_id", ctypes.c_void_p), ("logits", ctypes.c_void_p)]


def packaged_library():
    import xllamacpp.xllamacpp as wheel
    return wheel.__file__


def llama_cpp_logits(library, path, tokens, context, vocab):
    """To be called in a process of its own: llama.cpp aborts on some files."""
    library = ctypes.CDLL(library)

    def function(name, result, *arguments):
        found = getattr(library, name)
        found.restype, found.argtypes = result, arguments
        return found

    model = function("llama_model_load_from_file", ctypes.c_void_p, ctypes.c_char_p, Params)(
        str(path).encode(), function("llama_model_default_params", Params)())
    if not model:
        raise RuntimeError("llama.cpp does not load the file")
    params = function("llama_context_default_params", Params)()
    struct.pack_into("<III", params.bytes, 0, context, context, context)  # n_ctx, n_batch, n_ubatch
    made = function("llama_init_from_model", ctypes.c_void_p, ctypes.c_void_p, Params)(model, params)
    if not made:
        raise RuntimeError("llama.cpp makes no context")
    ids = (ctypes.c_int32 * len(tokens))(*tokens)
    batch = function("llama_batch_get_one", Batch, ctypes.c_void_p, ctypes.c_int32)(ctypes.cast(ids, ctypes.c_void_p), len(tokens))
    if function("llama_decode", ctypes.c_int32, ctypes.c_void_p, Batch)(made, batch) != 0:
        raise RuntimeError("llama.cpp cannot decode")
    logits = function("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), ctypes.c_void_p, ctypes.c_int32)(made, -1)
    return np.array(logits[:vocab], dtype=np.float32)


def run_llama_cpp(library, path, model, folder):
    """The logits, or the last line that the process wrote."""
    task = {"library": library, "path": str(path), "tokens": model["tokens"], "context": model["context"],
            "vocab": model["config"]["vocab_size"], "output": str(folder / "other.npy")}
    # With a backtrace, some builds never end after an assertion.
    done = subprocess.run([sys.executable, __file__, "--one", json.dumps(task)], capture_output=True, text=True,
                          env=dict(os.environ, GGML_NO_BACKTRACE="1"))
    if done.returncode == 0:
        return np.load(folder / "other.npy")
    lines = [line for line in done.stderr.splitlines() if "error" in line or "GGML_ASSERT" in line]
    return lines[0].strip() if lines else f"ended with {done.returncode}"


def compare(program, library, name, tolerance):
    expected = np.load(SEEDED / f"{name}.npy")[-1]
    spread = expected.max() - expected.min()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model, path = convert(program, name, folder)
        found = kvant_logits(program, path, model, folder)
        expected = found if name in ALIKE else expected
        own = np.abs(found - expected).max()
        other = run_llama_cpp(library, path, model, folder)
    if isinstance(other, str):
        print(f"{name:22} kvant {own:.1e}  llama.cpp: {other[:180]}")
        return False
    difference = np.abs(other - expected).max()
    agrees = bool(difference <= tolerance * spread)
    own = "the reference" if name in ALIKE else f"{own:.1e}"
    print(f"{name:22} kvant {own}  llama.cpp {difference:.1e}  (of {spread:.1f}){'' if agrees else ' !'}")
    return agrees


def main():
    if sys.argv[1:2] == ["--one"]:
        task = json.loads(sys.argv[2])
        np.save(task["output"], llama_cpp_logits(task["library"], task["path"], task["tokens"], task["context"], task["vocab"]))
        os._exit(0)
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tolerance", type=float, default=0.02)
    parser.add_argument("--library", dest="shared_object")
    options = parser.parse_args()
    library = options.shared_object or packaged_library()
    names = sorted(path.stem for path in SEEDED.glob("*.json"))
    chosen = [name for name in names if not options.names or any(name.startswith(begin) for begin in options.names)]
    agreeing = sum([compare(options.program, library, name, options.tolerance) for name in chosen])
    print(f"llama.cpp agrees on {agreeing} of {len(chosen)}")


if __name__ == "__main__":
    main()
