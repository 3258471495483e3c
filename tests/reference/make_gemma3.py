#!/usr/bin/env python3
"""Write small Hugging Face folders of random Gemma 3 models and what transformers computes from them.

    gemma3/usual/    the pattern of five layers with a window to one without, tied output
    gemma3/varied/   another pattern, another attention scale, two unusual rotary bases, linear scaling, an output matrix

Each holds config.json, model.safetensors, the tokenizer in both of its forms, and

    texts.json   [{"text", "ids"}] by the fast tokenizer
    tokens.txt   ids, separated by commas
    logits.npy   float32 logits of every token, [tokens][vocab]

Usage: make_gemma3.py [OUTPUT_FOLDER]
The pinned packages are those of models/shakespeare/requirements.txt.
"""
import json
import sys
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GemmaTokenizerFast

TOKENS = 72
VOCAB = 320
TEXTS = ["", " ", "Now", "the winter of our  discontent", " \n\nGLOUCESTER:\nmade glorious summer\t", "naïve 東京 🙂", "ab<eos>cd",
         "winterwinter\n\n\n  winter"]
CORPUS = """Now is the winter of our discontent
Made glorious summer by this sun of York;
And all the clouds that lour'd upon our house
In the deep bosom of the ocean buried.
"""

SHAPE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=7, num_attention_heads=2,
             num_key_value_heads=1, head_dim=16, max_position_embeddings=256, pad_token_id=0, eos_token_id=1, bos_token_id=2,
             attn_implementation="eager")
MODELS = {
    "usual": dict(sliding_window=8, query_pre_attn_scalar=16, rope_theta=1000000.0, rope_local_base_freq=10000.0,
                  tie_word_embeddings=True),
    "varied": dict(sliding_window=5, query_pre_attn_scalar=24, rope_theta=50000.0, rope_local_base_freq=500.0,
                   rope_scaling={"rope_type": "linear", "factor": 4.0}, tie_word_embeddings=False,
                   layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2 + ["sliding_attention"]),
}


def write_tokenizer(folder: Path):
    corpus = folder / "corpus.txt"
    corpus.write_text(CORPUS)
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus), model_prefix=str(folder / "tokenizer"), vocab_size=VOCAB, model_type="bpe", byte_fallback=True,
        add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity", pad_id=0, eos_id=1, bos_id=2,
        unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", minloglevel=2)
    corpus.unlink()
    (folder / "tokenizer.vocab").unlink()
    tokenizer = GemmaTokenizerFast(vocab_file=str(folder / "tokenizer.model"))
    tokenizer.save_pretrained(folder)
    return tokenizer


def write_model(folder: Path, settings: dict):
    torch.manual_seed(7)
    model = Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, **settings)).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            deviation = 0.3 if "norm" in name else 0.4 if "embed" in name else 1.2 / parameter.shape[-1] ** 0.5
            parameter.normal_(0.0, deviation)
    model.save_pretrained(folder)
    tokens = torch.randint(4, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(8))
    tokens[0] = 2
    with torch.no_grad():
        logits = model(input_ids=tokens[None], use_cache=False).logits[0]
    (folder / "tokens.txt").write_text(",".join(map(str, tokens.tolist())))
    np.save(folder / "logits.npy", logits.numpy())


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "gemma3"
    for name, settings in MODELS.items():
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        write_model(folder, settings)
        tokenizer = write_tokenizer(folder)
        texts = [{"text": text, "ids": tokenizer(text).input_ids} for text in TEXTS]
        (folder / "texts.json").write_text(json.dumps(texts, indent=1) + "\n")


if __name__ == "__main__":
    main()
