#!/usr/bin/env python3
"""Prepares the corpus and the tokenizer.

Reads a folder of plain-text plays and poems (one file each; a speech is `NAME<TAB>line`, further lines start with a tab),
drops the lists of characters, and writes one document per scene or poem in the form that the model learns:

    ACT I

    SCENE I. A desert place.

    [Thunder and lightning. Enter three Witches]

    First Witch:
    When shall we three meet again
    In thunder, lightning, or in rain?

Writes train.json and heldout.json (lists of documents), heldout.txt (the held-out documents, for `kvant perplexity`) and the
tokenizer in both forms that Hugging Face folders have: tokenizer.model (SentencePiece BPE with byte fallback) and tokenizer.json.
"""
import argparse
import json
import pathlib
import re

import sentencepiece
from transformers import GemmaTokenizerFast

HELD_OUT = ("macbeth", "twelfthnight", "kingrichardii")
VOCABULARY = 4096
HEADING = re.compile(r"^(SCENE [IVX]+|PROLOGUE|EPILOGUE|INDUCTION|CHORUS)[.:]?\s*(?:\t(.*))?$")


def letters(text):
    return re.sub(r"[^A-Z]", "", text)


def body_of(lines):
    """The lines after the list of characters: the title stands a second time above the first act."""
    title = next(line.strip() for line in lines if line.strip())
    if not any("DRAMATIS" in line for line in lines):
        return title, lines[1:], False
    again = [i for i, line in enumerate(lines) if letters(line) == letters(title)][1]
    return title, lines[again:], True


def play_documents(title, lines):
    documents, out, act, waiting_name = [], [], "", ""

    def finish():
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()
        if len(text) > 80:
            documents.append((f"{act}\n\n{text}" if act else text) + "\n")
        out.clear()

    for line in lines:
        text = line.strip()
        if letters(text) == letters(title) and text.isupper():
            continue
        if not text:
            out.append("")
            continue
        if re.fullmatch(r"ACT [IVX]+", text):
            if text != act:
                finish()
                act = text
            continue
        heading = HEADING.match(line.lstrip())
        if heading:
            finish()
            out += [heading[1] + (". " + heading[2].strip() if heading[2] else ""), ""]
            continue
        if line[0].isspace():
            out.append(re.sub(r"\s+", " ", text))
            continue
        name, tab, speech = line.partition("\t")
        if not tab:  # a name over two lines: "ANTIPHOLUS" above "OF SYRACUSE<TAB>speech"
            waiting_name = name.strip() + " "
            continue
        out += ["", waiting_name + name.strip() + ":", re.sub(r"\s+", " ", speech.strip())]
        waiting_name = ""
    finish()
    return documents


def poem_documents(lines):
    text = "\n".join(re.sub(r"\s+", " ", line.strip()) for line in lines)
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    stanzas = text.split("\n\n")
    # About twelve stanzas to a document, so that no document is longer than the model's context.
    return ["\n\n".join(stanzas[i:i + 12]) + "\n" for i in range(0, len(stanzas), 12)]


def train_tokenizer(documents, folder):
    corpus = folder / "tokenizer_corpus.txt"
    corpus.write_text("\n".join(documents))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(folder / "tokenizer"), vocab_size=VOCABULARY, model_type="bpe", byte_fallback=True,
        add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity", character_coverage=1.0,
        pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", unk_piece="<unk>",
        num_threads=1, minloglevel=2)
    corpus.unlink()
    tokenizer = GemmaTokenizerFast(vocab_file=str(folder / "tokenizer.model"))
    tokenizer.save_pretrained(folder)
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=pathlib.Path, help="folder of .txt files")
    parser.add_argument("out", type=pathlib.Path, help="folder to write")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    parts = {"train": [], "heldout": []}
    for path in sorted(options.corpus.glob("*.txt")):
        title, lines, is_play = body_of(path.read_text().split("\n"))
        documents = play_documents(title, lines) if is_play else poem_documents(lines)
        parts["heldout" if path.stem in HELD_OUT else "train"] += documents
    for part, documents in parts.items():
        (options.out / f"{part}.json").write_text(json.dumps(documents, indent=0))
    (options.out / "heldout.txt").write_text("\n".join(parts["heldout"]))
    tokenizer = train_tokenizer(parts["train"], options.out)
    for part, documents in parts.items():
        tokens = sum(len(tokenizer(d, add_special_tokens=False).input_ids) for d in documents)
        size = sum(map(len, documents))
        print(f"{part}: {len(documents)} documents, {size} bytes, {tokens} tokens, {size / tokens:.2f} bytes per token, "
              f"longest {max(map(len, documents))} bytes")


if __name__ == "__main__":
    main()
