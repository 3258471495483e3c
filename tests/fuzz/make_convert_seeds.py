#!/usr/bin/env python3
"""Write the seeds of fuzz_safetensors, fuzz_tokenizer_json and fuzz_front_matter: small inputs for each branch.

Usage: make_convert_seeds.py [SEEDS_FOLDER]
"""

import json
import struct
import sys
from pathlib import Path


def safetensors(header: dict, data: bytes) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str, shape: list, begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def tokenizer(model: dict, **fields) -> bytes:
    base = {"added_tokens": [{"id": 1, "content": "<s>", "special": True}], "model": {"type": "BPE", **model}}
    return json.dumps({**base, **fields}, ensure_ascii=False).encode()


def piece(text: str, score: float, kind: int) -> bytes:
    data = text.encode()
    body = b"\x0a" + bytes([len(data)]) + data + b"\x15" + struct.pack("<f", score) + b"\x18" + bytes([kind])
    return b"\x0a" + bytes([len(body)]) + body


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
VOCAB = {"<unk>": 0, "<s>": 1, "a": 2, "b": 3, "ab": 4, "▁": 5, "<0x41>": 6}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
TEMPLATE = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}

SAFETENSORS = {
    "two": safetensors({"__metadata__": {"format": "pt"}, "a": entry("F32", [1, 2], 0, 8), "b": entry("I8", [3], 8, 11)},
                       bytes(11)),
    "scalar": safetensors({"s": entry("BF16", [], 0, 2)}, bytes(2)),
    "empty": safetensors({}, b""),
    "nothing": safetensors({"n": entry("I64", [0, 5], 0, 0)}, b""),
    "overlap": safetensors({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, bytes(6)),
    "hole": safetensors({"a": entry("U8", [2], 2, 4)}, bytes(4)),
    "huge-shape": safetensors({"a": entry("F64", [2**40, 2**40], 0, 8)}, bytes(8)),
    "truncated": safetensors({"a": entry("F16", [8], 0, 16)}, bytes(16))[:-5],
}

TOKENIZERS = {
    "gpt2": tokenizer({"vocab": VOCAB, "merges": ["a b"]}, pre_tokenizer=BYTE_LEVEL, normalizer={"type": "NFC"}),
    "pairs": tokenizer({"vocab": VOCAB, "merges": [["a", "b"]], "ignore_merges": True},
                       pre_tokenizer={"type": "Sequence", "pretokenizers": [
                           {"type": "Digits", "individual_digits": True}, BYTE_LEVEL]}, post_processor=TEMPLATE),
    "spm": tokenizer({"vocab": VOCAB, "merges": ["a b"], "byte_fallback": True, "unk_token": "<unk>"},
                     normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, REPLACE]},
                     post_processor={"type": "Sequence", "processors": [TEMPLATE]}),
    "metaspace": tokenizer({"vocab": VOCAB, "merges": [], "byte_fallback": True},
                           pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}),
    "unigram": tokenizer({"type": "Unigram", "vocab": [["a", 0.0]]}),
    "split": tokenizer({"vocab": VOCAB, "merges": []}, pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "\\x{4E00}+|\\n"}, "behavior": "Isolated", "invert": False}),
    "pieces": piece("<unk>", 0, 2) + piece("▁a", -1.5, 1) + piece("<0x41>", 0, 6) + b"\x12\x02\x18\x02" +
    b"\x1a\x0a\x0a\x02id\x18\x01\x20\x00\x12\x00",
}


CARDS = {
    "texts": b"---\nlicense: mit # c\nname: 'it''s'\nlink: \"a\\\"b\"\n---\n# Title\n",
    "lists": b"---\r\ntags: [a, 'b, c', \"d\"]\r\nlanguage:\r\n- en\r\n- 'no'\r\n---\r\n",
    "nested": b"---\na:\n- b: c\n  d: [\ne: |\n  f\ng: {h: i}\n---\n",
    "open": b"---\na: \"b\nc: [d\n",
}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "seeds")
    for name, seeds in (("safetensors", SAFETENSORS), ("tokenizer_json", TOKENIZERS), ("front_matter", CARDS)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed, data in seeds.items():
            (folder / name / seed).write_bytes(data)


if __name__ == "__main__":
    main()
