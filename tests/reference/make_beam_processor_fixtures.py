#!/usr/bin/env python3
"""Write what Hugging Face transformers generates with the processors that encoder-decoders ask for.

    beam_search/processors.json   options, prompts and hypotheses, as cases.json of make_beam_fixtures.py, which searches

The model is mha.gguf of make_beam_fixtures.py. Greedy search and beam search, each processor alone, then several together.
Their tokens are those that a search without them chooses, so that they matter. Some pairs are there because their order
shows: what an earlier processor bans a later one may force, and what is forced may be banned afterwards.

Usage: make_beam_processor_fixtures.py [OUTPUT_FILE]
Needs transformers 4.57.1, as make_beam_fixtures.py.
"""
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

import make_beam_fixtures as beams

END, OTHER_END = 2, 20
MAX_NEW = 10
RANDOM_SETS = 90


def plain_case(prompt, count, turn):
    return dict(model="mha", beams=count, groups=1, diversity_penalty=0.0, length_penalty=(1.0, 0.0, 2.0, -1.0)[turn % 4],
                early_stopping=tuple(beams.EARLY_STOPPING)[turn % 3], end_tokens=[[END], [END, OTHER_END], []][turn // 2 % 3],
                num_return=count if turn % 5 == 0 else 1, max_new_tokens=MAX_NEW, min_new_tokens=0, repetition_penalty=1.0,
                no_repeat_ngram=0, prompts=[prompt])


def single_processors(prompt, text):
    """Each alone. `text` is what follows the prompt without them."""
    second, last = text[min(1, len(text) - 1)], text[-1]
    return {
        "forced_bos": {"forced_bos": 17},
        "forced_eos": {"forced_eos": END},
        "suppress": {"suppress": sorted({text[0], second})},
        "begin_suppress": {"begin_suppress": [text[0], 7]},
        "bad_words": {"bad_words": [[prompt[-1], text[0]], [END], [text[0], second], [last]]},
        "bad_word_of_prompt": {"bad_words": [[prompt[-1], text[0]]]},
        "min_length": {"min_length": len(prompt) + 6},
        "min_new_tokens": {"min_new_tokens": 5},
        "max_length": {"max_length": len(prompt) + 7},
        "renormalize": {"renormalize": True},
        "repetition": {"repetition_penalty": 1.4},
        "no_repeat_ngram": {"no_repeat_ngram": 2},
    }


def ordered_pairs(prompt, text):
    """Those of which each order has another outcome."""
    return [
        {"forced_bos": text[0], "bad_words": [[text[0]], [text[0], 5]]},
        {"forced_bos": prompt[0], "no_repeat_ngram": 1},
        {"forced_bos": 17, "begin_suppress": [17, text[0]]},
        {"forced_bos": END, "min_length": len(prompt) + 4},
        {"forced_bos": 17, "forced_eos": END, "max_length": len(prompt) + 1},
        {"forced_eos": END, "min_length": len(prompt) + MAX_NEW, "min_new_tokens": MAX_NEW},
        {"forced_eos": END, "bad_words": [[text[0], END], [9, END], [text[-1], END], [11]]},
        {"forced_eos": [20, 34], "suppress": [20]},
        {"forced_eos": [20, 34], "suppress": [20], "renormalize": True},
        {"suppress": sorted(set(text[:3])), "renormalize": True},
        {"repetition_penalty": 1.5, "renormalize": True, "bad_words": [[text[0]]]},
    ]


def random_set(random, prompt, text):
    every = single_processors(prompt, text)
    chosen = {}
    for name in random.choice(list(every), random.integers(2, 6), replace=False):
        chosen |= every[name]
    if "suppress" in chosen:
        forced = {chosen.get("forced_bos"), chosen.get("forced_eos")}
        chosen["suppress"] = [token for token in chosen["suppress"] if token not in forced] or [11]
    return chosen


def grid(model):
    random = np.random.default_rng(7)
    pool = [[1], [int(random.integers(3, beams.VOCAB))], [1] + random.integers(3, beams.VOCAB, 4).tolist()]
    for turn, (prompt, count) in enumerate(itertools.product(pool, (1, 2, 4))):
        plain = plain_case(prompt, count, turn)
        text = beams.search(model, plain)[0][0][0][0]
        for index, changes in enumerate(list(single_processors(prompt, text).values()) + ordered_pairs(prompt, text)):
            yield plain_case(prompt, count, turn + index) | changes
        for index in range(RANDOM_SETS // 9):
            yield plain_case(prompt, count, turn + index) | random_set(random, prompt, text)


def main():
    assert transformers.__version__ == beams.TRANSFORMERS, transformers.__version__
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "beam_search" / "processors.json"
    config_type, model_type, shape = beams.MODELS["mha"]
    model = beams.make_model(config_type, model_type, shape, seed=1).double()
    lines, left_out = [], 0
    for case in grid(model):
        results, margins = beams.search(model, case)
        if margins.wide() and results[0]:
            lines.append(beams.line(case, results))
        else:
            left_out += 1
        print(f"\r{len(lines)} cases, {left_out} left out", end="", flush=True)
    head = json.dumps({"transformers": beams.TRANSFORMERS, "torch": torch.__version__})[1:-1]
    path.write_text("{" + head + ',"cases":[\n' + ",\n".join(lines) + "\n]}\n")
    print(f"; {path.name} has {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
