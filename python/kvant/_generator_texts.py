"""What a Generator writes, see generator.py: texts token by token, and beam searches with the sequences of their beams."""
import ctypes
from typing import Any, Dict, List, Optional

import numpy as np

from . import _bindings as c
from ._library import Handle, address, lib, new, sized, view
from .generate import BeamOptions
from .grammar import Grammar
from .model import Model
from .runner import Runner, Sequence as RunnerSequence
from .sampling import Sampler


def inner(row: np.ndarray, pad: int) -> "tuple[int, int]":
    """Where the tokens of a row begin and end that are not padding."""
    inner = np.flatnonzero(row != pad)
    return (int(inner[0]), int(inner[-1]) + 1) if len(inner) else (0, 0)


class Text:
    """One text of a batch. Its last token is processed when the next one is asked for, so that it can be shown before."""

    def __init__(self, sequence: RunnerSequence, sampler: Sampler):
        self.sequence, self.sampler = sequence, sampler
        self.length = 0  # of the sequence
        self.passed = 0  # the tokens of its last pass
        self.begins = 0  # where the grammar does: behind the tokens that were appended last
        self.pending: Optional[int] = None
        self.logits: Optional[np.ndarray] = None  # in place of the model's
        self.has_logits = False
        self.done = False
        self.token = ctypes.c_int32()  # the last one, where the library reads and writes it
        self.count = ctypes.c_size_t()

    def __len__(self) -> int:
        return self.length + (self.pending is not None)

    def follow(self) -> bool:
        """Takes note of what its sequence has processed. Whether that is anything."""
        length = len(self.sequence)
        if length <= self.length:
            return False
        self.passed = length - self.length
        self.length, self.pending, self.logits, self.has_logits = length, None, None, True
        return True

    def rows_of_last_pass(self, model: Model, runner_options: Dict[str, Any]) -> np.ndarray:
        """The logits of each token of the last pass, float32 [tokens, vocab_size]. Only those of the last one are kept, so that several
        are computed again, by a runner of their own."""
        if self.passed <= 1:
            return self.sequence.logits()[None, :]
        tokens = self.sequence.tokens
        rows = np.empty((self.passed, model.info.vocab_size), np.float32)
        begin = len(tokens) - self.passed
        with Runner(model, **{**runner_options, "sequences": 1}) as runner:
            sequence = runner.new_sequence()
            if begin > 0:
                runner.step([(sequence, tokens[:begin])], "none")
            runner.step([(sequence, tokens[begin:])], "all", rows=lambda _input, token, logits: rows.__setitem__(token, logits))
        return rows

    def begin(self, grammar: Optional[Grammar]) -> None:
        """Lets the text follow the grammar from here on."""
        self.begins = len(self)
        if grammar is not None:
            self.sampler.set_grammar(grammar)

    def repeated(self, size: int) -> np.ndarray:
        """The tokens that would complete a sequence of `size` tokens that the text has already, int32."""
        tokens = self.tokens
        if len(tokens) < size:
            return np.empty(0, np.int32)
        begins = np.lib.stride_tricks.sliding_window_view(tokens, size)
        last = tokens[len(tokens) - size + 1:]
        return begins[(begins[:, :size - 1] == last).all(axis=1), -1]

    def draw(self, floor: Optional[np.ndarray]) -> int:
        """Draws a token. `floor`: tokens that may not come. take() makes it a part of the text."""
        sampler, token = self.sampler.pointer, ctypes.byref(self.token)
        if self.logits is None and floor is None:  # without an array in between, which would take longer than all else
            rows = lib.kvant_sequence_logits(self.sequence.runner.pointer, self.sequence.number, ctypes.byref(self.count))
            lib.kvant_sampler_sample(sampler, rows, self.count.value, token)
        else:
            logits = self.sequence.logits() if self.logits is None else self.logits.copy()
            if floor is not None:
                logits[floor] = -np.inf
            lib.kvant_sampler_sample(sampler, address(logits), logits.size, token)
        return self.token.value

    def take(self, token: int) -> None:
        lib.kvant_sampler_accept(self.sampler.pointer, ctypes.byref(self.token), 1)
        self.pending, self.logits = token, None

    @property
    def tokens(self) -> np.ndarray:
        tokens = self.sequence.tokens
        return tokens if self.pending is None else np.append(tokens, np.int32(self.pending))


class Search(Handle):
    """The beam search of one prompt, and the sequences of its beams."""

    __slots__ = ("prompt", "beams", "steps")
    _free = "kvant_beam_search_free"

    def __init__(self, vocab_size: int, options: BeamOptions, grammar: Optional[Grammar], prompt: np.ndarray, sequence: RunnerSequence):
        super().__init__()
        if grammar is not None:
            options.struct.grammar = grammar.pointer
        self._pointer = new("kvant_beam_search_new", vocab_size, ctypes.byref(options.struct))
        lib.kvant_beam_search_start(self.pointer, address(prompt), len(prompt))
        self.prompt, self.beams, self.steps = prompt, [sequence], 0

    @property
    def rows(self) -> int:
        return lib.kvant_beam_search_rows(self.pointer)

    def chosen(self) -> np.ndarray:
        """The token of each live beam, a copy."""
        count = ctypes.c_size_t()
        return view(lib.kvant_beam_search_tokens(self.pointer, ctypes.byref(count)), count.value, np.int32).copy()

    def waiting(self) -> "List[tuple[RunnerSequence, int]]":
        """The beams that have not processed their token, and that token."""
        length = len(self.prompt) + self.steps
        if self.steps == 0 or self.rows == 0:
            return []
        return [(beam, token) for beam, token in zip(self.beams, self.chosen().tolist()) if len(beam) < length]

    def choose(self, runner: Runner) -> np.ndarray:
        """Chooses the next tokens by the beams' logits, makes the beams what they continue, and returns the tokens to process."""
        numbers = np.array([beam.number for beam in self.beams], np.int32)
        lib.kvant_beam_search_step_of(self.pointer, runner.pointer, address(numbers), len(numbers))
        self.steps += 1
        count = ctypes.c_size_t()
        tokens = self.chosen()
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
        """Prompt and text of each hypothesis, best first and without its end token; behind them live beams as they are."""
        count, out, found = ctypes.c_size_t(), [], sized(c.kvant_hypothesis)
        lib.kvant_beam_search_results(self.pointer, ctypes.byref(count))
        for index in range(count.value):
            lib.kvant_beam_search_result(self.pointer, index, ctypes.byref(found))
            out.append(self._text_of(found))
        lives = []
        for row in range(len(self.chosen()) if self.rows else 0):
            lib.kvant_beam_search_live(self.pointer, row, ctypes.byref(found))
            lives.append((-found.score, row, self._text_of(found)))
        return (out + [text for _, _, text in sorted(lives, key=lambda live: live[:2])]) or [self.prompt.copy()]

    def _text_of(self, found: c.kvant_hypothesis) -> np.ndarray:
        tokens = view(found.tokens, found.count, np.int32)
        return np.concatenate([self.prompt, tokens[:-1] if found.ended else tokens])
