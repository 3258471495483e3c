#!/usr/bin/env python3
"""Write what layers that predict further tokens compute, behind models of seeded/ (make_seeded_models.py).

    seeded/predictors/NAME.json   the name, shape, mean and spread of the tensors that such a layer adds to the folder
    seeded/predictors/NAME.npy    float32 logits of the layer for the token behind each token, [tokens][vocab]

The layer is one of the class in transformers, with the sizes of layer PATTERN of the model. Its row at a position is
eh_proj . [enorm(embedding of the token), hnorm(row of the position before)], where the row is the model's behind its last norm and zero
before the first token, and its result goes through a norm and the model's output: as DeepSeek-V3's report (arXiv 2412.19437), vLLM's
classes and llama.cpp's graphs have it. Weights follow from names as in seeded/.

Usage: make_predictors.py [NAME_BEGINNING]
The pinned packages are transformers 5.24.0 and torch 2.15.0.
"""
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from torch.nn import functional

from make_seeded_models import FOLDER, seeded

# The class, the layer that the further layer is like, and whether norms multiply by 1 + weight, in which case the folder has a network
# "mtp" instead of a layer behind the others.
MODELS = {
    "qwen35": ("Qwen3_5", 3, True),
    "qwen35moe": ("Qwen3_5Moe", 3, True),
    "qwen3next": ("Qwen3Next", 3, True),
    "glm4moe": ("Glm4Moe", 2, False),
    "glm4moe-norms": ("Glm4Moe", 2, False),
    "deepseek2-v3": ("DeepseekV3", 2, False),
    "deepseek2-kimi": ("DeepseekV3", 2, False),
}
OWN_NAMES = {"eh_proj": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden", "shared_head.norm": "mtp.norm"}


def values_of(row):
    return torch.from_numpy(seeded(row["name"], row["shape"], row["mean"], row["spread"]))


def config_of(settings, prefix):
    name = f"{prefix}TextConfig" if hasattr(transformers, f"{prefix}TextConfig") else f"{prefix}Config"
    settings = {key: value for key, value in settings.items() if key not in ("architectures", "model_type", "transformers_version", "dtype")}
    return getattr(transformers, name)(**settings, attn_implementation="eager")


def further_rows(reference, pattern, is_mtp):
    """The tensors of the layer in the folder, by the end of their names."""
    layers = reference["config"]["num_hidden_layers"]
    before = f"model.layers.{pattern}."
    dim = reference["config"]["hidden_size"]
    place = "mtp.layers.0." if is_mtp else f"model.layers.{layers}."
    rows = {}
    for row in reference["tensors"]:
        if row["name"].startswith(before):
            end = row["name"][len(before):]
            rows[end] = dict(row, name=place + end)
    mean = 0.0 if is_mtp else 1.0
    for name, shape, middle, spread in (("eh_proj", [dim, 2 * dim], 0.0, 0.4), ("enorm", [dim], mean, 0.3), ("hnorm", [dim], mean, 0.3),
                                        ("shared_head.norm", [dim], mean, 0.3)):
        own = OWN_NAMES[name] if is_mtp else place + name
        rows[name + ".weight"] = dict(name=own + ".weight", shape=shape, mean=middle, spread=spread)
    return rows


def load(prefix, settings, weights):
    """A model of the class with these weights, by the names of its folder."""
    config = config_of(settings, prefix)
    model_class = getattr(transformers, f"{prefix}ForCausalLM")
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        save_file({name: value.contiguous() for name, value in weights.items()}, f"{folder}/model.safetensors", metadata={"format": "pt"})
        model, report = model_class.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager",
                                                    output_loading_info=True)
    assert not report["missing_keys"], report["missing_keys"]
    return model.eval()


def with_layers(settings, kinds):
    """The settings of a model of layers that are like these of the settings."""
    out = dict(settings, num_hidden_layers=len(kinds))
    for key, value in settings.items():
        if isinstance(value, list) and len(value) == settings["num_hidden_layers"]:
            out[key] = [value[i] for i in kinds]
    return out


def write(name):
    prefix, pattern, is_mtp = MODELS[name]
    reference = json.loads((FOLDER / f"{name}.json").read_text())
    settings = reference["config"]
    weights = {row["name"]: values_of(row) for row in reference["tensors"]}
    rows = further_rows(reference, pattern, is_mtp)
    model = load(prefix, settings, weights)
    ids = torch.tensor([reference["tokens"]])
    # The layer as the only one of a model, whose last norm is the layer's own; its number must be that of a layer with experts.
    kinds = [pattern] * (settings.get("first_k_dense_replace", 0) + 1)
    place = f"model.layers.{len(kinds) - 1}."
    others = {name: value for name, value in weights.items() if not name.startswith("model.layers.")}
    layer_weights = {place + end: values_of(row) for end, row in rows.items() if end.split(".")[0] not in ("eh_proj", "enorm", "hnorm", "shared_head")}
    fillers = {}
    for i in range(len(kinds) - 1):
        for row in reference["tensors"]:
            if row["name"].startswith(f"model.layers.{i}."):
                fillers[row["name"]] = values_of(row)
    single = load(prefix, with_layers(settings, list(range(len(kinds) - 1)) + [pattern]), others | fillers | layer_weights)
    single.model.layers = single.model.layers[-1:]
    single.model.layers[0].self_attn.layer_idx = 0
    single.model.config.num_hidden_layers = single.config.num_hidden_layers = 1
    if hasattr(single.model.config, "layer_types") and single.model.config.layer_types:
        single.model.config.layer_types = single.model.config.layer_types[-1:]
    single.model.norm.weight.data = values_of(rows["shared_head.norm.weight"])
    epsilon = settings["rms_norm_eps"]

    def normed(x, end):
        weight = values_of(rows[end]) + (1.0 if is_mtp else 0.0)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weight

    with torch.no_grad():
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        before = functional.pad(hidden, (0, 0, 1, 0))[:, :-1]
        pair = torch.cat([normed(model.model.embed_tokens(ids), "enorm.weight"), normed(before, "hnorm.weight")], -1)
        pair[:, 0, settings["hidden_size"]:] = 0
        rows_of_layer = single.model(inputs_embeds=pair @ values_of(rows["eh_proj.weight"]).T, use_cache=False).last_hidden_state
        logits = model.lm_head(rows_of_layer)[0]
        plain = model.lm_head(hidden)[0].numpy()
    stored = np.load(FOLDER / f"{name}.npy")
    assert np.abs(plain - stored).max() < 1e-4, f"{name}: the model's logits differ by {np.abs(plain - stored).max()}"
    out = FOLDER / "predictors"
    (out / f"{name}.json").write_text(json.dumps({"tensors": list(rows.values())}, indent=0) + "\n")
    np.save(out / f"{name}.npy", logits.numpy().astype(np.float32))
    print(f"{name}: logits of {logits.shape[0]} positions, {logits.min():.2f} to {logits.max():.2f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    for one in MODELS:
        if len(sys.argv) < 2 or one.startswith(sys.argv[1]):
            write(one)
