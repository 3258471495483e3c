#!/usr/bin/env python3
"""Write small Hugging Face folders of random Qwen 2 and Qwen 3 models and what transformers computes from them.

    qwen2/usual/    biases of q, k and v, tied output, heads of dim / heads
    qwen2/varied/   an output matrix, another rotary base, six heads of odd size for two kv heads
    qwen3/usual/    norms of queries and keys, heads that are larger than dim / heads, tied output
    qwen3/varied/   an output matrix, linear scaling of positions, one kv head, an odd feed-forward

Each holds config.json, model.safetensors, the tokenizer, and

    texts.json   [{"text", "ids"}] by the fast tokenizer
    tokens.txt   ids, separated by commas
    logits.npy   float32 logits of every token, [tokens][vocab]

Usage: make_qwen.py [OUTPUT_FOLDER]
The pinned packages are those of models/shakespeare/requirements.txt.
"""
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2TokenizerFast, Qwen3Config, Qwen3ForCausalLM

from hf_models import CORPUS, VOCAB, write_model, write_texts

TEXTS = ["", " ", "Now", "the winter of our  discontent", " \n\nGLOUCESTER:\nmade glorious summer\t", "naïve 東京 🙂 cafe\u0301",
         "ab<|endoftext|>cd", "we'll 1234 THEY'RE\r\n\r\n  winter", "<|im_start|>user\nNow<|im_end|>"]
# The words of Qwen 2, before byte pairs are merged.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SHAPE = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=64, num_hidden_layers=3, max_position_embeddings=256,
             eos_token_id=319, bos_token_id=317, attn_implementation="eager")
MODELS = {
    "qwen2/usual": Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_attention_heads=4, num_key_value_heads=2, rope_theta=1000000.0,
                                                tie_word_embeddings=True)),
    "qwen2/varied": Qwen2ForCausalLM(Qwen2Config(**SHAPE, num_attention_heads=6, num_key_value_heads=2, rope_theta=500.0,
                                                 tie_word_embeddings=False)),
    "qwen3/usual": Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_attention_heads=4, num_key_value_heads=2, head_dim=20,
                                                rope_theta=1000000.0, tie_word_embeddings=True)),
    "qwen3/varied": Qwen3ForCausalLM(Qwen3Config(**SHAPE | dict(intermediate_size=56), num_attention_heads=3, num_key_value_heads=1,
                                                 head_dim=32, rope_theta=5000.0, tie_word_embeddings=False,
                                                 rope_scaling={"rope_type": "linear", "factor": 4.0})),
}


def write_tokenizer(folder: Path):
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 3, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([CORPUS], trainer)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in special])
    fast = Qwen2TokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", unk_token=None)
    fast.save_pretrained(folder)
    return fast


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, model in MODELS.items():
        write_model(root / name, model, embedding_deviation=0.4, norm_mean=1.0)
        write_texts(root / name, write_tokenizer(root / name), TEXTS, "NFC")


if __name__ == "__main__":
    main()
