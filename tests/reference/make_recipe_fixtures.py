"""Writes tests/engine/quantize/recipes.json: the tensor types that llama-quantize gives to models of many shapes.

usage: make_recipe_fixtures.py LLAMA_QUANTIZE OUT.json
       make_recipe_fixtures.py LLAMA_QUANTIZE OUT.json --ik

With --ik, tests/engine/quantize/recipes_ik.json: the recipes that only ik_llama.cpp has (August 2026), as its
llama-quantize says with --dry-run.

The models have real structures and tiny matrices (256 columns where nothing else is said, two
rows). Reference: llama.cpp at commit c392e5094. For every model, with and without an importance
matrix, and every recipe: one character per tensor, in the order of the model's tensors, that
indexes the list "types"; null where llama-quantize refuses.
"""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile

import gguf
import numpy as np

RECIPES = """IQ1_S IQ1_M TQ1_0 TQ2_0 IQ2_XXS IQ2_XS IQ2_S IQ2_M Q2_K_S Q2_K IQ3_XXS IQ3_XS IQ3_S IQ3_M
Q3_K_S Q3_K_M Q3_K_L IQ4_XS IQ4_NL Q4_0 Q4_K_S Q4_K_M Q4_1 Q5_0 Q5_K_S Q5_K_M Q5_1 Q6_K Q8_0 F16 BF16
F32""".split()
RECIPES_OF_IK = """IQ1_KT IQ2_KT IQ3_KT IQ4_KT IQ2_KS IQ2_K IQ2_KL IQ3_KS IQ3_K IQ3_KL IQ4_KSS IQ4_KS IQ4_K IQ5_KS
IQ5_K IQ6_K Q6_0 Q8_KV""".split()


def llama_layers(layers, experts=0, shared=False, widths=None):
    widths = widths or {}
    rows = []
    for i in range(layers):
        names = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm"]
        if experts:
            names += ["ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"]
            if shared:
                names += ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"]
        else:
            names += ["ffn_gate", "ffn_up", "ffn_down"]
        for name in names:
            shape = [widths.get(name, 256), 2]
            if name.endswith("_norm"):
                shape = [256]
            if name.endswith("_exps"):
                shape.append(experts)
            rows.append((f"blk.{i}.{name}.weight", shape))
    return rows


def falcon_layers(layers):
    rows = []
    for i in range(layers):
        for name in ["attn_norm", "attn_qkv", "attn_output", "ffn_up", "ffn_down"]:
            rows.append((f"blk.{i}.{name}.weight", [256] if name.endswith("_norm") else [256, 2]))
    return rows


ENDS = [("token_embd.weight", [256, 4]), ("output_norm.weight", [256])]
OUTPUT = [("output.weight", [256, 4])]

MODELS = {
    "llama, grouped heads": dict(arch="llama", layers=32, heads=32, kv=4,
                                 tensors=ENDS + OUTPUT + llama_layers(32)),
    "llama, tied, odd rows": dict(
        arch="llama", layers=9, heads=8, kv=8,
        tensors=ENDS + llama_layers(9, widths={"ffn_down": 288, "attn_output": 40, "attn_q": 96})),
    "llama, odd embedding": dict(arch="llama", layers=4, heads=4, kv=2,
                                 tensors=[("token_embd.weight", [96, 4]), ("output.weight", [96, 4])]
                                 + llama_layers(4)),
    "llama 70B": dict(arch="llama", layers=80, heads=64, kv=8,
                      tensors=ENDS + OUTPUT + llama_layers(80)),
    "mixtral": dict(arch="llama", layers=16, heads=32, kv=8, experts=8,
                    tensors=ENDS + OUTPUT + llama_layers(16, experts=8)),
    "qwen2moe": dict(arch="qwen2moe", layers=10, heads=16, kv=16, experts=4,
                     tensors=ENDS + OUTPUT + llama_layers(10, experts=4, shared=True)),
    "falcon": dict(arch="falcon", layers=32, heads=64, kv=8,
                   tensors=ENDS + OUTPUT + falcon_layers(32)),
}


def write_model(path, model):
    writer = gguf.GGUFWriter(path, model["arch"])
    writer.add_block_count(model["layers"])
    writer.add_context_length(256)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(256)
    writer.add_head_count(model["heads"])
    writer.add_head_count_kv(model["kv"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    if "experts" in model:
        writer.add_expert_count(model["experts"])
        writer.add_expert_used_count(2)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "b", "c", "d"])
    random = np.random.default_rng(1)
    for name, shape in model["tensors"]:
        writer.add_tensor(name, random.standard_normal(shape[::-1]).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_imatrix(path, model):
    """An entry of ones for every matrix but the embedding."""
    entries = [(name, shape) for name, shape in model["tensors"]
               if len(shape) > 1 and name != "token_embd.weight"]
    with open(path, "wb") as file:
        file.write(struct.pack("<i", len(entries)))
        for name, shape in entries:
            count = shape[0] * (shape[2] if len(shape) > 2 else 1)
            file.write(struct.pack("<i", len(name)) + name.encode())
            file.write(struct.pack("<ii", 1, count) + struct.pack("<f", 1.0) * count)


def types_of(path, names):
    found = {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}
    return [found[name] for name in names]


def types_of_dry_run(output, names):
    found = {}
    for line in output.splitlines():
        match = re.match(r"\[ *\d+/ *\d+\] +(\S+) - ", line)
        if match:
            name = match.group(1)
            found[name] = "f32"
        match = re.search(r"converting to (\w+) ", line)
        if match:
            found[name] = match.group(1)
    return [found[name].upper() for name in names]


def main():
    quantize, out = sys.argv[1:3]
    of_ik = sys.argv[3:] == ["--ik"]
    if of_ik:  # which names a format for 40 columns and would stop when it encodes
        for model in MODELS.values():
            model["tensors"] = [(name, [96 if n == 40 else n for n in shape])
                                for name, shape in model["tensors"]]
    types = []
    fixtures = []
    with tempfile.TemporaryDirectory() as folder:
        source, target, imatrix = (os.path.join(folder, n) for n in ("in.gguf", "out.gguf", "i.dat"))
        for title, model in MODELS.items():
            write_model(source, model)
            write_imatrix(imatrix, model)
            names = [name for name, _ in model["tensors"]]
            for weighed in (False, True):
                results = {}
                for recipe in RECIPES_OF_IK if of_ik else RECIPES:
                    if os.path.exists(target):
                        os.remove(target)
                    options = ["--imatrix", imatrix] if weighed else []
                    options += ["--dry-run"] if of_ik else []
                    done = subprocess.run([quantize, *options, source, target, recipe, "1"],
                                          capture_output=True, text=True)
                    if done.returncode != 0:
                        results[recipe] = None
                        continue
                    codes = ""
                    chosen = (types_of_dry_run(done.stdout + done.stderr, names) if of_ik
                              else types_of(target, names))
                    for name in chosen:
                        if name not in types:
                            types.append(name)
                        codes += chr(ord("A") + types.index(name))
                    results[recipe] = codes
                fixtures.append(dict(
                    model=title, arch=model["arch"], layers=model["layers"], heads=model["heads"],
                    kv_heads=model["kv"], experts=model.get("experts", 0), importance=weighed,
                    results=results))
                print(title, weighed, sum(v is None for v in results.values()), "refused")
    shapes = {title: [[name, shape] for name, shape in model["tensors"]]
              for title, model in MODELS.items()}
    with open(out, "w") as file:
        json.dump(dict(types=types, tensors=shapes, fixtures=fixtures), file, separators=(",", ":"))
        file.write("\n")


main()
