"""Writes tests/quant/decode_blocks.json: random blocks of every quantized format with the values
that the Python package `gguf` decodes from them (its dequantize functions are tested bit for bit
against ggml's own). Values are stored as the hexadecimal bits of float32, "nan" for any NaN.

Three blocks per format: uniformly random bytes with ordinary scales, scales that are subnormal
halves, and scales that are infinity and NaN.

    python3 tests/reference/make_quant_fixtures.py      (packages: requirements.txt)
"""

import json
import pathlib

import gguf
import numpy as np

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
}
# The scales of the blocks, as bits: where a block has one scale, it takes the first of a pair.
HALF_PAIRS = [
    (0x2E66, 0xA8F5),  # 0.1, -0.0387
    (0x8123, 0x0007),  # subnormal, the first one negative
    (0x7C00, 0x7E00),  # infinity, NaN
]


def float_bits(value):
    return "nan" if np.isnan(value) else f"{value.view(np.uint32):08x}"


def main():
    random = np.random.default_rng(20240229)
    fixtures = {}
    for name, offsets in HALF_OFFSETS.items():
        kind = gguf.GGMLQuantizationType[name]
        _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = []
        for pair in HALF_PAIRS:
            block = random.integers(0, 256, block_bytes, dtype=np.uint8)
            for offset, bits in zip(offsets, pair):
                block[offset], block[offset + 1] = bits & 255, bits >> 8
            with np.errstate(all="ignore"):
                values = gguf.quants.dequantize(block.reshape(1, -1), kind).ravel()
            blocks.append(
                {"bytes": block.tobytes().hex(), "values": " ".join(map(float_bits, values))}
            )
        fixtures[name] = blocks
    root = pathlib.Path(__file__).resolve().parents[1]
    with open(root / "quant" / "decode_blocks.json", "w", encoding="ascii") as out:
        json.dump(fixtures, out, indent=0)
        out.write("\n")


if __name__ == "__main__":
    main()
