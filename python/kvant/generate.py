"""Texts for any number of prompts, side by side: samples, stop texts, processors of logits, streams, and beam searches."""
import ctypes
import inspect
from collections import deque
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

import numpy as np

from . import _bindings as c
from ._library import Guard, Handle, InvalidError, address, defaults, integer, lib, new, token_array, view
from ._options import (BEAMS, SAMPLING, check_names, either, expect, flag, function, functions, listed, mapping, names_of, number, set_options,
                       shows, text_array)
from .errors import BY_STATUS, CancelledError, KvantError
from .grammar import Grammar, Schema, grammar_of
from .model import Model, Text, Tokenizer, Tokens
from .runner import Runner, Sequence as RunnerSequence, chosen
from .sampling import SamplingOptions

Prompt = Union[Text, Tokens]
# Called with prompt and text so far, int32 [n], and the logits of the next token, float32 [vocab_size], which it changes in place. Both
# are copies that it may keep.
LogitsProcessor = Callable[[np.ndarray, np.ndarray], Any]

FINISH_REASONS = ("stop", "stop_text", "length", "context", "memory", "cancelled", "error", "deadline", "no_token")


class Generated(NamedTuple):
    """A text that has ended."""

    text: str
    tokens: np.ndarray  # int32, without the end token
    finish_reason: str  # stop, stop_text, length, context, memory, cancelled, error, deadline, no_token
    prompt: int  # the number of its prompt
    sample: int
    seed: int
    prompt_tokens: int  # that were processed
    prompt_seconds: float
    decode_tokens: int
    decode_seconds: float
    error: Optional[KvantError]  # why it ended before it was done
    # With `log_probs`: natural logarithms of the probabilities that the model gave the tokens, float32 [n], and the likeliest tokens at
    # the place of each, the likeliest first, int32 and float32 [n][k].
    log_probs: Optional[np.ndarray] = None
    top_tokens: Optional[np.ndarray] = None
    top_log_probs: Optional[np.ndarray] = None


class Piece(NamedTuple):
    """Some characters of a text under way. At its end `text` is empty and `generated` is there."""

    prompt: int
    sample: int
    text: str
    generated: Optional[Generated] = None


class Hypothesis(NamedTuple):
    """A text that a beam search found."""

    text: str
    tokens: np.ndarray  # int32, an end token included
    log_probs: np.ndarray  # float32, of each token, as they were added up
    score: float  # their sum / length^penalty
    ended: bool


class _Batch(Handle):
    __slots__ = ()
    _free = "kvant_batch_free"


class TextStream:
    """The texts of prompts as they are written: iterate over it for a Piece at a time. Closing it ends what is under way."""

    def __init__(self, runner: Runner, tokenizer: Tokenizer, own_runner: bool):
        self.runner = runner
        self._own_runner = own_runner
        self._tokenizer = tokenizer
        self._batch: Optional[_Batch] = _Batch()
        runner.free_forgotten()
        self._batch._pointer = new("kvant_batch_new", runner.pointer, tokenizer.pointer, None)
        self._guard = Guard()
        self._kept: List[Any] = []  # callbacks: C calls them until the batch is freed
        self._ready: List[Piece] = []
        self._prompts: Dict[int, "tuple[int, int]"] = {}  # by the number of their request; with the sample that its first one is
        self._open = 0
        # Texts with a source have sequences that are made here, as room becomes free.
        self._waiting: "deque[Callable[[], int]]" = deque()
        self._of_sources: Dict[int, RunnerSequence] = {}
        self._ended: List[int] = []

    def add(self, prompt: int, tokens: np.ndarray, sampling: SamplingOptions, samples: int, stop: Sequence[Text],
            processors: Sequence[LogitsProcessor], grammar: Optional[Grammar], fields: Dict[str, Any], max_tokens: int,
            sequence: Optional[RunnerSequence], first_sample: int = 0) -> int:
        request = defaults(c.kvant_request)
        set_options(request, fields, "generate")
        request.prompt, request.prompt_count = address(tokens), len(tokens)
        request.sampling, request.samples, request.max_tokens = ctypes.pointer(sampling.struct), samples, max_tokens
        texts, count = text_array(stop, "generate: stop")
        if texts is not None:
            request.stop_texts, request.stop_text_count = texts, count
        if grammar is not None:
            request.grammar = grammar.pointer
        if sequence is not None:
            request.sequence, request.held = sequence.number, min(len(sequence), len(tokens) - 1)
        kinds = dict(c.kvant_request._fields_)
        request.on_text = kinds["on_text"](
            lambda _user, request, sample, piece, size: self._guard.call(self._take, request, sample, piece, size))
        request.on_end = kinds["on_end"](lambda _user, text: self._guard.call(self._end, text.contents))
        if processors:
            request.on_logits = kinds["on_logits"](
                lambda _user, _request, _sample, at, count, logits, vocab: self._guard.call(
                    self._process, processors, view(at, count, np.int32), view(logits, vocab, np.float32)))
        number = ctypes.c_int64()
        lib.kvant_batch_add(self._batch.pointer, ctypes.byref(request), ctypes.byref(number))
        self._kept.append((request, sequence))
        self._prompts[number.value] = prompt, first_sample
        self._open += samples
        return number.value

    def add_of_source(self, source: np.ndarray, seed: Optional[int], sample: int, prompt: int, tokens: np.ndarray,
                      sampling: Dict[str, Any], *more: Any) -> None:
        """Adds one text that follows a source, once there is room for its sequence."""
        def begin() -> int:
            with self.runner.encode(source) as read:
                sequence = read.new_sequence()
            chain = SamplingOptions(**{**sampling, "seed": None if seed is None else seed + sample})
            number = self.add(prompt, tokens, chain, 1, *more, sequence, sample)
            self._of_sources[number] = sequence
            return number

        self._waiting.append(begin)

    def _begin_waiting(self) -> None:
        for number in self._ended:
            if (sequence := self._of_sources.pop(number, None)) is not None:
                sequence.close()
        self._ended.clear()
        while self._waiting:
            stats = self.runner.stats
            if stats["sequences"] >= self.runner.options["sequences"] and self._of_sources:
                return
            self._waiting.popleft()()

    def _take(self, request, sample, piece, size):
        prompt, first = self._prompts[request]
        self._ready.append(Piece(prompt, first + sample, ctypes.string_at(piece, size).decode("utf-8", "replace")))

    @staticmethod
    def _process(processors, tokens, logits):
        changed = logits.copy()
        for processor in processors:
            processor(tokens.copy(), changed)
        logits[:] = changed

    def _end(self, text):
        error = None
        if text.finish_reason == c.FINISH_ERROR:
            error = BY_STATUS[text.status - 1]((text.error or b"").decode("utf-8", "replace"))
        generated = Generated(
            ctypes.string_at(text.text, text.size).decode("utf-8", "replace"), view(text.tokens, text.count, np.int32).copy(),
            FINISH_REASONS[text.finish_reason], self._prompts[text.request][0], self._prompts[text.request][1] + text.sample, text.seed, text.prompt_tokens,
            text.prompt_seconds, text.decode_tokens, text.decode_seconds, error, *self._log_probs(text))
        self._open -= 1
        self._ended.append(text.request)
        self._ready.append(Piece(generated.prompt, generated.sample, "", generated))

    @staticmethod
    def _log_probs(text) -> "tuple[Optional[np.ndarray], ...]":
        if not text.log_probs:
            return None, None, None
        shape = text.count, text.top_count
        top = [view(at, shape[0] * shape[1], kind).reshape(shape).copy()
               for at, kind in ((text.top_tokens, np.int32), (text.top_log_probs, np.float32))]
        return view(text.log_probs, text.count, np.float32).copy(), top[0], top[1]

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        while not self._ready:
            if self._batch is None or (self._open == 0 and not self._waiting):
                self.close()
                raise StopIteration
            try:
                self._begin_waiting()
                self._guard.run(lib.kvant_batch_poll, self._batch.pointer, ctypes.byref(ctypes.c_size_t()))
            except BaseException:
                self.close()
                raise
        return self._ready.pop(0)

    def close(self) -> None:
        """Ends the texts under way."""
        batch, self._batch = self._batch, None
        if batch is None:
            return
        batch.close()
        for sequence in self._of_sources.values():
            sequence.close()
        self._of_sources.clear()
        self._waiting.clear()
        self._kept.clear()
        self._ready.clear()
        if self._own_runner:
            self.runner.close()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()

    def __del__(self):
        if getattr(self, "_batch", None) is not None:
            self.close()


def _is_one(prompts: Any, what: str) -> bool:
    """Whether these are one prompt, a text or its tokens, rather than a list of prompts."""
    if isinstance(prompts, (str, bytes)):
        return True
    every = prompts if isinstance(prompts, np.ndarray) else listed(prompts, what)
    return len(every) > 0 and not isinstance(every[0], (str, bytes)) and np.ndim(every[0]) == 0


def _prompt_lists(prompts: Union[Prompt, Sequence[Prompt]], tokenizer: Tokenizer, what: str) -> "tuple[list[np.ndarray], bool]":
    """The tokens of every prompt, and whether there was one prompt alone rather than a list of them."""
    one = _is_one(prompts, f"{what}: prompts")
    every = [prompts] if one else list(prompts)
    return [tokenizer.prompt(each) if isinstance(each, (str, bytes)) else token_array(each, f"{what}: prompts") for each in every], one


def _source_lists(sources: Optional[Sequence[Prompt]], every: Sequence[np.ndarray], tokenizer: Tokenizer,
                  what: str) -> "list[Optional[np.ndarray]]":
    """The tokens of the source of every prompt; None where there are no sources."""
    if sources is None:
        return [None] * len(every)
    if _is_one(sources, f"{what}: sources"):
        sources = [sources]
    read = [token_array(source, f"{what}: sources") if not isinstance(source, (str, bytes)) else tokenizer.encode(source, parse_special=False) for source in sources]
    if len(read) != len(every):
        raise InvalidError(f"{what}: {len(every)} prompts and {len(read)} sources")
    return read


def _runner_of(model: Union[Model, Runner], sequences: int, context: int, options: Any, what: str) -> "tuple[Runner, bool]":
    options = mapping(options, f"{what}: runner_options")
    if isinstance(model, Runner):
        if options:
            raise InvalidError(f"{what}: runner_options: expected none beside a Runner")
        return model, False
    options.setdefault("sequences", sequences)
    options.setdefault("context", min(context, model.info.context_length) if context > 0 else 0)
    return Runner(model, **options), True


@shows(*SAMPLING)
def stream(model: Union[Model, Runner], prompts: Union[Prompt, Sequence[Prompt]], *, max_tokens: int = -1,
           max_new_tokens: Optional[int] = None, samples: int = 1,
           stop: Union[Text, Sequence[Text]] = (), processors: Sequence[LogitsProcessor] = (), sequence: Optional[RunnerSequence] = None,
           sources: Optional[Sequence[Prompt]] = None, sampling: Optional[SamplingOptions] = None, runner_options: Optional[Dict[str, Any]] = None, echo: bool = False,
           ignore_end: bool = False, show_special: bool = False, draft_tokens: int = 0, parallel: int = 16, log_probs: Optional[int] = None,
           seconds_max: float = 0, grammar: Union[Grammar, Text, None] = None, regex: Optional[Text] = None,
           choices: Optional[Sequence[Text]] = None, json_object: bool = False, json_schema: Optional[Schema] = None, json_compact: bool = False,
           **more: Any) -> TextStream:
    """As generate(), but gives pieces of the texts as they are written."""
    check_names(more, names_of(stream), "generate")
    of = expect(model, (Model, Runner), "generate: model")
    of = of.model if isinstance(of, Runner) else of
    if sampling is not None and more:
        raise InvalidError("generate: sampling: expected SamplingOptions or options by name, found both")
    max_tokens = either(max_tokens, max_new_tokens, "generate: max_tokens, max_new_tokens")
    max_tokens = integer(max_tokens, "generate: max_tokens" if max_new_tokens is None else "generate: max_new_tokens")
    samples, parallel = integer(samples, "generate: samples", 32), integer(parallel, "generate: parallel")
    if samples < 1:
        raise InvalidError(f"generate: samples: expected at least 1, found {samples}")
    chain = SamplingOptions(**more) if sampling is None else expect(sampling, SamplingOptions, "generate: sampling")
    processors = functions(processors, "generate: processors")
    text_array(stop, "generate: stop")
    expect(sequence, (RunnerSequence, type(None)), "generate: sequence")
    tokenizer = Tokenizer(of)
    every, _ = _prompt_lists(prompts, tokenizer, "generate")
    follows = grammar_of(tokenizer, "generate", grammar=grammar, regex=regex, choices=choices, json_object=json_object,
                         json_schema=json_schema, json_compact=json_compact)
    fields = {"echo": flag(echo, "generate: echo"), "ignore_end": flag(ignore_end, "generate: ignore_end"),
              "show_special": flag(show_special, "generate: show_special"), "draft_tokens": integer(draft_tokens, "generate: draft_tokens"),
              "log_probs": -1 if log_probs is None else integer(log_probs, "generate: log_probs", 32),
              "seconds_max": number(seconds_max, "generate: seconds_max")}
    read = _source_lists(sources, every, tokenizer, "generate")
    if sources is not None and (sequence is not None or sampling is not None):
        raise InvalidError("generate: sources: expected neither a sequence nor SamplingOptions beside them; options by name are")
    longest = max((len(one) for one in every), default=0)
    runner, own = _runner_of(model, max(samples, min(parallel, samples * len(every))), longest + max_tokens if max_tokens >= 0 else 0,
                             runner_options, "generate")
    out = TextStream(runner, tokenizer, own)
    try:
        for place, tokens in enumerate(every):
            if sources is None:
                out.add(place, tokens, chain, samples, stop, processors, follows, fields, max_tokens, sequence)
            else:
                for sample in range(samples):
                    out.add_of_source(read[place], more.get("seed"), sample, place, tokens, more, stop, processors, follows, fields,
                                      max_tokens)
    except BaseException:
        out.close()
        raise
    return out


def generate(model: Union[Model, Runner], prompts: Union[Prompt, Sequence[Prompt]], **options: Any) -> Any:
    """Writes texts for prompts, all of them side by side, each with the bits that it would have alone.

    `prompts`: a text or the tokens of one prompt, or a list of either. Returns a Generated for one prompt, a list of them for a list;
    with `samples` above 1, a list of samples in place of each. A prompt that does not fit the context is refused before anything runs; what
    ends one text later is in its `error`, and is raised where there is only one text.

    max_tokens or max_new_tokens (-1: until an end token or a full context), samples (the seed of each is one more than that before), stop (texts),
    processors (functions of (tokens, logits) that change the logits in place; the text ends where all are -infinity), sequence (of the given Runner, which has the beginning
    of the prompt and keeps the text), sources (what an encoder-decoder reads, one a prompt, texts or tokens), echo, ignore_end, show_special, draft_tokens, parallel (texts under way at the same time),
    log_probs (keep those of each token and of so many likeliest ones; 0: of the token alone), seconds_max (a text ends so long after the call; 0: no limit),
    runner_options (of the Runner that is made, see there), one of grammar (a Grammar or GBNF), regex, choices, json_object, json_schema (a
    dict, a JSON text, a pydantic model; json_compact: without white space), which every text then follows, sampling (SamplingOptions) or its options by name: temperature, top_k,
    top_p, min_p, seed, repeat_penalty, ... What a processor raises ends the call."""
    one = _is_one(prompts, "generate: prompts")
    found: Dict["tuple[int, int]", Generated] = {}
    samples = options.get("samples", 1)
    with stream(model, prompts, **options) as pieces:
        for piece in pieces:
            if piece.generated is not None:
                found[piece.prompt, piece.sample] = piece.generated
    count = 1 if one else len(prompts)
    texts = [[found[prompt, sample] for sample in range(samples)] for prompt in range(count)]
    if one and samples == 1 and texts[0][0].error is not None:
        raise texts[0][0].error
    every = [of if samples > 1 else of[0] for of in texts]
    return every[0] if one else every


generate.__signature__ = inspect.signature(stream).replace(return_annotation=Any)

BEAM_SCORING = {"hf": c.BEAM_HF, "ct2": c.BEAM_CT2, "whisper": c.BEAM_WHISPER, "oga": c.BEAM_OGA}
_TOKEN_LISTS = {"end_tokens": "end_token_count", "forced_eos": "forced_eos_count", "suppress": "suppress_count",
                "begin_suppress": "begin_suppress_count"}


class BeamOptions:
    """How a beam search looks for texts. Names and meanings are those of Hugging Face's GenerationConfig where it has them: beams,
    num_return, length_penalty, early_stopping (False, True, "never"), max_new_tokens or max_tokens, max_length, min_length, min_new_tokens, groups,
    diversity_penalty, repetition_penalty, no_repeat_ngram, forced_bos, end_tokens, forced_eos, suppress, begin_suppress, bad_words,
    sample, temperature, top_k, top_p, seed, renormalize, patience, scoring ("hf", "ct2", "whisper", "oga").

    With `model` the defaults are what its file asks for, and its end tokens."""

    @shows(*BEAMS)
    def __init__(self, model: Optional[Model] = None, **options: Any):
        check_names(options, BEAMS, "BeamOptions")
        self._model, self._kept = expect(model, (Model, type(None)), "BeamOptions: model"), []
        if model is None:
            self.struct = defaults(c.kvant_beam_options)
        else:
            self.struct = c.kvant_beam_options()
            lib.kvant_beam_options_of_model(model.pointer, ctypes.byref(self.struct), ctypes.sizeof(self.struct))
        struct = self.struct
        for name, count in _TOKEN_LISTS.items():
            tokens = options.pop(name, None)
            if tokens is not None:
                array = token_array([tokens] if isinstance(tokens, int) else tokens, f"BeamOptions: {name}")
                self._kept.append(array)
                setattr(struct, name, address(array))
                setattr(struct, count, len(array))
        words = options.pop("bad_words", None)
        if words is not None:
            arrays = [token_array(word, "BeamOptions: bad_words") for word in listed(words, "BeamOptions: bad_words")]
            sizes = np.array([len(word) for word in arrays], np.uintp)
            pointers = (ctypes.POINTER(ctypes.c_int32) * len(arrays))(
                *[ctypes.cast(address(word), ctypes.POINTER(ctypes.c_int32)) for word in arrays])
            self._kept += [arrays, sizes, pointers]
            struct.bad_words, struct.bad_word_sizes, struct.bad_word_count = pointers, address(sizes), len(arrays)
        if (penalty := options.pop("length_penalty", None)) is not None:
            struct.has_length_penalty, struct.length_penalty = 1, number(penalty, "BeamOptions: length_penalty")
        if (early := options.pop("early_stopping", None)) is not None:
            if not isinstance(early, (bool, int, str)) or early not in (False, True, "never"):
                raise InvalidError(f"BeamOptions: early_stopping: expected False, True or 'never', found {early!r}")
            struct.early_stopping = 2 if early == "never" else int(early)
        if (scoring := options.pop("scoring", None)) is not None:
            struct.scoring = chosen(scoring, BEAM_SCORING, "BeamOptions: scoring")
        if (most := options.pop("max_tokens", None)) is not None:
            options["max_new_tokens"] = either(options.get("max_new_tokens"), integer(most, "BeamOptions: max_tokens"),
                                               "BeamOptions: max_new_tokens, max_tokens")
        set_options(struct, options, "BeamOptions")


def hypothesis_of(struct: c.kvant_hypothesis, tokenizer: Tokenizer) -> Hypothesis:
    tokens = view(struct.tokens, struct.count, np.int32).copy()
    return Hypothesis(tokenizer.decode(tokens), tokens, view(struct.log_probs, struct.count, np.float32).copy(), struct.score,
                      bool(struct.ended))


@shows(*BEAMS)
def beam_search(model: Union[Model, Runner], prompts: Union[Prompt, Sequence[Prompt]], *, beams: Optional[int] = None,
                sources: Optional[Sequence[Prompt]] = None, search: Optional[BeamOptions] = None,
                on_step: Optional[Callable[[int, int], Any]] = None, runner_options: Optional[Dict[str, Any]] = None,
                grammar: Union[Grammar, Text, None] = None, regex: Optional[Text] = None, choices: Optional[Sequence[Text]] = None,
                json_object: bool = False, json_schema: Optional[Schema] = None, json_compact: bool = False, **more: Any) -> Any:
    """The likeliest continuations of prompts, best first: a list of Hypothesis for one prompt, a list of those for a list of prompts.

    `sources`: what an encoder-decoder reads before, one for each prompt. `on_step(prompt, generated)` is called after each step of a
    prompt's search; returning False ends that search with what it has. `grammar` and the options beside it: as in generate(), all
    hypotheses follow it. `search` (BeamOptions) or its options by name."""
    check_names(more, names_of(beam_search), "beam_search")
    of = expect(model, (Model, Runner), "beam_search: model")
    of = of.model if isinstance(of, Runner) else of
    if search is not None and (more or beams is not None):
        raise InvalidError("beam_search: search: expected BeamOptions or options by name, found both")
    options = BeamOptions(of, beams=beams, **more) if search is None else expect(search, BeamOptions, "beam_search: search")
    function(on_step, "beam_search: on_step")
    tokenizer = Tokenizer(of)
    every, one = _prompt_lists(prompts, tokenizer, "beam_search")
    follows = grammar_of(tokenizer, "beam_search", grammar=grammar, regex=regex, choices=choices, json_object=json_object,
                         json_schema=json_schema, json_compact=json_compact)
    struct_of = c.kvant_beam_options.from_buffer_copy(options.struct)
    if follows is not None:
        struct_of.grammar = follows.pointer
    read = _source_lists(sources, every, tokenizer, "beam_search")
    structs = (c.kvant_beam_prompt * len(every))()
    for struct, tokens, source in zip(structs, every, read):
        struct.tokens, struct.count = address(tokens), len(tokens)
        if source is not None:
            struct.source, struct.source_count = address(source), len(source)
    found: List[List[Hypothesis]] = [[] for _ in every]
    guard, ended = Guard(), []

    def step(_user, prompt, generated):
        answer = guard.call(on_step, prompt, generated)
        if answer:
            ended.append(prompt)
        return 2 if guard.error is not None else answer

    tell = c.kvant_beam_step_function() if on_step is None else c.kvant_beam_step_function(step)
    take = c.kvant_hypothesis_function(lambda _user, prompt, _rank, struct: guard.call(
        lambda: found[prompt].append(hypothesis_of(struct.contents, tokenizer))) and None)
    longest, limit = max((len(tokens) for tokens in every), default=0), options.struct.max_new_tokens
    runner, own = _runner_of(model, max(1, options.struct.beams) * min(4, max(1, len(every))),
                             max(longest + limit + 1, options.struct.max_length) if limit > 0 else 0, runner_options, "beam_search")
    try:
        runner.free_forgotten()
        guard.run(lib.kvant_runner_search, runner.pointer, structs, len(every), ctypes.byref(struct_of), tell, take, None)
    except CancelledError:
        if not ended:  # by Runner.cancel()
            raise
    finally:
        if own:
            runner.close()
    return found[0] if one else found

