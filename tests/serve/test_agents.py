"""Sessions of programs that work with tools for many turns, in the form in which such programs send them.

Grammars force the calls, since the model that comes along knows no tools. What is checked: each turn computes what it adds to the
turn before and little more, and strict readers like those of the programs take every event.
"""
import json

from accumulate import message_of, named_events
from common import no_constant
from tool_case import CALLS, MESSAGES, RESPONSES, ToolCase

# Thinks only where it is asked to, like templates of models that can do both.
TEMPLATE = """{%- if messages[0].role == 'system' %}{{ '<|im_start|>system\n' + messages[0].content + '\n' }}{% endif %}
{%- for t in tools or [] %}{{ t | tojson }}{{ '\n' }}{% endfor %}{{ '<|im_end|>\n' }}
{%- for m in messages if m.role != 'system' %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content %}{{ '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{% endif %}
{{- m.content or '' }}
""" + CALLS + """{{- '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' }}
{{- '<think>\n' if enable_thinking else '<think>\n\n</think>\n\n' }}"""

PATHS = ["/srv/project/main.py", "/srv/project/README.md"]
# What the form of an answer adds beside new messages, and what a block of known tokens may lack.
SLACK = 64

SYSTEM = """You are an agent that works on software in a terminal. Use the tools to read files, to change them and to run commands.
Keep answers short. Do not guess what a file says: read it first. Before a change, say in a sentence what you are about to do. After a
change, run the tests that concern it. Never write secrets into files. If a command fails, read its output before you try again.
"""


def function(name, description, properties):
    return {"name": name, "description": description, "input_schema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": properties, "required": list(properties),
        "additionalProperties": False}}


TOOLS = [
    function("Read", "Reads a file. The path is absolute. Lines are numbered from 1.", {
        "file_path": {"type": "string", "enum": PATHS}, "offset": {"type": "integer", "minimum": 1, "maximum": 99, "description": "first line"}}),
    function("Bash", "Runs a command in a shell and returns what it prints.", {
        "command": {"type": "string", "enum": ["ls", "git status", "python -m pytest -q"]}, "timeout": {"type": "integer", "minimum": 1, "maximum": 9}}),
    function("TodoWrite", "Keeps the list of what is to be done.", {
        "todos": {"type": "array", "maxItems": 2, "items": {"type": "object", "additionalProperties": False, "required": ["content", "status"], "properties": {
            "content": {"type": "string", "enum": ["read", "change", "test"]}, "status": {"type": "string", "enum": ["pending", "completed"]}}}}})]


class TerminalAgent(ToolCase):
    """A program that speaks Anthropic's Messages: blocks with marks for caches, a number that changes, thoughts that are kept."""
    template = TEMPLATE

    def turn(self, number, messages, **further):
        """The message of a turn, of which a count is asked for first. Its form is what pydantic models of clients demand."""
        body = {"model": "claude", "max_tokens": 500, "temperature": 0, "metadata": {"user_id": "u"}, "messages": messages, "tools": TOOLS,
                "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0; cch=%05x;" % (number * 7919)},
                           {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}],
                "thinking": {"type": "disabled"}, **further}
        counted = {name: body[name] for name in ("model", "messages", "tools", "system", "thinking")}
        count = self.server.post(MESSAGES + "/count_tokens", counted)["input_tokens"]
        message = message_of(self, named_events(self.server, MESSAGES, body))
        self.assertEqual(set(message), {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"})
        usage = message["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], count)
        return message, count, usage["input_tokens"]

    def test_session(self):
        messages = [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nToday is Monday.\n</system-reminder>"},
                                                 {"type": "text", "text": "Fix the test that fails.", "cache_control": {"type": "ephemeral"}}]}]
        before, ids = None, set()
        for number, name in enumerate(("TodoWrite", "Read", "Bash", "Read", None)):
            choice = {"tool_choice": {"type": "tool", "name": name}} if name else {"max_tokens": 40}
            message, count, computed = self.turn(number, messages, **choice)
            if before is not None:
                self.assertLessEqual(computed, count - before + SLACK, "turn %d" % number)
            before = count
            if name is None:
                break
            self.assertEqual(message["stop_reason"], "tool_use")
            uses = [block for block in message["content"] if block["type"] == "tool_use"]
            self.assertEqual([use["name"] for use in uses], [name])
            ids |= {use["id"] for use in uses}
            self.assertEqual(len(ids), number + 1)
            content = message["content"]
            if number == 0:  # a thought of an answer before, which stays in the history
                content = [{"type": "thinking", "thinking": "The tests come first.", "signature": ""}, *content]
            result = {"type": "tool_result", "tool_use_id": uses[0]["id"], "content": [{"type": "text", "text": "%d: line of output" % i} for i in range(5)]}
            if number == 2:
                result.update(is_error=True, content="command not found")
            reminder = {"type": "text", "text": "<system-reminder>\nThe list is empty.\n</system-reminder>"}
            messages = [*messages, {"role": "assistant", "content": content}, {"role": "user", "content": [result, reminder] if number % 2 else [result]}]
        thoughts, _, computed = self.turn(9, messages, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=20)
        self.assertLessEqual(computed, SLACK)
        self.assertEqual((thoughts["stop_reason"], [block["type"] for block in thoughts["content"]]), ("max_tokens", ["thinking"]))


class ResponseReader:
    """Takes the events that an agent's reader of streams knows, as strictly as that reader, and keeps items that are done."""

    def __init__(self, case):
        self.case, self.items, self.response = case, [], None

    def take(self, event):
        kind = event["type"]
        self.case.assertIsNone(self.response, "an event behind the end")
        if kind == "response.created":
            self.case.assertIn("id", event["response"])
        elif kind in ("response.output_item.added", "response.output_item.done"):
            item = event["item"]
            needed = {"message": {"id", "role", "content"}, "reasoning": {"id", "summary", "content"}, "function_call": {"id", "name", "arguments", "call_id"}}
            self.case.assertLessEqual(needed[item["type"]], set(item))
            if kind.endswith("done"):
                self.items.append(item)
        elif kind in ("response.output_text.delta", "response.reasoning_text.delta"):
            self.case.assertIs(type(event["delta"]), str)
            self.case.assertIs(type(event["content_index"]), int)
        elif kind == "response.failed":
            self.case.fail(event)
        elif kind in ("response.completed", "response.incomplete"):
            self.response = event["response"]
            usage = self.response["usage"]
            for number in (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"],
                           usage["output_tokens_details"]["reasoning_tokens"], usage["total_tokens"]):
                self.case.assertIs(type(number), int)
        json.dumps(event, allow_nan=False)


class CodeAgent(ToolCase):
    """A program that speaks OpenAI's Responses without state: it sends all items again, with tools of types that only a cloud has."""
    template = TEMPLATE
    tools = [{"type": "function", "name": "shell", "description": "Runs a command", "strict": False, "parameters": {
                  "type": "object", "additionalProperties": False, "required": ["command", "workdir", "timeout_ms"], "properties": {
                      "command": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string", "enum": ["bash", "-lc", "ls"]}},
                      "workdir": {"type": "string", "enum": ["/srv/project"]}, "timeout_ms": {"type": "integer", "minimum": 1, "maximum": 9999}}}},
             {"type": "function", "name": "update_plan", "description": "Keeps a plan", "strict": False, "parameters": {
                 "type": "object", "additionalProperties": False, "required": ["plan"], "properties": {"plan": {"type": "array", "maxItems": 2, "items": {
                     "type": "object", "additionalProperties": False, "required": ["status", "step"], "properties": {
                         "step": {"type": "string", "enum": ["look", "change"]}, "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]}}}}}}},
             {"type": "custom", "name": "apply_patch", "description": "Changes files", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /a/"}},
             {"type": "web_search"}]

    def turn(self, items, **further):
        body = {"model": "codex", "instructions": SYSTEM * 2, "input": items, "tools": self.tools, "tool_choice": "auto", "parallel_tool_calls": False,
                "reasoning": {"effort": "medium", "summary": "auto"}, "store": False, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k",
                "text": {"verbosity": "low"}, "client_metadata": {"a": "b"}, "temperature": 0, "max_output_tokens": 400, **further}
        reader = ResponseReader(self)
        for event in named_events(self.server, RESPONSES, body):
            reader.take(event)
        self.assertIsNotNone(reader.response)
        self.assertEqual(reader.response["output"], reader.items)
        self.assertEqual([tool["name"] for tool in reader.response["tools"]], ["shell", "update_plan"])
        count = self.server.post(RESPONSES + "/input_tokens", body)["input_tokens"]
        usage = reader.response["usage"]
        self.assertEqual(usage["input_tokens"], count)
        return reader, count, count - usage["input_tokens_details"]["cached_tokens"]

    def test_session(self):
        items = [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<permissions>\nAsk before you write.\n</permissions>"}]},
                 {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<environment_context>\n<cwd>/srv</cwd>\n</environment_context>"}]},
                 {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is in this folder?"}]}]
        before, ids = None, set()
        for number, name in enumerate(("update_plan", "shell", "shell", "update_plan", None)):
            choice = {"tool_choice": {"type": "function", "name": name}} if name else {"max_output_tokens": 30}
            reader, count, computed = self.turn(items, **choice)
            if before is not None:
                self.assertLessEqual(computed, count - before + SLACK, "turn %d" % number)
            before = count
            if name is None:
                break
            self.assertEqual([(item["type"], item["status"], item["name"]) for item in reader.items], [("function_call", "completed", name)])
            call = reader.items[0]
            arguments = json.loads(call["arguments"], parse_constant=no_constant)
            self.assertEqual(set(arguments), {"plan"} if name == "update_plan" else {"command", "workdir", "timeout_ms"})
            ids.add(call["call_id"])
            self.assertEqual(len(ids), number + 1)
            output = "Exit code: 0\nOutput:\nREADME.md" if number % 2 else [{"type": "input_text", "text": "Plan updated"}]
            thought = {"type": "reasoning", "id": "rs_%d" % number, "summary": [], "content": [{"type": "reasoning_text", "text": "Look first."}],
                       "encrypted_content": None}
            items = [*items, *([thought] if number == 1 else []), call, {"type": "function_call_output", "call_id": call["call_id"], "output": output}]
        self.assertIn(reader.response["status"], ("completed", "incomplete"))
