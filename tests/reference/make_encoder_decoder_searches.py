#!/usr/bin/env python3
"""Write what transformers' generate finds on the models of make_seeded_encoder_decoders.py.

    seeded/encoder_decoders/NAME.searches.jsonl   a line for each search: how many tokens of the source, the settings, the tokens of each
                                                  text behind the decoder's first one, and their scores, where there are beams

Usage: make_encoder_decoder_searches.py [NAME_BEGINNING]
The pinned packages are transformers 4.57.1 and torch 2.6.0.
"""
import json
import sys

import torch
from transformers import GenerationConfig

from make_seeded_encoder_decoders import MODELS, PAIRS, make

CASES = [
    dict(num_beams=1),
    dict(num_beams=1, min_length=9, repetition_penalty=1.4, no_repeat_ngram_size=3),
    dict(num_beams=4),
    dict(num_beams=3, num_return_sequences=3, early_stopping=True),
    dict(num_beams=5, early_stopping="never", length_penalty=2.0),
    dict(num_beams=5, early_stopping=True, length_penalty=-0.5, num_return_sequences=2),
    dict(num_beams=3, forced_bos_token_id=9, forced_eos_token_id="eos"),
    dict(num_beams=3, min_length=10, early_stopping=True),
    dict(num_beams=4, bad_words_ids=[[5], [6], [7, 8]], renormalize_logits=True),
    dict(num_beams=4, repetition_penalty=1.3, no_repeat_ngram_size=2, renormalize_logits=True),
    dict(num_beams=2, suppress_tokens=[10, 11, 12], begin_suppress_tokens=[13, "eos"], num_return_sequences=2),
    # A token that is likelier than all others, banned as in Marian's models, with and without normalization after it.
    dict(num_beams=4, bad_words_ids=[["likeliest"]], renormalize_logits=True),
    dict(num_beams=4, bad_words_ids=[["likeliest"]]),
]
SOURCES = (1, 17, 33)
MAX_LENGTH = 24


def named(value, names):
    """The case with ids in place of names."""
    if isinstance(value, list):
        return [named(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def search(model, source, case, eos):
    config = model.config
    generation = GenerationConfig(max_length=MAX_LENGTH, do_sample=False, use_cache=False, eos_token_id=eos, pad_token_id=config.pad_token_id,
                                  decoder_start_token_id=config.decoder_start_token_id, return_dict_in_generate=True, output_scores=True, **case)
    with torch.no_grad():
        out = model.generate(input_ids=source[None], generation_config=generation)
    texts = []
    for row in out.sequences.tolist():
        row = row[1:]
        texts.append(row[:row.index(eos) + 1] if eos in row else row)
    scores = out.sequences_scores.tolist() if case["num_beams"] > 1 else []
    return texts, scores


def main():
    for name, (class_name, settings) in MODELS.items():
        if not name.startswith(sys.argv[1] if len(sys.argv) > 1 else ""):
            continue
        config, model, _ = make(name, class_name, settings)
        model.generation_config = GenerationConfig()
        tokens = torch.tensor(json.loads((PAIRS / f"{name}.json").read_text())["source"])
        lines = []
        for length in SOURCES:
            source = tokens[:length]
            with torch.no_grad():
                first = model(input_ids=source[None], decoder_input_ids=torch.tensor([[config.decoder_start_token_id]])).logits[0, -1]
            # Random models seldom end a text: a token that the greedy one comes to does it.
            eos = search(model, source, dict(num_beams=1), config.vocab_size)[0][0][6]
            names = {"eos": eos, "likeliest": int(first.argmax())}
            for case in CASES:
                # Behind a padding token M2M-100 of transformers counts positions otherwise, and no text has one.
                case = dict(case, suppress_tokens=case.get("suppress_tokens", []) + [config.pad_token_id])
                case = {key: value if key == "early_stopping" else named(value, names) for key, value in case.items()}
                texts, scores = search(model, source, case, eos)
                lines.append(json.dumps({"source": length, "eos": eos, "start": config.decoder_start_token_id, "max_length": MAX_LENGTH,
                                         "settings": case, "texts": texts, "scores": scores}))
        (PAIRS / f"{name}.searches.jsonl").write_text("\n".join(lines) + "\n")
        lengths = [len(text) for line in lines for text in json.loads(line)["texts"]]
        print(f"{name:10} {len(lines)} searches, texts of {min(lengths)} to {max(lengths)} tokens")


if __name__ == "__main__":
    main()
