"""Conversations: answers are those of the program, computed only as far as they are new."""
import gc
import json
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


    def test_calls_of_tools(self):
        schema = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}}, "required": ["size"], "additionalProperties": False}
        tools = [{"type": "function", "function": {"name": "order", "parameters": schema}}, {"type": "function", "function": {"name": "stop"}}]
        with chat(tools=tools, tool_choice="order", max_tokens=200, runner_options={"context": 2048}) as talk:
            talk.say("A coffee, please.")
            calls = talk.tool_calls
            self.assertGreater(len(calls), 0)
            for call in calls:
                self.assertEqual(call["function"]["name"], "order")
                self.assertIn(json.loads(call["function"]["arguments"])["size"], ("small", "large"))
                talk.add([{"role": "tool", "tool_call_id": call["id"], "content": "done"}])
            talk.set_tool_choice("none")
            talk.answer()
            self.assertEqual(talk.tool_calls, [])
            self.assertEqual(talk.messages[-1]["role"], "assistant")
            with self.assertRaisesRegex(kvant.InvalidError, "found 'nobody'"):
                talk.set_tool_choice("nobody")
        with self.assertRaisesRegex(kvant.InvalidError, "/0/function"):
            chat(tools=[{"type": "function"}])
        with self.assertRaisesRegex(kvant.InvalidError, "expected tools"):
            chat().set_tool_choice("auto")

    def test_calls_come_in_pieces(self):
        """The name first, then pieces of the arguments; together they are the calls of the message."""
        schema = {"type": "object", "properties": {"size": {"enum": ["small", "large"]}, "note": {"type": "string", "maxLength": 12}},
                  "required": ["size", "note"], "additionalProperties": False}
        tools = [{"type": "function", "function": {"name": "order", "strict": True, "parameters": schema}}]
        options = {"tools": tools, "max_tokens": 300, "temperature": 1.0, "seed": 7, "runner_options": {"context": 2048}}
        with chat(tool_choice="required", **options) as talk:
            events = list(talk.events("A coffee, please."))
            begun = [event for event in events if event.kind == "call"]
            self.assertGreater(len(begun), 0)
            self.assertEqual([event.call for event in begun], list(range(len(begun))))
            self.assertEqual({event.text for event in begun}, {"order"})
            open_call, arguments = None, {}
            for event in events:
                if event.kind == "call":
                    self.assertIsNone(open_call)
                    open_call, arguments[event.call] = event.call, ""
                elif event.kind == "arguments":
                    self.assertEqual(event.call, open_call)
                    arguments[event.call] += event.text
                elif event.kind == "call_end":
                    self.assertEqual(event.call, open_call)
                    open_call = None
            calls = talk.tool_calls
            whole = [event.call for event in events if event.kind == "call_end" and event.is_complete]
            self.assertEqual([arguments[call] for call in whole], [call["function"]["arguments"] for call in calls])
            self.assertGreater(sum(event.kind == "arguments" for event in events), len(calls))
            # Its result is answered by events, too; closing them ends the answer.
            talk.set_tool_choice("none")
            talk.add([{"role": "tool", "tool_call_id": calls[0]["id"], "content": "done"}])
            answer = talk.events()
            self.assertEqual(next(answer).kind, "content")
            answer.close()
            self.assertEqual(talk.messages[-1]["role"], "assistant")
            # Text comes by the same way, and stream() leaves the calls out.
            self.assertEqual({part for part, _ in talk.stream("And then?")}, {"content"})

    def test_files_keep_tools_and_grammars(self):
        tools = [{"type": "function", "function": {"name": "order", "parameters": {"type": "object"}}}]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "saved"
            with chat(tools=tools, tool_choice="required", max_tokens=100, runner_options={"context": 2048}) as talk:
                talk.say("A coffee, please.")
                talk.save(path)
                with self.assertRaisesRegex(kvant.InvalidError, "tools: not possible together with a grammar"):
                    talk.set_grammar(regex="a+")
                talk.set_tool_choice("none")
                talk.set_grammar(regex="a+")
            with chat(max_tokens=100, runner_options={"context": 2048}) as other:
                other.load(path)
                events = list(other.events("Another one."))
                self.assertEqual(events[0], kvant.AnswerEvent("call", "order", 0))
                other.set_tool_choice("none")
                other.set_grammar(choices=["aye", "nay"])
                self.assertIn(other.say("Well?"), ("aye", "nay"))
                other.save(path)
            with chat(runner_options={"context": 2048}) as third:
                third.load(path)
                self.assertIn(third.say("Well?"), ("aye", "nay"))
            # What a conversation was made with counts.
            with chat(regex="[0-9]{4}", runner_options={"context": 2048}) as fourth:
                fourth.load(path)
                self.assertRegex(fourth.say("When?"), "^[0-9]{4}$")
                fourth.set_grammar()
                self.assertNotRegex(fourth.say("When?"), "^(aye|nay|[0-9]{4})$")
            saved = json.loads(path.read_text())
            for key, value, reason in (("grammar", {"kind": "regex"}, "grammar: expected a grammar"), ("tools", "[{}]", "tools: "),
                                       ("tool_choice", "order", "tool_choice: expected"), ("tool_choice", 7, "tool_choice: expected"),
                                       ("parallel_tool_calls", 1, "parallel_tool_calls: expected"),
                                       ("grammar", {**saved["grammar"], "kind": "gbnf", "text": "root ::= ("}, "grammar: ")):
                path.write_text(json.dumps({**saved, key: value}))
                with self.subTest(key=key, value=value), chat(runner_options={"context": 2048}) as broken:
                    with self.assertRaisesRegex(kvant.KvantError, reason):
                        broken.load(path)
                    self.assertEqual(broken.messages, [])


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
