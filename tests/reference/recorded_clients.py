"""Records the requests that the packages openai and anthropic send, and what they need of the answers.

A Recorder stands between a package and kvant serve. What is needed of an answer is what the package's own types demand: the members
without which its model of the answer cannot be made, and the types of their values. check_clients.py --write calls this module.
"""
import functools
import http.client
import http.server
import json
import threading
import typing
import urllib.parse

import anthropic.types
import openai.types
import openai.types.chat
import openai.types.responses
import pydantic

LEFT_OUT = {"host", "connection", "content-length", "accept-encoding", "transfer-encoding"}


class ModelList(pydantic.BaseModel):
    object: str
    data: typing.List[openai.types.Model]


# By path: the type of a whole answer, and that of an event.
TYPES = {
    "/v1/chat/completions": (openai.types.chat.ChatCompletion, openai.types.chat.ChatCompletionChunk),
    "/v1/completions": (openai.types.Completion, openai.types.Completion),
    "/v1/responses": (openai.types.responses.Response, openai.types.responses.ResponseStreamEvent),
    "/v1/models": (ModelList, None),
    "/v1/messages": (anthropic.types.Message, anthropic.types.RawMessageStreamEvent),
    "/v1/messages/count_tokens": (anthropic.types.MessageTokensCount, None),
}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def hand_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        connection = http.client.HTTPConnection(self.server.address, timeout=120)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        headers = {name.lower(): value for name, value in self.headers.items() if name.lower() not in LEFT_OUT}
        self.server.recorded.append({"method": self.command, "path": self.path, "headers": headers, "body": json.loads(body) if body else None,
                                     "status": answer.status, "type": answer.headers["Content-Type"], "data": data.decode()})
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in LEFT_OUT:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = hand_on

    def log_message(self, *_):
        pass


class Recorder:
    """Hands requests on to a server, and keeps them with their answers."""

    def __init__(self, server):
        self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.proxy.address = urllib.parse.urlsplit(server.url).netloc
        self.proxy.recorded = self.recorded = []
        self.url = "http://127.0.0.1:%d" % self.proxy.server_port
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()

    def close(self):
        self.proxy.shutdown()
        self.proxy.server_close()


def merged(one, other):
    """What two values need together; None is anything."""
    if isinstance(one, str) and isinstance(other, str):
        return "|".join(sorted({*one.split("|"), *other.split("|")}))
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: merged(one[name], other[name]) if name in one and name in other else {**one, **other}[name] for name in sorted({*one, *other})}
    if isinstance(one, list) and isinstance(other, list):
        return [merged(one[0], other[0])] if one and other else one or other
    return None


def needs_of(value):
    """What the types of a package demand of a value: {name: ...} of an object, [...] of a list, else names of types with | between."""
    if isinstance(value, pydantic.BaseModel):
        fields = type(value).model_fields
        return {field.alias or name: needs_of(getattr(value, name)) for name, field in fields.items() if field.is_required()}
    if isinstance(value, list):
        needs = [needs_of(one) for one in value]
        return [functools.reduce(merged, needs)] if needs else []
    if isinstance(value, dict):
        return "object"
    return {bool: "boolean", int: "number", float: "number", str: "string", type(None): "null"}[type(value)]


def model_of(kind, data):
    """What a package makes of an answer or event. Its type of completions knows neither chunks nor the prompt's first token, whose members
    are null, so that the package does not check these either."""
    if kind is openai.types.Completion:
        return kind.construct(**data)
    return pydantic.TypeAdapter(kind).validate_python(data)


def events_of(text):
    for block in text.split("\n\n"):
        data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
        if data and data[0] != "[DONE]":
            yield json.loads(data[0])


def entry_of(one, server):
    """A request with what is needed of its answer: of the whole one, or of events by their types."""
    path = one["path"].split("?")[0]
    entry = {"server": server, **{name: one[name] for name in ("method", "path", "headers", "body", "status", "type")}}
    if one["status"] != 200:
        return entry
    whole, event = TYPES["/v1/models" if path.startswith("/v1/models") else path]
    if path.startswith("/v1/models/"):
        whole = openai.types.Model
    if not one["type"].startswith("text/event-stream"):
        entry["needs"] = needs_of(model_of(whole, json.loads(one["data"])))
        return entry
    needs = {}
    for data in events_of(one["data"]):
        kind = data.get("type", "chunk")
        found = {"type": "string"} if kind == "ping" else needs_of(model_of(event, data))  # which the package leaves out
        needs[kind] = merged(needs[kind], found) if kind in needs else found
    entry["events"] = needs
    return entry


def key_of(entry):
    """Requests that differ in their words only are one."""
    body = entry["body"] or {}
    forms = {name: type(value).__name__ for name, value in body.items()}
    return json.dumps([entry["method"], entry["path"], entry["status"], "anthropic-version" in entry["headers"], sorted(forms.items()),
                       body.get("stream"), [sorted(one) for one in body.get("messages", []) if isinstance(one, dict)]])


def write(path, versions, recorded):
    """`recorded`: lists of requests by the name of their server."""
    entries = {}
    for server, requests in recorded.items():
        for one in requests:
            entry = entry_of(one, server)
            entries.setdefault(key_of(entry), entry)
    with open(path, "w", encoding="utf-8") as file:
        lines = ",\n".join(json.dumps(entry, ensure_ascii=False, sort_keys=True) for entry in entries.values())
        file.write('{"recorded_with": %s, "requests": [\n%s\n]}\n' % (json.dumps(versions), lines))
    return len(entries)
