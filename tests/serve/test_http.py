"""Framing, limits, keys, names and pages: what the server answers before it looks at a body."""
import json
import os
import signal
import socket
import stat
import tempfile
import time
import unittest

from common import CHAT_MODEL, SECONDS, Server, ServerCase, answers_in, read_all, run_kvant

HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
MARK = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
BODY = b'{"content":"a"}'


def post(*headers, body=BODY):
    return b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + b"".join(h + b"\r\n" for h in headers) + b"\r\n" + body


class Framing(ServerCase):
    """No bytes are read in two ways: whatever is odd is refused, and nothing behind it is answered."""

    def expect_refused(self, data, statuses=(b"400",)):
        answer = self.server.raw(data + MARK)
        lines = answers_in(answer)
        self.assertEqual(len(lines), 1, (data, answer))
        self.assertIn(lines[0].split()[1], statuses, (data, lines))
        self.assertIn(b"Connection: close", answer)
        head, _, body = answer.partition(b"\r\n\r\n")
        self.check_error(json.loads(body))
        self.assertIn(b"X-Request-Id: ", head)

    def test_lengths(self):
        length = b"Content-Length: %d" % len(BODY)
        chunked = b"Transfer-Encoding: chunked"
        chunks = b"f\r\n" + BODY + b"\r\n0\r\n\r\n"
        self.assertEqual(len(BODY), 15)
        for data in (post(length), post(chunked, body=chunks), post(b"content-length:15"),
                     post(b"Transfer-Encoding: Chunked", body=chunks)):
            answer = self.server.raw(data + MARK)
            self.assertEqual([line.split()[1] for line in answers_in(answer)], [b"200", b"200"], answer)
        for headers in ((length, length), (length, chunked), (chunked, length), (chunked, chunked),
                        (b"Content-Length: 15, 15",), (b"Content-Length: +15",), (b"Content-Length: -1",),
                        (b"Content-Length: 0x0f",), (b"Content-Length: 15 15",), (b"Content-Length:",),
                        (b"Content-Length: 1e1",), (b"Content-Length : 15",), (b"Content-Length\t: 15",),
                        (b"Content-Length: 99999999999999999999999",), (b"Content-Length: 15\x0b",),
                        (b"Transfer-Encoding: gzip, chunked",), (b"Transfer-Encoding: identity",),
                        (b"Transfer-Encoding: xchunked",), (b"Transfer-Encoding: chunked, chunked",),
                        (b"Transfer-Encoding: \x0bchunked",), (b"Transfer-Encoding : chunked",),
                        (b"Transfer-Encoding:",), (b"Transfer-Encoding: \"chunked\"",), (b" Content-Length: 15",),
                        (b"X: a", b" b", length), (b"X: a\x00b", length), (b"X\x00: a", length), (b": a", length),
                        (b"no colon", length), (b"X Y: a", length), (b"X: a\rb", length), (b"X: a\nb", length)):
            self.expect_refused(post(*headers))

    def test_chunks(self):
        chunked = b"Transfer-Encoding: chunked"
        for chunks in (b"f;x=1\r\n" + BODY + b"\r\n0\r\n\r\n", b"f\n" + BODY + b"\r\n0\r\n\r\n",
                       b"f\r\n" + BODY + b"0\r\n\r\n", b"f\r\n" + BODY + b"x\r\n0\r\n\r\n", b"g\r\n", b"-1\r\n", b"\r\n",
                       b"0x0f\r\n" + BODY + b"\r\n0\r\n\r\n", b" f\r\n" + BODY + b"\r\n0\r\n\r\n",
                       b"f \r\n" + BODY + b"\r\n0\r\n\r\n", b"f\r\n" + BODY + b"\r\n0\r\nX: y\r\n\r\n",
                       b"f\r\r\n" + BODY + b"\r\n0\r\n\r\n"):
            self.expect_refused(post(chunked, body=chunks))
        self.expect_refused(post(chunked, body=b"fffffffff\r\n"), (b"413",))
        self.expect_refused(post(chunked, body=b"ffffffff\r\n"), (b"413",))

    def test_lines(self):
        for data in (HEAD.replace(b"\r\n", b"\n") + b"\n", b"\r\n" + HEAD + b"\r\n", b"GET /health HTTP/1.1\r\n\r\n",
                     HEAD + b"Host: localhost\r\n\r\n", b"GET  /health HTTP/1.1\r\nHost: a\r\n\r\n",
                     b"GET /health HTTP/1.1 \r\nHost: a\r\n\r\n", b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n",
                     b"GET /health http/1.1\r\nHost: a\r\n\r\n", b"GET /health\r\n\r\n", b"G(T /health HTTP/1.1\r\nHost: a\r\n\r\n",
                     b"GET /he\xc3\xa4lth HTTP/1.1\r\nHost: a\r\n\r\n", b"GET health HTTP/1.1\r\nHost: a\r\n\r\n",
                     b"GET http://other/health HTTP/1.1\r\nHost: localhost\r\n\r\n", HEAD + b"X: \x7f\r\n\r\n"):
            self.expect_refused(data)

    def test_paths(self):
        for path in (b"/../health", b"/v1/%2e%2e/health", b"/%00", b"/%5c..%5chealth", b"/a%", b"/a%2", b"/a%zz",
                     b"/./health", b"/%2e%2e%2fhealth", b"/%2f..%2fhealth"):
            self.expect_refused(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for path, status in (("//health", 404), ("/health/", 404), ("/%68ealth", 200), ("/v1/health", 200),
                             ("/health?a=b&c", 200), ("/v1", 404), ("/v1/v1/health", 404), ("/", 200)):
            self.assertEqual(self.server.ask("GET", path)[0], status, path)
        for path in ("/%c0%ae%c0%ae/health", "/%e0%80%ae/health", "/page/%c0%ae%c0%ae/health", "/page/%ff"):  # no UTF-8
            self.assertIn(self.server.ask("GET", path)[0], (400, 404), path)
        whole = b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        self.assertTrue(self.server.raw(whole).startswith(b"HTTP/1.1 200 "))

    def test_sizes(self):
        self.expect_refused(b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\nHost: a\r\n\r\n", (b"414",))
        self.expect_refused(HEAD + b"".join(b"X%d: a\r\n" % i for i in range(200)) + b"\r\n", (b"431",))
        self.expect_refused(HEAD + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n", (b"431",))
        self.expect_refused(b"a" * (1 << 20), (b"414", b"431", b"400"))
        answer = self.server.raw(post(b"Content-Length: 99999999", body=b""))
        self.assertTrue(answer.startswith(b"HTTP/1.1 413 "), answer)

    def test_pipelined(self):
        answer = self.server.raw(HEAD + b"\r\n" + HEAD + b"\r\n" + MARK)
        self.assertEqual([line.split()[1] for line in answers_in(answer)], [b"200"] * 3)
        self.assertLess(answer.index(b'"status"'), answer.index(b'"object"'))

    def test_keeps_alive(self):
        with self.server.connect() as client:
            for _ in range(3):
                client.sendall(HEAD + b"\r\n")
                answer = client.recv(65536)
                self.assertTrue(answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer)
                self.assertIn(b"Connection: keep-alive", answer)
            client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            answer = read_all(client)
            self.assertIn(b"Connection: close", answer)

    def test_head_and_options(self):
        answer = self.server.raw(HEAD.replace(b"GET", b"HEAD") + b"Connection: close\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "))
        self.assertIn(b"Content-Length: 15", head)
        self.assertEqual(body, b"")
        self.assertEqual(self.server.ask("OPTIONS", "/v1/models")[0], 204)
        self.assertEqual(self.server.ask("OPTIONS", "*")[0], 204)

    def test_continue(self):
        with self.server.connect() as client:
            client.sendall(post(b"Content-Length: 15", b"Expect: 100-continue", b"Connection: close", body=b""))
            self.assertEqual(client.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            client.sendall(BODY)
            self.assertTrue(read_all(client).startswith(b"HTTP/1.1 200 "))
        self.assertTrue(self.server.raw(post(b"Expect: magic", body=b"")).startswith(b"HTTP/1.1 417 "))

    def test_statuses(self):
        for method, path, status in (("GET", "/nothing", 404), ("DELETE", "/health", 405), ("GET", "/tokenize", 405),
                                     ("POST", "/v1/embeddings", 501), ("POST", "/rerank", 501),
                                     ("GET", "/lora-adapters", 501), ("GET", "/v1/models/none", 404)):
            found, headers, data = self.server.ask(method, path, "{}" if method == "POST" else None)
            self.assertEqual(found, status, (method, path))
            self.assertEqual(headers["Content-Type"], "application/json")
            self.assertRegex(headers["X-Request-Id"], r"^req-\w+$")
            self.check_error(data)
            if status == 405:
                self.assertTrue(headers["Allow"])
            self.assertEqual(headers.get("X-Should-Retry"), "false" if status == 501 else None)
        found, headers, data = self.server.ask("POST", "/tokenize", BODY, {"Content-Encoding": "gzip"})
        self.assertEqual(found, 415)
        self.assertEqual(self.server.ask("GET", "/health", headers={"X-Request-Id": "my-1.a"})[1]["X-Request-Id"], "my-1.a")

    def test_forms_of_errors(self):
        """Each is JSON in the form of the interface, with an id; an answer to HEAD has its head."""
        for method, path, further, status in (
                ("GET", "/nothing", {}, 404), ("PUT", "/v1/models", {}, 405), ("PATCH", "/v1/messages", {}, 405), ("GET", "/v1/messages", {}, 405),
                ("POST", "/tokenize", {"Content-Encoding": "gzip"}, 415), ("POST", "/v1/messages", {"Content-Encoding": "gzip"}, 415),
                ("GET", "/health", {"Host": "evil.example"}, 403), ("POST", "/v1/messages", {"Origin": "https://evil.example"}, 403),
                ("POST", "/v1/messages", {"Host": "evil.example"}, 403), ("POST", "/v1/chat/completions", {}, 400), ("POST", "/v1/messages", {}, 400),
                ("POST", "/v1/messages/count_tokens", {}, 400), ("POST", "/rerank", {}, 501), ("GET", "/v1/models/none", {}, 404)):
            found, headers, data = self.server.ask(method, path, "{}" if method == "POST" else None, further)
            self.assertEqual(found, status, (method, path))
            self.assertEqual(headers["Content-Type"], "application/json")
            self.assertRegex(headers["X-Request-Id"], r"^req-\w+$")
            if path.startswith("/v1/messages"):
                self.assertEqual((data["type"], set(data["error"])), ("error", {"type", "message"}))
            else:
                self.check_error(data)
        for path, status in (("/nothing", b"404"), ("/tokenize", b"405"), ("/v1/models/none", b"404"), ("/lora-adapters", b"501")):
            head, _, body = self.server.raw(b"HEAD %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path.encode()).partition(b"\r\n\r\n")
            self.assertEqual((head.split()[1], body), (status, b""), path)
            self.assertIn(b"Content-Type: application/json\r\n", head + b"\r\n")
            self.assertIn(b"X-Request-Id: req-", head)

    def test_needs_no_content_type(self):
        self.assertEqual(self.server.ask("POST", "/tokenize", BODY, {"Content-Type": "text/plain"})[0], 200)

    def test_names(self):
        for host, status in (("localhost", 200), ("127.0.0.1", 200), ("127.0.0.1:1", 200), ("[::1]:80", 200),
                             ("a.localhost", 200), (socket.gethostname(), 200), ("evil.example", 403),
                             ("localhost.evil.example", 403), ("127.0.0.1.evil.example", 403), ("10.0.0.1", 403)):
            found, _, data = self.server.ask("GET", "/health", headers={"Host": host})
            self.assertEqual(found, status, host)

    def test_pages(self):
        for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
            found, headers, _ = self.server.ask("POST", "/tokenize", BODY, {"Origin": origin})
            self.assertEqual(found, 403)
            self.assertNotIn("Access-Control-Allow-Origin", headers)
        own = "127.0.0.1:%d" % self.server.port
        self.assertEqual(self.server.ask("POST", "/tokenize", BODY, {"Origin": "http://" + own, "Host": own})[0], 200)


class Pages(ServerCase):
    options = ("--cors-origins", "https://a.example,https://b.example")

    def test_listed_pages(self):
        for origin, listed in (("https://a.example", True), ("https://b.example", True), ("https://a.example.evil", False),
                               ("null", False), ("https://A.example", False)):
            found, headers, _ = self.server.ask("POST", "/tokenize", BODY, {"Origin": origin})
            self.assertEqual(found, 200 if listed else 403)
            self.assertEqual(headers.get("Access-Control-Allow-Origin"), origin if listed else None)
            self.assertEqual(headers["Vary"], "Origin")
            self.assertNotIn("Access-Control-Allow-Credentials", headers)
            found, headers, _ = self.server.ask("OPTIONS", "/v1/models", headers={"Origin": origin})
            self.assertEqual(found, 204)
            self.assertEqual("Access-Control-Allow-Methods" in headers, listed)


class Keys(ServerCase):
    options = ("--api-key", "first,second")

    def test_keys(self):
        def status(path="/v1/models", **headers):
            return self.server.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})[0]
        for key in ("first", "second"):
            self.assertEqual(status(Authorization="Bearer " + key), 200)
            self.assertEqual(status(Authorization="bearer " + key), 200)
            self.assertEqual(status(X_Api_Key=key), 200)
        for key in ("", "firs", "first2", "first,second", "x" * 8000):
            self.assertEqual(status(Authorization="Bearer " + key), 401, key)
            self.assertEqual(status(X_Api_Key=key), 401, key)
        self.assertEqual(status(Authorization="Basic first"), 401)
        self.assertEqual(status(Authorization="Bearer first", X_Api_Key="wrong"), 401)
        self.assertEqual(status(), 401)
        for path in ("/nothing", "/metrics", "/slots", "/props", "/v1/models/x", "/page"):
            self.assertEqual(status(path), 401, path)
        self.assertEqual(status("/health"), 200)
        found, headers, data = self.server.ask("POST", "/v1/completions", "{}")
        self.assertEqual((found, headers["WWW-Authenticate"]), (401, "Bearer"))
        self.check_error(data, type="authentication_error", code="invalid_api_key")
        found, _, data = self.server.ask("POST", "/v1/messages", "{}")
        self.assertEqual((found, data["type"], data["error"]["type"]), (401, "error", "authentication_error"))


class Starting(unittest.TestCase):
    def test_key_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "keys")
            with open(path, "w", encoding="utf-8") as file:
                file.write("# keys\n\nsecret\n")
            os.chmod(path, 0o644)
            code, _, error = run_kvant("serve", CHAT_MODEL, "--api-key-file", path)
            self.assertEqual(code, 1)
            self.assertIn("chmod 600", error)
            os.chmod(path, 0o600)
            with Server(CHAT_MODEL, "--api-key-file", path, environment={"KVANT_API_KEY": "other"}) as server:
                for key, status in (("secret", 200), ("other", 200), ("# keys", 401)):
                    self.assertEqual(server.ask("GET", "/v1/models", headers={"X-Api-Key": key})[0], status)

    def test_nothing_of_requests_is_logged(self):
        """Neither keys nor what clients have written, whether they are answered or refused."""
        secrets = ["key-of-the-owner", "key-of-a-stranger", "words of a prompt", "name-of-a-field", "path-to-nowhere"]
        server = Server(CHAT_MODEL, "--api-key", secrets[0], "--verbose")
        for key in secrets[:2]:
            for path, body in (("/v1/completions", {"prompt": secrets[2], "max_tokens": 2, secrets[3]: 1}), ("/" + secrets[4], {}),
                               ("/v1/completions", {"prompt": [secrets[2], {}]}), ("/v1/completions", secrets[2])):
                server.ask("POST", path, body, {"Authorization": "Bearer " + key})
        server.raw(b"GET /" + secrets[4].encode() + b" \r\n\r\n")
        server.process.send_signal(signal.SIGTERM)
        out, error = server.process.communicate(timeout=SECONDS)
        for secret in secrets:
            self.assertNotIn(secret, out + error)

    def test_what_is_refused(self):
        for options, code, text in (
                (("--host", "0.0.0.0", "--port", "0"), 2, "--no-key"), (("--host", "no.such.host.invalid"), 2, "--host"),
                (("--api-key-file", "/nowhere"), 1, "/nowhere"), (("--cors-origins", "*"), 2, "--cors-origins"),
                (("--parallel", "0"), 2, "--parallel"), (("--port", "70000"), 2, "--port"),
                (("--memory-max", "1GiB"), 2, "--memory-max: expected --models"), (("--kv-budget", "1000"), 1, "--kv-budget: a text of 32 tokens needs")):
            found, out, error = run_kvant("serve", CHAT_MODEL, *options)
            self.assertEqual((found, out), (code, ""), error)
            self.assertIn(text, error)
        for port in ("abc", "70000", "-1", "80 81", ""):
            found, out, error = run_kvant("serve", CHAT_MODEL, environment={"KVANT_PORT": port})
            self.assertEqual((found, out), (2, ""), error)
            self.assertIn("KVANT_PORT: expected a whole number from 0 to 65535", error)
        code, _, error = run_kvant("serve", os.path.dirname(__file__))
        self.assertEqual(code, 2)
        self.assertRegex(error, "is a directory; --models serves the GGUF files of one")
        code, _, error = run_kvant("serve")
        self.assertEqual(code, 2)
        self.assertIn("hf download", error)
        with Server() as server:
            code, _, error = run_kvant("serve", CHAT_MODEL, "--port", str(server.port))
            self.assertEqual(code, 1)
            self.assertIn("Address already in use", error)
            # Both faults are told at once, and first the one that any port has.
            code, _, error = run_kvant("serve", CHAT_MODEL, "--host", "0.0.0.0", "--port", str(server.port))
            self.assertEqual(code, 2)
            self.assertRegex(error, r"--no-key; besides, cannot listen on 0\.0\.0\.0, port %d: Address already in use" % server.port)
            code, _, error = run_kvant("serve", CHAT_MODEL, "--host", "0.0.0.0", "--port", "0")
            self.assertEqual(code, 2)
            self.assertNotIn("besides", error)
        # The port is free again at once.
        with Server() as server:
            port = server.port
        code, _, error = run_kvant("serve", "/nowhere.gguf", "--port", str(port))
        self.assertIn("/nowhere.gguf", error)

    def test_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.sock")
            with Server(host="127.0.0.1," + path) as server:
                self.assertEqual(server.process.stdout.readline().strip(), "unix:" + path)
                self.assertEqual(stat.S_IMODE(os.stat(path).st_mode) & 0o077, 0)
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(path)
                    client.sendall(HEAD + b"Connection: close\r\n\r\n")
                    self.assertTrue(read_all(client).startswith(b"HTTP/1.1 200 "))
                self.assertEqual(server.ask("GET", "/health")[0], 200)
            self.assertFalse(os.path.exists(path))

    def test_second_signal(self):
        with Server(CHAT_MODEL, "--drain-s", "600", "-c", "200000") as server:
            connection = server.begin("/v1/completions", {"prompt": "a", "max_tokens": -1, "ignore_eos": True})
            server.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 1)
            server.process.send_signal(signal.SIGTERM)
            # The text may go on for ten minutes, and nobody else may begin one.
            end = time.monotonic() + SECONDS
            while server.ask("GET", "/health")[0] != 503:
                self.assertLess(time.monotonic(), end)
            found, _, data = server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
            self.assertEqual((found, data["error"]["type"]), (503, "unavailable_error"))
            self.assertIsNone(server.process.poll())
            # One that comes with the first, as timeout(1) sends two, does not count.
            while server.process.poll() is None:
                self.assertLess(time.monotonic(), end)
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.3)
            connection.close()
            self.assertTrue(server.process.stderr.read().endswith("kvant: note: texts under way may go on for 600 s; another signal ends them\n"))


if __name__ == "__main__":
    unittest.main()
