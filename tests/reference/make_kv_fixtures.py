#!/usr/bin/env python3
"""Write what the caches of Hugging Face transformers hold after two prompts, for the models of make_beam_fixtures.py.

    mha.safetensors, gqa-window.safetensors
        past_key_values.N.key and .value, float32 [batch, kv head, position, dim], and input_ids, int64 [batch, length]

The models run in float64. A layer with a sliding window keeps the last window - 1 positions.

Usage: make_kv_fixtures.py [OUTPUT_FOLDER]
Needs transformers 4.57.1; the pinned packages are those of models/shakespeare/requirements.txt, and gguf 0.19.0.
"""
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import DynamicCache

from make_beam_fixtures import MODELS, TRANSFORMERS, VOCAB, make_model

BATCH, LENGTH = 2, 20


def main():
    assert transformers.__version__ == TRANSFORMERS
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "kv"
    folder.mkdir(exist_ok=True)
    for number, (name, (config_type, model_type, shape)) in enumerate(MODELS.items()):
        model = make_model(config_type, model_type, shape, seed=number + 1).double()
        ids = torch.tensor(np.random.default_rng(number).integers(3, VOCAB, (BATCH, LENGTH)))
        cache = DynamicCache(config=model.config)
        with torch.no_grad():
            model(ids, past_key_values=cache, use_cache=True)
        tensors = {"input_ids": ids.numpy().astype(np.int64)}
        for i, layer in enumerate(cache.layers):
            tensors[f"past_key_values.{i}.key"] = layer.keys.numpy().astype(np.float32)
            tensors[f"past_key_values.{i}.value"] = layer.values.numpy().astype(np.float32)
        save_file({key: np.ascontiguousarray(value) for key, value in tensors.items()}, folder / f"{name}.safetensors")


if __name__ == "__main__":
    main()
