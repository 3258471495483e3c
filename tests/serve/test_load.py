"""Many clients, clients that leave, full queues, little memory, and the end of the server."""
import concurrent.futures
import json
import os
import signal
import socket
import struct
import subprocess
import time
import unittest

from common import ENDLESS, LONG, PROGRAM, SECONDS, TEXT_MODEL, Server, ServerCase, leave

TEXTS = "/v1/completions"


class Leaving(ServerCase):
    model = TEXT_MODEL
    options = ("--parallel", "2", "--no-cache-prompt", *LONG)

    def gone(self, metrics):
        return metrics["llamacpp:requests_processing"] == 0 and metrics["llamacpp:requests_deferred"] == 0

    def test_clients_that_leave(self):
        """Whatever their request was doing, its sequences and blocks are free soon, and nothing else changes."""
        body = {"prompt": "JULIET:", "max_tokens": 30, "temperature": 0}
        expected = self.server.post(TEXTS, body)["choices"][0]["text"]
        for at_once in (False, True):
            for stream in (False, True):
                before = self.server.wait_until(self.gone)
                connection = self.server.begin(TEXTS, {**ENDLESS, "stream": stream})
                if stream:
                    connection.getresponse().readline()  # it leaves before it has too much to read
                else:
                    self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 1)
                leave(connection, at_once)
                after = self.server.wait_until(self.gone)
                self.assertEqual(after["kvant_texts_cancelled_total"], before["kvant_texts_cancelled_total"] + 1)
                self.server.wait_until(lambda metrics: metrics["kvant_blocks_used"] == before["kvant_blocks_used"])
                self.assertEqual(self.server.post(TEXTS, body)["choices"][0]["text"], expected)

    def test_clients_that_leave_while_all_is_held_back(self):
        """Text that may become a stop text is not shown; a client that leaves then is noticed all the same."""
        body = {"prompt": "ROMEO:", "max_tokens": -1, "grammar": "root ::= [a]*", "stop": "a" * 1000 + "b", "stream": True, "ignore_eos": True}
        for at_once in (False, True):
            before = self.server.wait_until(self.gone)
            connection = self.server.begin(TEXTS, body)
            self.server.wait_until(lambda metrics: metrics["llamacpp:tokens_predicted_total"] > before["llamacpp:tokens_predicted_total"] + 5)
            leave(connection, at_once)
            after = self.server.wait_until(self.gone)
            self.assertEqual(after["kvant_texts_cancelled_total"], before["kvant_texts_cancelled_total"] + 1)
            self.server.wait_until(lambda metrics: metrics["kvant_blocks_used"] == before["kvant_blocks_used"])

    def test_clients_that_leave_the_queue(self):
        running = [self.server.begin(TEXTS, ENDLESS) for _ in range(2)]
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 2)
        for at_once in (False, True):
            waiting = self.server.begin(TEXTS, ENDLESS)
            self.server.wait_until(lambda metrics: metrics["llamacpp:requests_deferred"] == 1)
            leave(waiting, at_once)
            self.server.wait_until(lambda metrics: metrics["llamacpp:requests_deferred"] == 0)
        self.assertEqual(self.server.metrics()["llamacpp:requests_processing"], 2)
        for connection in running:
            leave(connection, False)
        self.server.wait_until(self.gone)

    def test_clients_that_leave_in_a_request(self):
        for data in (b"POST /v1/completions HT", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n",
                     b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"):
            for linger in (None, struct.pack("ii", 1, 0)):  # FIN, RST
                with self.server.connect() as client:
                    client.sendall(data)
                    if linger is not None:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.server.wait_until(lambda metrics: metrics["kvant_connections"] <= 1)

    def test_a_client_that_shuts_its_side_is_gone_and_one_that_asks_on_is_not(self):
        def request(close):
            body = json.dumps({**ENDLESS, "stream": True, "max_tokens": 40})
            return ("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s"
                    % ("Connection: close\r\n" if close else "", len(body), body)).encode()
        with self.server.connect() as client:
            client.sendall(request(False) + request(True))
            answer = b""
            while piece := client.recv(65536):
                answer += piece
        self.assertEqual(answer.count(b"HTTP/1.1 200 OK"), 2)
        self.assertEqual(answer.count(b"[DONE]"), 2)
        body = json.dumps({**ENDLESS, "stream": True})
        answer = self.server.raw(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                                  % (len(body), body)).encode(), shut=True)
        self.server.wait_until(self.gone)
        self.assertNotIn(b"[DONE]", answer)

    def test_a_client_that_reads_nothing(self):
        """Its answer is kept up to a limit, then it is left; others go on."""
        before = self.server.wait_until(self.gone)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", self.server.port))
        body = json.dumps({**ENDLESS, "stream": True, "logprobs": 20})
        client.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)).encode())
        self.assertTrue(self.server.post(TEXTS, {"prompt": "a", "max_tokens": 5})["choices"])
        # However soon that is, the text was cancelled then, and nobody else's was.
        self.server.wait_until(lambda metrics: metrics["kvant_texts_cancelled_total"] == before["kvant_texts_cancelled_total"] + 1)
        after = self.server.wait_until(self.gone)
        self.assertEqual(after["kvant_texts_ended_total"], before["kvant_texts_ended_total"] + 2)
        client.close()


class Queue(ServerCase):
    model = TEXT_MODEL
    options = ("--parallel", "1", "--queue", "1", *LONG)

    def test_full_queue(self):
        connections = [self.server.begin(TEXTS, ENDLESS)]
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 1)
        connections.append(self.server.begin(TEXTS, ENDLESS))
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_deferred"] == 1)
        for stream in (False, True):
            found, headers, data = self.server.ask("POST", TEXTS, json.dumps({**ENDLESS, "stream": stream}))
            self.assertEqual(found, 429)
            self.check_error(data, code="rate_limit_exceeded")
            self.assertLessEqual(1, int(headers["Retry-After"]))
            self.assertIn("Please try again in", data["error"]["message"])
        for connection in connections:
            leave(connection, True)
        self.server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 0)
        self.server.post(TEXTS, {"prompt": "a", "max_tokens": 1})


class Memory(unittest.TestCase):
    def test_little_memory(self):
        """With half of the memory that they need all texts end, are those of a server with enough, and need no more than planned."""
        clients, context, budget = 32, 256, 0
        bodies = [{"prompt": "Speaker %d says:" % i + " word" * (i % 4 * 20), "max_tokens": 150, "seed": i, "ignore_eos": True} for i in range(clients)]
        plan = json.loads(subprocess.run([PROGRAM, "inspect", TEXT_MODEL, "--memory", "--json", "-c", str(context), "-t", "2"],
                                         stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout)["memory"]
        texts = []
        for half in (False, True):
            options = ("--kv-budget", str(budget)) if half else ()
            with Server(TEXT_MODEL, "--parallel", str(clients), "-c", str(context), "--no-cache-prompt", *options) as server:
                with concurrent.futures.ThreadPoolExecutor(clients) as threads:
                    texts.append(list(threads.map(lambda body: server.post(TEXTS, body)["choices"][0]["text"], bodies)))
                metrics = server.metrics()
                self.assertEqual((metrics["kvant_texts_failed_total"], metrics["kvant_texts_cancelled_total"]), (0, 0))
                self.assertEqual(metrics["kvant_preemptions_total"] > 0, half)
                budget = clients * plan["kv"] // 4  # texts fill about half of their context
                planned = plan["total"] + (clients - 1) * plan["logits"] + plan["program"] + (budget - plan["kv"] if half else (clients - 1) * plan["kv"])
                if server.has_own_memory():
                    self.assertLess(server.peak(), planned + clients * (256 << 10))  # what requests and their samplers need
        self.assertEqual(texts[0], texts[1])

    def test_what_never_fits(self):
        with Server(TEXT_MODEL, "--kv-budget", "200K") as server:
            data = server.post(TEXTS, {"prompt": [5] * 200, "max_tokens": 1}, 400)
            self.assertEqual(server.metrics()["kvant_texts_submitted_total"], 0)  # it never was in the queue
            self.assertEqual(data["error"]["code"], "context_length_exceeded")
            self.assertIn("--kv-budget", data["error"]["message"])
            server.post(TEXTS, {"prompt": "a", "max_tokens": 1})


class Counters(ServerCase):
    model = TEXT_MODEL
    options = ("--parallel", "8", *LONG)

    def test_counters_are_sums_of_usages(self):
        """Whatever came before, and for whole answers, streams, several samples and end tokens; they never fall."""
        names = {"llamacpp:tokens_predicted_total": "completion_tokens", "kvant_usage_completion_tokens_total": "completion_tokens",
                 "kvant_usage_prompt_tokens_total": "prompt_tokens", "kvant_usage_cached_tokens_total": "cached_tokens"}
        before = last = self.server.metrics()
        sums = dict.fromkeys(names.values(), 0)
        for body in ({"prompt": "a" * 100, "max_tokens": 5}, {"prompt": "a" * 100, "max_tokens": 7, "n": 3}, {"prompt": ["b", "c"], "max_tokens": 1},
                     {"prompt": "d", "grammar": 'root ::= "yes"'}, {"prompt": "e", "max_tokens": 0}):
            for stream in (False, True):
                if stream:
                    usage = self.server.stream(TEXTS, {**body, "stream_options": {"include_usage": True}})[-1]["usage"]
                else:
                    usage = self.server.post(TEXTS, body)["usage"]
                for name in sums:
                    sums[name] += usage["prompt_tokens_details"][name] if name == "cached_tokens" else usage[name]
                now = self.server.metrics()
                counters = [name for name in now if name.endswith("_total") or "_bucket" in name or name.endswith(("_sum", "_count"))]
                self.assertFalse([name for name in counters if now[name] < last.get(name, 0)])
                last = now
        self.server.wait_until(lambda metrics: all(metrics[name] == before[name] + sums[usage] for name, usage in names.items()))
        began = int(self.server.ask("GET", "/metrics")[1]["Process-Start-Time-Unix"])
        self.assertTrue(time.time() - 3600 < began <= time.time())
        metrics = self.server.metrics()
        self.assertGreaterEqual(metrics["llamacpp:n_tokens_max"], 60)
        self.assertGreaterEqual(metrics["llamacpp:n_busy_slots_per_decode"], 1)


class Ending(unittest.TestCase):
    def check(self, drain, tokens):
        """What a stream got that was under way when the server was told to end."""
        with Server(TEXT_MODEL, "--drain-s", str(drain), *LONG) as server:
            answer = server.begin(TEXTS, {**ENDLESS, "stream": True, "max_tokens": tokens}).getresponse()
            answer.readline()
            with concurrent.futures.ThreadPoolExecutor(1) as threads:
                rest = threads.submit(answer.read)
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(server.process.wait(SECONDS), 0)
                return rest.result()

    def test_texts_end_first(self):
        self.assertIn(b"[DONE]", self.check(600, 3000))

    def test_texts_that_take_too_long_end_with_an_error(self):
        rest = self.check(1, -1)
        self.assertNotIn(b"[DONE]", rest)
        last = [line for line in rest.split(b"\n") if line.startswith(b"data: ")][-1]
        self.assertEqual(json.loads(last[6:])["error"]["type"], "unavailable_error")

    def test_without_texts_at_once(self):
        with Server(TEXT_MODEL, "--drain-s", "3600") as server:
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(SECONDS), 0)


class Growth(ServerCase):
    model = TEXT_MODEL
    options = ("--no-cache-prompt",)  # so that no block is kept for later prompts

    def test_many_requests_leave_nothing_behind(self):
        """Descriptors, sequences and blocks are the same after hundreds of requests, some of them left early."""
        def work(number):
            for i in range(25):
                if i % 10 == number % 10:
                    connection = self.server.begin(TEXTS, {**ENDLESS, "max_tokens": 50})
                    leave(connection, i % 2 == 0)
                else:
                    self.server.post(TEXTS, {"prompt": "a", "max_tokens": 2})

        def count():
            self.server.wait_until(lambda m: m["kvant_connections"] == 1 and m["llamacpp:requests_processing"] == 0)
            return len(os.listdir("/proc/%d/fd" % self.server.process.pid)), self.server.metrics()["kvant_blocks_used"]

        work(0)
        before = count()
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(8)))
        end = time.monotonic() + SECONDS
        while (after := count()) != before:  # the last connections may be about to end
            self.assertLess(time.monotonic(), end, (before, after))
            time.sleep(0.1)
