#!/usr/bin/env python3
"""Writes tests/reference/llama_cpp_keys.json: the metadata keys that llama.cpp knows, with their types.

Usage: make_llama_cpp_keys.py FOLDER, where FOLDER is a checkout of llama.cpp (the fixture: the one in llama-cpp-python 0.3.36). Names come from
gguf-py (constants.py) and from the table of the engine (llama-arch.cpp), types from what gguf-py's writer adds. "{arch}" stands for the architecture.
Keys that only a newer engine has (build b11739, read from its strings) stand below, since its sources were not at hand.
"""

import json
import pathlib
import re
import sys

# Names without a type in the writer are numbers.
NEWER = {
    "{arch}.attention.value_expert_count": "uint32",
    "{arch}.attention.value_expert_used_count": "uint32",
    "{arch}.post_norm_epsilon": "float32",
    "{arch}.rope.section_order": "array",
    "{arch}.classifier.activation": "string",
    "{arch}.realtime_delay_tokens": "uint32",
    "tokenizer.ggml.normalizer.nfc": "bool",
}

# Keys of files that hold no model of text, or that describe the file.
OTHER_FILES = ("general.", "split.", "imatrix.", "clip.", "diffusion.", "quantize.")


def constants(folder):
    """{"LLM.VOCAB_SIZE": "{arch}.vocab_size", ...}"""
    found, path = {}, []
    for line in (folder / "gguf-py/gguf/constants.py").read_text().splitlines():
        if opened := re.match(r"( *)class (\w+)", line):
            path = path[: len(opened[1]) // 4] + [opened[2]]
        named = re.match(r'( +)(\w+)\s*=\s*"([^"]+)"', line)
        if named and path and path[0] == "Keys":
            found[".".join(path[1 : len(named[1]) // 4] + [named[2]])] = named[3]
    return found


def engine_names(folder):
    table = (folder / "src/llama-arch.cpp").read_text()
    return {name.replace("%s", "{arch}") for name in re.findall(r'\{ LLM_KV_\w+,\s*"([^"]+)"', table)}


def types(folder):
    """{"LLM.VOCAB_SIZE": "uint32", ...}, by the writer's calls."""
    writer = (folder / "gguf-py/gguf/gguf_writer.py").read_text()
    return {key: kind for kind, key in re.findall(r"self\.add_(uint32|float32|bool|string|array)\(\s*Keys\.([\w.]+?)(?:\.format|[,)])", writer)}


def main():
    folder = pathlib.Path(sys.argv[1])
    kinds = types(folder)
    keys = {name: kinds.get(constant, "uint32") for constant, name in constants(folder).items()}
    for name in engine_names(folder):
        keys.setdefault(name, "uint32")
    keys |= NEWER
    for dense in ("dense_2", "dense_3"):  # "{arch}.{dense}_feat_in"
        for end in ("in", "out"):
            keys.setdefault(f"{{arch}}.{dense}_feat_{end}", "uint32")
    keys["{arch}.rope.scale_linear"] = "float32"  # the writer has no call for this old name
    rows = {name: kind for name, kind in sorted(keys.items()) if "{dense}" not in name and not name.startswith(OTHER_FILES)}
    target = pathlib.Path(__file__).parent / "llama_cpp_keys.json"
    target.write_text(json.dumps(rows, indent=0) + "\n")
    print(f"{len(rows)} keys")


if __name__ == "__main__":
    main()
