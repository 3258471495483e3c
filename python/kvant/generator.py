"""The object model of ONNX Runtime GenAI: Config, Model, GeneratorParams, Generator with append_tokens, generate_next_token, token_count
and rewind_to. A program that was written for it runs with one import changed, and finds the same texts (0.18.0 is what is compared with).
Batches may be ragged, and nothing is padded: a text that has ended in a batch keeps its own length."""
import ctypes
import warnings
from typing import Any, Dict, List, Optional, Sequence, Union

import numpy as np

from . import _bindings as c
from ._generator_texts import Search, Text, inner
from ._library import InvalidError, integer, lib, token_array
from .errors import ContextFullError, NotSupportedError
from ._options import expect
from .generate import BeamOptions
from .generator_params import GeneratorParams, log_line, logs
from .grammar import Grammar
from .model import Model, Tokenizer
from .runner import Runner, Snapshot
from .sampling import Sampler, SamplingOptions

_NO_ROWS = c.kvant_row_function()


class GeneratorSnapshot:
    """A state of a Generator; see Generator.snapshot()."""

    def __init__(self, texts: "list[tuple[Snapshot, Sampler, Optional[int], bool, int]]"):
        self.texts = texts

    def close(self) -> None:
        for snapshot, sampler, *_ in self.texts:
            snapshot.close()
            sampler.close()
        self.texts = []

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()


class Generator:
    """Writes texts token by token, one for each prompt of a batch.

        generator = Generator(model, params)
        generator.append_tokens(tokenizer.encode("..."))
        while not generator.is_done():
            generator.generate_next_token()
            print(stream.decode(generator.get_next_tokens()[0]), end="")
    """

    def __init__(self, model: Model, params: Optional[GeneratorParams] = None):
        params = params or GeneratorParams(model)
        if params.model is not model:
            raise InvalidError("Generator: expected params of the same model")
        search = params.search
        self.batch_size = int(search["batch_size"])
        self._search_options = dict(search)
        self._grammar = expect(params.grammar, (Grammar, type(None)), "Generator: params.grammar")
        self._with_beams = search["num_beams"] > 1
        options = dict(params.runner_options)
        options.setdefault("sequences", self.batch_size * int(search["num_beams"]))
        context = int(options.get("context") or model.info.context_length)
        if search["max_length"] > context:
            raise InvalidError(f"Generator: max_length: expected at most the context of {context}, found {search['max_length']}")
        if search["max_length"] > 0:
            options.setdefault("context", int(search["max_length"]))
        self.model = model
        self.tokenizer = Tokenizer(model)
        self._runner_options = options
        self.runner = Runner(model, **options)
        if logs():
            self.runner.set_kv_log(log_line)
        self.max_length = int(search["max_length"]) or self.runner.options["context"]
        self._ends = self.tokenizer.eos_token_ids
        self._is_end = frozenset(self._ends.tolist())
        pad = self.tokenizer.pad_token_id
        self._pad = pad if pad is not None else int(self._ends[0]) if len(self._ends) else 0
        self._inputs = (c.kvant_step_input * self.batch_size)()
        self._min_length = int(search["min_length"]) if len(self._ends) else 0
        self._rewinds = 0
        self._searches: List[Search] = []
        self._next = np.empty(0, np.int32)
        self._texts = [] if self._with_beams else [
            Text(self.runner.new_sequence(), self._new_sampler(number)) for number in range(self.batch_size)]

    def _new_sampler(self, number: int) -> Sampler:
        search = self._search_options
        seed = int(search["random_seed"])
        chain: Dict[str, Any] = {"samplers": "penalties;top_k;top_p;temperature", "repeat_last_n": -1,
                                 "repeat_penalty": float(search["repetition_penalty"]),
                                 "temperature": float(search["temperature"]) if search["do_sample"] else 0.0,
                                 "top_k": int(search["top_k"]), "top_p": float(search["top_p"]) or 1.0}
        if seed >= 0:
            chain["seed"] = seed + number + self.batch_size * self._rewinds
        return Sampler(self.tokenizer, SamplingOptions(**chain))

    def _beam_options(self) -> BeamOptions:
        search = self._search_options
        sample = bool(search["do_sample"])
        return BeamOptions(beams=int(search["num_beams"]), num_return=int(search["num_return_sequences"]),
                           length_penalty=float(search["length_penalty"]), early_stopping=search["early_stopping"], scoring="oga",
                           max_length=self.max_length, min_length=int(search["min_length"]),
                           repetition_penalty=float(search["repetition_penalty"]), no_repeat_ngram=int(search["no_repeat_ngram_size"]),
                           end_tokens=self._ends, sample=int(sample), seed=max(0, int(search["random_seed"])),
                           **({"temperature": float(search["temperature"]), "top_k": int(search["top_k"]),
                               "top_p": float(search["top_p"]) or 1.0} if sample else {}))

    def _batch_of(self, tokens: Any) -> List[np.ndarray]:
        rows = list(tokens) if len(tokens) > 0 and np.ndim(tokens[0]) > 0 else [tokens]
        if len(rows) != self.batch_size:
            raise InvalidError(f"append_tokens: expected tokens for a batch of {self.batch_size}, found {len(rows)}")
        arrays = [token_array(row) for row in rows]
        for number, row in enumerate(arrays):
            if len(row) == 0:
                raise InvalidError(f"append_tokens: prompt {number} has no tokens")
        return arrays

    def append_tokens(self, tokens: Union[Sequence[int], Sequence[Sequence[int]], np.ndarray],
                      attention_mask: Union[Sequence[int], Sequence[Sequence[int]], np.ndarray, None] = None) -> None:
        """Processes tokens: those of the prompt, or with a batch a row for each prompt, of any lengths; later ones go on behind the
        text. ContextFullError where they do not fit max_length.

        Rows that were padded to one length: those with 0 in `attention_mask`, of the same shape, are left out, or else those of
        set_search_options(pad_token_id=...) at both ends of a row. With neither, what looks like padding is warned of, and is text."""
        rows = self._without_padding(self._batch_of(tokens), attention_mask)
        for number, row in enumerate(rows):
            held = len(self._texts[number]) if self._texts else 0
            if held + len(row) > self.max_length:
                raise ContextFullError(f"append_tokens: {len(row)} tokens do not fit behind the {held} of text {number}: max_length is "
                                       f"{self.max_length}")
        if self._with_beams:
            return self._start_searches(rows)
        inputs = [(text.sequence, row if text.pending is None else np.append(np.int32(text.pending), row))
                  for text, row in zip(self._texts, rows)]
        try:
            self.runner.step(inputs)
        finally:  # an interruption may come when the step is done
            for text, row in zip(self._texts, rows):
                if text.follow():
                    text.passed = len(row)
                    text.sampler.accept(row)
                    text.begin(self._grammar)
                    text.done = len(text) >= self.max_length

    def _without_padding(self, rows: List[np.ndarray], attention_mask: Any) -> List[np.ndarray]:
        if attention_mask is not None:
            masks = list(attention_mask) if self.batch_size > 1 or np.ndim(attention_mask) > 1 else [attention_mask]
            if [len(mask) for mask in masks] != [len(row) for row in rows]:
                raise InvalidError(f"append_tokens: attention_mask: expected the shape of the tokens, found {np.shape(attention_mask)}")
            kept = [row[np.asarray(mask) != 0] for row, mask in zip(rows, masks)]
        else:
            given = int(self._search_options["pad_token_id"])
            pad = given if given >= 0 else self._pad
            kept = [row[slice(*inner(row, pad))] for row in rows]
            if given < 0:
                padded = [number for number, (row, inner) in enumerate(zip(rows, kept)) if 0 < len(inner) < len(row)]
                if len(rows) > 1 and padded and len({len(row) for row in rows}) == 1:
                    warnings.warn(f"append_tokens: row {padded[0]} seems to be padded with token {pad}, which is processed as text: give an "
                                  f"attention_mask, or set_search_options(pad_token_id={pad})", stacklevel=3)
                return rows
        for number, row in enumerate(kept):
            if len(row) == 0:
                raise InvalidError(f"append_tokens: prompt {number} has nothing but padding")
        return kept

    def _start_searches(self, rows: List[np.ndarray]) -> None:
        if self._searches:
            raise NotSupportedError("append_tokens: a beam search has begun, and takes no more tokens")
        options, vocab_size = self._beam_options(), self.model.info.vocab_size
        sequences = [self.runner.new_sequence() for _ in rows]
        try:
            self.runner.step(list(zip(sequences, rows)))
        finally:
            if len(sequences[0]) > 0:  # an interruption may come when the step is done
                self._searches = [Search(vocab_size, options, self._grammar, row, sequence) for row, sequence in zip(rows, sequences)]
            else:
                for sequence in sequences:
                    sequence.close()

    def generate_next_token(self) -> None:
        """Chooses the next token of every text that is not done. InvalidError where all are and one has max_length tokens."""
        if self.is_done() and any(self._is_full(number) for number in range(self.batch_size)):
            raise InvalidError(f"generate_next_token: the text has {self.max_length} tokens, as many as max_length")
        if self._with_beams:
            return self._next_beams()
        self._process_pending()
        size = int(self._search_options["no_repeat_ngram_size"])
        chosen, ended, goes_on = [], [], False
        for text in self._texts:
            if text.done:
                chosen.append(self._pad)
                continue
            if not text.has_logits:
                raise InvalidError("generate_next_token: expected append_tokens() first")
            floor = self._ends if text.length < self._min_length else None
            if size > 0:
                floor = np.concatenate([text.repeated(size), [] if floor is None else floor]).astype(np.int32)
            token = text.draw(floor)
            chosen.append(token)
            if token in self._is_end:
                ended.append(text)
                continue
            text.take(token)
            text.done = len(text) >= self.max_length
            goes_on = True
        goes_on = goes_on or any(not text.done for text in self._texts if text not in ended)
        for text in ended:
            if goes_on:  # the end token that ends the last text is no part of it
                text.take(text.token.value)
            text.done = True
        self._next = np.array(chosen, np.int32)

    def _is_full(self, number: int) -> bool:
        """Whether a text has max_length tokens."""
        if self._with_beams:
            return len(self._searches[number].prompt) + self._searches[number].steps >= self.max_length
        return len(self._texts[number]) >= self.max_length

    def _process_pending(self) -> None:
        """Processes the last tokens that were chosen, and computes logits that a rewind has dropped."""
        waiting = [text for text in self._texts if text.pending is not None and not text.done]
        for struct, text in zip(self._inputs, waiting):
            text.token.value = text.pending
            struct.sequence, struct.logits = text.sequence.number, c.LOGITS_LAST
            struct.tokens, struct.count = ctypes.addressof(text.token), 1
        try:
            if waiting:
                lib.kvant_runner_step(self.runner.pointer, self._inputs, len(waiting), _NO_ROWS, None)
        finally:  # an interruption may come when the step is done
            for text in waiting:
                text.follow()
        for text in self._texts:
            if not text.has_logits and not text.done and text.length > 0:
                text.sequence.compute_logits()
                text.has_logits = True

    def _next_beams(self) -> None:
        if not self._searches:
            raise InvalidError("generate_next_token: expected append_tokens() first")
        self._process_beams()
        chosen = []
        for search in self._searches:
            if search.rows == 0:
                continue
            chosen.append(search.choose(self.runner))
        self._next = np.concatenate(chosen) if chosen else self._next[:0]
        self._process_beams()

    def _process_beams(self) -> None:
        """Processes the tokens that the beams have been given; all of them after an interruption, or none."""
        inputs = [(beam, [token]) for search in self._searches for beam, token in search.waiting()]
        if inputs:
            self.runner.step(inputs)

    def is_done(self) -> bool:
        """Whether every text has ended, by an end token or by max_length. False before the first tokens."""
        if self._with_beams:
            return bool(self._searches) and all(search.rows == 0 for search in self._searches)
        return all(text.done for text in self._texts)

    def get_next_tokens(self) -> np.ndarray:
        """The tokens that were chosen last, int32 [batch]; texts that were done before have the padding token. With beams: one for each
        live beam."""
        return self._next

    def token_count(self, index: int = 0) -> int:
        """Tokens of a text, its prompt included. The end token counts but for the text of a batch that ends last, or a single one."""
        if self._with_beams:
            search = self._searches[index] if self._searches else None
            return 0 if search is None else len(search.prompt) + search.steps
        return len(self._texts[index])

    def get_sequence(self, index: int = 0) -> np.ndarray:
        """The tokens of a text, int32, its prompt included, with the end token where token_count() counts it. With beams, the best hypotheses so
        far, num_return_sequences for each prompt: those that have ended, without their end token, then live ones."""
        if not self._with_beams:
            return self._texts[index].tokens
        every = int(self._search_options["num_return_sequences"])
        if not self._searches:
            raise InvalidError("get_sequence: expected append_tokens() first")
        found = self._searches[index // every].results()
        return found[min(index % every, len(found) - 1)]

    def get_logits(self) -> np.ndarray:
        """The logits of the next tokens, float32 [batch, 1, vocab_size] (with beams, a row for each live beam)."""
        if self._with_beams:
            rows = [beam.logits() for search in self._searches if search.rows for beam in search.beams]
        else:
            self._process_pending()
            rows = [text.sequence.logits() if text.logits is None else text.logits for text in self._texts]
        return np.array(rows, np.float32)[:, None, :]

    def get_output(self, name: str) -> np.ndarray:
        """An output of the model by its name: "logits", those of all tokens of the last pass, float32 [batch, tokens, vocab_size]. Behind
        append_tokens() and the first generate_next_token() these are the tokens that were appended, whose rows are computed again for this
        call; later there is one. Shorter texts of a batch have rows of zeros in front. With beams: what get_logits() gives."""
        if name != "logits":
            raise InvalidError(f"get_output: expected 'logits', found {name!r}")
        if self._with_beams or not all(text.has_logits for text in self._texts):
            return self.get_logits()
        found = [text.rows_of_last_pass(self.model, self._runner_options) for text in self._texts]
        longest = max(len(rows) for rows in found)
        return np.stack([np.pad(rows, ((longest - len(rows), 0), (0, 0))) for rows in found])

    def set_logits(self, logits: np.ndarray) -> None:
        """Logits in place of the model's for the next token, [batch, 1, vocab_size] or [batch, vocab_size]."""
        if self._with_beams:
            raise NotSupportedError("set_logits: not with beams")
        self._process_pending()
        rows = np.asarray(logits, np.float32)
        if rows.size != self.batch_size * self.model.info.vocab_size:
            raise InvalidError(f"set_logits: expected {self.batch_size} rows of {self.model.info.vocab_size} numbers, found an array of "
                               f"shape {rows.shape}")
        for text, row in zip(self._texts, rows.reshape(self.batch_size, -1)):
            text.logits = row.copy()

    def rewind_to(self, length: int) -> None:
        """Keeps the first `length` tokens of every text, exactly as if no more had come. Nothing is computed again but what a sliding
        window has dropped, and the logits of the last token kept."""
        if self._with_beams:
            raise NotSupportedError("rewind_to: not with beams")
        length = integer(length, "rewind_to")
        for number, text in enumerate(self._texts):
            if not 0 <= length <= len(text):
                raise InvalidError(f"rewind_to: expected 0 to {len(text)}, the tokens of text {number}, found {length}")
        self._rewinds += 1
        for number, text in enumerate(self._texts):
            if length == len(text):
                text.done = text.pending in self._is_end or length >= self.max_length
                continue
            text.pending, text.logits, text.done = None, None, False
            if length < text.length:
                text.sequence.rewind(length, replay=True)
                text.length, text.passed, text.has_logits = length, 1, False
            tokens, text.begins = text.tokens, min(text.begins, length)
            if self._search_options["repetition_penalty"] != 1.0:  # which looks at the tokens before
                text.sampler.close()
                text.sampler = self._new_sampler(number)
                text.sampler.accept(tokens[:text.begins])
            elif self._grammar is None:
                continue
            text.sampler.set_grammar(self._grammar)
            text.sampler.accept(tokens[text.begins:])

    def snapshot(self) -> GeneratorSnapshot:
        """The present state of the generator, for restore(); it shares all memory."""
        if self._with_beams:
            raise NotSupportedError("snapshot: not with beams")
        return GeneratorSnapshot([(text.sequence.snapshot(), text.sampler.clone(), text.pending, text.done, text.begins)
                                  for text in self._texts])

    def restore(self, snapshot: GeneratorSnapshot) -> None:
        """Becomes what it was, the state of its samplers included. The snapshot can be used again."""
        if len(snapshot.texts) != len(self._texts):
            raise InvalidError(f"restore: expected a snapshot of {len(self._texts)} texts, found {len(snapshot.texts)}")
        for text, (kept, sampler, pending, done, text_begins) in zip(self._texts, snapshot.texts):
            text.sequence.restore(kept)
            text.sampler.close()
            text.sampler = sampler.clone()
            text.pending, text.logits, text.done, text.begins = pending, None, done, text_begins
            text.length, text.has_logits = len(text.sequence), False  # computed where the snapshot has none

    snapshot_state = snapshot

    def close(self) -> None:
        for search in self._searches:
            search.close()
        for text in self._texts:
            text.sampler.close()
        self.runner.close()

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()
