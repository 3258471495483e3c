"""Where answers end: at the border of a character, in a thought, at each kind of end, in each interface, streamed and whole."""
import json
import unittest

from accumulate import message_of, named_events, response_of
from common import TEXT_MODEL, ServerCase
from test_agents import TEMPLATE
from test_texts import check_stream
from tool_case import ANTHROPIC_TOOLS, CHATS, FLAT_TOOLS, MESSAGES, RESPONSES, TOOLS, ToolCase

TEXTS = "/v1/completions"
# Characters of one to four bytes, which are tokens of one byte each where the vocabulary has no others.
FORCED = "a\u00e4\u20ac\U0001f600b\u20adc"


class Characters(ServerCase):
    model = TEXT_MODEL
    body = {"prompt": "ROMEO:", "max_tokens": 60, "temperature": 0, "grammar": 'root ::= "%s"' % FORCED}

    def both(self, further):
        """The text and its end, which a stream tells as well."""
        body = {**self.body, **further}
        choice = self.server.post(TEXTS, body)["choices"][0]
        texts, reasons = check_stream(self, self.server.stream(TEXTS, body), False)
        self.assertEqual((texts[0], reasons[0]), (choice["text"], choice["finish_reason"]), further)
        return choice["text"], choice["finish_reason"]

    def test_stops(self):
        """Stop texts of whole characters, whose tokens are parts of these, and ones that share only the first bytes with the text."""
        self.assertEqual(self.both({}), (FORCED, "stop"))
        for stop in (*FORCED, FORCED[1:3], FORCED[2:4], FORCED[:2], FORCED[3:6], FORCED[2:], [FORCED[3:5], FORCED[2]], [FORCED[2], FORCED[2:4]]):
            stops = [stop] if isinstance(stop, str) else stop
            place = min(FORCED.find(one) for one in stops)
            self.assertEqual(self.both({"stop": stop}), (FORCED[:place], "stop"), stop)
        # U+20AE has the first two bytes of two characters of the text, and U+1F601 three of one.
        for stop in ("\u20ae", "\U0001f601", "\u20ac\u20ac", "\u00e5", "b\u20ae", "c\u00e4"):
            self.assertEqual(self.both({"stop": stop}), (FORCED, "stop"), stop)

    def test_limits(self):
        """A limit within a character: the text before it, and a replacement character for the bytes that make none."""
        tokens = self.server.post(TEXTS, self.body)["usage"]["completion_tokens"] - 1
        self.assertGreater(tokens, len(FORCED))
        seen = set()
        for limit in range(1, tokens):
            for stop in ([], ["\u20ae"], ["\U0001f601"]):
                text, reason = self.both({"max_tokens": limit, "stop": stop})
                self.assertEqual(reason, "length")
                self.assertTrue(FORCED.startswith(text.rstrip("\ufffd")), text)
                self.assertLessEqual(text.count("\ufffd"), 1)
                seen.add(text)
        self.assertLessEqual({"a\ufffd", "a\u00e4", "a\u00e4\ufffd", "a\u00e4\u20ac\ufffd", "a\u00e4\u20ac\U0001f600"}, seen)

    def test_log_probs(self):
        """Bytes of tokens that are parts of characters, put together, are the text; and JSON is valid for each of them."""
        body = {"messages": [{"role": "user", "content": "a"}], **{name: self.body[name] for name in ("max_tokens", "temperature", "grammar")},
                "logprobs": True, "top_logprobs": 3, "chat_template_kwargs": {}}
        with_template = self.server.ask("POST", CHATS, body)
        if with_template[0] == 200:
            content = with_template[2]["choices"][0]["logprobs"]["content"]
            self.assertEqual(b"".join(bytes(token["bytes"]) for token in content).decode(), FORCED)
        listed = self.server.post("/completion", {**{name: self.body[name] for name in ("prompt", "temperature", "grammar")}, "n_probs": 3, "n_predict": 60})
        self.assertEqual(b"".join(bytes(token["bytes"]) for token in listed["completion_probabilities"]).decode(), FORCED)
        choice = self.server.post(TEXTS, {**self.body, "logprobs": 3})["choices"][0]
        self.assertEqual((choice["text"], len(choice["logprobs"]["tokens"])), (FORCED, len(listed["completion_probabilities"])))


class Matrix(ToolCase):
    """What ended an answer, in the words of each interface."""
    template = TEMPLATE.replace("if enable_thinking", "if enable_thinking or reasoning_effort == 'high'")
    question = [{"role": "user", "content": "Two coffees, please."}]

    def message(self, **body):
        body = {"model": "m", "max_tokens": 400, "temperature": 0, "messages": self.question, **body}
        whole, told = self.server.post(MESSAGES, body), message_of(self, named_events(self.server, MESSAGES, body))
        self.assertEqual((told["stop_reason"], told["stop_sequence"]), (whole["stop_reason"], whole["stop_sequence"]))
        self.assertEqual([block["type"] for block in told["content"]], [block["type"] for block in whole["content"]])
        for block in (*whole["content"], *told["content"]):
            if block["type"] == "thinking":
                self.assertEqual(block["signature"], "")
        return whole["stop_reason"], [block["type"] for block in whole["content"]]

    def response(self, **body):
        body = {"model": "m", "max_output_tokens": 400, "temperature": 0, "input": "Two coffees, please.", **body}
        whole, told = self.server.post(RESPONSES, body), response_of(self, named_events(self.server, RESPONSES, body))
        self.assertEqual((told["status"], told["incomplete_details"]), (whole["status"], whole["incomplete_details"]))
        self.assertEqual([item["type"] for item in told["output"]], [item["type"] for item in whole["output"]])
        return whole["status"], [item["type"] for item in whole["output"]]

    def chat(self, **body):
        body = {"max_tokens": 400, "temperature": 0, "messages": self.question, **body}
        whole = self.server.post(CHATS, body)["choices"][0]
        events = self.server.stream(CHATS, body)
        self.assertEqual([event["choices"][0]["finish_reason"] for event in events if event["choices"]][-1], whole["finish_reason"])
        return whole["finish_reason"], [name for name in ("reasoning_content", "content", "tool_calls") if whole["message"].get(name)]

    def test_schemas(self):
        """A schema ends the text where JSON is complete."""
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
        form = {"type": "json_schema", "name": "x", "schema": schema}
        self.assertEqual(self.chat(response_format={"type": "json_schema", "json_schema": form}), ("stop", ["content"]))
        self.assertEqual(self.message(output_config={"format": form}), ("end_turn", ["text"]))
        self.assertEqual(self.response(text={"format": form}), ("completed", ["message"]))

    def test_limits(self):
        self.assertEqual(self.chat(max_tokens=5), ("length", ["content"]))
        self.assertEqual(self.message(max_tokens=5), ("max_tokens", ["text"]))
        self.assertEqual(self.response(max_output_tokens=5), ("incomplete", ["message"]))

    def test_thoughts_that_are_cut(self):
        self.assertEqual(self.chat(max_tokens=5, chat_template_kwargs={"enable_thinking": True}), ("length", ["reasoning_content"]))
        self.assertEqual(self.message(max_tokens=5, thinking={"type": "enabled", "budget_tokens": 1024}), ("max_tokens", ["thinking"]))
        self.assertEqual(self.response(max_output_tokens=5, reasoning={"effort": "high"}), ("incomplete", ["reasoning"]))

    def test_a_full_context(self):
        """The text ends where the context does, as if that were its limit."""
        size = self.server.ask("GET", "/props")[2]["default_generation_settings"]["n_ctx"]
        count = self.server.post(CHATS + "/input_tokens", {"messages": [{"role": "user", "content": "@" * 100}]})["input_tokens"]
        text = "@" * (100 + (size - count) // 1 - 20)
        while self.server.post(CHATS + "/input_tokens", {"messages": [{"role": "user", "content": text}]})["input_tokens"] < size - 20:
            text += "@" * 10
        message = [{"role": "user", "content": text}]
        self.assertEqual(self.chat(messages=message, ignore_eos=True)[0], "length")
        found = self.message(messages=message)[0], self.response(input=text)[0]
        self.assertEqual(found, ("max_tokens", "incomplete"))

    def test_calls(self):
        """Complete and cut ones."""
        named = {"type": "function", "function": {"name": "order"}}
        choices = ((self.chat, {"tools": TOOLS, "tool_choice": named}, "max_tokens", ("tool_calls", ["tool_calls"]), "length"),
                   (self.message, {"tools": ANTHROPIC_TOOLS, "tool_choice": {"type": "tool", "name": "order"}}, "max_tokens", ("tool_use", ["tool_use"]), "max_tokens"),
                   (self.response, {"tools": FLAT_TOOLS, "tool_choice": {"type": "function", "name": "order"}}, "max_output_tokens", ("completed", ["function_call"]), "incomplete"))
        for ask, body, name, whole, cut in choices:
            self.assertEqual(ask(**body), whole)
            self.assertEqual(ask(**body, **{name: 30})[0], cut)

    def test_stops(self):
        content = self.server.post(CHATS, {"max_tokens": 20, "temperature": 0, "messages": self.question})["choices"][0]["message"]["content"]
        self.assertEqual(self.chat(stop=content[3:5])[0], "stop")
        self.assertEqual(self.message(stop_sequences=[content[3:5]])[0], "stop_sequence")


class Sequences(ToolCase):
    """OpenAI's events of answers with several items."""
    template = TEMPLATE

    def test_two_calls(self):
        """Each call is an item of its own, and whole answers and streams are the same."""
        body = {"model": "m", "input": "Two coffees, please.", "tools": FLAT_TOOLS, "tool_choice": "required", "parallel_tool_calls": True,
                "max_output_tokens": 600, "temperature": 0}
        response = response_of(self, named_events(self.server, RESPONSES, body))
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        self.assertGreater(len(calls), 1)
        self.assertEqual(len({call["call_id"] for call in calls}), len(calls))
        for call in calls[:-1]:  # the limit may have cut the last one
            self.check_arguments(call["name"], json.loads(call["arguments"]))
        whole = self.server.post(RESPONSES, body)
        self.assertEqual([[item.get(name) for name in ("type", "name", "arguments", "status")] for item in whole["output"]],
                         [[item.get(name) for name in ("type", "name", "arguments", "status")] for item in response["output"]])

    def test_thoughts_and_text(self):
        """Thoughts are an item in front of the message."""
        grammar = {"type": "json_schema", "name": "x", "schema": {"const": "yes"}}
        body = {"model": "m", "input": "Two coffees, please.", "temperature": 0, "max_output_tokens": 300, "text": {"format": grammar}}
        response = response_of(self, named_events(self.server, RESPONSES, body))
        self.assertEqual([item["type"] for item in response["output"]], ["message"])
        self.assertEqual(response["output"][0]["content"][0]["text"], '"yes"')


if __name__ == "__main__":
    unittest.main()
