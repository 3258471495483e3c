#!/usr/bin/env python3
"""Talks to kvant serve through the packages openai and anthropic, as they are, and compares what they hand out.

    PYTHON tests/reference/check_clients.py [PROGRAM] [--write]

PYTHON has openai 3 and anthropic 2. For both: answers, streams through the packages' own accumulators, counts of tokens, calls of tools,
schemas, and the class of each error. Warnings are errors. It prints a line for each part and ends with 1 where one fails. With --write
it makes tests/serve/recorded_clients.json, the requests that tests/serve/test_recorded.py sends without the packages.
"""
import json
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WRITES = "--write" in sys.argv[1:]
ARGUMENTS = [argument for argument in sys.argv[1:] if argument != "--write"]
os.environ["KVANT_PROGRAM"] = ARGUMENTS[0] if ARGUMENTS else str(ROOT / "build/release/kvant")
sys.path.insert(0, str(ROOT / "tests/serve"))

import anthropic  # noqa: E402  the path comes first
import openai  # noqa: E402
import pydantic  # noqa: E402
import recorded_clients  # noqa: E402
from common import CHAT_MODEL, TEXT_MODEL, Server  # noqa: E402
from test_tool_dialects import PLAIN  # noqa: E402
from tool_case import ANTHROPIC_TOOLS, TOOLS  # noqa: E402

GREEDY = {"extra_body": {"temperature": 0}}  # anthropic's functions take no temperature
QUESTION = [{"role": "user", "content": "What is 17 + 25?"}]


class Sum(pydantic.BaseModel):
    """A schema."""
    done: bool
    digit: int = pydantic.Field(ge=1, le=9)


def openai_of(server, **further):
    return openai.OpenAI(base_url=server.url + "/v1", **{"api_key": "key", "max_retries": 0, **further})


def anthropic_of(server, **further):
    return anthropic.Anthropic(base_url=server.url, **{"api_key": "key", "max_retries": 0, **further})


def expect(found, wanted, what=""):
    if found != wanted:
        raise AssertionError(f"{what}: expected {wanted!r}, found {found!r}")


def expect_error(kind, call, **members):
    try:
        call()
    except kind as error:
        expect(type(error), kind)
        for name, value in members.items():
            expect(getattr(error, name), value, name)
        return error
    raise AssertionError(f"expected {kind.__name__}")


def chats(server):
    """openai: chats, whole, streamed and through the helper."""
    client = openai_of(server)
    body = {"model": "dialogue", "messages": QUESTION, "temperature": 0, "max_tokens": 40}
    whole = client.chat.completions.create(**body)
    text = whole.choices[0].message.content
    assert "42" in text, text
    pieces = list(client.chat.completions.create(**body, stream=True, stream_options={"include_usage": True}))
    expect("".join(chunk.choices[0].delta.content or "" for chunk in pieces if chunk.choices), text)
    expect(sum(1 for chunk in pieces if chunk.choices and chunk.choices[0].delta.role), 1, "chunks with a role")
    expect(pieces[-1].usage.completion_tokens, whole.usage.completion_tokens)
    with client.chat.completions.stream(**body) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    expect((final.choices[0].message.content, final.choices[0].finish_reason), (text, "stop"))
    listed = client.chat.completions.create(**body, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    expect("".join(token.token for token in listed), text)
    expect([choice.index for choice in client.chat.completions.create(**{**body, "n": 3}).choices], [0, 1, 2])


def schemas(server):
    """openai: a pydantic model as a schema."""
    client = openai_of(server)
    for seed in range(10):
        answer = client.chat.completions.parse(model="m", messages=QUESTION, response_format=Sum, seed=seed, max_tokens=60)
        assert isinstance(answer.choices[0].message.parsed, Sum)
        response = client.responses.parse(model="m", input="What is 17 + 25?", text_format=Sum)
        assert isinstance(response.output_parsed, Sum)


def completions(server):
    """openai: completions, models."""
    client = openai_of(server)
    body = {"model": "m", "prompt": "17 + 25", "temperature": 0, "max_tokens": 8}
    text = client.completions.create(**body).choices[0].text
    expect("".join(chunk.choices[0].text for chunk in client.completions.create(**body, stream=True)), text)
    echo = client.completions.create(**body, echo=True, logprobs=2).choices[0]
    expect((echo.text, echo.logprobs.token_logprobs[0]), ("17 + 25" + text, None))
    expect([model.id for model in client.models.list()], ["dialogue"])
    expect(client.models.retrieve("dialogue").id, "dialogue")


def responses(server):
    """openai: responses, whole and streamed."""
    client = openai_of(server)
    body = {"model": "m", "input": "What is 17 + 25?", "temperature": 0}
    whole = client.responses.create(**body)
    with client.responses.stream(**body) as stream:
        numbers = [event.sequence_number for event in stream]
        final = stream.get_final_response()
    expect(numbers, list(range(len(numbers))))
    expect((final.output_text, final.status), (whole.output_text, "completed"))
    expect(final.usage.output_tokens, whole.usage.output_tokens)
    cut = client.responses.create(**body, max_output_tokens=2)
    expect((cut.status, cut.incomplete_details.reason), ("incomplete", "max_output_tokens"))


def openai_tools(server):
    """openai: calls of tools, whole and through the helper."""
    client = openai_of(server)
    body = {"model": "m", "messages": QUESTION, "tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "order"}}, "temperature": 0,
            "max_tokens": 400, "parallel_tool_calls": False}
    call = client.chat.completions.create(**body).choices[0].message.tool_calls[0]
    with client.chat.completions.stream(**body) as stream:
        for _ in stream:
            pass
        told = stream.get_final_completion().choices[0].message.tool_calls[0]
    expect((told.function.name, told.function.arguments), (call.function.name, call.function.arguments))
    json.loads(call.function.arguments)
    history = [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
               {"role": "tool", "tool_call_id": call.id, "content": "done"}]
    client.chat.completions.create(**{**body, "messages": history, "tool_choice": "auto", "max_tokens": 5})


def openai_errors(server):
    """openai: the class of each error, and that a full queue is tried again."""
    client = openai_of(server)
    body = {"model": "m", "messages": QUESTION}
    expect_error(openai.BadRequestError, lambda: client.chat.completions.create(**{**body, "temperature": "hot"}), status_code=400, param="temperature")
    expect_error(openai.NotFoundError, lambda: client.models.retrieve("none"), code="model_not_found")
    expect_error(openai.BadRequestError, lambda: client.completions.create(model="m", prompt="a " * 4000), code="context_length_exceeded")
    expect_error(openai.InternalServerError, lambda: client.embeddings.create(model="m", input="a"), status_code=501)
    with Server(CHAT_MODEL, "--api-key", "right") as other:
        error = expect_error(openai.AuthenticationError, lambda: openai_of(other).models.list(), code="invalid_api_key")
        assert error.request_id.startswith("req-")
        openai_of(other, api_key="right").models.list()
    with Server(TEXT_MODEL, "--parallel", "1", "--queue", "1", "-c", "200000") as other:
        endless = {"prompt": "a", "max_tokens": -1, "ignore_eos": True}
        busy = [other.begin("/v1/completions", endless)]
        other.wait_until(lambda metrics: metrics["llamacpp:requests_processing"] == 1)
        busy.append(other.begin("/v1/completions", endless))
        other.wait_until(lambda metrics: metrics["llamacpp:requests_deferred"] == 1)
        ask = {"model": "m", "prompt": "a", "max_tokens": 1}
        error = expect_error(openai.RateLimitError, lambda: openai_of(other).completions.create(**ask), code="rate_limit_exceeded")
        assert int(error.response.headers["retry-after"]) >= 1
        for connection in busy:
            connection.close()
        openai_of(other, max_retries=5).completions.create(**ask)


def messages(server):
    """anthropic: messages, streams, counts, stop sequences."""
    client = anthropic_of(server)
    body = {"model": "m", "max_tokens": 60, "messages": QUESTION, **GREEDY}
    whole = client.messages.create(**body)
    with client.messages.stream(**body) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    expect((text, final.content[0].text, final.stop_reason), (whole.content[0].text,) * 2 + ("end_turn",))
    expect(final.usage.output_tokens, whole.usage.output_tokens)
    count = client.messages.count_tokens(model="m", messages=QUESTION).input_tokens
    expect(whole.usage.input_tokens + whole.usage.cache_read_input_tokens, count)
    stopped = client.messages.create(**body, stop_sequences=[text[3:6]])
    expect((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", text[3:6]))


def anthropic_tools(server):
    """anthropic: calls of tools, whole and through the helper."""
    client = anthropic_of(server)
    body = {"model": "m", "max_tokens": 400, "messages": QUESTION, "tools": ANTHROPIC_TOOLS, "tool_choice": {"type": "tool", "name": "order"}, **GREEDY}
    whole = client.messages.create(**body)
    with client.messages.stream(**body) as stream:
        final = stream.get_final_message()
    blocks = [[(block.type, block.name, block.input) for block in message.content] for message in (whole, final)]
    expect(blocks[0], blocks[1])
    expect(whole.stop_reason, "tool_use")
    history = [*QUESTION, {"role": "assistant", "content": [block.model_dump() for block in whole.content]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": whole.content[-1].id, "content": "done"}]}]
    client.messages.create(**{**body, "messages": history, "tool_choice": {"type": "auto"}, "max_tokens": 5})


def anthropic_errors(server):
    """anthropic: the class of each error."""
    client = anthropic_of(server)
    expect_error(anthropic.BadRequestError, lambda: client.messages.create(model="m", max_tokens=0, messages=QUESTION), status_code=400)
    with Server(CHAT_MODEL, "--api-key", "right") as other:
        expect_error(anthropic.AuthenticationError, lambda: anthropic_of(other).messages.create(model="m", max_tokens=1, messages=QUESTION), status_code=401)
        anthropic_of(other, api_key="right").messages.create(model="m", max_tokens=1, messages=QUESTION)
    with Server(CHAT_MODEL, "--strict-model") as other:
        expect_error(anthropic.NotFoundError, lambda: anthropic_of(other).messages.create(model="m", max_tokens=1, messages=QUESTION), status_code=404)


def main():
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", ResourceWarning)
    print(f"openai {openai.__version__}, anthropic {anthropic.__version__}, Python {sys.version.split()[0]}")
    failed, recorded = 0, {}
    with tempfile.TemporaryDirectory() as folder:
        template = Path(folder, "template.jinja")
        template.write_text(PLAIN, encoding="utf-8")
        tools = (TEXT_MODEL, "--chat-template", str(template), "-c", "4096", "--strict")
        plain = (CHAT_MODEL,)
        for name, options, parts in (("plain", plain, (chats, schemas, completions, responses, openai_errors, messages, anthropic_errors)),
                                     ("tools", tools, (openai_tools, anthropic_tools))):
            with Server(*options) as server:
                recorder = recorded_clients.Recorder(server)
                server.url = recorder.url
                recorded[name] = recorder.recorded
                for part in parts:
                    try:
                        part(server)
                        print("passed  " + part.__doc__)
                    except Exception:  # whatever a client raises is a fault
                        failed += 1
                        print("FAILED  " + part.__doc__ + "\n" + traceback.format_exc())
                recorder.close()
    if WRITES and not failed:
        versions = {"openai": openai.__version__, "anthropic": anthropic.__version__}
        count = recorded_clients.write(ROOT / "tests/serve/recorded_clients.json", versions, recorded)
        print(f"wrote {count} requests")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
