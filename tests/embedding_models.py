#!/usr/bin/env python3
"""Writes small embedding models with random weights: a BERT that makes vectors, one that ranks, and one that labels, as llama.cpp's converter
writes them. No two of their numbers have a meaning; tests compare ways to the same vector.

    embedding_models.py FOLDER      writes minibert.gguf, minirank.gguf and minilabels.gguf there
"""
import random
import struct
import sys
from pathlib import Path

UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
FORMATS = {UINT32: "I", FLOAT32: "f", BOOL: "B"}

DIM, HEADS, HIDDEN, LAYERS, CONTEXT = 32, 4, 64, 2, 64
LETTERS = "abcdefghijklmnopqrstuvwxyz"
# WordPiece as llama.cpp keeps it: a word begins with U+2581, what goes on has nothing in front.
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *("▁" + c for c in LETTERS), *LETTERS, "▁the", "▁panda", "▁bear", "▁hello", "▁world",
         "▁.", "▁,", "▁!", "▁[", "▁]"]
PROMPTS = {"query": "hello ", "document": "the "}


def _text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind, value):
    return _text(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def _entry(key, kind, value):
    return _text(key) + struct.pack("<I", kind) + _value(kind, value)


def _array(key, kind, values):
    return _text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(_value(kind, value) for value in values)


def _entries(pooling, labels):
    out = [
        _entry("general.architecture", STRING, "bert"),
        _entry("bert.block_count", UINT32, LAYERS),
        _entry("bert.context_length", UINT32, CONTEXT),
        _entry("bert.embedding_length", UINT32, DIM),
        _entry("bert.feed_forward_length", UINT32, HIDDEN),
        _entry("bert.attention.head_count", UINT32, HEADS),
        _entry("bert.attention.layer_norm_epsilon", FLOAT32, 1e-12),
        _entry("bert.attention.causal", BOOL, 0),
        _entry("bert.pooling_type", UINT32, pooling),
        _entry("tokenizer.ggml.model", STRING, "bert"),
        _entry("tokenizer.ggml.token_type_count", UINT32, 2),
        _entry("tokenizer.ggml.unknown_token_id", UINT32, 1),
        _entry("tokenizer.ggml.padding_token_id", UINT32, 0),
        _entry("tokenizer.ggml.cls_token_id", UINT32, 2),
        _entry("tokenizer.ggml.bos_token_id", UINT32, 2),
        _entry("tokenizer.ggml.seperator_token_id", UINT32, 3),
        _entry("tokenizer.ggml.eos_token_id", UINT32, 3),
        _entry("tokenizer.ggml.mask_token_id", UINT32, 4),
        _array("tokenizer.ggml.tokens", STRING, WORDS),
        _array("tokenizer.ggml.token_type", 5, [3 if word.startswith("[") else 1 for word in WORDS]),
    ]
    if labels:
        out.append(_array("bert.classifier.output_labels", STRING, labels))
    else:
        out += [_array("general.prompts.names", STRING, list(PROMPTS)), _array("general.prompts.texts", STRING, list(PROMPTS.values()))]
    return out


FORMATS[5] = "i"


def _shapes(labels):
    shapes = {"token_embd.weight": (len(WORDS), DIM), "position_embd.weight": (CONTEXT, DIM), "token_types.weight": (2, DIM),
              "token_embd_norm.weight": (DIM,), "token_embd_norm.bias": (DIM,)}
    for i in range(LAYERS):
        block = f"blk.{i}."
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            shapes[block + name + ".weight"], shapes[block + name + ".bias"] = (DIM, DIM), (DIM,)
        shapes[block + "ffn_up.weight"], shapes[block + "ffn_up.bias"] = (HIDDEN, DIM), (HIDDEN,)
        shapes[block + "ffn_down.weight"], shapes[block + "ffn_down.bias"] = (DIM, HIDDEN), (DIM,)
        for name in ("attn_output_norm", "layer_output_norm"):
            shapes[block + name + ".weight"], shapes[block + name + ".bias"] = (DIM,), (DIM,)
    if labels:
        shapes["cls.weight"], shapes["cls.bias"] = (DIM, DIM), (DIM,)
        shapes["cls.output.weight"], shapes["cls.output.bias"] = (len(labels), DIM), (len(labels),)
    return shapes


def model(pooling, labels=(), seed=1):
    """The bytes of a file; `pooling` is the number of pooling_type."""
    draw = random.Random(seed)
    entries, shapes = _entries(pooling, list(labels)), _shapes(labels)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(entries)) + b"".join(entries)
    data = b""
    for name, shape in shapes.items():
        head += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape)) + struct.pack("<IQ", 0, len(data))
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        one = 1.0 if "norm.weight" in name else 0.0
        values = [one + draw.gauss(0, 0.2) for _ in range(count)]
        data += struct.pack(f"<{count}f", *values)
        data += bytes(-len(data) % 32)
    return head + bytes(-len(head) % 32) + data


def write(folder):
    """The files by name."""
    files = {"minibert": model(1), "minirank": model(4, ["relevance"], 2), "minilabels": model(4, ["good", "bad", "neither"], 3)}
    paths = {}
    for name, data in files.items():
        paths[name] = Path(folder) / (name + ".gguf")
        paths[name].write_bytes(data)
    return paths


if __name__ == "__main__":
    write(sys.argv[1])
