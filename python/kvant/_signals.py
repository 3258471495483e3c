"""Signals that come while the main thread is in a call of the library.

Python runs handlers of signals between two of its own instructions, so none would run while a call computes, and what a handler raises in
a callback of the library would be lost in C. So calls that compute are made through computing(): meanwhile the library asks the thread
every 30 ms whether it shall go on, which lets handlers run; what they raise, as KeyboardInterrupt, is kept, ends the call, and is raised
behind it. What a handler raises in a function of the caller, as a logits processor, is raised there. Other threads are left alone, for
Python runs handlers on the main thread only.
"""
import _signal
import atexit
import os
import threading
from typing import Any, Callable, Dict, List, Optional

# Signals that programs commonly have handlers for.
_SIGNALS = tuple(getattr(_signal, name) for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(_signal, name))


class _Call:
    """A call that the main thread is in."""

    __slots__ = ("error",)

    def __init__(self):
        self.error: Optional[BaseException] = None


_calls: List[_Call] = []  # the innermost one last
_handlers: Dict[int, Callable[[int, Any], Any]] = {}  # those that _take stands for
_asking = False  # whether the library asks the main thread


def _take(number: int, frame: Any) -> None:
    """Stands for a handler while the main thread is in a call."""
    if not _calls or _is_in_callback(frame):
        _handlers[number](number, frame)
        return
    try:
        _handlers[number](number, frame)
    except BaseException as error:
        if _calls[-1].error is None:
            _calls[-1].error = error


def _is_in_callback(frame: Any) -> bool:
    """Whether the signal came in a function that guarded() has called, which takes what is raised there."""
    at = frame
    while at is not None and at.f_code is not _COMPUTING:
        if at.f_code is _GUARDED:
            return at is not frame
        at = at.f_back
    return False


def guarded(guard: Any, function: Callable[..., Any], arguments: Any) -> bool:
    """Calls a function from a callback of the library. False where it returned False, or raised something: guard.error then."""
    try:
        return function(*arguments) is not False
    except BaseException as error:  # also KeyboardInterrupt: it must not get lost in C
        if guard.error is None:
            guard.error = error
        return False


def computing(call: Callable[..., Any], set_interrupt: Callable[..., Any], ask: Any) -> Callable[..., Any]:
    """The call with signals handled while it runs on the main thread. `set_interrupt` and `ask`: what tells the library to ask, and what
    it shall ask."""
    def run(*arguments):
        if threading.get_ident() != threading.main_thread().ident:
            return call(*arguments)
        depth, held, result = len(_calls), _Call(), None
        try:
            _calls.append(held)
            if depth == 0:
                _hold(set_interrupt, ask)
            result = call(*arguments)
        except Exception:
            if held.error is None:
                raise
        finally:
            del _calls[depth:]
            if depth == 0:
                _release()
        if held.error is not None:
            raise held.error.with_traceback(None) from None
        return result

    run.argtypes = getattr(call, "argtypes", None)
    return run


_COMPUTING = computing(len, len, None).__code__
_GUARDED = guarded.__code__


def _hold(set_interrupt: Callable[..., Any], ask: Any) -> None:
    global _asking
    if not _asking:
        set_interrupt(ask, None)
        atexit.register(set_interrupt, type(ask)(), None)  # no callback into an interpreter that has ended
        _asking = True
    for number in _SIGNALS:
        handler = _signal.getsignal(number)
        if handler is not _take and callable(handler):
            _handlers[number] = handler
            _signal.signal(number, _take)


def _release() -> None:
    for number in _SIGNALS:
        if _signal.getsignal(number) is _take:
            _signal.signal(number, _handlers[number])


def is_interrupted(_user: Any) -> int:
    """Whether the call of the main thread shall end. Python runs the handlers of signals when it enters this function."""
    return int(bool(_calls) and _calls[-1].error is not None)


def _forget_asking() -> None:
    global _asking
    _asking = False


os.register_at_fork(after_in_child=_forget_asking)  # the child's main thread may be another one
