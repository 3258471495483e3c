#!/usr/bin/env python3
"""Write what transformers computes from small encoder-decoders whose weights anyone can make again from their names.

    seeded/encoder_decoders/NAME.json         as in make_seeded_models.py, and the tokens of a source
    seeded/encoder_decoders/NAME.encoded.npy  float32 rows of the encoder, [source tokens][dim]
    seeded/encoder_decoders/NAME.npy          float32 logits of every token behind that source, [tokens][vocab]

Usage: make_seeded_encoder_decoders.py [NAME_BEGINNING]
The pinned packages are transformers 4.57.1 and torch 2.6.0; version 5 scales the outputs of some T5 otherwise.
"""
import json
import sys

import numpy as np
import torch
import transformers

from make_seeded_models import FOLDER, VOCAB, seeded, tensor_row

SOURCE_TOKENS = 72
TOKENS = 40
PAIRS = FOLDER / "encoder_decoders"

T5 = dict(vocab_size=VOCAB, d_model=32, d_kv=12, d_ff=48, num_layers=2, num_decoder_layers=3, num_heads=4, n_positions=128,
          decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
TWO_STACKS = dict(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=2,
                  encoder_ffn_dim=48, decoder_ffn_dim=40, max_position_embeddings=96, bos_token_id=0, pad_token_id=1, eos_token_id=2,
                  decoder_start_token_id=2)

# Name: (class, settings).
MODELS = {
    "t5": ("T5ForConditionalGeneration", dict(T5, feed_forward_proj="relu", tie_word_embeddings=True)),
    # Version 1.1, with other buckets; and with the other gates and the embedding as output.
    "t5-gated": ("T5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
                                                    relative_attention_num_buckets=16, relative_attention_max_distance=50)),
    "t5-silu": ("T5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-silu", tie_word_embeddings=True, num_decoder_layers=1)),
    "t5-mt5": ("MT5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "t5-umt5": ("UMT5ForConditionalGeneration", dict(T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
    "bart": ("BartForConditionalGeneration", dict(TWO_STACKS, activation_function="gelu")),
    "mbart": ("MBartForConditionalGeneration", dict(TWO_STACKS, activation_function="relu", scale_embedding=True)),
    "marian": ("MarianMTModel", dict(TWO_STACKS, activation_function="swish", scale_embedding=True)),
    "m2m100": ("M2M100ForConditionalGeneration", dict(TWO_STACKS, activation_function="relu", scale_embedding=True)),
}


def make(name, class_name, settings):
    """A model and the rows that say how to make its weights again."""
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**settings, attn_implementation="eager")
    model = model_class(config).float().eval()
    rows = []
    with torch.no_grad():
        biases = [row for row in model.named_buffers() if row[0] == "final_logits_bias"]
        for key, parameter in list(model.named_parameters()) + biases:
            if "embed_positions" in key and name == "marian":
                continue  # sines, which folders do not hold
            row = tensor_row(key, parameter, False)
            parameter.copy_(torch.from_numpy(seeded(key, row["shape"], row["mean"], row["spread"])))
            rows.append(row)
    model.tie_weights()
    return config, model, rows


def write(name, class_name, settings):
    config, model, rows = make(name, class_name, settings)
    generator = torch.Generator().manual_seed(8)
    source = torch.randint(3, VOCAB, (SOURCE_TOKENS,), generator=generator)
    tokens = torch.randint(3, VOCAB, (TOKENS,), generator=generator)
    with torch.no_grad():
        encoded = model.get_encoder()(input_ids=source[None])[0][0]
        logits = model(input_ids=source[None], decoder_input_ids=tokens[None], use_cache=False).logits[0]
    saved = config.to_dict() | {"architectures": [class_name]}
    general = set(transformers.PretrainedConfig().to_dict()) - {"architectures", "tie_word_embeddings"}
    kept = {key: value for key, value in saved.items() if key in settings or key not in general}
    parts = [f'"config": {json.dumps(kept)}', '"context": 96', f'"source": {json.dumps(source.tolist())}', f'"tokens": {json.dumps(tokens.tolist())}',
             '"tensors": [\n ' + ",\n ".join(json.dumps(row) for row in rows) + "]"]
    (PAIRS / f"{name}.json").write_text("{" + ",\n".join(parts) + "}\n")
    np.save(PAIRS / f"{name}.encoded.npy", encoded.numpy())
    np.save(PAIRS / f"{name}.npy", logits.numpy())
    print(f"{name:10} encoded up to {encoded.abs().max():.2f}, logits {logits.min():.2f} .. {logits.max():.2f}")


if __name__ == "__main__":
    PAIRS.mkdir(exist_ok=True)
    for name, (class_name, settings) in MODELS.items():
        if name.startswith(sys.argv[1] if len(sys.argv) > 1 else ""):
            write(name, class_name, settings)
