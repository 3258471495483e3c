"""Several models of a folder: their names, what is loaded, who waits, and files that are wrong."""
import concurrent.futures
import os
import random
import shutil
import signal
import tempfile
import threading
import unittest

from common import SECONDS, Server, run_kvant

TEXTS = "/v1/completions"
MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models")
NAMES = ("shakespeare", "dialogue", "qwen35-tiny")
# With these a plan is of about 12, 7 and 8 MB.
SMALL = ("--parallel", "2", "-c", "256")
# With these kernels a text of hundreds of tokens is under way for many seconds, in which a test can do what it has to.
SLOW = {"KVANT_ISA": "scalar"}


def source(name):
    return os.path.join(MODELS, name, name + ".gguf")


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        shutil.copy(source("shakespeare"), self.path("shakespeare.gguf"))
        os.mkdir(self.path("dialogue"))
        shutil.copy(source("dialogue"), self.path("dialogue/dialogue.gguf"))
        os.symlink(os.path.abspath(source("qwen35-tiny")), self.path("qwen35-tiny.gguf"))

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def serve(self, *options, environment=None):
        server = Server("--models=" + self.folder.name, *SMALL, *options, environment=environment)
        self.addCleanup(server.close)
        return server

    def states(self, server):
        return {one["id"]: one["status"]["value"] for one in server.ask("GET", "/v1/models")[2]["data"]}

    def wait_for(self, server, name, state):
        server.wait_until(lambda _: self.states(server)[name] == state)

    def body(self, name, tokens=12, **further):
        return {"model": name, "prompt": "KING:", "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **further}

    def alone(self, name, tokens=12, prompt="KING:", environment=None):
        code, out, error = run_kvant("run", source(name), "-p", prompt, "-n", str(tokens), "--temp", "0", "--ignore-eos", "-q", "-c", "256",
                                     environment=environment)
        self.assertEqual(code, 0, error)
        return out

    def check_text(self, data, name, tokens=12, **further):
        self.assertEqual(data["model"], name)
        self.assertEqual(data["choices"][0]["text"].strip(), self.alone(name, tokens, **further).strip())

    def test_names(self):
        with open(self.path("notes.txt"), "w", encoding="utf-8") as file:
            file.write("none")
        os.mkdir(self.path("other"))
        shutil.copy(source("dialogue"), self.path("other/else.gguf"))  # not the name of its folder
        server = self.serve()
        self.assertEqual(self.states(server), {name: "unloaded" for name in NAMES})
        for name in NAMES:
            self.check_text(server.post(TEXTS, self.body(name)), name)
        self.assertEqual(self.states(server), {name: "loaded" for name in NAMES})
        entry = server.ask("GET", "/v1/models/dialogue")[2]
        self.assertEqual((entry["id"], entry["max_model_len"], entry["status"]), ("dialogue", 256, {"value": "loaded"}))
        self.assertEqual(server.ask("GET", "/v1/models/none")[0], 404)
        error = server.post(TEXTS, self.body("none"), 404)["error"]
        self.assertEqual((error["param"], error["code"]), ("model", "model_not_found"))
        for name in NAMES:
            self.assertIn(name, error["message"])
        error = server.post(TEXTS, {"prompt": "a"}, 400)["error"]
        self.assertEqual(error["param"], "model")
        self.assertIn("dialogue, qwen35-tiny, shakespeare", error["message"])
        for value in (1, [], ""):
            server.post(TEXTS, {"prompt": "a", "model": value}, 400)
        server.post(TEXTS, "{", 400)
        # A file that comes later is there, too.
        shutil.copy(source("dialogue"), self.path("new.gguf"))
        self.check_text({**server.post(TEXTS, self.body("new")), "model": "dialogue"}, "dialogue")
        self.assertIn("new", self.states(server))

    def test_other_endpoints(self):
        server = self.serve()
        chat = {"model": "dialogue", "messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0}
        self.assertIn("5", server.post("/v1/chat/completions", chat)["choices"][0]["message"]["content"])
        self.assertEqual(server.ask("GET", "/props?model=shakespeare")[2]["model_alias"], "shakespeare")
        self.assertEqual(len(server.ask("GET", "/slots?model=qwen35-tiny")[2]), 2)
        self.assertEqual(server.ask("GET", "/props")[0], 400)
        one, two = (server.post("/tokenize", {"model": name, "content": "Hello there"})["tokens"] for name in ("dialogue", "shakespeare"))
        self.assertNotEqual(one, two)
        # An error has the form of the interface.
        message = {"model": "none", "max_tokens": 5, "messages": chat["messages"]}
        error = server.post("/v1/messages", message, 404)
        self.assertEqual((error["type"], error["error"]["type"]), ("error", "not_found_error"))
        self.assertEqual(server.post("/v1/messages", {**message, "model": "dialogue"})["model"], "dialogue")
        self.assertEqual(server.ask("GET", "/health")[0], 200)
        self.assertEqual(server.metrics()["kvant_models_loaded"], 3)

    def test_wrong_files(self):
        """A file that cannot be served is an error of its own requests."""
        with open(self.path("broken.gguf"), "wb") as file:
            file.write(b"GGUF\3\0\0\0 and no more")
        with open(source("shakespeare"), "rb") as file, open(self.path("cut.gguf"), "wb") as out:
            out.write(file.read()[:100000])
        shutil.copy(source("number-words"), self.path("translator.gguf"))
        server = self.serve()
        for name, status in (("broken", 400), ("cut", 400), ("translator", 501)):
            for _ in range(2):
                error = server.post(TEXTS, self.body(name), status)["error"]
                self.assertEqual(error["param"], "model")
                self.assertIn(name, error["message"])
            entry = server.ask("GET", "/v1/models/" + name)[2]
            self.assertEqual((entry["status"]["value"], entry["status"]["failed"]), ("unloaded", True))
        self.check_text(server.post(TEXTS, self.body("shakespeare")), "shakespeare")
        # One that is put right is served.
        shutil.copy(source("dialogue"), self.path("broken.gguf"))
        server.post(TEXTS, self.body("broken"))

    def test_room(self):
        """The model that was used least recently goes, and only as many are loaded as there is room for."""
        server = self.serve("--memory-max", "16MiB")
        for name in ("dialogue", "qwen35-tiny", "dialogue", "shakespeare"):
            self.check_text(server.post(TEXTS, self.body(name)), name)
            self.assertLessEqual(server.metrics()["kvant_models_bytes"], 16 << 20)
        self.assertEqual(self.states(server)["shakespeare"], "loaded")
        self.assertEqual(self.states(server)["qwen35-tiny"], "unloaded")
        server.wait_until(lambda metrics: metrics["kvant_texts_ended_total"] == 4)  # those of models that have gone count on

    def test_what_never_fits(self):
        server = self.serve("--memory-max", "8MiB")
        error = server.post(TEXTS, self.body("shakespeare"), 400)["error"]
        self.assertEqual(error["param"], "model")
        self.assertIn("--memory-max", error["message"])
        self.assertIn("8.00 MiB", error["message"])
        self.check_text(server.post(TEXTS, self.body("dialogue")), "dialogue")

    def test_nobody_is_ended_for_others(self):
        """A request for another model waits until there is room, and later ones for the first model wait behind it."""
        server = self.serve("--memory-max", "20MiB", "-c", "3200", environment=SLOW)
        prompt = "KING: my lord, " * 20  # several blocks of the KV cache
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            first = threads.submit(server.post, TEXTS, self.body("shakespeare", 300, prompt=prompt))
            server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 1)
            self.assertEqual(self.states(server)["shakespeare"], "loaded")
            other = threads.submit(server.post, TEXTS, self.body("dialogue"))
            # It has to leave for the other one, and takes no requests from then on.
            server.wait_until(lambda _: self.states(server)["shakespeare"] != "loaded")
            again = threads.submit(server.post, TEXTS, self.body("shakespeare", prompt=prompt))
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            usage = first.result()["usage"]
            self.assertEqual((usage["completion_tokens"], usage["prompt_tokens"] > 64), (300, True))
            self.check_text(other.result(), "dialogue", environment=SLOW)
            self.check_text(again.result(), "shakespeare", prompt=prompt, environment=SLOW)
        # What was loaded anew knows nothing of the prompt.
        self.assertEqual(again.result()["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        known = server.post(TEXTS, self.body("shakespeare", prompt=prompt))["usage"]
        self.assertGreaterEqual(known["prompt_tokens_details"]["cached_tokens"], 32)

    def test_what_leaves_is_shown_as_unloading(self):
        server = self.serve("-c", "3200", environment=SLOW)
        stream = server.events(TEXTS, self.body("dialogue", 300))
        next(stream)
        server.post("/models/unload", {"model": "dialogue"})
        self.assertIn(self.states(server)["dialogue"], ("unloading", "unloaded"))
        # A request that comes then is served once it is loaded again, and the text that was there ends as it would have.
        self.check_text(server.post(TEXTS, self.body("dialogue")), "dialogue", environment=SLOW)
        self.assertEqual(list(stream)[-1]["choices"][0]["finish_reason"], "length")

    def test_load_and_unload(self):
        server = self.serve()
        self.assertEqual(server.post("/models/load", {"model": "dialogue"}), {"success": True})
        self.wait_for(server, "dialogue", "loaded")
        self.assertIn("already", server.post("/models/load", {"model": "dialogue"}, 400)["error"]["message"])
        self.assertEqual(server.post("/models/unload", {"model": "dialogue"}), {"success": True})
        self.wait_for(server, "dialogue", "unloaded")
        server.post("/models/unload", {"model": "dialogue"}, 400)
        for path in ("/models/load", "/models/unload"):
            server.post(path, {"model": "none"}, 404)
            for body in ({}, {"model": 1}, {"model": ""}):
                server.post(path, body, 400)
        # A text that is under way ends first.
        stream = server.events(TEXTS, {**self.body("dialogue", 200)})
        next(stream)
        server.post("/models/unload", {"model": "dialogue"})
        self.assertEqual(list(stream)[-1]["choices"][0]["finish_reason"], "length")
        self.wait_for(server, "dialogue", "unloaded")
        with Server("dialogue") as one:
            one.post("/models/load", {"model": "dialogue"}, 400)
            one.post("/models/unload", {"model": "dialogue"}, 400)

    def test_many_at_once(self):
        """Random requests of many clients, with room for two models at most: the texts are those that each model makes alone."""
        server = self.serve("--memory-max", "16MiB", "--queue", "100")
        expected = {name: self.alone(name, 8).strip() for name in NAMES}
        chance = random.Random(3)
        stop, most = threading.Event(), []

        def watch():
            while not stop.is_set():
                most.append(server.metrics()["kvant_models_bytes"])

        def ask(name):
            return name, server.post(TEXTS, self.body(name, 8))["choices"][0]["text"].strip()
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                for name, text in threads.map(ask, [chance.choice(NAMES) for _ in range(60)]):
                    self.assertEqual(text, expected[name])
        finally:
            stop.set()
            watcher.join()
        self.assertLessEqual(max(most), 16 << 20)
        server.wait_until(lambda metrics: metrics["kvant_texts_ended_total"] == 60)

    def test_ends_while_somebody_waits(self):
        """Also where the end comes while the file of the next model is being opened, which takes no long: it is tried often."""
        for _ in range(12):
            server = self.serve("--memory-max", "20MiB", "-c", "3200", "--drain-s", "0", environment=SLOW)
            with concurrent.futures.ThreadPoolExecutor(2) as threads:
                first = threads.submit(server.ask, "POST", TEXTS, self.body("shakespeare", -1))
                server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 1)
                second = threads.submit(server.ask, "POST", TEXTS, self.body("dialogue"))
                while self.states(server)["dialogue"] != "loading":
                    pass
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(server.process.wait(SECONDS / 2), 0)
                self.assertEqual((first.result()[0], second.result()[0]), (503, 503))

    def test_shards(self):
        code, _, error = run_kvant("split", source("dialogue"), self.path("parts"), "--max-tensors", "20")
        self.assertEqual(code, 0, error)
        server = self.serve()
        self.assertIn("parts", self.states(server))
        self.assertFalse([name for name in self.states(server) if "-of-" in name])
        self.check_text({**server.post(TEXTS, self.body("parts")), "model": "dialogue"}, "dialogue")

    def test_options(self):
        with tempfile.TemporaryDirectory() as empty:
            for options, code, text in ((("--models", "/nowhere"), 1, "/nowhere"), (("--models", empty), 1, "no GGUF files"),
                                        (("dialogue", "--models", self.folder.name), 2, "--models"),
                                        (("--models", self.folder.name, "--alias", "a"), 2, "--alias"),
                                        (("--models", self.folder.name, "--memory-max", "x"), 2, "--memory-max")):
                found, out, error = run_kvant("serve", *options)
                self.assertEqual((found, out), (code, ""), error)
                self.assertIn(text, error)


if __name__ == "__main__":
    unittest.main()
