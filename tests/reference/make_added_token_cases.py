#!/usr/bin/env python3
"""Write what the tokenizers library makes of texts around added tokens with every combination of flags.

    added_tokens/KIND.json   {"tokenizer": content of tokenizer.json, "cases": [[text, ids], ...]}

The kinds are byte-level BPE ("bpe", and "nfc" with that normalizer), BPE with SentencePiece's spaces ("spm"), WordPiece as uncased BERT
has it, and unigram as T5 has it. Tokens are words or have brackets; for each combination of lstrip, rstrip, single_word, normalized and
special there is one. Unigram tokens are not "normalized", and its texts have no white space but spaces.

Usage: make_added_token_cases.py [OUTPUT_FOLDER]
The pinned package is tokenizers 0.22.2.
"""
import itertools
import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

CORPUS = ["the tall tree sat at the tea stall", "rest at last; the rat ate the toast, not the nut", "so it is that this one is to stand there 10 times"]
WHITE = [" ", " ", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\n\n", "\v"]
PARTS = ["the", "tea", "t", "sat", "a", "7", "_", "-", ".", ",", "\u00e9", "e\u0301", "\u65e5", "\u24b6", "\u200d", "\u0301", "A", "THE", "<t", "ok"]
PLAIN_PARTS = ["the", "tea", "t", "sat", "a", "7", "-", ".", ",", "A", "<t", "ok"]


def flags():
    return itertools.product([False, True], repeat=5)


def add_tokens(tokenizer, words, normalized=(False, True)):
    """Returns their texts."""
    texts = []
    for number, (left, right, word, normal, special) in enumerate(flags()):
        if normal not in normalized:
            continue
        text = words(number)
        texts.append(text)
        tokenizer.add_tokens([AddedToken(text, lstrip=left, rstrip=right, single_word=word, normalized=normal, special=special)])
    return texts


def words(number):
    return f"tok{chr(97 + number % 26)}{number // 26}" if number % 3 else f"<t{number}>"


def byte_level(normalizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=290, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    if normalizer:
        tokenizer.normalizer = normalizer
    texts = add_tokens(tokenizer, words)
    for text, normal in (("\n\n", False), ("x y", False), ("c\u00e9", True), ("ce\u0301d", True), ("tok", False)):
        tokenizer.add_tokens([AddedToken(text, normalized=normal)])
        texts.append(text)
    return tokenizer, texts, WHITE + PARTS


def sentencepiece():
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    spell = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    trained.normalizer = spell
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False))
    content = json.loads(trained.to_str())
    content["added_tokens"] = content["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    texts = add_tokens(tokenizer, words)
    for text, normal in (("\n\n", False), ("x y", False), ("u v", True), ("tok", False)):
        tokenizer.add_tokens([AddedToken(text, normalized=normal)])
        texts.append(text)
    return tokenizer, texts, WHITE + PARTS


def wordpiece():
    letters = sorted(set("".join(CORPUS) + "xyz<>[]_-.,0123456789\u65e5okbcdfjklmpqv") - {" "})
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters), "the", "tea", "##at", "##he"]
    tokenizer = Tokenizer(models.WordPiece({name: id for id, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    texts = add_tokens(tokenizer, lambda number: words(number).upper() if number % 5 == 0 else words(number))
    return tokenizer, texts + [text.swapcase() for text in texts[::4]], WHITE + PARTS


def unigram():
    letters = sorted(set("".join(CORPUS) + "".join(PLAIN_PARTS) + "<>0123456789tokabcdefghijklmnopqrstuvwxyz") - {" "})
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -3.0)] + [(letter, -4.0 - i / 50) for i, letter in enumerate(letters)]
    pieces += [("\u2581the", -3.5), ("\u2581t", -4.5), ("ea", -5.0), ("at", -5.1), ("\u2581s", -4.7)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "\u2581")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    texts = add_tokens(tokenizer, words, normalized=(False,))
    return tokenizer, texts, [" ", " ", " ", "  "] + PLAIN_PARTS


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "added_tokens"
    folder.mkdir(exist_ok=True)
    kinds = {"bpe": byte_level(None), "nfc": byte_level(normalizers.NFC()), "spm": sentencepiece(), "wordpiece": wordpiece(), "unigram": unigram()}
    for kind, (tokenizer, tokens, parts) in kinds.items():
        generator = random.Random(kind)
        cases = []
        for i in range(140):
            pieces = [generator.choice(tokens if generator.random() < 0.45 else parts) for _ in range(generator.randint(1, 9))]
            text = "".join(pieces)
            cases.append([text, tokenizer.encode(text, add_special_tokens=False).ids])
        content = {"tokenizer": json.loads(tokenizer.to_str()), "cases": cases}
        (folder / f"{kind}.json").write_text(json.dumps(content, separators=(",", ":"), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
