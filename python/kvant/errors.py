"""The exceptions of failed calls: a class for each status of the C API, derived from the exception of Python with this meaning as well."""


class KvantError(RuntimeError):
    """A call failed; the text says in one line what was expected and found."""

    name = "INTERNAL"


class InvalidError(KvantError, ValueError):
    """A wrong argument, option or token, or an object that is in use or closed."""

    name = "INVALID"


class NotSupportedError(KvantError, NotImplementedError):
    """Understood, but this build, model or set of options cannot do it."""

    name = "NOT_SUPPORTED"


class OutOfMemoryError(KvantError, MemoryError):
    """The machine, or the memory that the cache may take, is full."""

    name = "OUT_OF_MEMORY"


class ContextFullError(KvantError):
    """The tokens do not fit the context."""

    name = "CONTEXT_FULL"


class IoError(KvantError, OSError):
    """The operating system refused to open, read, write or map a file."""

    name = "IO"


class CorruptError(KvantError):
    """A file's content contradicts its format."""

    name = "CORRUPT"


class CancelledError(KvantError):
    """Runner.cancel() was called, or a callback ended the call."""

    name = "CANCELLED"


class InternalError(KvantError):
    """A bug of kvant."""


class BusyError(KvantError):
    """Too much is waiting already; try again later."""

    name = "BUSY"


class DeadlineError(KvantError, TimeoutError):
    """The time that was allowed is over."""

    name = "DEADLINE"


# By kvant_status, from 1.
BY_STATUS = (
    InvalidError, NotSupportedError, OutOfMemoryError, ContextFullError, IoError, CorruptError, CancelledError, InternalError,
    BusyError, DeadlineError)
