"""A server to talk to, and strict readers of what it says. KVANT_PROGRAM is the program."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
import unittest
import urllib.parse

PROGRAM = os.environ["KVANT_PROGRAM"]
CHAT_MODEL = "dialogue"
TEXT_MODEL = "shakespeare"
PAGE = os.path.join(os.path.dirname(__file__), "../../tools/serve/page")
SECONDS = 120  # for anything that is to happen, on a machine that is busy
# A text that does not end by itself. Without a stream nothing is sent, and so nobody need read.
ENDLESS = {"prompt": "ROMEO:", "max_tokens": -1, "ignore_eos": True, "temperature": 0}
LONG = ("-c", "200000")  # so that no text ends before its test


class Server:
    """`kvant serve` on a free port, until it is closed."""

    def __init__(self, model=CHAT_MODEL, *options, threads=2, environment=None, host="127.0.0.1"):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", model, "--port", "0", "--host", host, "-t", str(threads), *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})})
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            raise AssertionError("the server did not begin: " + self.process.stderr.read())
        self.port = urllib.parse.urlsplit(self.url).port

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()
        return self.process.returncode

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), SECONDS)

    def raw(self, data, shut=False):
        """Sends bytes and returns all that comes back until the server ends the connection."""
        with self.connect() as client:
            with contextlib.suppress(OSError):
                client.sendall(data)
                if shut:
                    client.shutdown(socket.SHUT_WR)
            return read_all(client)

    def ask(self, method, path, body=None, headers=None):
        """The status, the headers and the body of an answer; JSON where it is some."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            data = answer.read()
            if answer.headers.get("Content-Type") == "application/json":
                data = json.loads(data, parse_constant=no_constant, object_pairs_hook=no_twins)
            return answer.status, dict(answer.headers.items()), data
        finally:
            connection.close()

    def post(self, path, body, status=200, headers=None):
        found, _, data = self.ask("POST", path, body, headers)
        if found != status:
            raise AssertionError("%s: expected %d, found %d: %r" % (path, status, found, data))
        return data

    def stream(self, path, body, has_done=True):
        """All events of a stream, checked."""
        return list(self.events(path, body, has_done))

    def events(self, path, body, has_done=True):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            answer = connection.getresponse()
            if answer.status != 200:
                raise AssertionError((answer.status, answer.read()))
            assert answer.headers["Content-Type"] == "text/event-stream"
            yield from read_events(answer, has_done)
        finally:
            connection.close()

    def begin(self, path, body):
        """A connection with a request on its way."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        connection.request("POST", path, json.dumps(body))
        return connection

    def metrics(self):
        """Name (with labels) -> value."""
        _, headers, data = self.ask("GET", "/metrics")
        found = {}
        for line in data.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                found[name] = float(value)
        return found

    def peak(self):
        """The most bytes that were resident since forget_peak."""
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) * 1024

    def forget_peak(self):
        with open("/proc/%d/clear_refs" % self.process.pid, "w", encoding="ascii") as file:
            file.write("5")

    def has_own_memory(self):
        """Whether the program's memory is what it asks for: sanitizers keep more."""
        with open("/proc/%d/maps" % self.process.pid, encoding="utf-8") as file:
            return not re.search(r"lib[at]san\.so", file.read())

    def wait_until(self, condition, seconds=SECONDS):
        """Waits until the metrics fulfil a condition."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            metrics = self.metrics()
            if condition(metrics):
                return metrics
            time.sleep(0.02)
        raise AssertionError("waited for %s s: %r" % (seconds, metrics))


def leave(connection, at_once):
    """Ends a connection: with RST at once, else with FIN."""
    if at_once:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        with contextlib.suppress(OSError):  # the server may have ended it, since too much was to be read
            connection.sock.shutdown(socket.SHUT_RDWR)
    os.close(connection.sock.detach())


def page_files():
    """Names of the files of the page."""
    return sorted(name for name in os.listdir(PAGE) if name.endswith((".html", ".css", ".js", ".svg")))


def no_constant(name):
    raise AssertionError("JSON has no %s" % name)


def no_twins(pairs):
    names = [name for name, _ in pairs]
    if len(names) != len(set(names)):
        raise AssertionError("a name occurs twice: %r" % names)
    return dict(pairs)


def read_all(client):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(65536):
            data += piece
    return data


def answers_in(data):
    """The status lines among the bytes of a connection."""
    return re.findall(rb"HTTP/1\.[01] \d\d\d [^\r]*\r\n", data)


def read_events(answer, has_done=True):
    """The events of a stream of `data:` lines; a comment is b":" and nothing follows [DONE], which llama-server's own
    interface does without."""
    done = False
    while line := answer.readline():
        assert line.endswith(b"\n")
        if line == b":\n":
            assert answer.readline() == b"\n"
            continue
        assert line.startswith(b"data: "), line
        assert not done, "an event behind [DONE]"
        assert answer.readline() == b"\n", "an event does not end with an empty line"
        text = line[len(b"data: "):].strip()
        if text == b"[DONE]":
            done = True
            continue
        yield json.loads(text, parse_constant=no_constant, object_pairs_hook=no_twins)
    assert done == has_done, "the stream has no [DONE], or one too many"


def run_kvant(*arguments, environment=None):
    """What the program ends with. A server takes a free port, whoever has the one that it takes otherwise."""
    done = subprocess.run([PROGRAM, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=SECONDS, env={**os.environ, "KVANT_PORT": "0", **(environment or {})}, check=False)
    return done.returncode, done.stdout, done.stderr


class ServerCase(unittest.TestCase):
    """Tests of one server."""
    model = CHAT_MODEL
    options = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(cls.model, *cls.options)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.close()
        assert code == 0, code

    def check_error(self, data, **members):
        """The four members of an error, and those that are named here."""
        self.assertEqual(list(data), ["error"])
        self.assertLessEqual({"message", "type", "param", "code"}, set(data["error"]))
        for name, value in members.items():
            self.assertEqual(data["error"][name], value, data)
