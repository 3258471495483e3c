#!/usr/bin/env python3
"""Train small unigram models with SentencePiece and write how it encodes and decodes texts with them.

    texts.json     {"texts": [...], "bytes": [...]}: texts, and in hexadecimal such as are no UTF-8
    NAME.model     SentencePiece's file of a model
    NAME.json      {"ids": [[...], ...], "decoded": ["...", ...], "bytes": [[...], ...]}
    order.json     what Hugging Face's MBartTokenizer makes of nfkc.model and the texts: {"ids": [[...], ...]}

The models differ in the rules of normalization, in what is done to spaces, in pieces of the user, bytes and unused
pieces; the scores of "ties" are such that rounding decides. Decoded texts have nothing for an unknown token. Tables of
rules hold those for the characters of the texts and some others, as the whole one has 240 KB; with --all-rules they
hold all.

Usage: make_unigram_cases.py [--all-rules] TEXT OUTPUT_FOLDER     (TEXT: some English, such as Shakespeare's;
needs sentencepiece==0.2.3, protobuf and transformers==4.57.1)
"""

import io
import json
import random
import struct
import sys
import tempfile
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from transformers import MBartTokenizer

SENTENCES = [
    "Der Fuchs springt über den Hund, und der Hund schläft weiter auf der anderen Straßenseite.",
    "Les élèves étaient là, près de la forêt, où l'été était déjà à sa fin.",
    "日本語の文章です。東京は日本の首都です。", "한국어 문장입니다.", "这是一个中文句子。", "Это предложение на русском.",
    "Numbers such as 10, 100, 1000 and 3.14159; 2024 and 2025 are years.", "for (int i = 0; i < 10; ++i) { total += v[i]; }",
]
LANGUAGES = 25  # of MBartTokenizer
POOLS = [
    list("abcdefghijklmnopqrstuvwxyz        .,;!?'"),
    ["the ", " king", "And ", "shall", " lord,", "ing", " speak ", "est", " un", "known", "ly ", "THE", "First Citizen:"],
    ["  ", "   ", " ", "\t", "\n", "\r\n", "\u00a0", "\u3000", "\u2003", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u0085"],
    list("éèüßøŁſıİ") + ["e\u0301", "o\u0308", "a\u030a\u0323", "\u0301", "\u0344", "n\u0303o", "\u1e9b\u0323"],
    list("ﬁﬂﬃ½²³①㈱㌔™…№Ⅷﷺ‼") + ["ＡＢＣ", "ｆｕｌｌ", "！", "～", "〜", "ｶﾞ", "ｶ", "ﾟ", "가", "\u1112\u1161\u11ab"],
    list("日本語東京中文句子한국어русский") + ["😀", "👩\u200d👩\u200d👧", "🏳\ufe0f", "𝒜", "\U0010ffff", "\ufffd", "\u2028"],
    ["<sep>", "<sep><sep>", "[NAME]", "[NA", "▁", "▁▁", "x▁y", "<unk>", "<s>", "</s>", "<pad>", "<ctl>", "<0x41>", "<se", "\0", "\x1f", "\x7f"],
]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x96", b"\xf0\x9f\x98", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xe2\x28\xa1"]
USER_DEFINED = ["<sep>", "[NAME]", "ＡＢＣ", "ﬁ", "  ", "▁▁", "ing", "a b", "é", "[NAME][NAME]", "n\u0303"]


def make_texts():
    generator = random.Random(20)
    texts = ["", " ", "  ", "\t", "\u200b", "▁", " ▁ ", "a", " a", "a ", "  a  b  ", "ﬁ", "\u3000\u3000", "\0", *SENTENCES]
    for i in range(220):
        pools = generator.sample(POOLS, generator.randint(1, 4))
        length = generator.randint(1, 12 if i % 8 else 60)
        texts.append("".join(generator.choice(generator.choice(pools)) for _ in range(length)))
    broken = list(BROKEN)
    for _ in range(30):
        parts = [generator.choice(generator.choice(POOLS)).encode() for _ in range(6)]
        parts.insert(generator.randint(0, 6), generator.choice(BROKEN))
        parts.insert(generator.randint(0, 6), generator.choice(BROKEN))
        broken.append(b"".join(parts))
    return texts, broken


def rules_of(name):
    """The rules of a table that SentencePiece has built in: {key: replacement}, in bytes."""
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c"]), model_writer=writer, vocab_size=7, normalization_rule_name=name, minloglevel=2
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(writer.getvalue())
    table = model.normalizer_spec.precompiled_charsmap
    size = struct.unpack_from("<I", table)[0]
    units = struct.unpack_from(f"<{size // 4}I", table, 4)
    replacements = table[4 + size :]
    rules = {}

    def visit(node, key):
        unit = units[node]
        base = node ^ ((unit >> 10) << ((unit >> 6) & 8))
        if unit & 0x100:
            begin = units[base] & 0x7FFFFFFF
            rules[key] = replacements[begin : replacements.index(b"\0", begin)]
        for byte in range(1, 256):
            if units[base ^ byte] & 0x800000FF == byte:
                visit(base ^ byte, key + bytes([byte]))

    visit(0, b"")
    return rules


def write_rules(path, name, texts, all_rules):
    rules = rules_of(name)
    generator = random.Random(1)
    used = set("".join(texts))
    with open(path, "w", encoding="ascii") as file:
        for key, replacement in sorted(rules.items()):
            characters = key.decode()
            if not (all_rules or used.issuperset(characters) or generator.random() < 0.001):
                continue
            line = [" ".join(f"{ord(c):X}" for c in text) for text in (characters, replacement.decode())]
            file.write("\t".join(line) + "\n")


def with_ties(model):
    """Scores of which sums are equal, or so nearly that it depends on how they are rounded; some pieces are unused."""
    generator = random.Random(3)
    for piece in model.pieces:
        if piece.type != piece.NORMAL:
            continue
        piece.score = -len(piece.piece) * 1000.0 - generator.choice([0, 0, 0, 1e-3, 7e-4, -7e-4])
        if len(piece.piece) > 1 and generator.random() < 0.1 or piece.piece == "q":
            piece.type = piece.UNUSED


def train(lines, change=None, **options):
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=writer, model_type="unigram", num_threads=1, minloglevel=2, **options
    )
    model = sentencepiece_model_pb2.ModelProto.FromString(writer.getvalue())
    model.trainer_spec.ClearField("input")
    if change:
        change(model)
    return model.SerializeToString()


def write_json(path, value):
    with open(path, "w", encoding="ascii") as file:
        json.dump(value, file, separators=(",", ":"))
        file.write("\n")


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--all-rules"]
    all_rules = len(arguments) < len(sys.argv) - 1
    lines = [line for line in Path(arguments[0]).read_text(encoding="utf-8").splitlines() if line.strip()][:3000]
    lines += SENTENCES * 3
    out = Path(arguments[1])
    out.mkdir(parents=True, exist_ok=True)
    texts, broken = make_texts()
    write_json(out / "texts.json", {"texts": texts, "bytes": [text.hex() for text in broken]})
    t5_ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    with tempfile.TemporaryDirectory() as folder:
        tables = {}
        for name in ("nmt_nfkc", "nmt_nfkc_cf"):
            tables[name] = f"{folder}/{name}.tsv"
            write_rules(tables[name], name, texts, all_rules)
        models = {
            "nfkc": train(lines, vocab_size=500, normalization_rule_tsv=tables["nmt_nfkc"]),
            "nfkc_cf": train(lines, vocab_size=600, normalization_rule_tsv=tables["nmt_nfkc_cf"], **t5_ids,
                             user_defined_symbols=USER_DEFINED, control_symbols=["<ctl>"]),
            "identity": train(lines, vocab_size=500, normalization_rule_name="identity", **t5_ids,
                              user_defined_symbols=USER_DEFINED, add_dummy_prefix=False, remove_extra_whitespaces=False),
            "spaces": train(lines, vocab_size=500, normalization_rule_tsv=tables["nmt_nfkc"], **t5_ids,
                            user_defined_symbols=USER_DEFINED, remove_extra_whitespaces=False),
            "bytes": train(lines, vocab_size=700, normalization_rule_tsv=tables["nmt_nfkc"], **t5_ids,
                           byte_fallback=True, character_coverage=0.99),
            "ties": train(lines, vocab_size=600, change=with_ties, normalization_rule_name="identity", **t5_ids,
                          user_defined_symbols=USER_DEFINED, add_dummy_prefix=False),
        }
    for name, model in models.items():
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        ids = [processor.encode(text) for text in texts]
        decoded = [processor.decode(line).replace(" \u2047 ", "") for line in ids]
        (out / f"{name}.model").write_bytes(model)
        write_json(out / f"{name}.json", {"ids": ids, "decoded": decoded, "bytes": [processor.encode(text) for text in broken]})
    # The slow tokenizer of the library cuts its own tokens out of a text and strips it, so it gets plain texts only.
    mbart = MBartTokenizer(str(out / "nfkc.model"))
    plain = [text for text in texts if "<" not in text and text == text.strip()]
    ids = [mbart.encode(text, add_special_tokens=False) for text in plain]
    names = mbart.convert_ids_to_tokens(range(len(mbart)))
    write_json(out / "order.json", {"texts": plain, "ids": ids, "tokens": names[:8], "last": names[-LANGUAGES - 3 :]})


if __name__ == "__main__":
    main()
