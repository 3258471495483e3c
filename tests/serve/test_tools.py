"""Calls of tools in chats: what may be called, in which form, streamed and whole, and what comes of wrong fields."""
import concurrent.futures
import json
import time

from accumulate import chat_choices
from tool_case import ALL_PARTS, CHATS, MARKS, ONLY_CALLS, ORDER, TOOLS, ToolCase

QUESTION = {"role": "user", "content": "Two coffees, please."}
NAMED = {"type": "function", "function": {"name": "order"}}


def without_ids(choice):
    message = dict(choice["message"])
    if "tool_calls" in message:
        message["tool_calls"] = [{**call, "id": ""} for call in message["tool_calls"]]
    return {**choice, "message": message}


class Chats(ToolCase):
    body = {"messages": [QUESTION], "tools": TOOLS, "max_tokens": 400, "temperature": 1, "logit_bias": ONLY_CALLS}

    def both(self, body):
        """The first choice, which is the same streamed and whole."""
        whole = self.server.post(CHATS, body)
        told = chat_choices(self, self.server.stream(CHATS, body))
        self.assertEqual([without_ids(choice) for choice in told], [without_ids(choice) for choice in whole["choices"]])
        return whole["choices"][0]

    def calls_of(self, choice):
        """The calls of an answer that has ended by itself."""
        calls = choice["message"].get("tool_calls", [])
        self.assertEqual(choice["finish_reason"], "tool_calls" if calls else "stop")
        self.check_calls(calls)
        return calls

    def test_choices(self):
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "stop"}}]}}
        for seed in (1, 2, 3):
            body = {**self.body, "seed": seed, "parallel_tool_calls": False}
            calls = self.calls_of(self.both({**body, "tool_choice": "required"}))
            self.assertEqual(len(calls), 1)
            calls = self.calls_of(self.both({**body, "tool_choice": NAMED}))
            self.assertEqual([call["function"]["name"] for call in calls], ["order"])
            calls = self.calls_of(self.both({**body, "tool_choice": allowed}))
            self.assertEqual([call["function"]["name"] for call in calls], ["stop"])

    def test_all_parts_of_an_answer(self):
        """Thoughts, content and a call, in this order; whichever there are."""
        found = {"reasoning_content": 0, "content": 0, "tool_calls": 0}
        for seed in range(8):
            choice = self.both({**self.body, "seed": seed, "parallel_tool_calls": False, "logit_bias": ALL_PARTS})
            self.assertEqual(len(self.calls_of(choice)), 1)
            for name in found:
                found[name] += bool(choice["message"].get(name))
        self.assertEqual(found["tool_calls"], 8)
        self.assertTrue(0 < found["reasoning_content"] and 0 < found["content"], found)

    def test_several_calls(self):
        counts = []
        for seed in range(4):
            body = {**self.body, "seed": seed, "tool_choice": "required", "logit_bias": [*ONLY_CALLS, ["@", 9]]}
            choice = self.both(body)
            calls = choice["message"]["tool_calls"]
            if choice["finish_reason"] == "length":
                calls = [call for call in calls if call["function"]["arguments"].endswith("}")]
            self.check_calls(calls)
            counts.append(len(calls))
        self.assertGreater(max(counts), 1)

    def test_samples(self):
        body = {**self.body, "n": 3, "seed": 5, "tool_choice": "required", "parallel_tool_calls": False}
        whole = self.server.post(CHATS, body)
        ids = []
        for index, choice in enumerate(whole["choices"]):
            ids += [call["id"] for call in self.calls_of(choice)]
            alone = self.server.post(CHATS, {**body, "n": 1, "seed": 5 + index})["choices"][0]
            self.assertEqual(without_ids(alone)["message"], without_ids(choice)["message"])
        self.assertEqual(len(set(ids)), 3)
        told = chat_choices(self, self.server.stream(CHATS, body))
        self.assertEqual([without_ids(choice) for choice in told], [without_ids(choice) for choice in whole["choices"]])

    def test_cut_calls(self):
        """Wherever the limit cuts a call, what was told is the beginning of it, and the next turn takes it."""
        body = {**self.body, "seed": 3, "tool_choice": NAMED}
        whole = self.server.post(CHATS, body)
        text = whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
        tokens = whole["usage"]["completion_tokens"] - 1  # without the end token
        seen = set()
        for limit in range(1, tokens):
            one = {**body, "max_tokens": limit}
            choice = self.both(one) if limit % 4 == 0 else self.server.post(CHATS, one)["choices"][0]
            self.assertEqual(choice["finish_reason"], "length")
            self.assertEqual(choice["message"]["content"], None)
            calls = choice["message"].get("tool_calls", [])
            self.assertLessEqual(len(calls), 1)
            if calls:
                seen.add(calls[0]["function"]["arguments"])
                self.assertTrue(text.startswith(calls[0]["function"]["arguments"]))
        self.assertGreater(len(seen), 5)
        broken = {"id": "abcdefghi", "type": "function", "function": {"name": "order", "arguments": text[:len(text) // 2]}}
        history = [QUESTION, {"role": "assistant", "content": None, "tool_calls": [broken]}, {"role": "tool", "tool_call_id": "abcdefghi", "content": "cut"}]
        self.calls_of(self.server.post(CHATS, {**body, "messages": history, "parallel_tool_calls": False})["choices"][0])

    def test_histories(self):
        """Earlier calls and results reach the template; ids are not used again."""
        arguments = '{"size": "small", "count": 2}'
        earlier = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [
            {"id": "call00001", "type": "function", "function": {"name": "order", "arguments": arguments}}]}
        result = {"role": "tool", "tool_call_id": "call00001"}
        for content in ("done\nsoon", [{"type": "text", "text": "done"}, {"type": "text", "text": "soon"}]):
            messages = [QUESTION, earlier, {**result, "content": content}]
            for tools in ({}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}):
                prompt = self.server.post("/apply-template", {"messages": messages, **tools})["prompt"]
                self.assertIn('\n~hm<>@{"name": "order", "arguments": %s}#<|im_end|>\n<|im_start|>tool\ndone\nsoon<' % arguments, prompt)
                self.assertEqual('"description": "Orders coffee"' in prompt, tools == {"tools": TOOLS})
                self.assertEqual('"required": ["size", "count"]' in prompt, tools == {"tools": TOOLS})
        body = {**self.body, "messages": messages, "tool_choice": NAMED, "seed": 1}
        choice = self.server.post(CHATS, body)["choices"][0]
        self.assertNotEqual(self.calls_of(choice)[0]["id"], "call00001")
        count = self.server.post(CHATS + "/input_tokens", body)["input_tokens"]
        self.assertEqual(self.server.post(CHATS, {**body, "max_tokens": 1})["usage"]["prompt_tokens"], count)

    def test_no_calls(self):
        plain = self.server.post(CHATS, {**self.body, "tools": [], "seed": 1, "max_tokens": 30})["choices"][0]
        none = self.both({**self.body, "tool_choice": "none", "seed": 1, "max_tokens": 30})
        self.assertEqual(none["message"], plain["message"])
        self.assertNotIn("tool_calls", none["message"])

    def test_stops_end_content_only(self):
        body = {**self.body, "seed": 2, "parallel_tool_calls": False, "logit_bias": ALL_PARTS, "tool_choice": "required"}
        free = self.both(body)
        stopped = self.both({**body, "stop": ["{", "\"", "small", "large"]})
        self.assertEqual(without_ids(stopped), without_ids(free))
        for seed in range(8):
            auto = {**body, "tool_choice": "auto", "seed": seed}
            content = self.both(auto)["message"]["content"]
            if content and len(content) > 2:
                # A text that begins one, and is none, stands before the call.
                held = self.both({**auto, "stop": [content[-2:] + "never"]})
                self.assertEqual((held["message"]["content"], len(self.calls_of(held))), (content, 1))
                cut = self.both({**auto, "stop": [content[1]]})
                self.assertEqual((cut["message"]["content"], cut["finish_reason"]), (content[:content.find(content[1])] or None, "stop"))
                break
        else:
            self.fail("no answer had content")

    def test_log_probs(self):
        """Each token has them, whichever part it is in."""
        for bias in (ONLY_CALLS, ALL_PARTS):
            body = {**self.body, "seed": 1, "parallel_tool_calls": False, "logit_bias": bias, "tool_choice": "required",
                    "logprobs": True, "top_logprobs": 1}
            choice = self.both(body)
            tokens = choice["logprobs"]["content"]
            text = b"".join(bytes(token["bytes"]) for token in tokens).decode()
            call = choice["message"]["tool_calls"][0]["function"]
            self.assertIn('@{"name": "%s", "arguments": %s}#' % (call["name"], call["arguments"]), text)
            usage = self.server.post(CHATS, body)["usage"]
            self.assertEqual(len(tokens), usage["completion_tokens"] - 1)

    def test_props(self):
        self.assertEqual(self.server.ask("GET", "/props")[2]["tool_format"], "of the template")


class ManyClients(ToolCase):
    parallel = 32

    def test_constrained_answers(self):
        """GRM-17: strict calls and JSON, streamed to 32 clients at once, are what each of them gets alone."""
        body = {"messages": [QUESTION], "max_tokens": 300, "temperature": 1, "logit_bias": ONLY_CALLS}
        strict = [{"type": "function", "function": {**tool["function"], "strict": True}} for tool in TOOLS[:1]]
        calls = {**body, "tools": strict, "tool_choice": "required", "parallel_tool_calls": False}
        texts = {**body, "response_format": {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER, "strict": True}}}
        bodies = [{**(calls if seed % 2 else texts), "seed": seed} for seed in range(32)]
        answer = lambda body: without_ids(chat_choices(self, self.server.stream(CHATS, body))[0])
        with concurrent.futures.ThreadPoolExecutor(32) as threads:
            together = list(threads.map(answer, bodies))
        self.assertEqual(together, [answer(body) for body in bodies])
        for seed, choice in enumerate(together):
            self.assertEqual(choice["finish_reason"], "tool_calls" if seed % 2 else "stop")
            told = choice["message"]["tool_calls"][0]["function"]["arguments"] if seed % 2 else choice["message"]["content"]
            self.check_arguments("order", json.loads(told))


class Fields(ToolCase):
    body = {"messages": [QUESTION], "max_tokens": 1}

    def test_wrong_fields(self):
        call = {"id": "a", "type": "function", "function": {"name": "order", "arguments": "{}"}}
        deep = {"type": "object"}
        for _ in range(70):
            deep = {"type": "object", "properties": {"a": deep}}
        rows = [("tools", 1, "tools"), ("tools", {}, "tools"), ("tools", [1], "tools[0]"), ("tools", [{}], "tools[0].function"),
                ("tools", [{"type": 1}], "tools[0].type"), ("tools", [{"type": "custom", "custom": {"name": "a"}}], "tools[0].type"),
                ("tools", [{"type": "function", "function": 1}], "tools[0].function"),
                ("tools", [TOOLS[0], {"type": "function", "function": {}}], "tools[1].function.name"),
                ("tools", [{"type": "function", "function": {"name": "a b"}}], "tools[0].function.name"),
                ("tools", [{"type": "function", "function": {"name": "a", "parameters": 1}}], "tools[0].function.parameters"),
                ("tools", [{"type": "function", "function": {"name": "a", "description": 1}}], "tools[0].function.description"),
                ("tools", [{"type": "function", "function": {"name": "a", "strict": 1}}], "tools[0].function.strict"),
                ("tools", [*TOOLS, TOOLS[0]], "tools[2].function.name")]
        for name, value, param in rows:
            self.expect(CHATS, {**self.body, name: value}, param)
        rows = [(1, "tool_choice"), ("order", "tool_choice"), ([], "tool_choice"), ({}, "tool_choice.type"), ({"type": "x"}, "tool_choice.type"),
                ({"type": "function"}, "tool_choice.function"), ({"type": "function", "function": {}}, "tool_choice.function.name"),
                ({"type": "function", "function": {"name": "x"}}, "tool_choice.function.name"),
                ({"type": "allowed_tools"}, "tool_choice.allowed_tools"), ({"type": "allowed_tools", "allowed_tools": {}}, "tool_choice.allowed_tools.mode"),
                ({"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}, "tool_choice.allowed_tools.tools"),
                ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "tool_choice.allowed_tools.tools"),
                ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"function": {"name": "x"}}]}},
                 "tool_choice.allowed_tools.tools[0].function.name")]
        for value, param in rows:
            self.expect(CHATS, {**self.body, "tools": TOOLS, "tool_choice": value}, param)
        for value in (1, "true", []):
            self.expect(CHATS, {**self.body, "tools": TOOLS, "parallel_tool_calls": value}, "parallel_tool_calls")
        for value in ("required", NAMED):
            found, _, data = self.server.ask("POST", CHATS, {**self.body, "tool_choice": value})
            self.assertEqual((found, data["error"]["param"][:11]), (400, "tool_choice"))
        self.expect(CHATS, {**self.body, "functions": [{"name": "a"}]}, "functions", "tools and tool_choice")
        place = "messages[1].tool_calls"
        rows = [({"tool_calls": 1}, place), ({"tool_calls": [1]}, place + "[0]"), ({"tool_calls": [{}]}, place + "[0].function"),
                ({"tool_calls": [{**call, "type": "custom"}]}, place + "[0].type"), ({"tool_calls": [{**call, "id": 1}]}, place + "[0].id"),
                ({"tool_calls": [call, {**call, "function": {}}]}, place + "[1].function.name"),
                ({"tool_calls": [{**call, "function": {"name": "a", "arguments": 1}}]}, place + "[0].function.arguments"),
                ({"content": 1, "tool_calls": [call]}, "messages[1].content"), ({"content": None}, "messages[1].content"),
                ({"content": "a", "function_call": {"name": "a"}}, "messages[1].function_call"),
                ({"role": "user", "content": "a", "tool_calls": [call]}, place), ({"role": "tool"}, "messages[1].content"),
                ({"role": "tool", "content": "a", "tool_call_id": 1}, "messages[1].tool_call_id"),
                ({"role": "tool", "content": [{"type": "image_url"}]}, "messages[1].content[0].type"), ({"role": "function", "content": "a"}, "messages[1].role")]
        for members, param in rows:
            self.expect(CHATS, {**self.body, "tools": TOOLS, "messages": [QUESTION, {"role": "assistant", **members}]}, param)
        self.server.post(CHATS, {**self.body, "tools": TOOLS, "tool_choice": None, "parallel_tool_calls": None,
                                 "messages": [QUESTION, {"role": "assistant", "content": "a", "tool_calls": []}, QUESTION]})

    def test_grammars_beside_tools(self):
        for name, value, param in (("grammar", 'root ::= "a"', "grammar"), ("response_format", {"type": "json_object"}, "response_format"),
                                   ("json_schema", {"const": 1}, "json_schema")):
            self.expect(CHATS, {**self.body, "tools": TOOLS, name: value}, param, "tools")
            self.server.post(CHATS, {**self.body, "tools": TOOLS, "tool_choice": "none", name: value})
        self.server.post(CHATS, {**self.body, "tools": TOOLS, "response_format": {"type": "text"}})

    def test_strict_schemas(self):
        """One that cannot be enforced is refused with its pointer; without `strict` any object is taken."""
        schema = {"type": "object", "properties": {"a": {"type": "integer", "minimun": 3}}}
        for strict, status in ((True, 400), (False, 200), (None, 200)):
            tools = [TOOLS[0], {"type": "function", "function": {"name": "x", "parameters": schema, "strict": strict}}]
            found, _, data = self.server.ask("POST", CHATS, {**self.body, "tools": tools})
            self.assertEqual(found, status, data)
        data = self.server.post(CHATS, {**self.body, "tools": [TOOLS[0], {**tools[1], "function": {**tools[1]["function"], "strict": True}}]}, 400)
        self.check_error(data, param="tools[1].function.parameters")
        self.assertIn("#/properties/a/minimun", data["error"]["message"])

    def test_objects_with_many_members(self):
        """They are refused at once, rather than read for minutes."""
        many = {"p%d" % i: {"type": "string"} for i in range(60000)}
        tool = {"type": "function", "function": {"name": "a", "parameters": {"type": "object", "properties": many}}}
        begin = time.monotonic()
        found, _, data = self.server.ask("POST", CHATS, json.dumps({**self.body, "tools": [tool]}))
        self.assertEqual(found, 400, data)
        self.assertIn("members", data["error"]["message"])
        self.assertLess(time.monotonic() - begin, 60)


class OwnForm(ToolCase):
    """A template that knows no tools gets a form of kvant's own."""
    template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"

    def test_calls(self):
        self.assertEqual(self.server.ask("GET", "/props")[2]["tool_format"], "generic")
        body = {"messages": [QUESTION], "tools": TOOLS, "max_tokens": 300, "temperature": 1, "tool_choice": "required", "parallel_tool_calls": False,
                "logit_bias": [["\n", -4]]}
        for seed in (1, 2):
            whole = self.server.post(CHATS, {**body, "seed": seed})["choices"][0]
            told = chat_choices(self, self.server.stream(CHATS, {**body, "seed": seed}))[0]
            self.assertEqual(without_ids(told), without_ids(whole))
            self.assertEqual(whole["finish_reason"], "tool_calls")
            self.check_calls(whole["message"]["tool_calls"])
        answer = {"role": "assistant", "content": None, "tool_calls": whole["message"]["tool_calls"]}
        result = {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": "done"}
        prompt = self.server.post("/apply-template", {"messages": [QUESTION, answer, result], "tools": TOOLS})["prompt"]
        self.assertIn("<tool_call>\n", prompt)
        self.assertIn("<tool_response>\ndone\n</tool_response>", prompt)
        self.assertIn(json.dumps(ORDER, separators=(",", ":")), prompt)


class CheckedIds(ToolCase):
    """A template that takes ids of nine letters and digits only, as those of Mistral do."""
    template = MARKS.replace("{%- for c in m.tool_calls or [] %}", """{%- for c in m.tool_calls or [] %}
{%- if c.id is not string or c.id | length != 9 %}{{ raise_exception('an id of nine letters') }}{% endif %}""")

    def test_ids_come_back(self):
        body = {"messages": [QUESTION], "tools": TOOLS, "max_tokens": 300, "temperature": 1, "seed": 4, "tool_choice": NAMED, "logit_bias": ONLY_CALLS}
        ids = set()
        for turn in range(3):
            message = self.server.post(CHATS, body)["choices"][0]["message"]
            ids.add(message["tool_calls"][0]["id"])
            self.assertEqual(len(ids), turn + 1)
            result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "done"}
            body["messages"] = [*body["messages"], message, result]
        self.expect(CHATS, {**body, "messages": [QUESTION, {"role": "assistant", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "stop", "arguments": "{}"}}]}]}, "messages", "nine letters")
