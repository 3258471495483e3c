#!/usr/bin/env python3
"""Write what transformers' generate makes of words with a small trained BART that turns spelling into phonemes.

    bart_g2p.json   for 137 words of the dictionary beside the model: what the encoder reads, the phonemes of the dictionary as tokens,
                    and the tokens of greedy search and of the best of 4 beams (behind the decoder's first token)

Usage: make_bart_g2p_cases.py FOLDER, with us_bart.safetensors, us_bart_config.json and us_gold.json.
The pinned packages are transformers 4.57.1 and torch 2.6.0.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import BartConfig, BartForConditionalGeneration

EVERY = 661  # words of the dictionary: 137, of which the model says 95 as it does
BEGIN, END, UNKNOWN = 1, 2, 3


def main(folder):
    config = json.loads((folder / "us_bart_config.json").read_text())
    letters, phonemes = config["grapheme_chars"], config["phoneme_chars"]
    model = BartForConditionalGeneration(BartConfig(**config))
    model.load_state_dict(load_file(folder / "us_bart.safetensors"), strict=False)
    model.tie_weights()
    model.eval()
    words = json.loads((folder / "us_gold.json").read_text())
    words = {word: text if isinstance(text, str) else text["DEFAULT"] for word, text in words.items()}
    lines, right = [], 0
    for word in list(words)[::EVERY]:
        source = [BEGIN] + [letters.index(letter) if letter in letters else UNKNOWN for letter in word] + [END]
        found = {}
        for beams in (1, 4):
            with torch.no_grad():
                ids = model.generate(input_ids=torch.tensor([source]), num_beams=beams, do_sample=False, max_length=60)[0].tolist()
            ids = ids[1:]
            found[beams] = ids[:ids.index(END) + 1]
        spoken = [phonemes.index(sound) if sound in phonemes else UNKNOWN for sound in words[word]]
        right += [i for i in found[1] if i > UNKNOWN] == spoken
        lines.append(json.dumps({"word": word, "source": source, "spoken": spoken, "greedy": found[1], "beams": found[4]}))
    out = Path(__file__).parent / "bart_g2p.json"
    out.write_text("[" + ",\n".join(lines) + "]\n")
    print(f"{len(lines)} words, {right} as in the dictionary")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
