"""Quantizing a released model from F16: to the common mixes, beside the files of llama-quantize, and by the size of the file."""
import re
import tempfile
import unittest
from pathlib import Path

from common import DIVERGENCE_TOKENS, MIXES, RealModel, dequantized, divergence, kvant, logits, shared_text, tokenize

# A better fit of the weights need not be better for one text; what mixes differ by is larger.
SLACK = 1.05
SIZES = (80, 85, 87, 92, 100, 115)  # MiB
# The released file is Q4_1: here Q4_1 and Q5_1 lose nothing, and no larger type would be chosen.
TYPES = "Q3_K,IQ3_S,Q4_0,Q4_K,IQ4_NL,IQ4_XS,Q5_0,Q5_K,Q6_K,Q8_0"


class SmolLM2(RealModel):
    name = "smollm2"

    def test_mixes_diverge_no_more_than_those_of_llama_quantize(self):
        tokens = tokenize(self.name, shared_text(8 * DIVERGENCE_TOKENS))[:DIVERGENCE_TOKENS]
        with dequantized(self.name, "F16") as file, tempfile.TemporaryDirectory() as folder:
            base = logits(file, tokens)
            for mix in MIXES:
                with self.subTest(mix):
                    made = Path(folder) / "mix.gguf"
                    kvant("quantize", file, made, mix)
                    found = divergence(base, logits(made, tokens))
                    theirs = self.expected["mixes"][mix]
                    print(f"{self.name}: {mix}: {found:.6f}, llama-quantize {theirs:.6f}")
                    self.assertLessEqual(found, theirs * SLACK)

    def test_a_larger_file_diverges_no_more_than_a_smaller_one(self):
        tokens = tokenize(self.name, shared_text(8 * DIVERGENCE_TOKENS))[:DIVERGENCE_TOKENS]
        with dequantized(self.name, "F16") as file, tempfile.TemporaryDirectory() as folder:
            base = logits(file, tokens)
            for options, sizes in (("--no-calibrate",), SIZES), ((), SIZES[1:3]):
                before = None
                for size in sizes:
                    made = Path(folder) / "sized.gguf"
                    told = kvant("quantize", file, made, "--size", f"{size}MiB", "--types", TYPES, *options)
                    self.assertLessEqual(made.stat().st_size, size * 2**20)
                    self.assertGreater(made.stat().st_size, 0.98 * size * 2**20)
                    found = divergence(base, logits(made, tokens))
                    print(f"{self.name}: {size} MiB {' '.join(options)}: {found:.6f}")
                    if before is not None:
                        self.assertLessEqual(found, before * SLACK, f"{size} MiB {options}")
                    before = found
                    # What is promised was measured, on another text.
                    promised = re.search(r"^divergence about (\S+) nats", told, re.MULTILINE)
                    self.assertEqual(promised is None, "--no-calibrate" in options)
                    if promised:
                        self.assertGreater(float(promised[1]), found / 3)
                        self.assertLess(float(promised[1]), found * 3)


if __name__ == "__main__":
    unittest.main()
