"""The object model of ONNX Runtime GenAI. Names begin with the number of the check."""
import io
import unittest
import warnings
from contextlib import redirect_stderr

import numpy as np

import kvant
from common import NUMBER_WORDS, RECURRENT, ROMEO, SHAKESPEARE, logit_rows, model, program_json

# The example of the reference document, as it stands there but for the import and the numbers of tokens.
LOOP = """
model = og.Model(path)
params = og.GeneratorParams(model)
generator = og.Generator(model, params)

# Generate initial tokens
generator.append_tokens(input_tokens)
for _ in range(10):
    generator.generate_next_token()

checkpoint_length = generator.token_count()

# Try speculative path
for _ in range(5):
    generator.generate_next_token()
first = generator.get_sequence(0)

# Rewind and try different path
generator.rewind_to(checkpoint_length)
for _ in range(5):
    generator.generate_next_token()
"""


def greedy(path, tokens, count):
    """The likeliest tokens behind others, by `kvant run`."""
    text = kvant.Tokenizer(model(path)).decode(tokens[1:])
    out = program_json("run", path, "-q", "-p", text, "--temp", "0", "-n", count)
    assert out["prompt_ids"] == list(tokens), (out["prompt_ids"], tokens)
    return [*tokens, *out["ids"]]


class ObjectModel(unittest.TestCase):
    def generator(self, path=SHAKESPEARE, options=None, **search):
        params = kvant.GeneratorParams(model(path), **(options or {}))
        params.set_search_options(**search)
        return kvant.Generator(model(path), params)

    def test_kv90_the_loop_of_the_reference_runs_with_one_import_changed(self):
        names = {"path": str(SHAKESPEARE), "input_tokens": ROMEO}
        exec("import kvant as og\n" + LOOP, names)
        self.assertEqual(names["checkpoint_length"], 13)
        self.assertEqual(names["generator"].token_count(), 18)
        np.testing.assert_array_equal(names["first"], names["generator"].get_sequence(0))
        self.assertEqual(names["first"].tolist(), greedy(SHAKESPEARE, ROMEO, 15))

    def test_kv90_greedy_is_what_the_program_writes(self):
        generator = self.generator(max_length=40)
        tokenizer = kvant.Tokenizer(model())
        stream, text = tokenizer.create_stream(), ""
        generator.append_tokens(tokenizer.encode("ROMEO:"))
        while not generator.is_done():
            generator.generate_next_token()
            text += stream.decode(generator.get_next_tokens()[0])
        self.assertEqual(text + stream.finish(), program_json("run", SHAKESPEARE, "-q", "-p", "ROMEO:", "--temp", "0", "-n", 37)["text"])
        self.assertEqual(generator.token_count(), 40)

    def test_kv90_an_end_token_ends_a_text(self):
        generator = self.generator(RECURRENT)
        tokenizer = kvant.Tokenizer(model(RECURRENT))
        generator.append_tokens(tokenizer.encode("a"))
        end = int(tokenizer.eos_token_ids[0])
        logits = np.zeros((1, 1, model(RECURRENT).info.vocab_size), np.float32)
        logits[0, 0, end] = 9
        generator.set_logits(logits)
        generator.generate_next_token()
        self.assertTrue(generator.is_done())
        self.assertEqual(generator.get_next_tokens().tolist(), [end])
        count = generator.token_count()
        generator.generate_next_token()  # nothing is left to do
        self.assertEqual(generator.token_count(), count)

    def test_kv90_logits_are_read_and_replaced(self):
        generator = self.generator(options={"kv_type": "f32"})
        generator.append_tokens(ROMEO)
        rows = generator.get_logits()
        self.assertEqual(rows.shape, (1, 1, 4096))
        np.testing.assert_allclose(rows[0, 0], logit_rows(ROMEO, SHAKESPEARE, "--kv-type", "f32")[-1], atol=1e-4)
        rows[0, 0, 14] = rows.max() + 1
        generator.set_logits(rows)
        generator.generate_next_token()
        self.assertEqual(generator.get_next_tokens().tolist(), [14])
        generator.generate_next_token()  # by the model's own again
        self.assertEqual(generator.get_sequence(0).tolist(), greedy(SHAKESPEARE, [*ROMEO, 14], 1))

    def test_kv90_batches_of_different_lengths_are_texts_alone(self):
        prompts = [ROMEO, [2, 1894], [2, 450, 262, 1179, 4032]]
        generator = self.generator(batch_size=3, max_length=64)
        generator.append_tokens(prompts)
        for _ in range(6):
            generator.generate_next_token()
        for number, prompt in enumerate(prompts):
            alone = self.generator(max_length=64)
            alone.append_tokens(prompt)
            for _ in range(6):
                alone.generate_next_token()
            np.testing.assert_array_equal(generator.get_sequence(number), alone.get_sequence(0))
            self.assertEqual(generator.token_count(number), len(prompt) + 6)

    def test_kv90_later_tokens_go_on_behind_the_text(self):
        generator = self.generator()
        generator.append_tokens(ROMEO)
        generator.generate_next_token()
        first = generator.get_sequence(0).tolist()
        generator.append_tokens([1894, 4041])
        generator.generate_next_token()
        self.assertEqual(generator.get_sequence(0).tolist(), greedy(SHAKESPEARE, [*first, 1894, 4041], 1))

    def test_kv90_rewinds_to_every_length(self):
        generator = self.generator()
        generator.append_tokens(ROMEO)
        for _ in range(12):
            generator.generate_next_token()
        text = generator.get_sequence(0)
        for length in (14, 9, 3, 1):
            generator.rewind_to(length)
            self.assertEqual(generator.token_count(), length)
            if length >= 3:
                generator.generate_next_token()
                np.testing.assert_array_equal(generator.get_sequence(0), text[:length + 1])
        generator.rewind_to(0)
        generator.append_tokens(ROMEO)
        generator.generate_next_token()
        np.testing.assert_array_equal(generator.get_sequence(0), text[:4])

    def test_kv90_snapshots_bring_back_samplers_too(self):
        generator = self.generator(do_sample=True, random_seed=5, top_k=40, temperature=1.2)
        generator.append_tokens(ROMEO)
        generator.generate_next_token()
        with generator.snapshot() as kept:
            texts = []
            for _ in range(3):
                for _ in range(8):
                    generator.generate_next_token()
                texts.append(generator.get_sequence(0).tolist())
                generator.restore(kept)
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])

    def test_kv90_seeds_decide_what_is_drawn(self):
        def text(seed):
            generator = self.generator(do_sample=True, random_seed=seed, top_k=0, temperature=1.5)
            generator.append_tokens(ROMEO)
            for _ in range(12):
                generator.generate_next_token()
            return generator.get_sequence(0).tolist()

        self.assertEqual(text(4), text(4))
        self.assertGreater(len({tuple(text(seed)) for seed in range(4)}), 1)

    def test_kv90_a_minimum_length_holds_back_end_tokens(self):
        generator = self.generator(RECURRENT, min_length=6)
        tokenizer = kvant.Tokenizer(model(RECURRENT))
        generator.append_tokens(tokenizer.encode("a"))
        end = int(tokenizer.eos_token_ids[0])
        while not generator.is_done() and generator.token_count() < 9:
            logits = np.zeros((1, 1, model(RECURRENT).info.vocab_size), np.float32)
            logits[0, 0, end] = 9
            generator.set_logits(logits)
            generator.generate_next_token()
        self.assertEqual((generator.token_count(), generator.get_next_tokens().tolist()), (6, [end]))

    def test_kv90_beams_find_what_the_program_finds(self):
        for prompts in ([ROMEO], [ROMEO, [2, 1894]]):
            generator = self.generator(batch_size=len(prompts), num_beams=3, num_return_sequences=2, max_length=12, length_penalty=0.5,
                                       early_stopping=False)
            generator.append_tokens(prompts)
            steps = 0
            while not generator.is_done():
                generator.generate_next_token()
                steps += 1
            self.assertLessEqual(steps, 10)
            for number, prompt in enumerate(prompts):
                found = kvant.beam_search(model(), prompt, beams=3, num_return=2, max_length=12, length_penalty=0.5)
                for rank in range(2):
                    self.assertEqual(generator.get_sequence(2 * number + rank).tolist(), [*prompt, *found[rank].tokens.tolist()])
        out = program_json("run", SHAKESPEARE, "-q", "-p", "ROMEO:", "-n", "9", "--beams", "3", "--num-return", "2", "--length-penalty", "0.5")
        generator = self.generator(num_beams=3, num_return_sequences=2, max_length=12, length_penalty=0.5, early_stopping=False)
        generator.append_tokens(ROMEO)
        while not generator.is_done():
            generator.generate_next_token()
        self.assertEqual([generator.get_sequence(rank)[3:].tolist() for rank in range(2)], [beam["ids"] for beam in out["beams"]])

    def test_kv90_no_repeated_ngrams_without_beams(self):
        generator = self.generator(no_repeat_ngram_size=2, max_length=40)
        generator.append_tokens(ROMEO)
        while not generator.is_done():
            generator.generate_next_token()
        text = generator.get_sequence(0).tolist()
        self.assertEqual(len({tuple(text[i:i + 2]) for i in range(len(text) - 1)}), len(text) - 1)

    def test_kv90_a_full_context_ends_texts(self):
        generator = self.generator(max_length=5)
        generator.append_tokens(ROMEO)
        while not generator.is_done():
            generator.generate_next_token()
        self.assertEqual(generator.token_count(), 5)
        with self.assertRaises(kvant.ContextFullError):
            generator.append_tokens(ROMEO)

    def test_kv70_log_options_tell_of_the_cache(self):
        kvant.set_log_options(enabled=True, model_input_values=True, model_output_shapes=True)
        try:
            with redirect_stderr(io.StringIO()) as lines:
                generator = self.generator()
                generator.append_tokens(ROMEO)
                generator.generate_next_token()
                generator.close()
        finally:
            kvant.set_log_options(enabled=False)
        self.assertIn("past_key_values.0.key shape=[1,2,0,64]", lines.getvalue())
        self.assertIn("present.0.key shape=[1,2,3,64]", lines.getvalue())

    def test_models_with_an_encoder_are_refused_with_a_reason(self):
        generator = self.generator(NUMBER_WORDS)
        with self.assertRaisesRegex(kvant.InvalidError, "source"):
            generator.append_tokens([0])


class Overlay(unittest.TestCase):
    def told(self, params, config):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            params.overlay(config)
        return [str(warning.message) for warning in caught]

    def test_kv91_known_keys_are_taken(self):
        params = kvant.GeneratorParams(model())
        self.assertEqual(self.told(params, '{"search": {"past_present_share_buffer": true, "max_length": 20}}'), [])
        self.assertEqual(kvant.Generator(model(), params).max_length, 20)

    def test_kv91_what_cannot_apply_is_told_once(self):
        window = {"sliding_window": {"window_size": 128, "layers": [0, 1]}}
        options = {"session_options": {"provider_options": [{"cuda": {"enable_cuda_graph": "1"}}]}}
        for config in ({"search": {"past_present_share_buffer": False}, "decoder": {**window, **options}},
                       {"search": {"past_present_share_buffer": False}, "model": {"decoder": {**window, **options}}}):
            params = kvant.GeneratorParams(model())
            told = self.told(params, config)
            self.assertEqual(len(told), 4)
            for key in ("search.past_present_share_buffer", "model.decoder.sliding_window.window_size",
                        "model.decoder.sliding_window.layers", "model.decoder.session_options.provider_options"):
                self.assertEqual(sum(line.startswith(key) for line in told), 1, told)
            self.assertEqual(self.told(params, config), [])

    def test_kv91_unknown_keys_name_themselves_and_set_nothing(self):
        params = kvant.GeneratorParams(model())
        for config, name in (({"search": {"max_length": 9}, "serch": {}}, "serch"), ({"search": {"max_lenght": 9}}, "search.max_lenght"),
                             ({"decoder": {"sliding_window": {"size": 1}}}, "decoder.sliding_window.size"),
                             ({"model": {"decoder": 5}}, "model.decoder: expected an object"), ("[]", "object"), ("{", "JSON"), (5, "object"),
                             ({"search": {"max_length": "9"}}, "max_length")):
            with self.assertRaisesRegex(kvant.InvalidError, name):
                params.overlay(config)
        self.assertEqual(params.search["max_length"], 0)


class SearchOptions(unittest.TestCase):
    def test_kv91_unknown_options_name_themselves(self):
        params = kvant.GeneratorParams(model())
        with self.assertRaisesRegex(kvant.InvalidError, "no option named 'max_lenght'"):
            params.set_search_options(max_lenght=5)
        for name, value in (("max_length", "5"), ("top_p", "x"), ("num_beams", 0), ("batch_size", 0), ("max_length", 2.5)):
            with self.assertRaisesRegex(kvant.InvalidError, name):
                kvant.GeneratorParams(model()).set_search_options(**{name: value})
        self.assertEqual(params.search["max_length"], 0)

    def test_kv91_a_configuration_is_laid_over(self):
        params = kvant.GeneratorParams(model())
        params.overlay({"search": {"max_length": 20, "num_beams": 2, "past_present_share_buffer": True},
                        "model": {"decoder": {"session_options": {"intra_op_num_threads": 1}}}})
        self.assertEqual((params.search["max_length"], params.search["num_beams"], params.runner_options), (20, 2, {"threads": 1}))

    def test_kv91_a_shared_buffer_is_what_there_is(self):
        params = kvant.GeneratorParams(model())
        params.set_search_options(past_present_share_buffer=True, max_length=20)
        self.assertEqual(kvant.Generator(model(), params).max_length, 20)

    def test_kv91_more_results_than_beams_are_refused_before_anything_runs(self):
        params = kvant.GeneratorParams(model())
        params.set_search_options(num_beams=2, num_return_sequences=3, max_length=9)
        with self.assertRaises(kvant.InvalidError):
            kvant.Generator(model(), params).append_tokens(ROMEO)


if __name__ == "__main__":
    unittest.main()
