#!/usr/bin/env python3
"""Writes the reference that kvant's tests compare with: what transformers computes from the trained weights.

    python reference.py work/run/best work/data reference

Writes reference/tokens.txt (ids of a held-out passage of many windows, separated by commas), reference/rows.txt (positions) and
reference/logits.npy (float32 logits at these positions, [rows][vocabulary]). The weights are rounded to bfloat16 first, as in
shakespeare-bf16.gguf; the arithmetic is float32.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from transformers import AutoTokenizer, Gemma3ForCausalLM

TOKENS = 640
ROWS = [0, 1, 31, 62, 63, 64, 65, 127, 128, 200, 319, 320, 450, 511, 600, 639]


def main():
    folder, data, out = map(pathlib.Path, sys.argv[1:4])
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = Gemma3ForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(parameter.to(torch.bfloat16))
    text = "".join(json.loads((data / "heldout.json").read_text())[3:6])
    ids = tokenizer(text).input_ids[:TOKENS]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    (out / "tokens.txt").write_text(",".join(map(str, ids)) + "\n")
    (out / "rows.txt").write_text(",".join(map(str, ROWS)) + "\n")
    np.save(out / "logits.npy", logits[ROWS].numpy())


if __name__ == "__main__":
    main()
