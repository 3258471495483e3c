"""Perplexity of a text of shared material: dequantized as transformers counts it, and as the file is."""
import re
import tempfile
import unittest
from pathlib import Path

from common import PERPLEXITY_BYTES, RealModel, dequantized, kvant, path_of, shared_text

EXACT = 0.001  # of transformers' figure: the aim for every engine; rounding costs some 0.00001
QUANTIZED = 0.02  # int8 activations move the figure by chance up or down


class Perplexity:
    def perplexity(self, model, *options):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "text"
            file.write_text(shared_text(PERPLEXITY_BYTES), encoding="utf-8")
            out = kvant("perplexity", model, file, "-c", 512, "--chunks", self.expected["perplexity"]["windows"], *options)
        return float(re.search(r"^perplexity +([\d.]+)", out, re.M)[1])

    def test_dequantized_as_transformers(self):
        with dequantized(self.name) as file:
            found = self.perplexity(file, "--kv-type", "f32")
        exact = self.expected["perplexity"]["transformers"]
        print(f"{self.name}: perplexity {found:.4f}, transformers {exact:.4f}")
        self.assertAlmostEqual(found / exact, 1, delta=EXACT)

    def test_quantized_is_near(self):
        found = self.perplexity(path_of(self.name))
        exact = self.expected["perplexity"]["transformers"]
        print(f"{self.name}: perplexity of the file as it is {found:.4f}, transformers {exact:.4f}")
        self.assertAlmostEqual(found / exact, 1, delta=QUANTIZED)


class SmolLM2(Perplexity, RealModel):
    name = "smollm2"


class Gemma3(Perplexity, RealModel):
    name = "gemma3-270m"


class Qwen2(Perplexity, RealModel):
    name = "qwen2.5-coder-0.5b"


if __name__ == "__main__":
    unittest.main()
