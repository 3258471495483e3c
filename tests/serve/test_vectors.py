"""Vectors and scores: /embeddings, /rerank and their forms, errors, many clients at once, and chat models beside them."""
import base64
import concurrent.futures
import json
import os
import shutil
import struct
import sys
import tempfile
import time
import unittest

from common import CHAT_MODEL, SECONDS, TEXT_MODEL, Server, run_kvant

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import embedding_models  # noqa: E402

EMBED = "/v1/embeddings"
RANK = "/v1/rerank"
TEXTS = ["hello world", "The panda, the bear.", "a", "hello", "the bear is a bear"]
DOCUMENTS = ["a bear", "the panda", "hello world", "the panda is a bear"]
CONTEXT = embedding_models.CONTEXT


def as_float32(values):
    return list(struct.unpack("<%df" % len(values), struct.pack("<%df" % len(values), *values)))


def vectors_of(data):
    return [as_float32(one["embedding"]) for one in data["data"]]


class Models(unittest.TestCase):
    name = "minibert"
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.paths = embedding_models.write(cls.folder.name)
        cls.server = Server(str(cls.paths.get(cls.name, cls.name)), *cls.options)
        cls.addClassCleanup(cls.server.close)

    def program(self, *arguments):
        code, out, error = run_kvant(*map(str, arguments))
        self.assertEqual(code, 0, error)
        return [json.loads(line) for line in out.splitlines()]

    def embedded(self, texts, *options):
        lines = self.program("embed", self.paths["minibert"], *options, *(part for text in texts for part in ("-p", text)))
        return [as_float32(line["embedding"]) for line in lines]

    def refused(self, path, body, status, param, *words):
        error = self.server.post(path, body, status)["error"]
        self.assertEqual(error["param"], param, error)
        for word in words:
            self.assertIn(word, error["message"])
        return error


class Vectors(Models):
    def test_answer(self):
        data = self.server.post(EMBED, {"input": TEXTS, "model": "any"})
        self.assertEqual([(one["object"], one["index"]) for one in data["data"]], [("embedding", i) for i in range(5)])
        self.assertEqual((data["object"], data["model"]), ("list", "minibert"))
        self.assertEqual(vectors_of(data), self.embedded(TEXTS))
        tokens = sum(len(self.server.post("/tokenize", {"content": text, "add_special": True})["tokens"]) for text in TEXTS)
        self.assertEqual(data["usage"], {"prompt_tokens": tokens, "total_tokens": tokens})
        for path in ("/embeddings", EMBED):
            self.assertEqual(vectors_of(self.server.post(path, {"input": TEXTS[1]})), self.embedded(TEXTS[1:2]))

    def test_ids(self):
        ids = [self.server.post("/tokenize", {"content": text, "add_special": True})["tokens"] for text in TEXTS]
        data = self.server.post(EMBED, {"input": ids})
        self.assertEqual(vectors_of(data), self.embedded(TEXTS))
        self.assertEqual(data["usage"]["prompt_tokens"], sum(map(len, ids)))
        self.assertEqual(vectors_of(self.server.post(EMBED, {"input": ids[1]})), self.embedded(TEXTS[1:2]))

    def test_base64(self):
        """What openai-python asks for unless it is told otherwise, read as it reads it."""
        numbers = vectors_of(self.server.post(EMBED, {"input": TEXTS, "encoding_format": "float"}))
        data = self.server.post(EMBED, {"input": TEXTS, "encoding_format": "base64"})
        for one, expected in zip(data["data"], numbers, strict=True):
            found = base64.b64decode(one["embedding"], validate=True)
            self.assertEqual(list(struct.unpack("<32f", found)), expected)
        for dimensions in (1, 2, 3, 4):  # 4 to 16 bytes: each way in which base64 can end
            found = self.server.post(EMBED, {"input": "a", "encoding_format": "base64", "dimensions": dimensions})["data"][0]["embedding"]
            self.assertEqual(len(base64.b64decode(found, validate=True)), 4 * dimensions)

    def test_dimensions_and_prompts(self):
        self.assertEqual(vectors_of(self.server.post(EMBED, {"input": TEXTS, "dimensions": 8})), self.embedded(TEXTS, "--dimensions", 8))
        self.assertEqual(vectors_of(self.server.post(EMBED, {"input": TEXTS, "prompt_name": "query"})),
                         self.embedded(TEXTS, "--prompt-name", "query"))
        self.assertEqual(vectors_of(self.server.post(EMBED, {"input": TEXTS, "embd_normalize": -1})), self.embedded(TEXTS, "--normalize", "-1"))
        for value in (0, -1, 33, 1.5, "8", [], True):
            self.refused(EMBED, {"input": "a", "dimensions": value}, 400, "dimensions", "32")
        self.refused(EMBED, {"input": "a", "prompt_name": "other"}, 400, "prompt_name", "query")

    def test_own_form(self):
        """llama-server's: a list, with a list of rows for each text."""
        expected = self.embedded(TEXTS)
        for path, field in (("/embedding", "input"), ("/embedding", "content"), ("/embeddings", "content")):
            data = self.server.post(path, {field: TEXTS})
            self.assertEqual([one["index"] for one in data], list(range(5)))
            self.assertEqual([[as_float32(row) for row in one["embedding"]] for one in data], [[one] for one in expected])

    def test_wrong_inputs(self):
        for value in ("", [], [""], ["a", ""], [[]], [[5], []], None, 5, {}, [None], [{}], True):
            self.refused(EMBED, {"input": value}, 400, "input")
        self.refused(EMBED, {}, 400, "input")
        self.refused(EMBED, {"input": ["a", "b", ""]}, 400, "input", "input[2]", "empty")
        vocabulary = len(embedding_models.WORDS)
        for value in (-1, vocabulary, 2**31, 2**63, 2**64, 1.5, "1", 100264):  # the last one as of another tokenizer
            self.refused(EMBED, {"input": [5, value]}, 400, "input", str(vocabulary - 1))
            self.refused(EMBED, {"input": [[5], [5, value]]}, 400, "input")
        self.refused(EMBED, {"input": ["a"] * 2049}, 400, "input", "2048")
        self.assertEqual(len(self.server.post(EMBED, {"input": ["a"] * 2048})["data"]), 2048)
        self.refused(EMBED, {"input": "a", "encoding_format": "int8"}, 400, "encoding_format", "base64")
        self.server.post(EMBED, "{", 400)
        self.server.post(EMBED, "[]", 400)

    def test_long_texts(self):
        error = self.refused(EMBED, {"input": ["a", "hello " * 100]}, 400, "input", "102", str(CONTEXT), "input[1]")
        self.assertEqual((error["code"], error["type"], error["n_ctx"]), ("context_length_exceeded", "exceed_context_size_error", CONTEXT))
        self.refused(EMBED, {"input": [5] * (CONTEXT + 1)}, 400, "input", str(CONTEXT + 1))
        whole = self.server.post(EMBED, {"input": "hello " * (CONTEXT - 2)})
        cut = self.server.post(EMBED, {"input": "hello " * 100, "truncate": True})
        self.assertEqual(cut["data"], whole["data"])
        self.assertEqual(cut["usage"]["prompt_tokens"], CONTEXT)

    def test_control_tokens_are_text(self):
        plain = self.server.post(EMBED, {"input": "[ SEP ] a"})["usage"]["prompt_tokens"]
        self.assertGreater(self.server.post(EMBED, {"input": "[SEP] a"})["usage"]["prompt_tokens"], 4)
        self.assertEqual(self.server.post(EMBED, {"input": "[SEP] a"})["usage"]["prompt_tokens"], plain)

    def test_what_else_there_is(self):
        entry = self.server.ask("GET", "/v1/models")[2]["data"][0]
        self.assertEqual((entry["id"], entry["max_model_len"], entry["meta"]["n_embd"]), ("minibert", CONTEXT, 32))
        self.assertEqual(entry["architecture"]["output_modalities"], ["embeddings"])
        properties = self.server.ask("GET", "/props")[2]
        self.assertEqual((properties["pooling"], properties["prompts"], properties["dimensions"]), ("mean", embedding_models.PROMPTS, 32))
        self.assertEqual(self.server.post("/detokenize", {"tokens": [60, 61]})["content"].strip(), "hello world")
        self.assertEqual(self.server.ask("GET", "/tokenizer_info")[0], 200)
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}), ("/v1/completions", {"prompt": "a"}),
                           ("/completion", {"prompt": "a"}), ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
                           ("/v1/responses", {"input": "a"}), ("/apply-template", {"messages": []}), (RANK, {"query": "a", "documents": ["b"]})):
            self.refused(path, body, 501, "model", "minibert", "turns texts into vectors", "/v1/embeddings")
        found, _, data = self.server.ask("POST", "/v1/messages", {"messages": [], "max_tokens": 1})
        self.assertEqual((found, data["type"]), (501, "error"))
        self.assertEqual(self.server.ask("GET", "/slots")[0], 501)

    def test_metrics(self):
        before = self.server.metrics()
        tokens = self.server.post(EMBED, {"input": TEXTS, "new_field": 1})["usage"]["prompt_tokens"]
        after = self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 0)
        self.assertEqual(after["llamacpp:prompt_tokens_total"] - before["llamacpp:prompt_tokens_total"], tokens)


class ManyClients(Models):
    options = ("--queue", "8")

    def test_bits_and_order(self):
        """Texts of several clients join passes; each has the bits that it has alone."""
        words = [text.split() for text in ("hello world the bear", "a b c d e f g", "the panda", "q")]
        texts = [" ".join(words[i % 4] * (1 + i % 8)) for i in range(60)]
        expected = dict(zip(texts, self.embedded(texts)))

        def ask(i):
            own = [texts[(i * 7 + j * 3) % 60] for j in range(1 + i % 20)]
            while True:
                status, headers, data = self.server.ask("POST", EMBED, {"input": own})
                if status != 429:
                    break
                self.assertIn("Retry-After", headers)
                time.sleep(0.01)
            self.assertEqual(status, 200, data)
            self.assertEqual(vectors_of(data), [expected[text] for text in own])
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            list(pool.map(ask, range(120)))


class Leaving(Models):
    """With a model that is slow enough to be left."""

    name = TEXT_MODEL
    options = ("--pooling", "mean", "--queue", "2")
    LONG = {"input": [list(range(10, 1000))] * 2000}

    def idle(self):
        return self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] + metrics["llamacpp:requests_deferred"] == 0)

    def begin(self):
        connection = self.server.begin(EMBED, self.LONG)
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] > 0)
        return connection

    def test_a_client_that_leaves(self):
        before = self.server.metrics()["llamacpp:prompt_tokens_total"]
        connection = self.begin()
        short = {"input": "ROMEO:"}
        found = self.server.post(EMBED, short)  # while the other one waits
        self.assertEqual(self.server.metrics()["llamacpp:requests_processing"], 1)
        connection.close()
        self.idle()
        self.assertLess(self.server.metrics()["llamacpp:prompt_tokens_total"] - before, 990 * 2000)  # not all of it was computed
        self.assertEqual(self.server.post(EMBED, short), found)

    def test_a_full_queue(self):
        connections = [self.begin()]
        for _ in range(2):
            connections.append(self.server.begin(EMBED, self.LONG))
        status = None
        end = time.monotonic() + SECONDS
        while status != 429 and time.monotonic() < end:
            status, headers, _ = self.server.ask("POST", EMBED, {"input": "ROMEO:"})
        self.assertEqual((status, headers["Retry-After"]), (429, "2"))
        for connection in connections:
            connection.close()
        self.idle()
        self.server.post(EMBED, {"input": "ROMEO:"})

    def test_the_end(self):
        with Server(str(self.name), *self.options, "--drain-s", "0") as server:
            connection = server.begin(EMBED, self.LONG)
            server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] > 0)
            self.assertEqual(server.close(), 0)
            answer = connection.getresponse()
            self.assertEqual((answer.status, json.loads(answer.read())["error"]["message"]), (503, "the server is stopping"))
            connection.close()


class Poolings(Models):
    """A model that writes, asked for a vector of each token."""

    name = TEXT_MODEL
    options = ("--embeddings", "--pooling", "none", "-c", "64")

    def test_rows(self):
        self.refused(EMBED, {"input": "ROMEO:"}, 400, "model", "pooling none", "/embeddings")
        ids = self.server.post("/tokenize", {"content": "ROMEO:", "add_special": True})["tokens"]
        data = self.server.post("/embeddings", {"input": ["ROMEO:", "To be"]})
        rows = self.program("embed", TEXT_MODEL, "--pooling", "none", "-p", "ROMEO:", "-p", "To be")
        self.assertEqual(len(data[0]["embedding"]), len(ids))
        for one, expected in zip(data, rows, strict=True):
            self.assertEqual([as_float32(row) for row in one["embedding"]], [as_float32(row) for row in expected["embeddings"]])
        self.refused("/embeddings", {"input": "a", "dimensions": 8}, 400, "dimensions", "none")


class Ranks(Models):
    name = "minirank"

    def ranked(self, query, documents, *options):
        path = os.path.join(self.folder.name, "documents.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(documents))
        lines = self.program("rerank", self.paths["minirank"], "-q", query, "-f", path, "--json", *options)
        return [(line["index"], *as_float32([line["score"]])) for line in lines]

    def of(self, results, name):
        return [(one["index"], *as_float32([one[name]])) for one in results]

    def test_answer(self):
        body = {"query": "the panda", "documents": DOCUMENTS}
        expected = self.ranked("the panda", DOCUMENTS)
        self.assertEqual(sorted((score for _, score in expected), reverse=True), [score for _, score in expected])
        for path in (RANK, "/rerank", "/reranking", "/v1/reranking"):
            data = self.server.post(path, body)
            self.assertEqual(self.of(data["results"], "relevance_score"), expected)
            self.assertEqual((data["object"], data["model"]), ("list", "minirank"))
            self.assertEqual(set(data["results"][0]), {"index", "relevance_score"})
        tokens = sum(3 + len(self.server.post("/tokenize", {"content": "the panda " + text})["tokens"]) for text in DOCUMENTS)
        self.assertEqual(data["usage"], {"prompt_tokens": tokens, "total_tokens": tokens})
        self.assertEqual(self.of(self.server.post(RANK, {**body, "top_n": 2})["results"], "relevance_score"), expected[:2])
        self.assertEqual(self.of(self.server.post(RANK, {**body, "top_n": 99})["results"], "relevance_score"), expected)
        self.assertEqual(self.of(self.server.post(RANK, {**body, "raw_scores": True})["results"], "relevance_score"),
                         self.ranked("the panda", DOCUMENTS, "--raw-scores"))
        for field in ("return_documents", "return_text"):
            for one in self.server.post(RANK, {**body, field: True})["results"]:
                self.assertEqual(one["document"], {"text": DOCUMENTS[one["index"]]})

    def test_form_of_text_embeddings_inference(self):
        expected = self.ranked("the panda", DOCUMENTS)
        data = self.server.post("/rerank", {"query": "the panda", "texts": DOCUMENTS})
        self.assertEqual(self.of(data, "score"), expected)
        self.assertEqual(set(data[0]), {"index", "score"})
        for one in self.server.post("/rerank", {"query": "the panda", "texts": DOCUMENTS, "return_text": True}):
            self.assertEqual(one["text"], DOCUMENTS[one["index"]])

    def test_wrong_fields(self):
        good = {"query": "a", "documents": ["b"]}
        for value in (None, 5, [], {}):
            self.refused(RANK, {**good, "query": value}, 400, "query")
        self.refused(RANK, {**good, "query": ""}, 400, "query", "empty")
        for value in (None, [], "b", 5, [5], [None], [["b"]], [{"text": "b"}], ["b", 5], ["b", ""], ["b"] * 2049):
            self.refused(RANK, {**good, "documents": value}, 400, "documents")
            self.refused(RANK, {"query": "a", "texts": value}, 400, "documents" if value is None else "texts")
        for value in (0, -1, 1.5, "2", []):
            self.refused(RANK, {**good, "top_n": value}, 400, "top_n")
        for field in ("raw_scores", "return_documents", "return_text", "truncate"):
            self.refused(RANK, {**good, field: 1}, 400, field)
        error = self.refused(RANK, {**good, "documents": ["b", "hello " * 100]}, 400, "documents", "documents[1]", str(CONTEXT))
        self.assertEqual(error["code"], "context_length_exceeded")
        self.server.post(RANK, {**good, "documents": ["b", "hello " * 100], "truncate": True})

    def test_texts_stay_texts(self):
        """Control tokens and places of templates in a query or a document are letters."""
        data = self.server.post(RANK, {"query": "[SEP]", "documents": ["[CLS] a", "{document}"]})
        plain = self.server.post(RANK, {"query": "[ SEP ]", "documents": ["[ CLS ] a", "{document}"]})
        self.assertEqual((data["results"], data["usage"]), (plain["results"], plain["usage"]))

    def test_what_else_there_is(self):
        for path, body in ((EMBED, {"input": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
            self.refused(path, body, 501, "model", "ranks documents", RANK)
        self.assertEqual(self.server.ask("GET", "/props")[2]["pooling"], "rank")

    def test_labels(self):
        with Server(str(self.paths["minilabels"])) as server:
            error = server.post(RANK, {"query": "a", "documents": ["b"]}, 400)["error"]
            self.assertIn("3 labels", error["message"])


class SideBySide(Models):
    """Chat models, embedding models and rerankers of one folder."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        models = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models")
        shutil.copy(os.path.join(models, CHAT_MODEL, CHAT_MODEL + ".gguf"), cls.folder.name)

    def serve(self, *options):
        server = Server("--models=" + self.folder.name, "--parallel", "2", "-c", "256", *options)
        self.addCleanup(server.close)
        return server

    def states(self, server):
        return {one["id"]: one["status"]["value"] for one in server.ask("GET", "/v1/models")[2]["data"]}

    def test_by_name(self):
        server = self.serve()
        chat = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0, "max_tokens": 20}
        said = server.post("/v1/chat/completions", chat)["choices"]
        found = server.post(EMBED, {"model": "minibert", "input": TEXTS})
        self.assertEqual(vectors_of(found), self.embedded(TEXTS))
        self.assertEqual(server.post(RANK, {"model": "minirank", "query": "a", "documents": ["b"]})["results"][0]["index"], 0)
        self.assertEqual(server.post("/v1/chat/completions", chat)["choices"][0]["message"], said[0]["message"])
        self.assertEqual(self.states(server), {"dialogue": "loaded", "minibert": "loaded", "minirank": "loaded", "minilabels": "unloaded"})
        error = server.post(EMBED, {"model": CHAT_MODEL, "input": "a"}, 501)["error"]
        self.assertIn("--pooling", error["message"])
        self.assertEqual(server.post("/v1/chat/completions", {**chat, "model": "minibert"}, 501)["error"]["param"], "model")
        server.post("/models/unload", {"model": "minibert"})
        server.wait_until(lambda _: self.states(server)["minibert"] == "unloaded")
        self.assertEqual(server.post(EMBED, {"model": "minibert", "input": TEXTS})["data"], found["data"])

    def test_streams_go_on(self):
        """While one client's vectors are made, a stream of another model gets its tokens."""
        server = self.serve()
        chat = {"model": CHAT_MODEL, "prompt": "What", "temperature": 0, "max_tokens": 200, "ignore_eos": True, "stream": True}
        alone = [event["choices"][0]["text"] for event in server.events("/v1/completions", chat) if event["choices"]]
        server_done = []

        def embed():
            while not server_done:
                server.post(EMBED, {"model": "minibert", "input": ["hello " * 60] * 500})
            return True
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            running = [pool.submit(embed) for _ in range(2)]
            try:
                texts = [event["choices"][0]["text"] for event in server.events("/v1/completions", chat) if event["choices"]]
            finally:
                server_done.append(True)
            self.assertTrue(all(one.result(SECONDS) for one in running))
        self.assertEqual(texts, alone)

    def test_memory(self):
        """The plans of embedding models count: one that cannot fit says so, and one that leaves makes room."""
        server = self.serve("--memory-max", "512KiB")
        error = server.post(EMBED, {"model": "minibert", "input": "a"}, 400)["error"]
        self.assertIn("it needs", error["message"])
        rank = {"query": "a", "documents": ["b"], "model": "minirank"}
        server = self.serve()
        server.post(EMBED, {"model": "minibert", "input": "a"})
        one = server.metrics()["kvant_models_bytes"]
        server.post(RANK, rank)
        both = server.metrics()["kvant_models_bytes"]
        self.assertGreater(both, one)
        server = self.serve("--memory-max", "%dK" % (both // 1024 - 1))
        server.post(EMBED, {"model": "minibert", "input": "a"})
        self.assertEqual(server.metrics()["kvant_models_bytes"], one)
        server.post(RANK, rank)
        self.assertEqual(self.states(server)["minibert"], "unloaded")
        self.assertEqual(server.metrics()["kvant_models_bytes"], both - one)


class Options(Models):
    def start(self, *arguments):
        code, out, error = run_kvant("serve", *map(str, arguments), "--port", "0")
        return code, out + error

    def test_refused(self):
        for arguments, words in (((TEXT_MODEL, "--embeddings"), "--pooling"), ((TEXT_MODEL, "--reranking"), "classifier"),
                                 ((TEXT_MODEL, "--pooling", "sum"), "none, mean, cls, last or rank"),
                                 (("--models=" + self.folder.name, "--pooling", "mean"), "--models"),
                                 ((self.paths["minirank"], "--reranking", "--pooling", "mean"), "--reranking"),
                                 ((self.paths["minibert"], "-c", "65"), "64 positions")):
            code, text = self.start(*arguments)
            self.assertIn(code, (1, 2))
            self.assertIn(words, text)

    def test_pooling_of_the_command(self):
        with Server(str(self.paths["minibert"]), "--pooling", "cls") as server:
            self.assertEqual(vectors_of(server.post(EMBED, {"input": TEXTS})), self.embedded(TEXTS, "--pooling", "cls"))
        with Server(str(self.paths["minirank"]), "--reranking") as server:
            server.post(RANK, {"query": "a", "documents": ["b"]})
        with Server(TEXT_MODEL, "--embeddings", "--pooling", "last") as server:
            self.assertEqual(len(server.post(EMBED, {"input": "ROMEO:"})["data"][0]["embedding"]), 256)




if __name__ == "__main__":
    unittest.main()
