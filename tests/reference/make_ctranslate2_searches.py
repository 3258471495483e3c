#!/usr/bin/env python3
"""Write what CTranslate2's Translator finds on models of make_seeded_encoder_decoders.py.

    seeded/encoder_decoders/NAME.ct2.jsonl   a line for each search: how many tokens of the source, the end token, the arguments of
                                             translate_batch with ids in place of tokens, the texts found and their scores

Models go through CTranslate2's own converter for transformers, in float32. Two things are said to it in other words: tokens are named
after their ids, and Marian's start token has an embedding of its own here, as all tokens of a seeded model do. CTranslate2 has one
number of heads for both stacks.

Usage: make_ctranslate2_searches.py [NAME_BEGINNING]
The pinned packages are ctranslate2 4.8.5, transformers 4.57.1 and torch 2.6.0.
"""
import json
import pathlib
import sys
import tempfile

import ctranslate2
import torch
from ctranslate2.converters import TransformersConverter
from ctranslate2.converters import transformers as loaders
from transformers import GenerationConfig

from make_seeded_encoder_decoders import MODELS, PAIRS, make

SOURCES = (1, 17, 33)
CASES = [
    dict(beam_size=1),
    dict(beam_size=1, min_decoding_length=9, repetition_penalty=1.4, no_repeat_ngram_size=3),
    dict(beam_size=1, target_prefix=3, length_penalty=0.7, patience=2),
    dict(beam_size=2),
    dict(beam_size=2, length_penalty=0, num_hypotheses=2),
    dict(beam_size=3, length_penalty=0.6, num_hypotheses=3, no_repeat_ngram_size=2),
    dict(beam_size=4, length_penalty=0),
    dict(beam_size=4, patience=2, num_hypotheses=4, return_end_token=True),
    dict(beam_size=4, patience=0.5, num_hypotheses=2, length_penalty=-0.5),
    dict(beam_size=5, min_decoding_length=8, repetition_penalty=1.2),
    dict(beam_size=5, num_hypotheses=5, suppress_sequences=[["likeliest"], [5, 6], [7]], disable_unk=True),
    dict(beam_size=4, target_prefix=4, num_hypotheses=4),
    dict(beam_size=3, target_prefix=2, length_penalty=0, num_hypotheses=3, repetition_penalty=1.3, no_repeat_ngram_size=2),
    dict(beam_size=2, target_prefix=["start", 9, 9], repetition_penalty=0.8, length_penalty=2, num_hypotheses=2),
    dict(beam_size=4, target_prefix="before the end", num_hypotheses=4, length_penalty=0),
]
MAX_LENGTH = 24
OF_MODEL = {"t5": {}, "t5-gated": {}, "bart": dict(decoder_attention_heads=4),
            "marian": dict(decoder_attention_heads=4), "m2m100": dict(decoder_attention_heads=4)}


class Ids:
    """What the converter asks of a tokenizer."""

    special_tokens_map = {}

    def __init__(self, config):
        self.count = config.vocab_size
        self.bos_token, self.pad_token, self.eos_token = "0", str(config.pad_token_id), str(config.eos_token_id)
        self.unk_token, self.unk_token_id = "3", 3

    def get_vocab(self):
        return {str(i): i for i in range(self.count)}

    def convert_ids_to_tokens(self, token):
        return str(token)


class Converter(TransformersConverter):
    def load_tokenizer(self, tokenizer_class, path, **kwargs):
        return Ids(loaders.transformers.AutoConfig.from_pretrained(path))


class MarianLoader(loaders.MarianMTLoader):
    def _remove_pad_weights(self, spec):
        spec.decoder.start_from_zero_embedding = False


def convert(model, folder):
    model.config.normalize_before = False  # as in old files of BART, where the converter looks for it
    model.save_pretrained(folder / "hf")
    loaders._MODEL_LOADERS["MarianConfig"] = MarianLoader()
    Converter(str(folder / "hf")).convert(str(folder / "ct2"), quantization="float32")
    return ctranslate2.Translator(str(folder / "ct2"), compute_type="float32", inter_threads=1, intra_threads=1)


def tokens(ids):
    return [str(i) for i in ids]


def check_logits(model, translator, source, texts):
    """A wrong conversion would be a wrong reference: both programs give the same text the same probabilities."""
    start = model.config.decoder_start_token_id
    scored = translator.score_batch([tokens(source)], [tokens(texts)])[0].log_probs
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[start, *texts]])).logits[0]
    expected = logits.log_softmax(-1)[range(len(texts)), texts].tolist()
    worst = max(abs(a - b) for a, b in zip(scored, expected))
    assert worst < 1e-4, worst
    return worst


def named(value, names):
    if isinstance(value, list):
        return [named(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def search(translator, source, eos, case, greedy):
    """The case as its line has it."""
    case = dict(case, max_decoding_length=MAX_LENGTH)
    prefix = case.get("target_prefix")
    if isinstance(prefix, int):
        case["target_prefix"] = greedy[:prefix]
    given = {key: value for key, value in case.items() if key not in ("target_prefix", "suppress_sequences")}
    if "target_prefix" in case:
        given["target_prefix"] = [tokens(case["target_prefix"])]
    if "suppress_sequences" in case:
        given["suppress_sequences"] = [tokens(words) for words in case["suppress_sequences"]]
    found = translator.translate_batch([tokens(source)], end_token=str(eos), return_scores=True, **given)[0]
    return {"source": len(source), "end": eos, "settings": case, "texts": [[int(t) for t in text] for text in found.hypotheses],
            "scores": found.scores}


def main():
    total = 0
    for name, changes in OF_MODEL.items():
        if not name.startswith(sys.argv[1] if len(sys.argv) > 1 else ""):
            continue
        class_name, settings = MODELS[name]
        config, model, _ = make(name, class_name, settings | changes)
        model.generation_config = GenerationConfig()
        lines, worst = [], 0
        source_tokens = json.loads((PAIRS / f"{name}.json").read_text())["source"]
        with tempfile.TemporaryDirectory() as folder:
            translator = convert(model, pathlib.Path(folder))
            for length in SOURCES:
                source = source_tokens[:length]
                greedily = dict(beam_size=1, min_decoding_length=MAX_LENGTH)
                endless = search(translator, source, config.vocab_size - 1, greedily, [])["texts"][0]
                others = search(translator, source, config.vocab_size - 1, dict(greedily, suppress_sequences=[[t] for t in endless]), [])
                worst = max(worst, check_logits(model, translator, source, endless))
                # Random models seldom end a text. A token that the greedy one comes to does it, or where that repeats itself the
                # likeliest of the others. No prefix has it.
                eos = next((token for i, token in enumerate(endless) if i >= 4 and token not in endless[:i]), others["texts"][0][6])
                greedy = endless[:endless.index(eos)] if eos in endless else endless[:6]
                names = {"likeliest": endless[0], "start": config.decoder_start_token_id}
                for case in CASES:
                    if case.get("target_prefix") == "before the end":
                        case = dict(case, target_prefix=greedy)
                    case = {key: named(value, names) for key, value in case.items()}
                    lines.append(json.dumps({"start": config.decoder_start_token_id, "changes": changes} |
                                            search(translator, source, eos, case, endless)))
        (PAIRS / f"{name}.ct2.jsonl").write_text("\n".join(lines) + "\n")
        total += len(lines)
        lengths = [len(text) for line in lines for text in json.loads(line)["texts"]]
        print(f"{name:10} {len(lines)} searches, texts of {min(lengths)} to {max(lengths)} tokens, conversion within {worst:.1e}")
    print(f"{total} searches")


if __name__ == "__main__":
    main()
