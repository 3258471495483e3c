#!/usr/bin/env python3
"""Compares kvant with transformers and llama.cpp on the released models that `./dev models` fetches, and writes tests/real/expected.

    compare_real_models.py [--write=PART,...] [--llama-cpp PYTHON] [--llama-quantize PROGRAM] [NAME...]

transformers loads the same GGUF file and dequantizes it; kvant runs the file that it dequantized itself. Printed is the largest
difference of all logits of a text, at every position. With --write, what tests/real compares with is computed and written, all or some
parts: the 20 likeliest tokens at some positions of a text and of a long one, greedy answers, perplexities; and the divergence of
llama.cpp on the file (tests/reference/llama_cpp_real_models.py under the other PYTHON) and of the mixes of llama-quantize.
Needs torch, transformers 4.57.1, accelerate, gguf and numpy; exits with 77 where they are not there.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real"))

try:
    import numpy as np
    import torch
    import transformers
    import accelerate  # noqa: F401  transformers asks for it when it reads GGUF
    import gguf  # noqa: F401
except ImportError as error:
    print(f"compare_real_models: skipped: {error}", file=sys.stderr)
    sys.exit(77)

import common

POSITIONS = 20
TOP = 20
LONG = {"gemma3-270m": 370}  # sentences, some 6,000 tokens, through windows of 512
LONG_POSITIONS = (511, 512, 700, 1500, -1)
WINDOW = 512  # tokens of a window of perplexity, of which the second half is scored
WINDOWS_MAX = {"gemma3-270m": 6, "qwen2.5-coder-0.5b": 6}
QUESTIONS = ("What is the largest ocean on Earth?", "How many days are in a week?")  # for models with a chat template
ANSWER_TOKENS = 24
TEMPLATES = ("smollm2", "qwen2.5-coder-0.5b")
PARTS = ("text", "long", "answers", "divergence", "mixes", "perplexity")
QUANTIZED = ("smollm2",)  # the models of which every mix is made
LLAMA_CPP_VERSION = "llama.cpp b11549"
LLAMA_QUANTIZE_VERSION = "llama-quantize of ik-llama-cpp-python 0.1.5"
LLAMA_CPP = Path(__file__).with_name("llama_cpp_real_models.py")


def load(name):
    path = common.path_of(name)
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    return model.eval()


@torch.no_grad()
def rows_of(model, tokens, positions=None):
    """Logits behind each token, or behind those at the positions: [rows, vocabulary]."""
    hidden = model.model(torch.tensor([tokens])).last_hidden_state[0]
    if positions is not None:
        hidden = hidden[list(positions)]
    return model.lm_head(hidden).numpy()


def top_of(rows, positions):
    """The likeliest tokens of each row and their logits."""
    ids = [np.argsort(-row, kind="stable")[:TOP].tolist() for row in rows]
    values = [[round(float(row[i]), 5) for i in chosen] for row, chosen in zip(rows, ids)]
    return {"positions": list(positions), "ids": ids, "logits": values}


def spread_positions(count):
    """The first and the last, and others between them."""
    return sorted({round(i * (count - 1) / (POSITIONS - 1)) for i in range(POSITIONS)})


def perplexity(model, name, windows_max):
    """As llama-perplexity counts: windows that do not overlap, each with BOS in place of its first token where the model wants one."""
    tokens = common.tokenize(name, common.shared_text(common.PERPLEXITY_BYTES))
    windows = min(len(tokens) // WINDOW, windows_max)
    total, count, first = 0.0, 0, WINDOW // 2
    for window in range(windows):
        ids = tokens[window * WINDOW:(window + 1) * WINDOW]
        bos = common.BOS.get(name, [])
        ids = [*bos, *ids[len(bos):]]
        rows = rows_of(model, ids, range(first, WINDOW - 1)).astype(np.float64)
        for row, target in zip(rows, ids[first + 1:]):
            total -= row[target] - np.logaddexp.reduce(row)
            count += 1
        print(f"{name}: window {window + 1} of {windows}: {math.exp(total / count):.4f}", file=sys.stderr)
    return {"windows": windows, "transformers": math.exp(total / count)}


@torch.no_grad()
def answers(model, name):
    """Greedy answers to first messages; the prompts are kvant's tokens of what the model's own template makes of them."""
    found = []
    for question in QUESTIONS:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump([{"role": "user", "content": question}], file)
            file.flush()
            prompt = [int(word) for word in common.kvant("template", common.path_of(name), file.name, "--ids").split()]
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=ANSWER_TOKENS, do_sample=False, num_beams=1)
        answer = [token for token in out[0, len(prompt):].tolist() if token != model.config.eos_token_id]
        found.append({"question": question, "prompt": prompt, "answer": answer})
    return found


def compare(name, file, model):
    """Prints the largest difference of all logits of common.TEXT; what tests compare with, computed in float64."""
    tokens = common.tokenize(name, common.TEXT)
    single = rows_of(model, tokens)
    exact = rows_of(model.double(), tokens)
    model.float()
    ours = common.logits(file, tokens)
    print(f"{name}: {len(tokens)} tokens, logits up to {np.abs(exact).max():.1f}; differences from transformers in float64: kvant "
          f"{np.abs(ours - exact).max():.1e}, transformers in float32 {np.abs(single - exact).max():.1e}", flush=True)
    positions = spread_positions(len(tokens))
    return {"tokens": tokens, **top_of(exact[positions], positions)}


def compare_long(name, file, model):
    tokens = common.tokenize(name, common.long_text(LONG[name]))
    positions = [position % len(tokens) for position in LONG_POSITIONS]
    rows = rows_of(model, tokens, positions)
    ours = common.last_logits(file, tokens, positions)
    print(f"{name}: {len(tokens)} tokens: kvant differs from transformers by {np.abs(ours - rows).max():.1e}", flush=True)
    return {"sentences": LONG[name], "tokens": len(tokens), **top_of(rows, positions)}


def run_other(*command):
    run = subprocess.run([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"compare_real_models: {command[0]}: {run.stderr.strip().splitlines()[-1]}")


def divergences(python, name, file, folder):
    """llama.cpp's and kvant's divergence from the dequantized model, of the file as it is: token by token, and all at once."""
    tokens = common.tokenize(name, common.shared_text(8 * common.DIVERGENCE_TOKENS))[:common.DIVERGENCE_TOKENS]
    base = common.logits(file, tokens)
    (folder / "tokens.json").write_text(json.dumps(tokens))
    found = {"by": LLAMA_CPP_VERSION}
    for way, chunk, options in (("decode", 1, ["--strict"]), ("prefill", len(tokens), [])):
        run_other(python, LLAMA_CPP, common.path_of(name), folder / "tokens.json", chunk, folder / "theirs.npy")
        found[way] = round(common.divergence(base, np.load(folder / "theirs.npy")), 6)
        ours = common.divergence(base, common.logits(common.path_of(name), tokens, "--kv-type", "f16", *options))
        print(f"{name}: divergence in {way}: kvant {ours:.6f}, llama.cpp {found[way]:.6f}", flush=True)
    return found


def mixes(llama_quantize, name, folder):
    """The divergence of llama-quantize's file of each mix, made of the model in F16, as kvant computes both."""
    found = {"by": LLAMA_QUANTIZE_VERSION}
    with common.dequantized(name, "F16") as file:
        tokens = common.tokenize(name, common.shared_text(8 * common.DIVERGENCE_TOKENS))[:common.DIVERGENCE_TOKENS]
        base = common.logits(file, tokens)
        for mix in common.MIXES:
            run_other(llama_quantize, file, folder / "mix.gguf", mix, os.cpu_count())
            found[mix] = round(common.divergence(base, common.logits(folder / "mix.gguf", tokens)), 6)
            common.kvant("quantize", file, folder / "own.gguf", mix)
            ours = common.divergence(base, common.logits(folder / "own.gguf", tokens))
            print(f"{name}: {mix}: kvant's file {ours:.6f}, llama-quantize's {found[mix]:.6f}", flush=True)
    return found


def dump(path, values):
    """A line for each entry, and for each list in it."""
    def text(value, indent):
        if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], (list, dict))):
            inner = value.items() if isinstance(value, dict) else [(None, one) for one in value]
            lines = [" " * (indent + 1) + ("" if key is None else json.dumps(key) + ": ") + text(one, indent + 1) for key, one in inner]
            brackets = "{}" if isinstance(value, dict) else "[]"
            return brackets[0] + "\n" + ",\n".join(lines) + "\n" + " " * indent + brackets[1]
        return json.dumps(value, ensure_ascii=False)
    path.write_text(text(values, 0) + "\n", encoding="utf-8")


def process(name, parts, options):
    """Adds the parts to what is known of the model, and writes it behind each."""
    path = common.EXPECTED / f"{name}.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"transformers": transformers.__version__}
    with common.dequantized(name) as file, tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model = load(name) if set(parts) - {"divergence", "mixes"} else None
        makers = {
            "text": lambda: compare(name, file, model),
            "long": lambda: compare_long(name, file, model) if name in LONG else None,
            "answers": lambda: answers(model, name) if name in TEMPLATES else None,
            "divergence": lambda: divergences(options.llama_cpp, name, file, folder),
            "mixes": lambda: mixes(options.llama_quantize, name, folder) if name in QUANTIZED else None,
            "perplexity": lambda: perplexity(model, name, WINDOWS_MAX.get(name, 1000))}
        for part in parts:
            made = makers[part]()
            if made is not None:
                found[part] = made
                dump(path, found)


def compare_all(name):
    with common.dequantized(name) as file:
        model = load(name)
        compare(name, file, model)
        if name in LONG:
            compare_long(name, file, model)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", nargs="?", const=",".join(PARTS), metavar="PART,...", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--llama-cpp", metavar="PYTHON", help="a Python with xllamacpp, for the part divergence")
    parser.add_argument("--llama-quantize", metavar="PROGRAM", help="for the part mixes")
    options = parser.parse_args()
    parts = (options.write or "").split(",") if options.write else []
    missing = [part for part, needs in (("divergence", options.llama_cpp), ("mixes", options.llama_quantize)) if part in parts and not needs]
    if missing or set(parts) - set(PARTS):
        parser.error(f"--write: expected of {', '.join(PARTS)}, divergence with --llama-cpp and mixes with --llama-quantize")
    for name in options.names or common.NAMES:
        process(name, parts, options) if parts else compare_all(name)


if __name__ == "__main__":
    main()
