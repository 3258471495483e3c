#!/usr/bin/env python3
"""Write small folders of translators, what transformers' slow tokenizers make of texts with them, and what its models write.

    translators/texts.json          ["...", ...]
    translators/NAME/               the folder's files but for its weights; marian-two has the .spm files of marian, and nllb-legacy is nllb
                                     with "legacy_behaviour"
    translators/nllb-json/          tokenizer.json of the fast tokenizer of nllb
    translators/NAME.json           {"tensors": [...], "source_language": ..., "target_language": ..., "texts": how many of them,
                                     "ids": [[...], ...], "target_ids": [[...], ...], "target_decoded": ["...", ...],
                                     "samples": [[...], ...], "sample_texts": ["...", ...], "loss": of a pair of texts,
                                     "searches": [{"text", "source_ids", "settings", "prefix", "ids", "scores", "texts"}, ...]}

Weights are those that make_seeded_models.py makes of a tensor's name. ids and target_ids have the tokens around a text, as a source and
as what answers it (text_target); where only the first one differs, that is "target_first". "target_decoded" is what the tokenizer makes of
these without special tokens, "samples" are ids drawn at random.

Usage: make_translator_cases.py TEXT      (TEXT: some English, such as Shakespeare's)
The pinned packages are transformers 4.57.1, torch 2.6.0 and sentencepiece 0.2.1.
"""
import io
import json
import random
import shutil
import sys
from pathlib import Path

import sentencepiece
import torch
from sentencepiece import sentencepiece_model_pb2
from transformers import (GenerationConfig, M2M100Config, M2M100ForConditionalGeneration, M2M100Tokenizer, MarianConfig, MarianMTModel,
                          MarianTokenizer, NllbTokenizer, NllbTokenizerFast)
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M_CODES
from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB_CODES

from make_seeded_models import seeded, tensor_row
from make_unigram_cases import SENTENCES, make_texts, write_rules

HERE = Path(__file__).parent
OUT = HERE / "translators"
OTHER = [
    "Der Hund schläft auf der Straße, und die Katze sitzt daneben.", "Ich möchte ein großes Stück Kuchen essen.", "Wie alt bist du?",
    "Le chat est assis sur la table de la cuisine.", "Où est la bibliothèque de la ville, s'il vous plaît?", "Das ist mein Haus.",
    "Es war einmal ein König, der hatte drei Töchter.", "Guten Morgen, meine Damen und Herren!", "Русский язык очень трудный.",
]
SMALL = dict(d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
             decoder_ffn_dim=48, max_position_embeddings=96)
INTERESTING = [
    "Hello", "Hello, world!", " Hello", "Hello ", "a\nb", "a\tb", ">>de<< Hello", ">>fr<<Hello", ">>xx<< Hello", ">>de<<", ">>de<< ",
    " >>de<< Hello", ">>de<<>>fr<< Hello", ">>de Hello", ">> << a", "a </s> b", "a</s>b", "</s>", "<pad>", "<unk>", "a <unk> b", "<unk><unk>",
    "</s>>>de<< Hello", "<s>Hello</s>", "__de__ Hello", "Hello __fr__", "deu_Latn", "Hello eng_Latn you", "<mask>", "Hello <mask> you",
    "Hello<mask>you", "madeupword0000", "▁Hello", "x▁▁y", "日本語", "😀", "😀😀 a 😀", "été Où Straße", "\u00a0a\u00a0", "\u3000", "\u0001a\u0002",
    "Köln Русский", "\u200bword\u200b", "e\u0301te\u0301", "ﬁne ½ ™", "1234567890", "(a) [b] {c}", "'tis \"so\"", "a" * 60, "the king " * 20,
]


def train(lines, model_type, size, change=None, **options):
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=writer, model_type=model_type, vocab_size=size,
                                             num_threads=1, minloglevel=2, **options)
    model = sentencepiece_model_pb2.ModelProto.FromString(writer.getvalue())
    model.trainer_spec.ClearField("input")
    if change:
        change(model)
    return model


def pieces_of(model):
    return [piece.piece for piece in model.pieces if piece.type in (1, 4, 5, 6)]


def write_json(path, value, **options):
    path.write_text(json.dumps(value, ensure_ascii=True, **(options or {"separators": (",", ":")})) + "\n")


def marian(folder, source, target, separate, extra_source=(), extra_target=()):
    """vocab.json of both models' pieces, less a few, which texts have then as <unk>."""
    def ids(names, least=0):
        names = list(dict.fromkeys(names))
        # transformers loads models with two vocabularies only where both embeddings have as many rows.
        names += [f"unused{i}" for i in range(len(names), least)]
        return {name: i for i, name in enumerate(["</s>", "<unk>", *names, "<pad>"])}
    left_out = set(pieces_of(source)[20:26])
    of_source = [name for name in pieces_of(source) if name not in left_out] + list(extra_source)
    of_target = pieces_of(target) + list(extra_target)
    least = max(len(of_source), len(of_target)) if separate else 0
    shared = ids(of_source if separate else of_source + of_target, least)
    (folder / "source.spm").write_bytes(source.SerializeToString())
    (folder / "target.spm").write_bytes(target.SerializeToString())
    write_json(folder / "vocab.json", shared)
    config = {"source_lang": "en", "target_lang": "de"}
    if separate:
        write_json(folder / "target_vocab.json", ids(of_target, least))
        config["separate_vocabs"] = True
    write_json(folder / "tokenizer_config.json", config)
    size = len(shared)
    pad = shared["<pad>"]
    return MarianConfig(vocab_size=size, decoder_vocab_size=size, share_encoder_decoder_embeddings=not separate, pad_token_id=pad,
                        eos_token_id=0, bos_token_id=0, forced_eos_token_id=0, decoder_start_token_id=pad, scale_embedding=True,
                        activation_function="swish", **SMALL)


def m2m100(folder, model):
    names = pieces_of(model)
    listed = [name for name in names if name not in set(names[30:35])] + ["madeupword0000", "madeupword0001"]
    write_json(folder / "vocab.json", {name: i for i, name in enumerate(["<s>", "<pad>", "</s>", "<unk>", *listed])})
    (folder / "sentencepiece.bpe.model").write_bytes(model.SerializeToString())
    write_json(folder / "special_tokens_map.json", {"additional_special_tokens": [f"__{code}__" for code in M2M_CODES["m2m100"]]})
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "M2M100Tokenizer"})
    return M2M100Config(vocab_size=4 + len(listed) + len(M2M_CODES["m2m100"]) + 8, pad_token_id=1, bos_token_id=0, eos_token_id=2,
                        decoder_start_token_id=2, scale_embedding=True, activation_function="relu", **SMALL)


def nllb(folder, model, legacy):
    (folder / "sentencepiece.bpe.model").write_bytes(model.SerializeToString())
    first = len(model.pieces) + 1
    # As the folders of the trained models have it. A tokenizer made from the pieces alone puts <mask> in front of the languages.
    tokens = {0: "<s>", 1: "<pad>", 2: "</s>", 3: "<unk>", **{first + i: code for i, code in enumerate(NLLB_CODES)}, first + len(NLLB_CODES): "<mask>"}
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    decoder = {str(i): {"content": text, **flags, **({"lstrip": True, "normalized": True} if text == "<mask>" else {})} for i, text in tokens.items()}
    write_json(folder / "tokenizer_config.json", {"added_tokens_decoder": decoder, "additional_special_tokens": NLLB_CODES,
                                                  "legacy_behaviour": legacy, "tokenizer_class": "NllbTokenizer"})
    return M2M100Config(vocab_size=first + len(NLLB_CODES) + 1 + 2, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
                        scale_embedding=True, activation_function="relu", **SMALL)


def generation_of(config, name):
    own = dict(max_length=24, num_beams=4, decoder_start_token_id=config.decoder_start_token_id, pad_token_id=config.pad_token_id,
               eos_token_id=config.eos_token_id)
    if name.startswith("marian"):
        own.update(bad_words_ids=[[config.pad_token_id]], forced_eos_token_id=0, renormalize_logits=True)
    return GenerationConfig(**own)


def weights_of(config, kind, pad_bias):
    model = kind(config).eval()
    rows = []
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if key.endswith(("embed_positions.weight", "embed_positions.weights")) or key == "lm_head.weight":
                continue
            if key.endswith("embed_tokens.weight") and config.model_type == "m2m_100":
                continue
            if key.endswith("embed_tokens.weight") and config.share_encoder_decoder_embeddings:
                continue
            row = tensor_row(key, value, False)
            if key == "final_logits_bias":
                row.update(mean=0.0, spread=0.5)
            rows.append(row)
            value.copy_(torch.from_numpy(seeded(**row)))
            if key == "final_logits_bias" and pad_bias:
                # The padding token is likelier than all others, as check ED-16 wants it.
                value[0, config.pad_token_id] = pad_bias
    model.tie_weights()
    return model, rows


SEARCHES = [dict(num_beams=1), dict(num_beams=4), dict(num_beams=4, renormalize_logits=False), dict(num_beams=2, num_return_sequences=2)]
SOURCES = ["How old are you?", "The king is dead.", "Köln 😀 <unk> hello", "a"]


def search(model, tokenizer, generation, text, settings, forced, prefix):
    source = torch.tensor([tokenizer(text)["input_ids"]])
    start = [model.config.decoder_start_token_id]
    if prefix is not None:
        start += tokenizer(text_target=prefix)["input_ids"][:-1]
    options = GenerationConfig.from_dict({**generation.to_dict(), **settings})
    options.forced_bos_token_id = forced
    options.return_dict_in_generate = options.output_scores = True
    with torch.no_grad():
        out = model.generate(input_ids=source, decoder_input_ids=torch.tensor([start]), generation_config=options)
    ids = [row[len(start):] for row in out.sequences.tolist()]
    eos = model.config.eos_token_id
    ids = [row[:row.index(eos) + 1] if eos in row else row for row in ids]
    return {"text": text, "source_ids": source[0].tolist(), "settings": settings, "prefix": prefix, "ids": ids,
            "scores": out.sequences_scores.tolist() if settings["num_beams"] > 1 else [],
            "texts": [tokenizer.decode(row, skip_special_tokens=True) for row in ids]}


def cases_of(name, folder, config, kind, tokenizer, texts, languages, pad_bias=0.0):
    generation = generation_of(config, name)
    write_json(folder / "generation_config.json", {k: v for k, v in generation.to_diff_dict().items() if k != "transformers_version"})
    model, rows = weights_of(config, kind, pad_bias)
    config_values = config.to_diff_dict()
    config_values.update(architectures=[kind.__name__], vocab_size=config.vocab_size, max_position_embeddings=config.max_position_embeddings)
    for key in ("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim",
                "decoder_ffn_dim", "scale_embedding", "activation_function", "pad_token_id", "eos_token_id", "decoder_start_token_id",
                "tie_word_embeddings"):
        config_values[key] = getattr(config, key)
    if config.model_type == "marian":
        config_values["share_encoder_decoder_embeddings"] = config.share_encoder_decoder_embeddings
        config_values["decoder_vocab_size"] = config.decoder_vocab_size
    write_json(folder / "config.json", config_values, indent=1)
    model.generation_config = GenerationConfig()
    generator = random.Random(5)
    ids = [tokenizer(text)["input_ids"] for text in texts]
    target_ids = [tokenizer(text_target=text)["input_ids"] for text in texts]
    target_decoded = [tokenizer.decode(row, skip_special_tokens=True) for row in target_ids]
    target_first = None
    if kind is M2M100ForConditionalGeneration and not tokenizer.init_kwargs.get("legacy_behaviour"):
        # Only the language differs.
        assert [row[1:] for row in ids] == [row[1:] for row in target_ids]
        target_first = target_ids[0][0]
        target_ids = []
    size = config.decoder_vocab_size if config.model_type == "marian" else config.vocab_size
    samples = []
    for _ in range(60):
        samples.append([generator.randrange(size - 2) for _ in range(generator.randint(1, 12))])
    if name.startswith("nllb"):  # what lies behind the pieces, but for the languages, has no text there
        samples = [[i for i in row if i < len(tokenizer)] for row in samples]
    decode = lambda rows: [tokenizer.decode(row, skip_special_tokens=True) for row in rows]
    forced = tokenizer.convert_tokens_to_ids(languages[2]) if languages[2] else None
    searches = []
    for text in SOURCES:
        for settings in SEARCHES:
            searches.append(search(model, tokenizer, generation, text, settings, forced, None))
        searches.append(search(model, tokenizer, generation, text, SEARCHES[1], forced, "Guten"))
    pair = tokenizer("How old are you?", text_target="Wie alt bist du?", return_tensors="pt")
    with torch.no_grad():
        loss = model(input_ids=pair["input_ids"], labels=pair["labels"]).loss.item()
    write_json(OUT / f"{name}.json", {
        "tensors": rows, "pad_bias": pad_bias, "source_language": languages[0], "target_language": languages[1], "texts": len(texts), "ids": ids, "target_ids": target_ids,
        "target_first": target_first, "target_decoded": target_decoded, "samples": samples, "sample_texts": decode(samples), "loss": loss,
        "searches": searches})
    print(f"{name:16} {len(texts)} texts, {sum(len(set(row)) for row in ids)} ids, vocabulary {config.vocab_size}")


def main():
    english = [line for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines() if line.strip()][:3000]
    english += [sentence for sentence in SENTENCES if sentence.isascii()] * 3
    other = OTHER * 20 + [sentence for sentence in SENTENCES if not sentence.isascii()] * 3
    texts, _ = make_texts()
    texts = INTERESTING + [text for text in texts if len(text) < 200][:160]
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    write_json(OUT / "texts.json", texts)
    rules = OUT / "rules.tsv"
    write_rules(rules, "nmt_nfkc", texts, False)
    table = {"normalization_rule_tsv": str(rules)}
    source = train(english, "unigram", 160, **table, user_defined_symbols=["[NAME]", "ing"])
    target = train(other, "unigram", 170, **table)
    source_bpe = train(english, "bpe", 200, **table, user_defined_symbols=["[NAME]", "a b", "é"])
    target_bpe = train(other, "bpe", 180, normalization_rule_name="identity", add_dummy_prefix=True, remove_extra_whitespaces=False)
    mixed = train(english[:800] + other * 2, "unigram", 260, **table)
    mixed_bpe = train(english[:800] + other * 2, "bpe", 260, **table)
    rules.unlink()
    codes = [">>de<<", ">>fr<<", ">>deu_Latn<<"]
    for name, make, kind, tokenizer_class, languages in [
        ("marian", lambda f: marian(f, source, target, False, codes, ["😀", "日本語"]), MarianMTModel, MarianTokenizer, (None, None, None)),
        ("marian-bpe", lambda f: marian(f, source_bpe, target_bpe, False), MarianMTModel, MarianTokenizer, (None, None, None)),
        ("marian-two", lambda f: marian(f, source, target, True, codes), MarianMTModel, MarianTokenizer, (None, None, None)),
        ("m2m100", lambda f: m2m100(f, mixed), M2M100ForConditionalGeneration, M2M100Tokenizer, ("en", "de", "__de__")),
        ("nllb", lambda f: nllb(f, mixed_bpe, False), M2M100ForConditionalGeneration, NllbTokenizer, ("eng_Latn", "deu_Latn", "deu_Latn")),
        ("nllb-legacy", lambda f: nllb(f, mixed_bpe, True), M2M100ForConditionalGeneration, NllbTokenizer, ("fra_Latn", "deu_Latn", "deu_Latn")),
    ]:
        folder = OUT / name
        folder.mkdir()
        config = make(folder)
        options = {"src_lang": languages[0], "tgt_lang": languages[1]} if languages[0] else {}
        tokenizer = tokenizer_class.from_pretrained(folder, **options)
        own = texts if name in ("marian", "m2m100", "nllb") else texts[:len(INTERESTING) + 20]
        cases_of(name, folder, config, kind, tokenizer, own, languages, pad_bias=12.0 if name == "marian" else 0.0)
        if name == "nllb":
            fast = NllbTokenizerFast.from_pretrained(folder, **options)
            # Without most of the languages, which all look alike.
            json_of_fast = json.loads(fast.backend_tokenizer.to_str())
            keep = {"<s>", "<pad>", "</s>", "<unk>", "<mask>", "deu_Latn", "eng_Latn", "fra_Latn"}
            json_of_fast["added_tokens"] = [token for token in json_of_fast["added_tokens"] if token["content"] in keep]
            (OUT / "nllb-json").mkdir()
            write_json(OUT / "nllb-json" / "tokenizer.json", json_of_fast)
            differ = [text for text in texts if fast(text)["input_ids"] != tokenizer(text)["input_ids"]]
            print(f"nllb: the fast tokenizer has other ids for {len(differ)} texts, such as {differ[:6]}")
    # These are other folders with a difference, which the tests make again.
    shutil.rmtree(OUT / "nllb-legacy")
    for name in ("source.spm", "target.spm"):
        (OUT / "marian-two" / name).unlink()


if __name__ == "__main__":
    main()
