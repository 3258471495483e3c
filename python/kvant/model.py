"""Models, their metadata and their tokenizers: whatever does not change while texts are written. All of it may be used by any number of
threads at once."""
import ctypes
import json
import os
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

import numpy as np

from . import _bindings as c
from .errors import NotSupportedError
from ._library import (Guard, Handle, InvalidError, address, c_text, defaults, integer, lib, new, owned_bytes, owned_tokens, sized,
                       text_bytes, token_array, view)
from ._names import find_model
from ._options import MODEL, check_names, expect, flag, function, listed, set_options, shows, text_array

Text = Union[str, bytes]
Tokens = Union[Sequence[int], np.ndarray]
Path = Union[str, "os.PathLike[str]"]


class ModelInfo(NamedTuple):
    """Facts that a file gives about its model."""

    architecture: str
    path: str
    vocab_size: int  # logits of a token
    has_encoder: bool  # it reads a source before it writes
    context_length: int  # positions that it was trained for
    source_length: int  # positions of a source at most; 0 without an encoder
    decoder_start: Optional[int]  # the token that the text of an encoder-decoder begins with
    cache_layers: int  # layers that keep keys and values, or states
    parameters: int
    file_bytes: int
    fingerprint: int  # of metadata and weights
    frame_bins: int  # numbers of each frame of sound that its encoder reads; 0: it reads tokens
    frames: int  # frames of a source


class Metadata(Mapping[str, Any]):
    """The metadata of a GGUF file, as Python's own types."""

    def __init__(self, model: "Model"):
        self._model = model
        self._keys = []
        while key := lib.kvant_model_metadata_key(model.pointer, len(self._keys)):
            self._keys.append(key.decode("utf-8", "replace"))
        self._known = frozenset(self._keys)

    def __getitem__(self, key: str) -> Any:
        if key not in self._known:
            raise KeyError(key)
        return json.loads(owned_bytes("kvant_model_metadata", self._model.pointer, key.encode()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class Config:
    """The configuration of ONNX Runtime GenAI: a model's file, or its name, and settings that are laid over those of generators.

        config = kvant.Config("model.gguf")
        config.overlay('{"search": {"max_length": 512}}')
        model = kvant.Model(config)
    """

    def __init__(self, path: Path):
        model_path(path)
        self.path, self.overlays = path, []

    def overlay(self, config: Union[Text, Mapping[str, Any]]) -> None:
        """Adds settings, see GeneratorParams.overlay(), which all GeneratorParams of the model begin with."""
        self.overlays.append(expect(config, (str, bytes, Mapping), "overlay: config"))

    def clear_providers(self) -> None:
        """Nothing is chosen by providers here: the CPU computes."""

    def append_provider(self, name: str) -> None:
        """NotSupportedError but for "cpu", which is what computes."""
        if not isinstance(name, str) or name.lower() != "cpu":
            raise NotSupportedError(f"append_provider: expected 'cpu', found {name!r}")


class Model(Handle):
    """A GGUF file, or all files of a split model given one of them, or a model that comes with kvant by its name: Model("shakespeare").

    Options: read_file (into memory instead of mapping it), lock_memory, isa, float_gemm, pre_tokenizer, ignore_keys,
    predictors (layers that predict further tokens, by which texts guess where they ask for draft_tokens); see kvant_model_options.
    `progress(done, total)` is told the bytes of a file that are in memory; returning False ends the opening with CancelledError.
    """

    __slots__ = ("_info", "_metadata", "overlays")
    _free = "kvant_model_free"

    @shows(*MODEL)
    def __init__(self, path: "Union[Path, Config]", progress: Optional[Callable[[int, int], Any]] = None, **options: Any):
        super().__init__()
        self.overlays = list(path.overlays) if isinstance(path, Config) else []  # for the GeneratorParams of the model
        path = path.path if isinstance(path, Config) else path
        check_names(options, MODEL, "Model")
        wanted, guard = set_options(defaults(c.kvant_model_options), options, "Model"), Guard()
        if function(progress, "Model: progress") is not None:
            wanted.progress = c.kvant_progress_function(lambda _user, done, total: guard.call(progress, done, total))
        self._pointer = guard.run(new, "kvant_model_open", model_path(path), ctypes.byref(wanted))
        self._info = self._metadata = None

    @property
    def info(self) -> ModelInfo:
        if self._info is None:
            info = sized(c.kvant_model_info)
            lib.kvant_model_get_info(self.pointer, ctypes.byref(info))
            values = [getattr(info, name) for name in ModelInfo._fields]
            found = ModelInfo(*[value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in values])
            start = None if found.decoder_start < 0 else found.decoder_start
            self._info = found._replace(has_encoder=bool(found.has_encoder), decoder_start=start)
        return self._info

    @property
    def metadata(self) -> Metadata:
        if self._metadata is None:
            self._metadata = Metadata(self)
        return self._metadata

    def __repr__(self) -> str:
        return "Model(closed)" if self.closed else f"Model({self.info.path!r}, {self.info.architecture})"


class TokenizerStream:
    """Text from tokens as they come: whole characters, without what may still become a stop text."""

    def __init__(self, tokenizer: "Tokenizer", stop: Union[Text, Sequence[Text]] = (), special: bool = False):
        flags = c.SHOW_SPECIAL if special else 0
        self._handle = _Stream()
        self._handle._pointer = new("kvant_text_stream_new", expect(tokenizer, Tokenizer, "TokenizerStream: tokenizer").pointer,
                                    *text_array(stop, "TokenizerStream: stop"), flags)
        self._piece, self._size, self._state = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_int32()
        self.ended = False  # by an end token or a stop text

    def decode(self, token: int) -> str:
        """The text that the token completes, often none. After an end token or a stop text, `ended` is true."""
        lib.kvant_text_stream_push(self._handle.pointer, integer(token, "token", 32), ctypes.byref(self._piece), ctypes.byref(self._size),
                                   ctypes.byref(self._state))
        self.ended = self._state.value != c.STREAM_OPEN
        return ctypes.string_at(self._piece.value, self._size.value).decode("utf-8", "replace") if self._size.value else ""

    def finish(self) -> str:
        """The text that was held back at the end."""
        lib.kvant_text_stream_finish(self._handle.pointer, ctypes.byref(self._piece), ctypes.byref(self._size))
        return ctypes.string_at(self._piece.value, self._size.value).decode("utf-8", "replace") if self._size.value else ""

    def close(self) -> None:
        self._handle.close()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


class _Stream(Handle):
    __slots__ = ()
    _free = "kvant_text_stream_free"


class Tokenizer(Handle):
    """The tokenizer of a model, or of a file, of which the weights are not looked at then."""

    __slots__ = ("_info", "_model", "_ends", "_ids")
    _free = "kvant_tokenizer_free"

    def __init__(self, model: Union[Model, Path]):
        super().__init__()
        self._model = model if isinstance(model, Model) else None
        self._ends: Optional[np.ndarray] = None
        self._ids: Optional[Dict[str, int]] = None
        if self._model is not None:
            self._pointer = new("kvant_tokenizer_of_model", model.pointer)
        else:
            self._pointer = new("kvant_tokenizer_open", model_path(model))
        self._info = sized(c.kvant_tokenizer_info)
        lib.kvant_tokenizer_get_info(self.pointer, ctypes.byref(self._info))

    @property
    def kind(self) -> str:
        """spm, bpe, wordpiece, unigram or rwkv."""
        self.pointer
        return self._info.kind.decode()

    @property
    def vocab_size(self) -> int:
        return self._info.vocab_size

    @property
    def bos_token_id(self) -> Optional[int]:
        return self._special("bos")

    @property
    def eos_token_id(self) -> Optional[int]:
        return self._special("eos")

    @property
    def pad_token_id(self) -> Optional[int]:
        return self._special("pad")

    @property
    def unk_token_id(self) -> Optional[int]:
        return self._special("unk")

    @property
    def eos_token_ids(self) -> np.ndarray:
        """All tokens that end a text, int32."""
        if self._ends is None and self._model is not None:  # faster than to ask for every token
            options = c.kvant_beam_options()
            lib.kvant_beam_options_of_model(self._model.pointer, ctypes.byref(options), ctypes.sizeof(options))
            self._ends = view(options.end_tokens, options.end_token_count, np.int32).copy()
        elif self._ends is None:
            self._ends = np.array([token for token in range(self.vocab_size) if self.is_end(token)], np.int32)
        return self._ends

    def _special(self, name: str) -> Optional[int]:
        token = getattr(self._info, name)
        return None if token < 0 else token

    def encode(self, text: Text, add_special: bool = True, parse_special: bool = True) -> np.ndarray:
        """The tokens of a text, int32. `add_special`: with BOS and EOS where the file asks for them, but no second BOS where the text has
        one; `parse_special`: control tokens in the text become their ids, as in other packages, so that a text of apply_chat_template()
        can be encoded. False for text of somebody who is not to write control tokens."""
        data = text_bytes(text)
        flags = (c.ADD_SPECIAL if add_special else 0) | (c.PARSE_SPECIAL if parse_special else 0)
        tokens = owned_tokens("kvant_tokenizer_encode", self.pointer, data, len(data), flags)
        twice = add_special and parse_special and len(tokens) > 1 and tokens[0] == tokens[1] == self._info.bos
        return tokens[1:] if twice else tokens

    def encode_batch(self, texts: Sequence[Text]) -> "list[np.ndarray]":
        """The tokens of each text, int32, none of them padded."""
        return [self.encode(text) for text in listed(texts, "encode_batch: texts")]

    def prompt(self, text: Text) -> np.ndarray:
        """The tokens of a prompt: BOS where the file asks for it, control tokens, never an end token."""
        data = text_bytes(text)
        return owned_tokens("kvant_tokenizer_prompt", self.pointer, data, len(data))

    def decode(self, tokens: Tokens, special: bool = False) -> str:
        """The text of tokens; `special`: control tokens appear as their names."""
        array = token_array(tokens)
        flags = c.SHOW_SPECIAL if special else 0
        return owned_bytes("kvant_tokenizer_decode", self.pointer, address(array), len(array), flags).decode("utf-8", "replace")

    def decode_batch(self, sequences: Sequence[Tokens], special: bool = False) -> "list[str]":
        """The text of each sequence of tokens: a list of them, of any lengths, or an array [batch, length]."""
        return [self.decode(tokens, special) for tokens in listed(sequences, "decode_batch: sequences")]

    def to_token_id(self, piece: str) -> int:
        """The id of an entry of the vocabulary, which piece() gives: the first one of equal entries. InvalidError where there is none."""
        if self._ids is None:
            self._ids = {}
            for token in range(self.vocab_size):
                self._ids.setdefault(self.piece(token) or "", token)
        found = self._ids.get(piece) if isinstance(piece, str) else None
        if found is None:
            raise InvalidError(f"to_token_id: expected an entry of the vocabulary, found {piece!r}")
        return found

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """The bytes of one token in running text, possibly a part of a character."""
        return owned_bytes("kvant_tokenizer_token_bytes", self.pointer, integer(token, "token", 32), c.SHOW_SPECIAL if special else 0)

    def piece(self, token: int) -> Optional[str]:
        """The entry of the vocabulary; None for a token outside it."""
        size = ctypes.c_size_t()
        found = lib.kvant_tokenizer_piece(self.pointer, integer(token, "token", 32), ctypes.byref(size))
        return ctypes.string_at(found, size.value).decode("utf-8", "replace") if found else None

    def is_end(self, token: int) -> bool:
        """Whether the token ends a text."""
        return bool(lib.kvant_tokenizer_flags(self.pointer, integer(token, "token", 32)) & c.IS_END)

    def is_control(self, token: int) -> bool:
        return bool(lib.kvant_tokenizer_flags(self.pointer, integer(token, "token", 32)) & c.IS_CONTROL)

    def create_stream(self, stop: Union[Text, Sequence[Text]] = (), special: bool = False) -> TokenizerStream:
        return TokenizerStream(self, stop, special)

    def apply_chat_template(self, messages: Union[str, Sequence[Mapping[str, Any]]], *, tokenize: bool = False,
                            template: Optional[str] = None, **options: Any) -> Union[str, np.ndarray]:
        """The text that the model's chat template makes of messages, [{"role": ..., "content": ...}, ...] or their JSON text; with
        `tokenize` its tokens, int32, where control tokens come from the template and never from messages. `template`: the name of one
        that comes with kvant, or a file. Options: see ChatTemplate.render."""
        if self._model is None:
            raise InvalidError("apply_chat_template: expected a tokenizer of a Model, found one of a file")
        with ChatTemplate(self._model, template) as made:
            return made.tokens(messages, **options) if tokenize else made.render(messages, **options)


class ChatTemplate(Handle):
    """Turns the messages of a conversation into a prompt, by the model's own template, a named one or that of a file."""

    __slots__ = ()
    _free = "kvant_template_free"

    def __init__(self, model: Model, name: Optional[str] = None, source: Optional[str] = None):
        super().__init__()
        expect(model, Model, "ChatTemplate: model")
        if source is not None:
            data = text_bytes(source)
            self._pointer = new("kvant_template_parse", model.pointer, c_text(name or "template", "name"), data, len(data))
        elif name is not None:
            self._pointer = new("kvant_template_named", model.pointer, c_text(name, "name"))
        else:
            self._pointer = new("kvant_template_of_model", model.pointer)

    def render(self, messages: Union[str, Sequence[Mapping[str, Any]]], *, add_generation_prompt: bool = True,
               enable_thinking: Optional[bool] = None, tools: Optional[Sequence[Any]] = None,
               variables: Optional[Mapping[str, Any]] = None, now: Optional[int] = None) -> str:
        """The prompt as text. `tools` and `variables` are given to the template; `now`: seconds since 1970."""
        data, options = _conversation(messages, add_generation_prompt, enable_thinking, tools, variables, now)
        return owned_bytes("kvant_template_render", self.pointer, data, len(data), ctypes.byref(options)).decode("utf-8", "replace")

    def tokens(self, messages: Union[str, Sequence[Mapping[str, Any]]], *, add_generation_prompt: bool = True,
               enable_thinking: Optional[bool] = None, tools: Optional[Sequence[Any]] = None,
               variables: Optional[Mapping[str, Any]] = None, now: Optional[int] = None) -> np.ndarray:
        """The prompt as tokens, int32."""
        data, options = _conversation(messages, add_generation_prompt, enable_thinking, tools, variables, now)
        return owned_tokens("kvant_template_tokens", self.pointer, data, len(data), ctypes.byref(options))


def _conversation(messages, add_generation_prompt, enable_thinking, tools, variables, now):
    options = template_options(enable_thinking, tools, variables, "ChatTemplate")
    options.add_generation_prompt = flag(add_generation_prompt, "ChatTemplate: add_generation_prompt")
    if now is not None:
        options.now = integer(now, "now")
    return json_bytes(messages, "messages"), options


def template_options(enable_thinking: Optional[bool], tools: Any, variables: Any, what: str) -> c.kvant_template_options:
    """Options of a template; None leaves one as it is."""
    options = defaults(c.kvant_template_options)
    if enable_thinking is not None:
        options.enable_thinking = flag(enable_thinking, f"{what}: enable_thinking")
    if tools is not None:
        options.tools = json_bytes(expect(tools, (list, tuple, str, bytes), f"{what}: tools"), f"{what}: tools")
    if variables is not None:
        options.variables = json_bytes(expect(variables, (Mapping, str, bytes), f"{what}: variables"), f"{what}: variables")
    return options


def json_bytes(value: Any, what: str) -> bytes:
    """JSON, of which a text is some already."""
    if isinstance(value, (str, bytes)):
        return text_bytes(value, what)
    try:
        return json.dumps(dict(value) if isinstance(value, Mapping) else value).encode()
    except (TypeError, ValueError) as error:
        raise InvalidError(f"{what}: expected what JSON can say, found {value!r} ({error})") from None


def model_path(path: Path) -> bytes:
    return path_bytes(find_model(path) if isinstance(path, str) else path)


def path_bytes(path: Path) -> bytes:
    try:
        return c_text(os.fsencode(path), "path")
    except TypeError:
        raise InvalidError(f"path: expected a path, found {type(path).__name__}") from None
