"""A model with a layer that predicts a further token: an attention layer of models/qwen35-tiny once more, behind a mix of both its inputs.

Few of its guesses are right.
"""
import struct

from test_models import source

U32, STRING, ARRAY, F32 = 4, 8, 9, 0
WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
ALIGNMENT = 32
DIM, LAYERS = 256, 3


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def text(self):
        count = self.take("Q")
        self.at += count
        return self.data[self.at - count:self.at].decode()

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            kind, count = self.take("IQ")
            for _ in range(count):
                self.skip(kind)
        else:
            self.at += WIDTHS[kind]


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


def read(path):
    """The entries and the tensors of a file: bytes by key, and (dimensions, type, bytes) by name."""
    with open(path, "rb") as file:
        reader = Reader(file.read())
    _, _, tensor_count, key_count = reader.take("4sIQQ")
    entries, infos = {}, []
    for _ in range(key_count):
        key = reader.text()
        begin = reader.at
        reader.skip(reader.take("I"))
        entries[key] = reader.data[begin:reader.at]
    for _ in range(tensor_count):
        name, sides = reader.text(), reader.take("I")
        dimensions = [reader.take("Q") for _ in range(sides)]
        infos.append((name, dimensions, *reader.take("IQ")))
    begin = (reader.at + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
    ends = sorted([info[3] for info in infos] + [len(reader.data) - begin])
    tensors = {}
    for name, dimensions, kind, offset in infos:
        end = next(end for end in ends if end > offset)
        tensors[name] = (dimensions, kind, reader.data[begin + offset:begin + end])
    return entries, tensors


def write(path, entries, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    head += b"".join(text(key) + value for key, value in entries.items())
    data = b""
    for name, (dimensions, kind, values) in tensors.items():
        head += text(name) + struct.pack("<I%dQIQ" % len(dimensions), len(dimensions), *dimensions, kind, len(data))
        data += padded(values)
    with open(path, "wb") as file:
        file.write(padded(head) + data)


def floats(values):
    return struct.pack("<%df" % len(values), *values)


def write_predicting_model(path):
    entries, tensors = read(source("qwen35-tiny"))
    entries["qwen35.block_count"] = struct.pack("<II", U32, LAYERS + 1)
    entries["qwen35.nextn_predict_layers"] = struct.pack("<II", U32, 1)
    last, further = f"blk.{LAYERS - 1}.", f"blk.{LAYERS}."
    for name in list(tensors):
        if name.startswith(last):
            tensors[further + name.removeprefix(last)] = tensors[name]
    mix = [(0.1 if column < DIM else 0.02) if column % DIM == row else 0 for row in range(DIM) for column in range(2 * DIM)]
    tensors[further + "nextn.eh_proj.weight"] = ([2 * DIM, DIM], F32, floats(mix))
    for norm in ("enorm", "hnorm"):
        tensors[further + f"nextn.{norm}.weight"] = ([DIM], F32, floats([1] * DIM))
    write(path, entries, tensors)
