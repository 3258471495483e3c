#!/usr/bin/env python3
"""Write what CTranslate2's Generator finds on models of make_seeded_models.py.

    seeded/NAME.ct2.jsonl   a line for each search: the prompt, the end token, the arguments of generate_batch with ids in place of tokens,
                            the texts found and their scores

Models go through CTranslate2's own converter for transformers, in float32, with tokens named after their ids.

Usage: make_ctranslate2_generations.py [NAME_BEGINNING]
The pinned packages are ctranslate2 4.8.5, transformers 4.57.1 and torch 2.8.0.
"""
import json
import sys
import tempfile

import ctranslate2
import torch
import transformers
from ctranslate2.converters import TransformersConverter
from ctranslate2.converters import transformers as loaders

from make_seeded_models import FOLDER, seeded

PROMPTS = (1, 3, 8)
CASES = [
    dict(beam_size=1),
    dict(beam_size=1, length_penalty=0.6, repetition_penalty=1.3, no_repeat_ngram_size=3),
    dict(beam_size=2),
    dict(beam_size=2, length_penalty=0, num_hypotheses=2),
    dict(beam_size=3, length_penalty=0.6, num_hypotheses=3, no_repeat_ngram_size=2),
    dict(beam_size=4, num_hypotheses=4),
    dict(beam_size=4, num_hypotheses=4, return_end_token=True),
    dict(beam_size=4, patience=2, num_hypotheses=4, length_penalty=2),
    dict(beam_size=4, patience=0.5, num_hypotheses=2, length_penalty=-0.5),
    dict(beam_size=5, min_length=8, repetition_penalty=1.2, num_hypotheses=2),
    dict(beam_size=5, num_hypotheses=5, suppress_sequences=[[5, 6], [7]]),
]
MAX_LENGTH = 20
NAMES = ("gpt2", "gptneox")


class Ids:
    """What the converter asks of a tokenizer."""

    special_tokens_map = {}

    def __init__(self, config):
        self.count = config.vocab_size
        self.bos_token, self.eos_token, self.pad_token, self.unk_token, self.unk_token_id = "1", "2", "0", "3", 3

    def get_vocab(self):
        return {str(i): i for i in range(self.count)}

    def convert_ids_to_tokens(self, token):
        return str(token)


class Converter(TransformersConverter):
    def load_tokenizer(self, tokenizer_class, path, **kwargs):
        return Ids(loaders.transformers.AutoConfig.from_pretrained(path))


def make(name):
    """The model that the tests make of its file."""
    row = json.loads((FOLDER / f"{name}.json").read_text())
    kind = getattr(transformers, row["config"]["architectures"][0])
    model = kind(kind.config_class.from_dict(row["config"])).eval().float()
    state = {tensor["name"]: torch.from_numpy(seeded(tensor["name"], tensor["shape"], tensor["mean"], tensor["spread"])) for tensor in row["tensors"]}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all(part.endswith((".bias", "lm_head.weight", "embed_out.weight")) for part in missing), (missing, unexpected)
    model.tie_weights()
    return model, row


def tokens(ids):
    return [str(i) for i in ids]


def check_logits(model, generator, text):
    """A wrong conversion would be a wrong reference: both programs give the same text the same probabilities."""
    scored = generator.score_batch([tokens(text)])[0].log_probs
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([text])).logits[0].log_softmax(-1)[range(len(text) - 1), text[1:]].tolist()
    worst = max(abs(a - b) for a, b in zip(scored, expected))
    assert worst < 1e-4, worst
    return worst


def search(generator, prompt, end, case, includes_prompt):
    given = dict(case, max_length=MAX_LENGTH, include_prompt_in_result=includes_prompt)
    named = dict(given, suppress_sequences=[tokens(words) for words in given["suppress_sequences"]]) if "suppress_sequences" in given else given
    found = generator.generate_batch([tokens(prompt)], end_token=str(end), return_scores=True, **named)[0]
    return {"prompt": prompt, "end": end, "settings": given, "texts": [[int(t) for t in text] for text in found.sequences], "scores": found.scores}


def main():
    for name in NAMES:
        if not name.startswith(sys.argv[1] if len(sys.argv) > 1 else ""):
            continue
        model, row = make(name)
        lines = []
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(f"{folder}/hf")
            Converter(f"{folder}/hf").convert(f"{folder}/ct2", quantization="float32")
            generator = ctranslate2.Generator(f"{folder}/ct2", compute_type="float32", inter_threads=1, intra_threads=1)
            worst = check_logits(model, generator, row["tokens"][:40])
            for length in PROMPTS:
                prompt = row["tokens"][:length]
                endless = search(generator, prompt, 2, dict(beam_size=1, min_length=MAX_LENGTH), False)["texts"][0]
                # Random models seldom end a text. A token that the greedy one comes to does it.
                end = next((token for i, token in enumerate(endless) if i >= 4 and token not in endless[:i]), endless[-1])
                for case in CASES:
                    for includes_prompt in (False, True):
                        lines.append(json.dumps(search(generator, prompt, end, case, includes_prompt)))
        (FOLDER / f"{name}.ct2.jsonl").write_text("\n".join(lines) + "\n")
        lengths = [len(text) for line in lines for text in json.loads(line)["texts"]]
        print(f"{name:10} {len(lines)} searches, texts of {min(lengths)} to {max(lengths)} tokens, conversion within {worst:.1e}")


if __name__ == "__main__":
    main()
