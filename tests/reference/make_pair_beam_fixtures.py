#!/usr/bin/env python3
"""Write what Hugging Face transformers finds by beam search in encoder-decoders, those of tests/reference/seeded.

    beam_search/pairs.json   options, sources, prompts and hypotheses, as cases.json of make_beam_fixtures.py, which searches

Beams, length penalties, early stopping and end tokens come in every combination, a third of them for each model. Sources of a batch have
different lengths: transformers pads and masks them. The models run in float64 and without a cache.

Usage: make_pair_beam_fixtures.py [OUTPUT_FILE]
Needs transformers 4.57.1 and torch 2.6.0.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

import make_beam_fixtures as beams
from make_seeded_encoder_decoders import MODELS, make
from make_seeded_models import VOCAB

NAMES = ("t5", "bart", "m2m100")
LENGTHS = (1, 3, 6, 12, 20, 33)
TRIES = 5


def ends_of(model, case, count):
    """Random models seldom end a text: the likeliest tokens behind four of a greedy one do it."""
    pad = model.config.pad_token_id
    inputs, _ = inputs_of(pad)(case | dict(sources=case["sources"][:1], prompts=case["prompts"][:1]))
    out = model.generate(**inputs, max_new_tokens=5, do_sample=False, eos_token_id=None, suppress_tokens=[pad], return_dict_in_generate=True,
                         output_scores=True)
    return out.scores[4][0].topk(count)[1].tolist()


def cases(name, model):
    """A third of the whole grid without groups, each case as tries with other sources, of which the first whose choices are clear is kept.
    Behind a padding token M2M-100 of transformers counts positions otherwise, and no text has one."""
    whole = [case for parity in (0, 1) for case in beams.grid(name, parity) if case["groups"] == 1]
    start, pad = model.config.decoder_start_token_id, model.config.pad_token_id
    random = np.random.default_rng(7)
    owners = np.random.default_rng(11).permutation(len(whole)) % len(NAMES)  # options of the grid take turns, too
    for turn, case in enumerate(whole):
        if owners[turn] != NAMES.index(name):
            continue
        count, ends = len(case.pop("prompts")), len(case["end_tokens"])
        prompt = [start] if turn % 4 < 3 else [start, 7 + turn % 5, 12]
        case |= dict(suppress=[pad], prompts=[prompt] * count)
        tries = [case | dict(sources=[random.integers(3, VOCAB, length).tolist() for length in random.choice(LENGTHS, count, replace=False)])
                 for _ in range(TRIES)]
        yield [one | dict(end_tokens=ends_of(model, one, ends)) for one in tries]


def inputs_of(pad):
    def inputs(case):
        longest = max(map(len, case["sources"]))
        ids = torch.tensor([source + [pad] * (longest - len(source)) for source in case["sources"]])
        mask = torch.tensor([[1] * len(source) + [0] * (longest - len(source)) for source in case["sources"]])
        return (dict(input_ids=ids, attention_mask=mask, decoder_input_ids=torch.tensor(case["prompts"]), pad_token_id=pad, use_cache=False),
                len(case["prompts"][0]))
    return inputs


def main():
    assert transformers.__version__ == beams.TRANSFORMERS, transformers.__version__
    beams.VOCAB = VOCAB
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "beam_search" / "pairs.json"
    lines, left_out = [], 0
    for name in NAMES:
        config, model, _ = make(name, *MODELS[name])
        model = model.double()
        model.generation_config = transformers.GenerationConfig(decoder_start_token_id=config.decoder_start_token_id)
        for tries in cases(name, model):
            found = None
            for case in tries:
                results, margins = beams.search(model, case, inputs_of(config.pad_token_id))
                if margins.wide():
                    found = beams.line(case, results)
                    break
            lines += [found] if found else []
            left_out += found is None
            print(f"\r{len(lines)} cases, {left_out} left out", end="", flush=True)
    head = json.dumps({"transformers": beams.TRANSFORMERS, "torch": torch.__version__})[1:-1]
    path.write_text("{" + head + ',"cases":[\n' + ",\n".join(lines) + "\n]}\n")
    print(f"; {path.name} has {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
