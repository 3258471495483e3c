"""Bodies and fields: each is taken, or refused with 400 and its name; nothing is a fault of the server."""
import contextlib
import http.client
import json
import random
import time
import unittest

from common import SECONDS, TEXT_MODEL, Server, ServerCase

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
TEXT = {"prompt": "Hi", "max_tokens": 1}
CHATS = "/v1/chat/completions"
TEXTS = "/v1/completions"


class Fields(ServerCase):
    def expect(self, path, body, status, param=None):
        found, _, data = self.server.ask("POST", path, body)
        self.assertEqual(found, status, (path, body if len(str(body)) < 300 else "...", data))
        if status != 200:
            self.check_error(data)
        if param is not None:
            self.assertEqual(data["error"]["param"], param, data)
        return data

    def test_fields_of_lazy_grammars(self):
        """A lazy grammar needs triggers, of any of llama-server's types."""
        grammar = {"grammar": 'root ::= "JULIET" [0-9]{3}', "grammar_lazy": True}
        word = {"type": 1, "value": "JULIET"}
        for path, base in ((CHATS, CHAT), (TEXTS, TEXT)):
            for wrong, param in (({}, "grammar_triggers"), ({"grammar_triggers": []}, "grammar_triggers"), ({"grammar_triggers": [word], "grammar_lazy": False}, "grammar_triggers"),
                                 ({"grammar_triggers": [word], "grammar": ""}, "grammar_lazy"), ({"grammar_lazy": "yes"}, "grammar_lazy"),
                                 ({"grammar_triggers": [{"type": 1, "value": "x"}]}, "grammar"), ({"grammar_triggers": [{"type": 2, "value": "("}]}, "grammar")):
                self.expect(path, {**base, **grammar, **wrong}, 400, param)
            for wrong in ("JULIET", [1], [{}], [{"type": 4, "value": "a"}], [{"type": 1}], [{"type": 1, "value": 5}], [{"type": 0, "value": "a"}],
                          [{"type": 0, "token": -1}], [{"type": 0, "token": 2 ** 40}], [word] * 101):
                self.expect(path, {**base, **grammar, "grammar_triggers": wrong}, 400, "grammar_triggers")
            self.expect(path, {**base, **grammar, "grammar_triggers": [{"type": 0, "token": 10 ** 8}]}, 400, "grammar")

    def test_types_and_limits(self):
        """For each field: absent, null, values that are right, and values of a wrong type or beyond the limits."""
        whole = ["1", 1.5, True, [], {}, 2 ** 63, -(2 ** 63), 1e308]
        number = ["1", True, [], {}]
        flag = ["true", 1, [], {}]
        rows = [  # path or paths, field, right values, wrong ones
            (None, "max_tokens", [-1, 0, 1], [*whole, -2, 2 ** 31]),
            (None, "n", [1, 2], [*whole, 0, -1, 129]),
            (None, "temperature", [0, 0.5, 2], number), (None, "top_p", [0, 0.5, 1], [*number, -0.1, 1.1]),
            (None, "top_k", [0, 1, 40], whole), (None, "min_p", [0, 1], [*number, -0.1, 1.1]),
            (None, "presence_penalty", [-2, 2], number), (None, "frequency_penalty", [-2, 2], number),
            (None, "repeat_penalty", [1, 1.1], [*number, 0, -1]), (None, "seed", [-1, 0, 2 ** 62], ["1", 1.5, True, [], -2, 2 ** 63]),
            (None, "stop", ["a", "", [], ["a", "b"], ["a"] * 128], [1, True, {}, [""], [1], ["a"] * 129, [["a"]]]),
            (None, "stream_options", [{}, {"include_usage": True}, {"continuous_usage_stats": False}], [1, "a", []]),
            (None, "ignore_eos", [True, False], flag), (None, "cache_prompt", [True, False], flag),
            (None, "logit_bias", [{}, {"1": 5}, {"1": -100.0}, [[1, False]], [["a", 1]]],
             [1, "a", {"-1": 1}, {"999999": 1}, {"1.5": 1}, {"1": "a"}, [[1]], [[-1, 1]], [[2 ** 31, 1]], [[1, True]], [[2 ** 63, 1]]]),
            (None, "response_format", [{"type": "text"}, {"type": "json_object"}, {"type": "json_object", "schema": {"type": "null"}},
                                       {"type": "json_schema", "schema": {"const": 1}}, {"type": "json_schema", "json_schema": {"schema": {"enum": [1, 2]}}}],
             [1, "text", {}, {"type": "x"}, {"type": 1}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {}},
              {"type": "json_schema", "json_schema": 1}, {"type": "json_object", "schema": {"minimun": 1}},
              {"type": "json_schema", "json_schema": {"schema": {"$dynamicRef": "#a"}}}, {"type": "json_schema", "schema": []}]),
            (None, "grammar", ["", 'root ::= "a"'], [1, {}, 'root ::= "', "x ::= y"]),
            (None, "samplers", [[], ["top_k"], "kt"], [1, {}, ["none such"], [1]]),
            (None, "dry_sequence_breakers", [[], ["a", "\n"]], [1, "a", [1], [""], ["a"] * 129]), (None, "min_keep", [0, 3], [*whole, -1]),
            (None, "mirostat_tau", [1, 5.5], number), (None, "dynatemp_exponent", [1, 0.5], number), (None, "typical_p", [0.5, 1], [*number, 2]),
            (CHATS, "logprobs", [True, False], ["true", 1]), (TEXTS, "logprobs", [0, 5, 20], [-1, 21, True, "1", 1.5]),
            (None, "post_sampling_probs", [False], [True, *flag]), (TEXTS, "echo", [True, False], flag), (TEXTS, "best_of", [1, 3], [0, 129, "1"]),
            (CHATS, "chat_template_kwargs", [{}, {"enable_thinking": False}], [1, "a", []]),
            (CHATS, "reasoning_effort", ["none", "low", "high"], [1, "huge"]),
            (None, "tools", [[]], [[{}], {}, 1, "a"]), (None, "tool_choice", ["none", "auto"], ["required", {}, 1]),
            (CHATS, "parallel_tool_calls", [True, False], flag), (None, "function_call", ["none", "auto"], ["a", {"name": "a"}]),
            (None, "model", ["a", ""], [1, []]), (None, "audio", [], [{"voice": "a"}]), (None, "functions", [[]], [[{}]]),
            (None, "modalities", [["text"]], [["audio"], ["text", "audio"], 1]), (None, "web_search_options", [], [{}]),
            (None, "json_schema", [{"type": "boolean"}, {"enum": ["a"]}], [1, "{}", [], False, {"type": "any"}]), (None, "lora", [[]], [[{"id": 0, "scale": 1}]]),
            (TEXTS, "suffix", [""], [1, []]), (None, "id_slot", [-1, 0, 7], [*whole, -2, 8]),
        ]
        for path, field, right, wrong in rows:
            for one in (path,) if path else (CHATS, TEXTS):
                base = CHAT if one == CHATS else TEXT
                for value in [None, *right]:
                    self.expect(one, {**base, field: value}, 200)
                for value in wrong:
                    data = self.expect(one, {**base, field: value}, 400)
                    self.assertTrue(str(data["error"]["param"]).startswith(field), (field, value, data))

    def test_fields_without_effect(self):
        body = {**CHAT, "temperature": 0, "user": "a", "metadata": {"a": "b"}, "store": True, "service_tier": "auto",
                "prompt_cache_key": "k", "safety_identifier": "s", "verbosity": "low", "parallel_tool_calls": False}
        before = self.server.metrics()["kvant_unknown_fields_total"]
        self.assertEqual(self.server.post(CHATS, body)["choices"][0]["message"],
                         self.server.post(CHATS, {**CHAT, "temperature": 0})["choices"][0]["message"])
        self.assertEqual(self.server.metrics()["kvant_unknown_fields_total"], before)
        self.server.post(CHATS, {**CHAT, "nobody_knows": 1, "neither": None})
        self.assertEqual(self.server.metrics()["kvant_unknown_fields_total"], before + 2)

    def test_fields_that_need_others(self):
        self.expect(CHATS, {**CHAT, "top_logprobs": 2}, 400, "top_logprobs")
        self.expect(CHATS, {**CHAT, "top_logprobs": 2, "logprobs": False}, 400, "top_logprobs")
        self.expect(TEXTS, {**TEXT, "best_of": 1, "n": 2}, 400, "best_of")
        self.expect(TEXTS, {**TEXT, "best_of": 2, "stream": True}, 400, "best_of")
        self.expect(CHATS, {**CHAT, "response_format": {"type": "json_schema"}}, 400, "response_format.json_schema.schema")
        self.expect(CHATS, {**CHAT, "grammar": 'root ::= "a"', "response_format": {"type": "json_object"}}, 400,
                    "response_format")

    def test_messages(self):
        def chat(*messages):
            return {"messages": list(messages), "max_tokens": 1}
        user = {"role": "user", "content": "Hi"}
        for good in (chat({"role": "system", "content": "S"}, user), chat({"role": "developer", "content": "S"}, user),
                     chat({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
                     chat(user, {"role": "assistant", "content": "Hello"}, user),
                     chat(user, {"role": "assistant", "content": "Hel"})):
            self.expect(CHATS, good, 200)
        begun = chat(user, {"role": "assistant", "content": "Hel"})
        for further in ({"continue_final_message": True}, {"continue_final_message": True, "add_generation_prompt": False}, {"add_generation_prompt": True}):
            self.expect(CHATS, {**begun, **further}, 200)
        self.expect(CHATS, {**begun, "continue_final_message": True, "add_generation_prompt": True}, 400, "continue_final_message")
        self.expect(CHATS, {**begun, "continue_final_message": 1}, 400, "continue_final_message")
        for bad, param in ((chat(), "messages"), ({"messages": {}}, "messages"), ({}, "messages"), (chat(1), "messages[0]"),
                           (chat({"role": "robot", "content": "a"}), "messages[0].role"), (chat({"content": "a"}), "messages[0].role"),
                           (chat(user, {"role": "user"}), "messages[1].content"), (chat({"role": "user", "content": 1}), "messages[0].content"),
                           (chat({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}), "messages[0].content[0].type"),
                           (chat({"role": "user", "content": [{"type": "text"}]}), "messages[0].content[0].text"),
                           (chat(user, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}), "messages")):
            self.expect(CHATS, bad, 400, param)

    def test_prompts(self):
        for good in ("a", ["a", "b"], [1, 2], [[1, 2], [3]], ["a", [1]]):
            self.expect(TEXTS, {"prompt": good, "max_tokens": 1}, 200)
        for bad in (None, 1, {}, [], [[]], [1, "a"], [-1], [2 ** 31], [2 ** 63], [1.5], ["1", 2], [[1, -1]], [[1, "1"]], [True]):
            self.expect(TEXTS, {"prompt": bad, "max_tokens": 1}, 400, "prompt")

    def test_ids(self):
        for bad in (-1, 10 ** 6, 2 ** 31, 2 ** 63, 1.5, "1", True, None):
            self.expect("/detokenize", {"tokens": [bad]}, 400, "tokens")

    def test_bodies(self):
        """Texts that are no JSON, or too much of it."""
        message = '{"messages":[{"role":"user","content":"%s"}],"max_tokens":1}'
        start = time.monotonic()
        for bad in ("", "{", "[]", "1", "null", '{"prompt":"a"', '{"prompt":"a",}', "{'prompt':'a'}", '{"prompt":"a"} x',
                    '{"prompt":"a","prompt":"b"}', '{"prompt":NaN}', '{"prompt":"a","temperature":1e999}',
                    '{"prompt":"a","temperature":Infinity}', '{"prompt":"\\ud800"}', '{"prompt":"a\x00"}', b'{"prompt":"\xff"}',
                    b'{"prompt":"\xc0\xaf"}', b'{"prompt":"\xed\xa0\x80"}', "[" * 100000, '{"prompt":' + "[" * 100000,
                    '{"a":' * 100000, message % "\\ud800"):
            self.expect(TEXTS, bad, 400)
        self.assertLess(time.monotonic() - start, 60)
        self.expect(TEXTS, json.dumps({"prompt": [1] * 10 ** 6, "max_tokens": 1}), 400, "prompt")
        self.expect(TEXTS, json.dumps({"prompt": ["a"] * 2049, "max_tokens": 1}), 400, "prompt")
        self.assertEqual(self.server.ask("POST", TEXTS, b" " * (16 << 20) + b"{}")[0], 413)
        self.expect(TEXTS, '{"prompt":"\\u00e4\\ud83d\\ude00","max_tokens":1}', 200)

    def test_large_bodies_take_no_long(self):
        """A body whose members must keep their order is refused before its size makes that slow."""
        many = {"name%d" % i: 1 for i in range(20000)}
        data = self.server.post(CHATS, {**CHAT, "json_schema": {"type": "object"}, "metadata": many}, 400)
        self.check_error(data)
        self.assertIn("too many members", data["error"]["message"])

    def test_bodies_of_many_objects(self):
        """They are refused before they become many times their size; what strings say does not count."""
        message = {"role": "user", "content": "a:\\\":" * 4}
        before = self.server.peak()
        self.server.forget_peak()
        data = self.server.post(CHATS, {"messages": [message] * 140000, "max_tokens": 1}, 400)
        self.check_error(data)
        self.assertIn("262144 members", data["error"]["message"])
        if self.server.has_own_memory():
            self.assertLess(self.server.peak(), before + (64 << 20))
        self.expect(TEXTS, {"prompt": "\":\\" * 300000, "max_tokens": 1}, 400, "prompt")

    def test_contexts(self):
        """A prompt that fills the context is served, one token more is refused with both numbers."""
        size = self.server.ask("GET", "/props")[2]["default_generation_settings"]["n_ctx"]
        data = self.server.post(TEXTS, {"prompt": [5] * size, "max_tokens": 4, "ignore_eos": True})
        self.assertEqual(data["usage"], {**data["usage"], "prompt_tokens": size, "completion_tokens": 1})
        self.assertEqual(data["choices"][0]["finish_reason"], "length")
        data = self.server.post(TEXTS, {"prompt": [5] * (size - 1), "max_tokens": 4, "ignore_eos": True})
        self.assertEqual(data["usage"]["completion_tokens"], 2)
        error = self.expect(TEXTS, {"prompt": [5] * (size + 1), "max_tokens": 4}, 400, "prompt")["error"]
        self.assertEqual((error["code"], error["type"]), ("context_length_exceeded", "exceed_context_size_error"))
        self.assertEqual((error["n_prompt_tokens"], error["n_ctx"]), (size + 1, size))
        self.assertIn("exceeds the available context size", error["message"])
        self.assertIn("maximum context length is %d tokens" % size, error["message"])
        for limit in (0, 1):
            data = self.server.post(TEXTS, {"prompt": "a", "max_tokens": limit, "ignore_eos": True})
            self.assertEqual((data["choices"][0]["text"] != "", data["usage"]["completion_tokens"]), (limit > 0, limit))
        # An empty prompt is BOS, and refused by a model that has none.
        self.assertIn("no BOS", self.expect(TEXTS, {"prompt": "", "max_tokens": 1}, 400, "prompt")["error"]["message"])
        with Server(TEXT_MODEL) as other:
            data = other.post(TEXTS, {"prompt": "", "max_tokens": 1, "ignore_eos": True})
            self.assertEqual((data["usage"]["prompt_tokens"], data["usage"]["completion_tokens"]), (1, 1))

    def test_random_fields(self):
        """Random values in random places: 200 or 400, and the server goes on."""
        chance = random.Random(7)
        values = [None, 0, -1, 1, 2 ** 63, 1.5, "", "a", "\u0000", [], {}, [1], ["a"], [[1]], {"a": 1}, True, {"type": "text"}]
        names = ["prompt", "messages", "n", "max_tokens", "stop", "logprobs", "top_logprobs", "stream_options", "logit_bias",
                 "response_format", "temperature", "seed", "tools", "grammar", "echo", "samplers", "chat_template_kwargs"]
        for _ in range(300):
            path = chance.choice([CHATS, TEXTS, "/tokenize", "/detokenize", "/apply-template"])
            body = {**(CHAT if path == CHATS else TEXT), "max_tokens": 1}
            for name in chance.sample(names, 3):
                body[name] = chance.choice(values)
            if body["max_tokens"] not in (0, 1):
                body["max_tokens"] = 1
            found, _, data = self.server.ask("POST", path, body)
            self.assertIn(found, (200, 400), (path, body, data))


class LazyGrammars(ServerCase):
    model = TEXT_MODEL

    def test_texts_are_free_up_to_a_trigger(self):
        word = {"type": 1, "value": "JULIET"}
        body = {"prompt": "ROMEO:", "max_tokens": 300, "temperature": 1, "grammar": 'root ::= "JULIET" [0-9]{3}', "grammar_lazy": True}
        for triggers in ([word], [{"type": 2, "value": "J[A-Z]{5}"}], [{"type": 3, "value": "[\\s\\S]*?(JULIET)"}], [{"type": 0, "token": 7}, word]):
            found = 0
            for seed in range(4):
                text = self.server.post(TEXTS, {**body, "seed": seed, "grammar_triggers": triggers})["choices"][0]["text"]
                if "JULIET" in text:
                    found += 1
                    self.assertRegex(text, "JULIET[0-9]{3}$")
            self.assertGreater(found, 0, triggers)


class RoundTrips(unittest.TestCase):
    def test_round_trips(self):
        """Of 10,000 random strings, by the tokenizers of several models."""
        chance = random.Random(11)
        letters = [chr(chance.randrange(32, 0x3000)) for _ in range(200)] + list("abc  \n\t<|>\r\u00a0\u200b\u0301") + ["\U0001f600", "</s>", "<|im_end|>", "'ll", "123"]
        for model, count in (("dialogue", 4000), ("shakespeare", 2000), ("qwen35-tiny", 2000), ("lfm2-tiny", 2000)):
            with Server(model) as server, contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)) as connection:
                def ask(path, body):
                    connection.request("POST", path, json.dumps(body))
                    answer = connection.getresponse()
                    data = json.loads(answer.read())
                    self.assertEqual(answer.status, 200, data)
                    return data
                for _ in range(count):
                    text = "".join(chance.choice(letters) for _ in range(chance.randrange(40)))
                    tokens = ask("/tokenize", {"content": text, "parse_special": False})["tokens"]
                    self.assertEqual(ask("/detokenize", {"tokens": tokens})["content"], text, model)


class Tokens(ServerCase):
    def test_forms(self):
        one = self.server.post("/tokenize", {"content": "Hello"})
        two = self.server.post("/v1/tokenize", {"prompt": "Hello", "add_special_tokens": False})
        self.assertEqual(one, two)
        self.assertEqual(one["count"], len(one["tokens"]))
        pieces = self.server.post("/tokenize", {"content": "H\u00e4llo", "with_pieces": True})["tokens"]
        joined = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
        self.assertEqual(joined.decode(), "H\u00e4llo")
        self.assertEqual(self.server.post("/detokenize", {"tokens": one["tokens"]}), {"content": "Hello", "prompt": "Hello"})

    def test_templates(self):
        """What apply-template shows is the prompt that chats use, and counts agree."""
        text = self.server.post("/apply-template", {"messages": CHAT["messages"]})["prompt"]
        self.assertIn("Hi", text)
        count = self.server.post(CHATS + "/input_tokens", CHAT)
        self.assertEqual(count["object"], "response.input_tokens")
        self.assertEqual(self.server.post(CHATS, CHAT)["usage"]["prompt_tokens"], count["input_tokens"])
        # The same ids: a completion behind the shown text has the same log-probabilities.
        shown = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
        chat = self.server.post(CHATS, {**CHAT, **shown, "logprobs": True, "top_logprobs": 5, "cache_prompt": False})
        prompt = self.server.post("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]
        self.assertEqual(len(prompt), count["input_tokens"])
        other = self.server.post("/completion", {**shown, "prompt": prompt, "n_predict": 8, "n_probs": 5, "cache_prompt": False})
        self.assertEqual([token["logprob"] for token in chat["choices"][0]["logprobs"]["content"]],
                         [token["logprob"] for token in other["completion_probabilities"]])

    def test_control_tokens_in_messages_stay_text(self):
        names = self.server.ask("GET", "/tokenizer_info")[2]
        for name in {names["eos_token"], names["bos_token"], "<|im_end|>"} - {None}:
            plain = self.server.post(CHATS + "/input_tokens", {"messages": [{"role": "user", "content": "a"}]})["input_tokens"]
            count = self.server.post(CHATS + "/input_tokens", {"messages": [{"role": "user", "content": "a" + name}]})["input_tokens"]
            apart = self.server.post("/tokenize", {"content": name, "parse_special": False})["count"]
            if apart > 1:
                self.assertGreater(count - plain, 1, name)

    def test_what_there_is(self):
        models = self.server.ask("GET", "/v1/models")[2]
        self.assertEqual((models["object"], len(models["data"])), ("list", 1))
        entry = models["data"][0]
        self.assertEqual(entry["id"], "dialogue")
        self.assertEqual(self.server.ask("GET", "/v1/models/dialogue")[2], entry)
        self.assertEqual(entry["architecture"]["input_modalities"], ["text"])
        props = self.server.ask("GET", "/props")[2]
        self.assertEqual(props["default_generation_settings"]["n_ctx"], entry["max_model_len"])
        self.assertEqual(len(self.server.ask("GET", "/slots")[2]), props["total_slots"])
        self.assertEqual(self.server.ask("GET", "/v1/health")[2], {"status": "ok"})
        text = self.server.ask("GET", "/metrics")[2].decode()
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) [a-z_:]+ .+|[a-z_:]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? -?[0-9.e+-]+)$')


class Names(ServerCase):
    options = ("--alias", "org/name:q4 \u00e4", "--strict-model")

    def test_names(self):
        name = "org/name:q4 \u00e4"
        self.assertEqual(self.server.ask("GET", "/v1/models/org%2Fname%3Aq4%20%C3%A4")[2]["id"], name)
        self.assertEqual(self.server.ask("GET", "/v1/models/org/name:q4%20%C3%A4")[2]["id"], name)
        self.assertEqual(self.server.post(TEXTS, {**TEXT, "model": name})["model"], name)
        data = self.server.post(TEXTS, {**TEXT, "model": "other"}, 404)
        self.check_error(data, param="model", code="model_not_found")


class OtherNames(ServerCase):
    def test_any_name_is_answered_with_the_own_one(self):
        for name in ("gpt-4o", "", None, "\u00e4 / :"):
            self.assertEqual(self.server.post(TEXTS, {**TEXT, "model": name})["model"], "dialogue")
