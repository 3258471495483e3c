"""Calls of tools in Anthropic's Messages and OpenAI's Responses: the calls of chats, in another form."""
import json

from accumulate import message_of, named_events, response_of
from tool_case import ANTHROPIC_TOOLS, CALLS, CHATS, FLAT_TOOLS, MESSAGES, RESPONSES, TOOLS, ToolCase

QUESTION = {"role": "user", "content": "Two coffees, please."}
# These interfaces have no biases, so that a template without thoughts makes calls likely enough.
PLAIN = """{%- if tools %}{{ '<|im_start|>system\n' }}{% for t in tools %}{{ t | tojson }}{{ '\n' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + (('[' + m.reasoning_content + ']') if m.reasoning_content else '') + (m.content or '') }}
""" + CALLS + """{{- '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }}"""


def chat_of(server, messages, **further):
    """The tokens that messages of a chat are, which those of another interface have to be, too."""
    return server.post(CHATS + "/input_tokens", {"messages": messages, **further})["input_tokens"]


class Messages(ToolCase):
    template = PLAIN
    body = {"model": "m", "max_tokens": 400, "messages": [QUESTION], "tools": ANTHROPIC_TOOLS, "temperature": 0}

    def both(self, body):
        whole = self.server.post(MESSAGES, body)
        told = message_of(self, named_events(self.server, MESSAGES, body))
        for message in (whole, told):
            self.assertRegex(message.pop("id"), "^msg_")
            used = message["usage"].pop("input_tokens") + message["usage"].pop("cache_read_input_tokens")
            counted = {name: body[name] for name in ("messages", "tools", "tool_choice", "system") if name in body}
            self.assertEqual(self.server.post(MESSAGES + "/count_tokens", counted), {"input_tokens": used})
            for block in message["content"]:
                if block["type"] == "tool_use":
                    self.assertRegex(block.pop("id"), "^[a-z0-9]{9}$")
        return whole, told

    def test_choices(self):
        for choice, names in (({"type": "tool", "name": "order"}, {"order"}), ({"type": "tool", "name": "stop"}, {"stop"}),
                              ({"type": "any", "disable_parallel_tool_use": True}, {"order", "stop"})):
            whole, told = self.both({**self.body, "tool_choice": choice})
            self.assertEqual(whole, told)
            self.assertEqual((whole["stop_reason"], whole["stop_sequence"]), ("tool_use", None))
            self.assertEqual([set(block) for block in whole["content"]], [{"type", "name", "input"}])
            block = whole["content"][0]
            self.assertIn(block["name"], names)
            self.check_arguments(block["name"], block["input"])
        plain = self.server.post(MESSAGES, {**self.body, "tools": [], "max_tokens": 20})
        none, _ = self.both({**self.body, "tool_choice": {"type": "none"}, "max_tokens": 20})
        self.assertEqual(none["content"], plain["content"])
        auto, told = self.both({**self.body, "tool_choice": {"type": "auto"}, "max_tokens": 20})
        self.assertEqual(auto, told)

    def test_cut_calls(self):
        """The whole answer has the members that were whole when the limit came."""
        body = {**self.body, "tool_choice": {"type": "tool", "name": "order"}}
        full = self.server.post(MESSAGES, body)
        members = list(full["content"][0]["input"].items())
        counts = set()
        for limit in range(5, full["usage"]["output_tokens"] - 1, 3):
            whole, told = self.both({**body, "max_tokens": limit})
            self.assertEqual((whole["stop_reason"], told["stop_reason"]), ("max_tokens", "max_tokens"))
            if whole["content"]:
                found = list(whole["content"][0]["input"].items())
                self.assertEqual(found, members[:len(found)])
                counts.add(len(found))
                if not isinstance(told["content"][0]["input"], dict):
                    self.assertNotIn("}", told["content"][0]["input"])
        self.assertLessEqual({0, 1}, counts)

    def test_histories(self):
        use = {"type": "tool_use", "id": "toolu_1", "name": "order", "input": {"size": "small", "count": 2}}
        other = {**use, "id": "toolu_2", "input": {"count": 1, "size": "large"}}
        thought = {"type": "thinking", "thinking": "hm", "signature": ""}
        results = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "done", "cache_control": {"type": "ephemeral"}},
                   {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "milk"}]},
                   {"type": "text", "text": "And now?"}]
        messages = [QUESTION, {"role": "assistant", "content": [thought, {"type": "text", "text": "Well."}, use, other]}, {"role": "user", "content": results}]

        def call(arguments, name):
            return {"id": name, "type": "function", "function": {"name": "order", "arguments": arguments}}
        chat = [QUESTION, {"role": "assistant", "content": "Well.", "reasoning_content": "hm", "tool_calls": [
                    call('{"size": "small", "count": 2}', "toolu_1"), call('{"count": 1, "size": "large"}', "toolu_2")]},
                {"role": "tool", "tool_call_id": "toolu_1", "content": "done"}, {"role": "tool", "tool_call_id": "toolu_2", "content": "Error: no\nmilk"},
                {"role": "user", "content": "And now?"}]
        tools = [{"type": "function", "function": {"name": tool["name"], "parameters": tool["input_schema"]}} for tool in ANTHROPIC_TOOLS]
        count = self.server.post(MESSAGES + "/count_tokens", {"messages": messages, "tools": ANTHROPIC_TOOLS})["input_tokens"]
        self.assertEqual(count, chat_of(self.server, chat, tools=tools))
        body = {**self.body, "messages": messages, "max_tokens": 30}
        answer = self.server.post(MESSAGES, body)
        same = self.server.post(CHATS, {"messages": chat, "tools": tools, "max_tokens": 30, "temperature": 0})["choices"][0]["message"]["content"]
        self.assertEqual(answer["content"], [{"type": "text", "text": same}])
        empty = [QUESTION, {"role": "assistant", "content": [use]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}]}]
        self.server.post(MESSAGES, {**self.body, "messages": empty, "max_tokens": 1})

    def test_wrong_fields(self):
        tool = {"name": "a", "input_schema": {"type": "object"}}
        for tools, param in ((1, "tools"), ([1], "tools[0]"), ([{}], "tools[0].input_schema"), ([{**tool, "name": "a b"}], "tools[0].name"),
                             ([tool, {"input_schema": {}}], "tools[1].name"), ([{**tool, "input_schema": 1}], "tools[0].input_schema"),
                             ([tool, tool], "tools[1].name"), ([{"type": "web_search_20250305", "name": "web_search"}], "tools[0].type"),
                             ([{**tool, "type": 1}], "tools[0].type"), ([{**tool, "description": 1}], "tools[0].description"),
                             ([{**tool, "strict": True, "input_schema": {"type": "object", "minimun": 1}}], "tools[0].input_schema")):
            self.expect(MESSAGES, {**self.body, "tools": tools}, param)
        for choice, param in (("auto", "tool_choice"), ({}, "tool_choice.type"), ({"type": "x"}, "tool_choice.type"), ({"type": "tool"}, "tool_choice.name"),
                              ({"type": "tool", "name": "x"}, "tool_choice.name"), ({"type": "any", "disable_parallel_tool_use": 1}, "tool_choice.disable_parallel_tool_use")):
            self.expect(MESSAGES, {**self.body, "tool_choice": choice}, param)
        self.expect(MESSAGES, {**self.body, "tools": [], "tool_choice": {"type": "any"}}, "tool_choice")
        self.expect(MESSAGES, {**self.body, "output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format")
        self.expect(MESSAGES, {**self.body, "mcp_servers": [{"type": "url", "url": "http://a", "name": "a"}]}, "mcp_servers")
        error = self.server.post(MESSAGES, {**self.body, "thread": {"type": "create"}}, 400)["error"]
        self.assertEqual(error["details"], {"error_code": "thread_unsupported_request", "unsupported": ["thread"]})
        use = {"type": "tool_use", "id": "a", "name": "stop", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
        for role, block, param in (("assistant", {**use, "id": 1}, ".id"), ("assistant", {"type": "tool_use", "id": "a"}, ".name"), ("assistant", {**use, "input": "{}"}, ".input"),
                                   ("user", use, ".type"), ("assistant", result, ".type"), ("user", {"type": "tool_result"}, ".tool_use_id"),
                                   ("user", {**result, "content": 1}, ".content"), ("user", {**result, "content": [{"type": "image"}]}, ".content[0].type"),
                                   ("user", {**result, "is_error": 1}, ".is_error"), ("assistant", {"type": "thinking"}, ".thinking")):
            self.expect(MESSAGES, {**self.body, "messages": [QUESTION, {"role": role, "content": [{"type": "text", "text": "a"}, block]}, QUESTION]},
                        "messages[1].content[1]" + param)


class Responses(ToolCase):
    template = PLAIN
    body = {"model": "m", "input": "Two coffees, please.", "tools": FLAT_TOOLS, "temperature": 0, "max_output_tokens": 400}

    def both(self, body):
        whole = self.server.post(RESPONSES, body)
        told = response_of(self, named_events(self.server, RESPONSES, body))
        count = self.server.post(RESPONSES + "/input_tokens", body)
        self.assertEqual(count, {"object": "response.input_tokens", "input_tokens": whole["usage"]["input_tokens"]})
        for response in (whole, told):
            response.update(id=0, created_at=0)
            response["usage"]["input_tokens_details"] = 0
            for item in response["output"]:
                self.assertRegex(item["id"], {"function_call": "^fc_", "message": "^msg_", "reasoning": "^rs_"}[item["type"]])
                item["id"] = 0
                if item["type"] == "function_call":
                    self.assertRegex(item["call_id"], "^[a-z0-9]{9}$")
                    item["call_id"] = 0
        self.assertEqual(whole, told)
        return whole

    def test_choices(self):
        named = {"type": "function", "name": "stop"}
        for choice, names in ((named, {"stop"}), ({**named, "name": "order"}, {"order"}), ("required", {"order", "stop"}),
                              ({"type": "allowed_tools", "mode": "required", "tools": [named]}, {"stop"})):
            response = self.both({**self.body, "tool_choice": choice, "parallel_tool_calls": False})
            self.assertEqual((response["tool_choice"], response["parallel_tool_calls"], response["status"]), (choice, False, "completed"))
            self.assertEqual([set(item) for item in response["output"]], [{"id", "type", "status", "call_id", "name", "arguments"}])
            item = response["output"][0]
            self.assertEqual(item["status"], "completed")
            self.assertIn(item["name"], names)
            self.check_arguments(item["name"], json.loads(item["arguments"]))
        self.assertEqual(response["tools"], [{"description": None, "parameters": None, "strict": False, **tool} for tool in FLAT_TOOLS])
        none = self.both({**self.body, "tool_choice": "none", "max_output_tokens": 20})
        plain = self.both({**self.body, "tools": [], "max_output_tokens": 20})
        self.assertEqual(none["output"], plain["output"])

    def test_cut_calls(self):
        body = {**self.body, "tool_choice": {"type": "function", "name": "order"}}
        full = self.server.post(RESPONSES, body)
        text = full["output"][0]["arguments"]
        for limit in range(40, full["usage"]["output_tokens"] - 1, 7):
            cut = self.both({**body, "max_output_tokens": limit})
            self.assertEqual((cut["status"], cut["incomplete_details"]), ("incomplete", {"reason": "max_output_tokens"}))
            for item in cut["output"]:
                self.assertTrue(text.startswith(item["arguments"]))
                self.assertEqual(item["status"], "completed" if item["arguments"] == text else "incomplete")

    def test_items(self):
        """Thoughts, text and calls of an answer are one message; results of calls are messages."""
        call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "order", "arguments": '{"size": "small", "count": 2}', "status": "completed"}
        items = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
                 {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
                 {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Well.", "annotations": []}]},
                 call, {**call, "call_id": "c2", "name": "stop", "arguments": "{}"}, {"type": "function_call_output", "call_id": "c1", "output": "done"},
                 {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
                 {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": None},
                 {"role": "user", "content": "And now?"}]

        def called(name, arguments, of):
            return {"id": of, "type": "function", "function": {"name": name, "arguments": arguments}}
        chat = [{"role": "system", "content": "You help.\n\nBe short."}, {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": "Well.", "reasoning_content": "hm", "tool_calls": [called("order", call["arguments"], "c1"), called("stop", "{}", "c2")]},
                {"role": "tool", "tool_call_id": "c1", "content": "done"}, {"role": "tool", "tool_call_id": "c2", "content": "a\nb"}, {"role": "user", "content": "And now?"}]
        body = {**self.body, "input": items, "instructions": "You help.", "max_output_tokens": 20}
        response = self.both(body)
        self.assertEqual(response["usage"]["input_tokens"], chat_of(self.server, chat, tools=TOOLS))
        same = self.server.post(CHATS, {"messages": chat, "tools": TOOLS, "max_tokens": 20, "temperature": 0})["choices"][0]["message"]["content"]
        self.assertEqual(response["output"][0]["content"][0]["text"], same)

    def test_tools_of_other_types(self):
        """They are left out, and a header says so."""
        tools = [{"type": "web_search"}, FLAT_TOOLS[0], {"type": "custom", "name": "patch"}, {"type": "bad\r\nX-Bad: \"1\""}]
        found, headers, data = self.server.ask("POST", RESPONSES, {**self.body, "tools": tools, "tool_choice": "required"})
        self.assertEqual((found, [tool["name"] for tool in data["tools"]]), (200, ["order"]))
        self.assertEqual(headers["Warning"], '299 kvant "skipped tools of other types: web_search, custom, bad??X-Bad???1?"')
        self.assertNotIn("X-Bad", headers)
        self.assertNotIn("Warning", self.server.ask("POST", RESPONSES, {**self.body, "max_output_tokens": 1})[1])
        self.expect(RESPONSES, {**self.body, "tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice")

    def test_wrong_fields(self):
        tool = {"type": "function", "name": "a", "parameters": {"type": "object"}}
        for tools, param in ((1, "tools"), ([1], "tools[0]"), ([{}], "tools[0].type"), ([{"type": 1}], "tools[0].type"), ([{"type": "function"}], "tools[0].name"),
                             ([{"type": "web_search"}, {**tool, "name": ""}], "tools[1].name"), ([{**tool, "parameters": []}], "tools[0].parameters"),
                             ([{"type": "web_search"}, {**tool, "strict": True, "parameters": {"type": "object", "properties": {"x": {"minimun": 1}}}}], "tools[1].parameters")):
            self.expect(RESPONSES, {**self.body, "tools": tools}, param)
        for choice, param in ((1, "tool_choice"), ("any", "tool_choice"), ({"type": "function"}, "tool_choice.name"), ({"type": "custom", "name": "a"}, "tool_choice.type"),
                              ({"type": "function", "name": "x"}, "tool_choice.name"), ({"type": "allowed_tools", "mode": "none", "tools": []}, "tool_choice.mode"),
                              ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]}, "tool_choice.tools[0].name")):
            self.expect(RESPONSES, {**self.body, "tool_choice": choice}, param)
        self.expect(RESPONSES, {**self.body, "parallel_tool_calls": "a"}, "parallel_tool_calls")
        self.expect(RESPONSES, {**self.body, "text": {"format": {"type": "json_object"}}}, "text.format")
        user = {"role": "user", "content": "a"}
        call = {"type": "function_call", "call_id": "a", "name": "a", "arguments": "{}"}
        for item, param in (({**call, "call_id": 1}, ".call_id"), ({**call, "name": None}, ".name"), ({**call, "arguments": {}}, ".arguments"),
                            ({"type": "function_call_output"}, ".call_id"), ({"type": "function_call_output", "call_id": "a"}, ".output"),
                            ({"type": "function_call_output", "call_id": "a", "output": [{"type": "input_image"}]}, ".output[0].type"),
                            ({"type": "reasoning", "content": [{"type": "x"}]}, ".content[0].type"), ({"type": "item_reference", "id": "a"}, ".type")):
            self.expect(RESPONSES, {**self.body, "input": [user, item]}, "input[1]" + param)
