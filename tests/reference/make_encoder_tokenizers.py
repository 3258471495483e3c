#!/usr/bin/env python3
"""Write small tokenizers of the kinds that encoders have, and what the fast tokenizers of Hugging Face make of texts with them.

    encoder_tokenizers/NAME.json  "class": which small model of seeded/embedders the vocabulary goes with; "files": tokenizer.json and
                                  others of the folder; "cases": texts and their ids with all special tokens; "pairs": two texts and ids

The tokenizers are trained here, on the words below, by the tokenizers library, and get the steps that the released tokenizers have:
"wordpiece" of BERT and "wordpiece-cased", "unigram" of XLM-RoBERTa with SentencePiece's table, "unigram-newer" as version 5 saves it,
"roberta" and "modern" with bytes.

Usage: make_encoder_tokenizers.py [KVANT MODELS]
With KVANT, the program, and MODELS, a folder of the converted models by NAME.gguf, nothing is written, and 3,000 random texts for each are
compared with the program's ids. Training is not the same each time, so the files change where they are written again.
The pinned packages are tokenizers 0.22.2 and sentencepiece 0.2.1.
"""
import io
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = Path(__file__).parent / "encoder_tokenizers"

WORDS = """the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were all her
she there would their we him been has when who will no more if out so up said what its about than into them can only other time new some could
these two may first then do any like my now over such our man me even most made after also did many off before must well back through years much
where your way down should because long each just state those people too mr how little good world make very year still see own work men day get
here old life both between being under three never know same last another while us might great go come since against right came take used himself
few house American use place during high without again home around small however found Mrs part school thought went say general once upon don't
Straße Größe über für München café naïve résumé élève garçon señor niño mañana ação coração привет мир как дела хорошо спасибо Москва книга дом
東京 京都 日本 中国 北京 学習 你好 世界 한국어 안녕하세요 서울 नमस्ते दुनिया भारत مرحبا العالم كتاب שלום עולם ไทย ภาษา Việt Nam tiếng học""".split()
CHARACTERS = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789.,;:!?'\"()[]{}<>-_/\\@#$%&*+=~`^|  \t\n") + [
    "\u00a0", "\u3000", "é", "É", "ü", "ß", "İ", "ı", "ñ", "ç", "e\u0301", "ﬁ", "①", "Ａ", "ｶ", "㎏", "½", "²", "東", "京", "한", "글", "म", "े", "ا", "ل",
    "😀", "👩‍👩‍👧", "\u200b", "\u200d", "\ufeff", "…", "—", "“", "”", "€", "\u0301", "\u05d0", "Ω", "σ", "ς", "Σ"]


def random_text(rng):
    kind = rng.random()
    if kind < 0.5:
        return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 8)))
    if kind < 0.8:
        return "".join(rng.choice(WORDS) if rng.random() < 0.4 else rng.choice(CHARACTERS) for _ in range(rng.randint(1, 20)))
    return "".join(rng.choice(CHARACTERS) for _ in range(rng.randint(1, 16)))


def corpus():
    rng = random.Random(5)
    return [" ".join(rng.choice(WORDS) for _ in range(12)) for _ in range(600)]


def template(tokenizer, cls, sep, doubled):
    ids = [(token, tokenizer.token_to_id(token)) for token in (cls, sep)]
    between = f"{sep} {sep}" if doubled else sep
    return processors.TemplateProcessing(single=f"{cls} $A {sep}", pair=f"{cls} $A {between} $B:1 {sep}:1", special_tokens=ids)


def word_piece(lower):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=420, special_tokens=special, show_progress=False))
    tokenizer.post_processor = template(tokenizer, "[CLS]", "[SEP]", False)
    return tokenizer, {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}


# A few rules of SentencePiece's table nmt_nfkc, which has a quarter of a megabyte.
RULES = {"\t": " ", "\n": " ", "\u00a0": " ", "\u3000": " ", "e\u0301": "é", "ﬁ": "fi", "①": "1", "Ａ": "A", "ｶ": "カ", "㎏": "kg", "½": "1/2",
         "²": "2", "\u200b": " ", "\ufeff": "", "…": "..."}


def unigram(newer):
    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for source, target in RULES.items():
            rules.write("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in (source, target)) + "\n")
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_writer=out, vocab_size=420, model_type="unigram",
                                                 normalization_rule_tsv=rules.name, character_coverage=1.0, hard_vocab_limit=False, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(processor.id_to_piece(i), processor.get_score(i)) for i in range(3, processor.get_piece_size())] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())
    table = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    if newer:
        tokenizer.normalizer = normalizers.Sequence([table, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
        tokenizer.pre_tokenizer = metaspace
    else:
        tokenizer.normalizer = table
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace])
    for token in ("<s>", "<pad>", "</s>", "<unk>"):
        tokenizer.add_special_tokens([AddedToken(token, normalized=False)])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.post_processor = template(tokenizer, "<s>", "</s>", True)
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
                       "mask_token": "<mask>"}


def byte_level(special, size=600):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def roberta():
    tokenizer = byte_level(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
                       "mask_token": "<mask>"}


def modern():
    tokenizer = byte_level(["[UNK]", "[CLS]", "[SEP]", "[PAD]"])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)] + [AddedToken("|||EMAIL_ADDRESS|||", normalized=False)])
    tokenizer.post_processor = template(tokenizer, "[CLS]", "[SEP]", False)
    return tokenizer, {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}


TOKENIZERS = {"wordpiece": ("bert", lambda: word_piece(True)), "wordpiece-cased": ("bert", lambda: word_piece(False)),
              "unigram": ("bert-xlmr", lambda: unigram(False)), "unigram-newer": ("bert-xlmr", lambda: unigram(True)),
              "roberta": ("bert-roberta", roberta), "modern": ("modern-bert", modern)}


def write(name, hf_class, make):
    tokenizer, names = make()
    rng = random.Random(11)
    texts = [random_text(rng) for _ in range(60)] + ["  two  spaces ", "", "a", "<mask> and [MASK]", "end\n"]
    texts = [text for text in texts if tokenizer.encode(text, add_special_tokens=False).ids]
    pairs = [(rng.choice(texts), rng.choice(texts)) for _ in range(6)]
    cases = [[text, tokenizer.encode(text).ids] for text in texts]
    pair_cases = []
    for first, second in pairs:
        encoded = tokenizer.encode(first, second)
        pair_cases.append([first, second, encoded.ids, encoded.type_ids])
    content = {"class": hf_class, "vocab_size": tokenizer.get_vocab_size(),
               "files": {"tokenizer.json": json.loads(tokenizer.to_str()), "tokenizer_config.json": names}, "cases": cases, "pairs": pair_cases}
    (FOLDER / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")).replace('"cases":', '\n"cases":').replace('"pairs":', '\n"pairs":') + "\n")
    print(f"{name:18} {tokenizer.get_vocab_size()} tokens, {len(cases)} texts")
    return tokenizer


def compare(name, kvant, model, count):
    """Each text is a call of the program."""
    content = json.loads((FOLDER / f"{name}.json").read_text())
    tokenizer = Tokenizer.from_str(json.dumps(content["files"]["tokenizer.json"]))
    rng = random.Random(17)
    wrong = []
    for _ in range(count):
        text = random_text(rng)
        found = subprocess.run([kvant, "tokenize", model, "--bos", "--special", "-p", text], capture_output=True, text=True).stdout.split()
        expected = tokenizer.encode(text).ids
        if list(map(int, found)) != expected:
            wrong.append((text, found, expected))
    print(f"{name:18} {len(wrong)} of {count} differ", *wrong[:6], sep="\n    ")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, (hf_class, make) in TOKENIZERS.items():
        if len(sys.argv) > 2:
            compare(name, sys.argv[1], f"{sys.argv[2]}/{name}.gguf", 3000)
        else:
            write(name, hf_class, make)
