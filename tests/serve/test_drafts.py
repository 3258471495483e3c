"""Guesses by layers of the model: texts are those without, and answers and metrics count the guesses."""
import concurrent.futures
import os
import tempfile
import unittest

from common import Server
from predicting_model import write_predicting_model

TEXTS = "/v1/completions"
BODIES = [{"prompt": "The %s of the" % word, "max_tokens": 80, "cache_prompt": False, **sampling}
          for word in ("house", "sea", "king") for sampling in ({"temperature": 0}, {"temperature": 0.8, "seed": 7})]


class Drafts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "predicting.gguf")
        write_predicting_model(cls.model)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def answers(self, *options):
        """Of all bodies at once; and the metrics after them."""
        with Server(self.model, "--parallel", "3", *options) as server:
            with concurrent.futures.ThreadPoolExecutor(len(BODIES)) as threads:
                answers = list(threads.map(lambda body: server.post(TEXTS, body), BODIES))
            return answers, server.metrics()

    def test_texts_are_those_without(self):
        plain, counted = self.answers()
        texts = [answer["choices"][0]["text"] for answer in plain]
        self.assertEqual(counted["llamacpp:spec_decode_num_drafts_total"], 0)
        for answer in plain:
            self.assertNotIn("draft_n", answer["timings"])
        for draft in ("mtp:1", "mtp:3"):
            drafted, counted = self.answers("--draft", draft, "--draft-always")
            self.assertEqual([answer["choices"][0]["text"] for answer in drafted], texts)
            self.assertEqual([answer["usage"] for answer in drafted], [answer["usage"] for answer in plain])
            timings = [answer["timings"] for answer in drafted]
            guessed = sum(timing["draft_n"] for timing in timings)
            right = sum(timing["draft_n_accepted"] for timing in timings)
            self.assertGreater(right, 0)
            self.assertLess(right, guessed)
            self.assertEqual(counted["llamacpp:spec_decode_num_draft_tokens_total"], guessed)
            self.assertEqual(counted["llamacpp:spec_decode_num_accepted_tokens_total"], right)
            self.assertLessEqual(guessed, int(draft[-1]) * counted["llamacpp:spec_decode_num_drafts_total"])


if __name__ == "__main__":
    unittest.main()
