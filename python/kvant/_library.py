"""Opens libkvant and declares its calls. A call that fails raises what errors.py has for its status.

The library is the file of $KVANT_LIBRARY, or the one beside this package, which a wheel has with the libraries that it needs, or the
one that the system knows. ctypes releases the interpreter's lock during every call.
"""
import ctypes
import ctypes.util
import operator
import os
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np

from . import _bindings as c
from . import _signals
from .errors import BY_STATUS, InvalidError, InternalError

SONAME = "libkvant.so.1"

# Calls that may take long, in which the main thread handles signals.
_COMPUTING = (
    "kvant_batch_poll", "kvant_conversation_answer", "kvant_conversation_forget", "kvant_embedder_embed",
    "kvant_embedder_logits", "kvant_embedder_rank", "kvant_model_open", "kvant_runner_score",
    "kvant_runner_search", "kvant_runner_step", "kvant_sequence_append", "kvant_sequence_append_telling", "kvant_sequence_compute_logits",
    "kvant_sequence_generate", "kvant_sequence_prune", "kvant_sequence_rewind", "kvant_source_new", "kvant_source_new_of_frames",
)


def _load():
    chosen = os.environ.get("KVANT_LIBRARY")
    folder = Path(__file__).parent / "lib"
    if chosen:
        return ctypes.CDLL(chosen)
    if (folder / SONAME).exists():
        # Loaded by path first, so that the library finds them by name.
        for needed in sorted(folder.glob("*.so*")):
            if needed.name != SONAME:
                ctypes.CDLL(str(needed), mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(folder / SONAME))
    try:
        return ctypes.CDLL(SONAME)
    except OSError as error:
        raise ImportError(f"{SONAME}: not found beside the package nor by the system ({error}); set KVANT_LIBRARY to its path") from error


def _check(status, _function, _arguments):
    if status:
        text = (lib.kvant_last_error(None) or b"").decode("utf-8", "replace")
        kind = BY_STATUS[status - 1] if 0 < status <= len(BY_STATUS) else InternalError
        raise kind(text)
    return status


lib = _load()
for _name, (_result, _parameters) in c.FUNCTIONS.items():
    _call = getattr(lib, _name)
    _call.argtypes = _parameters
    if _result is c.STATUS:
        _call.restype = ctypes.c_int32
        _call.errcheck = _check
    else:
        _call.restype = _result
_ask = c.kvant_interrupt_function(_signals.is_interrupted)
for _name in _COMPUTING:
    setattr(lib, _name, _signals.computing(getattr(lib, _name), lib.kvant_set_interrupt, _ask))
if lib.kvant_abi_version() != c.ABI_VERSION:
    raise ImportError(f"{SONAME}: expected version {c.ABI_VERSION} of its interface, found {lib.kvant_abi_version()}")

VERSION = lib.kvant_version().decode()

_log = c.kvant_log_function()  # which the library may call until there is another


def set_log(log: Optional[Callable[[int, str], Any]]) -> None:
    """`log(level, line)` for warnings about files and settings; level 0 debug, 1 information, 2 warning. None: nobody gets them, as at
    first. For the whole process, and not while another thread is in a call. What it raises is lost."""
    global _log
    if log is not None and not callable(log):
        raise InvalidError(f"set_log: expected a function, found {log!r}")
    function = c.kvant_log_function()
    if log is not None:
        function = c.kvant_log_function(
            lambda _user, level, line, size: log(level, ctypes.string_at(line, size).decode("utf-8", "replace")))
    lib.kvant_set_log(function, None)
    _log = function


class Handle:
    """An object of the library, freed by close(), at the end of a `with`, or with the last reference."""

    __slots__ = ("_pointer",)
    _free = None  # the name of the call that frees it

    def __init__(self):
        self._pointer = None

    @property
    def pointer(self):
        """The address for calls. InvalidError after close()."""
        if self._pointer is None:
            raise InvalidError(f"{type(self).__name__}: closed")
        return self._pointer

    @property
    def closed(self) -> bool:
        return self._pointer is None

    def close(self) -> None:
        """Gives the memory back. Calling it again does nothing."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            getattr(lib, self._free)(pointer)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()

    def __del__(self):
        # While Python ends, `lib` may be gone, and with the process goes the memory.
        if getattr(self, "_pointer", None) is not None and lib is not None:
            self.close()


class Guard:
    """Keeps what a callback raises, ends the call that it came from, and raises it again behind that call."""

    def __init__(self):
        self.error: Optional[BaseException] = None

    def call(self, function: Callable[..., Any], *arguments: Any, stop: int = 1) -> int:
        return 0 if _signals.guarded(self, function, arguments) else stop

    def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            result = call(*arguments)
        except Exception:
            if self.error is None:
                raise
            raise self.error from None
        if self.error is not None:
            raise self.error
        return result


def new(name, *arguments):
    """Calls what makes a handle and returns its address."""
    out = ctypes.c_void_p()
    getattr(lib, name)(*arguments, ctypes.byref(out))
    return out.value


def sized(struct):
    """A struct of the C API with its size set and zeros elsewhere."""
    out = struct()
    out.struct_size = ctypes.sizeof(struct)
    return out


def defaults(struct):
    """A struct of options with the library's defaults."""
    out = struct()
    getattr(lib, struct.__name__ + "_default")(ctypes.byref(out), ctypes.sizeof(struct))
    return out


def token_array(tokens, what="tokens"):
    """Tokens as a contiguous int32 array. InvalidError for anything but whole numbers of 32 bits in one dimension."""
    array = np.asarray(tokens)
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidError(f"{what}: expected token ids in one dimension, found {array.dtype} of shape {array.shape}")
    if array.dtype == np.int32:
        return np.ascontiguousarray(array)
    low, high = int(array.min()), int(array.max())
    if low < -(2**31) or high >= 2**31:
        raise InvalidError(f"{what}: expected token ids of 32 bits, found {low if low < -(2**31) else high}")
    return array.astype(np.int32)


def address(array):
    """Where the numbers of an array lie."""
    return array.__array_interface__["data"][0]


def view(pointer, count, kind):
    """An array over memory of the library; it is not copied."""
    if not pointer or not count:
        return np.empty(0, kind)
    kinds = {np.int32: ctypes.c_int32, np.float32: ctypes.c_float, np.int64: ctypes.c_int64}
    return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(kinds[kind])), (count,))


def owned(name, *arguments):
    """Calls what returns memory and a count at its end; the bytes' address and the count, for the caller to free."""
    call = getattr(lib, name)
    out, count = call.argtypes[-2]._type_(), ctypes.c_size_t()
    call(*arguments, ctypes.byref(out), ctypes.byref(count))
    return ctypes.cast(out, ctypes.c_void_p).value, count.value


def owned_tokens(name, *arguments):
    pointer, count = owned(name, *arguments)
    try:
        return view(pointer, count, np.int32).copy()
    finally:
        lib.kvant_free(pointer)


def owned_bytes(name, *arguments):
    pointer, count = owned(name, *arguments)
    try:
        return ctypes.string_at(pointer, count)
    finally:
        lib.kvant_free(pointer)


def text_bytes(text, what="text"):
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise InvalidError(f"{what}: expected str or bytes, found {type(text).__name__}")
    return text.encode("utf-8", "surrogatepass")


def c_text(text, what):
    """The bytes of a text for a call that takes the first 0 for its end."""
    data = text_bytes(text, what)
    if b"\0" in data:
        raise InvalidError(f"{what}: expected no character of code 0, found {text!r}")
    return data


def integer(value, what, bits=64):
    """A whole number of so many bits, of which ctypes would drop the upper ones. InvalidError for anything else."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidError(f"{what}: expected a whole number, found {value!r}") from None
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise InvalidError(f"{what}: expected a number of {bits} bits, found {number}")
    return number
