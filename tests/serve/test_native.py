"""llama-server's own interface: /completion, its prompts, fields and streams, and /infill."""
import math
import os
import random
import tempfile
import unittest

from common import CHAT_MODEL, TEXT_MODEL, Server, ServerCase, run_kvant

PATH = "/completion"
TEXTS = "/v1/completions"
# Bytes that no text has, so that nothing but a gap's marks has these tokens in shakespeare's vocabulary.
MARKS = {"pre": 252, "suf": 253, "mid": 254, "pad": 255, "rep": 256, "sep": 257}


def fill_model(folder, names):
    """The model with tokens for gaps, by the keys of a file."""
    path = os.path.join(folder, "fill-%s.gguf" % "-".join(names))
    keys = ["--override-kv=tokenizer.ggml.fim_%s_token_id=int:%d" % (name, MARKS[name]) for name in names]
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models", TEXT_MODEL, TEXT_MODEL + ".gguf")
    code, _, error = run_kvant("quantize", source, path, "COPY", *keys)
    assert code == 0, error
    return path


class Completion(ServerCase):
    model = TEXT_MODEL
    body = {"prompt": "ROMEO:", "n_predict": 12, "temperature": 0, "ignore_eos": True}

    def test_answers(self):
        """The text is that of /v1/completions, with what llama-server tells beside it."""
        other = self.server.post(TEXTS, {"prompt": "ROMEO:", "max_tokens": 12, "temperature": 0, "ignore_eos": True})
        data = self.server.post(PATH, {**self.body, "seed": 5})
        self.assertEqual(data["content"], other["choices"][0]["text"])
        self.assertEqual(data["tokens_evaluated"], other["usage"]["prompt_tokens"])
        self.assertLessEqual({"index": 0, "stop": True, "model": "shakespeare", "tokens": [], "tokens_predicted": 12, "stop_type": "limit",
                              "stopping_word": "", "truncated": False, "prompt": "<bos>ROMEO:", "tokens_cached": data["tokens_evaluated"] + 11,
                              "has_new_line": "\n" in data["content"]}.items(), data.items())
        settings = data["generation_settings"]
        self.assertEqual((settings["n_predict"], settings["temperature"], settings["seed"], settings["ignore_eos"], settings["stream"]),
                         (12, 0, 5, True, False))
        self.assertEqual(settings["samplers"][0], "penalties")
        self.assertEqual(data["timings"]["predicted_n"], 12)
        self.assertEqual(data["timings"]["cache_n"] + data["timings"]["prompt_n"], data["tokens_evaluated"])
        self.assertIn(data["id_slot"], range(8))
        self.assertEqual(self.server.post("/v1" + PATH, self.body)["content"], data["content"])

    def test_tokens_and_log_probs(self):
        plain = self.server.post(PATH, {**self.body, "return_tokens": True})
        self.assertEqual(self.server.post("/detokenize", {"tokens": plain["tokens"]})["content"], plain["content"])
        self.assertNotIn("completion_probabilities", plain)
        other = self.server.post(TEXTS, {"prompt": "ROMEO:", "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logprobs": 3})
        data = self.server.post(PATH, {**self.body, "n_probs": 3})
        listed = data["completion_probabilities"]
        self.assertEqual([token["id"] for token in listed], plain["tokens"])
        self.assertEqual([token["logprob"] for token in listed], other["choices"][0]["logprobs"]["token_logprobs"])
        for token in listed:
            self.assertEqual(len(token["top_logprobs"]), 3)
            self.assertEqual(token["top_logprobs"][0]["id"], token["id"])  # the likeliest was taken
            self.assertEqual(bytes(token["bytes"]).decode(), token["token"])
        self.assertNotIn("completion_probabilities", self.server.post(PATH, {**self.body, "n_probs": 0}))

    def test_probabilities_of_draws(self):
        """With post_sampling_probs they are what samplers leave of the model's: computed here from its log-probabilities."""
        first = {"prompt": "ROMEO:", "n_predict": 1, "ignore_eos": True, "seed": 4, "n_probs": 20}
        listed = self.server.post(PATH, {**first, "temperature": 0})["completion_probabilities"][0]["top_logprobs"]
        for kept, temperature, wanted in ((20, 1, 20), (7, 0.6, 20), (12, 1.5, 5)):
            weights = [math.exp(one["logprob"] / temperature) for one in listed[:kept]]
            expected = [(one["id"], weight / sum(weights)) for one, weight in zip(listed, weights)][:wanted]
            body = {**first, "n_probs": wanted, "samplers": ["top_k", "temperature"], "top_k": kept, "temperature": temperature,
                    "post_sampling_probs": True}
            data = self.server.post(PATH, body)
            token, = data["completion_probabilities"]
            self.assertEqual((set(token), data["generation_settings"]["post_sampling_probs"]), ({"id", "token", "bytes", "prob", "top_probs"}, True))
            self.assertEqual([set(one) for one in token["top_probs"]], [{"id", "token", "bytes", "prob"}] * len(expected))
            self.assertEqual([one["id"] for one in token["top_probs"]], [number for number, _ in expected])
            for one, (number, probability) in zip(token["top_probs"], expected):
                self.assertAlmostEqual(one["prob"], probability, delta=1e-5)  # logits are floats
                if number == token["id"]:
                    self.assertEqual(one["prob"], token["prob"])
            events = self.server.stream(PATH, body, has_done=False)
            self.assertEqual(events[0]["completion_probabilities"], [token])
        # Nothing is left to chance: one token, whatever was asked for.
        token, = self.server.post(PATH, {**first, "temperature": 0, "post_sampling_probs": True})["completion_probabilities"]
        self.assertEqual((token["prob"], [(one["id"], one["prob"]) for one in token["top_probs"]]), (1, [(listed[0]["id"], 1)]))
        # Of a grammar, too.
        body = {**first, "grammar": 'root ::= "yes"', "post_sampling_probs": True, "temperature": 1}
        for token in self.server.post(PATH, {**body, "n_predict": 9})["completion_probabilities"]:
            self.assertEqual(sum(one["prob"] for one in token["top_probs"]), 1)
        self.assertNotIn("completion_probabilities", self.server.post(PATH, {**self.body, "post_sampling_probs": True}))
        found, _, data = self.server.ask("POST", PATH, {**body, "best_of": 2})
        self.assertEqual((found, data["error"]["param"]), (400, "post_sampling_probs"))

    def test_streams(self):
        for further in ({}, {"n_probs": 2}, {"temperature": 1, "seed": 3}, {"timings_per_token": True}):
            body = {**self.body, **further}
            whole = self.server.post(PATH, {**body, "return_tokens": True})
            events = self.server.stream(PATH, body, has_done=False)
            self.assertEqual([event["stop"] for event in events], [False] * (len(events) - 1) + [True])
            self.assertEqual("".join(event["content"] for event in events), whole["content"])
            self.assertEqual(sum((event["tokens"] for event in events), []), whole["tokens"])
            self.assertEqual([event["tokens_predicted"] for event in events[:-1]], list(range(1, 13)))
            self.assertEqual({event["id_slot"] for event in events}, {events[-1]["id_slot"]})
            last = events[-1]
            for name in ("stop_type", "tokens_evaluated", "has_new_line", "prompt", "tokens_cached"):
                self.assertEqual(last[name], whole[name])
            self.assertEqual((last["content"], last["tokens"]), ("", []))
            listed = sum((event.get("completion_probabilities", []) for event in events), [])
            self.assertEqual(listed, whole.get("completion_probabilities", []))
            self.assertEqual(all("timings" in event for event in events), "timings_per_token" in further)

    def test_progress(self):
        size = 700
        body = {**self.body, "prompt": [5 + i % 90 for i in range(size)], "n_predict": 2, "cache_prompt": False, "return_progress": True}
        events = self.server.stream(PATH, body, has_done=False)
        progress = [event["prompt_progress"] for event in events if "prompt_progress" in event]
        self.assertEqual(progress, [event["prompt_progress"] for event in events[:len(progress)]])
        self.assertEqual({one["total"] for one in progress}, {size})
        self.assertEqual({one["cache"] for one in progress}, {0})
        done = [one["processed"] for one in progress]
        self.assertEqual(done, sorted(set(done)))
        self.assertEqual((done[0], done[-1]), (0, size))
        self.assertFalse([event for event in self.server.stream(PATH, {**body, "return_progress": False}, has_done=False)
                          if "prompt_progress" in event])

    def test_ends(self):
        text = self.server.post(PATH, self.body)["content"]
        for stops in ([text[5:8]], ["never", text[5:8], text[5:7]], [text[4:7], text[5:7]], [text[-3:], text[-2:]]):
            # The stop text that ends first, and of those the one that begins first.
            _, begin, word = min((text.find(stop) + len(stop), text.find(stop), stop) for stop in stops if stop in text)
            for data in (self.server.post(PATH, {**self.body, "stop": stops}),
                         self.server.stream(PATH, {**self.body, "stop": stops}, has_done=False)[-1]):
                self.assertEqual((data["stop_type"], data["stopping_word"]), ("word", word))
            self.assertEqual(self.server.post(PATH, {**self.body, "stop": stops})["content"], text[:begin])
        data = self.server.post(PATH, {**self.body, "grammar": 'root ::= "yes"'})
        self.assertEqual((data["content"], data["stop_type"], data["generation_settings"]["grammar"]), ("yes", "eos", 'root ::= "yes"'))
        size = self.server.ask("GET", "/props")[2]["default_generation_settings"]["n_ctx"]
        data = self.server.post(PATH, {**self.body, "prompt": [5] * (size - 2), "n_predict": -1})
        self.assertEqual((data["stop_type"], data["truncated"]), ("limit", True))
        self.assertEqual(self.server.post(PATH, {**self.body, "n_predict": 0})["content"], "")

    def test_prompts(self):
        def tokens(text, **options):
            return self.server.post("/tokenize", {"content": text, **options})["tokens"]
        romeo, tail = tokens("ROMEO:", add_special=True), tokens(" I")
        whole = self.server.post(PATH, {**self.body, "prompt": romeo + tail})
        for prompt in (["ROMEO:", *tail], [*romeo, " I"], [["ROMEO:", *tail]], {"prompt_string": "ROMEO:"}):
            data = self.server.post(PATH, {**self.body, "prompt": prompt})
            expected = self.server.post(PATH, {**self.body, "prompt": "ROMEO:"}) if isinstance(prompt, dict) else whole
            self.assertEqual((data["content"], data["tokens_evaluated"]), (expected["content"], expected["tokens_evaluated"]), prompt)
        alone = [self.server.post(PATH, {**self.body, "prompt": one})["content"] for one in ("ROMEO:", "JULIET:", romeo)]
        together = self.server.post(PATH, {**self.body, "prompt": ["ROMEO:", "JULIET:", romeo]})
        self.assertEqual([data["content"] for data in together], alone)
        self.assertEqual([data["index"] for data in together], [0, 1, 2])
        self.assertEqual([data["prompt"] for data in together], ["<bos>ROMEO:", "<bos>JULIET:", "<bos>ROMEO:"])
        samples = self.server.post(PATH, {**self.body, "prompt": ["ROMEO:", "JULIET:"], "temperature": 1, "seed": 7, "n": 2})
        self.assertEqual([data["generation_settings"]["seed"] for data in samples], [7, 8, 7, 8])
        events = self.server.stream(PATH, {**self.body, "prompt": ["ROMEO:", "JULIET:"]}, has_done=False)
        for i in range(2):
            self.assertEqual("".join(event["content"] for event in events if event["index"] == i), alone[i])
        for bad in (None, 1, [], [[]], [1, None], [1, [2]], ["a", [[1]]], [1, -1], [1, 2 ** 31], [1.5], {}, {"prompt_string": 1}, [True, 1]):
            found, _, data = self.server.ask("POST", PATH, {**self.body, "prompt": bad})
            self.assertEqual(found, 400, bad)
            self.assertTrue(data["error"]["param"].startswith("prompt"), data)
        self.assertEqual(self.server.ask("POST", PATH, {"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}})[0], 501)

    def test_chosen_members(self):
        data = self.server.post(PATH, {**self.body, "response_fields": ["content", "generation_settings/n_predict", "timings/none", "none/a"]})
        self.assertEqual(data, {"content": self.server.post(PATH, self.body)["content"], "generation_settings/n_predict": 12})

    def test_fields(self):
        schema = {"type": "object", "properties": {"b": {"type": "boolean"}, "a": {"enum": [1, 2]}}, "required": ["b", "a"], "additionalProperties": False}
        data = self.server.post(PATH, {**self.body, "n_predict": 200, "json_schema": schema})
        self.assertRegex(data["content"], r'^\s*\{\s*"b"\s*:\s*(true|false)\s*,\s*"a"\s*:\s*[12]\s*\}\s*$')
        first = self.server.post(PATH, {**self.body, "return_tokens": True})["tokens"][0]
        data = self.server.post(PATH, {**self.body, "logit_bias": [[first, False]]})
        self.assertEqual(data["generation_settings"]["logit_bias"], [{"token": first, "bias": None}, {"token": 1, "bias": None}])  # the end token, too
        self.assertNotIn(first, self.server.post(PATH, {**self.body, "logit_bias": [[first, False]], "return_tokens": True})["tokens"])
        self.assertEqual(self.server.post(PATH, {**self.body, "samplers": ["top_k", "temperature"]})["generation_settings"]["samplers"],
                         ["top_k", "temperature"])
        self.assertEqual(self.server.post(PATH, {**self.body, "id_slot": 3})["id_slot"], 3)
        before = self.server.metrics()["kvant_unknown_fields_total"]
        self.server.post(PATH, {**self.body, "n_keep": 1, "n_discard": 0, "t_max_prompt_ms": 500, "return_tokens": False})
        self.assertEqual(self.server.metrics()["kvant_unknown_fields_total"], before)
        for name, value in (("return_tokens", 1), ("response_fields", "a"), ("response_fields", [1]), ("return_progress", "a"), ("n_indent", -1),
                            ("n_indent", 1.5), ("t_max_predict_ms", "a"), ("post_sampling_probs", 1), ("echo", True), ("suffix", "a"),
                            ("n_predict", -2), ("temperature", "a"), ("id_slot", 8), ("lora", [{"id": 0, "scale": 1}])):
            found, _, data = self.server.ask("POST", PATH, {**self.body, name: value})
            self.assertEqual(found, 400, (name, value))
            self.check_error(data)
            self.assertTrue(data["error"]["param"].startswith(name), data)

    def test_limits_of_lines(self):
        """A line that is indented less than asked for ends the text, and so does a time, once a line is complete."""
        free = self.server.post(PATH, {**self.body, "n_predict": 60})["content"]
        lines = free.split("\n")
        self.assertGreater(len(lines), 3)
        data = self.server.post(PATH, {**self.body, "n_predict": 60, "n_indent": 1})
        cut = next(i for i, line in enumerate(lines) if i > 0 and not line.startswith((" ", "\t")))
        self.assertEqual((data["content"], data["stop_type"]), ("\n".join(lines[:cut]) + "\n", "limit"))
        self.assertEqual(self.server.post(PATH, {**self.body, "n_predict": 60, "n_indent": 0})["content"], free)
        data = self.server.post(PATH, {**self.body, "n_predict": -1, "t_max_predict_ms": 1})
        self.assertEqual(data["stop_type"], "limit")
        self.assertIn("\n", data["content"])
        self.assertFalse(data["truncated"])

    def test_random_bodies(self):
        """Random values in random places: an answer or a refusal, and the server goes on."""
        chance = random.Random(5)
        values = [None, 0, -1, 2 ** 63, 1.5, "", "a", [], {}, [1], ["a"], [["a", 1]], [1, "a"], {"prompt_string": "a"}, True]
        names = ["prompt", "n", "stop", "n_probs", "stream", "logit_bias", "json_schema", "temperature", "seed", "grammar", "samplers", "n_indent",
                 "response_fields", "return_tokens", "return_progress", "t_max_predict_ms", "id_slot", "input_prefix", "input_suffix", "input_extra"]
        for _ in range(300):
            body = {**self.body, "n_predict": 1, "input_prefix": "a", "input_suffix": "b"}
            for name in chance.sample(names, 3):
                body[name] = chance.choice(values)
            found, _, data = self.server.ask("POST", PATH, body)
            self.assertIn(found, (200, 400), (body, data))


class Infill(unittest.TestCase):
    """Gaps: the prompt is the one that the tokens of the model and of the texts make."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server(fill_model(cls.folder.name, ["pre", "suf", "mid", "rep", "sep"]), "-c", "256")

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.folder.cleanup()

    def tokens(self, text):
        return self.server.post("/tokenize", {"content": text, "parse_special": False})["tokens"]

    def check(self, body, ids):
        """The answer of a gap, which is that of these ids."""
        shared = {"n_predict": 8, "temperature": 0, "return_tokens": True}
        data = self.server.post("/infill", {**shared, **body})
        expected = self.server.post(PATH, {**shared, "prompt": ids})
        for name in ("tokens_evaluated", "prompt", "content", "tokens"):
            self.assertEqual(data[name], expected[name], name)
        return data

    def test_prompts(self):
        bos, name = 2, self.tokens("filename\n")
        head = [bos, MARKS["rep"], *self.tokens("myproject\n")]
        gap = [MARKS["sep"], *name, MARKS["pre"], *self.tokens("KING: my lord"), MARKS["suf"], *self.tokens(" is here."), MARKS["mid"]]
        body = {"input_prefix": "KING: my lord", "input_suffix": " is here."}
        self.check(body, head + gap)
        files = [{"filename": "a.txt", "text": "Enter HAMLET"}, {"text": "Exit"}]
        listed = [MARKS["sep"], *self.tokens("a.txt\n"), *self.tokens("Enter HAMLET"), MARKS["sep"], *self.tokens("tmp\n"), *self.tokens("Exit")]
        self.check({**body, "input_extra": files}, head + listed + gap)
        begun = [MARKS["sep"], *name, MARKS["pre"], *self.tokens("KING: my lord"), *self.tokens(" the"), MARKS["suf"], *self.tokens(" is here."),
                 MARKS["mid"]]
        self.check({**body, "prompt": " the"}, head + begun)
        # What a text says never becomes a control token.
        self.check({"input_prefix": "<bos>", "input_suffix": "<eos>"},
                   [*head, MARKS["sep"], *name, MARKS["pre"], *self.tokens("<bos>"), MARKS["suf"], *self.tokens("<eos>"), MARKS["mid"]])
        events = self.server.stream("/infill", {**body, "n_predict": 4}, has_done=False)
        self.assertEqual(events[-1]["stop_type"], "limit")

    def test_room(self):
        """Where texts are long the nearest parts stay: three quarters of the room for what is before the gap."""
        prefix, suffix = "now is the winter of our discontent " * 60, "made glorious summer by this sun of York " * 60
        before, behind, name = self.tokens(prefix), self.tokens(suffix), self.tokens("filename\n")
        room = 256 - 8 - 4  # for the answer, BOS and three marks
        share = room - room // 4
        ids = [2, MARKS["pre"], *before[-share:], MARKS["suf"], *behind[:room - share], MARKS["mid"]]
        self.check({"input_prefix": prefix, "input_suffix": suffix}, ids)
        # A text that needs less leaves its room to the other one, and the last of the files has what is left.
        self.check({"input_prefix": "a", "input_suffix": suffix},
                   [2, MARKS["pre"], *self.tokens("a"), MARKS["suf"], *behind[:room - len(self.tokens("a"))], MARKS["mid"]])
        text = self.tokens(suffix)
        left = room - len(self.tokens("a")) - len(self.tokens("b"))
        files = ([MARKS["rep"], *self.tokens("myproject\n"), MARKS["sep"], *self.tokens("tmp\n"), *text, MARKS["sep"], *name])[-left:]
        data = self.check({"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": suffix}]},
                          [2, *files, MARKS["pre"], *self.tokens("a"), MARKS["suf"], *self.tokens("b"), MARKS["mid"]])
        self.assertEqual(data["tokens_evaluated"], 256 - 8)
        # Without a limit the text has a quarter of the context, and it may have half of it at most.
        for limit, size in ((-1, 192), (1000, 128)):
            data = self.server.post("/infill", {"input_prefix": prefix, "input_suffix": suffix, "n_predict": limit, "ignore_eos": True,
                                                "logit_bias": [[mark, False] for mark in MARKS.values()]})  # which would end the text
            self.assertEqual(data["tokens_evaluated"], size)
            self.assertEqual(data["tokens_predicted"], 256 - size + 1)
        found, _, data = self.server.ask("POST", "/infill", {"input_prefix": "a", "input_suffix": "b", "prompt": prefix})
        self.assertEqual((found, data["error"]["param"]), (400, "prompt"))

    def test_fields(self):
        right = {"input_prefix": "a", "input_suffix": "b", "n_predict": 1}
        for name, value, place in (("input_prefix", None, "input_prefix"), ("input_suffix", None, "input_suffix"), ("input_prefix", 1, "input_prefix"),
                                   ("prompt", 1, "prompt"), ("input_extra", {}, "input_extra"), ("input_extra", [1], "input_extra[0]"),
                                   ("input_extra", [{}], "input_extra[0].text"), ("input_extra", [{"text": 1}], "input_extra[0].text"),
                                   ("input_extra", [{"text": "a"}, {"text": "b", "filename": 1}], "input_extra[1].filename")):
            found, _, data = self.server.ask("POST", "/infill", {**right, name: value})
            self.assertEqual((found, data["error"]["param"]), (400, place))
        self.assertEqual(self.server.post("/infill", {**right, "samplers": ["top_k", "top_p", "infill"], "n_indent": 0, "t_max_prompt_ms": 500,
                                                      "t_max_predict_ms": 60000})["tokens_predicted"], 1)

    def test_suffix(self):
        """A completion between a prompt and a suffix, without names of files."""
        body = {"temperature": 0, "max_tokens": 8}
        ids = [2, MARKS["pre"], *self.tokens("KING: my lord"), MARKS["suf"], *self.tokens(" is here."), MARKS["mid"]]
        expected = self.server.post(TEXTS, {**body, "prompt": ids})
        data = self.server.post(TEXTS, {**body, "prompt": "KING: my lord", "suffix": " is here."})
        self.assertEqual((data["choices"][0]["text"], data["usage"]["prompt_tokens"]), (expected["choices"][0]["text"], len(ids)))
        echo = self.server.post(TEXTS, {**body, "prompt": "KING: my lord", "suffix": " is here.", "echo": True})
        self.assertEqual(echo["choices"][0]["text"], "KING: my lord" + data["choices"][0]["text"])
        found, _, data = self.server.ask("POST", TEXTS, {**body, "prompt": [5], "suffix": "a"})
        self.assertEqual((found, data["error"]["param"]), (400, "suffix"))

    def test_models_without_tokens(self):
        with Server(CHAT_MODEL) as server:
            for path, body in (("/infill", {"input_prefix": "a", "input_suffix": "b"}), (TEXTS, {"prompt": "a", "suffix": "b"})):
                found, _, data = server.ask("POST", path, body)
                self.assertEqual((found, data["error"]["type"]), (501, "not_supported_error"))
                self.assertIn("missing: prefix, suffix, middle", data["error"]["message"])
        with Server(fill_model(self.folder.name, ["pre", "suf"])) as server:
            self.assertIn("missing: middle", server.post("/infill", {"input_prefix": "a", "input_suffix": "b"}, 501)["error"]["message"])
        with Server(fill_model(self.folder.name, ["pre", "suf", "mid"])) as server:
            data = server.post("/infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 1, "input_extra": [{"text": "c"}]})
            self.assertIn("--- snippet ---", data["prompt"])


if __name__ == "__main__":
    unittest.main()
