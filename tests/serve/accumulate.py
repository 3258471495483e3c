"""Strict readers of streams: each puts together the answer that its events tell, as clients do."""
import json

from common import SECONDS, http, no_constant, no_twins


def named_events(server, path, body):
    """The events of a stream whose names are their types."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    try:
        connection.request("POST", path, json.dumps({**body, "stream": True}))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        events = []
        for block in answer.read().decode().split("\n\n"):
            lines = [line for line in block.split("\n") if line and not line.startswith(":")]
            if lines:
                name, data = lines
                assert name.startswith("event: ") and data.startswith("data: "), lines
                events.append(json.loads(data[6:], parse_constant=no_constant, object_pairs_hook=no_twins))
                assert events[-1]["type"] == name[7:]
        return events
    finally:
        connection.close()


def chat_choices(case, events):
    """The choices of a chat by index, each as a whole answer has it."""
    case.assertEqual(len({event["id"] for event in events}), 1)
    choices = {}
    for event in events:
        case.assertEqual(event["object"], "chat.completion.chunk")
        for piece in event["choices"]:
            delta, index = piece["delta"], piece["index"]
            case.assertEqual("role" in delta, index not in choices)
            choice = choices.setdefault(index, {"index": index, "message": {"refusal": None}, "logprobs": None, "finish_reason": None})
            case.assertIsNone(choice["finish_reason"], "a chunk behind the last one")
            message = choice["message"]
            for call in delta.pop("tool_calls", []):
                add_call(case, call, message.setdefault("tool_calls", []))
            for name, text in delta.items():
                message[name] = text if message.get(name) is None else message[name] + text
            if piece["logprobs"] is not None:
                choice["logprobs"] = {"content": (choice["logprobs"] or {"content": []})["content"] + piece["logprobs"]["content"], "refusal": None}
            choice["finish_reason"] = piece["finish_reason"]
            if "seed" in piece:
                choice["seed"] = piece["seed"]
    for choice in choices.values():
        case.assertIsNotNone(choice["finish_reason"])
    return [choices[index] for index in sorted(choices)]


def add_call(case, piece, calls):
    """Id and name come once, with the first piece, which has no arguments yet."""
    index = piece.pop("index")
    if index == len(calls):
        case.assertEqual(set(piece), {"id", "type", "function"})
        case.assertEqual((piece["type"], piece["function"]), ("function", {"name": piece["function"]["name"], "arguments": ""}))
        calls.append(piece)
    else:
        case.assertEqual(index, len(calls) - 1)
        case.assertEqual(set(piece), {"function"})
        case.assertEqual(set(piece["function"]), {"arguments"})
        case.assertTrue(piece["function"]["arguments"])
        calls[-1]["function"]["arguments"] += piece["function"]["arguments"]


def message_of(case, events):
    """Anthropic's message, after checks of the order of events. Inputs that were cut are texts."""
    case.assertEqual([event["type"] for event in events[:2]], ["message_start", "ping"])
    message, block, inputs = events[0]["message"], None, ""
    case.assertEqual((message["content"], message["stop_reason"], message["stop_sequence"]), ([], None, None))
    for event in events[2:-2]:
        if event["type"] == "content_block_start":
            case.assertIsNone(block)
            case.assertEqual(event["index"], len(message["content"]))
            block, inputs = event["content_block"], ""
            if block["type"] == "tool_use":
                case.assertEqual((set(block), block["input"]), ({"type", "id", "name", "input"}, {}))
            message["content"].append(block)
        elif event["type"] == "content_block_delta":
            case.assertEqual(event["index"], len(message["content"]) - 1)
            kind = event["delta"]["type"]
            name = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}[kind]
            case.assertEqual(block["type"], {"partial_json": "tool_use"}.get(name, name))
            if name == "partial_json":
                inputs += event["delta"][name]
            else:
                block[name] += event["delta"][name]
        else:
            case.assertEqual(event, {"type": "content_block_stop", "index": len(message["content"]) - 1})
            if block["type"] == "tool_use":
                try:
                    block["input"] = json.loads(inputs)
                except json.JSONDecodeError:
                    block["input"] = inputs
            block = None
    case.assertIsNone(block)
    case.assertEqual([event["type"] for event in events[-2:]], ["message_delta", "message_stop"])
    message.update(events[-2]["delta"])
    message["usage"] = events[-2]["usage"]
    return message


def response_of(case, events):
    """OpenAI's response, after checks of the order of events."""
    case.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
    case.assertEqual([event["type"] for event in events[:2]], ["response.created", "response.in_progress"])
    for event in events[:2]:
        case.assertEqual((event["response"]["status"], event["response"]["output"]), ("in_progress", []))
    items, text, is_done = [], None, True
    for event in events[2:-1]:
        kind = event["type"].removeprefix("response.")
        case.assertEqual(event["output_index"], len(items) - (0 if kind == "output_item.added" else 1))
        if kind == "output_item.added":
            case.assertTrue(is_done)
            item = event["item"]
            case.assertEqual(item["status"], "in_progress")
            case.assertEqual(item["arguments"] if item["type"] == "function_call" else item["content"], "" if item["type"] == "function_call" else [])
            items.append(item)
            text, is_done = "", False
            continue
        item = items[-1]
        case.assertFalse(is_done)
        is_call = item["type"] == "function_call"
        if kind == "output_item.done":
            case.assertEqual(event["item"]["id"], item["id"])
            found = event["item"]["arguments"] if is_call else "".join(part["text"] for part in event["item"]["content"])
            case.assertEqual(found, text)
            if is_call:
                case.assertEqual([event["item"][name] for name in ("call_id", "name")], [item[name] for name in ("call_id", "name")])
            items[-1], is_done = event["item"], True
            continue
        case.assertEqual(event["item_id"], item["id"])
        case.assertEqual(event.get("content_index"), None if is_call else 0)
        if kind.endswith(".delta"):
            case.assertEqual(kind, {"message": "output_text", "reasoning": "reasoning_text", "function_call": "function_call_arguments"}[item["type"]] + ".delta")
            text += event["delta"]
        elif kind == "function_call_arguments.done":
            case.assertEqual((event["arguments"], event["name"]), (text, item["name"]))
        elif kind.endswith("text.done"):
            case.assertEqual(event["text"], text)
    case.assertTrue(is_done)
    response = events[-1]["response"]
    case.assertEqual(events[-1]["type"], "response." + response["status"])
    case.assertEqual(response["output"], items)
    return response
