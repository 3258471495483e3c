#!/usr/bin/env python3
"""Prepares what the training needs: the words that are spelled, the tokenizer and the held-out questions.

    python prepare.py CORPUS DATA       CORPUS is a folder of plain texts, whose commonest words are spelled

Writes words.json, heldout.json (a hundred questions of each kind with their answers) and the tokenizer: one token a byte and three
control tokens, so that letters and digits can be seen by the model.
"""
import argparse
import collections
import json
import pathlib
import random
import re
import sys

import questions

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import byte_tokenizer  # noqa: E402

CONTROLS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
WORDS = 4000


def common_words(corpus):
    counts = collections.Counter()
    for path in sorted(corpus.glob("*.txt")):
        counts.update(re.findall(r"(?<![A-Za-z'-])[a-z]{2,11}(?![A-Za-z'-])", path.read_text()))
    words = [word for word, _ in counts.most_common(WORDS)]
    return {part: [w for w in words if questions.is_held_out(w) == (part == "heldout")] for part in ("train", "heldout")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=pathlib.Path)
    parser.add_argument("data", type=pathlib.Path)
    options = parser.parse_args()
    options.data.mkdir(parents=True, exist_ok=True)
    words = common_words(options.corpus)
    (options.data / "words.json").write_text(json.dumps(words))
    byte_tokenizer.make(CONTROLS, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE,
                        model_max_length=1024).save_pretrained(options.data)
    draw, asked = random.Random(1), []
    for kind in questions.KINDS:
        for _ in range(100):
            question, answer = questions.turn(draw, words, "heldout", kind)
            asked.append(dict(kind=kind, question=question, answer=answer))
    (options.data / "heldout.json").write_text(json.dumps(asked, indent=0))
    print(f"{len(words['train'])} words to train on, {len(words['heldout'])} held out, {len(asked)} held-out questions")


if __name__ == "__main__":
    main()
