"""A layer that predicts further tokens behind a Qwen 3.5 (multi-token prediction), as Qwen's checkpoints have it under "mtp".

At each position the layer reads the embedding of the next token and the row that the model, behind its last norm, or the layer itself has
left; its own row, normed, gives the logits of the token after the next one by the model's output matrix. It is trained on its own rows as
well, DEPTH steps deep, because drafts go on from them.
"""
import json

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

DEPTH = 3
SHARE = 0.3  # of the loss, for all steps together


class Predictor(torch.nn.Module):
    """The names of its parameters are those of the folder, behind "mtp."."""

    def __init__(self, model):
        super().__init__()
        config = model.config
        layer_class = type(model.model.layers[-1])
        norm_class = type(model.model.norm)
        self.fc = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.pre_fc_norm_embedding = norm_class(config.hidden_size, eps=config.rms_norm_eps)
        self.pre_fc_norm_hidden = norm_class(config.hidden_size, eps=config.rms_norm_eps)
        full = config.layer_types.index("full_attention")
        self.layers = torch.nn.ModuleList([layer_class(config, full)])
        self.norm = norm_class(config.hidden_size, eps=config.rms_norm_eps)
        torch.nn.init.normal_(self.fc.weight, std=config.initializer_range)
        for name, parameter in self.layers.named_parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=config.initializer_range)

    def forward(self, embedded, rows, rotary):
        """Rows for [batch, tokens, dim] of embedded tokens and of the rows before them."""
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(rows)], -1))
        places = torch.arange(x.shape[1])[None].expand(x.shape[0], -1)
        mask = torch.full((x.shape[1], x.shape[1]), torch.finfo(x.dtype).min, dtype=x.dtype).triu(1)[None, None]
        out = self.layers[0](x, position_embeddings=rotary(x, places), attention_mask=mask, position_ids=places)
        return self.norm(out[0] if isinstance(out, tuple) else out)


def losses(model, predictor, ids):
    """The losses of the model and of each step of the layer, over [batch, tokens + 1] ids."""
    inner = model.model
    rows = inner(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
    found = [functional.cross_entropy(model.lm_head(rows).float().flatten(0, 1), ids[:, 1:].flatten())]
    embedded = inner.embed_tokens(ids)
    for step in range(1, DEPTH + 1):
        # Rows of the positions before, beside the tokens that followed them; the last ones have no token left to guess.
        rows = predictor(embedded[:, step:-1], rows[:, :-1], inner.rotary_emb)
        found.append(functional.cross_entropy(model.lm_head(rows).float().flatten(0, 1), ids[:, step + 1:].flatten()))
    return found


def joined(found):
    return found[0] + SHARE * sum(found[1:]) / (len(found) - 1)


def add_to_folder(predictor, folder):
    """Adds the layer to the folder of its model."""
    path = folder / "model.safetensors"
    tensors = load_file(path) | {"mtp." + name: value.detach().clone().contiguous() for name, value in predictor.state_dict().items()}
    save_file(tensors, path, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"mtp_num_hidden_layers": 1}, indent=2) + "\n")
