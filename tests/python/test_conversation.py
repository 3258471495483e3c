"""Conversations: answers are those of the program, computed only as far as they are new."""
import gc
import tempfile
import unittest
from pathlib import Path

import kvant
from common import SHAKESPEARE, model, program

OPTIONS = {"max_tokens": 10, "temperature": 0, "runner_options": {"threads": 1, "strict": True, "context": 512}}


def chat(**options):
    return kvant.Conversation(model(), "chatml", **{**OPTIONS, **options})


class Talks(unittest.TestCase):
    def test_answers_are_those_of_the_program(self):
        with chat() as talk:
            first, second = talk.say("Who is there?"), talk.say("Speak.")
            self.assertEqual(talk.report.finish_reason, "length")
            self.assertGreater(talk.report.reused_tokens, talk.report.processed_tokens)
        for said, answer in (("Who is there?", first),):
            out = program("chat", SHAKESPEARE, "-t", 1, "--chat-template", "chatml", "--temp", 0, "-n", 10, "--strict", "-c", 512,
                          "-p", said, "--single-turn")
            self.assertEqual(out.strip(), answer.strip())
        self.assertNotEqual(second, "")

    def test_streams_are_answers_in_pieces(self):
        with chat() as talk, chat() as other:
            pieces = list(talk.stream("Who is there?"))
            self.assertGreater(len(pieces), 1)
            self.assertEqual({part for part, _ in pieces}, {"content"})
            self.assertEqual("".join(text for _, text in pieces), other.say("Who is there?"))
            self.assertEqual(talk.messages, other.messages)

    def test_a_closed_stream_ends_the_answer(self):
        with chat(max_tokens=200) as talk:
            pieces = talk.stream("Who is there?")
            next(pieces)
            pieces.close()
            self.assertEqual(talk.report.finish_reason, "cancelled")
            self.assertLess(talk.report.generated_tokens, 200)
            self.assertEqual(len(talk.messages), 2)

    def test_reasoning_is_a_part_of_its_own(self):
        template = kvant.ChatTemplate(model(), source="{% for m in messages %}{{ m.content }}{% endfor %}<think>")
        with kvant.Conversation(model(), template, **OPTIONS) as talk:
            self.assertEqual({part for part, _ in talk.stream("Who is there?")}, {"reasoning"})
            self.assertEqual(talk.messages[-1]["content"], "")
            self.assertNotEqual(talk.messages[-1]["reasoning_content"], "")

    def test_going_back(self):
        with chat(system="Be brief.") as talk:
            first = talk.say("Who is there?")
            self.assertEqual(talk.regenerate(), first)
            self.assertEqual(talk.report.processed_tokens, 1)
            self.assertNotEqual(talk.edit("Go on."), "")
            self.assertEqual([message["role"] for message in talk.messages], ["system", "user", "assistant"])
            self.assertEqual(talk.undo(), "Go on.")
            self.assertEqual(talk.system, "Be brief.")
            with self.assertRaisesRegex(kvant.InvalidError, "no message"):
                talk.undo()
            self.assertEqual(talk.say("Who is there?"), first)
            talk.reset()
            talk.system = ""
            self.assertEqual(talk.messages, [])

    def test_forks_go_apart(self):
        talk = chat()
        talk.say("Who is there?")
        fork = talk.fork()
        self.assertEqual(fork.say("Speak."), talk.say("Speak."))
        self.assertGreater(fork.report.reused_tokens, 10)
        talk.close()
        del talk
        gc.collect()
        self.assertNotEqual(fork.say("Go on."), "")
        with fork.fork(seed=7) as third:
            self.assertEqual(third.messages, fork.messages)
        fork.close()

    def test_lives_in_a_runner(self):
        with kvant.Runner(model(), threads=1, strict=True, context=512, sequences=2) as runner:
            talk = kvant.Conversation(runner, "chatml", max_tokens=10, temperature=0)
            with chat() as other:
                self.assertEqual(talk.say("Who is there?"), other.say("Who is there?"))
            self.assertEqual(runner.stats["sequences"], 1)
            with talk.fork():
                with self.assertRaises(kvant.OutOfMemoryError):
                    talk.fork()
            talk.close()
            self.assertEqual(runner.stats["sequences"], 0)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder, chat() as talk, chat() as other:
            path = Path(folder) / "talk.json"
            talk.say("Who is there?")
            self.assertEqual(talk.save(path), "")
            self.assertEqual(other.load(path), "")
            self.assertEqual(other.messages, talk.messages)
            self.assertEqual(other.say("Speak."), talk.say("Speak."))
            self.assertGreater(other.report.reused_tokens, 10)
            path.write_text("{}")
            with self.assertRaises(kvant.CorruptError):
                other.load(path)
            self.assertEqual(other.messages, talk.messages)

    def test_messages_with_tools(self):
        call = [{"function": {"name": "f", "arguments": {"z": 1, "a": 2}}}]
        messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
                    {"role": "assistant", "content": "", "tool_calls": call}, {"role": "tool", "content": "7", "tool_call_id": "1"}]
        with chat() as talk:
            talk.add(messages)
            self.assertEqual(talk.messages, messages)
            with self.assertRaisesRegex(kvant.InvalidError, "found 'owner'"):
                talk.add([{"role": "user", "content": "x"}, {"role": "owner"}])
            self.assertEqual(talk.messages, messages)


class Refusals(unittest.TestCase):
    def test_what_does_not_fit_is_not_said(self):
        with chat() as talk:
            first = talk.say("Who is there?")
            for call in (lambda text: talk.say(text), lambda text: list(talk.stream(text))):
                with self.assertRaises(kvant.ContextFullError):
                    call("a" * 5000)
                self.assertEqual(len(talk.messages), 2)
            self.assertEqual(talk.regenerate(), first)

    def test_a_cancelled_answer_is_none(self):
        with chat() as talk:
            talk.cancel()
            self.assertEqual(talk.say("Who is there?"), "")
            self.assertEqual(talk.report.finish_reason, "cancelled")
            self.assertEqual(talk.messages, [])
            self.assertNotEqual(talk.say("Who is there?"), "")

    def test_options(self):
        for name, options in (("max_tokens", {"max_tokens": 0}), ("beams", {"beams": 0}), ("top_pp", {"top_pp": 1}),
                              ("both", {"sampling": kvant.SamplingOptions()})):
            with self.assertRaisesRegex(kvant.InvalidError, name):
                chat(**options)
        with self.assertRaisesRegex(kvant.NotSupportedError, "expected a chat template"):
            kvant.Conversation(model())
        talk = chat()
        talk.close()
        with self.assertRaisesRegex(kvant.InvalidError, "closed"):
            talk.say("x")


if __name__ == "__main__":
    unittest.main()
