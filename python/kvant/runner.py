"""Runners: sequences of tokens and their cache. Sequences that were forked share what they have in common; a step takes tokens of any
number of sequences, and the bits of each do not depend on the others."""
import ctypes
from collections import deque
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence as Several, Tuple, Union

import numpy as np

from . import _bindings as c
from ._library import Guard, Handle, InvalidError, address, c_text, defaults, integer, lib, new, owned, sized, token_array, view
from ._options import RUNNER, check_names, expect, function, listed, set_options, shows
from .errors import KvantError
from .model import Model, Path, Tokens, path_bytes
from .sampling import Sampler

KV_TYPES = {"f32": c.F32, "f16": c.F16, "q8": c.Q8, "q8_0": c.Q8}  # of several names the first is our own
LAYOUTS = {"bhsd": c.BHSD, "kbhsd": c.KBHSD, "bkhsd": c.BKHSD}
PINS = {"none": c.PIN_NONE, "cores": c.PIN_CORES}
NUMA = {"none": c.NUMA_NONE, "distribute": c.NUMA_DISTRIBUTE, "isolate": c.NUMA_ISOLATE}
LOGITS = {"none": c.LOGITS_NONE, "last": c.LOGITS_LAST, "all": c.LOGITS_ALL}

Stats = Dict[str, int]


def chosen(value: str, names: Dict[str, int], what: str) -> int:
    found = names.get(value) if isinstance(value, str) else None
    if found is None:
        raise InvalidError(f"{what}: expected {', '.join(sorted(names))}, found {value!r}")
    return found


def set_pin(struct: c.kvant_runner_options, pin: Union[str, Several[int]]) -> None:
    """Threads run anywhere ("none"), each on a CPU of its own ("cores"), or on these CPUs in turn."""
    if isinstance(pin, str):
        struct.pin = chosen(pin, PINS, "Runner: pin")
        return
    try:
        cpus = [integer(cpu, "Runner: pin") for cpu in pin]
    except TypeError:
        raise InvalidError(f"Runner: pin: expected {', '.join(sorted(PINS))} or numbers of CPUs, found {pin!r}") from None
    struct._cpus = (ctypes.c_int32 * len(cpus))(*cpus)  # as long as the options
    struct.pin, struct.cpus, struct.cpu_count = c.PIN_LIST, ctypes.addressof(struct._cpus), len(cpus)


def runner_options(options: Dict[str, Any]) -> c.kvant_runner_options:
    """Options by name: see Runner."""
    check_names(options, RUNNER, "Runner")
    options = dict(options)
    struct = defaults(c.kvant_runner_options)
    types = {name: (name, options.pop(name, None)) for name, _ in struct._fields_ if name.endswith("_type")}
    for both in ("kv_type", "source_kv_type"):
        value = options.pop(both, None)
        for name in (both.replace("kv", "k"), both.replace("kv", "v")):
            if types[name][1] is None:
                types[name] = both, value
    pin, numa = options.pop("pin", None), options.pop("numa", None)
    set_options(struct, options, "Runner")
    if pin is not None:
        set_pin(struct, pin)
    if numa is not None:
        struct.numa = chosen(numa, NUMA, "Runner: numa")
    for name, (given, value) in types.items():
        if value is not None:
            setattr(struct, name, chosen(value, KV_TYPES, f"Runner: {given}"))
    return struct


@shows(*RUNNER)
def plan_memory(model: Model, **options: Any) -> Stats:
    """The bytes that a Runner with these options will take: weights, kv, activations, logits, encoder, total."""
    plan = sized(c.kvant_memory_plan)
    lib.kvant_plan_memory(expect(model, Model, "plan_memory: model").pointer, ctypes.byref(runner_options(options)), ctypes.byref(plan))
    return {name: getattr(plan, name) for name, _ in plan._fields_[1:]}


class Score(NamedTuple):
    """The scores that a model gives the tokens of a text."""

    log_probs: np.ndarray  # float64 [tokens - first], natural logarithms
    likeliest: np.ndarray  # int32, the likeliest token in each place
    greedy: bool  # every token is the likeliest one in its place


def _forget(part: Any, free: str) -> None:
    """Leaves what nothing refers to any more to its runner, which may be in a call or with another thread just now."""
    if getattr(part, "number", -1) >= 0 and not part._runner.closed:
        part._runner._forgotten.append((free, part.number))


class Source:
    """A text or sound that an encoder-decoder has read, shared by all its sequences. It lives until close(), or until nothing refers to
    it any more: then the runner frees it before it makes the next sequence."""

    def __init__(self, runner: "Runner", number: int):
        self._runner, self.number = runner, number

    def __del__(self):
        _forget(self, "kvant_source_free")

    def close(self) -> None:
        """Gives the reference back; sequences keep theirs."""
        if self.number >= 0 and not self._runner.closed:
            lib.kvant_source_free(self._runner.pointer, self.number)
        self.number = -1

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()

    def new_sequence(self) -> "Sequence":
        """An empty sequence of this source."""
        self._runner.free_forgotten()
        out = ctypes.c_int32()
        lib.kvant_sequence_new_of_source(self._runner.pointer, self.number, ctypes.byref(out))
        return Sequence(self._runner, out.value)


class Rows:
    """Rows of an image or of sound that stand in place of tokens: `ids`, int32, go among the tokens of a sequence, which keeps the rows.
    Like a Source, it lives until close(), or until nothing refers to it."""

    def __init__(self, runner: "Runner", first: int, count: int):
        self._runner, self.number = runner, first
        self.ids = np.arange(first, first + count, dtype=np.int32)

    def __del__(self):
        _forget(self, "kvant_runner_free_rows")

    def close(self) -> None:
        """Gives the reference back; sequences keep theirs."""
        if self.number >= 0 and not self._runner.closed:
            lib.kvant_runner_free_rows(self._runner.pointer, self.number)
        self.number = -1

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


class Snapshot:
    """A state of a sequence; restoring it computes nothing. Like a Source, it lives until close(), or until nothing refers to it."""

    def __init__(self, runner: "Runner", number: int):
        self._runner, self.number = runner, number

    def __del__(self):
        _forget(self, "kvant_snapshot_drop")

    def close(self) -> None:
        if self.number >= 0 and not self._runner.closed:
            lib.kvant_snapshot_drop(self._runner.pointer, self.number)
        self.number = -1

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


class Sequence:
    """Tokens and their cache, in a Runner. It lives until close(), or until nothing refers to it any more: then its runner frees it
    before it makes the next one."""

    __slots__ = ("_runner", "number", "_token")

    def __init__(self, runner: "Runner", number: int):
        self._runner, self.number = runner, number
        self._token = ctypes.c_int32()

    def __del__(self):
        _forget(self, "kvant_sequence_free")

    def __repr__(self) -> str:
        return f"Sequence({self.number}, {len(self)} tokens)" if not self.closed else "Sequence(closed)"

    @property
    def runner(self) -> "Runner":
        return self._runner

    @property
    def closed(self) -> bool:
        return self.number < 0 or self._runner.closed

    def close(self) -> None:
        """Gives its memory back."""
        if not self.closed:
            lib.kvant_sequence_free(self._runner.pointer, self.number)
        self.number = -1

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()

    def __len__(self) -> int:
        """Tokens that have been processed."""
        length = lib.kvant_sequence_length(self._runner.pointer, self.number)
        if length < 0:
            raise InvalidError(f"sequence {self.number} does not exist")
        return length

    @property
    def tokens(self) -> np.ndarray:
        """A copy of its tokens, int32 [length]."""
        len(self)
        count = ctypes.c_size_t()
        found = lib.kvant_sequence_tokens(self._runner.pointer, self.number, ctypes.byref(count))
        return view(found, count.value, np.int32).copy()

    def append(self, tokens: Tokens, progress: Optional[Callable[[int, int], Any]] = None) -> "Sequence":
        """Processes tokens. `progress(done, total)` is called after every pass; returning False ends the call with CancelledError,
        and the passes that were done stay."""
        array = token_array(tokens)
        if function(progress, "append: progress") is None:
            lib.kvant_sequence_append(self._runner.pointer, self.number, address(array), len(array))
            return self
        guard = Guard()
        tell = c.kvant_progress_function(lambda _user, done, total: guard.call(progress, done, total))
        guard.run(lib.kvant_sequence_append_telling, self._runner.pointer, self.number, address(array), len(array), tell, None)
        return self

    def logits(self, copy: bool = True) -> np.ndarray:
        """The logits behind the last token, float32 [vocab_size]. Without `copy` they are valid until the sequence changes.
        InvalidError before the first token, and after a rewind, a prune or an import until compute_logits()."""
        count = ctypes.c_size_t()
        found = lib.kvant_sequence_logits(self._runner.pointer, self.number, ctypes.byref(count))
        if not found:
            raise InvalidError(f"sequence {self.number}: there are no logits")
        row = view(found, count.value, np.float32)
        if copy:
            return row.copy()
        row.flags.writeable = False
        return row

    def compute_logits(self) -> "Sequence":
        """Computes the logits of the last token again, after a rewind."""
        lib.kvant_sequence_compute_logits(self._runner.pointer, self.number)
        return self

    def generate(self, sampler: Sampler) -> int:
        """Draws a token from the logits, tells the sampler, processes the token and returns it."""
        lib.kvant_sequence_generate(self._runner.pointer, self.number, sampler.pointer, ctypes.byref(self._token))
        return self._token.value

    def fork(self) -> "Sequence":
        """A second sequence that shares all memory with this one, until either goes on."""
        self._runner.free_forgotten()
        out = ctypes.c_int32()
        lib.kvant_sequence_fork(self._runner.pointer, self.number, ctypes.byref(out))
        return Sequence(self._runner, out.value)

    def rewind(self, length: int, replay: bool = False) -> "Sequence":
        """Keeps the first `length` tokens, as if no more had been processed. What a window has dropped is computed again with `replay`,
        and NotSupportedError without."""
        lib.kvant_sequence_rewind(self._runner.pointer, self.number, integer(length, "rewind: length"), int(replay))
        return self

    def prune(self, keep_first: int, keep_last: int, move: bool = True) -> "Sequence":
        """Forgets all but the first and the last tokens; the later ones move to earlier positions, or keep theirs."""
        lib.kvant_sequence_prune(self._runner.pointer, self.number, integer(keep_first, "prune: keep_first"),
                                 integer(keep_last, "prune: keep_last"), int(move))
        return self

    def reset(self) -> "Sequence":
        """Forgets all tokens."""
        lib.kvant_sequence_reset(self._runner.pointer, self.number)
        return self

    def set_source(self, source: Source) -> "Sequence":
        """Gives an empty sequence a source."""
        lib.kvant_sequence_set_source(self._runner.pointer, self.number, source.number)
        return self

    def reuse_prefix(self, prompt: Tokens) -> int:
        """Gives an empty sequence the cached beginning of a prompt (Runner(prefix_cache=True)); how many tokens that has."""
        array, reused = token_array(prompt), ctypes.c_int64()
        lib.kvant_sequence_reuse_prefix(self._runner.pointer, self.number, address(array), len(array), ctypes.byref(reused))
        return reused.value

    def snapshot(self) -> Snapshot:
        self._runner.free_forgotten()
        out = ctypes.c_int32()
        lib.kvant_snapshot_take(self._runner.pointer, self.number, ctypes.byref(out))
        return Snapshot(self._runner, out.value)

    def restore(self, snapshot: Snapshot) -> "Sequence":
        lib.kvant_snapshot_restore(self._runner.pointer, self.number, snapshot.number)
        return self


class _Tensors(Handle):
    __slots__ = ()
    _free = "kvant_tensors_free"


class PastKeyValues:
    """The caches of sequences of one length as arrays, by the names of the ONNX models: past_key_values.N.key and .value as
    [batch, kv heads, positions, dim], or past_N with both, as [2, batch, ...] or [batch, 2, ...], float32. Keys are those after the
    rotary embedding. `tokens` is int32 [batch, positions]."""

    def __init__(self, tokens: np.ndarray, arrays: Dict[str, np.ndarray], layout: str = "bhsd"):
        rows = np.atleast_2d(np.asarray(tokens))
        self.tokens = token_array(rows.reshape(-1), "PastKeyValues: tokens").reshape(rows.shape if rows.ndim == 2 else (1, -1))
        self.arrays = arrays
        self.layout = layout
        chosen(layout, LAYOUTS, "PastKeyValues: layout")

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def __iter__(self):
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def layer(self, number: int) -> Tuple[np.ndarray, np.ndarray]:
        """Key and value of a layer (layout bhsd)."""
        return self.arrays[f"past_key_values.{number}.key"], self.arrays[f"past_key_values.{number}.value"]


class Runner(Handle):
    """Sequences of a model and their cache. Used by one thread at a time; only cancel() may come from another.

    Options: context (positions of a sequence; 0: what the model was trained for), sequences (that may exist at the same time; default
    1), threads, chunk, kv_type or k_type and v_type ("f32", "f16", "q8"; default f16), source_kv_type, state_type, kv_cache, strict,
    prefix_cache, kv_bytes_max, pin ("none", "cores" or CPUs that threads run on), numa ("none", "distribute", "isolate") and the others
    of kvant_runner_options."""

    __slots__ = ("model", "_log", "_forgotten")
    _free = "kvant_runner_free"

    @shows(*RUNNER)
    def __init__(self, model: Model, **options: Any):
        super().__init__()
        self._forgotten: "deque[tuple[str, int]]" = deque()
        self.model = expect(model, Model, "Runner: model")
        self._log = None
        self._pointer = new("kvant_runner_new", model.pointer, ctypes.byref(runner_options(options)))

    @property
    def options(self) -> Dict[str, Any]:
        """The options with every default filled in."""
        found = sized(c.kvant_runner_options)
        lib.kvant_runner_get_options(self.pointer, ctypes.byref(found))
        names = {number: name for name, number in reversed(list(KV_TYPES.items()))}
        out: Dict[str, Any] = {}
        for name, _ in found._fields_[1:]:
            value = getattr(found, name)
            out[name] = names.get(value) if name.endswith("_type") else value
        cpus = [int(cpu) for cpu in (ctypes.c_int32 * found.cpu_count).from_address(found.cpus)] if found.cpu_count else []
        out["pin"] = cpus or {number: name for name, number in PINS.items()}[found.pin]
        out["numa"] = {number: name for name, number in NUMA.items()}[found.numa]
        del out["cpus"], out["cpu_count"]
        return out

    @property
    def stats(self) -> Stats:
        """Bytes, blocks, passes and tokens so far; see kvant_runner_stats."""
        found = sized(c.kvant_runner_stats)
        self.free_forgotten()
        lib.kvant_runner_get_stats(self.pointer, ctypes.byref(found))
        return {name: getattr(found, name) for name, _ in found._fields_[1:]}

    def free_forgotten(self) -> None:
        """Frees the sequences, snapshots and sources that nothing refers to any more; what needs room does so by itself."""
        if not self._forgotten:
            return
        try:  # refused where a callback of the runner is under way: later, then
            lib.kvant_runner_get_stats(self.pointer, ctypes.byref(sized(c.kvant_runner_stats)))
        except KvantError:
            return
        while self._forgotten:
            free, number = self._forgotten.popleft()
            try:
                getattr(lib, free)(self.pointer, number)
            except KvantError:
                pass  # it was none

    def new_sequence(self) -> Sequence:
        self.free_forgotten()
        out = ctypes.c_int32()
        lib.kvant_sequence_new(self.pointer, ctypes.byref(out))
        return Sequence(self, out.value)

    def add_rows(self, rows: np.ndarray) -> Rows:
        """Registers rows, float32 [count, width of the model's embeddings]. Equal rows have equal ids."""
        self.free_forgotten()
        array, out = np.ascontiguousarray(rows, np.float32), ctypes.c_int32()
        if array.ndim != 2:
            raise InvalidError(f"add_rows: expected an array of shape (count, width), found {array.shape}")
        lib.kvant_runner_add_rows(self.pointer, address(array), array.size, ctypes.byref(out))
        return Rows(self, out.value, len(array))

    def encode(self, tokens: Tokens, rows: Optional[Callable[[np.ndarray], Any]] = None) -> Source:
        """Encodes what an encoder-decoder reads, or finds what the same tokens gave before. `rows` is called with the encoder's output,
        float32 [positions, dim] in one row, valid during the call, and makes it encode again."""
        return self._encode("kvant_source_new", token_array(tokens), rows)

    def encode_frames(self, frames: np.ndarray, rows: Optional[Callable[[np.ndarray], Any]] = None) -> Source:
        """Encodes frames of sound, float32 [ModelInfo.frame_bins, ModelInfo.frames], or a batch of one. Fewer frames are followed by what
        Whisper's feature extractor gives for silence. `rows` is as for encode()."""
        bins, count = self.model.info.frame_bins, self.model.info.frames
        array = np.asarray(frames, np.float32)
        if array.ndim == 3 and array.shape[0] == 1:
            array = array[0]
        fits = array.ndim == 2 and array.shape[0] == bins and 1 <= array.shape[1] <= count
        if not fits and array.size > 0 and bins > 0:
            raise InvalidError(f"encode_frames: expected an array of shape ({bins}, 1 to {count}), found {np.shape(frames)}")
        if fits and array.shape[1] < count:
            silence = max(np.float32(-1.5), array.max() - np.float32(2))
            array = np.pad(array, ((0, 0), (0, count - array.shape[1])), constant_values=silence)
        return self._encode("kvant_source_new_of_frames", np.ascontiguousarray(array).reshape(-1), rows)

    def _encode(self, name: str, array: np.ndarray, rows: Optional[Callable[[np.ndarray], Any]]) -> Source:
        self.free_forgotten()
        out, guard = ctypes.c_int32(), Guard()
        tell = c.kvant_encoded_function()
        if function(rows, "encode: rows") is not None:
            tell = c.kvant_encoded_function(lambda _user, at, count: guard.call(rows, view(at, count, np.float32)))
        guard.run(getattr(lib, name), self.pointer, address(array), len(array), tell, None, ctypes.byref(out))
        return Source(self, out.value)

    def step(self, inputs: Iterable[Tuple[Sequence, Tokens]], logits: Union[str, Several[str]] = "last",
             rows: Optional[Callable[[int, int, np.ndarray], Any]] = None) -> None:
        """Processes new tokens of different sequences together. `logits`: "none", "last" (each sequence keeps those of its last token)
        or "all", for all inputs or one for each: then `rows(input, token, logits)` is called for every token, with float32 [vocab_size]
        that is valid during the call."""
        pairs = [(sequence, token_array(tokens)) for sequence, tokens in inputs]
        kinds = [logits] * len(pairs) if isinstance(logits, str) else list(logits)
        if len(kinds) != len(pairs):
            raise InvalidError(f"step: expected logits for {len(pairs)} inputs, found {len(kinds)}")
        structs = (c.kvant_step_input * len(pairs))()
        for struct, (sequence, array), kind in zip(structs, pairs, kinds):
            struct.sequence, struct.logits = self._own(sequence), chosen(kind, LOGITS, "step: logits")
            struct.tokens, struct.count = address(array), len(array)
        guard = Guard()
        tell = c.kvant_row_function()
        if function(rows, "step: rows") is not None:
            tell = c.kvant_row_function(
                lambda _user, index, token, at, vocab: guard.call(rows, index, token, view(at, vocab, np.float32)))
        guard.run(lib.kvant_runner_step, self.pointer, structs, len(pairs), tell, None)

    def reorder(self, sequences: Several[Sequence], parents: Several[int]) -> None:
        """For all i at once: sequences[i] becomes what sequences[parents[i]] was; nothing is copied."""
        if len(sequences) != len(parents):
            raise InvalidError(f"reorder: {len(sequences)} sequences and {len(parents)} parents")
        numbers = np.array([self._own(sequence) for sequence in sequences], np.int32)
        order = token_array(parents, "parents")
        lib.kvant_sequence_reorder(self.pointer, address(numbers), address(order), len(order))

    def score(self, texts: Iterable[Union[Tokens, Tuple[Tokens, int]]], sources: Optional[Several[Tokens]] = None) -> List[Score]:
        """Log-probabilities of given tokens. A text is its tokens, of which all but the first are scored, or (tokens, first), of which
        tokens[first] and those after it are. Texts that begin alike share that. `sources`: what an encoder-decoder reads, one a text."""
        arrays, firsts = [], []
        for text in listed(texts, "score: texts"):
            pair = isinstance(text, tuple) and len(text) == 2 and np.ndim(text[0]) == 1
            arrays.append(token_array(text[0] if pair else text))
            firsts.append(integer(text[1], "score: first") if pair else 1)
        read = [None] * len(arrays) if sources is None else [token_array(source, "sources") for source in listed(sources, "score: sources")]
        if len(read) != len(arrays):
            raise InvalidError(f"score: {len(arrays)} texts and {len(read)} sources")
        structs = (c.kvant_score_text * len(arrays))()
        out = []
        for struct, array, first, source in zip(structs, arrays, firsts, read):
            if not 1 <= first <= len(array):
                raise InvalidError(f"score: first: expected 1 to {len(array)}, found {first}")
            log_probs, likeliest = np.empty(len(array) - first, np.float64), np.empty(len(array) - first, np.int32)
            struct.tokens, struct.count, struct.first = address(array), len(array), first
            struct.log_probs, struct.likeliest = address(log_probs), address(likeliest)
            if source is not None:
                struct.source, struct.source_count = address(source), len(source)
            out.append((log_probs, likeliest, array[first:]))
        self.free_forgotten()
        lib.kvant_runner_score(self.pointer, structs, len(arrays))
        return [Score(log_probs, likeliest, bool((likeliest == scored).all())) for log_probs, likeliest, scored in out]

    def save(self, path: Path, sequences: Several[Sequence]) -> None:
        """Writes sequences to a file, from which a later process goes on with the same bits."""
        numbers = np.array([self._own(sequence) for sequence in sequences], np.int32)
        lib.kvant_runner_save(self.pointer, path_bytes(path), address(numbers), len(numbers))

    def load(self, path: Path) -> List[Sequence]:
        """The sequences of a file, as new ones."""
        return self._made("kvant_runner_load", path_bytes(path))

    def past_key_values(self, sequences: Several[Sequence], layout: str = "bhsd") -> PastKeyValues:
        """A copy of the caches of sequences of one length; layout: "bhsd", "kbhsd" or "bkhsd"."""
        numbers = np.array([self._own(sequence) for sequence in sequences], np.int32)
        kind = chosen(layout, LAYOUTS, "past_key_values: layout")
        with _Tensors() as tensors:
            tensors._pointer = new("kvant_tensors_export", self.pointer, address(numbers), len(numbers), kind)
            arrays: Dict[str, np.ndarray] = {}
            tensor = sized(c.kvant_tensor)
            for i in range(lib.kvant_tensors_count(tensors.pointer)):
                lib.kvant_tensors_get(tensors.pointer, i, ctypes.byref(tensor))
                shape = tuple(view(tensor.shape, tensor.dims, np.int64))
                arrays[tensor.name.decode()] = view(tensor.values, tensor.count, np.float32).reshape(shape).copy()
            count, tokens = ctypes.c_size_t(), []
            for i in range(len(numbers)):
                found = lib.kvant_tensors_tokens(tensors.pointer, i, ctypes.byref(count))
                tokens.append(view(found, count.value, np.int32).copy())
            return PastKeyValues(np.array(tokens, np.int32), arrays, layout)

    def from_past_key_values(self, past: PastKeyValues) -> List[Sequence]:
        """New sequences, one for each of the batch, with these caches. They have no logits until compute_logits()."""
        tokens = np.ascontiguousarray(past.tokens, np.int32)
        with _Tensors() as tensors:
            tensors._pointer = new("kvant_tensors_new", address(tokens), tokens.shape[0], tokens.shape[1])
            for name, array in past.arrays.items():
                values = np.ascontiguousarray(array, np.float32)
                shape = np.array(values.shape, np.int64)
                lib.kvant_tensors_add(tensors.pointer, c_text(name, "past_key_values"), address(shape), len(shape), address(values))
            return self._made("kvant_tensors_import", tensors.pointer, LAYOUTS[past.layout])

    def cancel(self) -> None:
        """From any thread: the call under way ends with CancelledError, or if there is none, the next one that computes."""
        lib.kvant_runner_cancel(self.pointer)

    def resume(self) -> None:
        """Takes a cancellation back that has not ended a call yet."""
        lib.kvant_runner_resume(self.pointer)

    def check(self) -> None:
        """Tests the cache's invariants."""
        lib.kvant_runner_check(self.pointer)

    def set_kv_log(self, log: Optional[Callable[[str], Any]]) -> None:
        """`log(line)` for everything that happens to the cache; None ends it. What it raises is lost."""
        told = c.kvant_log_function()
        if function(log, "set_kv_log: log") is not None:
            told = c.kvant_log_function(
                lambda _user, _level, line, size: log(ctypes.string_at(line, size).decode("utf-8", "replace")))
        lib.kvant_runner_set_kv_log(self.pointer, told, None)
        self._log = told  # it is called until the next one

    def _own(self, sequence: Sequence) -> int:
        if not isinstance(sequence, Sequence) or sequence.runner is not self:
            raise InvalidError(f"expected a sequence of this runner, found {sequence!r}")
        return sequence.number

    def _made(self, name: str, *arguments: Any) -> List[Sequence]:
        self.free_forgotten()
        pointer, count = owned(name, self.pointer, *arguments)
        try:
            return [Sequence(self, int(number)) for number in view(pointer, count, np.int32)]
        finally:
            lib.kvant_free(pointer)
