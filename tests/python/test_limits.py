"""What must not get through the border unseen: numbers that C would cut off, texts that it would end early, memory that it has given
back; and what is no longer referred to."""
import gc
import unittest

import numpy as np

import kvant
from common import NUMBER_WORDS, ROMEO, SHAKESPEARE, model

WRAPS = (2**32 + 1, 2**64 + 1)  # 1 where their upper bits are lost


class Numbers(unittest.TestCase):
    def setUp(self):
        self.runner = kvant.Runner(model(), sequences=3, context=64)
        self.addCleanup(self.runner.close)
        self.sequence = self.runner.new_sequence().append(ROMEO)
        self.tokenizer = kvant.Tokenizer(model())

    def test_no_number_loses_its_upper_bits(self):
        t, s, sampler = self.tokenizer, self.sequence, kvant.Sampler(vocab_size=9)
        calls = {
            "threads": lambda n: kvant.Runner(model(), threads=n),
            "top_k": lambda n: kvant.SamplingOptions(top_k=n),
            "logit_bias": lambda n: kvant.SamplingOptions(logit_bias={n: 1.0}),
            "beams": lambda n: kvant.BeamOptions(beams=n),
            "samples": lambda n: kvant.generate(model(), "a", samples=n, max_tokens=1),
            "vocab_size": lambda n: kvant.Sampler(vocab_size=n),
            "piece": t.piece, "is_end": t.is_end, "is_control": t.is_control, "token_bytes": t.token_bytes,
            "decode": t.create_stream().decode, "forbid": sampler.forbid, "accept": sampler.accept,
        }
        for name, call in calls.items():
            for number in WRAPS:
                with self.subTest(call=name, number=number), self.assertRaises(kvant.InvalidError):
                    call(number)
        for name, call in {"rewind": s.rewind, "keep_first": lambda n: s.prune(n, 1), "keep_last": lambda n: s.prune(1, n),
                           "context": lambda n: kvant.plan_memory(model(), context=n),
                           "max_tokens": lambda n: kvant.generate(model(), "a", max_tokens=n)}.items():
            with self.subTest(call=name), self.assertRaises(kvant.InvalidError):
                call(2**64 + 1)
        self.assertEqual(s.tokens.tolist(), ROMEO)

    def test_no_number_loses_its_fraction(self):
        generator = kvant.Generator(model(), kvant.GeneratorParams(model(), context=64))
        generator.append_tokens(ROMEO)
        for name, call in {"rewind": self.sequence.rewind, "rewind_to": generator.rewind_to, "prune": lambda n: self.sequence.prune(n, 1),
                           "first": lambda n: self.runner.score([(ROMEO, n)]), "piece": self.tokenizer.piece,
                           "decode": self.tokenizer.create_stream().decode,
                           "tokens": lambda n: kvant.PastKeyValues([n, n], {})}.items():
            with self.subTest(call=name), self.assertRaisesRegex(kvant.InvalidError, "1.5|float"):
                call(1.5)
        self.assertEqual(generator.token_count(), len(ROMEO))
        self.assertEqual(len(self.sequence), len(ROMEO))


class Texts(unittest.TestCase):
    def test_a_zero_does_not_end_a_text(self):
        with kvant.Runner(model(), context=64) as runner:
            sequence = runner.new_sequence().append(ROMEO)
            for name, call in {
                    "path": lambda: kvant.Model(f"{SHAKESPEARE}\0x"), "tokenizer": lambda: kvant.Tokenizer(f"{SHAKESPEARE}\0x"),
                    "isa": lambda: kvant.Model(SHAKESPEARE, isa="scalar\0x"), "samplers": lambda: kvant.SamplingOptions(samplers="top_k\0"),
                    "save": lambda: runner.save("/nonexistent/x\0y", [sequence]), "template": lambda: kvant.ChatTemplate(model(), "chatml\0"),
                    "variables": lambda: kvant.ChatTemplate(model(), "chatml\0x", source="{{ 1 }}"),
                    "array": lambda: runner.from_past_key_values(kvant.PastKeyValues([1], {"a\0": np.zeros(1)}))}.items():
                with self.subTest(call=name), self.assertRaisesRegex(kvant.InvalidError, "code 0"):
                    call()

    def test_one_stop_text_is_not_its_letters(self):
        stream = kvant.Tokenizer(model()).create_stream("O,")
        text = "".join(stream.decode(token) for token in kvant.Tokenizer(model()).encode("OK, O, well", add_special=False))
        self.assertEqual(text.strip(), "OK,")
        self.assertTrue(stream.ended)


class Lifetimes(unittest.TestCase):
    def test_arrays_of_processors_may_be_kept_and_written(self):
        kept = []

        def keep(tokens, logits):
            kept.append((tokens, logits, tokens.tolist(), logits.copy()))
            tokens[:] = -1
            kept[-1] = (kept[-1][0].copy(), *kept[-1][1:])

        plain = kvant.generate(model(), ROMEO, max_tokens=4, temperature=0)
        found = kvant.generate(model(), ROMEO, max_tokens=4, temperature=0, processors=[keep])
        gc.collect()
        self.assertEqual(found.tokens.tolist(), plain.tokens.tolist())
        for number, (tokens, logits, was, values) in enumerate(kept):
            self.assertTrue(logits.flags.owndata)
            self.assertEqual(was, [*ROMEO, *plain.tokens[:number]])
            np.testing.assert_array_equal(logits, values)

    def test_what_is_forgotten_makes_room(self):
        with kvant.Runner(model(), sequences=2, context=64) as runner:
            for _ in range(5):
                first = runner.new_sequence().append(ROMEO)
                first.fork().append([5])
                first.snapshot()
                del first
            self.assertEqual((runner.stats["sequences"], runner.stats["snapshots"], runner.stats["kv_bytes_used"]), (0, 0, 0))
        with kvant.Runner(model(NUMBER_WORDS), sequences=2) as runner:
            for number in range(5):
                runner.encode([64, 6, 20 + number, 1])
                runner.encode([64, 6, 30 + number, 1]).new_sequence()
            self.assertEqual(runner.stats["sequences"], 0)

    def test_what_is_forgotten_in_a_callback_is_freed_later(self):
        with kvant.Runner(model(), sequences=2, context=128, chunk=16) as runner:
            held = [runner.new_sequence().append(ROMEO)]
            runner.new_sequence().append(list(range(5, 69)), progress=lambda *_: held.clear())
            self.assertEqual(runner.stats["sequences"], 0)

    def test_a_stream_keeps_its_sequence(self):
        with kvant.Runner(model(), sequences=2, context=64) as runner:
            pieces = kvant.stream(runner, ROMEO, max_tokens=5, temperature=0, sequence=runner.new_sequence())
            first = next(pieces)
            runner.new_sequence()
            text = first.text + "".join(piece.text for piece in pieces)
            self.assertEqual(text, kvant.generate(model(), ROMEO, max_tokens=5, temperature=0).text)

    def test_there_are_as_many_samples_as_wanted(self):
        found = kvant.generate(model(), ROMEO, samples=20, max_tokens=3, seed=4)
        alone = kvant.generate(model(), ROMEO, max_tokens=3, seed=4 + 19)
        self.assertEqual(len(found), 20)
        self.assertEqual(found[19].tokens.tolist(), alone.tokens.tolist())


if __name__ == "__main__":
    unittest.main()
