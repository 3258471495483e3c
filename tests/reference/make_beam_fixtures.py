#!/usr/bin/env python3
"""Write tiny random models and what Hugging Face transformers finds in them by beam search.

    mha.gguf          a Llama with as many KV heads as heads
    gqa-window.gguf   a Mistral: two query heads to a KV head, a sliding window of 8 in every layer
    cases.json        options, prompts and hypotheses with ids, score, log-probabilities and parents

The models run in float64, so that the float32 logits that the search sees are exact. A case is left out if any choice in
it is so close that rounding could turn it: sums of log-probabilities nearer than SUM_MARGIN, scores nearer than
SCORE_MARGIN of their size.

Searches without groups are `generate(num_beams=...)`. Search with groups has left the core of transformers; what remains
in 4.57.1 and does the work is BeamSearchScorer. The loop around it is here: groups in order, the Hamming penalty for tokens
that earlier groups took in the same step, then the scorer. A group that is done takes no tokens (with transformers it takes
padding, which counts as a token).

Hypotheses that are only Hugging Face's filling (score below -1e8) are left out. A batch is left-padded by this script;
the results are those of each prompt.

Usage: make_beam_fixtures.py [OUTPUT_FOLDER]
Needs transformers 4.57.1; the pinned packages are those of models/shakespeare/requirements.txt, and gguf 0.19.0.
"""
import itertools
import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers.generation import beam_search

from make_random_llamas import vocabulary

TRANSFORMERS = "4.57.1"
VOCAB, DIM, FFN, LAYERS, HEAD_DIM = 40, 32, 48, 2, 8
SUM_MARGIN = 1e-4
SCORE_MARGIN = 1e-5
FILLING = -1e8
PAD = 0
END_TOKENS = {0: [], 1: [7], 3: [7, 11, 23]}

MODELS = {
    "mha": (LlamaConfig, LlamaForCausalLM, dict(num_attention_heads=4, num_key_value_heads=4), 1),
    "gqa-window": (MistralConfig, MistralForCausalLM, dict(num_attention_heads=4, num_key_value_heads=2, sliding_window=8), 2),
}


# ---- Models ---------------------------------------------------------------------------------------------------------

def make_model(config_type, model_type, shape, seed):
    config = config_type(vocab_size=VOCAB, hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS, head_dim=HEAD_DIM,
                         rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=256, tie_word_embeddings=False,
                         bos_token_id=1, eos_token_id=None, pad_token_id=PAD, attn_implementation="eager", **shape)
    model = model_type(config).eval()
    random = np.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = random.standard_normal(parameter.shape)
            if parameter.ndim == 1:
                values = 1 + 0.2 * values
            elif "embed_tokens" not in name:
                gain = {"q_proj": 1.4, "k_proj": 1.4, "lm_head": 2.2}.get(name.split(".")[-2], 1.1)
                values = values * gain / np.sqrt(parameter.shape[1])
            parameter.copy_(torch.tensor(values.astype(np.float32)))
    return model


def interleaved(weight, heads):
    """Rows of q or k for a rotation of neighbours, which is how GGUF's "llama" stores them, from one of halves."""
    return weight.reshape(heads, 2, HEAD_DIM // 2, DIM).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(model, path):
    config = model.config
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for i in range(LAYERS):
        layer, block = f"model.layers.{i}.", f"blk.{i}."
        names |= {layer + "input_layernorm": block + "attn_norm", layer + "post_attention_layernorm": block + "ffn_norm",
                  layer + "self_attn.q_proj": block + "attn_q", layer + "self_attn.k_proj": block + "attn_k",
                  layer + "self_attn.v_proj": block + "attn_v", layer + "self_attn.o_proj": block + "attn_output",
                  layer + "mlp.gate_proj": block + "ffn_gate", layer + "mlp.up_proj": block + "ffn_up",
                  layer + "mlp.down_proj": block + "ffn_down"}
    g = gguf.GGUFWriter(path, "llama")
    g.add_context_length(256)
    g.add_embedding_length(DIM)
    g.add_block_count(LAYERS)
    g.add_feed_forward_length(FFN)
    g.add_head_count(config.num_attention_heads)
    g.add_head_count_kv(config.num_key_value_heads)
    g.add_layer_norm_rms_eps(config.rms_norm_eps)
    g.add_rope_dimension_count(HEAD_DIM)
    g.add_rope_freq_base(config.rope_theta)
    g.add_vocab_size(VOCAB)
    if getattr(config, "sliding_window", None):
        g.add_sliding_window(config.sliding_window)
    pieces, scores, types = vocabulary(VOCAB)
    g.add_tokenizer_model("llama")
    g.add_token_list(pieces)
    g.add_token_scores(scores)
    g.add_token_types(types)
    g.add_bos_token_id(1)
    g.add_eos_token_id(2)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, parameter in model.named_parameters():
        values = parameter.detach().numpy().astype(np.float32)
        module = name.removesuffix(".weight")
        if module.split(".")[-1] in heads:
            values = interleaved(values, heads[module.split(".")[-1]])
        g.add_tensor(names[module] + ".weight", np.ascontiguousarray(values))
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


# ---- How close a search's choices are -------------------------------------------------------------------------------

class Margins:
    """The smallest gaps between sums, and between scores in units of their size."""

    def __init__(self):
        self.sum = self.score = float("inf")

    def see_sums(self, sums):
        for row in sums.reshape(-1, sums.shape[-1]).tolist():
            row = sorted(value for value in row if value > FILLING)
            self.sum = min([self.sum] + [b - a for a, b in zip(row, row[1:])])

    def see_scores(self, scores):
        scores = sorted(score for score in scores if score > FILLING)
        for a, b in zip(scores, scores[1:]):
            self.score = min(self.score, (b - a) / max(abs(a), 1e-3))

    def wide(self):
        return self.sum >= SUM_MARGIN and self.score >= SCORE_MARGIN


def watch(model, margins):
    """Has every choice of `generate` on this model reported to `margins`."""
    kind = type(model)
    top_k, finished, heuristic = (getattr(kind, name) for name in (
        "_get_top_k_continuations", "_update_finished_beams", "_check_early_stop_heuristic"))

    def get_top_k_continuations(**kwargs):
        out = top_k(model, **kwargs)
        margins.see_sums(kwargs["accumulated_log_probs"].topk(kwargs["beams_to_keep"] + 1)[0])
        return out

    def update_finished_beams(**kwargs):
        out = finished(model, **kwargs)
        length = kwargs["cur_len"] + 1 - kwargs["decoder_prompt_len"]
        ended = kwargs["next_token_hits_stopping_criteria"] & kwargs["top_num_beam_mask"][None, :]
        for item in range(len(ended)):
            new = (kwargs["topk_log_probs"][item] / length ** kwargs["length_penalty"])[ended[item]].tolist()
            margins.see_scores(kwargs["beam_scores"][item].tolist() + [s for s in new])
        return out

    def check_early_stop_heuristic(**kwargs):
        penalty = kwargs["length_penalty"]
        length = kwargs["cur_len"] if kwargs["early_stopping"] != "never" or penalty <= 0 else kwargs["max_length"]
        length -= kwargs["decoder_prompt_len"]
        for item in range(len(kwargs["beam_scores"])):
            if kwargs["is_sent_finished"][item].all():
                margins.see_scores([kwargs["running_beam_scores"][item, 0].item() / length ** penalty,
                                    kwargs["beam_scores"][item].min().item()])
        return heuristic(**kwargs)

    model._get_top_k_continuations = get_top_k_continuations
    model._update_finished_beams = update_finished_beams
    model._check_early_stop_heuristic = check_early_stop_heuristic


# ---- Searches -------------------------------------------------------------------------------------------------------

def search(model, case):
    """generate(), as [prompt][hypothesis]."""
    margins = Margins()
    watch(model, margins)
    longest = max(map(len, case["prompts"]))
    ids = torch.tensor([[PAD] * (longest - len(p)) + p for p in case["prompts"]])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in case["prompts"]])
    ends = END_TOKENS[len(case["end_tokens"])]
    out = model.generate(
        ids, attention_mask=mask, num_beams=case["beams"], num_return_sequences=case["num_return"],
        length_penalty=case["length_penalty"], early_stopping={"true": True, "false": False}.get(case["early_stopping"], "never"),
        eos_token_id=ends or None, pad_token_id=PAD, max_new_tokens=case["max_new_tokens"],
        min_new_tokens=case["min_new_tokens"] if ends else None, repetition_penalty=case["repetition_penalty"],
        no_repeat_ngram_size=case["no_repeat_ngram"], do_sample=False, return_dict_in_generate=True, output_scores=True)
    results = []
    for item in range(len(case["prompts"])):
        hypotheses = []
        for s in range(item * case["num_return"], (item + 1) * case["num_return"]):
            parents = [p for p in out.beam_indices[s].tolist() if p >= 0]
            tokens = out.sequences[s, longest: longest + len(parents)].tolist()
            score = out.sequences_scores[s].item()
            if score < FILLING:
                continue
            log_probs = [out.scores[t][parent, token].item() for t, (parent, token) in enumerate(zip(parents, tokens))]
            hypotheses.append((tokens, score, log_probs, [p - item * case["beams"] for p in parents]))
        results.append(hypotheses)
    return results, margins


def group_search(model, case):
    """One prompt, groups of beams."""
    margins = Margins()
    prompt, beams, groups = case["prompts"][0], case["beams"], case["groups"]
    size, ends = beams // groups, END_TOKENS[len(case["end_tokens"])]
    length = len(prompt) + case["max_new_tokens"]
    scorer = beam_search.BeamSearchScorer(
        batch_size=1, num_beams=beams, device=torch.device("cpu"), length_penalty=case["length_penalty"],
        do_early_stopping={"true": True, "false": False}.get(case["early_stopping"], "never"),
        num_beam_hyps_to_keep=case["num_return"], num_beam_groups=groups, max_length=length)
    ids = torch.tensor([prompt] * beams)
    sums = torch.tensor([0.0 if i % size == 0 else -1e9 for i in range(beams)])
    indices = [()] * beams
    steps = []
    while ids.shape[1] < length and not scorer.is_done:
        with torch.no_grad():
            logits = model(ids).logits[:, -1].float()
        log_probs = torch.log_softmax(logits, dim=-1)
        tokens, parents, next_sums = (torch.zeros(beams, dtype=kind) for kind in (torch.long, torch.long, torch.float))
        for g in range(groups):
            rows = slice(g * size, (g + 1) * size)
            for earlier in range(g):
                if not done_before(scorer, earlier, steps):
                    for token in tokens[earlier * size: (earlier + 1) * size].tolist():
                        log_probs[rows, token] -= case["diversity_penalty"]
            total = (log_probs[rows] + sums[rows, None]).view(1, -1)
            count = max(2, 1 + len(ends)) * size
            values, flat = torch.topk(total, count)
            if not scorer._done[g]:
                margins.see_sums(total.topk(count + 1)[0])
            watch_done(scorer, g, values, ids.shape[1] + 1 - len(prompt), case, margins)
            out = scorer.process(ids[rows], values, flat % VOCAB, flat // VOCAB, pad_token_id=PAD, eos_token_id=ends or None,
                                 beam_indices=indices[rows] and shifted(indices[rows]), group_index=g,
                                 decoder_prompt_len=len(prompt))
            next_sums[rows], tokens[rows] = out["next_beam_scores"], out["next_beam_tokens"]
            parents[rows] = out["next_beam_indices"] + g * size
            relabel(scorer, g, size, len(steps))
        steps.append((log_probs, [bool(d) for d in scorer._done]))
        ids = torch.cat([ids[parents], tokens[:, None]], dim=1)
        indices = [indices[p] + (p,) for p in parents.tolist()]
        sums = next_sums
    done = [bool(d) for d in scorer._done]
    out = scorer.finalize(ids, sums, None, None, max_length=length, pad_token_id=PAD, eos_token_id=ends or None,
                          beam_indices=indices, decoder_prompt_len=len(prompt))
    del done
    for hypotheses in scorer._beam_hyps:
        margins.see_scores([score for score, _, _ in hypotheses.beams])
    margins.see_scores([score for hypotheses in scorer._beam_hyps for score, _, _ in hypotheses.beams])
    hypotheses = []
    for s in range(case["num_return"]):
        path = [p for p in out["beam_indices"][s].tolist() if p >= 0]
        ids_out = out["sequences"][s, len(prompt): len(prompt) + len(path)].tolist()
        log_probs = [steps[t][0][parent, token].item() for t, (parent, token) in enumerate(zip(path, ids_out))]
        hypotheses.append((ids_out, out["sequence_scores"][s].item(), log_probs, path))
    return [hypotheses], margins
