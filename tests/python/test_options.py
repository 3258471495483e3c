"""Options by name: signatures show them, errors name them and list the others, and both usual names of one option are taken. Also the
names of models, and what a tokenizer calls by the names of other packages."""
import inspect
import subprocess
import sys
import unittest

import numpy as np

import kvant
from common import PROGRAM, ROMEO, SHAKESPEARE, model


def calls():
    """What takes options by name: a call that passes them on, the options that are checked when something is made of them, and some that
    everybody knows."""
    m = model()
    return {
        "Model": (kvant.Model, lambda **o: kvant.Model(SHAKESPEARE, **o), "progress isa read_file"),
        "Runner": (kvant.Runner, lambda **o: kvant.Runner(m, **o), "context threads kv_type pin numa sequences"),
        "plan_memory": (kvant.plan_memory, lambda **o: kvant.plan_memory(m, **o), "context k_type"),
        "SamplingOptions": (kvant.SamplingOptions, lambda **o: kvant.SamplingOptions(**o), "temperature seed logit_bias samplers"),
        "Sampler": (kvant.Sampler, lambda **o: kvant.Sampler(**{"vocab_size": 9, **o}), "vocab_size temperature"),
        "BeamOptions": (kvant.BeamOptions, lambda **o: kvant.BeamOptions(**o), "beams max_tokens max_new_tokens bad_words scoring"),
        "generate": (kvant.generate, lambda **o: kvant.generate(m, ROMEO, **o), "max_tokens max_new_tokens stop temperature processors"),
        "stream": (kvant.stream, lambda **o: kvant.stream(m, ROMEO, **o), "max_tokens samples seed parallel"),
        "beam_search": (kvant.beam_search, lambda **o: kvant.beam_search(m, ROMEO, **o), "beams max_new_tokens sources on_step"),
        "Conversation": (kvant.Conversation, lambda **o: kvant.Conversation(m, "chatml", **o), "max_tokens max_new_tokens tools top_k"),
    }


def names(function):
    return [name for name, one in inspect.signature(function).parameters.items()
            if one.kind is one.KEYWORD_ONLY or name in ("progress", "model", "tokenizer", "options")]


class Options(unittest.TestCase):
    def test_signatures_show_them(self):
        for name, (function, _, some) in calls().items():
            parameters = inspect.signature(function).parameters
            with self.subTest(call=name):
                self.assertLessEqual(set(some.split()), set(parameters))
                self.assertFalse([one for one in parameters.values() if one.kind is one.VAR_KEYWORD])
                self.assertFalse([one for one in parameters if one.startswith("has_") or one.endswith("_count") or one == "struct_size"])

    def test_an_unknown_one_gets_a_list_of_all(self):
        for name, (function, call, _) in calls().items():
            with self.subTest(call=name), self.assertRaises(kvant.InvalidError) as caught:
                call(wings=2)
            self.assertIn("'wings'", str(caught.exception))
            listed = str(caught.exception).split("there are ")[1].split(", ")
            shown = [one for one, kind in inspect.signature(function).parameters.items() if kind.kind is kind.KEYWORD_ONLY]
            self.assertEqual(sorted(listed), sorted(shown))

    def test_a_wrong_type_names_its_option(self):
        # Types, too, that ctypes would take for an address.
        for name, (function, call, _) in calls().items():
            for option in names(function):
                if option == "model" and name not in ("SamplingOptions", "BeamOptions"):
                    continue
                for value in (object(), 2**70):
                    if isinstance(value, int) and option in SMALL_FLOATS:
                        continue
                    with self.subTest(call=name, option=option, value=value):
                        with self.assertRaisesRegex(kvant.InvalidError, rf"\b{option}\b"):
                            call(**{option: value})

    def test_a_wrong_model_is_named(self):
        for call in (lambda: kvant.Runner("shakespeare"), lambda: kvant.plan_memory(5), lambda: kvant.generate("shakespeare", "a"),
                     lambda: kvant.beam_search(5, "a"), lambda: kvant.Conversation(5), lambda: kvant.GeneratorParams("shakespeare"),
                     lambda: kvant.ChatTemplate(5)):
            with self.assertRaisesRegex(kvant.InvalidError, "model: expected Model"):
                call()

    def test_prompts_of_a_wrong_type_are_named(self):
        for call in (lambda value: kvant.generate(model(), value), lambda value: kvant.stream(model(), value),
                     lambda value: kvant.beam_search(model(), value)):
            for value in (5, None, 1.5, ["a", 5], [["a"]]):
                with self.subTest(value=value), self.assertRaisesRegex(kvant.InvalidError, "prompts"):
                    call(value)

    def test_both_names_of_the_length_are_taken(self):
        text = kvant.generate(model(), "ROMEO:", max_tokens=7, temperature=0)
        self.assertEqual(len(text.tokens), 7)
        self.assertEqual(kvant.generate(model(), "ROMEO:", max_new_tokens=7, temperature=0).text, text.text)
        pieces = kvant.stream(model(), "ROMEO:", max_new_tokens=7, temperature=0)
        self.assertEqual("".join(piece.text for piece in pieces), text.text)
        found = [kvant.beam_search(model(), "ROMEO:", beams=2, end_tokens=[], **{name: 5})[0].tokens.tolist()
                 for name in ("max_tokens", "max_new_tokens")]
        self.assertEqual(found[0], found[1])
        self.assertEqual(len(found[0]), 5)
        said = [kvant.Conversation(model(), "chatml", temperature=0, ignore_end=True, **{name: 5}) for name in ("max_tokens", "max_new_tokens")]
        self.assertEqual(said[0].say("Hello"), said[1].say("Hello"))
        self.assertEqual([chat.report.generated_tokens for chat in said], [5, 5])
        for call in (lambda **o: kvant.generate(model(), "a", **o), lambda **o: kvant.beam_search(model(), "a", **o),
                     lambda **o: kvant.Conversation(model(), "chatml", **o)):
            with self.assertRaisesRegex(kvant.InvalidError, "max_tokens.*5 and 6|max_tokens.*6 and 5"):
                call(max_tokens=5, max_new_tokens=6)


# Numbers of 2^70 are numbers to these, and refused for what they mean or not at all.
SMALL_FLOATS = {
    "adaptive_decay", "adaptive_target", "diversity_penalty", "dry_base", "dry_multiplier", "dynatemp_exponent", "dynatemp_range",
    "frequency_penalty", "length_penalty", "min_p", "mirostat_eta", "mirostat_tau", "patience", "presence_penalty", "repeat_penalty",
    "repetition_penalty", "seconds_max", "temperature", "top_n_sigma", "top_p", "typical", "xtc_probability", "xtc_threshold"}


class Names(unittest.TestCase):
    def test_a_model_is_known_by_the_name_that_the_program_knows(self):
        with kvant.Model("shakespeare") as found:
            self.assertTrue(SHAKESPEARE.samefile(found.info.path))
        self.assertEqual(kvant.Tokenizer("shakespeare").encode("ROMEO:").tolist(), ROMEO)
        said = subprocess.run([PROGRAM, "tokenize", "no-such-model", "-p", "a"], capture_output=True, text=True).stderr
        with self.assertRaises(kvant.IoError) as caught:
            kvant.Model("no-such-model")
        self.assertIn(str(caught.exception), said)
        with self.assertRaisesRegex(kvant.IoError, "no-such-model.gguf"):
            kvant.Model("no-such-model.gguf")

    def test_it_is_found_from_elsewhere(self):
        code = "import kvant; print(kvant.Model('dialogue').info.path)"
        out = subprocess.run([sys.executable, "-c", code], cwd="/", check=True, capture_output=True, text=True, env=_environment()).stdout
        self.assertTrue(out.strip().endswith("models/dialogue/dialogue.gguf"), out)

    def test_batches_are_decoded(self):
        tokenizer = kvant.Tokenizer(model())
        texts = ["ROMEO:", "Good morrow, cousin."]
        self.assertEqual(tokenizer.decode_batch(tokenizer.encode_batch(texts)), [tokenizer.decode(tokenizer.encode(text)) for text in texts])
        self.assertEqual(tokenizer.decode_batch(np.array([ROMEO, ROMEO])), [tokenizer.decode(ROMEO)] * 2)
        self.assertEqual(tokenizer.decode_batch([]), [])
        for wrong in (5, [5], [["a"]]):
            with self.assertRaises(kvant.InvalidError):
                tokenizer.decode_batch(wrong)

    def test_entries_of_the_vocabulary_have_ids(self):
        tokenizer = kvant.Tokenizer(model())
        for token in (0, 1, 2, 300, 1894, 4041, 4095):
            self.assertEqual(tokenizer.to_token_id(tokenizer.piece(token)), token)
        for wrong in ("no such entry", 5, None):
            with self.assertRaisesRegex(kvant.InvalidError, "entry of the vocabulary"):
                tokenizer.to_token_id(wrong)


class Scores(unittest.TestCase):
    def test_a_full_runner_says_what_to_do(self):
        for count in (1, 2):
            with kvant.Runner(model(), sequences=count, context=64) as runner:
                held = [runner.new_sequence().append(ROMEO) for _ in range(count)]
                with self.assertRaisesRegex(kvant.OutOfMemoryError, rf"sequence of its own.*free one.*sequences = {count + 1}"):
                    runner.score([ROMEO])
                held.pop().close()
                self.assertEqual(len(runner.score([ROMEO])[0].log_probs), 2)


def _environment():
    import os

    return dict(os.environ, KVANT_LIBRARY=os.path.abspath(os.environ["KVANT_LIBRARY"]),
                PYTHONPATH=os.pathsep.join(os.path.abspath(path) for path in os.environ["PYTHONPATH"].split(os.pathsep)))


if __name__ == "__main__":
    unittest.main()
