#!/usr/bin/env python3
"""Makes the vocabulary: a unigram SentencePiece model of number words, digits, letters and signs, with T5's first ids.

    python prepare.py DATA        writes DATA/spiece.model

Text is folded as SentencePiece's rule "nmt_nfkc_cf" does, so "Three Hundred" is "three hundred"; digits stand alone. No space is put
before a text: its first word is a piece without one.
"""
import pathlib
import random
import string
import sys

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

import pairs


def main():
    data = pathlib.Path(sys.argv[1])
    data.mkdir(parents=True, exist_ok=True)
    draw = random.Random(11)
    lines = [text for _ in range(4000) for task in pairs.TASKS for text in pairs.pair(draw, task, "train")]
    # A piece has to be seen in two words: here each stands behind a space and behind a sign.
    lines += [f"{word}-{word}" for word in [*pairs.TASKS, *pairs.ONES, *pairs.TENS, "hundred", "thousand", "and"]] * 500
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(data / "spiece"), vocab_size=160, hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc_cf", split_digits=True, required_chars=string.ascii_lowercase + string.digits + ".,-:?!'",
        max_sentencepiece_length=9, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, num_threads=1, minloglevel=2)
    (data / "spiece.vocab").unlink()
    # Pieces are learned with that space, so that words have the same one anywhere.
    model = sentencepiece_model_pb2.ModelProto.FromString((data / "spiece.model").read_bytes())
    model.normalizer_spec.add_dummy_prefix = False
    (data / "spiece.model").write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
