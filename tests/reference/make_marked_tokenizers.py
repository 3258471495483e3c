#!/usr/bin/env python3
"""Write small tokenizers whose pieces spell a space U+2581, of kinds that GGUF has no plain word for, and the fast tokenizers' ids of texts.

    marked_tokenizers/NAME.json  "files": tokenizer.json and others of the folder; "vocab_size"; "cases": texts and their ids

"merges-..." are merges over characters without pieces for bytes: cut at each space ("words") or not ("whole", which makes one unknown token
of each character), without a space in front ("plain"), and with the steps of converted SentencePiece files ("table"). "unigram-..." are
SentencePiece's other model with pieces for bytes: as converted files have it ("bytes"), with Llama's steps ("llama"), and with a table.
They are trained here, on the words of make_encoder_tokenizers.py.

Usage: make_marked_tokenizers.py [FOLDER COUNT]
With FOLDER and COUNT so many texts of each are written there in place of 80, which the test reads by KVANT_MARKED_TOKENIZERS=FOLDER.
Training is not the same each time, so the files change where they are written again.
The pinned packages are tokenizers 0.22.2 and sentencepiece 0.2.1.
"""
import io
import json
import random
import sys
import tempfile
from pathlib import Path

import sentencepiece
from make_encoder_tokenizers import RULES, corpus, random_text
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

FOLDER = Path(__file__).parent / "marked_tokenizers"
SPACE = "▁"
EDGES = ["a", " a", "  a", "a ", "a  b", "   ", " ", "▁a", "a▁b", "the<unk>of", " <unk> the", "<0x41>", "a<0x0A>b <0xE2>", "\n", "a\nb", "Ω", "ΩΩ", "aΩΩb Ω",
         "Ωthe", "😀👩‍👩‍👧", "the of\tand", "\ufeffthe", "東京 東", "of<s>the <s> of"]


def metaspace(scheme="always", split=True):
    return pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=scheme, split=split)


def with_tokens(tokenizer):
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>")])
    return tokenizer


def train_pieces(**options):
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for source, target in RULES.items():
            rules.write("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in (source, target)) + "\n")
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_writer=out, normalization_rule_tsv=rules.name,
                                                 hard_vocab_limit=False, minloglevel=2, **options)
    return sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())


def merges(scheme, split, fuse, table=False):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse))
    if table:
        precompiled = normalizers.Precompiled(train_pieces(vocab_size=420).normalizer_spec.precompiled_charsmap)
        tokenizer.normalizer = normalizers.Sequence([precompiled, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), SPACE)])
    tokenizer.pre_tokenizer = metaspace(scheme, split)
    # Some characters of the texts are in no piece.
    known = [line for line in corpus() if "東" not in line]
    tokenizer.train_from_iterator(known, trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", "<s>"], limit_alphabet=90, show_progress=False))
    return with_tokens(tokenizer)


def unigram(steps):
    proto = train_pieces(vocab_size=700, model_type="unigram", byte_fallback=True, character_coverage=0.98)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    if steps == "llama":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    else:
        tokenizer.pre_tokenizer = metaspace()
    if steps == "table":
        precompiled = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
        tokenizer.normalizer = normalizers.Sequence([precompiled, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), SPACE)])
    return with_tokens(tokenizer)


TOKENIZERS = {"merges-words": lambda: merges("always", True, True), "merges-whole": lambda: merges("always", False, False),
              "merges-plain": lambda: merges("never", True, True), "merges-table": lambda: merges("always", True, True, True),
              "unigram-bytes": lambda: unigram(""), "unigram-llama": lambda: unigram("llama"), "unigram-table": lambda: unigram("table")}


def write(folder, name, make, count):
    tokenizer = make()
    rng = random.Random(11)
    texts = EDGES + [random.Random(i).choice(("", " ", "  ")) + random_text(rng) for i in range(count - len(EDGES))]
    if name.endswith("table"):
        # Of a text of spaces these steps leave one mark, and SentencePiece nothing.
        texts = [text for text in texts if text.strip(" \t\n\u00a0\u3000\u200b\ufeff")]
    cases = [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts]
    content = {"vocab_size": tokenizer.get_vocab_size(), "files": {"tokenizer.json": json.loads(tokenizer.to_str()),
               "tokenizer_config.json": {"unk_token": "<unk>", "bos_token": "<s>"}}, "cases": cases}
    (folder / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")).replace('"cases":', '\n"cases":') + "\n")
    print(f"{name:18} {tokenizer.get_vocab_size()} tokens, {len(cases)} texts")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 2 else FOLDER
    target.mkdir(exist_ok=True)
    for name, make in TOKENIZERS.items():
        write(target, name, make, int(sys.argv[2]) if len(sys.argv) > 2 else 80)
