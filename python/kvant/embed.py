"""Vectors of texts and scores of documents, by embedding models and rerankers, in NumPy's arrays."""
import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from . import _bindings as c
from ._library import Handle, InvalidError, address, c_text, defaults, integer, lib, new, owned_tokens, sized, text_bytes, token_array, view
from ._options import flag, listed, number
from .model import Model, Text, Tokens
from .runner import NUMA, chosen, set_pin

POOLINGS = {"none": c.POOLING_NONE, "mean": c.POOLING_MEAN, "cls": c.POOLING_CLS, "last": c.POOLING_LAST, "rank": c.POOLING_RANK}

Input = Union[Text, Tokens]


class Ranked(NamedTuple):
    """A document and how well it answers the query."""

    index: int  # among the documents that were given
    score: float
    document: str


class Embedder(Handle):
    """Makes vectors of texts, or scores of documents where pooling is "rank".

        with kvant.Embedder("minilm.gguf") as embedder:
            vectors = embedder.encode(["A text", "Another one"])
            print(embedder.similarity(vectors, vectors))

    `model`: a Model, a file, or a name. `pooling`: "none", "mean", "cls", "last" or "rank" instead of what the file says; a model that was
    not made for vectors needs it. `context`: most tokens of a text. `batch_tokens`: tokens of short texts that are computed together.
    `threads`, `pin`, `numa`: see Runner. One thread at a time, but for cancel()."""

    __slots__ = ("model", "_info")
    _free = "kvant_embedder_free"

    def __init__(self, model: Any, *, pooling: Optional[str] = None, context: int = 0, batch_tokens: int = 0, threads: int = 0,
                 pin: Any = None, numa: Optional[str] = None):
        super().__init__()
        self.model = model if isinstance(model, Model) else Model(model)
        options = defaults(c.kvant_embed_options)
        options.threads = integer(threads, "Embedder: threads", 32)
        options.context = integer(context, "Embedder: context")
        if batch_tokens != 0:
            options.batch_tokens = integer(batch_tokens, "Embedder: batch_tokens")
        if pooling is not None:
            options.pooling = chosen(pooling, POOLINGS, "Embedder: pooling")
        if pin is not None:
            set_pin(options, pin)
        if numa is not None:
            options.numa = chosen(numa, NUMA, "Embedder: numa")
        self._pointer = new("kvant_embedder_new", self.model.pointer, ctypes.byref(options))
        self._info = sized(c.kvant_embedder_info)
        lib.kvant_embedder_get_info(self.pointer, ctypes.byref(self._info))

    @property
    def pooling(self) -> str:
        """none, mean, cls, last or rank."""
        return next(name for name, value in POOLINGS.items() if value == self._info.pooling)

    @property
    def dim(self) -> int:
        """Numbers of a vector; 0 for a model that ranks."""
        return self._info.dim

    @property
    def context(self) -> int:
        """Most tokens of a text."""
        return self._info.context

    @property
    def labels(self) -> int:
        """Labels of the classifier; 0 without one."""
        return self._info.labels

    @property
    def memory(self) -> Dict[str, int]:
        """Bytes: weights, which are mapped from the file, and activations."""
        return {"weights": self._info.weight_bytes, "activations": self._info.activation_bytes}

    @property
    def label_names(self) -> List[str]:
        """The names of the labels, where the file has them."""
        return self._names("kvant_embedder_label")

    @property
    def prompts(self) -> Dict[str, str]:
        """The prompts of the file: name to what stands in front of a text."""
        return dict(zip(self._names("kvant_embedder_prompt_name"), self._names("kvant_embedder_prompt_text")))

    @property
    def default_prompt_name(self) -> Optional[str]:
        """The prompt that texts get where none is named."""
        self.pointer
        return self._info.default_prompt.decode("utf-8", "replace") or None

    def get_sentence_embedding_dimension(self) -> int:
        """`dim`, as sentence-transformers calls it."""
        return self.dim

    def _names(self, call: str) -> List[str]:
        found: List[str] = []
        while (name := getattr(lib, call)(self.pointer, len(found))) is not None:
            found.append(name.decode("utf-8", "replace"))
        return found

    # ---- Vectors ----

    def tokens(self, text: Text, prompt_name: Optional[str] = None, truncate: bool = False) -> np.ndarray:
        """The ids of a text as embed() makes them, int32: with its prompt and the special tokens."""
        data = text_bytes(text, "tokens: text")
        options = _vector_options("tokens", prompt_name=prompt_name, truncate=truncate)
        return owned_tokens("kvant_embedder_tokens", self.pointer, data, len(data), ctypes.byref(options))

    def embed(self, texts: Union[Input, Sequence[Input]], *, prompt_name: Optional[str] = None, prompt: Optional[str] = None, normalize: Any = True,
              dimensions: int = 0, truncate: bool = False) -> Any:
        """The vectors of texts, float32 [texts, dim], each with the bits that it would have alone; [dim] for one text. A text may also be
        its token ids, with all special tokens. With pooling "none" each text gives an array [tokens, dim], and a list of texts a list.

        `prompt_name`: a prompt of the file, put in front of each text; without it the file's default, if it has one. `prompt`: this text
        instead. `normalize`: True for the length 1, False for none, or the p of a p-norm. `dimensions`: keep the first numbers only, for models that
        were made for it (Matryoshka). `truncate`: cut texts that are longer than `context`, which are a ContextFullError otherwise. An
        empty text is an InvalidError that names it."""
        one, inputs = _inputs(texts, "embed: texts")
        options = _vector_options("embed", prompt_name, prompt, normalize, dimensions, truncate)
        given, keep = _text_array(inputs, "embed: texts")
        rows = np.zeros(len(inputs), np.int64)
        found, count = ctypes.POINTER(ctypes.c_float)(), ctypes.c_size_t()
        lib.kvant_embedder_embed(self.pointer, given, len(inputs), ctypes.byref(options), address(rows), ctypes.byref(found), ctypes.byref(count))
        del keep
        columns = options.dimensions or self.dim
        values = _take(found, count).reshape(-1, columns)
        if self._info.pooling != c.POOLING_NONE:
            return values[0] if one else values
        parts = np.split(values, np.cumsum(rows)[:-1]) if len(rows) else []
        return parts[0] if one else parts

    def encode(self, sentences: Union[Text, Sequence[Text]], prompt_name: Optional[str] = None, prompt: Optional[str] = None, batch_size: int = 32,
               show_progress_bar: Any = None, *, normalize_embeddings: bool = True, convert_to_numpy: bool = True,
               truncate_dim: Optional[int] = None, truncate: bool = True) -> Any:
        """embed() with the names of SentenceTransformer.encode: an array for texts, or with convert_to_numpy=False a list of arrays. Texts
        that are too long are cut, as there. `batch_size` changes nothing but how often Python gets control. Vectors have the length 1 unless
        normalize_embeddings is False."""
        flag(normalize_embeddings, "encode: normalize_embeddings")
        if integer(batch_size, "encode: batch_size") < 1:
            raise InvalidError(f"encode: batch_size: expected at least 1, found {batch_size!r}")
        one = isinstance(sentences, (str, bytes))
        every = [sentences] if one else listed(sentences, "encode: sentences")
        if _is_ids(every):
            raise InvalidError(f"encode: sentences: expected texts, or a list of ids for each, found {every[0]!r}")
        parts = [self.embed(every[first:first + batch_size], prompt_name=prompt_name, prompt=prompt, normalize=normalize_embeddings,
                            dimensions=truncate_dim or 0, truncate=truncate)
                 for first in range(0, len(every), batch_size)]
        if self._info.pooling == c.POOLING_NONE:
            rows = [text for part in parts for text in part]
            return rows[0] if one else rows
        vectors = np.concatenate(parts) if parts else np.empty((0, truncate_dim or self.dim), np.float32)
        if one:
            return vectors[0]
        return vectors if flag(convert_to_numpy, "encode: convert_to_numpy") else list(vectors)

    @staticmethod
    def similarity(first: Any, second: Any) -> np.ndarray:
        """The cosines of vectors with vectors, float32 [first, second]."""
        unit = []
        for vectors in (first, second):
            array = np.atleast_2d(np.asarray(vectors, np.float32))
            lengths = np.linalg.norm(array.astype(np.float64), axis=1, keepdims=True)
            unit.append(array / np.maximum(lengths, 1e-12))
        return (unit[0] @ unit[1].T).astype(np.float32)

    # ---- Scores ----

    def scores(self, query: Text, documents: Sequence[Text], *, raw_scores: bool = False, truncate: bool = False) -> np.ndarray:
        """A score for each document, float32: larger for one that answers the query better, between 0 and 1 unless they are to be the
        model's logits (`raw_scores`)."""
        query_data = text_bytes(query, "scores: query")
        texts = listed(documents, "scores: documents")
        given, keep = _text_array([text_bytes(text, "scores: documents") for text in texts], "scores: documents")
        out = np.zeros(len(texts), np.float32)
        lib.kvant_embedder_rank(self.pointer, query_data, len(query_data), given, len(texts), flag(truncate, "scores: truncate"),
                                flag(raw_scores, "scores: raw_scores"), address(out))
        del keep
        return out

    def rank(self, query: Text, documents: Sequence[Text], top_n: Optional[int] = None, *, raw_scores: bool = False,
             truncate: bool = False) -> List[Ranked]:
        """The documents, or the best `top_n`, the best first."""
        if isinstance(documents, (str, bytes)):
            raise InvalidError("rank: documents: expected a list of texts, found one text")
        texts = listed(documents, "rank: documents")
        scores = self.scores(query, texts, raw_scores=raw_scores, truncate=truncate)
        order = np.argsort(-scores, kind="stable")
        if top_n is not None:
            if integer(top_n, "rank: top_n") < 1:
                raise InvalidError(f"rank: top_n: expected at least 1, found {top_n!r}")
            order = order[:top_n]
        return [Ranked(int(i), float(scores[i]), texts[i]) for i in order]

    def logits(self, texts: Union[Input, Sequence[Input]], *, truncate: bool = False) -> np.ndarray:
        """The classifier's logits of texts, float32 [texts, labels]; [labels] for one text."""
        one, inputs = _inputs(texts, "logits: texts")
        given, keep = _text_array(inputs, "logits: texts")
        found, count = ctypes.POINTER(ctypes.c_float)(), ctypes.c_size_t()
        lib.kvant_embedder_logits(self.pointer, given, len(inputs), flag(truncate, "logits: truncate"), ctypes.byref(found), ctypes.byref(count))
        del keep
        values = _take(found, count).reshape(-1, self.labels)
        return values[0] if one else values

    def pair_tokens(self, query: Text, document: Text, truncate: bool = False) -> Tuple[np.ndarray, np.ndarray]:
        """The ids of a query with a document, and the segment of each, both int32."""
        first, second = text_bytes(query, "pair_tokens: query"), text_bytes(document, "pair_tokens: document")
        ids, types, count = ctypes.POINTER(ctypes.c_int32)(), ctypes.POINTER(ctypes.c_int32)(), ctypes.c_size_t()
        lib.kvant_embedder_pair_tokens(self.pointer, first, len(first), second, len(second), flag(truncate, "pair_tokens: truncate"),
                                       ctypes.byref(types), ctypes.byref(ids), ctypes.byref(count))
        return _take(ids, count, np.int32), _take(types, count, np.int32)

    def cancel(self) -> None:
        """From any thread: ends the call under way, or else the next one, with CancelledError."""
        lib.kvant_embedder_cancel(self.pointer)

    def __repr__(self) -> str:
        return "Embedder(closed)" if self.closed else f"Embedder({self.model.info.path!r}, {self.pooling}, dim {self.dim})"


def _take(pointer: Any, count: Any, kind: Any = np.float32) -> np.ndarray:
    """A copy of memory of the library, which is freed."""
    try:
        return view(ctypes.cast(pointer, ctypes.c_void_p).value, count.value, kind).copy()
    finally:
        lib.kvant_free(pointer)


def _vector_options(what: str, prompt_name: Optional[str] = None, prompt: Optional[str] = None, normalize: Any = True, dimensions: int = 0,
                    truncate: bool = False) -> c.kvant_vector_options:
    options = defaults(c.kvant_vector_options)
    if isinstance(normalize, (bool, np.bool_)):
        options.normalize = 2 if normalize else -1
    else:
        options.normalize = number(normalize, f"{what}: normalize")
    options.dimensions = integer(dimensions, f"{what}: dimensions")
    options.truncate = flag(truncate, f"{what}: truncate")
    if prompt_name is not None:
        options.prompt_name = c_text(prompt_name, f"{what}: prompt_name")
    if prompt is not None:
        options.prefix = c_text(prompt, f"{what}: prompt")
    return options


def _is_ids(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iu" and value.ndim == 1
    return isinstance(value, (list, tuple)) and len(value) > 0 and isinstance(value[0], (int, np.integer))


def _inputs(texts: Any, what: str) -> Tuple[bool, list]:
    """Whether there is one text, and all of them."""
    if isinstance(texts, (str, bytes)) or _is_ids(texts):
        return True, [texts]
    return False, listed(texts, what)


def _text_array(texts: Sequence[Input], what: str) -> Tuple[Any, list]:
    """Texts and lists of ids for a call, and what must live as long as it does."""
    out, keep = (c.kvant_embed_text * max(1, len(texts)))(), []
    for entry, text in zip(out, texts):
        if isinstance(text, (str, bytes)):
            data = text_bytes(text, what)
            keep.append(ctypes.create_string_buffer(data, len(data) + 1))
            entry.text, entry.size = ctypes.addressof(keep[-1]), len(data)
        else:
            ids = token_array(text, what)
            keep.append(ids)
            # An array without numbers has an address, too, and so is no text.
            entry.tokens, entry.count = address(ids), len(ids)
    return out, keep


def _embedder(model: Any, what: str, pooling: Optional[str]) -> Tuple[Embedder, bool]:
    """The embedder, and whether it was made for the call."""
    if not isinstance(model, Embedder):
        return Embedder(model, pooling=pooling), True
    if pooling is not None and pooling != model.pooling:
        raise InvalidError(f"{what}: pooling: expected that of the Embedder, {model.pooling!r}, found {pooling!r}")
    return model, False


def embed(model: Any, texts: Union[Input, Sequence[Input]], *, prompt_name: Optional[str] = None, normalize: Any = True, dimensions: int = 0,
          truncate: bool = False, pooling: Optional[str] = None) -> Any:
    """Embedder(model, pooling=...).embed(texts, ...). `model` may also be an Embedder, which saves making one."""
    embedder, own = _embedder(model, "embed", pooling)
    try:
        return embedder.embed(texts, prompt_name=prompt_name, normalize=normalize, dimensions=dimensions, truncate=truncate)
    finally:
        if own:
            embedder.close()


def rerank(model: Any, query: Text, documents: Sequence[Text], top_n: Optional[int] = None, raw_scores: bool = False, *,
           truncate: bool = False) -> List[Ranked]:
    """Embedder(model, pooling="rank").rank(query, documents, ...): the best documents, the best first."""
    embedder, own = _embedder(model, "rerank", "rank")
    try:
        return embedder.rank(query, documents, top_n, raw_scores=raw_scores, truncate=truncate)
    finally:
        if own:
            embedder.close()
