#!/usr/bin/env python3
"""Write the seeds of fuzz_spec: what the converted models of tests/reference/seeded say, a line for each key and tensor.

Every family and every key that a conversion writes is in them; what comes on top are keys that files of other engines have.

Usage: make_spec_seeds.py KVANT_PROGRAM [SEEDS_FOLDER]     (needs numpy)
"""

import struct
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "reference"))
import compare_with_llama_cpp as models  # noqa: E402

TYPES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
FORMATS = {0: "F32", 1: "F16", 8: "Q8_0", 30: "BF16"}
# Not of the model itself.
GENERAL = ("general.", "tokenizer.")
# Keys of files of other engines, in a seed that belongs to no family: kind, key without the architecture, value.
FURTHER = [
    ("i", "attention.head_count", "4 4 4"), ("i", "attention.head_count_kv", "2 1 2"), ("i", "feed_forward_length", "48 48 48"),
    ("i", "expert_used_count", "1 2 1"), ("u", "nextn_predict_layers", "1"), ("f", "rope.scale_linear", "2"),
    ("s", "rope.scaling.type", "yarn"), ("f", "rope.scaling.factor", "4"), ("u", "rope.scaling.original_context_length", "32"),
    ("f", "rope.scaling.yarn_beta_fast", "16"), ("f", "rope.scaling.yarn_beta_slow", "2"), ("f", "rope.scaling.attn_factor", "1.2"),
    ("f", "rope.scaling.yarn_log_multiplier", "0.1"), ("u", "attention.sliding_window", "7"), ("u", "attention.sliding_window_pattern", "2"),
    ("o", "attention.sliding_window_pattern", "1 0 1"), ("u", "attention.key_length", "8"), ("u", "attention.value_length", "8"),
    ("u", "attention.key_length_swa", "8"), ("u", "attention.value_length_swa", "8"), ("u", "rope.dimension_count", "8"),
    ("u", "rope.dimension_count_swa", "8"), ("f", "rope.freq_base", "500"), ("f", "rope.freq_base_swa", "50"),
    ("f", "attention.scale", "0.3"), ("f", "attention.clamp_kqv", "2"), ("f", "attention.max_alibi_bias", "8"),
    ("f", "attention.temperature_scale", "0.1"), ("u", "attention.temperature_length", "16"), ("f", "attn_logit_softcapping", "20"),
    ("f", "final_logit_softcapping", "20"), ("f", "router_logit_softcapping", "20"), ("f", "embedding_scale", "2"),
    ("f", "residual_scale", "0.5"), ("f", "logit_scale", "2"), ("u", "expert_count", "4"), ("u", "expert_feed_forward_length", "24"),
    ("u", "expert_shared_feed_forward_length", "24"), ("u", "expert_shared_count", "1"), ("u", "expert_gating_func", "2"),
    ("b", "expert_weights_norm", "1"), ("f", "expert_weights_scale", "2.5"), ("u", "expert_group_count", "2"),
    ("u", "expert_group_used_count", "1"), ("u", "leading_dense_block_count", "1"), ("u", "interleave_moe_layer_step", "2"),
    ("u", "attention.q_lora_rank", "16"), ("u", "attention.kv_lora_rank", "16"), ("u", "attention.key_length_mla", "24"),
    ("u", "attention.value_length_mla", "16"), ("u", "attention.shared_kv_layers", "1"), ("u", "embedding_length_per_layer_input", "8"),
    ("b", "use_parallel_residual", "0"), ("f", "attention.layer_norm_epsilon", "1e-5"),
]


class Reader:
    """Values of a GGUF file, one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        size = self.take("Q")
        self.at += size
        return self.data[self.at - size : self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind != 9:
            return self.take(TYPES[kind])
        of, count = self.take("I"), self.take("Q")
        return of, [self.value(of) for _ in range(count)]


def line_of(key, kind, value):
    if kind == 9:
        of, values = value
        if of == 6:  # infinities cannot be read back
            return f"r {key} " + " ".join(f"{max(v, -3e38):.7g}" for v in values)
        return {5: "i", 4: "i", 7: "o"}[of] + f" {key} " + " ".join(str(int(v)) for v in values)
    if kind == 8:
        return f"s {key} {value}"
    return f"b {key} {int(value)}" if kind == 7 else f"f {key} {value:.7g}" if kind == 6 else f"u {key} {value}"


def lines_of(path):
    reader = Reader(path.read_bytes())
    reader.at = 8
    tensors, keys = reader.take("Q"), reader.take("Q")
    lines, arch = [], ""
    for _ in range(keys):
        key, kind = reader.text(), reader.take("I")
        value = reader.value(kind)
        if key == "general.architecture" or not key.startswith(GENERAL):
            arch = value if key == "general.architecture" else arch
            name = key.removeprefix(arch) if key.startswith(f"{arch}.") else key
            lines.append(line_of(name, kind, value))
    for _ in range(tensors):
        name = reader.text()
        dims = [reader.take("Q") for _ in range(reader.take("I"))]
        kind, _ = reader.take("I"), reader.take("Q")
        lines.append(f"t {name} {FORMATS[kind]} " + " ".join(map(str, dims)))
    return lines


def main():
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "seeds" / "spec"
    folder.mkdir(parents=True, exist_ok=True)
    archs = []
    for path in sorted(models.SEEDED.glob("**/*.json")):
        with tempfile.TemporaryDirectory() as scratch:
            _, output = models.convert(sys.argv[1], str(path.relative_to(models.SEEDED).with_suffix("")), Path(scratch))
            lines = lines_of(output)
        arch = next(line.split()[2] for line in lines if line.startswith("s general.architecture"))
        # One model of each family is enough, and those with other keys.
        known = {line.split()[1] for seed in archs if seed[0] == arch for line in seed[1]}
        if {line.split()[1] for line in lines} <= known:
            continue
        archs.append((arch, lines))
        (folder / path.stem).write_text("\n".join(lines) + "\n")
    (folder / "keys").write_text("".join(f"{kind} .{key} {value}\n" for kind, key, value in FURTHER))


if __name__ == "__main__":
    main()
