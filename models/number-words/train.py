#!/usr/bin/env python3
"""Trains a small T5 from scratch, on one core, with Hugging Face transformers, to turn number words into digits and back.

    python prepare.py DATA
    python train.py DATA RUN            # resumes from RUN/state.pt if that is there

Pairs are made up as they are needed: those of a step depend on (seed, step) alone, so a run that was stopped and resumed sees the same
ones. Writes state.pt (to resume), model/ (the Hugging Face folder), loss.csv and loss.svg.
"""
import argparse
import pathlib
import random
import sys
import time

import torch
from torch.nn import functional
from transformers import GenerationConfig, T5Config, T5ForConditionalGeneration, T5Tokenizer

import pairs

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import training  # noqa: E402

SEED = 607
LENGTH_MAX = 40  # tokens of an answer, the decoder's first one included; the longest is 13 long


def make_model(tokenizer):
    """The form of T5 1.1: gated feed-forwards and an output of its own."""
    config = T5Config(
        vocab_size=len(tokenizer), d_model=128, d_kv=32, d_ff=384, num_heads=4, num_layers=2, num_decoder_layers=2, n_positions=128,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, dropout_rate=0.0, pad_token_id=0, eos_token_id=1,
        decoder_start_token_id=0)
    return T5ForConditionalGeneration(config)


class Pairs:
    """Batches of one task, padded with zeros; labels with -100."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def ids(self, text):
        return self.tokenizer.sp_model.encode(text) + [self.tokenizer.eos_token_id]

    def batch(self, rows):
        sources, answers = ([self.ids(row[i]) for row in rows] for i in (0, 1))
        pad = lambda lists, value: torch.tensor([ids + [value] * (max(map(len, lists)) - len(ids)) for ids in lists])
        return pad(sources, 0), pad(answers, -100)

    def at(self, step, task, count):
        draw = random.Random(f"{SEED} {step} {task}")
        return self.batch([pairs.pair(draw, task, "train") for _ in range(count)])


def logits_of(model, sources, labels):
    with torch.autocast("cpu", torch.bfloat16):
        out = model(input_ids=sources, attention_mask=(sources != 0).long(), decoder_input_ids=model._shift_right(labels),
                    use_cache=False)
    return out.logits.float()


def loss_of(logits, labels):
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


@torch.no_grad()
def check_held_out(model, data, count):
    """The mean loss of both tasks, and of each the share of sources whose likeliest tokens are the answer."""
    losses, right = [], []
    for task in pairs.TASKS:
        sources, labels = data.batch(pairs.held_out(task, count))
        logits = logits_of(model, sources, labels)
        losses.append(loss_of(logits, labels).item())
        right.append(((logits.argmax(-1) == labels) | (labels == -100)).all(1).float().mean().item())
    return sum(losses) / len(losses), right


def save(model, tokenizer, optimizers, rows, step, run):
    torch.save(dict(model=model.state_dict(), optimizers=[o.state_dict() for o in optimizers], rows=rows, step=step), run / "state.new")
    (run / "state.new").rename(run / "state.pt")
    (run / "loss.csv").write_text("step,training_loss,held_out_loss\n" + "".join(
        f"{a},{b:.4f},{'' if c is None else f'{c:.4f}'}\n" for a, b, c in rows))
    training.draw_curve(rows, run / "loss.svg", 0.0, 2.0, "token of an answer")
    model.save_pretrained(run / "model")
    tokenizer.save_pretrained(run / "model")
    GenerationConfig(decoder_start_token_id=0, eos_token_id=1, pad_token_id=0, max_length=LENGTH_MAX).save_pretrained(run / "model")


def train(options, tokenizer):
    torch.manual_seed(SEED)
    options.run.mkdir(parents=True, exist_ok=True)
    data = Pairs(tokenizer)
    model = make_model(tokenizer).train()
    optimizers = training.make_optimizers(model, options.matrix_rate, options.embedding_rate, options.decay, torch.bfloat16)
    print(f"{model.num_parameters()} parameters", flush=True)
    rows, first = [], 0
    if (options.run / "state.pt").exists():
        state = torch.load(options.run / "state.pt", weights_only=False)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        rows, first = state["rows"], state["step"]
    losses, began = [], time.process_time()
    for step in range(first, min(options.steps, options.until)):
        training.set_rates(optimizers, training.rate_factor(step, options.steps, options.cooldown))
        for task in pairs.TASKS:
            sources, labels = data.at(step, task, options.pairs)
            loss = loss_of(logits_of(model, sources, labels), labels) / len(pairs.TASKS)
            loss.backward()
            losses.append(loss.item() * len(pairs.TASKS))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        done, is_last = step + 1, step + 1 == min(options.steps, options.until)
        if done % 25 == 0 or is_last:
            checked, right = check_held_out(model, data, 200) if done % 100 == 0 or is_last else (None, None)
            rows.append((done, sum(losses) / len(losses), checked))
            print(f"step {done} loss {rows[-1][1]:.4f} held-out {checked and round(checked, 4)} right {right} "
                  f"{(time.process_time() - began) * len(pairs.TASKS) / len(losses):.2f} CPU s/step", flush=True)
            losses, began = [], time.process_time()
            if checked is not None:
                save(model, tokenizer, optimizers, rows, done, options.run)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--until", type=int, default=10**9, help="stops after this step of the schedule")
    parser.add_argument("--pairs", type=int, default=96, help="pairs of each task in a step")
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--embedding-rate", type=float, default=0.004)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--cooldown", type=float, default=0.4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    train(options, T5Tokenizer(str(options.data / "spiece.model"), extra_ids=0, legacy=False))


if __name__ == "__main__":
    main()
