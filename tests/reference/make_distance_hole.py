#!/usr/bin/env python3
"""Write distance_hole.json: logits of the T5 of seeded/encoder_decoders/t5-silu behind the last of some tokens, of which those in a hole are
hidden by a mask ("kept": the positions of the others stay as they are) or left out ("moved").

The decoder has one layer, so what it keeps of a token depends on no other token, whether that is hidden or not.

Usage: make_distance_hole.py [OUTPUT]
Needs transformers 4.57.1 and torch 2.6.0.
"""

import json
import sys
from pathlib import Path

import torch

from make_seeded_encoder_decoders import MODELS, make
from make_seeded_models import VOCAB

HOLE = range(10, 50)


def main() -> None:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "distance_hole.json"
    _, model, _ = make("t5-silu", *MODELS["t5-silu"])
    generator = torch.Generator().manual_seed(9)
    source = torch.randint(3, VOCAB, (1, 20), generator=generator)
    tokens = torch.randint(3, VOCAB, (1, 60), generator=generator)
    mask = torch.ones_like(tokens)
    mask[:, HOLE] = 0
    with torch.no_grad():
        kept = model(input_ids=source, decoder_input_ids=tokens, decoder_attention_mask=mask, use_cache=False).logits[0, -1]
        moved = model(input_ids=source, decoder_input_ids=tokens[mask == 1][None], use_cache=False).logits[0, -1]
    numbers = {"source": source[0].tolist(), "tokens": tokens[0].tolist(), "hole": [HOLE.start, HOLE.stop],
               "kept": kept.tolist(), "moved": moved.tolist()}
    output.write_text("{" + ",\n".join(f'"{name}": {json.dumps(value)}' for name, value in numbers.items()) + "}\n")
    print(f"up to {kept.abs().max():.2f}, {(kept - moved).abs().max():.3f} apart")


if __name__ == "__main__":
    main()
