"""Clients that are slow or send too much: what they cost the server, and that others are served meanwhile."""
import http.client
import json
import resource
import select
import signal
import time
import unittest

from common import ENDLESS, LONG, SECONDS, TEXT_MODEL, Server, ServerCase, answers_in, leave, read_all

TEXTS = "/v1/completions"
MIB = 1 << 20


class Memory(ServerCase):
    """Requests that are too large are refused without being kept."""
    model = TEXT_MODEL
    options = ("--body-max", "1MiB")

    def refuse(self, pieces, status):
        """Sends pieces until the server takes no more of them."""
        with self.server.connect() as client:
            try:
                for piece in pieces:
                    client.sendall(piece)
            except OSError:
                pass
            self.assertEqual([line.split()[1] for line in answers_in(read_all(client))], [status])

    def test_what_is_too_large(self):
        self.assertEqual(self.server.ask("POST", "/tokenize", {"content": "a" * 1000})[0], 200)
        post, get = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
        data = b"a" * MIB
        before = self.server.peak()
        self.server.forget_peak()
        self.refuse([post + b"Content-Length: %d\r\n\r\n" % (64 * MIB), *[data] * 64], b"413")
        self.refuse([post + b"Transfer-Encoding: chunked\r\n\r\n", *[b"100000\r\n" + data + b"\r\n"] * 64], b"413")
        self.refuse([post + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\na\r\n" * 100000] * 16], b"413")
        self.refuse([get + b"X: ", *[data] * 64], b"431")
        self.refuse([get + b"Authorization: Bearer ", *[data] * 10, b"\r\n\r\n"], b"431")
        self.refuse([get, *[b"X: a\r\n" * 1000] * 64], b"431")
        self.refuse([b"GET /", *[data] * 64], b"414")
        if self.server.has_own_memory():
            self.assertLess(self.server.peak(), before + 4 * MIB)


class Crowds(unittest.TestCase):
    """More clients than there may be, all of them slow."""

    def setUp(self):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)

    def test_slow_requests(self):
        """They keep nobody out: those that have no whole request give way to those that come. None of them gets an answer."""
        with Server(TEXT_MODEL) as server:
            begun = (b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n",
                     b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
            slow = []
            for number in range(1000):
                slow.append(server.connect())
                slow[-1].sendall(begun[number % 4])
            self.assertEqual(len(server.stream(TEXTS, {"prompt": "a", "max_tokens": 5, "ignore_eos": True})), 6)
            # Not because the time of some was over: there are still as many as there may be.
            self.assertEqual(server.metrics()["kvant_connections"], 512)
            for client in slow:
                client.close()
            server.wait_until(lambda metrics: metrics["kvant_connections"] == 1)

    def test_requests_that_are_answered_stay(self):
        """Where all connections are for texts under way the next client waits until one has ended."""
        with Server(TEXT_MODEL, "--connections-max", "3", *LONG) as server:
            streams = [server.begin(TEXTS, {**ENDLESS, "max_tokens": 3000}) for _ in range(2)]
            server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 2)
            idle = server.connect()
            idle.sendall(b"GET /health HT")
            third = server.begin(TEXTS, {**ENDLESS, "max_tokens": 3000})  # in place of the idle one
            self.assertEqual(idle.recv(1), b"")
            idle.close()
            answers = [json.loads(connection.getresponse().read()) for connection in (*streams, third)]
            self.assertEqual([answer["usage"]["completion_tokens"] for answer in answers], [3000] * 3)
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            for connection in (*streams, third):
                connection.close()

    def test_slow_heads(self):
        """A head that does not come ends the connection without an answer; others are served meanwhile."""
        with Server() as server:
            start = time.monotonic()
            slow = [server.connect() for _ in range(100)]
            for client in slow:
                client.sendall(b"GET /health HT")
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            self.assertEqual(slow[0].recv(1), b"")
            self.assertGreater(time.monotonic() - start, 5)
            for client in slow:
                client.close()


class LongBodies(ServerCase):
    """Bodies that take seconds to become tokens: answers are counted, not seconds."""
    model = TEXT_MODEL
    options = ("--parallel", "2", *LONG)
    BODY = json.dumps({"prompt": "Now is the winter of our discontent " * (4 * MIB // 36), "max_tokens": 1})

    def test_others_go_on(self):
        """Streams get tokens and new ones begin while long bodies wait for each other."""
        old = self.server.begin(TEXTS, {**ENDLESS, "stream": True})
        old.getresponse().readline()
        bodies = []
        for _ in range(4):
            bodies.append(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=SECONDS))
            bodies[-1].request("POST", TEXTS, self.BODY)
        self.assertEqual(bodies[0].getresponse().status, 400)
        # While the first one was made into tokens all others have come.
        before = self.server.metrics()["llamacpp:tokens_predicted_total"]
        self.assertEqual(len(self.server.stream(TEXTS, {"prompt": "a", "max_tokens": 5, "ignore_eos": True})), 6)
        made = self.server.metrics()["llamacpp:tokens_predicted_total"] - before
        self.assertFalse(select.select([bodies[-1].sock], [], [], 0)[0], "the new text waited for all long bodies")
        self.assertGreater(made, 5)  # more than the new text's: the old one went on
        for body in bodies[1:]:
            answer = body.getresponse()
            self.assertEqual((answer.status, json.loads(answer.read())["error"]["code"]), (400, "context_length_exceeded"))
        for body in bodies:
            body.close()
        leave(old, True)


class LastBodies(unittest.TestCase):
    def test_what_waits_is_answered_before_the_end(self):
        """The server ends when bodies that wait for each other have their answers, too."""
        with Server(TEXT_MODEL) as server:
            bodies = [http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS) for _ in range(3)]
            for body in bodies:
                body.request("POST", "/tokenize", json.dumps({"content": "winter " * (4 * MIB // 7)}))
            self.assertEqual(server.ask("GET", "/health")[0], 200)  # so that all have come
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual([body.getresponse().status for body in bodies], [200] * 3)
            for body in bodies:
                body.close()
            self.assertEqual(server.process.wait(SECONDS), 0)


class LongPrompts(unittest.TestCase):
    """A prompt that takes minutes, with slow kernels."""

    def check_answers_within_a_step(self, server):
        """What tells of the server does not wait for the step under way: all of it is answered within one."""
        end = time.monotonic() + SECONDS
        while True:
            steps = server.metrics()["llamacpp:n_decode_total"]
            for path in ("/health", "/metrics", "/slots", "/v1/models", "/props"):
                self.assertEqual(server.ask("GET", path)[0], 200)
            if server.metrics()["llamacpp:n_decode_total"] == steps:
                return
            self.assertLess(time.monotonic(), end)

    def test_who_leaves_is_gone_within_a_pass(self):
        """Beside a long prompt, whose passes take a quarter of a second: the pass under way ends, and perhaps one that began as the
        client left. Texts of others have the bits that they have alone."""
        long_prompt = {"prompt": [5 + i % 90 for i in range(16000)], "max_tokens": 1}
        kept = {"prompt": "JULIET:", "max_tokens": 24, "temperature": 0, "ignore_eos": True}
        held = {"prompt": "ROMEO:", "max_tokens": -1, "grammar": "root ::= [a]*", "stop": "a" * 1000 + "b", "ignore_eos": True}
        with Server(TEXT_MODEL, "--parallel", "3", "-c", "16384", "--no-cache-prompt", threads=1, environment={"KVANT_ISA": "scalar"}) as server:
            expected = server.post(TEXTS, kept)["choices"][0]["text"]
            company = server.begin(TEXTS, long_prompt)
            other = server.begin(TEXTS, kept)
            server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 2)
            for body in (ENDLESS, held, {**long_prompt, "prompt": [6 + i % 80 for i in range(16000)]}):
                for at_once in (False, True):
                    started = server.metrics()
                    leaves = server.begin(TEXTS, {**body, "stream": True})
                    before = server.wait_until(lambda metrics: metrics["llamacpp:n_decode_total"] > started["llamacpp:n_decode_total"] + 1)
                    leave(leaves, at_once)
                    after = before
                    while after["kvant_texts_cancelled_total"] == started["kvant_texts_cancelled_total"]:
                        after = server.metrics()
                    self.assertLessEqual(after["llamacpp:n_decode_total"] - before["llamacpp:n_decode_total"], 2)
                    self.assertEqual(after["kvant_texts_cancelled_total"], started["kvant_texts_cancelled_total"] + 1)
            self.assertEqual(json.loads(other.getresponse().read())["choices"][0]["text"], expected)
            for connection in (company, other):
                leave(connection, True)

    def test_others_are_answered_and_the_client_may_leave(self):
        with Server(TEXT_MODEL, "-c", "16384", threads=1, environment={"KVANT_ISA": "scalar"}) as server:
            def prompt_of_slot():
                slot = server.ask("GET", "/slots")[2][0]
                return slot["is_processing"] and slot["n_prompt_tokens_processed"]
            for stream in (False, True):
                before = server.metrics()
                connection = server.begin(TEXTS, {"prompt": [5 + i % 90 for i in range(16000)], "max_tokens": 1, "stream": stream, "id_slot": 0})
                server.wait_until(lambda _: prompt_of_slot())
                self.check_answers_within_a_step(server)
                if stream:  # a sign of life where there was none for 15 seconds; events begin with the first token
                    self.assertEqual(connection.getresponse().readline(), b":\n")
                self.assertTrue(0 < prompt_of_slot() < 16000)  # it was in its prompt all the time
                leave(connection, stream)
                after = server.wait_until(lambda metrics: metrics["kvant_texts_cancelled_total"] == before["kvant_texts_cancelled_total"] + 1)
                self.assertEqual((after["llamacpp:requests_processing"], after["kvant_clients_left_total"]), (0, before["kvant_clients_left_total"] + 1))
                self.assertLess(after["llamacpp:prompt_tokens_total"] - before["llamacpp:prompt_tokens_total"], 16000)


if __name__ == "__main__":
    unittest.main()
