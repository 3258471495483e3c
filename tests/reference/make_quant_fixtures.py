"""Writes the fixtures of tests/quant from what other implementations compute.

decode_blocks.json: random blocks of every quantized format with the values that the Python package
`gguf` decodes from them (its dequantize functions are tested bit for bit against ggml's own).
Values are the hexadecimal bits of float32, "nan" for any NaN. Three blocks per format: random
bytes with ordinary scales, with scales that are subnormal halves, with infinity and NaN as scales.

grids.json: the codebooks of the IQ1, IQ2 and IQ3 formats as the package gguf lists them.

encode_errors.json: rows of float32 (hexadecimal bits), importances for each column, and the root
mean square error, plain and weighted, that ggml's encoders leave on them (MXFP4: the package's).
Where ggml insists on importances, the plain error is that with equal ones. Needs a shared library
of ggml (llama.cpp built with -DBUILD_SHARED_LIBS=ON; the committed file is from its commit
c392e5094).

    python3 tests/reference/make_quant_fixtures.py [path/to/libggml-base.so]

Packages: requirements.txt.
"""

import ctypes
import json
import pathlib
import sys

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "quant"

# Byte offsets of the half-precision scales inside a block.
HALF_OFFSETS = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ1_S": [0],
    "IQ1_M": [],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "MXFP4": [],
    "NVFP4": [],
}
# The scales of the blocks, as bits: where a block has one scale, it takes the first of a pair.
HALF_PAIRS = [
    (0x2E66, 0xA8F5),  # 0.1, -0.0387
    (0x8123, 0x0007),  # subnormal, the first one negative
    (0x7C00, 0x7E00),  # infinity, NaN
]
# Formats whose scales are not halves: the bytes that stand for the same three cases.
SCALE_BYTES = {
    "MXFP4": [[120], [1], [255]],
    "NVFP4": [[0x38, 0x7E, 0x4B, 0xFF], [0x01, 0x07, 0x08, 0x80], [0x00, 0x7F, 0xB0, 0x10]],
}
GRIDS = ["IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
COLUMNS = 256
ROWS = 8


def float_bits(values):
    return " ".join("nan" if np.isnan(v) else f"{v.view(np.uint32):08x}" for v in values)


def write_json(name, content):
    with open(FOLDER / name, "w", encoding="ascii") as out:
        json.dump(content, out, indent=0)
        out.write("\n")


def decode_blocks():
    random = np.random.default_rng(20240229)
    fixtures = {}
    for name, offsets in HALF_OFFSETS.items():
        kind = gguf.GGMLQuantizationType[name]
        _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = []
        for case, pair in enumerate(HALF_PAIRS):
            block = random.integers(0, 256, block_bytes, dtype=np.uint8)
            for offset, bits in zip(offsets, pair):
                block[offset], block[offset + 1] = bits & 255, bits >> 8
            if name in SCALE_BYTES:
                block[: len(SCALE_BYTES[name][case])] = SCALE_BYTES[name][case]
            if name == "IQ1_M":  # a digit of the scale in the upper half of every second byte
                for digit in range(4):
                    byte = 49 + 2 * digit
                    block[byte] = block[byte] & 15 | (pair[0] >> 4 * digit & 15) << 4
            with np.errstate(all="ignore"):
                values = gguf.quants.dequantize(block.reshape(1, -1), kind).ravel()
            blocks.append({"bytes": block.tobytes().hex(), "values": float_bits(values)})
        fixtures[name] = blocks
    return fixtures


# The points of the codebooks in order: a letter per coordinate, "a" for the least of its values.
def grids():
    fixtures = {}
    for name in GRIDS:
        kind = gguf.quants._type_traits[gguf.GGMLQuantizationType[name]]
        kind.init_grid()
        values = sorted(kind.grid_map)
        points = kind.grid.reshape(kind.grid_shape)
        letters = ["".join(chr(97 + values.index(c)) for c in point) for point in points]
        fixtures[name] = {"values": [float(v) for v in values], "points": " ".join(letters)}
    return fixtures


class Ggml:
    class InitParams(ctypes.Structure):
        _fields_ = [
            ("mem_size", ctypes.c_size_t),
            ("mem_buffer", ctypes.c_void_p),
            ("no_alloc", ctypes.c_bool),
        ]

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.ggml_quantize_requires_imatrix.restype = ctypes.c_bool
        self.library.ggml_init.argtypes = [Ggml.InitParams]
        self.library.ggml_init(Ggml.InitParams(1 << 20, None, True))  # fills its table of halves

    def round_trip(self, rows, kind, importance):
        block_values, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = np.zeros(rows.size // block_values * block_bytes, np.uint8)
        pointer = ctypes.c_void_p
        if importance is None and self.library.ggml_quantize_requires_imatrix(ctypes.c_int(kind)):
            importance = np.ones(rows.shape[1], np.float32)
        self.library.ggml_quantize_chunk(
            ctypes.c_int(kind),
            rows.ctypes.data_as(pointer),
            blocks.ctypes.data_as(pointer),
            ctypes.c_int64(0),
            ctypes.c_int64(rows.shape[0]),
            ctypes.c_int64(rows.shape[1]),
            None if importance is None else importance.ctypes.data_as(pointer),
        )
        return gguf.quants.dequantize(blocks.reshape(rows.shape[0], -1), kind)


def rmse(difference, weights=1.0):
    return float(np.sqrt(np.mean(weights * difference.astype(np.float64) ** 2)))


def encode_errors(ggml):
    random = np.random.default_rng(20240301)
    shape = (ROWS, COLUMNS)
    rows = {
        "gaussian": random.standard_normal(shape).astype(np.float32) * np.float32(0.02),
        "laplace": random.laplace(size=shape).astype(np.float32) * np.float32(0.02),
    }
    importance = (random.random(COLUMNS) ** 3 * 10).astype(np.float32)
    fixtures = {"columns": COLUMNS, "importance": float_bits(importance), "rows": {}, "rmse": {}}
    for distribution, values in rows.items():
        fixtures["rows"][distribution] = float_bits(values.ravel())
        errors = {}
        for name in HALF_OFFSETS:
            if name == "NVFP4":  # nobody encodes it
                continue
            kind = gguf.GGMLQuantizationType[name]
            if name == "MXFP4":
                plain = weighted = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
            else:
                plain = ggml.round_trip(values, kind, None)
                weighted = ggml.round_trip(values, kind, importance)
            errors[name] = {
                "plain": rmse(plain - values),
                "weighted": rmse(weighted - values, importance),
            }
        fixtures["rmse"][distribution] = errors
    return fixtures


if __name__ == "__main__":
    write_json("decode_blocks.json", decode_blocks())
    write_json("grids.json", grids())
    if len(sys.argv) > 1:
        write_json("encode_errors.json", encode_errors(Ggml(sys.argv[1])))
