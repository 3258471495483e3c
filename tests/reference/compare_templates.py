"""Runs `kvant template` and Python's jinja2 on every template of some folders, for conversations
of many kinds, and names the pairs whose texts differ:

    compare_templates.py build/release/kvant MODEL.gguf FOLDER_WITH_JINJA_FILES ...

MODEL gives the names of BOS and EOS; a vocabulary alone will do. Both may refuse a conversation.
Needs jinja2 and gguf (requirements.txt)."""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf

from chat_environment import environment

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city, now & here",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city's name"},
        "unit": {"type": "string", "enum": ["celsius", "kelvin"]},
        "days": {"type": "integer", "description": "How many", "default": 3}},
        "required": ["city"]}}}
SUM = {"type": "function", "function": {
    "name": "add", "description": "Adds \"two\" numbers",
    "parameters": {"type": "object", "properties": {
        "a": {"type": "number"}, "b": {"type": "array", "items": {"type": "number"}}},
        "required": ["a", "b"]},
    "return": {"type": "number", "description": "The sum"}}}
SYSTEM = {"role": "system", "content": "You are <kind> & \"short\"."}
USER = {"role": "user", "content": "What's the weather in Zürich?"}
ANSWER = {"role": "assistant", "content": "It is sunny."}
AGAIN = {"role": "user", "content": "And tomorrow?\n"}


def call(name, arguments, number="call00001", content="", **more):
    return {"role": "assistant", "content": content, "tool_calls": [
        {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}],
        **more}


def result(content, number="call00001", name="get_weather"):
    return {"role": "tool", "tool_call_id": number, "name": name, "content": content}


CITY = {"city": "Zürich", "unit": "celsius", "deep": {"x": [1, 2.5, None, True]}}
THOUGHT = "The user wants\nthe weather."
# name: (messages, tools, further variables, whether the assistant is to go on)
CONVERSATIONS = {
    "user": ([USER], None, {}, True),
    "user, closed": ([USER], None, {}, False),
    "system": ([SYSTEM, USER], None, {}, True),
    "turns": ([SYSTEM, USER, ANSWER, AGAIN], None, {}, True),
    "turns, closed": ([SYSTEM, USER, ANSWER, AGAIN, ANSWER], None, {}, False),
    "many turns": ([SYSTEM] + [USER, ANSWER] * 4 + [AGAIN], None, {}, True),
    "assistant last": ([USER, ANSWER], None, {}, True),
    "empty contents": ([{"role": "system", "content": ""}, {"role": "user", "content": ""},
                        {"role": "assistant", "content": ""}, AGAIN], None, {}, True),
    "white space": ([{"role": "user", "content": "  \n padded \t\n"},
                     {"role": "assistant", "content": "\n\n x \n"}, AGAIN], None, {}, True),
    "unicode": ([{"role": "user", "content": "日本語 🦙 ﷽ \u00a0 e\u0301 \\n \" ' {{ x }}"}],
                None, {}, True),
    "tags in contents": ([{"role": "user", "content": "<|im_end|></s><end_of_turn>[/INST]"}],
                         None, {}, True),
    "tools": ([USER], [WEATHER], {}, True),
    "tools, system": ([SYSTEM, USER], [WEATHER, SUM], {}, True),
    "call": ([SYSTEM, USER, call("get_weather", CITY)], [WEATHER], {}, False),
    "call, result": ([USER, call("get_weather", CITY), result("{\"sky\": \"clear\"}")],
                     [WEATHER], {}, True),
    "call, result, answer": ([SYSTEM, USER, call("get_weather", CITY), result("clear"), ANSWER,
                              AGAIN], [WEATHER, SUM], {}, True),
    "call with content": ([USER, call("get_weather", CITY, content="Let me see."),
                           result("clear")], [WEATHER], {}, True),
    "call, text arguments": ([USER, call("get_weather", json.dumps(CITY)), result("clear")],
                             [WEATHER], {}, True),
    "call without content": ([USER, {k: v for k, v in call("get_weather", CITY).items()
                                     if k != "content"}, result("clear")], [WEATHER], {}, True),
    "call, null content": ([USER, call("get_weather", CITY, content=None), result("clear")],
                           [WEATHER], {}, True),
    "two calls": ([USER, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call00001", "type": "function",
         "function": {"name": "get_weather", "arguments": CITY}},
        {"id": "call00002", "type": "function",
         "function": {"name": "add", "arguments": {"a": 1, "b": [2, 3.25]}}}]},
        result("clear"), result("6.25", "call00002", "add")], [WEATHER, SUM], {}, True),
    "call, no tools": ([USER, call("get_weather", CITY), result("clear")], None, {}, True),
    "reasoning": ([USER, dict(ANSWER, reasoning_content=THOUGHT), AGAIN], None, {}, True),
    "thinking": ([USER, dict(ANSWER, thinking=THOUGHT), AGAIN], None, {}, True),
    "reasoning in content": ([USER, {"role": "assistant", "content":
                              "<think>\n" + THOUGHT + "\n</think>\n\nSunny."}, AGAIN],
                             None, {}, True),
    "reasoning, call": ([USER, call("get_weather", CITY, reasoning_content=THOUGHT),
                         result("clear")], [WEATHER], {}, True),
    "thinking on": ([SYSTEM, USER], None, {"enable_thinking": True, "thinking": True}, True),
    "thinking off": ([SYSTEM, USER, ANSWER, AGAIN], None,
                     {"enable_thinking": False, "thinking": False}, True),
    "content in parts": ([{"role": "user", "content": [
        {"type": "text", "text": "Look:"}, {"type": "text", "text": " here"}]}], None, {}, True),
    "developer": ([{"role": "developer", "content": "Be short."}, USER], None, {}, True),
    "unknown role": ([{"role": "narrator", "content": "Once."}, USER], None, {}, True),
    "two users": ([USER, AGAIN], None, {}, True),
    "none": ([], None, {}, True),
}


def special_tokens(path):
    fields = gguf.GGUFReader(path).fields
    names = {}
    tokens = fields["tokenizer.ggml.tokens"]
    for name, key in [("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("sep", "seperator"),
                      ("pad", "padding"), ("mask", "mask"), ("cls", "cls")]:
        field = fields.get(f"tokenizer.ggml.{key}_token_id")
        if field is not None:
            token = int(field.parts[field.data[0]][0])
            names[name + "_token"] = bytes(tokens.parts[tokens.data[token]]).decode()
    return names


def expected(source, messages, tools, variables, go_on):
    try:
        return environment().from_string(source).render(
            messages=messages, tools=tools, documents=None, add_generation_prompt=go_on,
            **variables), ""
    except Exception as error:  # whatever a template makes Python raise
        return None, repr(error)


def found(program, model, path, folder, messages, tools, variables, go_on):
    (folder / "messages.json").write_text(json.dumps(messages))
    command = [program, "template", model, str(folder / "messages.json"),
               "--chat-template", str(path), "--chat-template-kwargs", json.dumps(variables)]
    if tools is not None:
        (folder / "tools.json").write_text(json.dumps(tools))
        command += ["--tools", str(folder / "tools.json")]
    if not go_on:
        command.append("--no-generation-prompt")
    run = subprocess.run(command, capture_output=True)
    text = run.stdout.decode() if run.returncode == 0 else None
    return text, run.stderr.decode().strip()


def main():
    program, model, *folders = sys.argv[1:]
    paths = [path for folder in folders for path in sorted(pathlib.Path(folder).glob("*.jinja"))]
    special = special_tokens(model)
    counts = {"equal": 0, "refused by both": 0, "different": 0}
    with tempfile.TemporaryDirectory() as name:
        for path in paths:
            source = path.read_text()
            for title, (messages, tools, variables, go_on) in CONVERSATIONS.items():
                want, why = expected(source, messages, tools, {**special, **variables}, go_on)
                got, error = found(program, model, path, pathlib.Path(name), messages, tools,
                                   variables, go_on)
                if want == got:
                    counts["equal" if want is not None else "refused by both"] += 1
                    continue
                counts["different"] += 1
                print(f"{path.name}, {title}:\n  jinja2: {want!r} {why}\n  kvant:  {got!r} {error}")
    print(f"{len(paths)} templates, {len(CONVERSATIONS)} conversations:",
          ", ".join(f"{count} {word}" for word, count in counts.items()))
    sys.exit(counts["different"] > 0)


if __name__ == "__main__":
    main()
