#!/usr/bin/env python3
"""Write the seeds of fuzz_gguf, fuzz_imatrix, fuzz_npy and fuzz_ctranslate2: the smallest files that reach each branch of the readers.

Usage: make_file_seeds.py [SEEDS_FOLDER]
"""

import struct
import sys
from pathlib import Path

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
FORMATS = {UINT8: "B", INT8: "b", UINT16: "H", INT16: "h", UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "B",
           UINT64: "Q", INT64: "q", FLOAT64: "d"}
BLOCKS = {26: (1, 4), 1000: (1, 1), 0: (1, 4), 1: (1, 2), 2: (32, 18), 8: (32, 34), 12: (256, 144)}  # type id: values, bytes


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def element(kind: int, value) -> bytes:
    return string(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def entry(key: str, kind: int, value) -> bytes:
    return string(key) + struct.pack("<I", kind) + element(kind, value)


def array(key: str, kind: int, values: list) -> bytes:
    return (string(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + b"".join(element(kind, v) for v in values))


def gguf(entries: list, tensors: list = (), alignment: int = 32, version: int = 3) -> bytes:
    """tensors: (name, dims, type id)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries)
    offset = 0
    for name, dims, kind in tensors:
        out += string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        out += struct.pack("<IQ", kind, offset)
        values, block_bytes = BLOCKS[kind]
        size = block_bytes
        for n in dims:
            size *= n
        offset += -(-(size // values) // alignment) * alignment
    out += bytes(-len(out) % alignment)
    return out + bytes(i & 255 for i in range(offset))


def npy(header: str, data: bytes, version=b"\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


ARCH = entry("general.architecture", STRING, "llama")
GGUF_SEEDS = {
    "empty": gguf([]),
    "version-2": gguf([ARCH], version=2),
    "version-1": gguf([ARCH], version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "scalars": gguf([entry(f"k{kind}", kind, 1) for kind in FORMATS] + [entry("s", STRING, "text")]),
    "arrays": gguf([array(f"k{kind}", kind, [0, 1]) for kind in FORMATS] + [array("s", STRING, ["", "a", "bc"])]),
    "tensors": gguf([ARCH], [("a", [5], 0), ("b", [4, 3], 1), ("c", [32, 2], 2), ("d", [32], 8), ("e", [], 0)]),
    "four-dims": gguf([], [("a", [2, 2, 2, 2], 0)]),
    "nothing-but-no-elements": gguf([], [("a", [0], 0)])[:60],
    "no-elements": gguf([], [("a", [0], 0), ("b", [4, 0], 1), ("c", [3], 0)]),
    "q4-k": gguf([], [("a", [256], 12)]),
    "unreadable": gguf([], [("a", [4], 26), ("b", [9], 1000), ("c", [5], 0), ("d", [40], 1000)]),
    "alignment-1": gguf([entry("general.alignment", UINT32, 1)], [("a", [3], 1), ("b", [1], 0)], alignment=1),
    "alignment-8": gguf([entry("general.alignment", UINT32, 8)], [("a", [3], 0), ("b", [1], 0)], alignment=8),
    "alignment-64": gguf([entry("general.alignment", UINT32, 64)], [("a", [3], 0), ("b", [1], 0)], alignment=64),
    "alignment-0": gguf([entry("general.alignment", UINT32, 0)]),
    "split": gguf([entry("split.no", UINT16, 0), entry("split.count", UINT16, 2),
                   entry("split.tensors.count", INT32, 1)], [("a", [1], 0)]),
    "duplicate-key": gguf([entry("k", UINT8, 1), entry("k", UINT8, 1)]),
    "duplicate-tensor": gguf([], [("a", [1], 0), ("a", [1], 0)]),
    "truncated": gguf([ARCH], [("a", [64], 0)])[:-100],
}

NPY = "{'descr': '<f4', 'fortran_order': False, 'shape': "
NPY_SEEDS = {
    "matrix": npy(NPY + "(2, 3), }", bytes(24)),
    "vector": npy(NPY + "(2,), }", bytes(8)),
    "scalar": npy(NPY + "(), }", bytes(4)),
    "float16": npy("{'descr': '<f2', 'fortran_order': False, 'shape': (3,), }", bytes(6)),
    "float64": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", bytes(8)),
    "fortran": npy("{'descr': '<f8', 'fortran_order': True, 'shape': (1,), }", bytes(8)),
    "version-2": npy(NPY + "(1,), }", bytes(4), version=b"\x02\x00"),
}



def dat_text(text: str) -> bytes:
    return struct.pack("<i", len(text)) + text.encode()


def dat_entry(name: str, calls: int, values: list) -> bytes:
    return dat_text(name) + struct.pack(f"<ii{len(values)}f", calls, len(values), *values)


def gguf_f32(entries: list, tensors: list) -> bytes:
    """tensors: (name, dims, values)."""
    out = gguf(entries, [(name, dims, 0) for name, dims, _ in tensors])
    data = b""
    for _, _, values in tensors:
        data += struct.pack(f"<{len(values)}f", *values)
        data += bytes(-len(data) % 32)
    return out[: len(out) - len(data)] + data


IMATRIX = [entry("general.type", STRING, "imatrix"), array("imatrix.datasets", STRING, ["a.txt"]),
           entry("imatrix.chunk_count", UINT32, 2), entry("imatrix.chunk_size", UINT32, 512)]
ENTRY = dat_entry("blk.0.attn_q.weight", 2, [1.0, 2.0])
IMATRIX_SEEDS = {
    "dat": struct.pack("<i", 2) + ENTRY + dat_entry("blk.0.ffn_up.weight", 2, [0.0]) + struct.pack("<i", 2) + dat_text("t"),
    "dat-no-origin": struct.pack("<i", 1) + ENTRY,
    "dat-no-calls": struct.pack("<i", 1) + dat_entry("a", 0, [1.0]),
    "dat-twice": struct.pack("<i", 2) + ENTRY + ENTRY,
    "dat-nan": struct.pack("<i", 1) + dat_entry("a", 1, [float("nan")]),
    "gguf": gguf_f32(IMATRIX, [("a.in_sum2", [2, 1], [1.0, 2.0]), ("a.counts", [1, 1], [2.0])]),
    "gguf-experts": gguf_f32(IMATRIX, [("a.in_sum2", [2, 2], [1.0, 2.0, 0.0, 0.0]), ("a.counts", [1, 2], [2.0, 0.0]),
                                       ("a.in_sum", [2, 2], [-1.0, 2.0, 0.0, 0.0])]),
    "gguf-no-counts": gguf_f32(IMATRIX, [("a.in_sum2", [2, 1], [1.0, 2.0])]),
    "gguf-model": gguf([ARCH]),
}



def ct2_text(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"


def ctranslate2(variables: list, aliases: list = (), version: int = 6) -> bytes:
    """variables: (name, shape, type or bytes of a value, data)."""
    out = struct.pack("<I", version) + ct2_text("TransformerSpec") + struct.pack("<II", 7, len(variables))
    for name, shape, kind, data in variables:
        out += ct2_text(name) + struct.pack(f"<B{len(shape)}I", len(shape), *shape)
        out += struct.pack("<BI", kind, len(data) // (kind if version < 4 else 1)) + data
    if version < 3:
        return out
    return out + struct.pack("<I", len(aliases)) + b"".join(ct2_text(text) for alias in aliases for text in alias)


CT2_MATRIX = ("a/weight", [2, 2], 1, bytes([1, 2, 3, 255]))
CTRANSLATE2_SEEDS = {
    "matrix": ctranslate2([CT2_MATRIX, ("a/weight_scale", [2], 0, struct.pack("<2f", 3, 4))], [("b/weight", "a/weight")]),
    "scalars": ctranslate2([(f"s{kind}", [], kind, bytes([1] * size)) for kind, size in enumerate((4, 1, 2, 4, 2, 2))]),
    "text": ctranslate2([("eos_token", [4], 1, b"</s>")], version=5),
    "version-3": ctranslate2([("a", [2], 2, bytes(4))], [("b", "a")], version=3),
    "version-2": ctranslate2([("a", [1], 4, bytes(4))], version=2),
    "version-1": ctranslate2([], version=1),
    "twice": ctranslate2([CT2_MATRIX, CT2_MATRIX]),
    "no-variable": ctranslate2([CT2_MATRIX], [("b", "c")]),
    "huge": ctranslate2([("a", [1 << 31, 1 << 31, 4], 1, b"")]),
    "truncated": ctranslate2([CT2_MATRIX])[:-6],
}

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "seeds")
    for name, seeds in (("gguf", GGUF_SEEDS), ("imatrix", IMATRIX_SEEDS), ("npy", NPY_SEEDS), ("ctranslate2", CTRANSLATE2_SEEDS)):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for seed, content in seeds.items():
            (folder / name / seed).write_bytes(content)
