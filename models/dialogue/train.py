#!/usr/bin/env python3
"""Trains the dialogue model from scratch, on one core, with Hugging Face transformers' Llama classes.

    python prepare.py CORPUS DATA
    python train.py DATA RUN            # resumes from RUN/state.pt if that is there

Dialogues are made up as they are needed: those of a step depend on (seed, step) alone, so a run that was stopped and resumed sees the
same ones. The loss is that of the answers. Writes state.pt (to resume), model/ (the Hugging Face folder), loss.csv and loss.svg.
"""
import argparse
import json
import pathlib
import random
import shutil
import sys
import time

import torch
from torch.nn import functional
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

import questions

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import byte_tokenizer  # noqa: E402
import training  # noqa: E402

SEED = 1202
CONTEXT = 1024


def make_config(tokenizer):
    return LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=256, intermediate_size=384, num_hidden_layers=5, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=CONTEXT, rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, attn_implementation="sdpa")


class Dialogues:
    """Batches of dialogues, each cut where a row ends; every eighth step has a few long ones."""

    def __init__(self, tokenizer, words, tokens_per_step):
        self.words, self.tokens_per_step = words, tokens_per_step
        self.start, self.end = tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
        self.id_of = byte_tokenizer.ids_of_bytes(tokenizer)

    def plain(self, text):
        return [self.id_of[byte] for byte in text.encode()]

    def message(self, role, text):
        return [self.start, *self.plain(role + "\n" + text), self.end, *self.plain("\n")]

    def row(self, draw, length):
        """length + 1 ids, and for each whether it is part of an answer."""
        ids, is_answer = [], []
        def say(role, text):
            tokens = self.message(role, text)
            ids.extend(tokens)
            head = 2 + len(role) if role == "assistant" else len(tokens)
            is_answer.extend([False] * head + [True] * (len(tokens) - head - 1) + [False] * (head < len(tokens)))
        if draw.random() < 0.15:
            say("system", draw.choice(questions.SYSTEMS))
        while len(ids) <= length:
            question, answer = questions.turn(draw, self.words, "train")
            say("user", question)
            say("assistant", answer)
        return ids[:length + 1], is_answer[:length + 1]

    def at(self, step):
        draw = random.Random(SEED * 1_000_000 + step)
        length = CONTEXT if step % 16 == 15 else 256
        rows = [self.row(draw, length) for _ in range(max(1, self.tokens_per_step // length))]
        return torch.tensor([ids for ids, _ in rows]), torch.tensor([mask for _, mask in rows])


def loss_of(model, rows, is_answer):
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=rows[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[is_answer[:, 1:]])
    return functional.cross_entropy(logits.float(), rows[:, 1:][is_answer[:, 1:]])


@torch.no_grad()
def held_out_loss(model, dialogues, asked):
    """The mean over the tokens of the answers, each question asked alone."""
    losses = []
    for item in asked:
        head = dialogues.message("user", item["question"])
        reply = dialogues.message("assistant", item["answer"])[:-1]
        mask = torch.zeros(1, len(head) + len(reply), dtype=torch.bool)
        mask[0, len(head) + 11:] = True
        losses.append((loss_of(model, torch.tensor([head + reply]), mask).item(), int(mask.sum())))
    return sum(loss * count for loss, count in losses) / sum(count for _, count in losses)


def save_folder(model, data, folder):
    model.save_pretrained(folder)
    eos = model.config.eos_token_id
    GenerationConfig(eos_token_id=eos, pad_token_id=model.config.pad_token_id, do_sample=False).save_pretrained(folder)
    for path in [*data.glob("tokenizer*"), *data.glob("special*"), *data.glob("chat_template*")]:
        shutil.copy(path, folder / path.name)


def save(model, optimizers, rows, step, options):
    torch.save(dict(model=model.state_dict(), optimizers=[o.state_dict() for o in optimizers], rows=rows, step=step),
               options.run / "state.new")
    (options.run / "state.new").rename(options.run / "state.pt")
    (options.run / "loss.csv").write_text("step,training_loss,held_out_loss\n" + "".join(
        f"{a},{b:.4f},{'' if c is None else f'{c:.4f}'}\n" for a, b, c in rows))
    training.draw_curve(rows, options.run / "loss.svg", 0.0, 2.0, "token of an answer")
    save_folder(model, options.data, options.run / "model")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=2200)
    parser.add_argument("--tokens-per-step", type=int, default=3072)
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--embedding-rate", type=float, default=0.004)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--cooldown", type=float, default=0.4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    options.run.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(options.data)
    dialogues = Dialogues(tokenizer, json.loads((options.data / "words.json").read_text()), options.tokens_per_step)
    asked = json.loads((options.data / "heldout.json").read_text())[::25]
    model = LlamaForCausalLM(make_config(tokenizer)).train()
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
    for step in range(first, options.steps):
        training.set_rates(optimizers, training.rate_factor(step, options.steps, options.cooldown))
        loss = loss_of(model, *dialogues.at(step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)
        losses.append(loss.item())
        done = step + 1
        if done % 20 == 0 or done == options.steps:
            checked = held_out_loss(model, dialogues, asked) if done % 100 == 0 or done == options.steps else None
            rows.append((done, sum(losses) / len(losses), checked))
            print(f"step {done} loss {rows[-1][1]:.4f} held-out {checked and round(checked, 4)} "
                  f"{(time.process_time() - began) / len(losses):.2f} CPU s/step", flush=True)
            losses, began = [], time.process_time()
            if checked is not None:
                save(model, optimizers, rows, done, options)


if __name__ == "__main__":
    main()
