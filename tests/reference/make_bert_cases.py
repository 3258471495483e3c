#!/usr/bin/env python3
"""Writes which characters BERT drops or cuts out, and cases that show it for the uncased tokenizer and for others.

The oracle is BertNormalizer and BertPreTokenizer of Hugging Face's tokenizers (0.23.3), the fast tokenizer. Its
character classes are those of Unicode 8, whatever later versions say, so they are asked for and written down:

    python make_bert_cases.py

writes engine/tokenizer/bert_characters.inl and tests/reference/bert_cases.json, with a list of cases for each way of normalizing:
"uncased" lowers and strips accents, "cased" does neither, "lower" and "strip" do one of both.
"""

import json
import pathlib
import random
import unicodedata

from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
CJK = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
       (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0x2F800, 0x2FA1F)]

WAYS = {"uncased": (True, None), "cased": (False, None), "lower": (True, False), "strip": (False, True)}
NORMALIZERS = {way: BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=strip, lowercase=lower)
               for way, (lower, strip) in WAYS.items()}
pre_tokenizer = BertPreTokenizer()


def words(text, way="uncased"):
    return [word for word, _ in pre_tokenizer.pre_tokenize_str(NORMALIZERS[way].normalize_str(text))]


def characters():
    return [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(chosen):
    found = []
    for c in map(ord, chosen):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def is_cjk(c):
    return any(first <= ord(c) <= last for first, last in CJK)


def table(name, found):
    lines, line = [], "   "
    for first, last in found:
        entry = f" {{0x{first:04X}, 0x{last:04X}}},"
        if len(line) + len(entry) > 100:
            lines.append(line)
            line = "   "
        line += entry
    return "\n".join([f"constexpr CharacterRange {name}[] = {{", *lines, line, "};", ""])


def main():
    # A character alone between letters: nothing is left of it, or it becomes a word of its own. One that decomposes is
    # never asked for, because texts are decomposed first.
    whole = [c for c in characters() if unicodedata.normalize("NFD", c) == c]
    dropped = ranges(c for c in whole if words(f"a{c}b") == ["ab"])
    cut_out = ranges(c for c in whole if not is_cjk(c) and len(words(f"a{c}b")) == 3)
    # Where accents stay, marks do, and texts are not decomposed.
    control = ranges(c for c in characters() if words(f"a{c}b", "cased") == ["ab"])
    composed = ranges(c for c in characters() if unicodedata.normalize("NFD", c) != c and not is_cjk(c)
                      and len(words(f"a{c}b", "cased")) == 3)
    (ROOT / "engine/tokenizer/bert_characters.inl").write_text(
        "// The tables of bert_characters.cpp, written by tests/reference/make_bert_cases.py.\n"
        "// clang-format off\n" + table("kDropped", dropped) + "\n" + table("kCutOut", cut_out) + "\n"
        + table("kDroppedWithAccents", control) + "\n" + table("kComposedCutOut", composed) + "// clang-format on\n")

    # Each range with its neighbours, and texts of everything.
    edges = sorted({c for first, last in dropped + cut_out + control + composed for c in (first - 1, first, last, last + 1)
                    if 0 < c < 0x110000 and not 0xD800 <= c < 0xE000})
    edge_words = [f"a{chr(c)}b" for c in edges]
    chosen = [" ".join(edge_words[i : i + 16]) for i in range(0, len(edge_words), 16)]
    generator = random.Random(1)
    # Lower case of characters that came later than Python's tables depends on the version of Unicode.
    everything = [c for c in characters() if unicodedata.category(c) != "Cn"]
    for _ in range(200):
        chosen.append("".join(generator.choice([generator.choice(everything[1:0x3000]), chr(generator.choice(edges)), "e",
                                                 "\u0301", " ", "Z"]) for _ in range(12)))
    chosen += ["ÀÉÎ İstanbul ΟΔΟΣ ǅungla Straße", "Tôi đang học tiếng Việt.", "Ἀθῆναι \u1fef \u037e \u2126", "東京Tower 한국어 ｶﾞ",
               "नमस्ते दुनिया", "مَرْحَبًا", "\ufb01 \u212b \U0001d400"]
    lists = {way: [[text, words(text, way)] for text in (chosen if way == "uncased" else chosen[::3] + chosen[-7:])] for way in WAYS}
    parts = [f'"{way}":[\n' + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]"
             for way, cases in lists.items()]
    (ROOT / "tests/reference/bert_cases.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


main()
