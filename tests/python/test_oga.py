"""The object model of ONNX Runtime GenAI beside the program itself: texts, counts and next tokens that 0.18.0 found on the same weights
(tests/reference/make_oga_generations.py), and what it does with padding, with lengths and after the end."""
import json
import unittest
import warnings

import numpy as np

import kvant
from common import ROMEO, ROOT, model

FOLDER = ROOT / "tests/reference/beam_search"
ROWS = json.loads((FOLDER / "oga.json").read_text())
MAX_LENGTH = 24


def tiny():
    return model(FOLDER / "oga.gguf")


def generator(options=(), **more):
    params = kvant.GeneratorParams(tiny(), kv_type="f32")
    params.set_search_options(**{"max_length": MAX_LENGTH, **dict(options), **more})
    return kvant.Generator(tiny(), params)


class Texts(unittest.TestCase):
    def test_searches_find_its_lists(self):
        count = 0
        for row in (row for row in ROWS if "num_beams" in row["options"]):
            with self.subTest(**row), generator(row["options"]) as made:
                made.append_tokens(row["prompts"][0])
                while not made.is_done():
                    made.generate_next_token()
                self.assertEqual([made.get_sequence(i).tolist() for i in range(len(row["texts"]))], row["texts"])
                count += 1
        self.assertEqual(count, 28)

    def test_single_texts_have_its_tokens_step_by_step(self):
        count = 0
        for row in (row for row in ROWS if "num_beams" not in row["options"] and len(row["prompts"]) == 1):
            with self.subTest(**row), generator(row["options"]) as made:
                made.append_tokens(row["prompts"][0])
                steps = []
                while not made.is_done():
                    made.generate_next_token()
                    steps.append([made.token_count(), *made.get_next_tokens().tolist()])
                self.assertEqual((made.get_sequence(0).tolist(), steps), (row["texts"][0], row["steps"]))
                count += 1
        self.assertEqual(count, 20)

    def test_batches_have_its_next_tokens(self):
        # It fills texts that have ended up with padding; here they keep their length.
        count = 0
        for row in (row for row in ROWS if len(row["prompts"]) > 1):
            with self.subTest(**row), generator(row["options"], batch_size=len(row["prompts"])) as made:
                made.append_tokens(row["prompts"])
                while not made.is_done():
                    made.generate_next_token()
                for number, text in enumerate(row["texts"]):
                    while text[-1] == 0 and 2 in text:
                        text.pop()
                    self.assertEqual(made.get_sequence(number).tolist(), text)
                count += 1
        self.assertEqual(count, 6)

    def test_an_ended_text_may_go_on(self):
        row = next(row for row in ROWS if row["steps"] and row["steps"][-1][-1] == 2)
        with generator(row["options"]) as made:
            made.append_tokens(row["prompts"][0])
            while not made.is_done():
                made.generate_next_token()
            ended = made.token_count()
            made.generate_next_token()
            self.assertEqual((made.token_count(), made.is_done()), (ended, True))
            made.append_tokens([5])
            self.assertEqual((made.get_sequence(0).tolist(), made.is_done()), ([*row["texts"][0], 5], False))
            made.generate_next_token()
            self.assertEqual(made.token_count(), ended + 2)

    def test_a_text_without_repeated_pairs_may_rewind(self):
        with generator(no_repeat_ngram_size=2) as made:
            made.append_tokens([1, 5, 9])
            for _ in range(8):
                made.generate_next_token()
            whole = made.get_sequence(0).tolist()
            made.rewind_to(5)
            for _ in range(6):
                made.generate_next_token()
            self.assertEqual(made.get_sequence(0).tolist(), whole)
            pairs = list(zip(whole, whole[1:]))
            self.assertEqual(len(pairs), len(set(pairs)))

    def test_drawn_texts_repeat_nothing_either(self):
        for seed in range(5):
            with generator(no_repeat_ngram_size=1, do_sample=True, temperature=1.5, top_k=0, random_seed=seed) as made:
                made.append_tokens([1, 5, 9])
                while not made.is_done():
                    made.generate_next_token()
                text = made.get_sequence(0).tolist()
                self.assertEqual(len(text), len(set(text)))

    def test_a_search_shows_the_best_so_far(self):
        with generator(num_beams=3, num_return_sequences=2) as made:
            with self.assertRaises(kvant.InvalidError):
                made.get_sequence(0)
            made.append_tokens([1, 5, 9])
            self.assertEqual(made.get_sequence(0).tolist(), [1, 5, 9])
            for step in range(1, 6):
                made.generate_next_token()
                best, second = made.get_sequence(0).tolist(), made.get_sequence(1).tolist()
                self.assertEqual((best[:3], second[:3], len(best)), ([1, 5, 9], [1, 5, 9], 3 + step))
                self.assertNotEqual(best, second)


class Lengths(unittest.TestCase):
    def test_max_length_is_at_most_the_context(self):
        with self.assertRaisesRegex(kvant.InvalidError, "max_length: expected at most the context of 256, found 300"):
            generator(max_length=300)

    def test_a_step_at_max_length_is_refused(self):
        for options in ({}, {"num_beams": 2}):
            with generator(options, max_length=6) as made:
                made.append_tokens([1, 5, 9])
                while not made.is_done():
                    made.generate_next_token()
                with self.assertRaisesRegex(kvant.InvalidError, "6 tokens, as many as max_length"):
                    made.generate_next_token()

    def test_tokens_beyond_max_length_are_refused(self):
        for options in ({}, {"num_beams": 2}):
            with generator(options, max_length=4) as made:
                with self.assertRaisesRegex(kvant.ContextFullError, "max_length is 4"):
                    made.append_tokens([1, 5, 9, 10, 11, 12])
                self.assertEqual(made.token_count(), 0)


class Padding(unittest.TestCase):
    PROMPTS = [[1, 5], [1, 17, 33, 8]]
    LEFT, RIGHT = [[0, 0, 1, 5], [1, 17, 33, 8]], [[1, 5, 0, 0], [1, 17, 33, 8]]

    def logits(self, tokens, mask=None, **options):
        with generator(batch_size=2, **options) as made:
            made.append_tokens(tokens, *([] if mask is None else [mask]))
            return made.get_logits()

    def test_it_is_left_out_where_it_is_named(self):
        expected = self.logits(self.PROMPTS)
        for rows in (self.LEFT, self.RIGHT):
            rows = np.array(rows, np.int32)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                np.testing.assert_array_equal(self.logits(rows, rows != 0), expected)
                np.testing.assert_array_equal(self.logits(rows, pad_token_id=0), expected)

    def test_it_is_warned_of_where_it_is_not(self):
        params = kvant.GeneratorParams(model(), context=64)
        params.set_search_options(batch_size=2)
        with kvant.Generator(model(), params) as made:
            pad = made._pad
            with self.assertWarnsRegex(UserWarning, rf"row 0 seems to be padded with token {pad}"):
                made.append_tokens(np.array([[pad, *ROMEO], [*ROMEO, 5]], np.int32))
            self.assertEqual(made.get_sequence(0).tolist(), [pad, *ROMEO])

    def test_a_wrong_mask_is_refused(self):
        with generator(batch_size=2) as made:
            for mask in ([[1, 1], [1, 1]], [[0] * 4, [1] * 4]):
                with self.assertRaisesRegex(kvant.InvalidError, "attention_mask|nothing but padding"):
                    made.append_tokens(self.LEFT, mask)


class Names(unittest.TestCase):
    def test_templates_are_encoded_as_they_are_tokenized(self):
        tokenizer = kvant.Tokenizer(model(ROOT / "models/dialogue/dialogue.gguf"))
        said = [{"role": "user", "content": "What day comes after Monday?"}]
        text = tokenizer.apply_chat_template(said)
        self.assertEqual(tokenizer.encode(text).tolist(), tokenizer.apply_chat_template(said, tokenize=True).tolist())
        self.assertNotEqual(tokenizer.encode(text, parse_special=False).tolist(), tokenizer.encode(text).tolist())

    def test_a_beginning_that_the_text_has_comes_once(self):
        tokenizer = kvant.Tokenizer(model())
        begin = tokenizer.piece(tokenizer.bos_token_id)
        self.assertEqual(tokenizer.encode(begin + "ROMEO:").tolist(), ROMEO)
        self.assertEqual(tokenizer.encode("ROMEO:").tolist(), ROMEO)
        self.assertEqual(tokenizer.encode(begin).tolist(), ROMEO[:1])

    def test_configurations_are_laid_over_all_parameters(self):
        config = kvant.Config("shakespeare")
        config.overlay('{"search": {"max_length": 12}, "model": {"pad_token_id": 0}}')
        config.overlay({"search": {"num_beams": 2}})
        config.clear_providers()
        config.append_provider("cpu")
        with self.assertRaises(kvant.NotSupportedError):
            config.append_provider("cuda")
        with kvant.Model(config) as opened:
            found = kvant.GeneratorParams(opened).get_search_options()
        self.assertEqual((found["max_length"], found["num_beams"], found["pad_token_id"]), (12, 2, 0))

    def test_logits_are_an_output(self):
        """Of all tokens of the last pass, as there: each row is what the tokens up to it give alone."""
        prompt, more = [1, 5, 9, 30], [7, 8, 12]

        def alone(tokens):
            with generator() as made:
                made.append_tokens(tokens)
                return made.get_logits()[0, 0]

        with generator() as made:
            made.append_tokens(prompt)
            rows = made.get_output("logits")
            self.assertEqual((rows.shape, rows.dtype), ((1, 4, tiny().info.vocab_size), np.float32))
            for count in range(1, 5):
                np.testing.assert_allclose(rows[0, count - 1], alone(prompt[:count]), rtol=1e-4, atol=1e-4)
            made.generate_next_token()  # the chosen token waits for the next pass
            np.testing.assert_array_equal(made.get_output("logits"), rows)
            made.generate_next_token()
            text = made.get_sequence().tolist()
            self.assertEqual(len(text), 6)
            np.testing.assert_allclose(made.get_output("logits"), alone(text[:5])[None, None], rtol=1e-4, atol=1e-4)
            made.append_tokens(more)
            rows = made.get_output("logits")
            self.assertEqual(rows.shape[1], 3)
            for count in range(3):
                np.testing.assert_allclose(rows[0, count], alone((text + more)[:7 + count]), rtol=1e-4, atol=1e-4)
            made.rewind_to(5)
            np.testing.assert_allclose(made.get_output("logits"), alone(text[:5])[None, None], rtol=1e-4, atol=1e-4)
            with self.assertRaisesRegex(kvant.InvalidError, "logits"):
                made.get_output("hidden_states")
        with generator(batch_size=2) as made:
            made.append_tokens([prompt, more])
            rows = made.get_output("logits")
            self.assertEqual(rows.shape[:2], (2, 4))
            self.assertFalse(rows[1, 0].any())
            np.testing.assert_allclose(rows[1, 1:], [alone(more[:count]) for count in range(1, 4)], rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    unittest.main()
