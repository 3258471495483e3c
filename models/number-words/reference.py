#!/usr/bin/env python3
"""Writes what transformers computes with the model, from weights rounded as the BF16 file holds them, for held-out sources.

    python reference.py MODEL_FOLDER OUT

    OUT/cases.jsonl   a line for each source: the text and its ids, the tokens given to the decoder, and for 1, 3 and 5 beams the texts
                      that generate() finds, as ids behind the decoder's first, with their scores where there are several
    OUT/logits.npy    float32 logits of all those tokens, [tokens of all cases][vocab]
"""
import json
import pathlib
import sys

import numpy as np
import torch
from transformers import GenerationConfig, T5ForConditionalGeneration, T5Tokenizer

import pairs

EOS = 1
SOURCES = 8  # of each task
# Also one with letters in place of a word, and one in capitals.
OTHERS = ["digits: THREE Hundred and forty-two", "words: 7", "digits: eleven elephants"]


def search(model, ids, beams):
    settings = GenerationConfig(max_length=40, num_beams=beams, num_return_sequences=beams, do_sample=False, eos_token_id=EOS,
                                pad_token_id=0, decoder_start_token_id=0, return_dict_in_generate=True, output_scores=True)
    out = model.generate(input_ids=ids, generation_config=settings)
    texts = [row[1:row.index(EOS) + 1] if EOS in row else row[1:] for row in out.sequences.tolist()]
    return {"beams": beams, "texts": texts, "scores": out.sequences_scores.tolist() if beams > 1 else []}


@torch.no_grad()
def main():
    folder, out = map(pathlib.Path, sys.argv[1:])
    torch.set_num_threads(1)
    tokenizer = T5Tokenizer.from_pretrained(folder, legacy=False)
    model = T5ForConditionalGeneration.from_pretrained(folder, torch_dtype=torch.float32).eval()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "relative_attention_bias" not in name:
            parameter.copy_(parameter.to(torch.bfloat16))
    out.mkdir(parents=True, exist_ok=True)
    lines, logits = [], []
    for source in [source for task in pairs.TASKS for source, _ in pairs.held_out(task, SOURCES)] + OTHERS:
        ids = torch.tensor([tokenizer.sp_model.encode(source) + [EOS]])
        searches = [search(model, ids, beams) for beams in (1, 3, 5)]
        given = [0, *searches[0]["texts"][0][:-1]]
        logits.append(model(input_ids=ids, decoder_input_ids=torch.tensor([given])).logits[0].numpy())
        lines.append(json.dumps({"source": source, "ids": ids[0].tolist(), "tokens": given, "searches": searches}))
    (out / "cases.jsonl").write_text("\n".join(lines) + "\n")
    np.save(out / "logits.npy", np.concatenate(logits))


if __name__ == "__main__":
    main()
