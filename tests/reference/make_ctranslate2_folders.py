#!/usr/bin/env python3
"""Write small CTranslate2 folders as its own converter makes them, and the scores that it gives to texts with them.

    ctranslate2/NAME/       model.bin, config.json and the lists of tokens; the files of tokenizers stand elsewhere in tests/reference
    ctranslate2/NAME.json   {"tokenizer": {"name in the folder": "file in tests/reference"}, "source": ids of a source, "target": ids behind
                            the decoder's first one, "scores": of the target's tokens and of the end behind them, as log probabilities}

Speech has "frames": [bins, frames] values of which f(i) = ((i * 7919) % 2001 - 1000) / 1000 is value i, "first": the tokens that texts
begin with, "target": the greedy text behind them, and "logits" of each of its tokens.

Weights are those that make_seeded_models.py makes of a tensor's name. CTranslate2 computes in float32, with weights of the type below.

Usage: make_ctranslate2_folders.py [--all FOLDER] [NAME_BEGINNING]
With --all, FOLDER gets every model in every type beside the Hugging Face folder that it was made of.
The pinned packages are ctranslate2 4.8.5, transformers 4.57.1, torch 2.8.0 and sentencepiece 0.2.3.
"""
import argparse
import json
import shutil
import tempfile
from pathlib import Path

import ctranslate2
import numpy as np
import torch
import transformers
from ctranslate2.converters import TransformersConverter

from make_seeded_models import seeded, tensor_row

HERE = Path(__file__).parent
OUT = HERE / "ctranslate2"
TYPES = ["float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"]
SMALL = dict(d_model=8, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=12,
             decoder_ffn_dim=12, max_position_embeddings=32)
T5 = dict(d_model=8, d_kv=6, d_ff=12, num_layers=2, num_decoder_layers=2, num_heads=2, decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
          relative_attention_num_buckets=8, relative_attention_max_distance=20)
WHISPER = dict(d_model=8, encoder_layers=1, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=12,
               decoder_ffn_dim=12, num_mel_bins=8, max_source_positions=20, max_target_positions=24)
LANGUAGES = ["en", "zh", "de"]


def byte_level_tokenizer(path, special, texts):
    """GPT-2's kind of vocabulary: the characters that stand for bytes, what merges make of them, and special tokens."""
    alphabet = sorted(tokenizers_alphabet())
    vocab = {character: i for i, character in enumerate(alphabet)}
    merges = []
    for text in texts:
        parts = list(text)
        while len(parts) > 1:
            if parts[0] + parts[1] not in vocab:
                merges.append([parts[0], parts[1]])
                vocab[parts[0] + parts[1]] = len(vocab)
            parts[:2] = [parts[0] + parts[1]]
    first = len(vocab)
    added = [{"id": first + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for i, text in enumerate(special)]
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "fuse_unk": False, "vocab": vocab, "merges": merges}}))
    return {**vocab, **{text: first + i for i, text in enumerate(special)}}


def tokenizers_alphabet():
    import tokenizers
    return tokenizers.pre_tokenizers.ByteLevel.alphabet()


def seed(model):
    """Weights by their names; an embedding's row of padding stays 0 where texts begin with it."""
    with torch.no_grad():
        biases = [row for row in model.named_buffers() if row[0] == "final_logits_bias"]
        zero = model.config.pad_token_id if model.config.model_type == "marian" else None
        for key, parameter in list(model.named_parameters()) + biases:
            if "embed_positions" in key and model.config.model_type in ("marian", "m2m_100", "pegasus"):
                continue  # sines
            row = tensor_row(key, parameter, False)
            parameter.copy_(torch.from_numpy(seeded(key, row["shape"], row["mean"], row["spread"])))
            if zero is not None and key in ("model.shared.weight", "final_logits_bias"):
                parameter.view(-1, parameter.shape[-1] if key == "model.shared.weight" else 1)[zero] = 0
    model.tie_weights()
    return model.float().eval()


def translator(kind, config_class, model_class, **settings):
    def make(folder):
        shutil.copytree(HERE / "translators" / kind, folder, dirs_exist_ok=True)
        old = json.loads((folder / "config.json").read_text())
        config = config_class(**{key: old[key] for key in old if key.endswith("_id") or "vocab_size" in key}, **{**SMALL, **settings})
        seed(model_class(config)).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        return transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)
    names = {file.name: f"translators/{kind}/{file.name}" for file in (HERE / "translators" / kind).glob("*")
             if file.suffix in (".spm", ".model") or file.name == "tokenizer_config.json"}
    return make, names


def bart(folder):
    config = folder / "tokenizer.json"
    vocab = byte_level_tokenizer(config, ["<s>", "<pad>", "</s>", "<unk>", "<mask>"], ["the", "Ġking"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(config), bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                                                     pad_token="<pad>", mask_token="<mask>")
    tokenizer.save_pretrained(folder)
    ids = {f"{key}_token_id": vocab[text] for key, text in dict(bos="<s>", pad="<pad>", eos="</s>", decoder_start="</s>").items()}
    config = transformers.BartConfig(vocab_size=len(vocab), activation_function="gelu", forced_eos_token_id=None, **ids, **SMALL)
    config.normalize_before = False
    seed(transformers.BartForConditionalGeneration(config)).save_pretrained(folder)
    return tokenizer


def mbart(folder):
    shutil.copy(HERE / "unigram" / "identity.model", folder / "sentencepiece.bpe.model")
    tokenizer = transformers.MBartTokenizer(str(folder / "sentencepiece.bpe.model"), src_lang="en_XX", tgt_lang="de_DE")
    tokenizer.save_pretrained(folder)
    config = transformers.MBartConfig(vocab_size=len(tokenizer), activation_function="relu", scale_embedding=True, normalize_before=True,
                                      tokenizer_class="MBartTokenizer", forced_eos_token_id=None, **SMALL)
    seed(transformers.MBartForConditionalGeneration(config)).save_pretrained(folder)
    return tokenizer


def t5(class_name, extra=20, more=3, **settings):
    def make(folder):
        shutil.copy(HERE / "unigram" / "identity.model", folder / "spiece.model")
        tokenizer = transformers.T5Tokenizer(str(folder / "spiece.model"), extra_ids=extra, legacy=True)
        tokenizer.save_pretrained(folder)
        model_class = getattr(transformers, class_name)
        config = model_class.config_class(vocab_size=len(tokenizer) + more, **{**T5, **settings})
        seed(model_class(config)).save_pretrained(folder)
        return tokenizer
    return make, {"spiece.model": "unigram/identity.model"}


def whisper(english):
    def make(folder):
        languages = [f"<|{name}|>" for name in LANGUAGES]
        special = ["<|endoftext|>", "<|startoftranscript|>", *languages, "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>",
                   "<|nospeech|>", "<|notimestamps|>"]
        vocab = byte_level_tokenizer(folder / "tokenizer.json", special, ["the", "Ġking"])
        if not english:  # the empty text that vocabularies of several languages have
            content = json.loads((folder / "tokenizer.json").read_text())
            first = len(content["model"]["vocab"])
            content["model"]["vocab"][""] = first
            for token in content["added_tokens"]:
                token["id"] += 1
            (folder / "tokenizer.json").write_text(json.dumps(content))
            vocab = {text: i + (i >= first) for text, i in vocab.items()}
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|endoftext|>",
                                                         bos_token="<|endoftext|>")
        tokenizer.save_pretrained(folder)
        size = max(vocab.values()) + 1 + 6
        config = transformers.WhisperConfig(vocab_size=size, pad_token_id=vocab["<|endoftext|>"], bos_token_id=vocab["<|endoftext|>"],
                                            eos_token_id=vocab["<|endoftext|>"], decoder_start_token_id=vocab["<|startoftranscript|>"], **WHISPER)
        model = seed(transformers.WhisperForConditionalGeneration(config))
        generation = dict(eos_token_id=vocab["<|endoftext|>"], decoder_start_token_id=vocab["<|startoftranscript|>"],
                          no_timestamps_token_id=vocab["<|notimestamps|>"], suppress_tokens=[1, 2, 7], begin_suppress_tokens=[5], max_length=24)
        if not english:
            generation.update(lang_to_id={text: vocab[text] for text in languages},
                              task_to_id={task: vocab[f"<|{task}|>"] for task in ("translate", "transcribe")})
        model.generation_config = transformers.GenerationConfig(**generation)
        model.save_pretrained(folder)
        return tokenizer
    return make, {}


# Name: (what makes the Hugging Face folder, files of its tokenizer), the type in tests/reference.
MODELS = {
    "marian": (translator("marian", transformers.MarianConfig, transformers.MarianMTModel, activation_function="swish", scale_embedding=True), "int8"),
    "m2m100": (translator("m2m100", transformers.M2M100Config, transformers.M2M100ForConditionalGeneration, activation_function="relu",
                          scale_embedding=True), "int8_float16"),
    "nllb": (translator("nllb", transformers.M2M100Config, transformers.M2M100ForConditionalGeneration, activation_function="relu",
                        scale_embedding=True), "int8_float32"),
    "bart": ((bart, {}), "float32"),
    "mbart": ((mbart, {"sentencepiece.bpe.model": "unigram/identity.model"}), "bfloat16"),
    "t5": (t5("T5ForConditionalGeneration", feed_forward_proj="relu", tie_word_embeddings=True), "int16"),
    "t5-gated": (t5("T5ForConditionalGeneration", feed_forward_proj="gated-gelu", tie_word_embeddings=False), "int8"),
    "t5-umt5": (t5("UMT5ForConditionalGeneration", extra=0, feed_forward_proj="gated-gelu", tie_word_embeddings=False), "int8_bfloat16"),
    "whisper": (whisper(english=False), "float16"),
    "whisper-english": (whisper(english=True), "int8"),
}


def save(folder, tokenizer, out, quantization):
    converter = TransformersConverter(str(folder))
    converter.load_tokenizer = lambda *_args, **_kw: tokenizer
    converter.convert(str(out), quantization=quantization, force=True)
    for file in out.glob("*.json"):
        file.write_text(json.dumps(json.loads(file.read_text()), ensure_ascii=False, separators=(",", ":")) + "\n")


def translator_case(tokenizer, folder):
    """Scores of a target behind the decoder's first token."""
    config = json.loads((folder / "config.json").read_text())
    tokens = json.loads(next(folder.glob("s*_vocabulary.json")).read_text())
    generator = np.random.default_rng(5)
    end = tokens.index(config["eos_token"])
    source = [int(i) for i in generator.integers(6, len(tokens) - 8, 17)] + [end]
    target = [int(i) for i in generator.integers(6, len(tokens) - 8, 12)]
    model = ctranslate2.Translator(str(folder), compute_type="float32")
    start = []
    if config["decoder_start_token"] is None:  # whoever translates names it
        start = ["de_DE"]
    result = model.score_batch([[tokens[i] for i in source]], [start + [tokens[i] for i in target]])[0]
    case = {"source": source, "target": target, "scores": [round(float(x), 6) for x in result.log_probs]}
    if start:
        case["start"] = tokens.index(start[0])
    return case


def speech_case(folder):
    config = WHISPER
    shape = (config["num_mel_bins"], 2 * config["max_source_positions"])
    values = np.array([((i * 7919) % 2001 - 1000) / 1000 for i in range(shape[0] * shape[1])], np.float32).reshape(1, *shape)
    model = ctranslate2.models.Whisper(str(folder), compute_type="float32")
    tokens = json.loads((folder / "vocabulary.json").read_text())
    names = ["<|startoftranscript|>"] + (["<|de|>", "<|transcribe|>"] if "" in tokens else []) + ["<|notimestamps|>"]
    first = [tokens.index(name) for name in names]
    features = ctranslate2.StorageView.from_array(values)
    result = model.generate(features, [first], beam_size=1, max_length=24, return_scores=True, return_logits_vocab=True)[0]
    logits = [[round(float(x), 4) for x in np.array(row.to(ctranslate2.DataType.float32)).reshape(-1)] for row in result.logits[0][:4]]
    return {"frames": list(shape), "first": first, "target": [int(i) for i in result.sequences_ids[0]], "logits": logits}


def files_of(name, files, folder, out):
    """The files of a tokenizer: those of tests/reference, or what was made for this model."""
    for file, where in files.items():
        shutil.copy(HERE / where, out / file)
    if not files and not name.startswith("whisper"):
        shutil.copy(folder / "tokenizer.json", out)


def write(name, all_types, where):
    (make, files), usual = MODELS[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / name
        folder.mkdir()
        tokenizer = make(folder)
        case = speech_case if name.startswith("whisper") else lambda out: translator_case(tokenizer, out)
        for quantization in TYPES if all_types else [usual]:
            out = where / (f"{name}.{quantization}" if all_types else name)
            save(folder, tokenizer, out, quantization)
            result = {"tokenizer": files, **case(out)}
            (where / f"{out.name}.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
            if all_types:
                files_of(name, files, folder, out)
            elif not files and not name.startswith("whisper"):
                shutil.copy(folder / "tokenizer.json", out)
            print(out.name, (out / "model.bin").stat().st_size, "bytes", str(result.get("scores", result["target"]))[:80])
        if all_types:
            shutil.copytree(folder, where / f"{name}.hf", dirs_exist_ok=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", type=Path)
    parser.add_argument("beginning", nargs="?", default="")
    arguments = parser.parse_args()
    where = arguments.all or OUT
    where.mkdir(exist_ok=True, parents=True)
    for name in MODELS:
        if name.startswith(arguments.beginning):
            write(name, arguments.all is not None, where)
