#!/usr/bin/env python3
"""Compare kvant with the installed transformers on folders that this transformers saves: every class that `kvant convert` knows.

A small random model of each class, and of each way in which the classes are set up (tests/reference/make_seeded_models.py and its
relatives), is saved by `save_pretrained`, converted by kvant and run by both; all positions' logits are compared. A line each:

    NAME  CLASS  difference of the largest logit

A difference is a share of the largest absolute logit. 1e-4 is allowed, or three times the difference that transformers itself has between
32-bit and 64-bit floats. The program ends with 1 where a class differs or is refused.

Usage: compare_with_transformers.py KVANT_PROGRAM [NAME_BEGINNING ...] [--keep FOLDER] [--read FOLDER]
Run it with transformers 4.57.1 and again with version 5; a model that needs version 5 is left out by the older one. `--keep` keeps the
folders under their names, and `--read` has the installed version read such folders of an older one and save them again. (Version 4 reads
folders of version 5 without a word and wrongly.)
"""
import argparse
import copy
import json
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers

import make_seeded_encoder_decoders as pairs
import make_seeded_encoders as encoders
import make_seeded_models as decoders
import older_models
import remote_code_models
import text_models
from compare_with_llama_cpp import tokenizer
from make_seeded_models import DELTA, GEMMA3N, GEMMA4, GROUPED, IDS, LATENT, LLAMA3, LLAMA4, MINISTRAL, QWEN_MOE, SMALL, VOCAB, longrope, windows

TOLERANCE = 1e-4
NOISE_FACTOR = 3
LINEAR = {"rope_type": "linear", "factor": 2.5}
VISION = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
GEMMA3 = dict(GROUPED, head_dim=16, num_hidden_layers=6, sliding_window=9, query_pre_attn_scalar=16, rope_theta=500.0, rope_local_base_freq=100.0)
OLDER_GEMMA3N = {key: value for key, value in GEMMA3N.items() if key not in ("needs", "rope_parameters")} | dict(
    rope_theta=500.0, rope_local_base_freq=100.0)

# What a version of transformers cannot be compared in, by the beginning of its number.
LEFT_OUT = {
    ("phimoe-long", "5."): "the class takes the factors of short contexts beyond them, too, unlike version 4 and the published code",
}

VISION_TOWER = dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2, out_hidden_size=32, deepstack_visual_indexes=[])

# Classes and settings that the fixtures do not have, as in make_seeded_models.MODELS.
MORE = {
    "llama": ("Llama", dict(GROUPED, num_hidden_layers=3, rope_theta=500.0, attention_bias=False)),
    "llama-llama3": ("Llama", dict(GROUPED, num_hidden_layers=2, head_dim=16, rope_theta=500.0, rope_scaling=LLAMA3)),
    "llama-linear": ("Llama", dict(GROUPED, num_hidden_layers=2, rope_scaling=LINEAR, tie_word_embeddings=True)),
    "mistral": ("Mistral", dict(GROUPED, num_hidden_layers=3, sliding_window=9, rope_theta=500.0)),
    "qwen2": ("Qwen2", dict(GROUPED, num_hidden_layers=3, rope_theta=500.0, tie_word_embeddings=True)),
    "qwen3": ("Qwen3", dict(GROUPED, num_hidden_layers=3, head_dim=16, rope_theta=500.0)),
    "phi3": ("Phi3", dict(GROUPED, num_hidden_layers=2, sliding_window=9, rope_theta=500.0)),
    "phi3-share": ("Phi3", dict(GROUPED, num_hidden_layers=2, sliding_window=None, partial_rotary_factor=0.5)),
    "gemma2": ("Gemma2", dict(GROUPED, num_hidden_layers=4, head_dim=16, sliding_window=9, query_pre_attn_scalar=24, plus_one=True,
                              attn_logit_softcapping=5.0, final_logit_softcapping=6.0, rope_theta=500.0)),
    "gemma3": ("Gemma3", dict(GEMMA3, plus_one=True)),
    "gemma3-linear": ("Gemma3", dict(GEMMA3, plus_one=True, rope_scaling=LINEAR)),
    "gptneox-base": ("GPTNeoX", dict(SMALL, num_hidden_layers=2, rotary_pct=0.5, rotary_emb_base=500, hidden_act="gelu")),
    "phi2-base": ("Phi", dict(SMALL, num_hidden_layers=2, hidden_act="gelu_new", partial_rotary_factor=0.25, rope_theta=500.0)),
    "stablelm-base": ("StableLm", dict(GROUPED, num_hidden_layers=2, partial_rotary_factor=0.5, rope_theta=500.0)),
    "glm4-base": ("Glm4", dict(GROUPED, num_hidden_layers=2, head_dim=16, partial_rotary_factor=0.25, rope_theta=500.0)),
    "cohere2-base": ("Cohere2", dict(GROUPED, num_hidden_layers=4, logit_scale=0.5, sliding_window=9, rope_theta=500.0)),
    "olmo3-base": ("Olmo3", dict(GROUPED, num_hidden_layers=4, sliding_window=9, rope_theta=500.0)),
    "nemotron-share": ("Nemotron", dict(GROUPED, num_hidden_layers=2, head_dim=16, hidden_act="relu2", partial_rotary_factor=0.25, rope_theta=500.0,
                                        plus_one=True)),
    "deepseek2-glm-lite": ("Glm4MoeLite", dict(LATENT, n_group=1, topk_group=1, n_shared_experts=1, needs=5)),
    "gemma4-inside": ("Gemma4ForConditionalGeneration", dict(needs=5, text_config=dict(GEMMA4, num_hidden_layers=4, layer_types=windows(4, 2)))),
    "gemma3n-older": ("Gemma3n", dict(OLDER_GEMMA3N, num_hidden_layers=4, num_kv_shared_layers=1, layer_types=windows(4, 2),
                                      vocab_size_per_layer_input=VOCAB, activation_sparsity_pattern=[0.0] * 4)),
    "mistral3-inside": ("Mistral3ForConditionalGeneration", dict(needs=5, vision_config=dict(VISION, model_type="pixtral", head_dim=8), text_config=dict(
        GROUPED, model_type="ministral3", num_hidden_layers=2, head_dim=16, rope_parameters=MINISTRAL))),
    "muse-glimmer-inside": ("MuseGlimmerForConditionalGeneration", dict(needs=5, plus_one=True, text_config=decoders.MUSE, vision_config=dict(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, patch_size=4), out_hidden_size=16, projector_hidden_size=16)),
    "step35-inside": ("Step3p7ForConditionalGeneration", dict(needs=5, plus_one=True, text_config=decoders.STEP)),
    "qwen3vl-inside": ("Qwen3VLForConditionalGeneration", dict(needs=5, text_config=dict(decoders.of_images("")), vision_config=VISION_TOWER)),
    "qwen3vlmoe-inside": ("Qwen3VLMoeForConditionalGeneration", dict(needs=5, vision_config=VISION_TOWER, text_config=decoders.of_images(
        "", num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24))),
    "qwen2vl-inside": ("Qwen2_5_VLForConditionalGeneration", dict(needs=5, vision_config=dict(
        depth=1, hidden_size=16, intermediate_size=24, num_heads=2, out_hidden_size=64, fullatt_block_indexes=[0]),
        text_config=dict(decoders.of_images(""), hidden_size=64))),
    "hunyuan_vl-inside": ("HunYuanVLForConditionalGeneration", dict(needs=5, vision_config=dict(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, out_hidden_size=32, patch_size=4, max_image_size=16),
        text_config=dict(decoders.MODELS["hunyuan_vl"][1], tie_word_embeddings=True))),
    "paddleocr-inside": ("PaddleOCRVLForConditionalGeneration", dict(needs=5, vision_config=dict(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4),
        text_config=dict(decoders.MODELS["paddleocr"][1], tie_word_embeddings=True))),
    "mistral4-inside": ("Mistral3ForConditionalGeneration", dict(needs=5, vision_config=dict(VISION, model_type="pixtral", head_dim=8), text_config=dict(
        decoders.MODELS["mistral4"][1], model_type="mistral4"))),
    "llama4-inside": ("Llama4ForConditionalGeneration", dict(
        vision_config=dict(VISION, vision_output_dim=16, projector_input_dim=16, projector_output_dim=16),
        text_config=dict(LLAMA4, num_local_experts=4, interleave_moe_layer_step=1))),
}


def settings_of(inner):
    """Settings of a text model inside another: "needs" is told of the whole."""
    return {key: value for key, value in inner.items() if key not in decoders.ASIDE}


def all_cases():
    """NAME: (kind, class, settings) of all models."""
    cases = {}
    for name, (hf_class, settings) in list(decoders.MODELS.items()) + list(MORE.items()):
        if "text_config" in settings:
            settings = dict(settings, text_config=settings_of(settings["text_config"]))
        if "known_as" not in settings:
            cases[name] = ("decoder", hf_class, settings)
    for name, (hf_class, settings) in pairs.MODELS.items():
        cases[name] = ("pair", hf_class, settings)
    for name, (settings, _) in encoders.MODELS.items():
        cases[name] = ("speech", "WhisperForConditionalGeneration", settings)
    for name, (hf_class, settings) in list(encoders.ENCODER_MODELS.items()) + [("t5encoder-mt5", ("MT5EncoderModel", dict(
            pairs.T5, feed_forward_proj="gated-gelu")))]:
        cases[name] = ("encoder", hf_class, settings)
    return cases


def set_weights(weights, plus_one=False, gate_spread=2.0):
    with torch.no_grad():
        for name, parameter in weights:
            row = decoders.tensor_row(name, parameter, plus_one, gate_spread)
            parameter.copy_(torch.from_numpy(decoders.seeded(name, row["shape"], row["mean"], row["spread"])))


def untie(model):
    """Gives the output its own weights, as version 5 keeps them where a folder has them, though it always ties the models that it makes."""
    model.lm_head.weight = torch.nn.Parameter(torch.from_numpy(decoders.seeded("lm_head.weight", list(model.lm_head.weight.shape), 0.0, 0.4)))


def make(kind, hf_class, settings):
    """A model and what it reads, or None where transformers has no such class."""
    generator = torch.Generator().manual_seed(8)
    if kind == "decoder":
        if getattr(decoders.find_class(hf_class), "__module__", "") in (remote_code_models.__name__, text_models.__name__, older_models.__name__):
            return None
        model, aside = decoders.make(hf_class, settings)
        if model is None:
            return None
        set_weights(decoders.weights_of(model), aside["plus_one"], aside["gate_spread"])
        model.tie_weights()
        return model, dict(input_ids=torch.randint(3, VOCAB, (1, aside["tokens"]), generator=generator)), aside["context"]
    tokens = torch.randint(3, VOCAB, (1, 40), generator=generator)
    source = torch.randint(3, VOCAB, (1, 72), generator=generator)
    if kind == "pair":
        _, model, _ = pairs.make("marian" if hf_class == "MarianMTModel" else "", hf_class, settings)
        if hf_class.endswith("T5ForConditionalGeneration") and not settings["tie_word_embeddings"]:
            untie(model)
        return model, dict(input_ids=source, decoder_input_ids=tokens), 96
    config = getattr(transformers, hf_class).config_class(**settings, attn_implementation="eager")
    model = getattr(transformers, hf_class)(config).float().eval()
    encoders.fill(model)
    if kind == "encoder":
        return model, dict(input_ids=source), 96
    frames = decoders.seeded("frames", [1, settings["num_mel_bins"], 2 * settings["max_source_positions"]], 0.2, 1.2)
    return model, dict(input_features=torch.from_numpy(frames), decoder_input_ids=tokens), settings["max_target_positions"]


def reread(model, folder):
    """The model that the installed transformers makes of a folder."""
    attention = model.config._attn_implementation
    read = type(model).from_pretrained(folder, torch_dtype=torch.float32, attn_implementation=attention)
    return read.eval()


def run(kind, model, inputs):
    """Logits, or rows of an encoder alone, as [tokens][values]."""
    if type(model).__name__ == "Llama4ForConditionalGeneration":
        model = model.language_model  # version 5.24 cannot run the whole without an image
    # Without a cache version 4 has layers of Gemma 3n read their own keys in place of an earlier layer's.
    cached = type(model).__name__.startswith("Gemma3n")
    with torch.no_grad():
        out = model(**inputs) if kind == "encoder" else model(**inputs, use_cache=cached)
    return (out[0] if kind == "encoder" else out.logits)[0].double().numpy()


def ids(row):
    return ",".join(map(str, row[0].tolist()))


def run_kvant(program, kind, folder, inputs, context):
    """The logits, or the message of an error."""
    output, logits = folder / "model.gguf", folder / "logits.npy"
    arguments = ["-o", str(logits), "--kv-type", "f32"]
    if kind != "encoder":
        arguments += ["--tokens", ids(inputs["input_ids" if kind == "decoder" else "decoder_input_ids"]), "-c", str(context)]
    if kind in ("pair", "encoder"):
        arguments += ["--source-tokens", ids(inputs["input_ids"])]
    if kind == "speech":
        np.save(folder / "frames.npy", inputs["input_features"][0].numpy())
        arguments += ["--frames", str(folder / "frames.npy")]
    for command in (["convert", str(folder), str(output), "--type", "f32"], ["logits", str(output)] + arguments):
        done = subprocess.run([program] + command, capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip().replace(str(folder), "")
    return np.load(logits).astype(np.float64)


def compare(program, name, kind, hf_class, settings, folder, read):
    """Prints a line. Whether kvant agrees; None where transformers has no such class. And the name of the class."""
    made = make(kind, hf_class, copy.deepcopy(settings))
    if made is None or (read and not (read / name / "model.safetensors").exists()):
        return None, ""
    model, inputs, context = made
    if read:
        model = reread(model, read / name)
        decoders.follow_published(model, decoders.ASIDE | {key: settings[key] for key in decoders.ASIDE if key in settings})
    expected = run(kind, model, inputs)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(VOCAB)))
    found = run_kvant(program, kind, folder, inputs, context)
    class_name = type(model).__name__
    if isinstance(found, str):
        print(f"{name:24} {class_name:34} REFUSED {found[:300]}", flush=True)
        return False, class_name
    scale = np.abs(expected).max()
    difference = np.abs(found - expected).max() / scale if found.shape == expected.shape else float("inf")
    agrees, noise = difference <= TOLERANCE, ""
    if not agrees:
        doubled = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
        exact = np.abs(run(kind, model.double(), doubled) - expected).max() / scale
        agrees, noise = bool(difference <= NOISE_FACTOR * exact), f", transformers' own {exact:.1e}"
    print(f"{name:24} {class_name:34} {difference:.1e}{noise}{'' if agrees else ' DIFFERS'}", flush=True)
    return agrees, class_name


def known_classes(program):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text('{"architectures": ["none"]}')
        done = subprocess.run([program, "convert", folder, folder + "/out.gguf"], capture_output=True, text=True)
    return re.search(r"known: (.*)\)", done.stderr).group(1).split(", ")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--keep", type=Path, help="keep the folders there")
    parser.add_argument("--read", type=Path, help="read the folders that another version has kept there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    compared, wrong, absent = set(), [], []
    for name, case in all_cases().items():
        if options.names and not any(name.startswith(begin) for begin in options.names):
            continue
        reasons = [reason for (left_out, version), reason in LEFT_OUT.items() if left_out == name and transformers.__version__.startswith(version)]
        if reasons:
            print(f"{name:24} {case[1]:34} left out: {reasons[0]}", flush=True)
            continue
        with tempfile.TemporaryDirectory() as temporary:
            folder = options.keep / name if options.keep else Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                agrees, class_name = compare(options.program, name, *case, folder, options.read)
            except Exception as error:  # of transformers: a class that it cannot make is told and is a failure
                print(f"{name:24} {case[1]:34} transformers: {type(error).__name__}: {str(error)[:300]}", flush=True)
                agrees, class_name = False, ""
        if agrees is None:
            absent.append(name)
            continue
        compared.add(class_name)
        if not agrees:
            wrong.append(name)
    if not options.names:
        print("not in this transformers:", ", ".join(absent) or "none")
        print("classes without a model:", ", ".join(name for name in known_classes(options.program) if name not in compared) or "none")
    print(f"transformers {transformers.__version__}: {len(wrong)} wrong{': ' if wrong else ''}{', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
