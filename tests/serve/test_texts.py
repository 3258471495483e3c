"""Texts: those of `kvant run`, streamed and whole, with stops, log-probabilities, samples and company."""
import concurrent.futures
import json
import math

from common import TEXT_MODEL, ServerCase, run_kvant

CHATS = "/v1/chat/completions"
TEXTS = "/v1/completions"


def check_stream(case, events, is_chat):
    """The texts of a stream by index, after strict checks of its chunks."""
    texts, reasons, begun = {}, {}, set()
    ids = {event["id"] for event in events}
    case.assertEqual(len(ids), 1)
    for event in events:
        case.assertEqual(event["object"], "chat.completion.chunk" if is_chat else "text_completion")
        case.assertLessEqual({"id", "object", "created", "model", "system_fingerprint", "choices"}, set(event))
        if not event["choices"]:
            case.assertIs(event, events[-1])
            case.assertEqual(set(reasons), set(texts))
            continue
        case.assertEqual(len(event["choices"]), 1)
        choice = event["choices"][0]
        index = choice["index"]
        case.assertNotIn(index, reasons, "a chunk behind the last one")
        if is_chat:
            delta = choice["delta"]
            case.assertEqual("role" in delta, index not in begun)
            begun.add(index)
            piece = delta.get("content") or ""
        else:
            piece = choice["text"]
        texts[index] = texts.get(index, "") + piece
        if choice["finish_reason"] is not None:
            reasons[index] = choice["finish_reason"]
            case.assertEqual(piece, "")
    case.assertEqual(set(reasons), set(texts))
    return texts, reasons


class Texts(ServerCase):
    model = TEXT_MODEL

    def test_texts_are_those_of_run(self):
        for seed, temperature in ((1, 0), (2, 0.8), (3, 1.2)):
            _, out, _ = run_kvant("run", TEXT_MODEL, "-p", "ROMEO:", "-n", "24", "--seed", str(seed), "--temp", str(temperature),
                                  "--json", "-q")
            body = {"prompt": "ROMEO:", "max_tokens": 24, "seed": seed, "temperature": temperature}
            whole = self.server.post(TEXTS, body)
            self.assertEqual(whole["choices"][0]["text"], json.loads(out)["text"])
            events = self.server.stream(TEXTS, {**body, "stream_options": {"include_usage": True}})
            texts, reasons = check_stream(self, events, False)
            self.assertEqual(texts[0], whole["choices"][0]["text"])
            self.assertEqual(reasons[0], whole["choices"][0]["finish_reason"])
            usage = {name: events[-1]["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
            self.assertEqual(usage, {name: whole["usage"][name] for name in usage})
            self.assertEqual(usage["prompt_tokens"] + usage["completion_tokens"], usage["total_tokens"])
            self.assertLess(whole["usage"]["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"])

    def test_one_chunk_for_a_token(self):
        body = {"prompt": "JULIET:", "max_tokens": 20, "temperature": 0, "ignore_eos": True}
        events = self.server.stream(TEXTS, body)
        self.assertEqual(sum(1 for event in events if event["choices"][0]["text"]), 20)
        self.assertFalse([event for event in events if "usage" in event])
        events = self.server.stream(TEXTS, {**body, "stream_options": {"continuous_usage_stats": True}})
        counts = [event["usage"]["completion_tokens"] for event in events if "usage" in event]
        self.assertEqual(counts, list(range(1, 21)))

    def test_stops(self):
        free = self.server.post(TEXTS, {"prompt": "ROMEO:", "max_tokens": 40, "temperature": 0, "ignore_eos": True})["choices"][0]
        text = free["text"]
        self.assertGreater(len(text), 40)
        self.assertEqual(free["finish_reason"], "length")
        for stop in (text[10:12], text[7:30], text[:3], text[-4:], [text[20:24], text[5:9]], [text[5:9], text[5:12]],
                     ["none of this", *("%d!" % i for i in range(98)), text[13:16]]):
            stops = [stop] if isinstance(stop, str) else stop
            expected = text[:min(place for place in (text.find(one) for one in stops) if place >= 0)]
            body = {"prompt": "ROMEO:", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "stop": stop}
            choice = self.server.post(TEXTS, body)["choices"][0]
            self.assertEqual((choice["text"], choice["finish_reason"]), (expected, "stop"), stop)
            texts, reasons = check_stream(self, self.server.stream(TEXTS, body), False)
            self.assertEqual((texts[0], reasons[0]), (expected, "stop"))
        # What might have become a stop text is shown where the limit ends the text.
        body = {"prompt": "ROMEO:", "max_tokens": 40, "temperature": 0, "ignore_eos": True, "stop": text[-2:] + "\x01"}
        self.assertEqual(self.server.post(TEXTS, body)["choices"][0]["text"], text)

    def test_samples(self):
        body = {"prompt": "KING:", "max_tokens": 12, "temperature": 1, "seed": 5}
        alone = [self.server.post(TEXTS, {**body, "seed": 5 + i})["choices"][0]["text"] for i in range(4)]
        together = self.server.post(TEXTS, {**body, "n": 4})
        self.assertEqual([choice["text"] for choice in together["choices"]], alone)
        self.assertEqual([choice["index"] for choice in together["choices"]], [0, 1, 2, 3])
        self.assertEqual([choice["seed"] for choice in together["choices"]], [5, 6, 7, 8])
        texts, _ = check_stream(self, self.server.stream(TEXTS, {**body, "n": 4}), False)
        self.assertEqual([texts[i] for i in range(4)], alone)
        lists = self.server.post(TEXTS, {**body, "prompt": ["KING:", "QUEEN:"], "n": 2})
        queen = self.server.post(TEXTS, {**body, "prompt": "QUEEN:", "n": 2})
        self.assertEqual([choice["text"] for choice in lists["choices"]], alone[:2] + [choice["text"] for choice in queen["choices"]])
        many = self.server.post(TEXTS, {**body, "n": 20})
        self.assertEqual([choice["text"] for choice in many["choices"][:4]], alone)
        # A seed that nobody gave is told, and gives the text again.
        drawn = self.server.post(TEXTS, {"prompt": "KING:", "max_tokens": 12, "temperature": 1})["choices"][0]
        self.assertEqual(self.server.post(TEXTS, {**body, "seed": drawn["seed"]})["choices"][0]["text"], drawn["text"])

    def test_best_of(self):
        body = {"prompt": "KING:", "max_tokens": 8, "temperature": 1, "seed": 5, "logprobs": 0, "ignore_eos": True}
        every = self.server.post(TEXTS, {**body, "n": 5})["choices"]
        mean = [sum(choice["logprobs"]["token_logprobs"]) / 8 for choice in every]
        order = sorted(range(5), key=lambda i: -mean[i])
        best = self.server.post(TEXTS, {**body, "n": 2, "best_of": 5})
        self.assertEqual([choice["text"] for choice in best["choices"]], [every[i]["text"] for i in order[:2]])
        self.assertEqual(best["usage"]["completion_tokens"], 40)

    def test_prompts_with_one_beginning_are_computed_once(self):
        prompt = ("Now is the winter of our discontent made glorious summer. " * 8)[:300]
        body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
        first = self.server.post(TEXTS, body)["usage"]
        again = self.server.post(TEXTS, body)["usage"]
        cold = self.server.post(TEXTS, {**body, "cache_prompt": False})["usage"]
        size = first["prompt_tokens"]
        self.assertGreaterEqual(again["prompt_tokens_details"]["cached_tokens"], size - 33)
        self.assertLess(again["prompt_tokens_details"]["cached_tokens"], size)
        self.assertEqual(cold["prompt_tokens_details"]["cached_tokens"], 0)

    def test_log_probs(self):
        body = {"prompt": "ROMEO:", "max_tokens": 10, "temperature": 0, "ignore_eos": True}
        for count in (0, 1, 5, 20):
            choice = self.server.post(TEXTS, {**body, "logprobs": count})["choices"][0]
            lists = choice["logprobs"]
            self.assertEqual([len(lists[name]) for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")], [10] * 4)
            self.assertEqual("".join(lists["tokens"]), choice["text"])
            for i, top in enumerate(lists["top_logprobs"]):
                self.assertIn(len(top), (max(count, 1), count + 1))
                self.assertEqual(top[lists["tokens"][i]], lists["token_logprobs"][i])
                self.assertEqual(max(top.values()), lists["token_logprobs"][i])  # the likeliest was taken
                self.assertEqual(choice["text"][lists["text_offset"][i]:][:len(lists["tokens"][i])], lists["tokens"][i])
            joined = {name: [] for name in lists}
            for event in self.server.stream(TEXTS, {**body, "logprobs": count}):
                for name, values in (event["choices"][0]["logprobs"] or {}).items():
                    joined[name] += values
            self.assertEqual(joined, lists)

    def test_echo_is_what_score_says(self):
        text = "To be, or not to be, that is the question"
        _, out, error = run_kvant("score", TEXT_MODEL, "-p", text, "--json", "--top", "3")
        scored = json.loads(out)["tokens"]
        for prompt in (text, [token["id"] for token in scored]):
            choice = self.server.post(TEXTS, {"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 3, "echo": True,
                                              "seed": 1234})["choices"][0]
            lists = choice["logprobs"]
            self.assertEqual(len(lists["tokens"]), len(scored) + 1)
            self.assertIsNone(lists["token_logprobs"][0])
            self.assertIsNone(lists["top_logprobs"][0])
            for i, token in enumerate(scored[1:], 1):
                self.assertAlmostEqual(lists["token_logprobs"][i], token["logprob"], delta=1e-5)
                self.assertEqual(lists["token_logprobs"][i] == max(lists["top_logprobs"][i].values()), token["rank"] == 1)
            self.assertTrue(math.isclose(sum(lists["token_logprobs"][1:-1]), json.loads(out)["logprob_sum"], abs_tol=1e-4))
            self.assertTrue(choice["text"].startswith(text) or prompt is not text)
        events = self.server.stream(TEXTS, {"prompt": text, "max_tokens": 1, "temperature": 0, "logprobs": 3, "echo": True})
        self.assertEqual(events[0]["choices"][0]["text"], text)
        self.assertEqual(len(events[0]["choices"][0]["logprobs"]["tokens"]), len(scored))
        only = self.server.post(TEXTS, {"prompt": text, "max_tokens": 0, "logprobs": 1, "echo": True})["choices"][0]
        self.assertEqual((only["text"], len(only["logprobs"]["tokens"])), (text, len(scored)))

    def test_bias(self):
        ids = self.server.post("/tokenize", {"content": "the"})["tokens"]
        body = {"prompt": "ROMEO:", "max_tokens": 3, "temperature": 0}
        for bias in ({str(ids[0]): 1000}, [[ids[0], 1000]]):
            text = self.server.post(TEXTS, {**body, "logit_bias": bias})["choices"][0]["text"]
            self.assertEqual(text, self.server.post("/detokenize", {"tokens": ids[:1]})["content"] * 3)
        free = self.server.post(TEXTS, {**body, "logprobs": 1})["choices"][0]
        first = self.server.post("/tokenize", {"content": free["logprobs"]["tokens"][0]})["tokens"][0]
        other = self.server.post(TEXTS, {**body, "logit_bias": [[first, False]]})["choices"][0]
        self.assertNotEqual(other["text"], free["text"])

    def test_grammars(self):
        choice = self.server.post(TEXTS, {"prompt": "ROMEO:", "grammar": 'root ::= "yes" | "no"'})["choices"][0]
        self.assertIn(choice["text"], ("yes", "no"))
        self.assertEqual(choice["finish_reason"], "stop")
        choice = self.server.post(TEXTS, {"prompt": "ROMEO:", "response_format": {"type": "json_object"}, "max_tokens": 400,
                                          "temperature": 0.2, "seed": 3})["choices"][0]
        if choice["finish_reason"] == "stop":
            self.assertIsInstance(json.loads(choice["text"]), dict)
        self.assertTrue(choice["text"].lstrip().startswith("{"))
        schema = {"type": "object", "properties": {"b": {"type": "boolean"}, "a": {"enum": [1, 2]}}, "required": ["b", "a"], "additionalProperties": False}
        for form in ({"json_schema": schema}, {"response_format": {"type": "json_object", "schema": schema}},
                     {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}}):
            choice = self.server.post(TEXTS, {"prompt": "ROMEO:", **form, "max_tokens": 400, "temperature": 0})["choices"][0]
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertEqual(list(json.loads(choice["text"])), ["b", "a"])
        found, _, data = self.server.ask("POST", TEXTS, {"prompt": "a", "grammar": 'root ::= "a'})
        self.assertEqual((found, data["error"]["param"]), (400, "grammar"))

    def test_company_changes_nothing(self):
        """Neither texts nor log-probabilities, which tell every bit of the logits."""
        bodies = [{"prompt": "Speaker %d:" % i + " word" * (i % 5 * 30), "max_tokens": 16, "seed": i, "temperature": i % 3 * 0.6,
                   "cache_prompt": False, "logprobs": 5} for i in range(32)]
        alone = [self.server.post(TEXTS, body)["choices"] for body in bodies]
        with concurrent.futures.ThreadPoolExecutor(32) as threads:
            together = list(threads.map(lambda body: self.server.post(TEXTS, body)["choices"], bodies))
        self.assertEqual(together, alone)


class Chats(ServerCase):
    body = {"messages": [{"role": "user", "content": "What is 17 + 25?"}], "temperature": 0, "max_tokens": 60}

    def test_answers(self):
        whole = self.server.post(CHATS, self.body)
        choice = whole["choices"][0]
        self.assertEqual(set(choice["message"]), {"role", "content", "refusal"})
        self.assertIn("42", choice["message"]["content"])
        self.assertEqual((whole["object"], choice["finish_reason"]), ("chat.completion", "stop"))
        texts, reasons = check_stream(self, self.server.stream(CHATS, self.body), True)
        self.assertEqual((texts[0], reasons[0]), (choice["message"]["content"], "stop"))
        _, out, _ = run_kvant("chat", self.model, "-p", "What is 17 + 25?", "--temp", "0", "--single-turn", "-q")
        self.assertEqual(out.strip(), choice["message"]["content"].strip())
        timings = whole["timings"]
        self.assertEqual(timings["predicted_n"], whole["usage"]["completion_tokens"])
        self.assertEqual(timings["cache_n"] + timings["prompt_n"], whole["usage"]["prompt_tokens"])

    def test_log_probs(self):
        choice = self.server.post(CHATS, {**self.body, "logprobs": True, "top_logprobs": 2})["choices"][0]
        content = choice["logprobs"]["content"]
        self.assertEqual(b"".join(bytes(token["bytes"]) for token in content).decode(), choice["message"]["content"])
        for token in content:
            self.assertEqual(len(token["top_logprobs"]), 2)
            self.assertEqual(token["top_logprobs"][0]["token"], token["token"])
        events = self.server.stream(CHATS, {**self.body, "logprobs": True, "top_logprobs": 2})
        joined = [token for event in events if event["choices"][0]["logprobs"] for token in event["choices"][0]["logprobs"]["content"]]
        self.assertEqual(joined, content)

    def test_stops(self):
        text = self.server.post(CHATS, self.body)["choices"][0]["message"]["content"]
        for stop in (text[4:6], text[:2], text[3:9]):
            choice = self.server.post(CHATS, {**self.body, "stop": [stop]})["choices"][0]
            self.assertEqual((choice["message"]["content"], choice["finish_reason"]), (text[:text.find(stop)], "stop"))
            texts, reasons = check_stream(self, self.server.stream(CHATS, {**self.body, "stop": stop}), True)
            self.assertEqual((texts[0], reasons[0]), (text[:text.find(stop)], "stop"))
        cut = self.server.post(CHATS, {**self.body, "max_tokens": 3})["choices"][0]
        self.assertEqual(cut["finish_reason"], "length")

    def test_thoughts(self):
        """They are a member of their own, and stop texts do not end them."""
        body = {**self.body, "grammar": 'root ::= "<think>abc\\n</think>\\n\\nyes sir"'}
        for stop, content in (([], "yes sir"), (["b"], "yes sir"), (["s s"], "ye")):
            whole = self.server.post(CHATS, {**body, "stop": stop})
            message = whole["choices"][0]["message"]
            self.assertEqual((message["reasoning_content"].strip(), message["content"]), ("abc", content))
            events = self.server.stream(CHATS, {**body, "stop": stop})
            texts, _ = check_stream(self, events, True)
            self.assertEqual(texts[0], content)
            thoughts = "".join(event["choices"][0]["delta"].get("reasoning_content", "") for event in events)
            self.assertEqual(thoughts, message["reasoning_content"])
            counts = whole["usage"]["completion_tokens_details"]["reasoning_tokens"], whole["usage"]["completion_tokens"]
            self.assertTrue(0 < counts[0] < counts[1], counts)

    def test_finish_reasons(self):
        """What has ended a text, in both kinds of answers, whole and streamed."""
        size = self.server.ask("GET", "/props")[2]["default_generation_settings"]["n_ctx"]
        empty = self.server.post(CHATS + "/input_tokens", {"messages": [{"role": "user", "content": ""}]})["input_tokens"]
        letters = size - empty - 3
        full = {"role": "user", "content": "ab" * (letters // 2)}
        chat, text = {"messages": self.body["messages"], "temperature": 0}, {"prompt": "17 + 25:", "temperature": 0, "max_tokens": 50}
        cases = [(CHATS, chat, {}, "stop"), (CHATS, chat, {"max_tokens": 3}, "length"), (CHATS, chat, {"stop": "4"}, "stop"),
                 (CHATS, chat, {"grammar": 'root ::= "yes"'}, "stop"), (CHATS, chat, {"ignore_eos": True, "messages": [full]}, "length"),
                 (CHATS, chat, {"grammar": 'root ::= "yes"', "max_tokens": 2}, "length"),
                 (TEXTS, text, {"max_tokens": 3, "ignore_eos": True}, "length"), (TEXTS, text, {"grammar": 'root ::= "no"'}, "stop"),
                 (TEXTS, text, {"grammar": "root ::= [0-9] [0-9]", "stop": [str(i) for i in range(10)]}, "stop"),
                 (TEXTS, text, {"prompt": [5] * (size - 4), "ignore_eos": True}, "length")]
        for path, body, further, expected in cases:
            whole = self.server.post(path, {**body, **further})["choices"][0]
            self.assertEqual(whole["finish_reason"], expected, (path, further))
            texts, reasons = check_stream(self, self.server.stream(path, {**body, **further}), path == CHATS)
            self.assertEqual((texts[0], reasons[0]), (whole["message"]["content"] if path == CHATS else whole["text"], expected))

    def test_progress(self):
        """Of the prompt, before the first choice, where it is asked for."""
        for path, body in ((CHATS, {**self.body, "messages": [{"role": "user", "content": "17 + 25? " * 80}]}),
                           (TEXTS, {"prompt": "17 + 25? " * 80, "temperature": 0, "max_tokens": 3})):
            for _ in range(2):
                events = self.server.stream(path, {**body, "return_progress": True, "timings_per_token": True, "stream_options": {"include_usage": True}})
                told = [event for event in events if "prompt_progress" in event]
                self.assertEqual(told, events[:len(told)])
                self.assertTrue(all(event["choices"] == [] and "timings" in event for event in told))
                progress = [event["prompt_progress"] for event in told]
                usage = events[-1]["usage"]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                self.assertEqual({(one["total"], one["cache"]) for one in progress}, {(usage["prompt_tokens"], cached)})
                self.assertEqual((progress[0]["processed"], progress[-1]["processed"]), (cached, usage["prompt_tokens"]))
                done = [one["processed"] for one in progress]
                self.assertEqual(done, sorted(set(done)))
                check_stream(self, events[len(told):], path == CHATS)
            self.assertGreater(cached, 64)
            self.assertFalse([event for event in self.server.stream(path, body) if "prompt_progress" in event])

    def test_answers_that_go_on(self):
        text = self.server.post(CHATS, self.body)["choices"][0]["message"]["content"]
        begun = {**self.body, "messages": [*self.body["messages"], {"role": "assistant", "content": text[:7]}]}
        self.assertEqual(text[:7] + self.server.post(CHATS, begun)["choices"][0]["message"]["content"], text)

    def test_second_turn_reuses_the_first(self):
        messages = [*self.body["messages"], {"role": "assistant", "content": "42."}, {"role": "user", "content": "And 1 + 2?"}]
        self.server.post(CHATS, {**self.body, "messages": messages})
        usage = self.server.post(CHATS, {**self.body, "messages": messages})["usage"]
        self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"], (usage["prompt_tokens"] - 1) // 32 * 32)


class Recurrent(ServerCase):
    model = "qwen35-tiny"
    options = ("--kv-type", "q8", "--parallel", "6")

    def test_company_changes_nothing(self):
        bodies = [{"prompt": "Hello %d" % i + " word" * (i % 3 * 50), "max_tokens": 10, "temperature": 0.7, "seed": i,
                   "cache_prompt": False} for i in range(12)]
        with concurrent.futures.ThreadPoolExecutor(12) as threads:
            together = list(threads.map(lambda body: self.server.post(TEXTS, body)["choices"][0]["text"], bodies))
        for body, text in zip(bodies, together):
            _, out, _ = run_kvant("run", self.model, "-p", body["prompt"], "-n", "10", "--temp", "0.7", "--seed", str(body["seed"]),
                                  "--kv-type", "q8", "--json", "-q")
            self.assertEqual(text, json.loads(out)["text"])
