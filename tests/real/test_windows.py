"""Prompts of some 5,800 tokens through Gemma 3's windows of 512 positions."""
import unittest

import numpy as np

from common import RealModel, dequantized, last_logits, logits, long_text, path_of, tokenize

TOLERANCE = 1e-3  # of logits up to 40, in float32 on both sides
SHORT = 45  # sentences, more than a window; attention without the cache is slow


class Gemma3(RealModel):
    name = "gemma3-270m"

    def test_a_long_prompt_as_transformers(self):
        wanted = self.expected["long"]
        tokens = tokenize(self.name, long_text(wanted["sentences"]))
        self.assertEqual(len(tokens), wanted["tokens"])
        with dequantized(self.name) as file:
            found = np.take_along_axis(last_logits(file, tokens, wanted["positions"]), np.array(wanted["ids"]), 1)
        np.testing.assert_allclose(found, wanted["logits"], rtol=0, atol=TOLERANCE)

    def test_pieces_have_the_bits_of_the_whole(self):
        tokens = tokenize(self.name, long_text(self.expected["long"]["sentences"]))
        count = 4500
        whole = logits(path_of(self.name), tokens[:count], "--last", "--kv-type", "f16")
        for chunk in (100, 1500):  # both divide the count: every piece is long
            np.testing.assert_array_equal(logits(path_of(self.name), tokens[:count], "--last", "--kv-type", "f16", "--chunk", chunk), whole)

    def test_the_cache_is_worth_the_sequence_computed_anew(self):
        tokens = tokenize(self.name, long_text(SHORT))
        with dequantized(self.name) as file:
            cached = logits(file, tokens, "--last")
            anew = logits(file, tokens, "--last", "--no-kv-cache")
        np.testing.assert_allclose(cached, anew, rtol=0, atol=TOLERANCE)


if __name__ == "__main__":
    unittest.main()
