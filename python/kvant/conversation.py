"""Conversations with a model: messages, and answers that compute only what is new."""
import ctypes
import json
import queue
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

from . import _bindings as c
from ._library import Guard, Handle, InvalidError, defaults, integer, lib, new, owned_bytes, sized, text_bytes
from ._options import SAMPLING, check_names, either, expect, flag, mapping, names_of, shows, text_array
from .generate import FINISH_REASONS
from .grammar import Grammar, Schema, grammar_of
from .model import ChatTemplate, Model, Path, Text, json_bytes, path_bytes, template_options
from .runner import Runner, runner_options as options_of_runner
from .sampling import SamplingOptions

PARTS = ("reasoning", "content")
_CALL_KINDS = {c.CALL_BEGIN: "call", c.CALL_ARGUMENTS: "arguments", c.CALL_END: "call_end"}
Messages = Union[str, Sequence[Mapping[str, Any]]]


class AnswerReport(NamedTuple):
    """Counts and times of an answer."""

    finish_reason: str  # stop, stop_text, length, context, memory, cancelled
    conversation_tokens: int  # prompt and answer
    processed_tokens: int  # of the prompt, for this answer
    reused_tokens: int  # of the prompt, which the cache held already
    replayed_tokens: int  # computed again to go back to those
    generated_tokens: int
    forgotten_messages: int  # for this answer, since the context was full
    shifted: bool  # in the middle of the answer, the context was full and has moved on
    prompt_seconds: float
    decode_seconds: float


class AnswerEvent(NamedTuple):
    """Something that an answer brings. kind: "reasoning" or "content" with more text; "call" with the name of a tool; "arguments" with more of
    that call's arguments, which together are a JSON object; "call_end"."""

    kind: str
    text: str = ""
    call: int = -1  # the number of the call in the answer, from 0
    id: str = ""  # as the model wrote it, at "call" or at "call_end"
    is_complete: bool = True  # False at "call_end" where the answer has ended within the call


def _event_of(event: Any) -> AnswerEvent:
    text = ctypes.string_at(event.text, event.size) if event.size else b""
    return AnswerEvent(_CALL_KINDS[event.kind], text.decode("utf-8", "replace"), event.call, (event.id or b"").decode("utf-8", "replace"),
                       event.kind != c.CALL_END or bool(event.is_complete))


class Conversation(Handle):
    """A conversation with a model.

        with kvant.Conversation(model, system="Answer in one sentence.") as chat:
            print(chat.say("Why is the sky blue?"))
            for part, text in chat.stream("And at night?"):
                print(text, end="")

    `model`: a Model, for which the conversation opens runners as it needs them (`runner_options`, see Runner), or a Runner with room
    for a sequence, in which it lives then. `template`: a ChatTemplate, the name of one that comes with kvant, or a file; None: the
    model's own. max_tokens or max_new_tokens (of an answer; -1: until an end token or a full context), stop (texts), ignore_end, context_shift (forget the
    oldest messages where the context is full), beams (above 1: the best text of a search), enable_thinking and variables (of
    the template), tools (a list in the form of OpenAI's API; calls of an answer are told from its content, see tool_calls) and tool_choice
    ("auto", "none", "required" or the name of a tool), one of grammar (a Grammar or GBNF), regex, choices, json_object, json_schema (a dict, a JSON text, a pydantic model;
    json_compact: without white space), which answers then follow, sampling (SamplingOptions) or its options by name: temperature, top_k, seed, ... What is not named is as the model's
    file recommends. Used by one thread at a time, together with its forks; only cancel() may come from another."""

    __slots__ = ("_report", "_of")
    _free = "kvant_conversation_free"

    @shows(*SAMPLING)
    def __init__(self, model: Union[Model, Runner], template: Union[ChatTemplate, str, None] = None, *, system: str = "",
                 max_tokens: int = -1, max_new_tokens: Optional[int] = None, stop: Union[Text, Sequence[Text]] = (), ignore_end: bool = False, context_shift: bool = False,
                 beams: int = 1, enable_thinking: Optional[bool] = None, tools: Optional[Sequence[Any]] = None,
                 variables: Optional[Mapping[str, Any]] = None, sampling: Optional[SamplingOptions] = None,
                 runner_options: Optional[Dict[str, Any]] = None, grammar: Union[Grammar, Text, None] = None, regex: Optional[Text] = None,
                 choices: Optional[Sequence[Text]] = None, json_object: bool = False, json_schema: Optional[Schema] = None,
                 json_compact: bool = False, tool_choice: Optional[str] = None, **more: Any):
        super().__init__()
        self._report: Optional[AnswerReport] = None
        check_names(more, names_of(Conversation.__init__), "Conversation")
        expect(model, (Model, Runner), "Conversation: model")
        runner = model if isinstance(model, Runner) else None
        of = model if runner is None else runner.model
        expect(template, (ChatTemplate, str, type(None)), "Conversation: template")
        if sampling is not None and more:
            raise InvalidError("Conversation: sampling: expected SamplingOptions or options by name, found both")
        options_here = mapping(runner_options, "Conversation: runner_options")
        if runner is not None and options_here:
            raise InvalidError("Conversation: runner_options: expected none beside a Runner")
        chain = SamplingOptions(of, **more) if sampling is None else expect(sampling, SamplingOptions, "Conversation: sampling")
        render = template_options(enable_thinking, tools, variables, "Conversation")
        options = defaults(c.kvant_conversation_options)
        texts, count = text_array(stop, "Conversation: stop")
        if texts is not None:
            options.stop_texts, options.stop_text_count = texts, count
        options.sampling, options.render = ctypes.pointer(chain.struct), ctypes.pointer(render)
        most = either(max_tokens, max_new_tokens, "Conversation: max_tokens, max_new_tokens")
        options.max_tokens = integer(most, "Conversation: max_tokens" if max_new_tokens is None else "Conversation: max_new_tokens")
        options.ignore_end, options.context_shift = flag(ignore_end, "Conversation: ignore_end"), flag(context_shift, "Conversation: context_shift")
        options.beams = integer(beams, "Conversation: beams", 32)
        self._of = of
        follows = grammar_of(of, "Conversation", grammar=grammar, regex=regex, choices=choices, json_object=json_object,
                             json_schema=json_schema, json_compact=json_compact)
        if follows is not None:
            options.grammar = follows.pointer
        if tool_choice is not None:
            options.tool_choice = text_bytes(expect(tool_choice, str, "Conversation: tool_choice"), "Conversation: tool_choice")
        text_bytes(system, "Conversation: system")
        made = ChatTemplate(of, template) if isinstance(template, str) else template
        pointer = None if made is None else made.pointer
        if runner is not None:
            runner.free_forgotten()
            self._pointer = new("kvant_conversation_new", runner.pointer, pointer, ctypes.byref(options))
        else:
            self._pointer = new("kvant_conversation_open", of.pointer, ctypes.byref(options_of_runner(options_here)), pointer,
                                ctypes.byref(options))
        if system:
            self.system = system

    # ---- Messages ----

    @property
    def messages(self) -> List[Dict[str, Any]]:
        """All messages as dicts with role, content and what else they have, the system's first."""
        return json.loads(owned_bytes("kvant_conversation_messages", self.pointer))

    @property
    def system(self) -> str:
        """The message of the system; "": there is none."""
        messages = self.messages
        return messages[0]["content"] if messages and messages[0]["role"] == "system" else ""

    @system.setter
    def system(self, text: str) -> None:
        data = text_bytes(text, "system")
        lib.kvant_conversation_set_system(self.pointer, data, len(data))

    def add(self, messages: Messages) -> None:
        """Adds messages, [{"role": ..., "content": ...}, ...] or their JSON text, all of them or none. Roles are user, assistant, tool,
        and system for the first message of all."""
        data = json_bytes(messages, "add: messages")
        lib.kvant_conversation_add(self.pointer, data, len(data))

    def undo(self) -> str:
        """Takes the last message of the user back with all behind it, and returns its text."""
        return owned_bytes("kvant_conversation_undo", self.pointer).decode("utf-8", "replace")

    def reset(self) -> None:
        """Leaves no messages but the system's."""
        lib.kvant_conversation_reset(self.pointer)

    def forget(self) -> int:
        """Leaves out the oldest exchanges until the rest takes at most half the context, and returns how many messages that are."""
        out = ctypes.c_int64()
        lib.kvant_conversation_forget(self.pointer, ctypes.byref(out))
        return out.value

    # ---- Answers ----

    @property
    def tool_calls(self) -> List[Dict[str, Any]]:
        """The calls of tools in the last message, as OpenAI's API has them: [{"id": ..., "type": "function", "function": {"name": ...,
        "arguments": "JSON"}}]. Results are messages: add([{"role": "tool", "tool_call_id": ..., "content": ...}]), then answer()."""
        messages = self.messages
        return messages[-1].get("tool_calls", []) if messages and messages[-1]["role"] == "assistant" else []

    def answer(self) -> str:
        """Answers the last message, such as the result of a tool, and returns the answer."""
        return self._answered()

    def set_tool_choice(self, tool_choice: str) -> None:
        """What the answers to come have to do with the tools: "auto", "none", "required" or the name of one."""
        lib.kvant_conversation_set_tool_choice(self.pointer, text_bytes(expect(tool_choice, str, "set_tool_choice"), "set_tool_choice"))

    def say(self, text: Text) -> str:
        """Says something to the model and returns its answer. Without an answer, after an error or a cancellation, nothing is said."""
        self._add_user(text)
        return self._answered()

    def stream(self, text: Text) -> Iterator["tuple[str, str]"]:
        """As say(), but gives pieces of the answer as they are written, each with its part: "reasoning" or "content". The call begins
        with the first piece that is asked for; closing the iterator ends the answer. In between, the conversation is in use."""
        if text is None:
            raise InvalidError("stream: expected a text, found None")
        events = self.events(text)
        try:
            for event in events:
                if event.kind in PARTS:
                    yield event.kind, event.text
        finally:
            events.close()

    def events(self, text: Optional[Text] = None) -> Iterator[AnswerEvent]:
        """As stream(), but gives everything that the answer brings, calls of tools, too: the name of a call first, then pieces of its
        arguments. None: answers the last message, such as the result of a tool."""
        if text is not None:
            self._add_user(text)
        pieces: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        stopped = threading.Event()
        ask = c.kvant_interrupt_function(lambda _user: int(stopped.is_set()))

        def take(event: AnswerEvent) -> bool:
            pieces.put(event)
            return not stopped.is_set()

        def run() -> None:
            lib.kvant_set_interrupt(ask, None)  # of this thread, and so for as long as it lives
            try:
                self._answer(take, None)
                pieces.put(None)
            except BaseException as error:
                pieces.put(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            while isinstance(piece := pieces.get(), AnswerEvent):
                yield piece
        finally:
            stopped.set()
            thread.join()
            if text is not None:
                self._drop_unanswered()
        if piece is not None:
            raise piece

    def regenerate(self) -> str:
        """Answers the last message of the user again."""
        if (self.messages or [{"role": ""}])[-1]["role"] == "assistant":
            lib.kvant_conversation_drop_answer(self.pointer)
        return self._answered()

    def edit(self, text: Text) -> str:
        """Puts a text in place of the last message of the user, takes back all behind it, and returns the new answer."""
        data = text_bytes(text)
        lib.kvant_conversation_edit(self.pointer, data, len(data))
        return self._answered()

    @property
    def report(self) -> Optional[AnswerReport]:
        """Counts and times of the last answer."""
        return self._report

    def set_beams(self, beams: int) -> None:
        lib.kvant_conversation_set_beams(self.pointer, integer(beams, "set_beams", 32))

    def set_grammar(self, grammar: Union[Grammar, Text, None] = None, **options: Any) -> None:
        """The grammar that the answers to come follow, by the options of the constructor: regex, choices, json_object, json_schema,
        json_compact. Without any: none."""
        check_names(options, ("regex", "choices", "json_object", "json_schema", "json_compact"), "set_grammar")
        follows = grammar_of(self._of, "set_grammar", grammar=grammar, **options)
        lib.kvant_conversation_set_grammar(self.pointer, None if follows is None else follows.pointer)

    def cancel(self) -> None:
        """From any thread: ends the answer under way, or else the next one."""
        lib.kvant_conversation_cancel(self.pointer)

    # ---- Copies and files ----

    def fork(self, seed: Optional[int] = None) -> "Conversation":
        """A conversation of its own that goes on from here, and shares the cache for what both have in common. `seed`: that of its
        answers; without one, equal messages get equal answers."""
        number = None
        if seed is not None:
            if not 0 <= integer(seed, "fork: seed", 65) < 2**64:
                raise InvalidError(f"fork: seed: expected 0 to 2^64 - 1, found {seed}")
            number = ctypes.byref(ctypes.c_uint64(seed))
        out = Conversation.__new__(Conversation)
        Handle.__init__(out)
        out._report, out._of = self._report, self._of
        out._pointer = new("kvant_conversation_fork", self.pointer, number)
        return out

    def save(self, path: Path) -> str:
        """Saves the messages in a file, and their cache in another one with ".kvs" behind its name. Returns why the cache could not be
        saved; "" if it was."""
        return self._noted("kvant_conversation_save", path)

    def load(self, path: Path) -> str:
        """Goes on with a saved conversation. Returns why its tokens will be computed again; "" if they need not be."""
        return self._noted("kvant_conversation_load", path)

    @property
    def held_tokens(self) -> int:
        """Tokens in the cache."""
        return self._info().held_tokens

    @property
    def context(self) -> int:
        return self._info().context

    def __repr__(self) -> str:
        return "Conversation(closed)" if self.closed else f"Conversation({self._info().messages} messages)"

    def _info(self):
        found = sized(c.kvant_conversation_info)
        lib.kvant_conversation_get_info(self.pointer, ctypes.byref(found))
        return found

    def _add_user(self, text: Text) -> None:
        data = text_bytes(text)
        lib.kvant_conversation_add_user(self.pointer, data, len(data))

    def _drop_unanswered(self) -> bool:
        messages = self.messages
        if not messages or messages[-1]["role"] != "user":
            return False
        self.undo()
        return True

    def _answered(self) -> str:
        try:
            self._answer(None, None)
        finally:
            unanswered = self._drop_unanswered()
        return "" if unanswered else self.messages[-1]["content"]

    def _answer(self, take: Optional[Callable[[AnswerEvent], Any]], progress: Optional[Callable[[int, int], Any]]) -> None:
        guard, sink, report = Guard(), sized(c.kvant_answer_sink), sized(c.kvant_answer_report)
        kinds = dict(c.kvant_answer_sink._fields_)
        if take is not None:
            sink.on_text = kinds["on_text"](lambda _user, part, piece, size: guard.call(
                take, AnswerEvent(PARTS[part], ctypes.string_at(piece, size).decode("utf-8", "replace"))))
            sink.on_call = kinds["on_call"](lambda _user, event: guard.call(take, _event_of(event.contents)))
        if progress is not None:
            sink.on_prompt = kinds["on_prompt"](lambda _user, done, tokens: guard.call(progress, done, tokens))
        guard.run(lib.kvant_conversation_answer, self.pointer, ctypes.byref(sink), ctypes.byref(report))
        values = {name: getattr(report, name) for name in AnswerReport._fields}
        values.update(finish_reason=FINISH_REASONS[report.finish_reason], shifted=bool(report.shifted))
        self._report = AnswerReport(**values)

    def _noted(self, name: str, path: Path) -> str:
        note = ctypes.c_char_p()
        getattr(lib, name)(self.pointer, path_bytes(path), ctypes.byref(note))
        try:
            return (note.value or b"").decode("utf-8", "replace")
        finally:
            lib.kvant_free(ctypes.cast(note, ctypes.c_void_p))
