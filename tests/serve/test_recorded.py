"""Requests that the packages openai and anthropic have sent: each is answered with what their types need of an answer.

tests/reference/check_clients.py --write has recorded them. Texts may differ; names, types and the order of events may not.
"""
import http.client
import json
import os
import tempfile
import unittest

from common import CHAT_MODEL, SECONDS, TEXT_MODEL, Server, no_constant, no_twins
from test_tool_dialects import PLAIN

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded_clients.json")
NAMES = {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null", dict: "object", list: "list"}


class Recorded(unittest.TestCase):
    def check(self, value, needs, place):
        """Whether a value has what is needed. Beside it there may be more."""
        if isinstance(needs, dict):
            self.assertIsInstance(value, dict, place)
            self.assertLessEqual(set(needs), set(value), place)
            for name, further in needs.items():
                self.check(value[name], further, place + "." + name)
        elif isinstance(needs, list):
            self.assertIsInstance(value, list, place)
            for number, one in enumerate(value):
                self.check(one, needs[0] if needs else None, "%s[%d]" % (place, number))
        elif needs is not None:
            self.assertIn(NAMES[type(value)], needs.split("|"), place)

    def check_events(self, data, needs):
        events = [json.loads(line[6:], parse_constant=no_constant, object_pairs_hook=no_twins) for line in data.decode().split("\n")
                  if line.startswith("data: ") and line != "data: [DONE]"]
        kinds = [event.get("type", "chunk") for event in events]
        for event, kind in zip(events, kinds):
            self.assertIn(kind, needs)
            self.check(event, needs[kind], kind)
        self.assertEqual(set(kinds), set(needs))

    def test_requests(self):
        with open(RECORDED, encoding="utf-8") as file:
            requests = json.load(file)["requests"]
        self.assertEqual({request["server"] for request in requests}, {"plain", "tools"})
        self.assertEqual({"anthropic-version" in request["headers"] for request in requests}, {True, False})
        with tempfile.NamedTemporaryFile("w", suffix=".jinja", encoding="utf-8") as template:
            template.write(PLAIN)
            template.flush()
            for name, options in (("plain", (CHAT_MODEL,)), ("tools", (TEXT_MODEL, "--chat-template", template.name, "-c", "4096", "--strict"))):
                with Server(*options) as server:
                    for request in requests:
                        if request["server"] == name:
                            with self.subTest(path=request["path"], body=request["body"]):
                                self.check_one(server, request)

    def check_one(self, server, request):
        body = None if request["body"] is None else json.dumps(request["body"])
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        try:
            connection.request(request["method"], request["path"], body, request["headers"])
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        self.assertEqual((answer.status, answer.headers["Content-Type"]), (request["status"], request["type"]), data)
        if "events" in request:
            self.check_events(data, request["events"])
        elif "needs" in request:
            self.check(json.loads(data, parse_constant=no_constant, object_pairs_hook=no_twins), request["needs"], request["path"])


if __name__ == "__main__":
    unittest.main()
