"""Many calls of tools by many clients at once: what a stream tells is what a whole answer says, wherever the limit cuts it."""
import concurrent.futures
import json

from accumulate import chat_choices
from tool_case import CHATS, ONLY_CALLS, TOOLS, ToolCase

CALLS = 500
CUT_SEEDS = (1, 3, 5)  # a call of each tool
QUESTION = {"role": "user", "content": "Two coffees, please."}
TEXTS = {"type": "object", "properties": {"note": {"type": "string", "maxLength": 12}, "tags": {"type": "array", "maxItems": 3,
                                                                                               "items": {"enum": ["a\"b", "ü", "\\"]}},
                                          "more": {"anyOf": [{"type": "null"}, {"type": "number", "minimum": -1, "maximum": 1}]}},
         "required": ["tags"], "additionalProperties": False}
EVERY = [*TOOLS, {"type": "function", "function": {"name": "write", "parameters": TEXTS}}]


class ManyCalls(ToolCase):
    parallel = 32

    def body(self, seed):
        names = [tool["function"]["name"] for tool in EVERY]
        choice = {"type": "function", "function": {"name": names[seed % 3]}} if seed % 2 else "required"
        return {"messages": [QUESTION], "tools": EVERY, "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 300,
                "temperature": 1, "logit_bias": ONLY_CALLS, "seed": seed}

    def whole(self, body):
        answer = self.server.post(CHATS, body)
        return answer["choices"][0], answer["usage"]["completion_tokens"]

    def streamed(self, body):
        """The choice that the events make; chat_choices() wants the name in the first one of a call, and no arguments in it."""
        return chat_choices(self, self.server.stream(CHATS, body))[0]

    def call_of(self, choice):
        calls = choice["message"].get("tool_calls") or []
        self.assertLessEqual(len(calls), 1)
        self.assertIsNone(choice["message"]["content"])
        return calls[0]["function"] if calls else None

    def check_arguments(self, name, arguments):
        if name != "write":
            super().check_arguments(name, arguments)
            return
        self.assertLessEqual({"tags"}, set(arguments))
        self.assertLessEqual(set(arguments), {"note", "tags", "more"})
        self.assertLessEqual(len(arguments.get("note", "")), 12)
        self.assertLessEqual(len(arguments["tags"]), 3)
        self.assertLessEqual(set(arguments["tags"]), {"a\"b", "ü", "\\"})
        self.assertTrue(arguments.get("more") is None or -1 <= arguments["more"] <= 1)

    def each(self, function, items):
        with concurrent.futures.ThreadPoolExecutor(self.parallel) as threads:
            return list(threads.map(function, items))

    def test_streams_and_whole_answers(self):
        bodies = [self.body(seed) for seed in range(CALLS)]
        told = self.each(self.streamed, bodies)
        whole = self.each(self.whole, bodies[::4])
        names = {}
        for seed, choice in enumerate(told):
            self.assertEqual(choice["finish_reason"], "tool_calls", seed)
            self.check_calls(choice["message"]["tool_calls"])
            if seed % 4 == 0:
                self.assertEqual(self.call_of(choice), self.call_of(whole[seed // 4][0]), seed)
            name = self.call_of(choice)["name"]
            names[name] = names.get(name, 0) + 1
        self.assertEqual(sum(names.values()), CALLS)
        self.assertGreater(min(names.get(tool["function"]["name"], 0) for tool in EVERY), CALLS // 10, names)

    def test_cuts_at_every_token(self):
        for seed in CUT_SEEDS:
            body = self.body(seed)
            whole, tokens = self.whole(body)
            full = self.call_of(whole)
            limits = range(1, tokens - 1)  # the last two are the end of the call and of the answer
            cuts = self.each(lambda limit: (self.streamed({**body, "max_tokens": limit}), self.whole({**body, "max_tokens": limit})[0]), limits)
            before = 0
            for limit, (choice, other) in zip(limits, cuts):
                call = self.call_of(choice)
                self.assertEqual((choice["finish_reason"], other["finish_reason"]), ("length", "length"), (seed, limit))
                self.assertEqual(call, self.call_of(other), (seed, limit))
                if call is None:
                    self.assertEqual(before, 0)
                    continue
                self.assertEqual(call["name"], full["name"])
                self.assertTrue(full["arguments"].startswith(call["arguments"]), (seed, limit))
                self.assertGreaterEqual(len(call["arguments"]), before)  # nothing is taken back
                before = len(call["arguments"])
            # The next turn takes what was cut.
            pieces = sorted({self.call_of(choice)["arguments"] for choice, _ in cuts if self.call_of(choice)})
            histories = [[QUESTION, {"role": "assistant", "content": None, "tool_calls": [
                {"id": "abcdefghi", "type": "function", "function": {"name": full["name"], "arguments": piece}}]},
                {"role": "tool", "tool_call_id": "abcdefghi", "content": "cut"}] for piece in pieces]
            for choice, _ in self.each(lambda messages: self.whole({**body, "messages": messages}), histories):
                self.check_arguments(self.call_of(choice)["name"], json.loads(self.call_of(choice)["arguments"]))
