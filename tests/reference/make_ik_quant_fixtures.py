"""Writes the fixtures of tests/quant for formats of ik_llama.cpp and for Q1_0 and Q2_0.

decode_blocks_ik.json: as decode_blocks.json, from the conversions of ik_llama.cpp's library (August
2026), Q2_0 from llama.cpp's. Random rows: one block, or what the row begins with and two blocks.

encode_errors_ik.json: the root mean square errors that ik_llama.cpp's encoders leave on the rows of
encode_errors.json, plain and weighted. Q1_0 and Q2_0 from llama.cpp's, which ignores importances.

    python3 tests/reference/make_ik_quant_fixtures.py path/to/ik/libggml.so path/to/llama/ggml-quants.so

Packages: requirements.txt.
"""

import ctypes
import json
import os
import pathlib
import sys

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "quant"

# Name: id, values and bytes of a block, kind of the number at the beginning of a row, byte offset of
# the half-precision scale of a block.
FORMATS = {
    "Q1_0": (41, 128, 18, "", 0),
    "Q2_0": (42, 64, 18, "", 0),
    "Q6_0": (133, 32, 26, "", 0),
    "IQ2_K": (137, 256, 76, "", 0),
    "IQ3_K": (138, 256, 110, "", 0),
    "IQ4_K": (139, 256, 144, "", 0),
    "IQ5_K": (140, 256, 176, "", 0),
    "IQ6_K": (141, 256, 212, "", 0),
    "IQ2_KS": (145, 256, 70, "half", None),
    "IQ2_KL": (157, 256, 86, "half", None),
    "IQ3_KS": (156, 256, 102, "half", None),
    "IQ4_KSS": (146, 256, 128, "float", None),
    "IQ4_KS": (144, 256, 136, "float", None),
    "IQ5_KS": (152, 256, 168, "float", None),
    "Q8_KV": (151, 32, 32, "float and sum", None),
    "IQ1_BN": (134, 64, 13, "half", None),
    "IQ2_BN": (135, 64, 16, "float", None),
    "IQ1_KT": (158, 256, 56, "float", None),
    "IQ2_KT": (153, 256, 68, "float", None),
    "IQ3_KT": (154, 256, 100, "float", None),
    "IQ4_KT": (155, 256, 128, "float", None),
}
LLAMA = ("Q1_0", "Q2_0")
# Scales as bits: ordinary, subnormal, infinite.
HALVES = (0x2E66, 0x8123, 0x7C00)
FLOATS = (0x3DCCCCCD, 0x80012345, 0x7F800000)


class InitParams(ctypes.Structure):
    _fields_ = [
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    ]


def pointer(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


class Engines:
    def __init__(self, ik, llama):
        self.ik = ctypes.CDLL(ik)
        self.llama = ctypes.CDLL(llama, mode=os.RTLD_LAZY)
        self.ik.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
        self.ik.ggml_init.argtypes = [InitParams]
        self.ik.ggml_init(InitParams(1 << 20, None, True))  # fills its table of halves

    def decode(self, name, row, count):
        values = np.zeros(count, np.float32)
        library = self.llama if name in LLAMA else self.ik
        function = "q8_KV" if name == "Q8_KV" else name.lower()
        # Those of BitNet leave out the row's scale, and do not expect it.
        without_scale = name in ("IQ1_BN", "IQ2_BN")
        blocks = np.ascontiguousarray(row[head_bytes(name) :]) if without_scale else row
        library["dequantize_row_" + function](
            pointer(blocks), pointer(values), ctypes.c_int64(count)
        )
        if without_scale:
            kind = np.float16 if head_bytes(name) == 2 else np.float32
            values *= row[: head_bytes(name)].view(kind).astype(np.float32)
        return values

    def encode(self, name, rows, importance):
        number, _, _, _, _ = FORMATS[name]
        size = row_bytes(name, rows.shape[1])
        blocks = np.zeros((rows.shape[0], size), np.uint8)
        if name in LLAMA:
            for row, out in zip(rows, blocks):
                self.llama["quantize_row_" + name.lower() + "_ref"](
                    pointer(row), pointer(out), ctypes.c_int64(rows.shape[1])
                )
            return blocks
        if importance is None and self.ik.ggml_quantize_requires_imatrix(ctypes.c_int(number)):
            importance = np.ones(rows.shape[1], np.float32)
        self.ik.ggml_quantize_chunk(
            ctypes.c_int(number),
            pointer(rows),
            pointer(blocks),
            ctypes.c_int64(0),
            ctypes.c_int64(rows.shape[0]),
            ctypes.c_int64(rows.shape[1]),
            pointer(importance),
            None,
        )
        return blocks


def head_bytes(name):
    return {"": 0, "half": 2, "float": 4, "float and sum": 8}[FORMATS[name][3]]


def row_bytes(name, columns):
    _, values, block, _, _ = FORMATS[name]
    return head_bytes(name) + columns // values * block


def float_bits(values):
    return " ".join("nan" if np.isnan(v) else f"{v.view(np.uint32):08x}" for v in values)


def write_json(name, content):
    with open(FOLDER / name, "w", encoding="ascii") as out:
        json.dump(content, out, indent=0)
        out.write("\n")


def decode_blocks(engines):
    random = np.random.default_rng(20260801)
    fixtures = {}
    for name, (_, values, _, head, offset) in FORMATS.items():
        blocks = []
        for half, single in zip(HALVES, FLOATS):
            count = values if head == "" else 2 * values
            row = random.integers(0, 256, row_bytes(name, count), dtype=np.uint8)
            if head in ("float", "float and sum"):
                row[:4] = np.frombuffer(np.uint32(single).tobytes(), np.uint8)
            elif head == "half" or offset is not None:
                at = 0 if head == "half" else offset
                row[at : at + 2] = half & 255, half >> 8
            with np.errstate(all="ignore"):
                decoded = engines.decode(name, row, count)
            blocks.append({"bytes": row.tobytes().hex(), "values": float_bits(decoded)})
        fixtures[name] = blocks
    return fixtures


def rmse(difference, weights=1.0):
    return float(np.sqrt(np.mean(weights * difference.astype(np.float64) ** 2)))


def parse(text):
    return np.array([int(word, 16) for word in text.split()], np.uint32).view(np.float32)


def encode_errors(engines):
    with open(FOLDER / "encode_errors.json", encoding="ascii") as file:
        inputs = json.load(file)
    columns = inputs["columns"]
    importance = parse(inputs["importance"])
    fixtures = {}
    for distribution, text in inputs["rows"].items():
        rows = np.ascontiguousarray(parse(text).reshape(-1, columns))
        fixtures[distribution] = {}
        for name in FORMATS:
            errors = {}
            for kind, weights in (("plain", None), ("weighted", importance)):
                blocks = engines.encode(name, rows, weights)
                decoded = np.stack([engines.decode(name, row, columns) for row in blocks])
                errors[kind] = rmse(decoded - rows, 1.0 if weights is None else weights)
            fixtures[distribution][name] = errors
    return fixtures


if __name__ == "__main__":
    engines = Engines(sys.argv[1], sys.argv[2])
    write_json("decode_blocks_ik.json", decode_blocks(engines))
    write_json("encode_errors_ik.json", encode_errors(engines))
