#!/usr/bin/env python3
"""Write small Hugging Face folders of random Gemma 2 models and what transformers computes from them.

    gemma2/usual/    every other layer has a window, which is shorter than the text
    gemma2/varied/   other caps, another attention scale, another window, an output matrix, an odd number of layers

The caps are so low that most scores and logits are bent by them. Each holds config.json, model.safetensors, the tokenizer, and

    texts.json   [{"text", "ids"}] by the fast tokenizer
    tokens.txt   ids, separated by commas
    logits.npy   float32 logits of every token, [tokens][vocab]

Usage: make_gemma2.py [OUTPUT_FOLDER]
The pinned packages are those of models/shakespeare/requirements.txt.
"""
import sys
from pathlib import Path

from transformers import Gemma2Config, Gemma2ForCausalLM

from hf_models import VOCAB, write_model, write_texts
from make_gemma3 import TEXTS, write_tokenizer

SHAPE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, max_position_embeddings=256, pad_token_id=0, eos_token_id=1,
             bos_token_id=2, attn_implementation="eager")
MODELS = {
    "usual": dict(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=16,
                  sliding_window=8, attn_logit_softcapping=2.0, final_logit_softcapping=3.0, tie_word_embeddings=True),
    "varied": dict(num_hidden_layers=5, num_attention_heads=3, num_key_value_heads=1, head_dim=24, query_pre_attn_scalar=10,
                   sliding_window=13, attn_logit_softcapping=5.0, final_logit_softcapping=1.5, rope_theta=500.0,
                   tie_word_embeddings=False),
}


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "gemma2"
    for name, settings in MODELS.items():
        write_model(root / name, Gemma2ForCausalLM(Gemma2Config(**SHAPE, **settings)), embedding_deviation=0.4, norm_mean=0.0)
        write_texts(root / name, write_tokenizer(root / name), TEXTS)


if __name__ == "__main__":
    main()
