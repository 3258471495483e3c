#!/usr/bin/env python3
"""Write how Hugging Face's `tokenizers` cuts texts into words, for every pre-tokenizer of kvant.

The steps below are the "normalizer" and "pre_tokenizer" entries of the models' published
tokenizer.json files, run by the library that these files are made for. The output is JSON:

    {"texts": [...], "words": {"gpt-2": [[word lengths in code points of texts[0]], ...], ...}}

Lengths count code points of the text after normalization (NFC where the model has it).

Usage: make_pre_tokenizer_cases.py OUTPUT.json     (needs tokenizers==0.23.3)
"""

import json
import random
import sys
import unicodedata

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = r"[^\r\n\p{L}\p{N}]?"
# The ranges of DeepSeek LLM's tokenizer.json.
DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293"
    "\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c"
    "\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59"
    "\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def isolate(pattern):
    return Split(Regex(pattern), behavior="isolated")


def byte_level(use_regex=True):
    return ByteLevel(add_prefix_space=False, use_regex=use_regex)


def gpt2():
    return byte_level()


def digits():
    return Sequence([Digits(individual_digits=True), byte_level()])


def falcon():
    return Sequence(
        [Punctuation(behavior="contiguous"), byte_level(), isolate("[0-9][0-9][0-9]")]
    )


def llama3():
    words = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    return Sequence([isolate(rf"{words}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"), byte_level(False)])


def qwen2():
    words = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    return Sequence([isolate(rf"{words}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{SPACES}"), byte_level(False)])


def tekken():
    words = rf"{CASED}{UPPER}*{LOWER}+|{CASED}{UPPER}+{LOWER}*|\p{{N}}"
    return Sequence([isolate(rf"{words}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"), byte_level(False)])


def gpt4o():
    words = rf"{CASED}{UPPER}*{LOWER}+{CONTRACTIONS}?|{CASED}{UPPER}+{LOWER}*{CONTRACTIONS}?|\p{{N}}{{1,3}}"
    return Sequence([isolate(rf"{words}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"), byte_level(False)])


def deepseek_coder():
    steps = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK]
    return Sequence([*map(isolate, steps), Digits(individual_digits=True), byte_level(False)])


def deepseek_llm():
    steps = [
        r"[\r\n]",
        rf"\s?[{DEEPSEEK_LETTERS}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        DEEPSEEK_CJK,
    ]
    return Sequence([*map(isolate, steps), Digits(individual_digits=True), byte_level(False)])


def deepseek_v3():
    punctuation = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    words = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    steps = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", rf"{punctuation}|{words}|{SPACES}"]
    return Sequence([*map(isolate, steps), byte_level(False)])


def one(pattern):
    """A step that isolates one expression, as most models have it."""
    return lambda: Sequence([isolate(pattern), byte_level(False)])


def several(*patterns):
    return lambda: Sequence([*map(isolate, patterns), byte_level(False)])


WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
PUNCTUATION = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
QWEN2 = rf"{CONTRACTIONS}|{WORDS}|\p{{N}}|{PUNCTUATION}|{SPACES}"
O200K = rf"{CASED}{UPPER}*{LOWER}+{CONTRACTIONS}?|{CASED}{UPPER}+{LOWER}*{CONTRACTIONS}?"
GPT4O = rf"{O200K}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"
NO_HAN_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
NO_HAN_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = (
    rf"[\p{{Han}}]+|{CASED}{NO_HAN_UPPER}*{NO_HAN_LOWER}+{CONTRACTIONS}?|"
    rf"{CASED}{NO_HAN_UPPER}+{NO_HAN_LOWER}*{CONTRACTIONS}?|\p{{N}}{{1,3}}|{PUNCTUATION}|{SPACES}"
)
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
TRAILING = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"
DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}"
)
AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"
    "\u1100-\u11ff]+"
)
YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
    "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)

STEPS = {
    "gpt-2": gpt2,
    "phi-2": gpt2,
    "mpt": gpt2,
    "starcoder": digits,
    "refact": digits,
    "smollm": digits,
    "command-r": digits,
    "falcon": falcon,
    "llama-bpe": llama3,
    "dbrx": llama3,
    "qwen2": qwen2,
    "tekken": tekken,
    "gpt-4o": gpt4o,
    "deepseek-coder": deepseek_coder,
    "deepseek-llm": deepseek_llm,
    "deepseek-v3": deepseek_v3,
    "glm4": llama3,
    "minicpm5": several(r"\p{N}{1,3}", rf"{CONTRACTIONS}|{WORDS}|\p{{N}}+|{PUNCTUATION}|{SPACES}"),
    "jais-2": one(rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1,3}}|{PUNCTUATION}|\s*[\r\n]+|{TRAILING}"),
    "k2-horizon": one(
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}|\p{{M}}|\u200c|\u200d)+|\p{{N}}{{1,3}}|{PUNCTUATION}|{SPACES}"
    ),
    "qwen35": one(
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{SPACES}"
    ),
    "ufakzeka": one(rf"{WORDS}|\p{{N}}|{PUNCTUATION}|{SPACES}"),
    "laguna": several(r"[^\n]+|[\n]+", QWEN2),
    "seed-coder": one(rf"{CONTRACTIONS}|{WORDS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{SPACES}"),
    "bailingmoe": one(
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
    "exaone-moe": one(
        rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    ),
    "tiny_aya": several(r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O),
    "kimi-k2": one(KIMI),
    "youtu": several(YOUTU_SCRIPTS, rf"{O200K}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACES}"),
    "afmoe": several(r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))", AFMOE_SCRIPTS, DEEPSEEK_V3),
    "bloom": one(BLOOM),
    "viking": several(BLOOM, r"\p{N}"),
    "superbpe": several(r"\p{N}+", r"(?=(\d{3})+(?!\d))"),
    "gemma4": several(r"[^\n]+|[\n]+"),
    "whitespace": several(r"\S+"),
    "chameleon": several(
        r"<sentinel:[0-9]+>", r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    ),
}
NFC = {"qwen2", "qwen35", "mpt", "command-r"}

# What random texts are drawn from, a few at a time. All are older than Unicode 9.
POOLS = [
    list("abcXYZ  \n\t\r'\"!?.,-_=$+<>^`|~/0123456789"),
    ["'s", "'S", "'T", "'re", "'LL", "'Ve", "'d", "'\u017f", " ", "I", "we"],
    list("éàñçöüßæøåŁŞİıſK"),
    list("我想在日本語カナひら한국어中文々〇、。「」～"),
    list("нещоБългарскиЯЖ Ωλσς"),
    list("កាន់តែពិសេសहिन्दीनमस्ते"),
    list("العربية٣٤٥ עברית"),
    list("😀🚀😶\u200d🌫\ufe0f✅"),
    [chr(c) for c in (0x1680, 0x180E, 0x2000, 0x2003, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)],
    [chr(c) for c in (0x85, 0xA0, 0x200B, 0x200D, 0xFEFF, 0xAD, 0x0B, 0x0C, 0x1C, 0x1F)],
    list("½²³ⅷ①Ⅳ৪"),
    [chr(c) for c in range(0x300, 0x318)] + list("aeoAEO"),
    list("ǅǈʰªºƻʔⒶ𝐀𐐀𐐨"),
    [" ", "  ", "    ", "\n", "\n\n", "\r\n", "\t"],
]


def make_texts():
    texts = [
        "",
        " ",
        "Hello, y'all! I'VE 12345 apples, it'S 3.14159 (isn't it?)\n\n  indented\r\n\tend  ",
        "HelloWorld camelCase HTTPServer ÉcoleÉLAN n'est-ce pas",
        "for (int i = 0; i < 1000000; ++i) { a[i] += 'x'; }  // don't\n",
        "1234567 12 1234a 12345_ 123456. x1234567 12345678901\u00bd 1\u0664\u0665\u0666 ab123",
        "<sentinel:42>IMGIMGABCZ IMGIMGZ  a    b\t c\n\nd of  two   words",
        "e\u0301te\u0301 \u1100\u1161\u11a8 \u212b \u0344 q\u0323\u0307 q\u0307\u0323",
    ]
    generator = random.Random(20240521)
    for _ in range(150):
        pools = generator.sample(POOLS, generator.randint(1, 4))
        texts.append(
            "".join(generator.choice(generator.choice(pools)) for _ in range(generator.randint(2, 16)))
        )
    return texts


def word_lengths(name, text):
    if name in NFC:
        text = unicodedata.normalize("NFC", text)
    return [end - begin for _, (begin, end) in STEPS[name]().pre_tokenize_str(text)]


def main():
    texts = make_texts()
    words = {name: [word_lengths(name, text) for text in texts] for name in STEPS}
    with open(sys.argv[1], "w", encoding="ascii") as file:
        file.write('{\n"texts": [\n')
        file.write(",\n".join(json.dumps(text) for text in texts))
        file.write('\n],\n"words": {\n')
        rows = (
            f'"{name}": [\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in table) + "\n]"
            for name, table in words.items()
        )
        file.write(",\n".join(rows))
        file.write("\n}\n}\n")


if __name__ == "__main__":
    main()
