"""Logits of released models: dequantized beside transformers in float64, and as they are beside llama.cpp's divergence."""
import unittest

import numpy as np

from common import DIVERGENCE_TOKENS, TEXT, RealModel, dequantized, divergence, logits, path_of, shared_text, tokenize

# Of logits up to 42. kvant differed by 1.3e-4 at most, transformers in float32 by 2.0e-4.
TOLERANCE = 5e-4


class Logits:
    def test_dequantized_as_transformers(self):
        text = self.expected["text"]
        self.assertEqual(tokenize(self.name, TEXT), text["tokens"])
        with dequantized(self.name) as file:
            for options in ([], ["--strict"], ["--chunk", "7"]):
                rows = logits(file, text["tokens"], *options)[text["positions"]]
                found = np.take_along_axis(rows, np.array(text["ids"]), 1)
                np.testing.assert_allclose(found, text["logits"], rtol=0, atol=TOLERANCE, err_msg=str(options))
                # Nothing else is likelier than the twentieth.
                np.put_along_axis(rows, np.array(text["ids"]), -np.inf, 1)
                self.assertTrue((rows.max(1) < np.array(text["logits"])[:, -1] + TOLERANCE).all())


class Divergence:
    """Of the file as it is from the dequantized one."""

    def test_quantized_diverges_no_more_than_llama_cpp(self):
        tokens = tokenize(self.name, shared_text(8 * DIVERGENCE_TOKENS))[:DIVERGENCE_TOKENS]
        with dequantized(self.name) as file:
            base = logits(file, tokens)
        for way, options in (("decode", ["--strict"]), ("prefill", [])):
            found = divergence(base, logits(path_of(self.name), tokens, "--kv-type", "f16", *options))
            print(f"{self.name}: divergence in {way}: {found:.6f}, llama.cpp {self.expected['divergence'][way]:.6f}")
            self.assertLessEqual(found, self.expected["divergence"][way], way)


class SmolLM2(Logits, Divergence, RealModel):
    name = "smollm2"


class Gemma3(Logits, Divergence, RealModel):
    name = "gemma3-270m"


class Qwen2(Logits, Divergence, RealModel):
    name = "qwen2.5-coder-0.5b"


if __name__ == "__main__":
    unittest.main()
