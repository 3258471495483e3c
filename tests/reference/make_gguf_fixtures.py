#!/usr/bin/env python3
"""Write small GGUF files through the Python `gguf` package and, as JSON, what was asked to be in them.

    every-type.gguf     every type of metadata value and of array element, names that are not ASCII,
                        tensors of 1 to 4 dimensions in float and block formats
    alignment-64.gguf   the same with general.alignment = 64
    split-0000N-of-00003.gguf   seven tensors in parts of at most three
    big-endian.gguf     one key and one tensor in big-endian order

The JSON files hold {"metadata": [{"key", "type", "value"}], "tensors": [{"name", "type", "dims", "data"}]} in file
order; dims begin with the contiguous one, data are hexadecimal bytes. Integers above 2^53 are written as strings.

Usage: make_gguf_fixtures.py [OUTPUT_FOLDER]

    make_gguf_fixtures.py --check FILE.gguf FILE.json

reads any GGUF file through the package and compares it with the JSON: the way to check files that others wrote.
The pinned packages are in requirements.txt beside this file.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q
from gguf import GGUFValueType as V

TYPE_NAMES = {
    V.UINT8: "uint8", V.INT8: "int8", V.UINT16: "uint16", V.INT16: "int16", V.UINT32: "uint32", V.INT32: "int32",
    V.FLOAT32: "float32", V.BOOL: "bool", V.STRING: "string", V.ARRAY: "array", V.UINT64: "uint64",
    V.INT64: "int64", V.FLOAT64: "float64",
}

SCALARS = [
    ("test.uint8", V.UINT8, 255), ("test.int8", V.INT8, -128), ("test.uint16", V.UINT16, 65535),
    ("test.int16", V.INT16, -32768), ("test.uint32", V.UINT32, 4294967295), ("test.int32", V.INT32, -2147483648),
    ("test.uint64", V.UINT64, 18446744073709551615), ("test.int64", V.INT64, -9223372036854775808),
    ("test.float32", V.FLOAT32, 1.5e-5), ("test.float64", V.FLOAT64, -1.0e300), ("test.true", V.BOOL, True),
    ("test.false", V.BOOL, False), ("test.string", V.STRING, "zwölf Boxkämpfer\n\t\"\\"), ("test.ключ", V.STRING, "漢字"),
]

ARRAYS = [
    ("test.uint8s", V.UINT8, [0, 1, 255]), ("test.int8s", V.INT8, [-128, 127]), ("test.uint16s", V.UINT16, [65535, 7]),
    ("test.int16s", V.INT16, [-32768]), ("test.uint32s", V.UINT32, [4294967295, 0]),
    ("test.int32s", V.INT32, [-2147483648, 2147483647]), ("test.uint64s", V.UINT64, [18446744073709551615]),
    ("test.int64s", V.INT64, [-9223372036854775808, 5]), ("test.float32s", V.FLOAT32, [0.5, -3.25]),
    ("test.float64s", V.FLOAT64, [1.0e-300, 2.0]), ("test.bools", V.BOOL, [True, False, True]),
    ("test.strings", V.STRING, ["", "▁Once", "<0x0A>", "日本"]),
]


def bytes_of(array: np.ndarray) -> str:
    return array.tobytes().hex()


class Recorder:
    """A GGUFWriter that remembers what it was given, in the order of the file."""

    def __init__(self, arch: str, **options):
        self.writer = gguf.GGUFWriter(None, arch, **options)
        self.metadata = [self.entry("general.architecture", V.STRING, arch)]
        self.tensors = []

    @staticmethod
    def entry(key, kind, value, element=None):
        if kind in (V.UINT64, V.INT64):
            value = str(value)
        if element in (V.UINT64, V.INT64):
            value = [str(item) for item in value]
        if kind == V.FLOAT32:
            value = float(np.float32(value))
        entry = {"key": key, "type": TYPE_NAMES[kind], "value": value}
        return entry if element is None else {**entry, "element": TYPE_NAMES[element]}

    def add(self, key, kind, value):
        self.writer.add_key_value(key, value, kind)
        self.metadata.append(self.entry(key, kind, value))

    def add_array(self, key, element, values):
        self.writer.add_key_value(key, values, V.ARRAY, sub_type=element)
        self.metadata.append(self.entry(key, V.ARRAY, values, element))

    def add_tensor(self, name, array, kind=None):
        """A float array as it is, or the bytes of blocks of a quantized type."""
        self.writer.add_tensor(name, array, raw_dtype=kind)
        shape = array.shape
        if kind is not None and array.dtype == np.uint8:
            shape = gguf.quant_shape_from_byte_shape(shape, kind)
        kind = kind or {np.dtype(np.float32): Q.F32, np.dtype(np.float16): Q.F16}[array.dtype]
        self.tensors.append({"name": name, "type": kind.name, "dims": [int(n) for n in reversed(shape)],
                             "data": bytes_of(array)})

    def write(self, path: Path, json_name: str):
        self.writer.write_header_to_file(path)
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        content = {"metadata": self.metadata, "tensors": self.tensors}
        (path.parent / json_name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def fill_every_type(recorder: Recorder):
    random = np.random.default_rng(20240229)
    for key, kind, value in SCALARS:
        recorder.add(key, kind, value)
    for key, element, values in ARRAYS:
        recorder.add_array(key, element, values)
    recorder.add_tensor("one.weight", random.standard_normal(5, dtype=np.float32))
    recorder.add_tensor("two.weight", random.standard_normal((3, 7), dtype=np.float32).astype(np.float16))
    recorder.add_tensor("three.тензор", random.standard_normal((2, 3, 4), dtype=np.float32))
    recorder.add_tensor("four.weight", random.standard_normal((2, 1, 3, 2), dtype=np.float32))
    for kind, rows in [(Q.Q4_0, 2), (Q.Q8_0, 3), (Q.Q4_K, 1), (Q.Q6_K, 2)]:
        _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        blocks = random.integers(0, 256, (rows, block_bytes), dtype=np.uint8)
        recorder.add_tensor(f"{kind.name.lower()}.weight", blocks, kind)
    bf16 = random.integers(0, 256, (2, 6), dtype=np.uint8)
    recorder.add_tensor("bf16.weight", bf16, Q.BF16)


def write_fixtures(folder: Path):
    folder.mkdir(parents=True, exist_ok=True)
    recorder = Recorder("every-type")
    fill_every_type(recorder)
    recorder.write(folder / "every-type.gguf", "every-type.json")

    recorder = Recorder("alignment-64")
    recorder.writer.add_custom_alignment(64)
    recorder.metadata.append(recorder.entry("general.alignment", V.UINT32, 64))
    fill_every_type(recorder)
    recorder.write(folder / "alignment-64.gguf", "alignment-64.json")

    recorder = Recorder("split", split_max_tensors=3)
    recorder.add("test.uint32", V.UINT32, 42)
    for i in range(7):
        recorder.add_tensor(f"blk.{i}.weight", np.arange(i, 2 * i + 3, dtype=np.float32))
    recorder.metadata += [recorder.entry("split.no", V.UINT16, 0), recorder.entry("split.count", V.UINT16, 3),
                          recorder.entry("split.tensors.count", V.INT32, 7)]
    recorder.write(folder / "split.gguf", "split.json")

    writer = gguf.GGUFWriter(folder / "big-endian.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("one.weight", np.ones(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check(gguf_path: str, json_path: str):
    """Compares a file with the JSON; the package's view of the header is left out."""
    reader = gguf.GGUFReader(gguf_path)
    metadata = []
    for name, field in reader.fields.items():
        if name.startswith("GGUF."):
            continue
        kind = field.types[0]
        element = field.types[1] if kind == V.ARRAY and len(field.types) > 1 else None
        metadata.append(Recorder.entry(name, kind, field.contents(), element))
    tensors = [{"name": tensor.name, "type": tensor.tensor_type.name, "dims": [int(n) for n in tensor.shape],
                "data": bytes_of(tensor.data)} for tensor in reader.tensors]
    expected = json.loads(Path(json_path).read_text())
    assert json.loads(json.dumps(metadata)) == expected["metadata"], "the metadata differ"
    assert tensors == expected["tensors"], "the tensors differ"
    print(f"{gguf_path}: {len(metadata)} keys and {len(tensors)} tensors as expected")


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--check":
        check(sys.argv[2], sys.argv[3])
    else:
        write_fixtures(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "gguf"))
