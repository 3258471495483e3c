"""Samplers, which choose a token from a row of logits."""
import ctypes
from typing import Any, Mapping, Optional, Sequence, Union

import numpy as np

from . import _bindings as c
from ._library import Handle, InvalidError, address, defaults, integer, lib, new, token_array
from ._options import SAMPLING, check_names, expect, number, set_options, shows, text_array
from .grammar import Grammar
from .model import Model, Tokenizer, Tokens


class SamplingOptions:
    """How tokens are chosen. Names, defaults, order and interplay are those of llama.cpp: samplers ("top_k;temperature"), seed,
    temperature (0: the likeliest token), top_k, top_p, min_p, typical, repeat_penalty, repeat_last_n and the others of
    kvant_sampling_options; logit_bias is a dict {token: bias}, with -inf to forbid one, dry_breakers a list of texts.

    With `model` the defaults are what its file recommends."""

    @shows(*SAMPLING)
    def __init__(self, model: Optional[Model] = None, **options: Any):
        check_names(options, SAMPLING, "SamplingOptions")
        self._model = expect(model, (Model, type(None)), "SamplingOptions: model")  # whose memory the struct may refer to
        if model is None:
            self.struct = defaults(c.kvant_sampling_options)
        else:
            self.struct = c.kvant_sampling_options()
            lib.kvant_sampling_options_of_model(model.pointer, ctypes.byref(self.struct), ctypes.sizeof(self.struct))
        bias: Optional[Mapping[int, float]] = options.pop("logit_bias", None)
        breakers: Optional[Sequence[str]] = options.pop("dry_breakers", None)
        seed: Optional[int] = options.pop("seed", None)
        set_options(self.struct, options, "SamplingOptions")
        if seed is not None:
            if not 0 <= integer(seed, "SamplingOptions: seed", 65) < 2**64:
                raise InvalidError(f"SamplingOptions: seed: expected 0 to 2^64 - 1, found {seed}")
            self.struct.seed, self.struct.has_seed = int(seed), 1
        if bias is not None:
            what = "SamplingOptions: logit_bias"
            pairs = [(integer(token, what, 32), number(value, what)) for token, value in expect(bias, Mapping, what).items()]
            self._bias = (c.kvant_logit_bias * len(bias))(*pairs)
            self.struct.logit_bias, self.struct.logit_bias_count = self._bias, len(bias)
        if breakers is not None:
            self._breakers, self.struct.dry_breaker_count = text_array(breakers, "SamplingOptions: dry_breakers")
            self.struct.dry_breakers = self._breakers


class Sampler(Handle):
    """Draws tokens from rows of logits. Used by one thread at a time.

    `tokenizer`: for DRY's breakers and the tokens that are never to be generated; without one, `vocab_size` is needed."""

    __slots__ = ("_token",)
    _free = "kvant_sampler_free"

    @shows(*SAMPLING)
    def __init__(self, tokenizer: Optional[Tokenizer] = None, options: Optional[SamplingOptions] = None, *,
                 vocab_size: Optional[int] = None, **more: Any):
        super().__init__()
        self._token = ctypes.c_int32()
        if options is not None and more:
            raise InvalidError("Sampler: expected SamplingOptions or options by name, found both")
        check_names(more, {*SAMPLING, "vocab_size"}, "Sampler")
        expect(tokenizer, (Tokenizer, type(None)), "Sampler: tokenizer")
        options = SamplingOptions(**more) if options is None else expect(options, SamplingOptions, "Sampler: options")
        if vocab_size is None:
            if tokenizer is None:
                raise InvalidError("Sampler: expected a tokenizer or vocab_size")
            vocab_size = tokenizer.vocab_size
        of = None if tokenizer is None else tokenizer.pointer
        self._pointer = new("kvant_sampler_new", of, integer(vocab_size, "vocab_size", 32), ctypes.byref(options.struct))

    def sample(self, logits: np.ndarray) -> int:
        """A token, drawn from logits [vocab_size], float32. It is not accepted yet."""
        row = np.ascontiguousarray(logits, np.float32)
        lib.kvant_sampler_sample(self.pointer, address(row), row.size, ctypes.byref(self._token))
        return self._token.value

    def accept(self, tokens: Union[int, Tokens]) -> None:
        """Tokens of the prompt or of the text that have passed, which penalties look at."""
        array = token_array([tokens] if isinstance(tokens, int) else tokens)
        lib.kvant_sampler_accept(self.pointer, address(array), len(array))

    def forbid(self, token: int) -> None:
        """The token is never drawn from now on."""
        lib.kvant_sampler_forbid(self.pointer, integer(token, "token", 32))

    def set_grammar(self, grammar: Optional[Grammar]) -> None:
        """From now on only tokens are drawn with which the text behind those accepted so far can become what the grammar describes. None:
        any tokens."""
        expect(grammar, (Grammar, type(None)), "set_grammar: grammar")
        lib.kvant_sampler_set_grammar(self.pointer, None if grammar is None else grammar.pointer)

    def clone(self) -> "Sampler":
        """Another sampler in the same state."""
        copy = Sampler.__new__(Sampler)
        Handle.__init__(copy)
        copy._token = ctypes.c_int32()
        copy._pointer = new("kvant_sampler_clone", self.pointer)
        return copy

    @property
    def seed(self) -> int:
        return lib.kvant_sampler_seed(self.pointer)
