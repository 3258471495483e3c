"""Texts: batches, samples, stop texts, streams, processors, beams, tokenizers and templates. The program `kvant` is the other way."""
import json
import math
import struct
import tempfile
import unittest
from pathlib import Path

import numpy as np

import kvant
from common import NUMBER_WORDS, RECURRENT, ROMEO, ROOT, SHAKESPEARE, model, program, program_json

PROMPTS = ["ROMEO:", "JULIET:\nO", "KING RICHARD III:\n", "First Citizen:"]


class Texts(unittest.TestCase):
    def test_a_text_is_what_the_program_writes(self):
        for options, words in (({"temperature": 0}, ["--temp", "0"]),
                               ({"temperature": 0.8, "top_k": 20, "seed": 4}, ["--temp", "0.8", "--top-k", "20", "-s", "4"]),
                               ({"temperature": 0, "repeat_penalty": 1.3}, ["--temp", "0", "--repeat-penalty", "1.3"])):
            out = program_json("run", SHAKESPEARE, "-q", "-p", "ROMEO:", "-n", 24, *words)
            text = kvant.generate(model(), "ROMEO:", max_tokens=24, **options)
            self.assertEqual((text.text, text.tokens.tolist(), text.finish_reason), (out["text"], out["ids"], out["finish_reason"]))
            self.assertEqual((text.prompt_tokens, text.error), (3, None))

    def test_batches_are_texts_alone(self):
        options = {"max_tokens": 16, "temperature": 0.9, "seed": 3}
        every = kvant.generate(model(), PROMPTS, **options)
        self.assertEqual([text.prompt for text in every], [0, 1, 2, 3])
        for prompt, text in zip(PROMPTS, every):
            self.assertEqual(text.text, kvant.generate(model(), prompt, **options).text)
        few = kvant.generate(model(), PROMPTS, parallel=2, **options)
        self.assertEqual([text.text for text in few], [text.text for text in every])

    def test_samples_have_seeds_of_their_own(self):
        samples = kvant.generate(model(), ["ROMEO:", "JULIET:"], samples=3, seed=7, temperature=1.0, max_tokens=12)
        for prompt, of in zip(("ROMEO:", "JULIET:"), samples):
            for number, text in enumerate(of):
                self.assertEqual((text.sample, text.seed), (number, 7 + number))
                alone = kvant.generate(model(), prompt, seed=7 + number, temperature=1.0, max_tokens=12)
                self.assertEqual(text.text, alone.text)
        one = kvant.generate(model(), "ROMEO:", samples=2, seed=7, temperature=1.0, max_tokens=12)
        self.assertEqual([text.text for text in one], [text.text for text in samples[0][:2]])

    def test_prompts_are_texts_or_tokens(self):
        options = {"max_tokens": 8, "temperature": 0}
        expected = kvant.generate(model(), "ROMEO:", **options).text
        self.assertEqual(kvant.generate(model(), ROMEO, **options).text, expected)
        self.assertEqual(kvant.generate(model(), np.array(ROMEO), **options).text, expected)
        both = kvant.generate(model(), [ROMEO, "ROMEO:", b"ROMEO:"], **options)
        self.assertEqual([text.text for text in both], [expected] * 3)

    def test_stop_texts_end_a_text_and_are_left_out(self):
        whole = kvant.generate(model(), "ROMEO:", max_tokens=30, temperature=0).text
        text = kvant.generate(model(), "ROMEO:", max_tokens=30, temperature=0, stop=["woman's", "zzz"])
        self.assertEqual((text.text, text.finish_reason), (whole[:whole.index("woman's")], "stop_text"))
        self.assertEqual(kvant.generate(model(), "ROMEO:", max_tokens=30, temperature=0, stop="woman's").text, text.text)

    def test_log_probabilities_are_those_of_the_logits(self):
        text = kvant.generate(model(), "ROMEO:", max_tokens=8, temperature=1.2, repeat_penalty=1.4, seed=2, log_probs=4)
        self.assertEqual((text.log_probs.shape, text.top_tokens.shape, text.top_log_probs.shape), ((8,), (8, 4), (8, 4)))
        with kvant.Runner(model()) as runner:
            sequence = runner.new_sequence()
            sequence.append(ROMEO)
            for n, token in enumerate(text.tokens):
                logits = sequence.logits().astype(np.float64)
                expected = logits - logits.max()
                expected -= np.log(np.exp(expected).sum())
                order = np.argsort(-logits, kind="stable")[:4]
                self.assertAlmostEqual(text.log_probs[n], expected[token], places=4)
                self.assertEqual(text.top_tokens[n].tolist(), order.tolist())
                np.testing.assert_allclose(text.top_log_probs[n], expected[order], atol=1e-4)
                sequence.append([int(token)])
        alone = kvant.generate(model(), "ROMEO:", max_tokens=3, temperature=0, log_probs=0)
        self.assertEqual((alone.log_probs.shape, alone.top_tokens.shape), ((3,), (3, 0)))
        self.assertIsNone(kvant.generate(model(), "ROMEO:", max_tokens=3, temperature=0).log_probs)

    def test_a_text_has_a_time_limit(self):
        with self.assertRaises(kvant.DeadlineError):
            kvant.generate(model(), "ROMEO:", max_tokens=8, temperature=0, seconds_max=1e-9)
        with self.assertRaisesRegex(kvant.InvalidError, "seconds_max: expected 0 or more"):
            kvant.generate(model(), "ROMEO:", max_tokens=8, seconds_max=-1.0)

    def test_streams_give_the_texts_in_pieces(self):
        texts, ended = ["", "", "", ""], {}
        with kvant.stream(model(), PROMPTS, max_tokens=16, temperature=0) as pieces:
            for piece in pieces:
                texts[piece.prompt] += piece.text
                if piece.generated is not None:
                    ended[piece.prompt] = piece.generated.text
        self.assertEqual(texts, [ended[i] for i in range(4)])
        self.assertEqual(texts, [text.text for text in kvant.generate(model(), PROMPTS, max_tokens=16, temperature=0)])

    def test_a_stream_may_be_left(self):
        runner = kvant.Runner(model(), sequences=2, context=200)
        pieces = kvant.stream(runner, "ROMEO:", max_tokens=150, temperature=0)
        next(pieces)
        pieces.close()
        self.assertEqual(runner.stats["sequences"], 0)
        self.assertEqual(list(pieces), [])
        self.assertLess(runner.stats["tokens_processed"], 20)

    def test_a_text_goes_on_in_a_sequence(self):
        runner = kvant.Runner(model(), sequences=2, context=100)
        sequence = runner.new_sequence().append(ROMEO[:2])
        text = kvant.generate(runner, ROMEO, max_tokens=6, temperature=0, sequence=sequence)
        self.assertEqual(text.text, kvant.generate(model(), ROMEO, max_tokens=6, temperature=0).text)
        self.assertEqual(sequence.tokens[:3].tolist(), ROMEO)
        self.assertGreaterEqual(len(sequence), 8)

    def test_prompts_that_do_not_fit_are_refused_before_anything_runs(self):
        runner = kvant.Runner(model(), sequences=2, context=16)
        for prompts in (["ROMEO:", [2] + [500] * 40], [2] + [500] * 40):
            with self.assertRaisesRegex(kvant.ContextFullError, "41 tokens.*16"):
                kvant.generate(runner, prompts, max_tokens=4, temperature=0)
        self.assertEqual((runner.stats["passes"], runner.stats["sequences"]), (0, 0))
        self.assertEqual(kvant.generate(runner, "ROMEO:", temperature=0).finish_reason, "context")

    def test_end_tokens_end(self):
        text = kvant.generate(model(RECURRENT), "a", max_tokens=300, temperature=0)
        self.assertIn(text.finish_reason, ("stop", "length"))
        text = kvant.generate(model(RECURRENT), "a", max_tokens=20, temperature=0, ignore_end=True)
        self.assertEqual((text.finish_reason, len(text.tokens)), ("length", 20))


class Processors(unittest.TestCase):
    def test_processors_change_logits(self):
        seen = []

        def forbid(tokens, logits):
            seen.append(tokens.tolist())
            logits[14] = -np.inf

        text = kvant.generate(model(), "ROMEO:", max_tokens=12, temperature=0, processors=[forbid])
        expected = kvant.generate(model(), "ROMEO:", max_tokens=12, temperature=0, logit_bias={14: float("-inf")})
        self.assertEqual(text.text, expected.text)
        self.assertNotIn(14, text.tokens)
        self.assertEqual(seen[0], ROMEO)
        self.assertEqual(seen[3], [*ROMEO, *text.tokens[:3].tolist()])

    def test_a_text_ends_where_a_processor_leaves_no_token(self):
        def four(tokens, logits):
            if len(tokens) == len(ROMEO) + 4:
                logits[:] = -np.inf

        text = kvant.generate(model(), "ROMEO:", max_tokens=12, temperature=0, processors=[four])
        expected = kvant.generate(model(), "ROMEO:", max_tokens=4, temperature=0)
        self.assertEqual((text.text, text.finish_reason, text.error), (expected.text, "no_token", None))

    def test_logits_that_are_no_numbers_are_corrupt(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "nan.gguf"
            data = bytearray(SHAKESPEARE.read_bytes())
            name = b"output_norm.weight"
            described = data.index(name) + len(name)
            dims = struct.unpack_from("<I", data, described)[0]
            size, = struct.unpack_from("<Q", data, described + 4)
            offset, = struct.unpack_from("<Q", data, described + 4 + 8 * dims + 4)
            tensors = json.loads(program("inspect", SHAKESPEARE, "--json"))["model"]["tensor_bytes"]
            begin = len(data) - tensors + offset
            data[begin:begin + 4 * size] = struct.pack("<f", math.nan) * size
            path.write_bytes(data)
            damaged = kvant.Model(path)
            message = f"{path}: logits after token 4041 at position 2: expected numbers, found NaN for token 0"
            with self.assertRaises(kvant.CorruptError) as raised:
                kvant.generate(damaged, "ROMEO:", max_tokens=3)
            self.assertEqual(str(raised.exception), message)
            with self.assertRaises(kvant.CorruptError):
                kvant.beam_search(damaged, "ROMEO:", beams=2, max_new_tokens=3)

    def test_what_a_processor_raises_ends_the_call(self):
        class Mine(Exception):
            pass

        def bad(tokens, logits):
            if len(tokens) == 6:
                raise Mine("here")

        runner = kvant.Runner(model(), sequences=2)
        for _ in range(3):
            with self.assertRaisesRegex(Mine, "here"):
                kvant.generate(runner, "ROMEO:", max_tokens=12, temperature=0, processors=[bad])
        self.assertEqual(runner.stats["sequences"], 0)
        self.assertEqual(kvant.generate(runner, "ROMEO:", max_tokens=3, temperature=0).finish_reason, "length")

    def test_exceptions_in_every_callback_come_back(self):
        def fail(*_):
            raise ZeroDivisionError

        runner = kvant.Runner(model(), sequences=4)
        sequence = runner.new_sequence()
        for call in (lambda: sequence.append(ROMEO, progress=fail), lambda: runner.step([(sequence, ROMEO)], "all", fail),
                     lambda: kvant.beam_search(runner, ROMEO, beams=2, max_new_tokens=3, on_step=fail)):
            with self.assertRaises(ZeroDivisionError):
                call()
        self.assertEqual(runner.stats["sequences"], 1)


class Beams(unittest.TestCase):
    def test_hypotheses_are_those_of_the_program(self):
        out = program_json("run", SHAKESPEARE, "-q", "-p", "ROMEO:", "-n", "12", "--beams", "4", "--num-return", "3", "--length-penalty", "0.8",
                           "--no-repeat-ngram", "2", "--suppress-ids", "14")
        found = kvant.beam_search(model(), "ROMEO:", beams=4, num_return=3, max_new_tokens=12, length_penalty=0.8, no_repeat_ngram=2,
                                  suppress=[14])
        self.assertEqual([one.tokens.tolist() for one in found], [beam["ids"] for beam in out["beams"]])
        for one, beam in zip(found, out["beams"]):
            self.assertAlmostEqual(one.score, beam["score"], places=4)
            np.testing.assert_allclose(one.log_probs, beam["logprobs"], atol=1e-5)

    def test_words_are_banned_and_steps_are_told(self):
        steps = []
        found = kvant.beam_search(model(), ["ROMEO:", "JULIET:"], beams=2, max_new_tokens=6, bad_words=[[14], [4038, 450]],
                                  on_step=lambda prompt, generated: steps.append((prompt, generated)))
        for of in found:
            self.assertNotIn(14, of[0].tokens)
        self.assertEqual({prompt for prompt, _ in steps}, {0, 1})
        short = kvant.beam_search(model(), "ROMEO:", beams=2, max_new_tokens=6, on_step=lambda prompt, generated: generated < 3)
        self.assertLess(len(short[0].tokens), 6)


class Sources(unittest.TestCase):
    """Against texts that transformers has generated from the same weights."""

    def setUp(self):
        self.model = model(NUMBER_WORDS.with_name("number-words-bf16.gguf"))
        lines = (ROOT / "models/number-words/reference/cases.jsonl").read_text().splitlines()
        self.cases = [json.loads(line) for line in lines]
        self.start = [self.model.info.decoder_start]

    def test_texts_of_sources_are_those_of_transformers(self):
        sources = [case["source"] for case in self.cases]
        for options in ({"runner_options": {"sequences": 3}}, {"parallel": 64}):
            found = kvant.generate(self.model, [self.start] * len(sources), sources=sources, temperature=0, max_tokens=40, **options)
            for case, text in zip(self.cases, found):
                self.assertEqual([*text.tokens.tolist(), 1], case["searches"][0]["texts"][0])
                self.assertEqual((text.prompt, text.finish_reason), (self.cases.index(case), "stop"))

    def test_samples_of_a_source_have_seeds_of_their_own(self):
        options = {"sources": [self.cases[0]["ids"]], "temperature": 3.0, "top_k": 0, "max_tokens": 6}
        found = kvant.generate(self.model, [self.start], samples=3, seed=5, **options)[0]
        for sample, text in enumerate(found):
            alone = kvant.generate(self.model, [self.start], seed=5 + sample, **options)[0]
            self.assertEqual((text.sample, text.seed, text.tokens.tolist()), (sample, 5 + sample, alone.tokens.tolist()))

    def test_sequences_of_sources_are_given_back(self):
        with kvant.Runner(self.model, sequences=2) as runner:
            for _ in range(2):
                with kvant.stream(runner, [self.start] * 4, sources=["words: 7"] * 4, max_tokens=9) as pieces:
                    next(pieces)
                self.assertEqual(runner.stats["sequences"], 0)

            def fails(tokens, logits):
                raise ZeroDivisionError

            with self.assertRaises(ZeroDivisionError):
                kvant.generate(runner, [self.start] * 3, sources=["words: 7"] * 3, processors=[fails])
            self.assertEqual(runner.stats["sequences"], 0)

    def test_what_does_not_go_with_sources_is_refused(self):
        for more in ({"sources": []}, {"sources": ["a"], "sampling": kvant.SamplingOptions()}, {"sources": ["a", "b"]}):
            with self.assertRaisesRegex(kvant.InvalidError, "sources"):
                kvant.generate(self.model, [self.start], **more)


class Tokenizers(unittest.TestCase):
    def test_tokens_are_those_of_the_program(self):
        tokenizer = kvant.Tokenizer(model())
        self.assertEqual(tokenizer.encode("ROMEO:").tolist(), ROMEO)
        self.assertEqual(kvant.Tokenizer(SHAKESPEARE).encode("ROMEO:").tolist(), ROMEO)
        self.assertEqual(tokenizer.decode(ROMEO), "ROMEO:")
        self.assertEqual(tokenizer.encode_batch(["ROMEO:", ""])[0].tolist(), ROMEO)
        self.assertEqual(tokenizer.bos_token_id, 2)
        self.assertTrue(tokenizer.is_control(2))
        self.assertFalse(tokenizer.is_end(1894))
        self.assertEqual(tokenizer.eos_token_ids.tolist(), kvant.Tokenizer(SHAKESPEARE).eos_token_ids.tolist())
        self.assertIsNone(tokenizer.piece(99999))
        self.assertEqual(tokenizer.token_bytes(tokenizer.encode("x", add_special=False)[0]).strip(), b"x")

    def test_streams_hold_back_parts_of_characters(self):
        tokenizer = kvant.Tokenizer(model())
        text = "naïve – “日本”"
        stream, pieces = tokenizer.create_stream(), []
        for token in tokenizer.encode(text, add_special=False):
            pieces.append(stream.decode(token))
        self.assertEqual("".join(pieces) + stream.finish(), tokenizer.decode(tokenizer.encode(text, add_special=False)))
        self.assertFalse(any("\ufffd" in piece for piece in pieces))
        self.assertFalse(stream.ended)

    def test_streams_end_at_stop_texts(self):
        tokenizer = kvant.Tokenizer(model())
        stream, text = tokenizer.create_stream(stop=["xyz"]), ""
        for token in tokenizer.encode("abc xyz def", add_special=False):
            text += stream.decode(token)
            if stream.ended:
                break
        self.assertTrue(stream.ended)
        self.assertEqual(text.strip(), "abc")

    def test_templates_render_messages(self):
        messages = [{"role": "user", "content": "Hi <|im_end|>"}]
        source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}{{ x }}"
        with kvant.ChatTemplate(model(), source=source) as template:
            self.assertEqual(template.render(messages, variables={"x": 3}), "<user>Hi <|im_end|><assistant>3")
            self.assertEqual(template.render('[{"role": "a", "content": "b"}]', add_generation_prompt=False), "<a>b")
        text = kvant.Tokenizer(model()).apply_chat_template(messages, template="chatml")
        self.assertIn("user\nHi", text)
        tokens = kvant.Tokenizer(model()).apply_chat_template(messages, template="chatml", tokenize=True)
        self.assertEqual(tokens.dtype, np.int32)

    def test_metadata_are_pythons_own(self):
        metadata = model().metadata
        self.assertEqual(metadata["general.architecture"], model().info.architecture)
        self.assertEqual(len(list(metadata)), len(metadata))
        self.assertEqual(len(metadata["tokenizer.ggml.tokens"]), model().info.vocab_size)
        with self.assertRaises(KeyError):
            metadata["nothing"]


if __name__ == "__main__":
    unittest.main()
