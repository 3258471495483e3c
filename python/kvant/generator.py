"""The object model of ONNX Runtime GenAI: Model, GeneratorParams, Generator with append_tokens, generate_next_token, token_count and
rewind_to. A program that was written for it runs with one import changed; batches may be ragged, and nothing is padded."""
import ctypes
import json
import sys
import warnings
from typing import Any, Dict, List, Mapping, Optional, Sequence, TextIO, Union

import numpy as np

from . import _bindings as c
from ._library import Handle, InvalidError, address, defaults, integer, lib, new, owned_bytes, text_bytes, token_array, view
from .errors import NotSupportedError
from .generate import BeamOptions
from .model import Model, Tokenizer
from .runner import Runner, Sequence as RunnerSequence, Snapshot
from .sampling import Sampler, SamplingOptions

SEARCH_OPTIONS: Dict[str, Any] = {
    "batch_size": 1,
    "do_sample": False,
    "diversity_penalty": 0.0,
    "early_stopping": True,
    "length_penalty": 1.0,
    "max_length": 0,  # the context
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "past_present_share_buffer": True,  # the cache always grows in its place
    "random_seed": -1,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
}

_LOG_OPTIONS = ("enabled", "filename", "model_input_shapes", "model_input_values", "model_output_shapes", "model_output_values", "ansi_tags",
                "warning", "generate_next_token", "append_next_tokens", "hit_eos", "hit_max_length", "model_logits", "value_stats")
_NO_ROWS = c.kvant_row_function()
_log_file: Optional[TextIO] = None
_log_enabled = False


def set_log_options(**options: Any) -> None:
    """Whether generators made from now on tell what happens to their cache, a line for each tensor and step: enabled; filename: where
    instead of stderr. The other options of ONNX Runtime GenAI are accepted, and choose nothing."""
    global _log_enabled, _log_file
    for name in options:
        if name not in _LOG_OPTIONS:
            raise InvalidError(f"set_log_options: no option named '{name}'; there are {', '.join(_LOG_OPTIONS)}")
    if "filename" in options:
        if _log_file is not None:
            _log_file.close()
        _log_file = open(options["filename"], "a", encoding="utf-8") if options["filename"] else None
    _log_enabled = bool(options.get("enabled", _log_enabled))


def _log(line: str) -> None:
    print(line, file=_log_file or sys.stderr, flush=True)


class GeneratorParams:
    """The parameters of a Generator: options of the search by set_search_options(), and options of its Runner by name, such as
    GeneratorParams(model, kv_type="q8", threads=4)."""

    def __init__(self, model: Model, **runner_options: Any):
        self.model = model
        self.runner_options = runner_options
        self.search = dict(SEARCH_OPTIONS)
        self._told: "set[str]" = set()  # settings without effect that were warned of

    def set_search_options(self, **options: Any) -> None:
        """max_length (tokens of a prompt and its text), min_length, batch_size, do_sample, temperature, top_k, top_p, random_seed,
        repetition_penalty, no_repeat_ngram_size, num_beams, num_return_sequences, length_penalty, early_stopping, diversity_penalty.
        InvalidError for another name, and for a value that is not a number."""
        for name, value in options.items():
            if name not in SEARCH_OPTIONS:
                raise InvalidError(f"set_search_options: no option named '{name}'; there are {', '.join(sorted(SEARCH_OPTIONS))}")
            kinds = (int, float, np.integer, np.floating) if isinstance(SEARCH_OPTIONS[name], float) else (int, np.integer)
            if not isinstance(value, kinds) and not (name == "early_stopping" and value == "never"):
                raise InvalidError(f"set_search_options: {name}: expected a number, found {value!r}")
        self.search.update(options)
        self._check()

    def overlay(self, config: Union[str, bytes, Mapping[str, Any]]) -> None:
        """Lays settings over these: the parts "search", "model" and "decoder" of a genai_config.json, as JSON or as a dict. InvalidError
        for a key that there is not, and nothing is set then; what has no effect here is warned of once."""
        search, options, unused = _overlay(config)
        self.set_search_options(**search)
        self.runner_options.update(options)
        for line in unused:
            if line not in self._told:
                self._told.add(line)
                warnings.warn(line, stacklevel=2)

    def _check(self) -> None:
        for name, least in (("batch_size", 1), ("num_beams", 1), ("num_return_sequences", 1), ("max_length", 0)):
            if self.search[name] < least:
                raise InvalidError(f"set_search_options: {name}: expected at least {least}, found {self.search[name]}")


def _overlay(config: Union[str, bytes, Mapping[str, Any]]) -> "tuple[Dict[str, Any], Dict[str, Any], List[str]]":
    """The settings of a configuration for the search and for the runner, and those that have no effect."""
    data = text_bytes(config) if isinstance(config, (str, bytes)) else json.dumps(config).encode()
    runner = defaults(c.kvant_runner_options)
    unused = owned_bytes("kvant_options_overlay", data, len(data), ctypes.byref(runner), None, None)
    parts = json.loads(data)
    search = {name: value for name, value in parts.get("search", {}).items() if name in SEARCH_OPTIONS}
    options = {}
    for name, usual in (("threads", 0), ("chunk", defaults(c.kvant_runner_options).chunk)):
        if getattr(runner, name) != usual:
            options[name] = getattr(runner, name)
    if "context_length" in parts.get("model", {}):
        options["context"] = parts["model"]["context_length"]
    return search, options, unused.decode().splitlines()


class _Text:
    """One text of a batch. Its last token is processed when the next one is asked for, so that it can be shown before."""

    def __init__(self, sequence: RunnerSequence, sampler: Sampler):
        self.sequence, self.sampler = sequence, sampler
        self.length = 0  # of the sequence
        self.pending: Optional[int] = None
        self.logits: Optional[np.ndarray] = None  # in place of the model's
        self.has_logits = False
        self.done = False
        self.token = ctypes.c_int32()  # the last one, where the library reads and writes it
        self.count = ctypes.c_size_t()

    def __len__(self) -> int:
        return self.length + (self.pending is not None)

    def draw(self, floor: Optional[np.ndarray]) -> int:
        """Draws a token and tells the sampler. `floor`: tokens that may not come yet."""
        sampler, token = self.sampler.pointer, ctypes.byref(self.token)
        if self.logits is None and floor is None:  # without an array in between, which would take longer than all else
            rows = lib.kvant_sequence_logits(self.sequence.runner.pointer, self.sequence.number, ctypes.byref(self.count))
            lib.kvant_sampler_sample(sampler, rows, self.count.value, token)
        else:
            logits = self.sequence.logits() if self.logits is None else self.logits.copy()
            if floor is not None:
                logits[floor] = -np.inf
            lib.kvant_sampler_sample(sampler, address(logits), logits.size, token)
        lib.kvant_sampler_accept(sampler, token, 1)
        return self.token.value

    @property
    def tokens(self) -> np.ndarray:
        tokens = self.sequence.tokens
        return tokens if self.pending is None else np.append(tokens, np.int32(self.pending))


class _Search(Handle):
    """The beam search of one prompt, and the sequences of its beams."""

    __slots__ = ("prompt", "beams", "steps")
    _free = "kvant_beam_search_free"

    def __init__(self, vocab_size: int, options: BeamOptions, prompt: np.ndarray, sequence: RunnerSequence):
        super().__init__()
        self._pointer = new("kvant_beam_search_new", vocab_size, ctypes.byref(options.struct))
        lib.kvant_beam_search_start(self.pointer, address(prompt), len(prompt))
        self.prompt, self.beams, self.steps = prompt, [sequence], 0

    @property
    def rows(self) -> int:
        return lib.kvant_beam_search_rows(self.pointer)

    def choose(self, runner: Runner) -> np.ndarray:
        """Chooses the next tokens by the beams' logits, makes the beams what they continue, and returns the tokens to process."""
        numbers = np.array([beam.number for beam in self.beams], np.int32)
        lib.kvant_beam_search_step_of(self.pointer, runner.pointer, address(numbers), len(numbers))
        self.steps += 1
        count = ctypes.c_size_t()
        tokens = view(lib.kvant_beam_search_tokens(self.pointer, ctypes.byref(count)), count.value, np.int32).copy()
        parents = view(lib.kvant_beam_search_parents(self.pointer, ctypes.byref(count)), count.value, np.int32).tolist()
        if self.rows == 0:
            return tokens[:0]
        before = len(self.beams)
        while len(self.beams) < len(parents):  # the prompt becomes the first beams
            self.beams.append(self.beams[parents[len(self.beams)]].fork())
        runner.reorder(self.beams[:before], [*parents[:before], *range(len(parents), before)])
        while len(self.beams) > len(parents):
            self.beams.pop().close()
        return tokens

    def results(self) -> List[np.ndarray]:
        """Prompt and text of each hypothesis, best first."""
        count, out = ctypes.c_size_t(), []
        lib.kvant_beam_search_results(self.pointer, ctypes.byref(count))
        found = c.kvant_hypothesis()
        found.struct_size = ctypes.sizeof(found)
        for index in range(count.value):
            lib.kvant_beam_search_result(self.pointer, index, ctypes.byref(found))
            out.append(np.concatenate([self.prompt, view(found.tokens, found.count, np.int32)]))
        return out


class GeneratorSnapshot:
    """A state of a Generator; see Generator.snapshot()."""

    def __init__(self, texts: "list[tuple[Snapshot, Sampler, Optional[int], bool]]"):
        self.texts = texts

    def close(self) -> None:
        for snapshot, sampler, _, _ in self.texts:
            snapshot.close()
            sampler.close()
        self.texts = []

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


class Generator:
    """Writes texts token by token, one for each prompt of a batch.

        generator = Generator(model, params)
        generator.append_tokens(tokenizer.encode("..."))
        while not generator.is_done():
            generator.generate_next_token()
            print(stream.decode(generator.get_next_tokens()[0]), end="")
    """

    def __init__(self, model: Model, params: Optional[GeneratorParams] = None):
        params = params or GeneratorParams(model)
        if params.model is not model:
            raise InvalidError("Generator: expected params of the same model")
        search = params.search
        self.batch_size = int(search["batch_size"])
        self._search_options = dict(search)
        self._with_beams = search["num_beams"] > 1 or (search["no_repeat_ngram_size"] > 0 and not search["do_sample"])
        options = dict(params.runner_options)
        options.setdefault("sequences", self.batch_size * int(search["num_beams"]))
        if search["max_length"] > 0:
            options.setdefault("context", int(search["max_length"]))
        self.model = model
        self.tokenizer = Tokenizer(model)
        self.runner = Runner(model, **options)
        if _log_enabled:
            self.runner.set_kv_log(_log)
        self.max_length = int(search["max_length"]) or self.runner.options["context"]
        self._ends = self.tokenizer.eos_token_ids
        self._is_end = frozenset(self._ends.tolist())
        pad = self.tokenizer.pad_token_id
        self._pad = pad if pad is not None else int(self._ends[0]) if len(self._ends) else 0
        self._inputs = (c.kvant_step_input * self.batch_size)()
        self._min_length = int(search["min_length"]) if len(self._ends) else 0
        self._rewinds = 0
        self._searches: List[_Search] = []
        self._next = np.empty(0, np.int32)
        self._texts = [] if self._with_beams else [
            _Text(self.runner.new_sequence(), self._new_sampler(number)) for number in range(self.batch_size)]

    def _new_sampler(self, number: int) -> Sampler:
        search = self._search_options
        seed = int(search["random_seed"])
        chain: Dict[str, Any] = {"samplers": "penalties;top_k;top_p;temperature", "repeat_last_n": -1,
                                 "repeat_penalty": float(search["repetition_penalty"]),
                                 "temperature": float(search["temperature"]) if search["do_sample"] else 0.0,
                                 "top_k": int(search["top_k"]), "top_p": float(search["top_p"]) or 1.0}
        if seed >= 0:
            chain["seed"] = seed + number + self.batch_size * self._rewinds
        return Sampler(self.tokenizer, SamplingOptions(**chain))

    def _beam_options(self) -> BeamOptions:
        search = self._search_options
        sample = bool(search["do_sample"])
        return BeamOptions(beams=int(search["num_beams"]), num_return=int(search["num_return_sequences"]),
                           length_penalty=float(search["length_penalty"]), early_stopping=search["early_stopping"],
                           max_length=self.max_length, min_length=int(search["min_length"]),
                           repetition_penalty=float(search["repetition_penalty"]), no_repeat_ngram=int(search["no_repeat_ngram_size"]),
                           end_tokens=self._ends, sample=int(sample), seed=max(0, int(search["random_seed"])),
                           **({"temperature": float(search["temperature"]), "top_k": int(search["top_k"]),
                               "top_p": float(search["top_p"]) or 1.0} if sample else {}))

    def _batch_of(self, tokens: Any) -> List[np.ndarray]:
        rows = list(tokens) if len(tokens) > 0 and np.ndim(tokens[0]) > 0 else [tokens]
        if len(rows) != self.batch_size:
            raise InvalidError(f"append_tokens: expected tokens for a batch of {self.batch_size}, found {len(rows)}")
        arrays = [token_array(row) for row in rows]
        for number, row in enumerate(arrays):
            if len(row) == 0:
                raise InvalidError(f"append_tokens: prompt {number} has no tokens")
        return arrays

    def append_tokens(self, tokens: Union[Sequence[int], Sequence[Sequence[int]], np.ndarray]) -> None:
        """Processes tokens: those of the prompt, or with a batch a row for each prompt, of any lengths; later ones go on behind the
        text. ContextFullError where they do not fit."""
        rows = self._batch_of(tokens)
        if self._with_beams:
            return self._start_searches(rows)
        inputs = [(text.sequence, row if text.pending is None else np.append(np.int32(text.pending), row))
                  for text, row in zip(self._texts, rows)]
        self.runner.step(inputs)
        for text, (_, row) in zip(self._texts, inputs):
            text.length += len(row)
            text.pending, text.logits, text.has_logits = None, None, True
        for text, row in zip(self._texts, rows):
            text.sampler.accept(row)
            text.done = len(text) >= self.max_length

    def _start_searches(self, rows: List[np.ndarray]) -> None:
        if self._searches:
            raise NotSupportedError("append_tokens: a beam search has begun, and takes no more tokens")
        sequences = [self.runner.new_sequence() for _ in rows]
        try:
            self.runner.step(list(zip(sequences, rows)))
        except Exception:
            for sequence in sequences:
                sequence.close()
            raise
        options = self._beam_options()
        self._searches = [_Search(self.model.info.vocab_size, options, row, sequence) for row, sequence in zip(rows, sequences)]

    def generate_next_token(self) -> None:
        """Chooses the next token of every text that is not done."""
        if self._with_beams:
            return self._next_beams()
        self._process_pending()
        chosen = []
        for text in self._texts:
            if text.done:
                chosen.append(self._pad)
                continue
            if not text.has_logits:
                raise InvalidError("generate_next_token: expected append_tokens() first")
            token = text.draw(self._ends if text.length < self._min_length else None)
            text.pending, text.logits = token, None
            text.done = token in self._is_end or text.length + 1 >= self.max_length
            chosen.append(token)
        self._next = np.array(chosen, np.int32)

    def _process_pending(self) -> None:
        """Processes the last tokens that were chosen, and computes logits that a rewind has dropped."""
        waiting = [text for text in self._texts if text.pending is not None and not text.done]
        for struct, text in zip(self._inputs, waiting):
            text.token.value = text.pending
            struct.sequence, struct.logits = text.sequence.number, c.LOGITS_LAST
            struct.tokens, struct.count = ctypes.addressof(text.token), 1
        if waiting:
            lib.kvant_runner_step(self.runner.pointer, self._inputs, len(waiting), _NO_ROWS, None)
        for text in waiting:
            text.length += 1
            text.pending, text.has_logits = None, True
        for text in self._texts:
            if not text.has_logits and not text.done and text.length > 0:
                text.sequence.compute_logits()
                text.has_logits = True

    def _next_beams(self) -> None:
        if not self._searches:
            raise InvalidError("generate_next_token: expected append_tokens() first")
        inputs, chosen = [], []
        for search in self._searches:
            if search.rows == 0:
                continue
            tokens = search.choose(self.runner)
            chosen.append(tokens)
            inputs += [(beam, [token]) for beam, token in zip(search.beams, tokens.tolist())] if search.rows else []
        if inputs:
            self.runner.step(inputs)
        self._next = np.concatenate(chosen) if chosen else self._next[:0]

    def is_done(self) -> bool:
        """Whether every text has ended, by an end token or by max_length. False before the first tokens."""
        if self._with_beams:
            return bool(self._searches) and all(search.rows == 0 for search in self._searches)
        return all(text.done for text in self._texts)

    def get_next_tokens(self) -> np.ndarray:
        """The tokens that were chosen last, int32 [batch]; texts that were done before have the padding token. With beams: one for each
        live beam."""
        return self._next

    def token_count(self, index: int = 0) -> int:
        """Tokens of a text, its prompt included."""
        if self._with_beams:
            search = self._searches[index] if self._searches else None
            return 0 if search is None else len(search.prompt) + search.steps
        return len(self._texts[index])

    def get_sequence(self, index: int = 0) -> np.ndarray:
        """The tokens of a text, int32, its prompt included. With beams, the best hypotheses so far, num_return_sequences for each
        prompt."""
        if not self._with_beams:
            return self._texts[index].tokens
        every = int(self._search_options["num_return_sequences"])
        return self._searches[index // every].results()[index % every]

    def get_logits(self) -> np.ndarray:
        """The logits of the next tokens, float32 [batch, 1, vocab_size] (with beams, a row for each live beam)."""
        if self._with_beams:
            rows = [beam.logits() for search in self._searches if search.rows for beam in search.beams]
        else:
            self._process_pending()
            rows = [text.sequence.logits() if text.logits is None else text.logits for text in self._texts]
        return np.array(rows, np.float32)[:, None, :]

    def set_logits(self, logits: np.ndarray) -> None:
        """Logits in place of the model's for the next token, [batch, 1, vocab_size] or [batch, vocab_size]."""
        if self._with_beams:
            raise NotSupportedError("set_logits: not with beams")
        self._process_pending()
        rows = np.asarray(logits, np.float32)
        if rows.size != self.batch_size * self.model.info.vocab_size:
            raise InvalidError(f"set_logits: expected {self.batch_size} rows of {self.model.info.vocab_size} numbers, found an array of "
                               f"shape {rows.shape}")
        for text, row in zip(self._texts, rows.reshape(self.batch_size, -1)):
            text.logits = row.copy()

    def rewind_to(self, length: int) -> None:
        """Keeps the first `length` tokens of every text, exactly as if no more had come. Nothing is computed again but what a sliding
        window has dropped, and the logits of the last token kept."""
        if self._with_beams:
            raise NotSupportedError("rewind_to: not with beams")
        length = integer(length, "rewind_to")
        for number, text in enumerate(self._texts):
            if not 0 <= length <= len(text):
                raise InvalidError(f"rewind_to: expected 0 to {len(text)}, the tokens of text {number}, found {length}")
        self._rewinds += 1
        for number, text in enumerate(self._texts):
            if length == len(text):
                continue
            text.pending, text.logits, text.done = None, None, False
            if length < text.length:
                text.sequence.rewind(length, replay=True)
                text.length, text.has_logits = length, False
            if self._search_options["repetition_penalty"] != 1.0:  # which looks at the tokens before
                text.sampler.close()
                text.sampler = self._new_sampler(number)
                text.sampler.accept(text.tokens)

    def snapshot(self) -> GeneratorSnapshot:
        """The present state of the generator, for restore(); it shares all memory."""
        if self._with_beams:
            raise NotSupportedError("snapshot: not with beams")
        return GeneratorSnapshot([(text.sequence.snapshot(), text.sampler.clone(), text.pending, text.done) for text in self._texts])

    def restore(self, snapshot: GeneratorSnapshot) -> None:
        """Becomes what it was, the state of its samplers included. The snapshot can be used again."""
        if len(snapshot.texts) != len(self._texts):
            raise InvalidError(f"restore: expected a snapshot of {len(self._texts)} texts, found {len(snapshot.texts)}")
        for text, (kept, sampler, pending, done) in zip(self._texts, snapshot.texts):
            text.sequence.restore(kept)
            text.sampler.close()
            text.sampler = sampler.clone()
            text.pending, text.logits, text.done = pending, None, done
            text.length, text.has_logits = len(text.sequence), False  # computed where the snapshot has none

    snapshot_state = snapshot

    def close(self) -> None:
        for search in self._searches:
            search.close()
        for text in self._texts:
            text.sampler.close()
        self.runner.close()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()
