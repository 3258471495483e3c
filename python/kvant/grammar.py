"""Grammars, which say what texts may become. docs/constrained.md describes the notations."""
import ctypes
import json
from typing import Any, Mapping, Optional, Sequence, Union

from . import _bindings as c
from ._library import Handle, InvalidError, address, defaults, new, text_bytes, token_array
from ._options import expect, flag, text_array
from .model import Model, Text, Tokenizer, Tokens

# A schema as a dict or a JSON text, a model of pydantic or one of its objects, or a TypeAdapter.
Schema = Union[Mapping[str, Any], Text, bool, Any]

_KINDS = {"grammar": c.GRAMMAR_GBNF, "regex": c.GRAMMAR_REGEX, "choices": c.GRAMMAR_CHOICES, "json_object": c.GRAMMAR_JSON_OBJECT,
          "json_schema": c.GRAMMAR_JSON_SCHEMA}


def schema_bytes(schema: Schema, what: str = "json_schema") -> bytes:
    """The JSON text of a schema."""
    if isinstance(schema, (str, bytes)):
        return text_bytes(schema, what)
    for name in ("model_json_schema", "json_schema"):  # of pydantic's models, and of its adapters of other types
        if callable(make := getattr(schema, name, None)):
            schema = make()
            break
    if not isinstance(schema, (Mapping, bool)):
        raise InvalidError(f"{what}: expected a schema as a dict, a JSON text or a pydantic model, found {schema!r}")
    try:
        return json.dumps(schema, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError) as error:
        raise InvalidError(f"{what}: expected what JSON can express: {error}") from None


class Grammar(Handle):
    """What texts in the vocabulary of a model may become. It is made of one of

        grammar      a text in GBNF, llama.cpp's notation
        regex        a regular expression that the whole text matches
        choices      a list of texts
        json_object  True: any JSON object
        json_schema  a JSON schema: a dict, a JSON text, a pydantic model

    json_compact: no white space between the parts of JSON. json_allows_unknown: keywords that JSON Schema does not know are annotations,
    as it says, instead of errors.

    With `trigger_words` or `trigger_tokens` a text is free up to one of them, with which the grammar's own text begins, or to its end.
    `trigger_patterns`: regular expressions; the grammar's text begins where the first text begins that one of them matches.
    `trigger_full_patterns`: those that all of the text so far matches; the grammar's text begins with their first group.

    What is not understood is an InvalidError with line and column, or with a JSON pointer. Any number of texts and threads may use a
    grammar; a call that got one keeps what it needs of it."""

    __slots__ = ()
    _free = "kvant_grammar_free"

    def __init__(self, of: Union[Model, Tokenizer], *, grammar: Optional[Text] = None, regex: Optional[Text] = None,
                 choices: Optional[Sequence[Text]] = None, json_object: bool = False, json_schema: Optional[Schema] = None,
                 json_compact: bool = False, json_allows_unknown: bool = False, trigger_words: Sequence[Text] = (), trigger_tokens: Tokens = (),
                 trigger_patterns: Sequence[Text] = (), trigger_full_patterns: Sequence[Text] = ()):
        super().__init__()
        expect(of, (Model, Tokenizer), "Grammar: of")
        given = {"grammar": grammar, "regex": regex, "choices": choices, "json_object": flag(json_object, "Grammar: json_object") or None,
                 "json_schema": json_schema}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            raise InvalidError(f"Grammar: expected one of {', '.join(_KINDS)}, found {' and '.join(named) or 'none'}")
        options, kind = defaults(c.kvant_grammar_options), named[0]
        options.kind, options.json_compact = _KINDS[kind], flag(json_compact, "Grammar: json_compact")
        options.json_allows_unknown = flag(json_allows_unknown, "Grammar: json_allows_unknown")
        if json_compact and kind not in ("json_object", "json_schema"):
            raise InvalidError(f"Grammar: json_compact: expected json_object or json_schema with it, found {kind}")
        if kind == "choices":
            if isinstance(choices, (str, bytes)):
                raise InvalidError(f"Grammar: choices: expected a list of texts, found {choices!r}")
            options.choices, options.choice_count = text_array(choices, "Grammar: choices")
        elif kind != "json_object":
            data = schema_bytes(json_schema, "Grammar: json_schema") if kind == "json_schema" else text_bytes(given[kind], f"Grammar: {kind}")
            options.text, options.text_size = data, len(data)
        for name, triggers in (("word", trigger_words), ("pattern", trigger_patterns), ("full_pattern", trigger_full_patterns)):
            texts, count = text_array(triggers, f"Grammar: trigger_{name}s")
            if texts is not None:
                setattr(options, f"trigger_{name}s", texts)
                setattr(options, f"trigger_{name}_count", count)
        tokens = token_array(trigger_tokens, "Grammar: trigger_tokens")
        options.trigger_tokens, options.trigger_token_count = address(tokens), len(tokens)
        tokenizer = of if isinstance(of, Tokenizer) else Tokenizer(of)
        self._pointer = new("kvant_grammar_new", tokenizer.pointer, ctypes.byref(options))


def grammar_of(tokenizer: Union[Model, Tokenizer], what: str, *, grammar: Union[Grammar, Text, None] = None, regex: Optional[Text] = None,
               choices: Optional[Sequence[Text]] = None, json_object: bool = False, json_schema: Optional[Schema] = None,
               json_compact: bool = False) -> Optional[Grammar]:
    """The grammar that the options of a call name; None where they name none."""
    any_object = flag(json_object, f"{what}: json_object") or None
    given = [name for name, value in (("grammar", grammar), ("regex", regex), ("choices", choices), ("json_object", any_object),
                                      ("json_schema", json_schema)) if value is not None]
    if len(given) > 1:
        raise InvalidError(f"{what}: expected one of {', '.join(_KINDS)}, found {' and '.join(given)}")
    if flag(json_compact, f"{what}: json_compact") and not {"json_object", "json_schema"} & {*given}:
        raise InvalidError(f"{what}: json_compact: expected json_object or json_schema with it")
    if isinstance(grammar, Grammar):
        return grammar
    if not given:
        return None
    return Grammar(tokenizer, grammar=grammar, regex=regex, choices=choices, json_object=json_object, json_schema=json_schema,
                   json_compact=json_compact)
