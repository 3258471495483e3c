"""The parameters of a Generator, see generator.py, and whether generators tell what happens to their cache."""
import ctypes
import json
import sys
import warnings
from typing import Any, Dict, List, Mapping, Optional, TextIO, Union

import numpy as np

from . import _bindings as c
from ._library import InvalidError, defaults, owned_bytes, text_bytes
from ._options import expect, flag
from .errors import NotSupportedError
from .grammar import Grammar
from .model import Model
from .runner import runner_options as options_of_runner

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
    "pad_token_id": -1,  # what arrays are padded with, see append_tokens; -1: nothing
    "past_present_share_buffer": True,  # the cache always grows in its place
    "random_seed": -1,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
}

_LOG_OPTIONS = ("enabled", "filename", "model_input_shapes", "model_input_values", "model_output_shapes", "model_output_values", "ansi_tags",
                "warning", "generate_next_token", "append_next_tokens", "hit_eos", "hit_max_length", "model_logits", "value_stats")
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


def logs() -> bool:
    """Whether generators tell what happens to their cache."""
    return _log_enabled


def log_line(line: str) -> None:
    print(line, file=_log_file or sys.stderr, flush=True)


class GeneratorParams:
    """The parameters of a Generator: options of the search by set_search_options(), and options of its Runner by name, such as
    GeneratorParams(model, kv_type="q8", threads=4)."""

    def __init__(self, model: Model, **runner_options: Any):
        self.model = expect(model, Model, "GeneratorParams: model")
        options_of_runner(runner_options)  # so that what is wrong is told here
        self.runner_options = runner_options
        self.search = dict(SEARCH_OPTIONS)
        self.grammar: Optional[Grammar] = None
        self._told: "set[str]" = set()  # settings without effect that were warned of
        for config in model.overlays:
            self.overlay(config)

    def set_search_options(self, **options: Any) -> None:
        """max_length (tokens of a prompt and its text), min_length, batch_size, do_sample, temperature, top_k, top_p, random_seed,
        repetition_penalty, no_repeat_ngram_size, num_beams, num_return_sequences, length_penalty, early_stopping, diversity_penalty,
        pad_token_id. InvalidError for another name, and for a value that is not a number."""
        for name, value in options.items():
            if name not in SEARCH_OPTIONS:
                raise InvalidError(f"set_search_options: no option named '{name}'; there are {', '.join(sorted(SEARCH_OPTIONS))}")
            kinds = (int, float, np.integer, np.floating) if isinstance(SEARCH_OPTIONS[name], float) else (int, np.integer)
            if not isinstance(value, kinds) and not (name == "early_stopping" and value == "never"):
                raise InvalidError(f"set_search_options: {name}: expected a number, found {value!r}")
        self.search.update(options)
        self._check()

    def get_search_options(self) -> Dict[str, Any]:
        """All options of the search by name, as they are now."""
        return dict(self.search)

    def set_guidance(self, type: str, data: str, enable_ff_tokens: bool = False) -> None:
        """What texts must become: "json_schema" or "regex", in `data`. Each text follows it from behind its prompt on, and again behind
        later tokens that are appended. NotSupportedError for "lark_grammar"; Grammar has GBNF. `enable_ff_tokens` changes nothing."""
        flag(enable_ff_tokens, "set_guidance: enable_ff_tokens")
        if type == "lark_grammar":
            raise NotSupportedError("set_guidance: lark_grammar: Lark's notation is not known; expected 'json_schema' or 'regex', or "
                                    "GeneratorParams.grammar = Grammar(model, grammar=...) with GBNF")
        if type not in ("json_schema", "regex"):
            raise InvalidError(f"set_guidance: type: expected 'json_schema' or 'regex', found {type!r}")
        self.grammar = Grammar(self.model, **{type: data})

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
    if isinstance(parts.get("model", {}).get("pad_token_id"), int):
        search["pad_token_id"] = parts["model"]["pad_token_id"]
    lines = [line for line in unused.decode().splitlines() if not line.startswith("model.pad_token_id ")]  # it has an effect here
    return search, options, lines
