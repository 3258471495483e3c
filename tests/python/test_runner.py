"""Runners and sequences: the cache, scores, files, arrays, sources. Where there are two ways to a result, both are taken."""
import tempfile
import unittest
from pathlib import Path

import numpy as np

import kvant
from common import NUMBER_WORDS, RECURRENT, ROMEO, ROOT, SHAKESPEARE, log_softmax, logit_rows, model, program, program_json

LONG = [2, *np.random.default_rng(7).integers(300, 4000, 70).tolist()]


class Sequences(unittest.TestCase):
    def runner(self, path=SHAKESPEARE, **options):
        options = {"sequences": 8, "context": 128, "kv_type": "f32", "kv_check": True, "strict": True, **options}
        return kvant.Runner(model(path), **options)

    def logits(self, tokens):
        """Behind tokens, in a runner of their own."""
        with self.runner() as runner:
            return runner.new_sequence().append(tokens).logits()

    def test_logits_are_those_of_the_program(self):
        rows = []
        with self.runner() as runner:
            runner.step([(runner.new_sequence(), LONG)], "all", lambda index, token, row: rows.append((index, token, row.copy())))
        self.assertEqual([(index, token) for index, token, _ in rows], [(0, token) for token in range(len(LONG))])
        expected = logit_rows(LONG, SHAKESPEARE, "--kv-type", "f32", "--strict", "-c", 128)
        np.testing.assert_array_equal(np.array([row for _, _, row in rows]), expected)

    def test_forks_share_and_part(self):
        with self.runner() as runner:
            first = runner.new_sequence().append(LONG[:40])
            used = runner.stats["kv_bytes_used"]
            second = first.fork()
            self.assertEqual(runner.stats["kv_bytes_used"], used)
            runner.step([(first, [500]), (second, [600, 601])])
            self.assertEqual((len(first), len(second)), (41, 42))
            np.testing.assert_array_equal(first.logits(), self.logits([*LONG[:40], 500]))
            np.testing.assert_array_equal(second.logits(), self.logits([*LONG[:40], 600, 601]))
            np.testing.assert_array_equal(second.tokens, [*LONG[:40], 600, 601])

    def test_reorder_moves_everything(self):
        with self.runner() as runner:
            every = [runner.new_sequence().append([2, 100 + i]) for i in range(3)]
            before = [one.logits() for one in every]
            runner.reorder(every, [2, 0, 0])
            for one, parent in zip(every, (2, 0, 0)):
                np.testing.assert_array_equal(one.logits(), before[parent])
                np.testing.assert_array_equal(one.tokens, [2, 100 + parent])

    def test_rewinds_are_exact(self):
        with self.runner() as runner:
            sequence = runner.new_sequence().append(LONG)
            sequence.rewind(33, replay=True)
            with self.assertRaisesRegex(kvant.InvalidError, "no logits"):
                sequence.logits()
            np.testing.assert_array_equal(sequence.compute_logits().logits(), self.logits(LONG[:33]))
            np.testing.assert_array_equal(sequence.append(LONG[33:]).logits(), self.logits(LONG))
            self.assertEqual(len(sequence.reset()), 0)

    def test_snapshots_bring_back(self):
        with self.runner() as runner:
            sequence = runner.new_sequence().append(LONG[:20])
            before = sequence.logits()
            with sequence.snapshot() as kept:
                sequence.append([7, 8, 9])
                np.testing.assert_array_equal(sequence.restore(kept).logits(), before)
            self.assertEqual(runner.stats["snapshots"], 0)

    def test_prune_keeps_first_and_last(self):
        with self.runner() as runner:
            sequence = runner.new_sequence().append(LONG[:30])
            self.assertEqual(len(sequence.prune(4, 6)), 10)

    def test_files_go_on_with_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state.kvs"
            with self.runner() as runner:
                runner.save(path, [runner.new_sequence().append(LONG), runner.new_sequence().append(ROMEO)])
            with self.runner() as runner:
                long, short = runner.load(path)
                np.testing.assert_array_equal(long.tokens, LONG)
                np.testing.assert_array_equal(short.append([500]).logits(), self.logits([*ROMEO, 500]))
            path.write_bytes(path.read_bytes()[:-9])
            with self.runner() as runner, self.assertRaisesRegex(kvant.CorruptError, "state.kvs"):
                runner.load(path)

    def test_rows_stand_in_place_of_tokens(self):
        metadata = model(SHAKESPEARE).metadata
        width = metadata[f"{metadata['general.architecture']}.embedding_length"]
        values = np.random.default_rng(5).normal(size=(6, width)).astype(np.float32)
        with tempfile.TemporaryDirectory() as folder, self.runner() as runner:
            path = Path(folder) / "state.kvs"
            with runner.add_rows(values) as rows, runner.add_rows(values) as again:
                np.testing.assert_array_equal(rows.ids, again.ids)
                text = [*LONG[:5], *rows.ids, *LONG[5:9]]
                whole = runner.new_sequence().append(text)
                parts = runner.new_sequence().append(text[:8]).fork().append(text[8:])
            np.testing.assert_array_equal(whole.logits(), parts.logits())
            self.assertFalse(np.array_equal(whole.logits(), self.logits(LONG[:9])))
            runner.save(path, [whole])
            with self.runner() as other:
                loaded, = other.load(path)
                np.testing.assert_array_equal(loaded.append(LONG[9:12]).logits(), whole.append(LONG[9:12]).logits())
            with self.assertRaisesRegex(kvant.InvalidError, f"expected {width} numbers for each row, found {width + 1}"):
                runner.add_rows(np.zeros((1, width + 1)))
            with self.assertRaisesRegex(kvant.InvalidError, r"shape \(count, width\), found \(2,\)"):
                runner.add_rows(np.zeros(2))

    def test_arrays_go_out_and_in(self):
        for layout, name, axis in (("bhsd", "past_key_values.1.key", 0), ("kbhsd", "past_1", 1), ("bkhsd", "past_1", 0)):
            with self.runner() as runner:
                pair = [runner.new_sequence().append(LONG[:17]), runner.new_sequence().append(LONG[1:18])]
                past = runner.past_key_values(pair, layout)
                self.assertEqual(past[name].shape[axis], 2)
                self.assertEqual(past[name].shape[-2:], (17, 64))
                np.testing.assert_array_equal(past.tokens, [LONG[:17], LONG[1:18]])
                again = runner.from_past_key_values(past)
                for one, other in zip(pair, again):
                    np.testing.assert_array_equal(other.compute_logits().logits(), one.logits())
                    np.testing.assert_array_equal(other.append([5]).logits(), one.append([5]).logits())
        with self.runner() as runner:
            past = runner.past_key_values([runner.new_sequence().append(ROMEO)])
            key, value = past.layer(0)
            self.assertEqual((key.shape, value.shape), ((1, 2, 3, 64), (1, 2, 3, 64)))
            past.arrays["past_key_values.0.key"] = key[:, :, :2]
            with self.assertRaisesRegex(kvant.InvalidError, "past_key_values.0.key"):
                runner.from_past_key_values(past)

    def test_attention_over_exported_arrays_is_what_the_model_computes(self):
        # The last layer's values reach the logits: other values, other logits; and zeros in place of one position are noticed.
        with self.runner() as runner:
            sequence = runner.new_sequence().append(LONG[:20])
            past = runner.past_key_values([sequence])
            past.arrays["past_key_values.5.value"] = past["past_key_values.5.value"] * 2
            changed = runner.from_past_key_values(past)[0].append([5]).logits()
            self.assertGreater(np.abs(changed - sequence.append([5]).logits()).max(), 1e-3)

    def test_scores_are_log_softmax_of_logits(self):
        texts = [LONG[:30], (LONG[:30], 12), [2, 5], ([*LONG[:20], 9, 9], 20)]
        with self.runner(strict=False) as runner:
            before = runner.new_sequence().append(ROMEO)
            found = runner.score(texts)
            self.assertEqual(len(before), 3)
        for text, score in zip(texts, found):
            tokens, first = text if isinstance(text, tuple) else (text, 1)
            rows = log_softmax(logit_rows(tokens, SHAKESPEARE, "--kv-type", "f32"))
            expected = [rows[i - 1, tokens[i]] for i in range(first, len(tokens))]
            np.testing.assert_allclose(score.log_probs, expected, atol=2e-2)  # int8 activations: other rows, other rounding
            self.assertEqual(score.greedy, bool((rows[first - 1:-1].argmax(-1) == tokens[first:]).all()))

    def test_prefixes_are_found_again(self):
        with self.runner(prefix_cache=True, strict=False) as runner:
            runner.new_sequence().append(LONG).close()
            self.assertEqual(runner.new_sequence().reuse_prefix(LONG), 64)

    def test_progress_is_told_and_ends_a_prompt(self):
        seen = []
        with self.runner(chunk=16) as runner:
            runner.new_sequence().append(LONG, progress=lambda done, total: seen.append((done, total)))
            self.assertEqual(seen[-1], (71, 71))
            self.assertGreater(len(seen), 3)
            stopped = runner.new_sequence()
            with self.assertRaises(kvant.CancelledError):
                stopped.append(LONG, progress=lambda done, total: False)
            self.assertLess(len(stopped), 71)

    def test_kv_log_tells_lines(self):
        lines = []
        with self.runner() as runner:
            runner.set_kv_log(lines.append)
            runner.new_sequence().append(ROMEO)
            runner.set_kv_log(None)
            count = len(lines)
            runner.new_sequence()
        self.assertTrue(any("past_key_values.0.key shape=[" in line for line in lines), lines)
        self.assertEqual(len(lines), count)

    def test_views_of_logits_are_not_written(self):
        with self.runner() as runner:
            row = runner.new_sequence().append(ROMEO).logits(copy=False)
            with self.assertRaises(ValueError):
                row[0] = 1

    def test_opening_tells_its_progress(self):
        for read in (False, True):
            seen = []
            with kvant.Model(SHAKESPEARE, progress=lambda done, total: seen.append((done, total)), read_file=read) as opened:
                self.assertEqual(seen[-1], (opened.info.file_bytes, opened.info.file_bytes))

    def test_memory_is_planned(self):
        plan = kvant.plan_memory(model(), context=128, kv_type="q8")
        self.assertEqual(plan["total"], sum(plan[name] for name in ("weights", "kv", "activations", "logits")))
        self.assertLess(plan["kv"], kvant.plan_memory(model(), context=128, kv_type="f16")["kv"])
        with self.runner(threads=1) as runner:
            self.assertEqual((runner.options["threads"], runner.options["k_type"], runner.options["context"]), (1, "f32", 128))

    def test_threads_are_placed(self):
        import os

        cpu = min(os.sched_getaffinity(0))
        expected = self.logits(LONG)
        for options, told in (({"pin": [cpu], "threads": 3}, [cpu]), ({"pin": "cores", "numa": "isolate"}, "cores"),
                              ({"numa": "distribute"}, "none")):
            with self.runner(**options) as runner:
                self.assertEqual((runner.options["pin"], runner.options["numa"]), (told, options.get("numa", "none")))
                np.testing.assert_array_equal(runner.new_sequence().append(LONG).logits(), expected)
        for options in ({"pin": [cpu, cpu]}, {"pin": [8191]}, {"pin": []}, {"pin": "core"}, {"pin": 1}, {"numa": 1}, {"numa": "numactl"}):
            with self.assertRaises(kvant.InvalidError):
                self.runner(**options)

    def test_recurrent_models_fork_and_rewind(self):
        with self.runner(RECURRENT, strict=False) as runner:
            sequence = runner.new_sequence().append([1, 50, 60, 70])
            fork = sequence.fork()
            runner.step([(sequence, [5]), (fork, [6])])
            sequence.rewind(4, replay=True)
            np.testing.assert_allclose(sequence.append([6]).logits(), fork.logits(), atol=1e-4)


class Samplers(unittest.TestCase):
    def test_samplers_draw_what_the_program_draws(self):
        out = program_json("run", SHAKESPEARE, "-q", "-p", "ROMEO:", "-n", 20, "--temp", "0.9", "--top-k", "30", "--top-p", "0.9", "--min-p",
                           "0.01", "-s", "11")
        runner = kvant.Runner(model())
        sequence = runner.new_sequence().append(ROMEO)
        sampler = kvant.Sampler(kvant.Tokenizer(model()), temperature=0.9, top_k=30, top_p=0.9, min_p=0.01, seed=11)
        sampler.accept(ROMEO)
        self.assertEqual(sampler.seed, 11)
        self.assertEqual([sequence.generate(sampler) for _ in range(20)], out["ids"])

    def test_bias_forbids_and_clones_agree(self):
        logits = np.random.default_rng(3).normal(size=50).astype(np.float32)
        best = int(logits.argmax())
        self.assertEqual(kvant.Sampler(vocab_size=50, temperature=0).sample(logits), best)
        barred = kvant.Sampler(vocab_size=50, temperature=0, logit_bias={best: float("-inf")})
        second = int(np.argsort(logits)[-2])
        self.assertEqual(barred.sample(logits), second)
        barred.forbid(second)
        self.assertEqual(barred.sample(logits), int(np.argsort(logits)[-3]))
        drawing = kvant.Sampler(vocab_size=50, temperature=2.0, seed=9)
        copy = drawing.clone()
        self.assertEqual([drawing.sample(logits) for _ in range(20)], [copy.sample(logits) for _ in range(20)])

    def test_draws_have_the_probabilities(self):
        logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
        sampler = kvant.Sampler(vocab_size=4, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)
        counts = np.bincount([sampler.sample(logits) for _ in range(4000)], minlength=4)
        # 5 standard deviations
        np.testing.assert_allclose(counts / 4000, [0.5, 0.25, 0.125, 0.125], atol=0.04)


class Sources(unittest.TestCase):
    def setUp(self):
        self.model = model(NUMBER_WORDS)
        self.tokenizer = kvant.Tokenizer(self.model)

    def test_sources_are_read_once_and_shared(self):
        with kvant.Runner(self.model, sequences=3) as runner:
            tokens = self.tokenizer.encode("digits: five hundred and two")
            with runner.encode(tokens) as source, runner.encode(tokens):
                first, second = source.new_sequence(), source.new_sequence()
                start = self.model.info.decoder_start
                runner.step([(first, [start]), (second, [start])])
                np.testing.assert_array_equal(first.logits(), second.logits())
                self.assertEqual(runner.stats["encoder_passes"], 1)
            rows = []
            runner.encode(tokens, rows.append).close()
            self.assertEqual(rows[0].shape[0] % len(tokens), 0)
            second.reset().set_source(runner.encode(self.tokenizer.encode("digits: one")))

    def test_searches_are_those_of_the_program(self):
        out = program_json("run", NUMBER_WORDS, "-q", "-p", "digits: three hundred and forty-two", "--beams", "3")
        found = kvant.beam_search(self.model, [[self.model.info.decoder_start]], beams=3, sources=["digits: three hundred and forty-two"])
        self.assertEqual(found[0][0].tokens.tolist(), out["beams"][0]["ids"])
        self.assertEqual(found[0][0].text, "342")
        self.assertTrue(found[0][0].ended)
        self.assertAlmostEqual(found[0][0].score, out["beams"][0]["score"], places=4)

    def test_scores_have_sources(self):
        with kvant.Runner(self.model, sequences=3, kv_type="f32") as runner:
            source = self.tokenizer.encode("digits: five")
            text = [self.model.info.decoder_start, *self.tokenizer.encode("5")]
            found = runner.score([text, text], sources=[source, self.tokenizer.encode("digits: six")])
            self.assertGreater(found[0].log_probs[0], found[1].log_probs[0] + 1)

    def test_silence_follows_fewer_frames(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "speech.gguf"
            program("convert", ROOT / "tests/reference/ctranslate2/whisper", file)
            with kvant.Runner(kvant.Model(file), sequences=2) as runner:
                bins, count = runner.model.info.frame_bins, runner.model.info.frames
                sound = np.random.default_rng(2).uniform(-0.5, 1, (bins, count - 9))
                for largest, silence in ((1.0, -1.0), (0.25, -1.5)):
                    few = np.minimum(sound, largest)
                    few[0, 0] = largest
                    whole = np.concatenate([few, np.full((bins, 9), silence)], axis=1)
                    rows = []
                    for frames in (whole, few, few[None], whole.astype(np.float32)[None]):
                        runner.encode_frames(frames, lambda row: rows.append(row.copy())).close()
                    for row in rows[1:]:
                        np.testing.assert_array_equal(row, rows[0])
                for wrong in (np.zeros((bins, count + 1)), np.zeros((bins + 1, count)), np.zeros((2, bins, count))):
                    with self.assertRaises(kvant.InvalidError):
                        runner.encode_frames(wrong)


if __name__ == "__main__":
    unittest.main()
