"""lm-evaluation-harness (PyPI: lm_eval) on GGUF files. Importing this module registers the model "kvant":

    import kvant.lm_eval, lm_eval
    lm_eval.simple_evaluate(model="kvant", model_args={"path": "model.gguf"}, tasks=["my_task"])

or, with the arguments of lm_eval, `python -m kvant.lm_eval --model kvant --model_args path=model.gguf --tasks my_task`.

White space at the end of a context belongs to the continuation, as in the harness' own classes. So does a token across the border between
the two, as in `kvant perplexity --multiple-choice`.
"""
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import lm_eval.models  # noqa: F401  the harness finds its own models only where the first one that is registered is one of them
import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from ._library import InvalidError
from .generate import generate
from .model import ChatTemplate, Model, Tokenizer
from .runner import Runner

SCORED_AT_ONCE = 64  # texts that are handed to the runner together


@register_model("kvant")
class KvantLM(LM):
    """A GGUF file as the harness sees a model. `path`: the file; `sequences`: texts that are scored side by side; other options are
    those of kvant.Runner (context, threads, kv_type, ...)."""

    def __init__(self, path: str, sequences: int = 8, batch_size: Any = None, max_batch_size: Any = None, device: Any = None,
                 **options: Any):
        super().__init__()
        self.model = Model(path)
        self.tokenizer_ = Tokenizer(self.model)
        self.runner = Runner(self.model, sequences=int(sequences) + 1, **options)
        self.context = int(self.runner.options["context"])

    @property
    def tokenizer_name(self) -> str:
        return self.model.info.path

    def apply_chat_template(self, chat_history: List[Dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The text that the model's own template makes of messages; the harness's --apply_chat_template."""
        with ChatTemplate(self.model) as template:
            return template.render(chat_history, add_generation_prompt=add_generation_prompt)

    def tok_encode(self, text: str) -> List[int]:
        """As kvant perplexity does: BOS where the file asks for it, and no control tokens from the text."""
        tokens = self.tokenizer_.encode(text, add_special=True, parse_special=False)
        end = self.tokenizer_.eos_token_id
        return list(tokens[:-1] if len(tokens) > 1 and tokens[-1] == end else tokens)

    def _pair(self, context: str, continuation: str) -> Tuple[np.ndarray, int]:
        """The tokens of both together, and where the scored ones begin."""
        stripped = context.rstrip()
        context, continuation = stripped, context[len(stripped):] + continuation
        before, both = self.tok_encode(context), self.tok_encode(context + continuation)
        first = next((i for i, (a, b) in enumerate(zip(before, both)) if a != b), min(len(before), len(both)))
        first = min(first, len(both) - 1)  # a continuation without a token of its own is judged by the last one
        if first < 1:
            start = self.tokenizer_.bos_token_id if self.tokenizer_.bos_token_id is not None else self.tokenizer_.eos_token_id
            if start is None:
                raise InvalidError("no token comes before the continuation: the context is empty, and the vocabulary has neither BOS nor EOS")
            return np.array([start, *both], np.int32), first + 1
        return np.array(both, np.int32), first

    def _cut(self, tokens: np.ndarray, first: int) -> Tuple[np.ndarray, int]:
        """The last tokens that fit the context."""
        excess = min(max(0, len(tokens) - 1 - self.context), first - 1)
        if len(tokens) - excess - 1 > self.context:
            raise InvalidError(f"a continuation of {len(tokens) - first} tokens does not fit the context of {self.context}")
        return tokens[excess:], first - excess

    def _score(self, texts: Sequence[Tuple[np.ndarray, int]]) -> Iterator[Tuple[float, bool]]:
        # Texts with the same beginning are neighbours, so that it is computed once.
        order = sorted(range(len(texts)), key=lambda i: texts[i][0].tolist())
        found: List[Optional[Tuple[float, bool]]] = [None] * len(texts)
        for begin in range(0, len(order), SCORED_AT_ONCE):
            some = order[begin:begin + SCORED_AT_ONCE]
            for i, score in zip(some, self.runner.score([texts[i] for i in some])):
                found[i] = (float(score.log_probs.sum()), score.greedy)
        yield from found

    def loglikelihood(self, requests: List[Instance]) -> List[Tuple[float, bool]]:
        return list(self._score([self._cut(*self._pair(*request.args)) for request in requests]))

    def loglikelihood_rolling(self, requests: List[Instance]) -> List[float]:
        """Scores whole texts in windows of the context that follow each other; each token is scored once."""
        windows, owner = [], []
        for number, request in enumerate(requests):
            tokens, first = self._pair("", request.args[0])
            for begin in range(first, len(tokens), self.context):
                end = min(begin + self.context, len(tokens))
                windows.append((tokens[max(0, end - self.context - 1):end], begin - max(0, end - self.context - 1)))
                owner.append(number)
        sums = [0.0] * len(requests)
        for number, (log_prob, _) in zip(owner, self._score(windows)):
            sums[number] += log_prob
        return sums

    def generate_until(self, requests: List[Instance]) -> List[str]:
        texts = []
        for request in requests:
            context, options = request.args[0], dict(request.args[1])
            stop = options.get("until", [])
            most = int(options.get("max_gen_toks", 256))
            if most >= self.context:  # so that a prompt would have no room
                raise InvalidError(f"max_gen_toks: expected less than the context of {self.context} tokens, found {most}")
            prompt = self.tokenizer_.prompt(context)[most - self.context:]
            temperature = float(options.get("temperature", 0.0)) if options.get("do_sample", False) else 0.0
            drawn = {name: options[name] for name in ("top_k", "top_p", "min_p") if temperature > 0 and name in options}
            texts.append(generate(self.runner, prompt, max_tokens=most, stop=[stop] if isinstance(stop, str) else stop,
                                  temperature=temperature, **drawn).text)
        return texts


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
