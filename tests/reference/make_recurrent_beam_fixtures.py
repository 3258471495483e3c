#!/usr/bin/env python3
"""Write what Hugging Face transformers finds by beam search in models with recurrent layers, those of tests/reference/seeded.

    beam_search/recurrent.json   options, prompts and hypotheses, as cases.json of make_beam_fixtures.py, which searches

Every step computes all texts from their first token, without a cache, so that no state of transformers is part of the result.

Usage: make_recurrent_beam_fixtures.py [OUTPUT_FILE]
Needs transformers 4.57.1 and torch 2.6.0.
"""
import itertools
import json
import sys
from pathlib import Path

import torch
import transformers

import make_beam_fixtures as beams
import make_seeded_models as seeded

MODELS = ("lfm2", "mamba2", "qwen3next")
EVERY = 4  # of the grid's cases


def load(name):
    described = json.loads((seeded.FOLDER / f"{name}.json").read_text())
    model_class = getattr(transformers, described["config"]["architectures"][0])
    config = model_class.config_class(**described["config"], attn_implementation="eager")
    model = model_class(config).float().eval()
    weights = {row["name"]: torch.from_numpy(seeded.seeded(row["name"], row["shape"], row["mean"], row["spread"])) for row in described["tensors"]}
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(weights[key])
    model.tie_weights()
    model.generation_config.use_cache = False
    return model


def main():
    assert transformers.__version__ == beams.TRANSFORMERS, transformers.__version__
    beams.VOCAB = seeded.VOCAB
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "beam_search" / "recurrent.json"
    lines, left_out = [], 0
    for parity, name in enumerate(MODELS):
        model = load(name)
        for case in itertools.islice(beams.grid(name, parity), parity, None, EVERY):
            case["prompts"] = case["prompts"][:1]
            case["max_new_tokens"] = min(case["max_new_tokens"], 24)
            results, margins = (beams.group_search if case["groups"] > 1 else beams.search)(model, case)
            if margins.wide():
                lines.append(beams.line(case, results))
            else:
                left_out += 1
            print(f"\r{len(lines)} cases, {left_out} left out", end="", flush=True)
    head = json.dumps({"transformers": beams.TRANSFORMERS, "torch": torch.__version__})[1:-1]
    path.write_text("{" + head + ',"cases":[\n' + ",\n".join(lines) + "\n]}\n")
    print(f"; {path.name} has {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
