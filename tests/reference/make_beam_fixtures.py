#!/usr/bin/env python3
"""Write tiny random models and what Hugging Face transformers finds in them by beam search.

    mha.gguf          a Llama with as many KV heads as heads
    gqa-window.gguf   a Mistral: two query heads to a KV head, a sliding window of 8 in every layer
    cases.json        options, prompts and hypotheses with ids, score, log-probabilities and parents

The models run in float64 where transformers lets them, so that the logits that the search sees are nearly exact. A case is
left out if any choice in it is so close that rounding could turn it: sums of log-probabilities nearer than SUM_MARGIN, scores
nearer than SCORE_MARGIN of their size.

Searches without groups are `generate(num_beams=...)`. Search with groups has left the core of transformers; what remains
in 4.57.1 and does the work is BeamSearchScorer. The loop around it is here: groups in order, the Hamming penalty for tokens
that earlier groups took in the same step, then the scorer. A group that is done takes no tokens (with transformers it takes
padding, which counts as a token).

Hypotheses that are only Hugging Face's filling (a sum below -1e8) are left out. A batch is left-padded by this script;
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
END_TOKENS = {0: [], 1: [2], 3: [2, 34, 20]}
EARLY_STOPPING = {"false": False, "true": True, "never": "never"}

MODELS = {
    "mha": (LlamaConfig, LlamaForCausalLM, dict(num_attention_heads=4, num_key_value_heads=4)),
    "gqa-window": (MistralConfig, MistralForCausalLM, dict(num_attention_heads=4, num_key_value_heads=2, sliding_window=8)),
}


# ---- Models ---------------------------------------------------------------------------------------------------------

def make_model(config_type, model_type, shape, seed):
    config = config_type(vocab_size=VOCAB, hidden_size=DIM, intermediate_size=FFN, num_hidden_layers=LAYERS, head_dim=HEAD_DIM,
                         rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=256, tie_word_embeddings=False,
                         bos_token_id=1, eos_token_id=None, pad_token_id=PAD, attn_implementation="sdpa", **shape)
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

def processors(case):
    """What a case asks of generate() beside what every case has."""
    names = {"max_length": "max_length", "min_length": "min_length", "forced_bos": "forced_bos_token_id",
             "forced_eos": "forced_eos_token_id", "suppress": "suppress_tokens", "begin_suppress": "begin_suppress_tokens",
             "bad_words": "bad_words_ids", "renormalize": "renormalize_logits"}
    return {name: case[key] for key, name in names.items() if key in case}


def greedy_result(out, length, case, margins):
    """The text of a search with one beam, for which generate() has no score: that of its own log-probabilities."""
    tokens = out.sequences[0, length:].tolist()
    for row in out.scores:
        margins.see_sums(row[0].topk(2)[0])
    log_probs = [torch.log_softmax(row[0], dim=-1)[token].item() for row, token in zip(out.scores, tokens)]
    return tokens, sum(log_probs) / len(tokens) ** case["length_penalty"], log_probs, [0] * len(tokens)


def prompt_inputs(case):
    """What generate() is given of a case's prompts, and where what it adds begins."""
    longest = max(map(len, case["prompts"]))
    ids = torch.tensor([[PAD] * (longest - len(p)) + p for p in case["prompts"]])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in case["prompts"]])
    return dict(inputs=ids, attention_mask=mask, pad_token_id=PAD), longest


def search(model, case, inputs_of=prompt_inputs):
    """generate(), as [prompt][hypothesis]."""
    margins = Margins()
    watch(model, margins)
    inputs, longest = inputs_of(case)
    ends = case["end_tokens"]
    out = model.generate(
        **inputs, num_beams=case["beams"], num_return_sequences=case["num_return"],
        length_penalty=case["length_penalty"], early_stopping=EARLY_STOPPING[case["early_stopping"]],
        eos_token_id=ends or None, max_new_tokens=None if "max_length" in case else case["max_new_tokens"],
        min_new_tokens=(case["min_new_tokens"] or None) if ends else None, repetition_penalty=case["repetition_penalty"],
        no_repeat_ngram_size=case["no_repeat_ngram"], do_sample=False, return_dict_in_generate=True, output_scores=True,
        **processors(case))
    if case["beams"] == 1:
        return [[greedy_result(out, longest, case, margins)]], margins
    results = []
    for item in range(len(case["prompts"])):
        hypotheses = []
        for s in range(item * case["num_return"], (item + 1) * case["num_return"]):
            parents = [p for p in out.beam_indices[s].tolist() if p >= 0]
            tokens = out.sequences[s, longest: longest + len(parents)].tolist()
            score = out.sequences_scores[s].item()
            if not tokens or score * len(tokens) ** case["length_penalty"] < FILLING:
                continue
            log_probs = [out.scores[t][parent, token].item() for t, (parent, token) in enumerate(zip(parents, tokens))]
            hypotheses.append((tokens, score, log_probs, [p - item * case["beams"] for p in parents]))
        results.append(hypotheses)
    return results, margins


class BeamPath:
    """What a beam has generated, and how."""

    def __init__(self, tokens=(), log_probs=(), parents=()):
        self.tokens, self.log_probs, self.parents = list(tokens), list(log_probs), list(parents)

    def then(self, token, log_prob, parent):
        return BeamPath(self.tokens + [token], self.log_probs + [log_prob], self.parents + [parent])


def record_found(hypotheses, found, candidates, paths, prompt_length):
    """Makes a group's list of hypotheses note the whole path of what is added to it: the scorer forgets the end token."""
    add = hypotheses.add

    def recording_add(hyp, sum_logprobs, generated_len, **kwargs):
        add(hyp, sum_logprobs, generated_len=generated_len, **kwargs)
        score = sum_logprobs / generated_len ** hypotheses.length_penalty
        if generated_len > len(hyp) - prompt_length:
            (path,) = (path for value, path in candidates if value == sum_logprobs)
        else:
            path = next(path for path in paths if path.tokens == hyp[prompt_length:].tolist())
        found.append((score, path))

    hypotheses.add = recording_add


def group_step(case, scorer, g, row_log_probs, sums, paths, chosen, candidates, margins):
    """A group's candidates after the penalty for the tokens `chosen` by earlier groups: values and flat indices."""
    size, ends = case["beams"] // case["groups"], case["end_tokens"]
    rows = slice(g * size, (g + 1) * size)
    for token in chosen:
        row_log_probs[rows, token] -= case["diversity_penalty"]
    total = (row_log_probs[rows] + sums[rows, None]).view(1, -1)
    count = max(2, 1 + len(ends)) * size
    values, flat = torch.topk(total, count)
    candidates[g][:] = []
    for value, index in zip(values[0].tolist(), flat[0].tolist()):
        parent, token = g * size + index // VOCAB, index % VOCAB
        if value > FILLING:
            candidates[g].append((value, paths[parent].then(token, row_log_probs[parent, token].item(), parent)))
    if not scorer._done[g]:
        margins.see_sums(total.topk(count + 1)[0])
    return values, flat


def see_group_end(case, scorer, g, best, length, margins):
    """How close the comparison is by which the scorer is about to end a group."""
    hypotheses = scorer._beam_hyps[g]
    if scorer._done[g] or len(hypotheses) < hypotheses.num_beams:
        return
    if case["early_stopping"] == "never" and case["length_penalty"] > 0:
        length = case["max_new_tokens"]
    margins.see_scores([best / length ** case["length_penalty"], hypotheses.worst_score])


def group_search(model, case):
    """One prompt, groups of beams."""
    margins = Margins()
    prompt, beams, groups = case["prompts"][0], case["beams"], case["groups"]
    size, ends, length = beams // groups, case["end_tokens"], len(prompt) + case["max_new_tokens"]
    scorer = beam_search.BeamSearchScorer(
        batch_size=1, num_beams=beams, device=torch.device("cpu"), length_penalty=case["length_penalty"],
        do_early_stopping=EARLY_STOPPING[case["early_stopping"]], num_beam_hyps_to_keep=case["num_return"],
        num_beam_groups=groups, max_length=length)
    ids = torch.tensor([prompt] * beams)
    sums = torch.tensor([0.0 if i % size == 0 else -1e9 for i in range(beams)])
    paths = [BeamPath() for _ in range(beams)]
    found, candidates = [[] for _ in range(groups)], [[] for _ in range(groups)]
    for g in range(groups):
        record_found(scorer._beam_hyps[g], found[g], candidates[g], paths, len(prompt))
    while ids.shape[1] < length and not scorer.is_done:
        with torch.no_grad():
            log_probs = torch.log_softmax(model(ids).logits[:, -1].float(), dim=-1)
        tokens, parents, next_sums = (torch.zeros(beams, dtype=kind) for kind in (torch.long, torch.long, torch.float))
        chosen = []
        for g in range(groups):
            rows, was_done = slice(g * size, (g + 1) * size), bool(scorer._done[g])
            values, flat = group_step(case, scorer, g, log_probs, sums, paths, chosen, candidates, margins)
            out = scorer.process(ids[rows], values, flat % VOCAB, flat // VOCAB, pad_token_id=PAD, eos_token_id=ends or None,
                                 group_index=g, decoder_prompt_len=len(prompt))
            next_sums[rows], tokens[rows] = out["next_beam_scores"], out["next_beam_tokens"]
            parents[rows] = out["next_beam_indices"] + g * size
            if not was_done:
                see_group_end(case, scorer, g, values.max().item(), ids.shape[1] + 1 - len(prompt), margins)
                chosen += tokens[rows].tolist()
        paths[:] = [paths[p].then(t, log_probs[p, t].item(), p) for p, t in zip(parents.tolist(), tokens.tolist())]
        ids, sums = torch.cat([ids[parents], tokens[:, None]], dim=1), next_sums
    out = scorer.finalize(ids, sums, None, None, max_length=length, pad_token_id=PAD, eos_token_id=ends or None,
                          decoder_prompt_len=len(prompt))
    kept = []
    for g in range(groups):
        margins.see_scores([score for score, _ in found[g]])
        scores = {score for score, _, _ in scorer._beam_hyps[g].beams}
        kept += [(score, path) for score, path in found[g] if score in scores]
    margins.see_scores([score for score, _ in kept])
    kept = sorted(kept, key=lambda entry: -entry[0])[: case["num_return"]]
    assert np.allclose([score for score, _ in kept], out["sequence_scores"].tolist())
    return [[(path.tokens, score, path.log_probs, path.parents) for score, path in kept if score > FILLING]], margins


# ---- The grid -------------------------------------------------------------------------------------------------------

def grid(name, parity):
    """Beams, length penalty, early stopping and end tokens in every combination, half of them for each model; the other
    options take turns. The prompts are few, so that tests can remember what follows a text."""
    random = np.random.default_rng(parity)
    pool = [[1] + random.integers(3, VOCAB, length).tolist() for length in (1, 3, 6, 12, 20)]

    def prompts(count):
        return [pool[i] for i in random.choice(len(pool), count, replace=False)]

    plain = itertools.product((2, 3, 4, 5, 8, 16), (-1.0, 0.0, 0.6, 1.0, 2.0), EARLY_STOPPING, END_TOKENS)
    for turn, (beams, penalty, stopping, ends) in enumerate(itertools.islice(plain, parity, None, 2)):
        repetition, ngram = (1.0, 1.3)[turn % 3 == 1], 2 if turn % 7 == 3 else 0
        # These look at the padding of a batch, too.
        batch = 3 if turn % 2 == 1 and repetition == 1.0 and ngram == 0 else 1
        max_new = (1, 5, 12, 40)[turn % 4 if beams < 8 else turn % 3]
        yield dict(model=name, beams=beams, groups=1, diversity_penalty=0.0, length_penalty=penalty, early_stopping=stopping,
                   end_tokens=END_TOKENS[ends], num_return=(1, beams)[turn // 3 % 2], max_new_tokens=max_new,
                   min_new_tokens=10 if turn % 5 == 2 and max_new > 10 else 0, repetition_penalty=repetition,
                   no_repeat_ngram=ngram, prompts=prompts(batch))
    grouped = itertools.product(((2, 2), (4, 2), (6, 3), (8, 8)), (0.0, 1.0), EARLY_STOPPING, END_TOKENS)
    for turn, ((beams, groups), penalty, stopping, ends) in enumerate(itertools.islice(grouped, parity, None, 2)):
        yield dict(model=name, beams=beams, groups=groups, diversity_penalty=(0.5, 3.0)[turn % 2], length_penalty=penalty,
                   early_stopping=stopping, end_tokens=END_TOKENS[ends], num_return=(1, beams)[turn // 3 % 2],
                   max_new_tokens=(5, 12, 24)[turn % 3], min_new_tokens=0, repetition_penalty=1.0, no_repeat_ngram=0,
                   prompts=prompts(1))


def line(case, results):
    """JSON with the numbers that the tests compare; log-probabilities and parents only of the best hypothesis."""
    def hypothesis(rank, tokens, score, log_probs, parents):
        out = {"ids": tokens, "score": float(f"{score:.7g}")}
        if rank == 0:
            out |= {"log_probs": [round(value, 5) for value in log_probs], "parents": parents}
        return out
    assert all(np.isfinite(score) for hypotheses in results for _, score, _, _ in hypotheses), case
    out = case | {"results": [[hypothesis(i, *h) for i, h in enumerate(hypotheses)] for hypotheses in results]}
    return json.dumps(out, separators=(",", ":"))


def main():
    assert transformers.__version__ == TRANSFORMERS, transformers.__version__
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "beam_search"
    folder.mkdir(parents=True, exist_ok=True)
    lines, left_out = [], 0
    for parity, (name, (config_type, model_type, shape)) in enumerate(MODELS.items()):
        model = make_model(config_type, model_type, shape, seed=parity + 1)
        write_gguf(model, folder / f"{name}.gguf")
        model = model.double()
        for case in grid(name, parity):
            results, margins = (group_search if case["groups"] > 1 else search)(model, case)
            if margins.wide():
                lines.append(line(case, results))
            else:
                left_out += 1
            print(f"\r{len(lines)} cases, {left_out} left out", end="", flush=True)
    head = json.dumps({"transformers": TRANSFORMERS, "torch": torch.__version__})[1:-1]
    (folder / "cases.json").write_text("{" + head + ',"cases":[\n' + ",\n".join(lines) + "\n]}\n")
    print(f"; cases.json has {(folder / 'cases.json').stat().st_size} bytes")


if __name__ == "__main__":
    main()
