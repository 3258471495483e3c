"""Clients that read slowly or not at all: what is kept for them, and when they are left."""
import json
import os
import socket
import tempfile
import time
import unittest

from common import ENDLESS, LONG, SECONDS, TEXT_MODEL, Server

TEXTS = "/v1/completions"
MIB = 1 << 20


class SlowReaders(unittest.TestCase):
    """Clients that read slowly, over a socket whose buffers are small."""

    def ask(self, path, body):
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        client.settimeout(SECONDS)
        client.connect(path)
        text = json.dumps(body)
        client.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
                        % (len(text), text)).encode())
        return client

    # About 700 kB: more than the socket holds, and less than the server keeps.
    BODY = {**ENDLESS, "max_tokens": 2500, "stream": True}

    def test_one_that_reads_nothing(self):
        """As much of its answer is kept as the limit says, whatever comes further; others are answered meanwhile."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.sock")
            with Server(TEXT_MODEL, "--no-cache-prompt", *LONG, host="127.0.0.1," + path) as server:
                server.post(TEXTS, {**ENDLESS, "max_tokens": 8000})  # then a text of so many tokens needs no more memory
                before = server.peak()
                server.forget_peak()
                client = self.ask(path, {**ENDLESS, "stream": True})
                self.assertTrue(server.post(TEXTS, {"prompt": "a", "max_tokens": 5})["choices"])
                metrics = server.wait_until(lambda metrics: metrics["kvant_texts_cancelled_total"] == 1)
                self.assertLess(metrics["llamacpp:tokens_predicted_total"], 16000)
                client.close()
                if server.has_own_memory():
                    self.assertLess(server.peak(), before + 4 * MIB)

    def test_they_are_left_in_time(self):
        """Whether the text has ended or goes on; a byte now and then does not keep it."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.sock")
            with Server(TEXT_MODEL, "--write-timeout", "2", *LONG, host="127.0.0.1," + path) as server:
                for number, (reads, body) in enumerate(((False, self.BODY), (False, {**ENDLESS, "stream": True}),
                                                        (True, self.BODY), (True, {**ENDLESS, "stream": True})), 1):
                    end = time.monotonic() + 45  # without the option it would take a minute
                    client = self.ask(path, body)
                    server.wait_until(lambda metrics: metrics["kvant_texts_submitted_total"] == number)
                    while server.metrics()["kvant_connections"] > 1:
                        self.assertLess(time.monotonic(), end)
                        if reads:
                            client.recv(1)  # the connection is there as long as there is something to read
                        time.sleep(0.3)
                    server.wait_until(lambda metrics: metrics["kvant_texts_ended_total"] == number)

    def test_one_that_reads_on_gets_all(self):
        """However long it takes: many times the limit of a write, which it never reaches."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.sock")
            with Server(TEXT_MODEL, "--write-timeout", "8", *LONG, host="127.0.0.1," + path) as server:
                client = self.ask(path, self.BODY)
                start = time.monotonic()
                answer = b""
                while piece := client.recv(8192):
                    answer += piece
                    time.sleep(0.15)
                self.assertTrue(answer.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), answer[-200:])
                self.assertGreater(time.monotonic() - start, 8)
                self.assertEqual(server.metrics()["kvant_texts_cancelled_total"], 0)


if __name__ == "__main__":
    unittest.main()
