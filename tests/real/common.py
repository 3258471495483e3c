"""What the tests on released models share. They run where `./dev models` has fetched the models, and skip with a message elsewhere.

ctest sets KVANT_PROGRAM; by hand, in this folder:
    KVANT_PROGRAM=../../build/release/kvant python3 -m unittest -v test_logits.SmolLM2
"""
import contextlib
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).parent / "expected"
MODELS = Path(os.environ.get("KVANT_REAL_MODELS", ROOT / "build/models"))
PROGRAM = os.environ.get("KVANT_PROGRAM", str(ROOT / "build/release/kvant"))
BOS = {"gemma3-270m": [2]}  # in front of a text, where the model's file asks for it
MIXES = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_XS", "Q4_0", "Q3_K_M", "Q2_K")
DIVERGENCE_TOKENS = 512  # of shared_text, over which divergences are measured
PERPLEXITY_BYTES = 65536
NAMES = ("smollm2", "gemma3-270m", "qwen2.5-coder-0.5b")  # what test_*.py and tests/reference/compare_real_models.py go through

# Prose, numbers, other languages and code: the text whose logits expected/*.json holds.
TEXT = """The lighthouse at the end of the pier was built in 1887, when 312 ships a year called at the harbour. Its keeper wrote a diary: "Fog \
from 4 a.m. to noon; rang the bell 96 times." Nobody has lived there since. Today the lamp is a small LED, and an engineer from the next town \
comes twice a year to clean the lens.

Le phare est fermé en hiver. Der Leuchtturm ist 23,5 Meter hoch. Маяк виден за двадцать миль. 灯台は白い。

def visible_from(height_m, eye_m=2.0):
    # Distance to the horizon in nautical miles, for a lamp and an eye.
    return 2.08 * (height_m ** 0.5 + eye_m ** 0.5)

for h in (5, 10, 23.5):
    print(f"{h} m: {visible_from(h):.1f} nm")
"""

COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "grey", "golden", "silver")
THINGS = ("lamp", "boat", "letter", "clock", "violin", "map", "chair", "bottle", "coin", "window", "bridge", "apple", "mirror")
PLACES = ("cellar", "garden", "library", "harbour", "tower", "kitchen", "station", "market", "attic", "forest", "chapel")


def long_text(sentences):
    """Sentences of which no two are equal, and the last ones ask for the first."""
    lines = [f"Item {i} of the list is a {COLOURS[i * 7 % 10]} {THINGS[i * 5 % 13]} from the {PLACES[i * 3 % 11]}." for i in range(sentences)]
    return " ".join(lines) + " The first item of the list, item 0, is a red"


def expected(name):
    """What transformers and llama.cpp computed; tests/reference/compare_real_models.py writes it."""
    return json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))


def path_of(name):
    return MODELS / name / f"{name}.gguf"


def kvant(*arguments, stdin=""):
    """What `kvant` writes to stdout."""
    run = subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise AssertionError(f"kvant {' '.join(map(str, arguments))[:200]} ends with {run.returncode}: {run.stderr}")
    return run.stdout


def tokenize(name, text):
    """The ids of a text, with BOS in front where the model wants it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "text"
        file.write_text(text, encoding="utf-8")
        return BOS.get(name, []) + [int(word) for word in kvant("tokenize", path_of(name), "-f", file).split()]


def logits(model, tokens, *options):
    """The logits behind each token, float32 [tokens, vocabulary]."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logits.npy"
        kvant("logits", model, "--tokens", ",".join(map(str, tokens)), "-o", file, *options)
        return np.load(file)


def last_logits(model, tokens, positions, *options):
    """The logits behind some of many tokens, each of a prompt that ends there: float32 [positions, vocabulary]."""
    return np.concatenate([logits(model, tokens[:position + 1], "--last", *options) for position in positions])


@contextlib.contextmanager
def dequantized(name, type_name="F32"):
    """The model with all its weights in this type, as a file that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.gguf"
        kvant("quantize", path_of(name), file, type_name, "--requantize")
        yield file


def divergence(base, other):
    """The mean Kullback-Leibler divergence of `other` from `base` over the rows, in nats; both are logits."""
    total = 0.0
    for base_row, other_row in zip(base, other):
        log_p = base_row.astype(np.float64) - np.logaddexp.reduce(base_row.astype(np.float64))
        log_q = other_row.astype(np.float64) - np.logaddexp.reduce(other_row.astype(np.float64))
        total += float(np.sum(np.exp(log_p) * (log_p - log_q)))
    return total / len(base)


def shared_text(size):
    """The first bytes of a text of shared material, cut at a character; or the reason why it is not there."""
    path = Path(os.environ.get("KVANT_SHARED", ROOT.parent / "shared")) / "text/wiki.test.raw"
    if not path.exists() and os.environ.get("KVANT_SHARED_REQUIRED") != "1":
        raise unittest.SkipTest(f"{path} is absent")
    return path.read_bytes()[:size].decode("utf-8", "ignore")


class RealModel(unittest.TestCase):
    """A test on the model `name`."""

    name = ""

    @classmethod
    def setUpClass(cls):
        if not path_of(cls.name).exists():
            raise unittest.SkipTest(f"{path_of(cls.name)} is absent: ./dev models {cls.name}")
        cls.expected = expected(cls.name)
