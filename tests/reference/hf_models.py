"""What the scripts that write folders of random Hugging Face models share: weights that let every part of a model matter, the logits
of transformers, and tokenizers.

The pinned packages are those of models/shakespeare/requirements.txt.
"""
import json
import unicodedata
from pathlib import Path

import numpy as np
import torch

TOKENS = 72
VOCAB = 320
CORPUS = """Now is the winter of our discontent
Made glorious summer by this sun of York;
And all the clouds that lour'd upon our house
In the deep bosom of the ocean buried.
"""


def write_model(folder: Path, model, embedding_deviation: float, norm_mean: float):
    """Random weights: vectors differ from what they are initialized to, and matrices keep the size of activations."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    model = model.float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.normal_(norm_mean, 0.3)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.5)
            else:
                parameter.normal_(0.0, embedding_deviation if "embed" in name else 1.2 / parameter.shape[-1] ** 0.5)
            # bf16 holds them exactly, so that files have half the size and the logits are those of 32-bit floats.
            parameter.copy_(parameter.bfloat16())
    tokens = torch.randint(4, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(8))
    tokens[0] = 2
    with torch.no_grad():
        logits = model(input_ids=tokens[None], use_cache=False).logits[0]
    model.bfloat16().save_pretrained(folder)
    print(f"{folder.name:16} logits {logits.min():.2f} .. {logits.max():.2f}, spread {logits.std():.2f}")
    (folder / "tokens.txt").write_text(",".join(map(str, tokens.tolist())))
    np.save(folder / "logits.npy", logits.numpy())


def write_texts(folder: Path, tokenizer, texts, normalization=None):
    """A tokenizer that normalizes texts gives another text back, which is noted where it differs."""
    entries = []
    for text in texts:
        entries.append({"text": text, "ids": tokenizer(text).input_ids})
        decoded = unicodedata.normalize(normalization, text) if normalization else text
        if decoded != text:
            entries[-1]["decoded"] = decoded
    (folder / "texts.json").write_text(json.dumps(entries, indent=1) + "\n")
