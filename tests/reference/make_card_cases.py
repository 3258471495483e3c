#!/usr/bin/env python3
"""Write what llama.cpp's converter keeps of model cards, names and settings for sampling.

The oracle is Metadata of the gguf package (0.19.0), which llama.cpp's converter uses. Each case is a folder: its name,
README.md, config.json, generation_config.json, and the metadata that become of them.

Usage: make_card_cases.py OUTPUT.json     (needs gguf==0.19.0)
"""

import json
import pathlib
import sys
import tempfile

import gguf

CARD = """---
license: apache-2.0   # a comment
license_name: "Some \\"free\\" license"
license_link: 'https://example.com/it''s'
language:
- en
- no
-   "de"
tags: [text-generation, 'two words', chat]
pipeline_tag: text-generation
base_model:
- meta-llama/Llama-3.1-8B-Instruct
- https://huggingface.co/mistralai/Mistral-7B-v0.1
- https://example.com/models/x
- plain-name
datasets:
  - HuggingFaceH4/ultrachat_200k
model-index:
- name: nested
  results:
  - task:
      type: text-generation
description: |
  several
  lines
inference: false
---
# A title
license: mit
"""

CASES = [
    ("tiny-llama-1.1b-chat-v1.0", None, {}, None),
    ("TinyStories-656K", CARD, {"_name_or_path": "some-org/my-model-v2"}, {"temperature": 0.6, "top_p": 0.9, "top_k": 50}),
    ("a", "no front matter\n---\nlicense: mit\n---\n", {"_name_or_path": "/data/x"}, {"temperature": 1}),
    ("folder_name x", "---\nlicense:\n- mit\n- other\nlanguage: fr\ntags:\nbase_model: gpt2\n---\n", {},
     {"min_p": 0.05, "penalty_repeat": 1.1, "penalty_last_n": 64, "mirostat": 2, "mirostat_tau": 5.0, "mirostat_eta": 0.1,
      "xtc_probability": 0.5, "xtc_threshold": 0.1, "sequence": "kpt", "do_sample": True}),
    ("Phi-3-mini-4k-instruct", "---\nname: The Name\nauthor: Somebody\n---\ntext", {"_name_or_path": "org/x"}, {}),
    ("b--c", "---\r\nlicense: mit\r\ntags:\r\n- a\r\n---\r\n", {}, {}),
    ("d", "---\ndescription: one line\nmodel_url: https://example.com\n---\n", {}, {}),
]

# What follows from guesses about parts of a name (versions, sizes, families) is left to people; so are texts of several
# lines.
GUESSED = {"general.version", "general.basename", "general.finetune", "general.size_label"}


def metadata(name, card, config, generation):
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent) / name
        folder.mkdir()
        if card is not None:
            (folder / "README.md").write_bytes(card.encode())
        (folder / "config.json").write_text(json.dumps(config))
        if generation is not None:
            (folder / "generation_config.json").write_text(json.dumps(generation))
        writer = gguf.GGUFWriter(None, "llama")
        gguf.Metadata.load(None, folder, None, 0).set_gguf_meta_model(writer)
        found = {key: value.value for key, value in writer.kv_data[0].items()}
    return {key: value for key, value in found.items()
            if key not in GUESSED and not key.endswith(".version") and key != "general.architecture"
            and not (isinstance(value, str) and "\n" in value)}


def main():
    cases = [{"folder": name, "card": card, "config": config, "generation": generation,
              "metadata": metadata(name, card, config, generation)} for name, card, config, generation in CASES]
    pathlib.Path(sys.argv[1]).write_text(json.dumps(cases, indent=1) + "\n")


main()
