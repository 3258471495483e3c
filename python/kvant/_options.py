"""Options by name: which there are, what type each takes, and how signatures show them. Everything that is wrong is an InvalidError that
names the option."""
import ctypes
import inspect
import operator
from typing import Any, Callable, Dict, Iterable, Mapping, Tuple

import numpy as np

from . import _bindings as c
from ._library import InvalidError, c_text

_WHOLE = (ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t)
_PLAIN = (*_WHOLE, ctypes.c_float, ctypes.c_double, ctypes.c_char_p)


def _names(struct: Any, without: Iterable[str] = (), more: Iterable[str] = ()) -> Tuple[str, ...]:
    """The fields of a struct that are numbers or texts, and names that stand for what is none."""
    own = [name for name, kind in struct._fields_ if kind in _PLAIN and not name.endswith("_count") and not name.startswith("has_")]
    return tuple(sorted({*own, *more} - {"struct_size", *without}))


MODEL = _names(c.kvant_model_options)
RUNNER = _names(c.kvant_runner_options, more=("kv_type", "source_kv_type"))
SAMPLING = _names(c.kvant_sampling_options, more=("logit_bias", "dry_breakers"))
BEAMS = _names(c.kvant_beam_options, more=("max_tokens", "end_tokens", "forced_eos", "suppress", "begin_suppress", "bad_words"))


def check_names(options: Iterable[str], known: Iterable[str], what: str) -> None:
    """InvalidError, with all names that there are, for one that there is not."""
    for name in options:
        if name not in known:
            raise InvalidError(f"{what}: no option named '{name}'; there are {', '.join(sorted(known))}")


def set_options(struct: Any, options: Mapping[str, Any], what: str) -> Any:
    """Sets fields of a struct that are numbers or texts. InvalidError for a value of a wrong type; None leaves a field as it is."""
    kinds = dict(struct._fields_)
    for name, value in options.items():
        if value is None:
            continue
        kind, label = kinds[name], f"{what}: {name}"
        if kind is ctypes.c_char_p:
            setattr(struct, name, c_text(value, label))
        elif kind in _WHOLE:
            setattr(struct, name, _whole(value, kind, label))
        else:
            setattr(struct, name, number(value, label))
    return struct


def _whole(value: Any, kind: Any, what: str) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        raise InvalidError(f"{what}: expected a whole number, found {value!r}") from None
    if kind(found).value != found:
        raise InvalidError(f"{what}: expected a number of {8 * ctypes.sizeof(kind)} bits, found {value!r}")
    return found


def number(value: Any, what: str) -> float:
    if isinstance(value, (str, bytes)):
        raise InvalidError(f"{what}: expected a number, found {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidError(f"{what}: expected a number, found {value!r}") from None


def flag(value: Any, what: str) -> int:
    """1 for True, 0 for False and what equals them."""
    if not isinstance(value, (bool, int, np.bool_, np.integer)) or value not in (0, 1):
        raise InvalidError(f"{what}: expected True or False, found {value!r}")
    return int(value)


def expect(value: Any, kinds: Any, what: str) -> Any:
    """The value. InvalidError unless it is of one of these classes; None is left out of what the message names."""
    if not isinstance(value, kinds):
        names = [kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)) if kind is not type(None)]
        raise InvalidError(f"{what}: expected {' or '.join(names)}, found {value!r}")
    return value


def mapping(value: Any, what: str) -> Dict[str, Any]:
    """A dict of it; {} for None."""
    if value is not None and not isinstance(value, Mapping):
        raise InvalidError(f"{what}: expected options as a dict, found {value!r}")
    return dict(value or {})


def text_array(texts: Any, what: str) -> Tuple[Any, int]:
    """A text, or some of them, as an array for a call and their number; (None, 0) for none."""
    every = [texts] if isinstance(texts, (str, bytes)) else listed(texts, what)
    encoded = [c_text(text, what) for text in every]
    return ((ctypes.c_char_p * len(encoded))(*encoded) if encoded else None), len(encoded)


def listed(values: Any, what: str) -> list:
    try:
        return list(values)
    except TypeError:
        raise InvalidError(f"{what}: expected a list, found {values!r}") from None


def functions(values: Any, what: str) -> list:
    found = listed(values, what)
    for function in found:
        if not callable(function):
            raise InvalidError(f"{what}: expected functions, found {function!r}")
    return found


def function(value: Any, what: str) -> Any:
    """The function, or None."""
    if value is not None and not callable(value):
        raise InvalidError(f"{what}: expected a function, found {value!r}")
    return value


def either(first: Any, second: Any, what: str) -> Any:
    """What was given of two names of one option, of which the first is -1 or None where it was not. InvalidError where both were."""
    if second is None:
        return first
    if first is not None and not (isinstance(first, int) and first == -1):
        raise InvalidError(f"{what}: expected one of the two, found {first!r} and {second!r}")
    return second


def names_of(function: Callable[..., Any]) -> Tuple[str, ...]:
    """The options that a function takes by name alone."""
    return tuple(name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY)


def shows(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Shows options in the signature of a function in place of its **options; None is what the library or the file has."""
    def mark(function):
        signature = inspect.signature(function)
        shown = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
        have = {parameter.name for parameter in shown}
        shown += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names if name not in have]
        function.__signature__ = signature.replace(parameters=shown)
        return function
    return mark
