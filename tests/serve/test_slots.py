"""Slots: which text they know, how they are saved and brought back, and the names of their files."""
import contextlib
import http.client
import json
import os
import random
import shutil
import tempfile
import threading
import time
import unittest

from common import CHAT_MODEL, TEXT_MODEL, Server, run_kvant

TEXTS = "/v1/completions"
PROMPT = ("Now is the winter of our discontent made glorious summer by this sun of York. " * 6)[:400]


class Slots(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def serve(self, model=TEXT_MODEL, *options):
        server = Server(model, "--parallel", "3", "--slot-save-path", self.folder.name, *options)
        self.addCleanup(server.close)
        return server

    def act(self, server, slot, action, name=None, status=200):
        return server.post("/slots/%s?action=%s" % (slot, action), {} if name is None else {"filename": name}, status)

    def check_restored(self, model, *options):
        """What one server has saved another one need not compute again, and it goes on in the same way."""
        body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0, "ignore_eos": True, "id_slot": 1}
        first = self.serve(model, *options)
        text = first.post(TEXTS, body)
        count = text["usage"]["prompt_tokens"] + 19  # the last token is not processed
        self.assertEqual(first.ask("GET", "/slots")[2][1]["n_prompt_tokens"], count)
        saved = self.act(first, 1, "save", "a.bin")
        self.assertEqual((saved["id_slot"], saved["filename"], saved["n_saved"]), (1, "a.bin", count))
        self.assertEqual(saved["n_written"], os.path.getsize(self.path("a.bin")))
        self.assertEqual(os.listdir(self.folder.name), ["a.bin"])  # nothing else is left there
        first.close()
        second = self.serve(model, *options)
        restored = self.act(second, 2, "restore", "a.bin")
        self.assertEqual((restored["id_slot"], restored["n_restored"], restored["n_read"]), (2, count, saved["n_written"]))
        self.assertEqual(second.ask("GET", "/slots")[2][2]["n_prompt_tokens"], count)
        # The whole text is known in blocks of 32 tokens, what was generated included.
        whole = {**body, "prompt": PROMPT + text["choices"][0]["text"], "max_tokens": 1}
        data = second.post(TEXTS, whole)
        known = (count - 1) // 32 * 32
        self.assertGreaterEqual(data["usage"]["prompt_tokens_details"]["cached_tokens"], known - 32)
        self.assertGreater(data["usage"]["prompt_tokens_details"]["cached_tokens"], 64)
        again = second.post(TEXTS, body)
        self.assertEqual(again["choices"][0]["text"], text["choices"][0]["text"])
        # A restored slot can be saved again.
        self.act(second, 2, "restore", "a.bin")
        self.assertEqual(self.act(second, 2, "save", "b.bin")["n_saved"], count)
        return second

    def test_saved_and_restored(self):
        self.check_restored(TEXT_MODEL)

    def test_with_int8_and_strict(self):
        self.check_restored(TEXT_MODEL, "--kv-type", "q8", "--strict")

    def test_recurrent(self):
        self.check_restored("qwen35-tiny")

    def test_files_are_sessions(self):
        """`kvant run --session` goes on where the slot ended."""
        server = self.serve()
        text = server.post("/completion", {"prompt": "ROMEO:", "n_predict": 10, "temperature": 0, "ignore_eos": True, "id_slot": 0})
        self.act(server, 0, "save", "a.session")
        longer = server.post("/completion", {"prompt": "ROMEO:", "n_predict": 20, "temperature": 0, "ignore_eos": True})["content"]
        context = str(server.ask("GET", "/props")[2]["default_generation_settings"]["n_ctx"])
        code, out, error = run_kvant("run", TEXT_MODEL, "--session", self.path("a.session"), "-n", "11", "--temp", "0", "--ignore-eos", "-q",
                                     "-c", context, "--json")
        self.assertEqual(code, 0, error)
        self.assertEqual(text["content"], longer[:len(text["content"])])
        # The session has all tokens but the last one.
        self.assertTrue(longer.endswith(json.loads(out)["text"]), (longer, out))

    def test_slots_of_texts(self):
        server = self.serve()
        self.assertEqual([slot["n_prompt_tokens"] for slot in server.ask("GET", "/slots")[2]], [0, 0, 0])
        used = [server.post("/completion", {"prompt": "a", "n_predict": 2})["id_slot"] for _ in range(4)]
        self.assertEqual(sorted(used[:3]), [0, 1, 2])  # the one that was used least recently is next
        self.assertEqual(used[3], used[0])
        erased = self.act(server, used[0], "erase")
        self.assertEqual(erased, {"id_slot": used[0], "n_erased": 3})
        self.assertIn("no text", self.act(server, used[0], "save", "a", 400)["error"]["message"])

    def test_what_they_show(self):
        """What clients of llama-server read of a slot: how far its newest text is or was, and what it was asked to be."""
        server = self.serve(TEXT_MODEL, "-c", "200000")
        keys = {"id", "n_ctx", "speculative", "is_processing", "n_prompt_tokens"}
        self.assertEqual([set(slot) for slot in server.ask("GET", "/slots")[2]], [keys] * 3)
        body = {"prompt": PROMPT, "n_predict": 12, "temperature": 0.5, "seed": 7, "ignore_eos": True, "id_slot": 1, "stop": ["never to be shown"]}
        for task in range(2):
            data = server.post("/completion", body)
            slot = server.ask("GET", "/slots")[2][1]
            count = data["tokens_evaluated"]
            self.assertEqual(set(slot), {*keys, "id_task", "n_prompt_tokens_processed", "n_prompt_tokens_cache", "params", "next_token"})
            self.assertEqual((slot["id"], slot["id_task"], slot["n_ctx"], slot["is_processing"]), (1, task, 200000, False))
            self.assertEqual((slot["n_prompt_tokens"], slot["n_prompt_tokens_cache"]), (count + 11, data["timings"]["cache_n"]))
            self.assertEqual(slot["n_prompt_tokens_cache"] + slot["n_prompt_tokens_processed"], count)
            self.assertEqual(slot["next_token"], [{"has_next_token": False, "has_new_line": False, "n_remain": -1, "n_decoded": 0}])
            expected = {name: value for name, value in data["generation_settings"].items()
                        if name not in ("stop", "grammar", "logit_bias", "dry_sequence_breakers")}
            self.assertEqual(slot["params"], expected)
            self.assertNotIn("never to be shown", json.dumps(slot))
        self.assertGreaterEqual(slot["n_prompt_tokens_cache"], 64)
        self.assertNotIn("params", server.ask("GET", "/slots")[2][0])
        # While a text is made its numbers rise, and nobody has to wait for them.
        connection = server.begin("/v1/completions", {"prompt": "ROMEO:", "max_tokens": -1, "ignore_eos": True, "id_slot": 0})
        seen = []

        def rises(_):
            slot = server.ask("GET", "/slots")[2][0]
            if slot["is_processing"] and slot["next_token"][0]["n_decoded"] > (seen[-1]["next_token"][0]["n_decoded"] if seen else 0):
                seen.append(slot)
            return len(seen) == 3
        server.wait_until(rises)
        self.assertEqual({slot["id_task"] for slot in seen}, {2})
        for slot in seen:
            token = slot["next_token"][0]
            self.assertEqual((token["has_next_token"], token["n_remain"], slot["params"]["n_predict"], slot["params"]["seed"]), (True, -1, -1, -1))
            self.assertEqual(slot["n_prompt_tokens"] - token["n_decoded"], slot["n_prompt_tokens_processed"] + slot["n_prompt_tokens_cache"])
        connection.close()

    def test_what_is_refused(self):
        server = self.serve()
        server.post("/completion", {"prompt": "a", "n_predict": 2, "id_slot": 0})
        for slot in ("3", "-1", "x", "", "1x", "99999999999999999999"):
            self.act(server, slot, "save", "a", 404)
        for query in ("", "?action=", "?action=move", "?x=save"):
            self.assertEqual(server.post("/slots/0" + query, {"filename": "a"}, 400)["error"]["param"], "action")
        for body in ({}, {"filename": None}, {"filename": 1}, [], "x"):
            server.post("/slots/0?action=save", json.dumps(body), 400)
        self.assertEqual(server.ask("GET", "/slots/0")[0], 405)

    def test_names(self):
        """A name leads to a regular file of the folder, or nowhere."""
        server = self.serve()
        server.post("/completion", {"prompt": "a", "n_predict": 2, "id_slot": 0})
        outside = tempfile.NamedTemporaryFile()
        self.addCleanup(outside.close)
        os.symlink(outside.name, self.path("link"))
        os.symlink("none", self.path("broken"))
        os.mkfifo(self.path("pipe"))
        os.mkdir(self.path("folder"))
        os.symlink("/dev/null", self.path("device"))
        for name in ("", ".", "..", "...", "../a", "/a", "a/b", "folder/a", "a\\b", "a\0b", "a b", "a" * 65, "\uff0e\uff0e", "\u00e4", "%2e%2e", "a\n", "~",
                     "link", "broken", "pipe", "folder", "device"):
            for action in ("save", "restore"):
                data = self.act(server, 0, action, name, 400)
                self.assertEqual(data["error"]["param"], "filename", name)
        self.assertEqual(os.path.getsize(outside.name), 0)
        self.act(server, 0, "restore", "none", 404)
        self.act(server, 0, "save", "a" * 64)
        self.act(server, 0, "save", ".a-B_9")
        self.assertEqual(set(os.listdir(self.folder.name)), {"link", "broken", "pipe", "folder", "device", "a" * 64, ".a-B_9"})
        # The folder is the one that was there at the beginning.
        moved = self.folder.name + "-moved"
        os.rename(self.folder.name, moved)
        self.addCleanup(shutil.rmtree, moved)
        os.mkdir(self.folder.name)
        self.act(server, 0, "save", "late")
        self.assertEqual((os.listdir(self.folder.name), os.path.exists(os.path.join(moved, "late"))), ([], True))

    def test_damaged_and_foreign_files(self):
        server = self.serve()
        server.post(TEXTS, {"prompt": PROMPT, "max_tokens": 2, "id_slot": 0})
        size = self.act(server, 0, "save", "good")["n_written"]
        before = server.ask("GET", "/slots")[2]
        with open(self.path("good"), "rb") as file:
            good = file.read()
        for name, data in (("empty", b""), ("short", good[:size // 2]), ("text", b"hello" * 100), ("flipped", good[:size // 2] + b"\xff\x00\xff" + good[size // 2 + 3:])):
            with open(self.path(name), "wb") as file:
                file.write(data)
            error = self.act(server, 1, "restore", name, 400)["error"]
            self.assertIn(name, error["message"])
            self.assertNotIn("/proc", error["message"])
        shutil.copy(self.path("good"), self.path("other-type"))
        with Server(TEXT_MODEL, "--kv-type", "q8", "--slot-save-path", self.folder.name) as other:
            self.act(other, 0, "restore", "good", 400)
        with Server(CHAT_MODEL, "--slot-save-path", self.folder.name) as other:
            self.assertIn("another model", self.act(other, 0, "restore", "good", 400)["error"]["message"])
            self.assertEqual(other.metrics()["kvant_texts_failed_total"], 0)
        self.assertEqual(server.ask("GET", "/slots")[2], before)
        self.act(server, 1, "restore", "good")

    def test_a_server_that_is_killed_leaves_no_half_file(self):
        """Wherever it was: the files that are there are whole, and nothing else is."""
        chance = random.Random(4)
        expected = None
        for turn in range(6):
            server = self.serve()
            server.post(TEXTS, {"prompt": PROMPT, "max_tokens": 2, "temperature": 0, "id_slot": 0})

            def save():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    for number in range(10 ** 6):
                        server.post("/slots/0?action=save", {"filename": "file%d" % (number % 3)})
            thread = threading.Thread(target=save)
            thread.start()
            while not os.listdir(self.folder.name):
                time.sleep(0.001)
            time.sleep(chance.random() * 0.05)
            server.process.kill()
            thread.join()
            server.process.wait()
            # While a file takes the place of another one it has a name of its own for a moment.
            names = [name for name in os.listdir(self.folder.name) if ".kvant-" not in name]
            self.assertTrue(names)
            self.assertLessEqual(set(names), {"file0", "file1", "file2"})
            with self.serve() as other:
                for name in names:
                    count = self.act(other, 1, "restore", name)["n_restored"]
                    expected = expected or count
                    self.assertEqual(count, expected, (turn, name))

    def test_without_the_option(self):
        with Server(TEXT_MODEL) as server:
            for action in ("save", "restore", "erase"):
                self.assertIn("--slot-save-path", self.act(server, 0, action, "a", 501)["error"]["message"])
        server = self.serve(TEXT_MODEL, "--no-cache-prompt")
        server.post(TEXTS, {"prompt": "a", "max_tokens": 2, "id_slot": 0})
        self.act(server, 0, "save", "a")
        self.assertIn("--no-cache-prompt", self.act(server, 0, "restore", "a", 501)["error"]["message"])
        code, _, error = run_kvant("serve", TEXT_MODEL, "--slot-save-path", "/nowhere")
        self.assertEqual(code, 1)
        self.assertIn("--slot-save-path", error)
        self.assertIn("/nowhere", error)


if __name__ == "__main__":
    unittest.main()
