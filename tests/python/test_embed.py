"""Vectors and scores: embed(), rerank(), Embedder, against the program, against each other, and against what a vector is."""
import json
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np

import kvant
from common import ROOT, SHAKESPEARE, model, program

sys.path.insert(0, str(ROOT / "tests"))
import embedding_models  # noqa: E402

TEXTS = ["hello world", "The panda, the bear.", "a", "hello", "the bear is a bear"]
DOCUMENTS = ["a bear", "the panda", "hello world", "the panda is a bear"]


class WithModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.paths = embedding_models.write(cls.folder.name)

    def embedder(self, name="minibert", **options):
        embedder = kvant.Embedder(self.paths[name], **options)
        self.addCleanup(embedder.close)
        return embedder

    def same(self, first, second):
        np.testing.assert_array_equal(np.asarray(first), np.asarray(second))


class Vectors(WithModels):
    def test_as_the_program_makes_them(self):
        lines = program("embed", self.paths["minibert"], *(part for text in TEXTS for part in ("-p", text))).splitlines()
        self.same(np.array([json.loads(line)["embedding"] for line in lines], np.float32), self.embedder().embed(TEXTS))

    def test_company_and_threads_change_no_bit(self):
        embedder = self.embedder(threads=1)
        alone = [embedder.embed(text) for text in TEXTS]
        for threads, batch in ((1, 0), (2, 0), (3, 7), (2, 1)):
            other = self.embedder(threads=threads, batch_tokens=batch)
            self.same(other.embed(TEXTS), alone)
            self.same(other.embed(TEXTS[::-1])[::-1], alone)
            self.same(other.encode(TEXTS, batch_size=2), alone)

    def test_ids(self):
        embedder = self.embedder()
        ids = [embedder.tokens(text) for text in TEXTS]
        self.assertEqual((ids[0][0], ids[0][-1]), (2, 3))
        for given in (ids, [list(one) for one in ids], [ids[0], *TEXTS[1:]]):
            self.same(embedder.embed(given), embedder.embed(TEXTS))
        self.same(embedder.embed(ids[1]), embedder.embed(TEXTS[1]))
        self.same(embedder.embed([int(one) for one in ids[1]]), embedder.embed(TEXTS[1]))

    def test_norms_and_dimensions(self):
        embedder = self.embedder()
        raw = embedder.embed(TEXTS, normalize=False).astype(np.float64)
        self.assertTrue((np.abs(np.linalg.norm(raw, axis=1) - 1) > 0.01).all())
        for given, length in ((True, np.linalg.norm(raw, axis=1)), (1, np.abs(raw).sum(1)), (3, (np.abs(raw) ** 3).sum(1) ** (1 / 3)),
                              (0, np.abs(raw).max(1) / 32760)):
            np.testing.assert_allclose(embedder.embed(TEXTS, normalize=given), raw / length[:, None], rtol=2e-6)
        cut = embedder.embed(TEXTS, dimensions=8)
        np.testing.assert_allclose(cut, raw[:, :8] / np.linalg.norm(raw[:, :8], axis=1, keepdims=True), rtol=2e-6)
        self.same(embedder.encode(TEXTS, truncate_dim=8), cut)
        self.same(embedder.encode(TEXTS, normalize_embeddings=False), raw.astype(np.float32))

    def test_prompts(self):
        embedder = self.embedder()
        self.assertEqual(embedder.prompts, embedding_models.PROMPTS)
        self.assertIsNone(embedder.default_prompt_name)
        prefixed = [embedding_models.PROMPTS["query"] + text for text in TEXTS]
        for found in (embedder.embed(TEXTS, prompt_name="query"), embedder.encode(TEXTS, prompt_name="query"),
                      embedder.embed(TEXTS, prompt="hello "), embedder.encode(TEXTS, prompt="hello ")):
            self.same(found, embedder.embed(prefixed))
        with self.assertRaisesRegex(kvant.InvalidError, "other.*query.*document"):
            embedder.embed(TEXTS, prompt_name="other")
        with self.assertRaisesRegex(kvant.InvalidError, "both"):
            embedder.embed(TEXTS, prompt_name="query", prompt="a")

    def test_rows_of_tokens(self):
        rows, mean = self.embedder(pooling="none"), self.embedder()
        found = rows.embed(TEXTS)
        self.assertEqual([len(one) for one in found], [len(mean.tokens(text)) for text in TEXTS])
        np.testing.assert_allclose([one.astype(np.float64).mean(0) for one in found], mean.embed(TEXTS, normalize=False), rtol=1e-4, atol=1e-6)
        self.same([one[0] for one in found], self.embedder(pooling="cls").embed(TEXTS, normalize=False))
        self.same([one[-1] for one in found], self.embedder(pooling="last").embed(TEXTS, normalize=False))
        self.same(rows.encode(TEXTS[0]), found[0])
        for one, other in zip(rows.encode(TEXTS, batch_size=2), found):
            self.same(one, other)

    def test_shapes(self):
        embedder = self.embedder()
        self.assertEqual((embedder.embed(TEXTS).shape, embedder.embed(TEXTS[0]).shape), ((5, 32), (32,)))
        self.assertEqual((embedder.embed([]).shape, embedder.encode([]).shape), ((0, 32), (0, 32)))
        self.assertEqual((embedder.dim, embedder.get_sentence_embedding_dimension(), embedder.context), (32, 32, 64))
        self.assertEqual(embedder.pooling, "mean")
        listed = embedder.encode(TEXTS, convert_to_numpy=False)
        self.assertIsInstance(listed, list)
        self.same(listed, embedder.encode(TEXTS))
        self.assertEqual(embedder.embed(TEXTS).dtype, np.float32)
        self.assertGreater(embedder.memory["activations"], 0)

    def test_similarity(self):
        embedder = self.embedder()
        first, second = embedder.embed(TEXTS), embedder.embed(DOCUMENTS, normalize=False).astype(np.float64)
        cosines = embedder.similarity(first, second)
        for i, one in enumerate(first.astype(np.float64)):
            for j, other in enumerate(second):
                self.assertAlmostEqual(cosines[i, j], one @ other / np.linalg.norm(one) / np.linalg.norm(other), places=5)
        np.testing.assert_allclose(np.diag(embedder.similarity(first, first)), 1, rtol=1e-5)

    def test_models_that_write(self):
        with self.assertRaisesRegex(kvant.InvalidError, "pooling"):
            kvant.Embedder(model())
        with kvant.Embedder(model(), pooling="last", context=64) as embedder:
            vectors = embedder.embed(["ROMEO:", "To be, or not to be"])
            self.same(kvant.embed(SHAKESPEARE, ["ROMEO:", "To be, or not to be"], pooling="last"), vectors)
            self.same(kvant.embed(embedder, "ROMEO:"), vectors[0])
            with self.assertRaisesRegex(kvant.InvalidError, "pooling"):
                kvant.embed(embedder, "ROMEO:", pooling="mean")
            with self.assertRaisesRegex(kvant.InvalidError, "rank"):
                embedder.rank("a", ["b"])
        with self.assertRaisesRegex(kvant.InvalidError, "closed"):
            embedder.embed("a")


class Scores(WithModels):
    def test_as_the_program_ranks(self):
        file = Path(self.folder.name) / "documents.txt"
        file.write_text("\n".join(DOCUMENTS))
        for options, raw in (((), False), (("--raw-scores",), True)):
            lines = program("rerank", self.paths["minirank"], "-q", "the panda", "-f", file, "--json", *options).splitlines()
            expected = [json.loads(line) for line in lines]
            found = kvant.rerank(self.paths["minirank"], "the panda", DOCUMENTS, raw_scores=raw)
            self.assertEqual([(one.index, one.document) for one in found], [(one["index"], one["document"]) for one in expected])
            self.same(np.array([one.score for one in found], np.float32), np.array([one["score"] for one in expected], np.float32))

    def test_ways_to_scores(self):
        embedder = self.embedder("minirank")
        self.assertEqual((embedder.pooling, embedder.labels, embedder.label_names, embedder.dim), ("rank", 1, ["relevance"], 0))
        raw = embedder.scores("the panda", DOCUMENTS, raw_scores=True)
        scores = embedder.scores("the panda", DOCUMENTS)
        np.testing.assert_allclose(scores, 1 / (1 + np.exp(-raw.astype(np.float64))), rtol=1e-6)
        self.same([embedder.scores("the panda", [one])[0] for one in DOCUMENTS], scores)
        ranked = embedder.rank("the panda", DOCUMENTS)
        self.assertEqual([one.index for one in ranked], list(np.argsort(-scores, kind="stable")))
        self.assertEqual(embedder.rank("the panda", DOCUMENTS, 2), ranked[:2])
        self.assertEqual(kvant.rerank(embedder, "the panda", DOCUMENTS, top_n=2), ranked[:2])
        self.assertEqual(len(embedder.rank("the panda", DOCUMENTS, top_n=100)), len(DOCUMENTS))
        ids, types = embedder.pair_tokens("the panda", "a bear")
        separators = np.flatnonzero(ids == 3)
        self.same(types, np.arange(len(ids)) > separators[0])
        # Segments matter, so ids alone are another input.
        self.assertNotEqual(embedder.logits([ids])[0, 0], embedder.scores("the panda", ["a bear"], raw_scores=True)[0])

    def test_labels(self):
        embedder = self.embedder("minilabels")
        self.assertEqual((embedder.labels, embedder.label_names), (3, ["good", "bad", "neither"]))
        logits = embedder.logits(TEXTS)
        self.assertEqual(logits.shape, (len(TEXTS), 3))
        self.same(logits[1], embedder.logits(TEXTS[1]))
        with self.assertRaisesRegex(kvant.InvalidError, "3 labels"):
            embedder.rank("a", ["b"])
        with self.assertRaisesRegex(kvant.InvalidError, "ranks"):
            embedder.embed("a")


class Refusals(WithModels):
    def test_texts(self):
        embedder, ranker = self.embedder(), self.embedder("minirank")
        for texts in (["a", ""], ["a", []], ["a", [10**6]], ["a", [-1]], ["a", 5], ["a", None], ["a", [1.5]], ["a", [2**40]]):
            with self.subTest(texts=texts), self.assertRaisesRegex(kvant.InvalidError, "text"):
                embedder.embed(texts)
        for call in (lambda: embedder.embed(""), lambda: ranker.rank("", ["a"]), lambda: ranker.rank("a", ["b", ""]),
                     lambda: ranker.rank("a", "b"), lambda: ranker.rank("a", None), lambda: ranker.rank("a", [5]), lambda: ranker.rank(5, ["a"]),
                     lambda: ranker.rank("a", ["b"], 0), lambda: ranker.rank("a", ["b"], raw_scores=2), lambda: embedder.encode(["a"], batch_size=0),
                     lambda: embedder.embed("a", dimensions=33), lambda: embedder.embed("a", dimensions=-1), lambda: embedder.embed("a", normalize=-3),
                     lambda: embedder.embed("a", normalize="x"), lambda: embedder.embed("a", truncate=3), lambda: embedder.embed("a", prompt_name=5),
                     lambda: kvant.Embedder(self.paths["minibert"], pooling="sum"), lambda: kvant.Embedder(self.paths["minibert"], pooling="rank"),
                     lambda: kvant.Embedder(self.paths["minibert"], context=65), lambda: kvant.Embedder(self.paths["minibert"], threads=-1),
                     lambda: kvant.Embedder(self.paths["minibert"], batch_tokens=-1), lambda: kvant.embed(None, "a")):
            with self.assertRaises(kvant.InvalidError):
                call()
        self.assertEqual(embedder.embed(TEXTS).shape, (5, 32))

    def test_long_texts(self):
        embedder = self.embedder()
        long = "hello " * 100
        with self.assertRaisesRegex(kvant.ContextFullError, "text 1.*102.*64"):
            embedder.embed(["a", long])
        whole = embedder.embed("hello " * 62)
        self.same(embedder.embed(long, truncate=True), whole)
        self.same(embedder.encode(long), whole)
        with self.assertRaises(kvant.ContextFullError):
            embedder.encode(long, truncate=False)
        ranker = self.embedder("minirank")
        with self.assertRaisesRegex(kvant.ContextFullError, "text 1.*64"):
            ranker.rank("a", ["b", long])
        self.assertEqual(ranker.rank("a", [long], truncate=True)[0].score, ranker.rank("a", ["hello " * 60])[0].score)

    def test_cancel(self):
        embedder = self.embedder()
        embedder.cancel()
        with self.assertRaises(kvant.CancelledError):
            embedder.embed(TEXTS)
        with kvant.Embedder(model(), pooling="mean", threads=1) as slow:
            ids = np.tile(np.arange(10, 1000, dtype=np.int32), (200, 1))
            errors = []

            def run():
                try:
                    slow.embed(list(ids))
                except kvant.KvantError as error:
                    errors.append(error)
            thread = threading.Thread(target=run)
            thread.start()
            while thread.is_alive() and not errors:
                slow.cancel()
                thread.join(0.01)
            self.assertIsInstance(errors[0], kvant.CancelledError)

    def test_one_call_at_a_time(self):
        with kvant.Embedder(model(), pooling="mean", threads=1) as embedder:
            ids = [np.arange(10, 500, dtype=np.int32)] * 40
            found = []
            threads = [threading.Thread(target=lambda: found.append(self.attempt(embedder, ids))) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertIn(None, found)
            for error in found:
                if error is not None:
                    self.assertRegex(str(error), "another call")

    @staticmethod
    def attempt(embedder, ids):
        try:
            embedder.embed(ids)
            return None
        except kvant.InvalidError as error:
            return error


if __name__ == "__main__":
    unittest.main()
