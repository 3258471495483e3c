#!/usr/bin/env python3
"""Write how Hugging Face's `tokenizers` encodes texts with small vocabularies of characters.

"gemma4" is BPE over characters with spaces as U+2581, byte pieces, and lines apart; "unigram" is
SentencePiece's unigram model. Both are trained here on a few sentences. The output is JSON:

    {"texts": [...], "gemma4": {"tokens": [...], "merges": [...], "ids": [[...], ...]},
     "unigram": {"tokens": [...], "scores": [...], "plain": [[...], ...], "prefix": ..., "merged": ...}}

Usage: make_character_tokenizer_cases.py OUTPUT.json     (needs tokenizers==0.23.3, numpy)
"""

import json
import random
import sys

import numpy
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on the other side of the road.",
    "She sells sea shells by the sea shore; the shells she sells are sea shells for sure.",
    "Der Fuchs springt über den Hund, und der Hund schläft weiter auf der anderen Straßenseite.",
    "Les élèves étaient là, près de la forêt, où l'été était déjà à sa fin.",
    "Numbers such as 10, 100, 1000 and 3.14159 are numbers; 2024 and 2025 are years.",
    "for (int i = 0; i < 10; ++i) { total += values[i]; }",
]
POOLS = [
    list("abcdefghijklmnopqrstuvwxyz     \n\n.,;"),
    ["the ", " dog", "shells", " sea", "über", "élève", " numbers", "10", "\n", "\n\n", "\n\n\n", "  ", "   "],
    list("日本語한국어العربية😀🚀ſŁ\u0301\u00a0\t\r"),
    list("0123456789<>_0x[](){}"),
]


def make_texts():
    generator = random.Random(7)
    texts = ["", " ", "\n", "Hello", " the dogs  of the sea \n\n\nover there ", *SENTENCES]
    for _ in range(80):
        pools = generator.sample(POOLS, generator.randint(1, 3))
        texts.append(
            "".join(generator.choice(generator.choice(pools)) for _ in range(generator.randint(2, 20)))
        )
    return texts


def gemma4(texts):
    special = ["<pad>", "<eos>", "<bos>", "<unk>"]
    spaces = normalizers.Replace(" ", "\u2581")
    lines = pre_tokenizers.Split(Regex(r"[^\n]+|[\n]+"), behavior="isolated")
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = spaces
    trained.pre_tokenizer = lines
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=520, special_tokens=special + bytes_, show_progress=False)
    trained.train_from_iterator(SENTENCES, trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(merge) for merge in model["merges"]]
    tokens += ["\n", "\n\n"]
    merges.append(("\n", "\n"))
    tokenizer = Tokenizer(
        models.BPE({token: i for i, token in enumerate(tokens)}, merges, unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.normalizer = spaces
    tokenizer.pre_tokenizer = lines
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return {"tokens": tokens, "merges": [" ".join(merge) for merge in merges], "ids": ids}


def unigram(texts):
    trained = Tokenizer(models.Unigram())
    trained.normalizer = normalizers.Sequence([normalizers.Replace(" ", "\u2581"), normalizers.Prepend("\u2581")])
    trainer = trainers.UnigramTrainer(
        vocab_size=180, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    trained.train_from_iterator(SENTENCES, trainer)
    vocabulary = [
        (token, float(numpy.float32(round(score, 4)))) for token, score in json.loads(trained.to_str())["model"]["vocab"]
    ]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=2))
    spaces, prefix = normalizers.Replace(" ", "\u2581"), normalizers.Prepend("\u2581")
    kinds = {
        "plain": normalizers.Sequence([spaces]),
        "prefix": normalizers.Sequence([spaces, prefix]),
        "merged": normalizers.Sequence(
            [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " "), spaces, prefix]
        ),
    }
    out = {"tokens": [token for token, _ in vocabulary], "scores": [score for _, score in vocabulary]}
    for name, normalizer in kinds.items():
        tokenizer.normalizer = normalizer
        out[name] = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    return out


def main():
    texts = make_texts()
    cases = {"texts": texts, "gemma4": gemma4(texts), "unigram": unigram(texts)}
    with open(sys.argv[1], "w", encoding="ascii") as file:
        json.dump(cases, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
