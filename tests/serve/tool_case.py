"""Servers whose template tells of tools, and what their calls have to be.

No model that comes along was trained to call tools. Its template has marks of a byte for calls and of two for the end of thoughts,
so that biases make thoughts, content and calls likely; grammars do the rest.
"""
import json
import os
import tempfile

from common import TEXT_MODEL, ServerCase

CHATS = "/v1/chat/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"

# How templates write calls of tools.
CALLS = """{%- for c in m.tool_calls or [] %}
{{- '@{"name": ' + c.function.name | tojson + ', "arguments": ' + c.function.arguments | tojson + '}#' }}
{%- endfor %}
"""

MARKS = """{%- if tools %}{{ '<|im_start|>system\n' }}{% for t in tools %}{{ t | tojson }}{{ '\n' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' }}
{%- if m.reasoning_content %}{{ '~' + m.reasoning_content + '<>' }}{% endif %}
{{- m.content or '' }}
""" + CALLS + """{{- '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }}"""

ORDER = {"type": "object", "properties": {"size": {"type": "string", "enum": ["small", "large"]},
                                          "count": {"type": "integer", "minimum": 1, "maximum": 99}, "hot": {"type": "boolean"}},
         "required": ["size", "count"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "order", "description": "Orders coffee", "parameters": ORDER}},
         {"type": "function", "function": {"name": "stop"}}]
FLAT_TOOLS = [{"type": "function", **tool["function"]} for tool in TOOLS]
ANTHROPIC_TOOLS = [{"name": tool["function"]["name"], "input_schema": tool["function"].get("parameters", {"type": "object", "properties": {},
                                                                                                            "additionalProperties": False})}
                   for tool in TOOLS]
# Without line breaks blanks in JSON are short, and without its mark there is no thought.
ONLY_CALLS = [["\n", False], ["~", False]]
ALL_PARTS = [["\n", False], ["@", 14], ["<", 14], [">", 14], ["~", 13]]


class ToolCase(ServerCase):
    model = TEXT_MODEL
    template = MARKS
    parallel = 4

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = os.path.join(folder.name, "template.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write(cls.template)
        cls.options = ("--chat-template", path, "-c", "4096", "--parallel", str(cls.parallel),
                       "--strict")  # an answer has the same bits whatever is known of its prompt
        super().setUpClass()

    def check_arguments(self, name, arguments):
        """What the schema of the tool says, by hand."""
        if name == "stop":
            self.assertEqual(arguments, {})
            return
        self.assertEqual(name, "order")
        self.assertLessEqual(set(arguments), {"size", "count", "hot"})
        self.assertIn(arguments["size"], ("small", "large"))
        self.assertIs(type(arguments["count"]), int)
        self.assertTrue(1 <= arguments["count"] <= 99)
        self.assertIn(arguments.get("hot", True), (True, False))

    def check_calls(self, calls):
        """Calls of a chat that are complete."""
        self.assertEqual(len({call["id"] for call in calls}), len(calls))
        for call in calls:
            self.assertRegex(call["id"], "^[a-z0-9]{9}$")
            self.assertEqual((set(call), call["type"]), ({"id", "type", "function"}, "function"))
            self.check_arguments(call["function"]["name"], json.loads(call["function"]["arguments"]))

    def expect(self, path, body, param, words=""):
        """400, with the name of what is wrong."""
        found, _, data = self.server.ask("POST", path, body)
        self.assertEqual(found, 400, (body, data))
        if path.startswith(MESSAGES):
            self.assertIn(param + ": ", data["error"]["message"])
        else:
            self.check_error(data, param=param)
        self.assertIn(words, data["error"]["message"])
