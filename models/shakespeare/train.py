#!/usr/bin/env python3
"""Trains the Shakespeare model from scratch, on the CPU, with Hugging Face transformers' Gemma3 classes.

    python prepare.py CORPUS work/data
    python train.py work/data work/run          # resumes from work/run/state.pt if that is there

Progress is counted in steps, never in seconds, and every random number comes from (seed, step): a run that was stopped
and resumed sees the same batches. Matrices learn by Muon (momentum, orthogonalised by a Newton-Schulz iteration), embeddings and
norms by AdamW; the rate is constant after a short warm-up and falls linearly to zero over the last part (`--cooldown`).
Writes state.pt (to resume), best/ (the Hugging Face folder of the best held-out loss), loss.csv and loss.svg.
"""
import argparse
import json
import math
import pathlib
import shutil
import time

import numpy as np
import torch
from torch.nn import functional
from transformers import AutoTokenizer, Gemma3ForCausalLM, Gemma3TextConfig, GenerationConfig

SEED = 1616
PAD, EOS, BOS = 0, 1, 2
CONTEXT = 1024


def make_config(options):
    return Gemma3TextConfig(
        vocab_size=4096, hidden_size=options.hidden, intermediate_size=options.ffn, num_hidden_layers=6,
        num_attention_heads=4, num_key_value_heads=2, head_dim=64, query_pre_attn_scalar=64, max_position_embeddings=CONTEXT,
        sliding_window=64, rope_local_base_freq=10000.0, rope_theta=1000000.0, rms_norm_eps=1e-6,
        layer_types=["sliding_attention"] * 5 + ["full_attention"], tie_word_embeddings=True,
        pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS, attn_implementation="sdpa")


class Corpus:
    """Documents as one stream of ids; a batch is cut from a fresh shuffle of the documents in every epoch."""

    def __init__(self, path, tokenizer, is_shuffled):
        texts = json.loads(path.read_text())
        self.bytes = sum(len(text.encode()) for text in texts)
        self.documents = [np.array(tokenizer(text, add_special_tokens=False).input_ids + [EOS], np.int64) for text in texts]
        self.tokens = sum(map(len, self.documents))
        self.newline = tokenizer.convert_tokens_to_ids("<0x0A>")
        self.is_shuffled = is_shuffled

    def windows(self, epoch, length):
        """[BOS] + length tokens each; every window starts at the start of a line."""
        random = np.random.default_rng((SEED, epoch, length))
        order = random.permutation(len(self.documents)) if self.is_shuffled else range(len(self.documents))
        stream = np.concatenate([self.documents[i] for i in order])
        is_start = np.concatenate([[True], (stream[:-1] == self.newline) | (stream[:-1] == EOS)])
        starts = np.flatnonzero(is_start)
        found, at = [], int(random.integers(length)) if self.is_shuffled else 0
        while True:
            i = np.searchsorted(starts, at)
            if i == len(starts) or starts[i] + length > len(stream):
                break
            found.append(np.concatenate([[BOS], stream[starts[i]:starts[i] + length]]))
            at = starts[i] + length
        found = np.stack(found)
        return found[random.permutation(len(found))] if self.is_shuffled else found


class Batches:
    """Mostly windows of 256 tokens; every eighth step has windows of the whole context, so that late positions are learnt."""

    def __init__(self, corpus, tokens_per_step):
        self.corpus, self.tokens_per_step, self.cache = corpus, tokens_per_step, {}

    def at(self, step):
        length = CONTEXT if step % 8 == 7 else 256
        nth = step // 8 if length == CONTEXT else step - step // 8
        rows = self.tokens_per_step // length
        per_epoch = (self.corpus.tokens // length - 8) * 97 // 100 // rows
        epoch, place = divmod(nth, per_epoch)
        if self.cache.get(length, (None,))[0] != epoch:
            self.cache[length] = epoch, self.corpus.windows(epoch, length)
        return torch.from_numpy(self.cache[length][1][place * rows:(place + 1) * rows])


class Muon(torch.optim.Optimizer):
    """Momentum whose update is replaced by the nearest semi-orthogonal matrix (Jordan et al., 2024)."""

    def __init__(self, parameters, lr, momentum=0.95, weight_decay=0.0):
        super().__init__(parameters, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @staticmethod
    def orthogonalise(matrix, iterations=5):
        x = matrix / (matrix.norm() + 1e-7)
        is_tall = x.shape[0] > x.shape[1]
        if is_tall:
            x = x.T
        for _ in range(iterations):
            square = x @ x.T
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        return x.T if is_tall else x

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(parameter)
                state["momentum"].lerp_(parameter.grad, 1 - group["momentum"])
                update = self.orthogonalise(parameter.grad.lerp(state["momentum"], group["momentum"]))
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * max(1, parameter.shape[0] / parameter.shape[1]) ** 0.5)


def make_optimizers(model, options):
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    embeddings = [p for name, p in model.named_parameters() if "embed" in name]
    norms = [p for p in model.parameters() if p.ndim == 1]
    return [Muon(matrices, options.matrix_rate, weight_decay=options.decay),
            torch.optim.AdamW([dict(params=embeddings, lr=options.embedding_rate, weight_decay=options.decay),
                               dict(params=norms, lr=options.embedding_rate, weight_decay=0.0)], betas=(0.9, 0.95), eps=1e-10)]


def rate_factor(step, options):
    warm_up = min(1.0, (step + 1) / 40)
    return warm_up * min(1.0, (options.steps - step) / (options.cooldown * options.steps))


def add_dropout(model, probability):
    """Gemma3 has dropout for attention weights only; a small corpus wants it on what each half layer adds, too."""
    def drop(module, _, output):
        return functional.dropout(output, probability, module.training)
    for layer in model.model.layers:
        layer.post_attention_layernorm.register_forward_hook(drop)
        layer.post_feedforward_layernorm.register_forward_hook(drop)


def loss_of(model, rows):
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model, windows):
    model.eval()
    losses = [loss_of(model, torch.from_numpy(windows[i:i + 4])).item() * len(windows[i:i + 4]) for i in range(0, len(windows), 4)]
    model.train()
    return sum(losses) / len(windows)


def draw_curve(rows, path):
    """An SVG of both curves: steps against nats per token."""
    width, height, left, bottom = 720, 360, 50, 40
    steps_max, low, high = max(row[0] for row in rows), 3.0, 8.5
    x = lambda step: left + (width - left - 10) * step / steps_max
    y = lambda loss: 10 + (height - bottom - 10) * (high - min(max(loss, low), high)) / (high - low)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for loss in np.arange(low, high, 0.5):
        out.append(f'<path d="M{left} {y(loss):.1f}H{width - 10}" stroke="#ddd"/><text x="20" y="{y(loss) + 4:.1f}">{loss:.1f}</text>')
    for step in range(0, steps_max + 1, max(100, steps_max // 8 // 100 * 100)):
        out.append(f'<text x="{x(step):.1f}" y="{height - 22}" text-anchor="middle">{step}</text>')
    for column, colour, name in ((1, "#8aa", "training"), (2, "#c33", "held out")):
        points = " ".join(f"{x(row[0]):.1f},{y(row[column]):.1f}" for row in rows if row[column] is not None)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{width - 120}" y="{30 + 18 * column}" fill="{colour}">{name}</text>')
    out.append(f'<text x="{width // 2}" y="{height - 6}" text-anchor="middle">steps; loss in nats per token</text></svg>')
    path.write_text("\n".join(out) + "\n")


def save_folder(model, data, folder):
    model.save_pretrained(folder)
    GenerationConfig(bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, do_sample=True, temperature=0.8,
                     top_k=40, top_p=0.95).save_pretrained(folder)
    for name in ("tokenizer.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(data / name, folder / name)


def report(model, held_out):
    windows = held_out.windows(0, CONTEXT)
    loss = held_out_loss(model, windows)
    bits = loss * held_out.tokens / held_out.bytes / math.log(2)
    print(f"held out, windows of {CONTEXT}: loss {loss:.4f}, perplexity {math.exp(loss):.2f}, {bits:.4f} bits per byte")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=1240)
    parser.add_argument("--stop-at", type=int, help="stop (and save) here, for measurements")
    parser.add_argument("--tokens-per-step", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--ffn", type=int, default=768)
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--embedding-rate", type=float, default=0.003)
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--cooldown", type=float, default=0.355)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--report-only", action="store_true", help="print the held-out loss of best/ over all held-out text")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(SEED)
    options.run.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(options.data)
    held_out = Corpus(options.data / "heldout.json", tokenizer, is_shuffled=False)
    if options.report_only:
        report(Gemma3ForCausalLM.from_pretrained(options.run / "best"), held_out)
        return

    batches = Batches(Corpus(options.data / "train.json", tokenizer, is_shuffled=True), options.tokens_per_step)
    check_windows = held_out.windows(0, CONTEXT)[::8]
    model = Gemma3ForCausalLM(make_config(options)).train()
    if options.dropout > 0:
        add_dropout(model, options.dropout)
    optimizers = make_optimizers(model, options)
    print(f"{model.num_parameters()} parameters, {batches.corpus.tokens} training tokens, "
          f"{held_out.tokens} held-out tokens in {held_out.bytes} bytes", flush=True)
    state_path, rows, first, best = options.run / "state.pt", [], 0, math.inf
    if state_path.exists():
        state = torch.load(state_path, weights_only=False)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        rows, first, best = state["rows"], state["step"], state["best"]
    base_rates = [[group["lr"] if first == 0 else group["base"] for group in optimizer.param_groups] for optimizer in optimizers]

    losses, began = [], time.process_time()
    for step in range(first, options.steps):
        torch.manual_seed(SEED + step)
        factor = rate_factor(step, options)
        for optimizer, bases in zip(optimizers, base_rates):
            for group, base in zip(optimizer.param_groups, bases):
                group["base"], group["lr"] = base, base * factor
        loss = loss_of(model, batches.at(step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        losses.append(loss.item())
        done = step + 1
        is_last = done in (options.steps, options.stop_at)
        if done % 20 == 0 or is_last:
            checked = held_out_loss(model, check_windows) if done % 200 == 0 or is_last else None
            rows.append((done, sum(losses) / len(losses), checked))
            cpu = (time.process_time() - began) / len(losses)
            print(f"step {done} loss {rows[-1][1]:.4f} held-out {checked and round(checked, 4)} rate {factor:.3f} "
                  f"{cpu:.2f} CPU s/step", flush=True)
            losses, began = [], time.process_time()
            if checked:
                if checked < best:
                    best = checked
                    save_folder(model, options.data, options.run / "best")
                torch.save(dict(model=model.state_dict(), optimizers=[o.state_dict() for o in optimizers], rows=rows, step=done,
                                best=best), options.run / "state.new")
                (options.run / "state.new").rename(state_path)
                (options.run / "loss.csv").write_text("step,training_loss,held_out_loss\n" + "".join(
                    f"{a},{b:.4f},{'' if c is None else f'{c:.4f}'}\n" for a, b, c in rows))
                draw_curve(rows, options.run / "loss.svg")
        if is_last:
            break
    report(Gemma3ForCausalLM.from_pretrained(options.run / "best"), held_out)


if __name__ == "__main__":
    main()
