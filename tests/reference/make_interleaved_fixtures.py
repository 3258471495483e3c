"""Writes tests/quant/interleaved.json: rows that ik_llama.cpp (August 2026) encodes into types with
interleaved rows, and either the same rows in the plain type or, where it has none, the values that
its conversion gives.

    python3 tests/reference/make_interleaved_fixtures.py path/to/ik/libggml.so

Packages: requirements.txt.
"""

import ctypes
import json
import pathlib
import sys

import numpy as np

OUT = pathlib.Path(__file__).resolve().parents[1] / "quant" / "interleaved.json"

# Name: id, id of the plain type, rows, bytes of a row's head, values and bytes of a block.
TYPES = {
    "Q4_0_R8": (202, 2, 8, 0, 32, 18),
    "Q5_0_R4": (206, 6, 4, 0, 32, 22),
    "Q8_0_R8": (208, 8, 8, 0, 32, 34),
    "Q2_K_R4": (210, 10, 4, 0, 256, 84),
    "Q3_K_R4": (211, 11, 4, 0, 256, 110),
    "Q4_K_R4": (212, 12, 4, 0, 256, 144),
    "Q5_K_R4": (213, 13, 4, 0, 256, 176),
    "Q6_K_R4": (214, 14, 4, 0, 256, 210),
    "IQ2_XXS_R4": (216, 16, 4, 0, 256, 66),
    "IQ2_XS_R4": (217, 17, 4, 0, 256, 74),
    "IQ3_XXS_R4": (218, 18, 4, 0, 256, 98),
    "IQ4_NL_R4": (220, 20, 4, 0, 32, 18),
    "IQ3_S_R4": (221, 21, 4, 0, 256, 110),
    "IQ2_S_R4": (222, 22, 4, 0, 256, 82),
    "IQ4_XS_R8": (223, 23, 8, 0, 256, 136),
    "Q6_0_R4": (233, 133, 4, 0, 32, 26),
    "IQ2_BN_R4": (335, 135, 4, 4, 64, 16),
    "IQ2_K_R4": (337, 137, 4, 0, 256, 76),
    "IQ3_K_R4": (338, 138, 4, 0, 256, 110),
    "IQ4_K_R4": (339, 139, 4, 0, 256, 144),
    "IQ5_K_R4": (340, 140, 4, 0, 256, 176),
    "IQ4_KS_R4": (344, 144, 4, 4, 256, 136),
    "IQ5_KS_R4": (352, 152, 4, 4, 256, 168),
    "MXFP4_R8": (353, 39, 8, 0, 32, 17),
    "IQ1_S_R4": (219, None, 4, 2, 32, 6),
    "Q8_KV_R8": (398, None, 8, 4, 32, 32),
    "Q8_K_R8": (399, None, 8, 0, 256, 258),
    "Q8_K_R16": (397, None, 16, 0, 256, 258),
    "BF16_R16": (230, None, 16, 0, 1, 2),
}


class InitParams(ctypes.Structure):
    _fields_ = [
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    ]


def pointer(array):
    return None if array is None else array.ctypes.data_as(ctypes.c_void_p)


def main():
    ik = ctypes.CDLL(sys.argv[1])
    ik.ggml_init.argtypes = [InitParams]
    ik.ggml_init(InitParams(1 << 20, None, True))
    for number in (16, 17, 18, 19, 21, 22):  # fills the tables of its encoders
        ik.ggml_quantize_init(ctypes.c_int(number))
    random = np.random.default_rng(20260802)

    def quantize(number, rows, size, importance):
        out = np.zeros(rows.shape[0] * size, np.uint8)
        ik.ggml_quantize_chunk(
            ctypes.c_int(number),
            pointer(rows),
            pointer(out),
            ctypes.c_int64(0),
            ctypes.c_int64(rows.shape[0]),
            ctypes.c_int64(rows.shape[1]),
            pointer(importance),
            None,
        )
        return out

    fixtures = {}
    for name, (number, plain, count, head, values, block) in TYPES.items():
        columns = 512 if plain else 256
        rows = (random.standard_normal((count, columns)) * 0.05).astype(np.float32)
        importance = (random.random(columns) + 0.5).astype(np.float32)
        size = head + columns // values * block
        if name == "BF16_R16":
            packed = np.zeros(count * size, np.uint8)
            ik.repack_f32_bf16_r16(
                pointer(rows), pointer(packed), ctypes.c_int64(count), ctypes.c_int64(columns)
            )
            decoded = (rows.view(np.uint32) & 0xFFFF0000).astype(np.uint32)  # cut off there
            decoded = decoded.view(np.float32)
        elif name == "Q8_K_R16":  # made at run time alone
            packed = random.integers(0, 256, count * size, dtype=np.uint8)
            packed[: 2 * count].view(np.uint16)[:] = 0x2C00 + np.arange(count)
            decoded = np.zeros(rows.size, np.float32)
            ik.dequantize_row_q8_k_r16(pointer(packed), pointer(decoded), ctypes.c_int64(rows.size))
        else:
            packed = quantize(number, rows, size, importance)
        entry = {"id": number, "rows": count, "columns": columns, "bytes": packed.tobytes().hex()}
        if plain:
            entry["plain"] = quantize(plain, rows, size, importance).tobytes().hex()
        else:
            if name not in ("BF16_R16", "Q8_K_R16"):
                decoded = np.zeros(rows.size, np.float32)
                function = "q8_KV_r8" if name == "Q8_KV_R8" else name.lower()
                ik["dequantize_row_" + function](
                    pointer(packed), pointer(decoded), ctypes.c_int64(rows.size)
                )
            entry["values"] = " ".join(f"{v:08x}" for v in decoded.reshape(-1).view(np.uint32))
        fixtures[name] = entry
    with open(OUT, "w", encoding="ascii") as out:
        json.dump(fixtures, out, indent=0)
        out.write("\n")


main()
