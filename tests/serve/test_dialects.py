"""Anthropic's Messages and OpenAI's Responses: the texts of chats, in another form, event by event."""
import json

from accumulate import message_of, named_events, response_of
from common import ServerCase

CHATS = "/v1/chat/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
QUESTION = "What is 17 + 25?"


SCHEMA = {"type": "object", "properties": {"b": {"type": "boolean"}, "a": {"enum": [1, 2]}}, "required": ["b", "a"], "additionalProperties": False}


class Schemas(ServerCase):
    def test_members_have_the_order_of_the_schema(self):
        format_of = {"type": "json_schema", "name": "x", "schema": SCHEMA}
        message = self.server.post(MESSAGES, {"max_tokens": 60, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0,
                                              "output_config": {"format": format_of}})
        response = self.server.post(RESPONSES, {"input": QUESTION, "temperature": 0, "text": {"format": format_of}})
        for text in (message["content"][0]["text"], response["output"][0]["content"][0]["text"]):
            self.assertEqual(list(json.loads(text)), ["b", "a"])


class Messages(ServerCase):
    body = {"model": "m", "max_tokens": 60, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}

    def check(self, body):
        whole = self.server.post(MESSAGES, body)
        told = message_of(self, named_events(self.server, MESSAGES, body))
        for message in (whole, told):
            self.assertRegex(message.pop("id"), "^msg_")
            used = message["usage"].pop("input_tokens") + message["usage"].pop("cache_read_input_tokens")
            count = self.server.post(MESSAGES + "/count_tokens", {"messages": body["messages"], **({"system": body["system"]} if "system" in body else {})})
            self.assertEqual(count, {"input_tokens": used})
        self.assertEqual(whole, told)
        return whole

    def test_answers(self):
        chat = self.server.post(CHATS, {"messages": self.body["messages"], "max_tokens": 60, "temperature": 0})
        message = self.check(self.body)
        self.assertEqual(message["content"], [{"type": "text", "text": chat["choices"][0]["message"]["content"]}])
        self.assertEqual((message["type"], message["role"], message["stop_reason"], message["stop_sequence"]),
                         ("message", "assistant", "end_turn", None))
        text = message["content"][0]["text"]
        self.assertEqual(self.check({**self.body, "max_tokens": 3})["stop_reason"], "max_tokens")
        stopped = self.check({**self.body, "stop_sequences": ["never", text[5:8]]})
        self.assertEqual((stopped["stop_reason"], stopped["stop_sequence"]), ("stop_sequence", text[5:8]))
        self.assertEqual(stopped["content"][0]["text"], text[:text.find(text[5:8])])

    def test_parts(self):
        one = self.check({**self.body, "system": "Be short.", "messages": [{"role": "user", "content": "a\nb"}]})
        two = self.check({**self.body, "system": [{"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}],
                          "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})
        self.assertEqual(one["content"], two["content"])
        earlier = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "x", "signature": ""}, {"type": "text", "text": "b"}]}, {"role": "user", "content": "c"}]
        self.check({**self.body, "messages": earlier})

    def test_billing_numbers_do_not_count(self):
        counts = set()
        for number in ("12345", "abcde"):
            system = "x-anthropic-billing-header: cc_version=2; cch=%s;\n%s" % (number, "Answer in one word. " * 10)
            usage = self.server.post(MESSAGES, {**self.body, "system": system})["usage"]
            counts.add(usage["input_tokens"] + usage["cache_read_input_tokens"])
        self.assertEqual(len(counts), 1)
        self.assertGreaterEqual(usage["cache_read_input_tokens"], (counts.pop() - 1) // 32 * 32)

    def test_what_is_refused(self):
        for body, place in (({}, "max_tokens"), ({**self.body, "max_tokens": 0}, "max_tokens"), ({**self.body, "messages": []}, "messages"),
                            ({**self.body, "messages": [{"role": "system", "content": "a"}]}, "messages[0].role"),
                            ({**self.body, "messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].type"),
                            ({**self.body, "tools": [{"name": "a"}]}, "tools"), ({**self.body, "stop_sequences": "a"}, "stop_sequences"),
                            ({**self.body, "temperature": "a"}, "temperature"), ({**self.body, "thinking": {"type": "x"}}, "thinking"),
                            ({**self.body, "output_config": {"format": {}}}, "output_config.format.type"),
                            ({**self.body, "output_config": {"format": {"type": "json_schema", "schema": {"minimun": 1}}}}, "output_config.format.schema")):
            found, _, data = self.server.ask("POST", MESSAGES, body)
            self.assertEqual(found, 400, body)
            self.assertEqual(data, {"type": "error", "error": {"type": "invalid_request_error", "message": data["error"]["message"]}})
            self.assertIn(place, data["error"]["message"])


    def test_types_and_limits(self):
        """For each field: null, values that are right, and values of a wrong type or beyond the limits."""
        number = ["1", True, [], {}]
        for field, right, wrong in (
                ("max_tokens", [1, 2], [None, 0, -1, 1.5, "1", True, [], {}, 2 ** 63, 2 ** 31]), ("temperature", [None, 0, 1, 0.5], number),
                ("top_p", [None, 0.5, 1], [*number, -0.1, 1.1]), ("top_k", [None, 0, 40], ["1", 1.5, True, [], {}, 2 ** 63]),
                ("stop_sequences", [None, [], ["a"]], ["a", 1, {}, [1], [""], ["a"] * 129]), ("stream", [None, False], ["true", 1, [], {}]),
                ("system", [None, "", "a", [], [{"type": "text", "text": "a"}]], [1, {}, [1], [{}], [{"type": "image"}], [{"type": "text", "text": 1}]]),
                ("thinking", [None, {"type": "disabled"}, {"type": "adaptive"}], [1, "a", [], {}, {"type": "x"}, {"type": 1}]),
                ("metadata", [None, {"user_id": "u"}], []), ("tools", [None, []], [1, "a", {}, [1]]), ("tool_choice", [None, {"type": "none"}], [1, "auto", {"type": "x"}]),
                ("output_config", [None, {}], [1, "a", [], {"format": 1}]), ("model", [None, "m"], [1, [], {}]), ("nobody_knows", [1, {}], []),
                ("messages", [[{"role": "user", "content": []}, {"role": "user", "content": "a"}]],
                 [None, 1, "a", {}, [], [1], [{}], [{"role": "user"}], [{"role": 1, "content": "a"}], [{"role": "user", "content": 1}],
                  [{"role": "user", "content": [1]}], [{"role": "user", "content": [{"type": "text", "text": None}]}]])):
            body = {**self.body, "max_tokens": 1}
            for value in right:
                self.server.post(MESSAGES, {**body, field: value})
            for value in wrong:
                found, _, data = self.server.ask("POST", MESSAGES, {**body, field: value})
                self.assertEqual(found, 400, (field, value, data))
                self.assertIn(field, data["error"]["message"], (field, value))
        for text in ('{"max_tokens": 1, "max_tokens": 1, "messages": []}', '{"max_tokens": NaN}', '{"max_tokens": 1e999}', "[]", "", "{"):
            self.assertEqual(self.server.ask("POST", MESSAGES, text)[2]["error"]["type"], "invalid_request_error")


class Responses(ServerCase):
    body = {"model": "m", "input": QUESTION, "temperature": 0}

    def without_ids(self, response):
        response = {**response, "output": [{**item, "id": 0} for item in response["output"]], "id": 0, "created_at": 0}
        response["usage"]["input_tokens_details"] = 0
        return response

    def check(self, body):
        whole = self.server.post(RESPONSES, body)
        told = response_of(self, named_events(self.server, RESPONSES, body))
        self.assertLessEqual({"cached_tokens", "cache_write_tokens"}, set(whole["usage"]["input_tokens_details"]))
        count = self.server.post(RESPONSES + "/input_tokens", body)
        self.assertEqual(count, {"object": "response.input_tokens", "input_tokens": whole["usage"]["input_tokens"]})
        self.assertEqual(self.without_ids(whole), self.without_ids(told))
        return whole

    def test_answers(self):
        chat = self.server.post(CHATS, {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0})
        response = self.check(self.body)
        self.assertEqual((response["object"], response["status"], response["error"]), ("response", "completed", None))
        self.assertEqual(response["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"])
        self.assertEqual(response["usage"]["total_tokens"], chat["usage"]["total_tokens"])
        cut = self.check({**self.body, "max_output_tokens": 3})
        self.assertEqual((cut["status"], cut["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))

    def test_items(self):
        items = [{"role": "user", "content": "a"}, {"type": "reasoning", "id": "rs_1", "summary": []},
                 {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
                 {"role": "user", "content": [{"type": "input_text", "text": "c"}]}]
        messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                    {"role": "user", "content": "c"}]
        body = {**self.body, "input": items, "instructions": "S", "max_output_tokens": 20, "store": True, "include": []}
        chat = self.server.post(CHATS, {"messages": messages, "temperature": 0, "max_tokens": 20})
        self.assertEqual(self.check(body)["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"])

    def test_what_is_refused(self):
        for body, param in (({}, "input"), ({"input": []}, "input"), ({"input": 1}, "input"), ({**self.body, "previous_response_id": "r"}, "previous_response_id"),
                            ({**self.body, "conversation": "c"}, "conversation"), ({**self.body, "background": True}, "background"),
                            ({**self.body, "tools": [{"type": "function"}]}, "tools[0].name"), ({**self.body, "instructions": 1}, "instructions"),
                            ({"input": [{"type": "computer_call"}]}, "input[0].type"), ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
                            ({**self.body, "text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
                            ({**self.body, "text": {"format": {"type": "json_schema", "schema": {"$dynamicRef": "#a"}}}}, "text.format.schema"), ({**self.body, "top_logprobs": 2}, "top_logprobs")):
            found, _, data = self.server.ask("POST", RESPONSES, body)
            self.assertEqual(found, 400, body)
            self.check_error(data, param=param)

    def test_types_and_limits(self):
        """For each field: null, values that are right, and values of a wrong type or beyond the limits."""
        number, flag = ["1", True, [], {}], ["true", 1, [], {}]
        for field, right, wrong in (
                ("max_output_tokens", [None, 0, 1, 2], [-2, 1.5, "1", True, [], {}, 2 ** 63, 2 ** 31]), ("temperature", [None, 0, 1, 0.5], number),
                ("top_p", [None, 0.5, 1], [*number, -0.1, 1.1]), ("instructions", [None, "", "a"], [1, [], {}]), ("stream", [None, False], flag),
                ("parallel_tool_calls", [None, True, False], flag), ("reasoning", [None, {}, {"effort": "low", "summary": "auto"}], [1, "a", [], {"effort": 1}, {"effort": "huge"}]),
                ("text", [None, {}, {"format": {"type": "text"}, "verbosity": "low"}], [1, "a", [], {"format": 1}, {"format": {}}, {"format": {"type": "x"}}]),
                ("tools", [None, []], [1, "a", {}, [1]]), ("tool_choice", [None, "auto", "none"], [1, "x", [], {}]), ("store", [None, True, False], []),
                ("include", [None, []], []), ("background", [None, False], [True]), ("previous_response_id", [None], ["r"]), ("conversation", [None], ["c", {}]),
                ("model", [None, "m"], [1, [], {}]), ("nobody_knows", [1, {}], []), ("metadata", [None, {}], []), ("user", [None, "u"], []),
                ("input", ["", "a"], [None, 1, {}, [], [1], [{}], [{"role": "user"}], [{"role": 1, "content": "a"}], [{"role": "user", "content": 1}], [{"role": "user", "content": [1]}]])):
            body = {**self.body, "max_output_tokens": 1}
            for value in right:
                found, _, data = self.server.ask("POST", RESPONSES, {**body, field: value})
                self.assertEqual(found, 200, (field, value, data))
            for value in wrong:
                found, _, data = self.server.ask("POST", RESPONSES, {**body, field: value})
                self.assertEqual(found, 400, (field, value, data))
                self.check_error(data)
                self.assertTrue(str(data["error"]["param"]).startswith(field), (field, value, data))
