"""Chromium, driven over WebDriver, and a server that says what a test tells it to."""
import base64
import contextlib
import http.client
import http.server
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

from common import SECONDS, page_files

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "no chromium with chromedriver is installed: ./dev test --page installs it"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Shift": "\ue008", "Alt": "\ue00a", "ArrowUp": "\ue013",
        "Backspace": "\ue003", "Control": "\ue009"}
# Runs before each page: collects what no page of ours may cause.
WATCH = """
window.caught = [];
addEventListener("securitypolicyviolation", (e) => caught.push("policy: " + e.violatedDirective + " " + e.blockedURI));
addEventListener("error", (e) => caught.push("error: " + e.message));
addEventListener("unhandledrejection", (e) => caught.push("rejected: " + e.reason));
"""


class Browser:
    """A browser with a folder of its own, until it is closed. It finds no name but this machine's."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        self.downloads = os.path.join(self.folder, "downloads")
        self.driver = subprocess.Popen([DRIVER, "--port=0"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.STDOUT, text=True)
        self.session = ""
        try:
            for line in self.driver.stdout:
                if "started successfully on port" in line:
                    self.port = int(line.rsplit(" ", 1)[1].strip(" .\n"))
                    break
            threading.Thread(target=self.driver.stdout.read, daemon=True).start()
            arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--lang=en",
                         "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--window-size=1100,800",
                         "--user-data-dir=" + os.path.join(self.folder, "profile")]
            if os.geteuid() == 0:
                arguments.append("--no-sandbox")
            options = {"binary": CHROMIUM, "args": arguments,
                       "prefs": {"download.default_directory": self.downloads, "download.prompt_for_download": False}}
            wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"},
                      "unhandledPromptBehavior": "ignore"}
            self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            self.devtools("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.session:
            with contextlib.suppress(OSError, AssertionError):
                self.ask("DELETE", "")
        self.driver.terminate()
        self.driver.wait(SECONDS)
        self.driver.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            value = json.loads(connection.getresponse().read())["value"]
        finally:
            connection.close()
        if isinstance(value, dict) and "error" in value:
            raise AssertionError("%s: %s" % (value["error"], value["message"]))
        return value

    def ask(self, method, path, body=None):
        return self.call(method, "/session/" + self.session + path, body)

    def devtools(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def js(self, script, *arguments):
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        return self.ask("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def label(self, selector):
        """The name that a screen reader tells."""
        return self.ask("GET", "/element/%s/computedlabel" % self.find(selector))

    def click(self, selector):
        self.ask("POST", "/element/%s/click" % self.find(selector), {})

    def type(self, selector, text):
        self.ask("POST", "/element/%s/value" % self.find(selector), {"text": text})

    def press(self, *names):
        """Keys together, on what has the focus."""
        keys = [KEYS.get(name, name) for name in names]
        actions = [{"type": "keyDown", "value": key} for key in keys] + [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def write(self, text):
        """Types into what has the focus."""
        actions = [{"type": kind, "value": c} for c in text for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def wait(self, condition, *arguments, seconds=SECONDS):
        """Waits until an expression is true, and returns its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = self.js("return " + condition, *arguments)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError("waited for: %s; the page says: %s" % (condition, self.js("return document.body.innerText")))

    def texts(self, selector):
        return self.js("return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector)

    def size(self, width, height, scale=1):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def colors(self, scheme):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.ask("GET", "/screenshot")))

    def complaints(self):
        """What the page caused: breaches of its policy, errors, requests to others, lines of the console."""
        foreign = self.js("return performance.getEntriesByType('resource').map((one) => one.name)"
                          ".filter((name) => new URL(name).origin !== location.origin)")
        lines = [one["message"] for one in self.ask("POST", "/se/log", {"type": "browser"})
                 if one["source"] in ("security", "javascript") or "violates" in one["message"] or "Refused" in one["message"]]
        return self.js("return caught") + foreign + lines


@unittest.skipUnless(DRIVER and CHROMIUM, MISSING)
class BrowserCase(unittest.TestCase):
    """Tests in one browser; each begins without anything that an earlier one has kept, at the server that make_server() gives."""
    server = None

    @classmethod
    def make_server(cls):
        """None: each test has servers of its own."""
        return None

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.server = cls.make_server()

    @classmethod
    def tearDownClass(cls):
        if cls.server is not None:
            cls.server.close()
        cls.browser.close()

    def setUp(self):
        if self.server is not None:
            self.open(self.server.url)

    def open(self, url):
        self.browser.open(url + "/health")
        self.browser.js("localStorage.clear(); sessionStorage.clear()")
        self.browser.open(url + "/")
        self.browser.size(1100, 800)
        self.browser.wait("document.querySelector('#facts').textContent")

    def tearDown(self):
        self.assertEqual(self.browser.complaints(), [])

    # ---- What a reader of the page does ----

    def send(self, text):
        self.browser.type("#input", text)
        self.browser.press("Enter")

    def wait_for_end(self):
        self.browser.wait("!document.querySelector('#send').hidden")

    def talk(self, text):
        self.send(text)
        self.wait_for_end()
        return self.messages()[-1]

    def messages(self):
        return self.browser.texts("#messages .text")

    def branch(self, number):
        """What stands between ‹ and › of a message."""
        return self.browser.js("return document.querySelectorAll('.message')[arguments[0]].querySelector('.branches')?.innerText"
                               ".replace(/\\s/g, '') ?? ''", number)

    def act(self, number, name):
        self.browser.js("document.querySelectorAll('.message')[arguments[0]].querySelector(`[data-name='${arguments[1]}']`).click()",
                        number, name)

    def set(self, selector, value):
        """Sets a field as typing does."""
        self.browser.js("const field = document.querySelector(arguments[0]); field.value = arguments[1];"
                        "field.dispatchEvent(new Event('input', {bubbles: true}))", selector, value)


class ScriptedServer(http.server.ThreadingHTTPServer):
    """Shows the page of another server, and answers chats with the events that a test has put into `answers`:
    an object is an event, a number a pause in seconds, an Exception the end of the connection. An answer that is a
    tuple is a status with a body."""
    daemon_threads = True

    def __init__(self, server, models=("scripted",)):
        self.files, self.models, self.answers, self.bodies = {}, models, [], []
        for path in ("/", *("/page/" + name for name in page_files() if name != "index.html")):
            self.files[path] = server.ask("GET", path)
        super().__init__(("127.0.0.1", 0), ScriptedHandler)
        self.url = "http://127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class ScriptedHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, headers, body):
        self.send_response(status)
        for name, value in headers.items():
            if name not in ("Content-Length", "Date", "Server", "Connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def reply_json(self, value, status=200):
        self.reply(status, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def do_GET(self):
        if self.path in self.server.files:
            self.reply(*self.server.files[self.path])
        elif self.path == "/v1/models":
            self.reply_json({"object": "list", "data": [{"id": name, "max_model_len": 1000} for name in self.server.models]})
        else:
            self.reply_json({"status": "ok"})

    def do_POST(self):
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        answer = self.server.answers.pop(0)
        if isinstance(answer, tuple):
            return self.reply_json(answer[1], answer[0])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in answer:
            if isinstance(event, (int, float)):
                time.sleep(event)
            elif isinstance(event, Exception):
                return None
            else:
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                self.wfile.flush()
        self.wfile.write(b"data: [DONE]\n\n")
        return None


def deltas(*members, finish="stop"):
    """The events of an answer whose pieces are these."""
    choices = [{"index": 0, "delta": member, "finish_reason": None} for member in members]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    return [{"choices": [choice]} for choice in choices]
