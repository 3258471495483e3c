"""What the tests of the Python package share: models that come with kvant, and the program `kvant` as another way to the same results.

ctest sets PYTHONPATH, KVANT_LIBRARY and KVANT_PROGRAM; by hand:
    PYTHONPATH=python KVANT_LIBRARY=build/release/libkvant.so KVANT_PROGRAM=build/release/kvant python3 -m unittest discover tests/python
"""
import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import kvant

ROOT = Path(__file__).resolve().parents[2]
SHAKESPEARE = ROOT / "models/shakespeare/shakespeare.gguf"
NUMBER_WORDS = ROOT / "models/number-words/number-words.gguf"
RECURRENT = ROOT / "models/lfm2-tiny/lfm2-tiny.gguf"
PROGRAM = os.environ.get("KVANT_PROGRAM", str(ROOT / "build/release/kvant"))

ROMEO = [2, 1894, 4041]  # "ROMEO:" with BOS


@functools.lru_cache(None)
def model(path=SHAKESPEARE):
    return kvant.Model(path)


def program(*arguments):
    """What `kvant` writes to stdout."""
    return subprocess.run([PROGRAM, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def program_json(*arguments):
    return json.loads(program(*arguments, "--json"))


def logit_rows(tokens, path=SHAKESPEARE, *options):
    """The logits behind each token, from `kvant logits`: float32 [tokens, vocab]."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npy"
        program("logits", path, "--tokens", ",".join(map(str, tokens)), "-o", file, *options)
        return np.load(file)


def log_softmax(rows):
    rows = np.asarray(rows, np.float64)
    rows = rows - rows.max(-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))
