#!/usr/bin/env python3
"""Trains one of the models of characters, on one core, and writes what a torch run of it computes.

    shakespeare/prepare.py CORPUS DATA
    characters.py NAME train DATA RUN          # resumes from RUN/state.pt if that is there
    characters.py NAME reference DATA RUN OUT

NAME is lfm2-tiny, qwen35-tiny, or qwen35-mtp, which has a layer that predicts further tokens (predictor.py).

Batches depend on (seed, step) alone, so a run that was stopped and resumed sees the same ones. `train` writes state.pt (to resume),
model/ (the Hugging Face folder), loss.csv and loss.svg; `reference` the logits of some positions of a held-out text, from weights
rounded as the BF16 file holds them.
"""
import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch
import transformers
from torch.nn import functional

import byte_tokenizer
import predictor
import training

SEED = 1623
WINDOW = 256
CONTEXT = 1024
TOKENS = 400  # of the reference
ROWS = [0, 1, 2, 3, 7, 63, 64, 65, 127, 128, 199, 255, 256, 300, 363, 399]

SHARED = dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=CONTEXT,
              tie_word_embeddings=True, bos_token_id=None, eos_token_id=256, pad_token_id=256)
SHAPES = {
    # Two gated convolutions over three rows, and attention between them.
    "lfm2-tiny": ("Lfm2", dict(
        SHARED, intermediate_size=256, num_hidden_layers=3, layer_types=["conv", "full_attention", "conv"], conv_L_cache=3,
        block_auto_adjust_ff_dim=False, norm_eps=1e-5)),
    # Two gated delta nets, one layer of gated attention.
    "qwen35-tiny": ("Qwen3_5", dict(
        SHARED, intermediate_size=256, num_hidden_layers=3, head_dim=64, rms_norm_eps=1e-6, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=64, linear_value_head_dim=64, linear_conv_kernel_dim=4,
        layer_types=["linear_attention"] * 2 + ["full_attention"])),
    # Deep and narrow, so that one layer more costs little: four delta nets and attention, twice.
    "qwen35-mtp": ("Qwen3_5", dict(
        SHARED, hidden_size=128, intermediate_size=192, num_hidden_layers=10, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
        rms_norm_eps=1e-6, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=64, linear_value_head_dim=64,
        linear_conv_kernel_dim=4, layer_types=(["linear_attention"] * 4 + ["full_attention"]) * 2)),
}
PREDICTING = ("qwen35-mtp",)


def make_config(name, vocab_size):
    prefix, settings = SHAPES[name]
    name_of_class = "Qwen3_5TextConfig" if prefix == "Qwen3_5" else prefix + "Config"
    return getattr(transformers, name_of_class)(vocab_size=vocab_size, **settings)


def class_of(name):
    return getattr(transformers, SHAPES[name][0] + "ForCausalLM")


def text_of(data, part, tokenizer):
    """All documents as ids, each behind a token that ends the one before it."""
    table = np.array(byte_tokenizer.ids_of_bytes(tokenizer), np.int64)
    documents = json.loads((data / f"{part}.json").read_text())
    pieces = [np.concatenate([[tokenizer.eos_token_id], table[np.frombuffer(d.encode(), np.uint8)]]) for d in documents]
    return np.concatenate(pieces)


def batch_at(text, step, rows):
    random = np.random.default_rng((SEED, step))
    starts = random.integers(len(text) - WINDOW - 1, size=rows)
    return torch.from_numpy(np.stack([text[s:s + WINDOW + 1] for s in starts]))


def loss_of(model, rows, further=None):
    if further is not None:
        return predictor.joined(predictor.losses(model, further, rows))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model, text, windows):
    """The mean over windows that are spread evenly over the text."""
    starts = np.linspace(0, len(text) - WINDOW - 2, windows).astype(int)
    rows = torch.from_numpy(np.stack([text[s:s + WINDOW + 1] for s in starts]))
    return sum(loss_of(model, part).item() * len(part) for part in rows.split(8)) / windows


def save(model, further, tokenizer, optimizers, rows, step, run):
    torch.save(dict(model=model.state_dict(), further=further and further.state_dict(), optimizers=[o.state_dict() for o in optimizers], rows=rows, step=step), run / "state.new")
    (run / "state.new").rename(run / "state.pt")
    (run / "loss.csv").write_text("step,training_loss,held_out_loss\n" + "".join(
        f"{a},{b:.4f},{'' if c is None else f'{c:.4f}'}\n" for a, b, c in rows))
    training.draw_curve(rows, run / "loss.svg", 1.0, 4.0, "byte")
    model.save_pretrained(run / "model")
    tokenizer.save_pretrained(run / "model")
    if further is not None:
        predictor.add_to_folder(further, run / "model")


def train(options, tokenizer):
    torch.manual_seed(SEED)
    options.run.mkdir(parents=True, exist_ok=True)
    texts = {part: text_of(options.data, part, tokenizer) for part in ("train", "heldout")}
    model = class_of(options.name)(make_config(options.name, len(tokenizer))).train()
    further = predictor.Predictor(model).train() if options.name in PREDICTING else None
    trained = torch.nn.ModuleList([model] + ([] if further is None else [further]))
    optimizers = training.make_optimizers(trained, options.matrix_rate, 0.004, 0.05, torch.bfloat16)
    print(f"{model.num_parameters()} parameters, {len(texts['train'])} bytes", flush=True)
    rows, first = [], 0
    if (options.run / "state.pt").exists():
        state = torch.load(options.run / "state.pt", weights_only=False)
        model.load_state_dict(state["model"])
        if further is not None:
            further.load_state_dict(state["further"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        rows, first = state["rows"], state["step"]
    losses, began = [], time.process_time()
    for step in range(first, options.steps):
        training.set_rates(optimizers, training.rate_factor(step, options.steps, 0.4))
        loss = loss_of(model, batch_at(texts["train"], step, options.rows), further)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        trained.zero_grad(set_to_none=True)
        losses.append(loss.item())
        done = step + 1
        is_last = done == options.steps
        if done % 10 == 0 or is_last:
            checked = held_out_loss(model, texts["heldout"], 64 if is_last else 16) if done % 50 == 0 or is_last else None
            rows.append((done, sum(losses) / len(losses), checked))
            print(f"step {done} loss {rows[-1][1]:.4f} held-out {checked and round(checked, 4)} "
                  f"{(time.process_time() - began) / len(losses):.2f} CPU s/step", flush=True)
            losses, began = [], time.process_time()
            if checked is not None:
                save(model, further, tokenizer, optimizers, rows, done, options.run)


def reference(options, tokenizer):
    model = class_of(options.name).from_pretrained(options.run / "model", torch_dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(parameter.to(torch.bfloat16))
    text = text_of(options.data, "heldout", tokenizer)
    ids = text[1:1 + TOKENS]
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(ids)[None], use_cache=False).logits[0].float()
        loss = functional.cross_entropy(logits[:-1], torch.from_numpy(ids[1:])).item()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "tokens.txt").write_text(",".join(map(str, ids)) + "\n")
    (options.out / "rows.txt").write_text(",".join(map(str, ROWS)) + "\n")
    np.save(options.out / "logits.npy", logits[ROWS].numpy())
    print(f"the reference text: loss {loss:.5f}, perplexity {math.exp(loss):.4f} a byte")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("what", choices=["train", "reference"])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rows", type=int, default=6, help="windows of a step")
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tokenizer = byte_tokenizer.make(["<|endoftext|>"], eos_token="<|endoftext|>", model_max_length=CONTEXT)
    {"train": train, "reference": reference}[options.what](options, tokenizer)


if __name__ == "__main__":
    main()
