#!/usr/bin/env python3
"""Write what transformers computes from small models that read frames of sound, and from encoders alone, whose weights and frames anyone
can make again from their names.

    seeded/speech/NAME.json         as in make_seeded_models.py: Whisper; "frames" is the row of weights that the frames are made as
    seeded/speech/NAME.encoded.npy  float32 rows of the encoder, every "encoded_step"th position, [rows][dim]
    seeded/speech/NAME.npy          float32 logits of every token behind those frames, [tokens][vocab]
    seeded/speech/NAME.searches.jsonl  what `generate` finds, a line for each search, as in make_encoder_decoder_searches.py; "own" tells
                                    that it was Whisper's own `generate`, with the tokens that it begins with, and not the general one
    seeded/encoders/NAME.json, NAME.encoded.npy  the same for encoders of T5, with the tokens of a source

Usage: make_seeded_encoders.py [NAME_BEGINNING]
The pinned packages are transformers 4.57.1 and torch 2.6.0.
"""
import copy
import json
import sys

import numpy as np
import torch
import transformers
from transformers import GenerationConfig
from transformers.generation import GenerationMixin

from make_seeded_encoder_decoders import T5, SOURCE_TOKENS
from make_seeded_models import FOLDER, VOCAB, seeded, tensor_row

TOKENS = 40
MAX_LENGTH = 24
SPEECH = FOLDER / "speech"
ENCODERS = FOLDER / "encoders"

WHISPER = dict(vocab_size=VOCAB, d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
               encoder_ffn_dim=128, decoder_ffn_dim=128, max_target_positions=48, activation_function="gelu", bos_token_id=1, pad_token_id=1,
               eos_token_id=1, decoder_start_token_id=2, suppress_tokens=None, begin_suppress_tokens=None)

# Name: settings, every how many rows of the encoder are kept.
MODELS = {
    "whisper": (dict(WHISPER, num_mel_bins=80, max_source_positions=200), 10),
    "whisper-long": (dict(WHISPER, num_mel_bins=128, max_source_positions=1500), 50),
    # Stacks that differ, and few numbers of a frame.
    "whisper-stacks": (dict(WHISPER, num_mel_bins=20, max_source_positions=33, encoder_layers=3, decoder_attention_heads=2,
                            decoder_ffn_dim=96), 1),
}
ENCODER_MODELS = {
    "t5encoder": ("T5EncoderModel", dict(T5, feed_forward_proj="relu")),
    "t5encoder-gated": ("T5EncoderModel", dict(T5, feed_forward_proj="gated-gelu", d_model=36)),
    "t5encoder-umt5": ("UMT5EncoderModel", dict(T5, feed_forward_proj="gated-gelu")),
}
CASES = [
    dict(num_beams=1),
    dict(num_beams=4),
    dict(num_beams=5, num_return_sequences=3, early_stopping=True, length_penalty=0.6),
    dict(num_beams=3, suppress_tokens=[10, 11, 12], begin_suppress_tokens=[13, "eos"]),
    dict(num_beams=1, suppress_tokens=[10, 11, 12], begin_suppress_tokens=["first"], no_repeat_ngram_size=3),
]
# What Whisper's own generate is told: places and tokens behind the first one, languages of which it finds the likeliest or takes the named
# one, and the token that there are no times, behind which it takes all tokens for times.
OPEN = dict(lang_to_id={"<|en|>": 20, "<|de|>": 30, "<|fr|>": 40}, task_to_id={"transcribe": 21, "translate": 22}, no_timestamps_token_id=VOCAB - 1,
            is_multilingual=True)
OWN = [
    dict(num_beams=1),
    dict(num_beams=1, forced_decoder_ids=[[1, 20], [2, 21]], suppress_tokens=[10, 11, 12], begin_suppress_tokens=["eos"]),
    dict(num_beams=1, forced_decoder_ids=[[1, 20]], no_timestamps_token_id=VOCAB - 1, begin_suppress_tokens=[13]),
    dict(num_beams=4, forced_decoder_ids=[[1, 20]], no_timestamps_token_id=VOCAB - 1),
    dict(OPEN, num_beams=1),
    dict(OPEN, num_beams=3, forced_decoder_ids=[[1, None], [2, 21]]),
    dict(OPEN, num_beams=1, forced_decoder_ids=[[1, 20], [2, 21]], language="german"),
    dict(OPEN, num_beams=1, language="fr", task="translate"),
    dict(OPEN, num_beams=1, task="transcribe"),
]


def fill(model):
    """Gives a model its weights, and returns the rows that say how to make them again."""
    rows = []
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            row = tensor_row(key, parameter, False)
            if "conv" in key and key.endswith("weight"):
                row["spread"] = round(2.0 / (row["shape"][1] * row["shape"][2]) ** 0.5, 4)
            elif key == "model.decoder.embed_tokens.weight":
                row["spread"] = 0.3  # a text does not repeat one token for ever
            elif key == "model.decoder.embed_positions.weight":
                row["spread"] = 1.6
            parameter.copy_(torch.from_numpy(seeded(key, row["shape"], row["mean"], row["spread"])))
            rows.append(row)
    model.tie_weights()
    return rows


def write_json(path, config, class_name, settings, rows, entries):
    saved = config.to_dict() | {"architectures": [class_name]}
    general = set(transformers.PretrainedConfig().to_dict()) - {"architectures", "tie_word_embeddings"}
    kept = {key: value for key, value in saved.items() if key in settings or key not in general}
    parts = [f'"config": {json.dumps(kept)}'] + [f'"{key}": {json.dumps(value)}' for key, value in entries.items()]
    parts.append('"tensors": [\n ' + ",\n ".join(json.dumps(row) for row in rows) + "]")
    path.write_text("{" + ",\n".join(parts) + "}\n")


def texts_of(sequences, first, eos):
    texts = []
    for row in sequences.tolist():
        row = row[first:]
        texts.append(row[:row.index(eos) + 1] if eos in row else row)
    return texts


def general_search(model, frames, case, eos):
    generation = GenerationConfig(max_length=MAX_LENGTH, do_sample=False, eos_token_id=eos, pad_token_id=eos, decoder_start_token_id=2,
                                  return_dict_in_generate=True, output_scores=True, **case)
    with torch.no_grad():
        out = GenerationMixin.generate(model, frames[None], generation_config=generation)
    return texts_of(out.sequences, 1, eos), out.sequences_scores.tolist() if case["num_beams"] > 1 else []


def own_search(model, frames, case, eos):
    generation = GenerationConfig(max_length=MAX_LENGTH, do_sample=False, eos_token_id=eos, pad_token_id=eos, decoder_start_token_id=2,
                                  **dict(dict(is_multilingual=False, return_timestamps=False), **case))
    model.generation_config = generation
    with torch.no_grad():
        start = model._retrieve_init_tokens(frames[None], batch_size=1, generation_config=copy.deepcopy(generation), config=model.config,
                                            num_segment_frames=frames.shape[1], kwargs={})
        out = model.generate(frames[None], generation_config=copy.deepcopy(generation))
    text = out.tolist()[0]  # without the tokens that it begins with, and without the end
    return start.tolist()[0], [text[:text.index(eos)] if eos in text else text]


def named(value, names):
    if isinstance(value, list):
        return [named(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def searches(model, frames):
    with torch.no_grad():
        first = model(input_features=frames[None], decoder_input_ids=torch.tensor([[2]])).logits[0, -1]
    # Random models seldom end a text: a token that the greedy one comes to does it.
    greedy = general_search(model, frames, dict(num_beams=1), VOCAB)[0][0]
    eos = next((token for i, token in enumerate(greedy) if i > 4 and token not in greedy[:i]), VOCAB - 1)
    names = {"eos": eos, "first": int(first.argmax())}
    lines = []
    for case in CASES:
        case = {key: named(value, names) for key, value in case.items()}
        texts, scores = general_search(model, frames, case, eos)
        lines.append({"eos": eos, "start": [2], "max_length": MAX_LENGTH, "settings": case, "texts": texts, "scores": scores})
    for case in OWN:
        case = {key: named(value, names) for key, value in case.items()}
        start, texts = own_search(model, frames, case, eos)
        lines.append({"eos": eos, "start": start, "max_length": MAX_LENGTH, "settings": case, "texts": texts, "scores": [], "own": True})
    return lines


def write_speech(name, settings, step):
    config = transformers.WhisperConfig(**settings, attn_implementation="eager")
    model = transformers.WhisperForConditionalGeneration(config).float().eval()
    rows = fill(model)
    frames_row = {"name": f"{name}.frames", "shape": [settings["num_mel_bins"], 2 * settings["max_source_positions"]], "mean": 0.2, "spread": 1.2}
    frames = torch.from_numpy(seeded(*frames_row.values()))
    tokens = torch.randint(3, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        encoded = model.get_encoder()(frames[None])[0][0]
        logits = model(input_features=frames[None], decoder_input_ids=tokens[None], use_cache=False).logits[0]
    write_json(SPEECH / f"{name}.json", config, "WhisperForConditionalGeneration", settings, rows,
               {"context": settings["max_target_positions"], "frames": frames_row, "encoded_step": step, "tokens": tokens.tolist()})
    np.save(SPEECH / f"{name}.encoded.npy", encoded[::step].numpy().copy())
    np.save(SPEECH / f"{name}.npy", logits.numpy())
    lines = searches(model, frames)
    (SPEECH / f"{name}.searches.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{name:15} encoded up to {encoded.abs().max():.2f}, logits {logits.min():.2f} .. {logits.max():.2f}, texts of",
          *[len(text) for line in lines for text in line["texts"]])


def write_encoder(name, class_name, settings):
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**settings, attn_implementation="eager")
    model = model_class(config).float().eval()
    rows = fill(model)
    source = torch.randint(3, VOCAB, (SOURCE_TOKENS,), generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        encoded = model(input_ids=source[None])[0][0]
    write_json(ENCODERS / f"{name}.json", config, class_name, settings, rows, {"context": 96, "source": source.tolist()})
    np.save(ENCODERS / f"{name}.encoded.npy", encoded.numpy())
    print(f"{name:15} encoded up to {encoded.abs().max():.2f}")


if __name__ == "__main__":
    SPEECH.mkdir(exist_ok=True)
    ENCODERS.mkdir(exist_ok=True)
    beginning = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, (settings, step) in MODELS.items():
        if name.startswith(beginning):
            write_speech(name, settings, step)
    for name, (class_name, settings) in ENCODER_MODELS.items():
        if name.startswith(beginning):
            write_encoder(name, class_name, settings)
