"""Texts that follow a grammar: Python's json and re judge what the library writes, and the program `kvant` is another way to the same text."""
import json
import re
import unittest

import kvant
from common import NUMBER_WORDS, SHAKESPEARE, model, program_json

VERSE = "[A-Z]{3,8}: [a-z ,]{10,30}[.!?]"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 1, "maximum": 99}},
          "required": ["name", "age"], "additionalProperties": False}


class Pydantic:
    """What kvant asks of a model of pydantic, which is not installed everywhere."""

    @classmethod
    def model_json_schema(cls):
        return SCHEMA


def person(text):
    found = json.loads(text)
    return set(found) == {"name", "age"} and len(found["name"]) <= 8 and 1 <= found["age"] <= 99


class Texts(unittest.TestCase):
    def test_all_kinds_of_grammars(self):
        options = {"temperature": 1.5, "seed": 5, "max_tokens": 200, "samples": 3}
        for given, holds in (({"regex": VERSE}, re.compile(VERSE).fullmatch),
                             ({"grammar": 'root ::= "yes" | "no" [!?]+'}, re.compile("yes|no[!?]+").fullmatch),
                             ({"choices": ["more", "never more", "é"]}, {"more", "never more", "é"}.__contains__),
                             ({"json_object": True}, lambda text: isinstance(json.loads(text), dict)),
                             ({"json_schema": SCHEMA}, person), ({"json_schema": json.dumps(SCHEMA)}, person),
                             ({"json_schema": Pydantic}, person), ({"json_schema": Pydantic(), "json_compact": True}, person)):
            with self.subTest(given=given):
                ended = 0
                for text in kvant.generate(model(), "ROMEO:", **options, **given):
                    if text.finish_reason == "stop":
                        ended += 1
                        self.assertTrue(holds(text.text), text.text)
                    else:
                        self.assertEqual(text.finish_reason, "length")
                self.assertGreater(ended, 0)

    def test_a_grammar_serves_many_texts(self):
        grammar = kvant.Grammar(model(), regex=VERSE)
        options = {"temperature": 1.0, "seed": 2, "max_tokens": 60}
        every = kvant.generate(model(), ["ROMEO:", "JULIET:"], grammar=grammar, **options)
        for prompt, text in zip(("ROMEO:", "JULIET:"), every):
            self.assertEqual(text.text, kvant.generate(model(), prompt, regex=VERSE, **options).text)
        pieces = "".join(piece.text for piece in kvant.stream(model(), "ROMEO:", grammar=grammar, **options))
        self.assertEqual(pieces, every[0].text)
        out = program_json("run", SHAKESPEARE, "-q", "-p", "ROMEO:", "-n", 60, "--temp", "1", "-s", 2, "--regex", VERSE)
        self.assertEqual(out["text"], every[0].text)
        grammar.close()
        with self.assertRaisesRegex(kvant.InvalidError, "closed"):
            kvant.generate(model(), "ROMEO:", grammar=grammar)

    def test_sources_and_searches(self):
        text = kvant.generate(kvant.Model(NUMBER_WORDS), [[0]], sources=["digits: forty-two"], choices=["41", "42"], temperature=0, max_tokens=9)
        self.assertIn(text[0].text.strip(), ("41", "42"))
        found = kvant.beam_search(model(), "ROMEO:", beams=3, num_return=3, max_new_tokens=60, regex=VERSE)
        self.assertEqual(len(found), 3)
        for hypothesis in found:
            self.assertTrue(hypothesis.ended)
            self.assertRegex(hypothesis.text, f"^{VERSE}$")

    def test_refusals_say_where(self):
        for given, reason in (({"regex": "a("}, "regex"), ({"grammar": "root ::= nobody"}, "nobody"),
                              ({"json_schema": {"type": "object", "properties": {"a": {"maximun": 3}}}}, "/properties/a/maximun"),
                              ({"json_schema": 7}, "json_schema"), ({"json_schema": {"enum": [object()]}}, "json_schema"),
                              ({"choices": []}, "choices"), ({"choices": "yes"}, "choices"), ({"json_object": "yes"}, "json_object"),
                              ({"regex": "a", "choices": ["a"]}, "regex and choices"), ({"regex": "a", "json_compact": True}, "json_compact")):
            for call in (kvant.generate, kvant.stream, kvant.beam_search):
                with self.subTest(given=given, call=call), self.assertRaises(ValueError) as raised:
                    call(model(), "ROMEO:", **given)
                self.assertIn(reason, str(raised.exception))


class Conversations(unittest.TestCase):
    def test_answers_follow_it(self):
        with kvant.Conversation(model(), "chatml", choices=["aye", "nay"], temperature=0) as chat:
            self.assertIn(chat.say("Well?"), ("aye", "nay"))
            chat.set_grammar(regex="[0-9]{4}")
            self.assertRegex(chat.say("When?"), "^[0-9]{4}$")
            with chat.fork() as fork:
                self.assertRegex("".join(text for _, text in fork.stream("Again?")), "^[0-9]{4}$")
            chat.set_beams(2)
            self.assertRegex(chat.say("And?"), "^[0-9]{4}$")
            with self.assertRaises(kvant.InvalidError):
                chat.set_grammar(regex="(")


class Triggers(unittest.TestCase):
    def test_a_text_is_free_up_to_a_trigger(self):
        options = {"temperature": 1.0, "max_tokens": 120, "samples": 6, "seed": 3}
        for given, begin in (({"trigger_words": ["JULIET"]}, "JULIET"), ({"trigger_patterns": ["J[A-Z]{5}", "N[a-z]+ "]}, "J[A-Z]{5}|N[a-z]+ "),
                             ({"trigger_full_patterns": ["[\\s\\S]*?\\n(J[A-Z]{5})"]}, "(?<=\\n)J[A-Z]{5}")):
            grammar = kvant.Grammar(model(), grammar='root ::= ("JULIET" | "Nurse ") ": aye"', **given)
            begun = 0
            for text in kvant.generate(model(), "ROMEO:", grammar=grammar, **options):
                found = re.search(begin, text.text)
                if found is None:
                    continue
                begun += 1
                self.assertTrue("JULIET: aye".startswith(text.text[found.start():]) or "Nurse : aye".startswith(text.text[found.start():]), text.text)
            self.assertGreater(begun, 0, given)

    def test_refusals(self):
        for given in ({"trigger_patterns": ["("]}, {"trigger_patterns": ["a*"]}, {"trigger_full_patterns": ["(?:(a))"]}, {"trigger_patterns": 7}):
            with self.subTest(given=given), self.assertRaises(kvant.InvalidError) as raised:
                kvant.Grammar(model(), regex="a", **given)
            self.assertIn("trigger", str(raised.exception))


class Guidance(unittest.TestCase):
    def params(self, **options):
        params = kvant.GeneratorParams(model(), context=256)
        params.set_search_options(max_length=120, **options)
        return params

    def write(self, generator):
        while not generator.is_done():
            generator.generate_next_token()

    def text(self, generator, begin=3, number=0):
        return kvant.Tokenizer(model()).decode(generator.get_sequence(number)[begin:])

    def test_texts_of_a_generator(self):
        params = self.params(do_sample=True, random_seed=4)
        params.set_guidance("regex", VERSE)
        with kvant.Generator(model(), params) as generator:
            generator.append_tokens(kvant.Tokenizer(model()).prompt("ROMEO:"))
            for _ in range(6):
                generator.generate_next_token()
            snapshot, middle = generator.snapshot(), generator.token_count()
            self.write(generator)
            whole = self.text(generator)
            self.assertRegex(whole, f"^{VERSE}$")
            generator.restore(snapshot)
            self.write(generator)
            self.assertEqual(self.text(generator), whole)
            generator.rewind_to(middle - 2)  # within the text, whose state comes from its tokens
            self.write(generator)
            self.assertRegex(self.text(generator), f"^{VERSE}$")
            generator.rewind_to(3)
            self.write(generator)
            self.assertRegex(self.text(generator), f"^{VERSE}$")
            begin = generator.token_count()
            more = kvant.Tokenizer(model()).encode("\n")
            generator.append_tokens(more)  # a text of its own begins behind it
            self.write(generator)
            self.assertRegex(self.text(generator, begin + len(more)), f"^{VERSE}$")

    def test_penalties_batches_and_searches(self):
        params = self.params(repetition_penalty=1.2, batch_size=2)
        params.set_guidance("json_schema", json.dumps(SCHEMA))
        prompt = kvant.Tokenizer(model()).prompt("ROMEO:")
        with kvant.Generator(model(), params) as generator:
            generator.append_tokens([prompt, prompt])
            for _ in range(4):
                generator.generate_next_token()
            generator.rewind_to(5)
            self.write(generator)
            for number in range(2):
                self.assertTrue(person(self.text(generator, 3, number).removesuffix("</s>")))
        params = self.params(num_beams=3)
        params.set_guidance("regex", VERSE)
        with kvant.Generator(model(), params) as generator:
            generator.append_tokens(prompt)
            self.write(generator)
            self.assertRegex(self.text(generator), f"^{VERSE}$")

    def test_what_is_not_known_is_refused(self):
        params = self.params()
        with self.assertRaisesRegex(kvant.NotSupportedError, "lark_grammar"):
            params.set_guidance("lark_grammar", "start: /a/")
        with self.assertRaisesRegex(kvant.InvalidError, "type"):
            params.set_guidance("gbnf", "root ::= [a]")
        with self.assertRaisesRegex(kvant.InvalidError, "regex"):
            params.set_guidance("regex", "(")


if __name__ == "__main__":
    unittest.main()
