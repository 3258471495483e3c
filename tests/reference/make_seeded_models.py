#!/usr/bin/env python3
"""Write what transformers computes from small models whose weights anyone can make again from their names.

    seeded/NAME.json   config.json, the name, shape, mean and spread of every tensor, the tokens, the context of the session
    seeded/NAME.npy    float32 logits of every token, [tokens][vocab]

Value i of a tensor is mean + spread * u, where u in (-1, 1) comes from the top 16 bits of the i-th number of splitmix64, seeded with
the FNV-1a hash of the tensor's name. tests/engine/arch/seeded_model.h makes the same numbers, so the weights need not be stored.

Usage: make_seeded_models.py [NAME_BEGINNING]
The pinned packages are transformers 4.57.1, 5.23.0 and 5.24.0 for models that need version 5 (those that say so are left alone otherwise), and torch 2.6.0.
"""
import copy
import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

import older_models
import remote_code_models
import text_models

TOKENS = 72
VOCAB = 64
FOLDER = Path(__file__).parent / "seeded"

IDS = dict(vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, pad_token_id=0)
SMALL = dict(IDS, hidden_size=32, intermediate_size=48, num_attention_heads=4, max_position_embeddings=128)
GROUPED = dict(SMALL, num_key_value_heads=2)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
EXPERTS = dict(GROUPED, num_hidden_layers=3, num_experts_per_tok=2)
QWEN_MOE = dict(EXPERTS, num_experts=8, moe_intermediate_size=24)
SIGMOID = dict(EXPERTS, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, head_dim=16)
DELTA = dict(rms_norm_eps=1e-3, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4)
MAMBA2 = dict(IDS, hidden_size=32, num_heads=4, head_dim=16, state_size=24, n_groups=1, expand=2, chunk_size=16)
HYBRID = dict(mamba_n_heads=4, mamba_d_head=16, mamba_d_state=24, mamba_n_groups=1, mamba_expand=2, mamba_chunk_size=16)
FALCON_H1 = dict(GROUPED, mamba_d_ssm=48, mamba_n_heads=6, mamba_d_head="auto", mamba_d_state=16, mamba_chunk_size=16, rope_theta=500.0,
                 embedding_multiplier=3.0, lm_head_multiplier=0.7, mlp_multipliers=[0.8, 1.3], key_multiplier=1.7, attention_out_multiplier=0.6,
                 attention_in_multiplier=1.2, ssm_multipliers=[0.9, 1.4, 0.7, 1.2, 0.6], ssm_in_multiplier=1.1, ssm_out_multiplier=0.8)
NEMOTRON_H = dict(GROUPED, head_dim=16, mamba_num_heads=6, mamba_head_dim=8, ssm_state_size=16, n_groups=2, chunk_size=16, needs=5,
                  published=dict(prefix="backbone"), no_step_min=True)
ERNIE_MOE = dict(EXPERTS, moe_num_experts=8, moe_k=2, moe_intermediate_size=24)
LLAMA4 = dict(EXPERTS, num_hidden_layers=6, intermediate_size=24, intermediate_size_mlp=48, head_dim=16, num_experts_per_tok=1,
              attention_chunk_size=16, attn_scale=0.4, floor_scale=8, rope_scaling=None)
GRANITE_MOE = dict(EXPERTS, intermediate_size=24, num_local_experts=8, tie_word_embeddings=True, embedding_multiplier=3.0,
                   residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=4.0)
LATENT = dict(EXPERTS, num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, n_shared_experts=2,
              first_k_dense_replace=1, q_lora_rank=20, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12)
RWKV = dict(IDS, num_hidden_layers=3, tie_word_embeddings=False)
MINICPM3 = dict(SMALL, num_hidden_layers=3, tie_word_embeddings=False, rms_norm_eps=1e-6, rope_theta=500.0, hidden_act="silu",
                scale_emb=4.0, scale_depth=1.1, dim_model_base=100, q_lora_rank=20, kv_lora_rank=24, qk_nope_head_dim=10, qk_rope_head_dim=8, v_head_dim=12)


def windows(layers, period):
    return ["full_attention" if (i + 1) % period == 0 else "sliding_attention" for i in range(layers)]


def mixers(layers, other, *attention):
    return ["full_attention" if i in attention else other for i in range(layers)]


def granite_layers(letters):
    return [{"m": "mamba", "a": "attention"}[letter] for letter in letters]


def nemotron_layers(letters):
    return [{"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}[letter] for letter in letters]


def longrope(n):
    return {"type": "longrope", "short_factor": [1.0 + 0.1 * i for i in range(n)], "long_factor": [1.0 + 2.0 * i for i in range(n)]}


GEMMA4_ROPE = {"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 500.0},
               "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}
GEMMA4 = dict(GROUPED, head_dim=16, global_head_dim=24, sliding_window=9, hidden_size_per_layer_input=0, rope_parameters=GEMMA4_ROPE, needs=5)
GEMMA3N = dict(GROUPED, head_dim=16, sliding_window=9, hidden_size_per_layer_input=12, laurel_rank=6, final_logit_softcapping=6.0, needs=5,
               rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500.0},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})
MINICPM = dict(architectures=["MiniCPMForCausalLM"], scale_emb=4.0, scale_depth=1.1, dim_model_base=100)
PHIMOE = dict(longrope(4), original_max_position_embeddings=48, short_mscale=1.2, long_mscale=1.2)
MINISTRAL = dict(YARN, original_max_position_embeddings=24, rope_theta=500.0, beta_fast=4.0, beta_slow=0.5, mscale=1.0, mscale_all_dim=1.0,
                 llama_4_scaling_beta=0.3)


# "gate_up" and "down" of all experts, and what else has another name.
MINIMAX = dict(mlp="block_sparse_moe", gate="w1", up="w3", down="w2")

MINIMAX3 = dict(MINIMAX, gate_up=True, own_dense=True, renames=[(".mlp.gate.e_score", ".mlp.e_score")] + [
    (f".indexer.{part}_", f".index_{part}_") for part in "qk"])

# A tensor for each expert, under the names of most published folders.
EACH = dict(mlp="mlp", gate="gate_proj", up="up_proj", down="down_proj")
INDEXED = dict(LATENT, index_topk=8, index_head_dim=64, needs=5, published=EACH)
AFMOE = dict(EXPERTS, num_hidden_layers=5, layer_types=windows(5, 4), sliding_window=9, head_dim=16, num_experts=8, num_experts_per_tok=3,
             moe_intermediate_size=24, num_shared_experts=2, num_dense_layers=1, route_scale=2.5, mup_enabled=True, rope_theta=500.0, needs=5,
             published=EACH)
LAGUNA_ROPE = {"full_attention": dict(YARN, rope_theta=500.0, partial_rotary_factor=0.5, beta_fast=4.0, beta_slow=0.5),
               "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0}}
LAGUNA = dict(EXPERTS, head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, shared_expert_intermediate_size=40,
              moe_routed_scaling_factor=1.5, rope_parameters=LAGUNA_ROPE, needs=5, published=dict(EACH, renames=[
                  (".mlp.gate.e_score", ".mlp.experts.e_score"), (".shared_experts.", ".shared_expert.")]))
STEP = dict(EXPERTS, head_dim=16, num_hidden_layers=5, sliding_window=9, layer_types=["full_attention"] + ["sliding_attention"] * 3 + [
    "full_attention"], num_sliding_attention_heads=6, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, share_expert_dim=40,
    moe_router_scaling_factor=1.5, mlp_layer_types=["dense"] + ["sparse"] * 4, swiglu_limits=[None, 0.0, 0.6, 0.9, 1.5],
    swiglu_limits_shared=[0.8, 0.0, 0.5, 1.0, None], needs=5, plus_one=True, rope_parameters={
        "full_attention": dict(LLAMA3, rope_theta=500.0, partial_rotary_factor=0.5),
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0}},
    published=dict(stacked=True, renames=[(".mlp.gate.weight", ".moe.gate.weight"), (".mlp.gate.e_score_correction_bias", ".moe.router_bias"),
                                          (".mlp.experts.", ".moe."), (".mlp.shared_experts.", ".share_expert.")]))
MUSE = dict(GROUPED, num_hidden_layers=6, head_dim=16, sliding_window=9, layer_types=windows(8, 4)[2:], qk_scale_factor=1.7,
            output_multiplier=0.6, final_logit_softcapping=5.0, post_norm_eps=1e-8, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
            needs=5, plus_one=True, known_as=dict(architectures=["MuseGlimmerForConditionalGeneration"], output_multiplier=0.6))

# As published folders have it.
STEP_ROPE = {kind: {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share} for kind, base, share in (
    ("full_attention", 500.0, 0.5), ("sliding_attention", 100.0, 1.0))}
STEP_LAYERS = ["full_attention", "sliding_attention", "sliding_attention"]
STEP_PUBLISHED = dict(STEP, num_hidden_layers=3, layer_types=STEP_LAYERS, rope_parameters=STEP_ROPE, mlp_layer_types=["dense", "sparse", "sparse"],
                      swiglu_limits=[0.0, 0.0, 0.7], swiglu_limits_shared=[0.0, 0.6, 0.0], written=dict(
    SMALL, architectures=["Step3p5ForCausalLM"], model_type="step3p5", num_hidden_layers=3, head_dim=16, rms_norm_eps=1e-5,
    num_attention_groups=2, attention_other_setting=dict(attention_type="sliding_attention", num_attention_heads=6, num_attention_groups=2),
    layer_types=STEP_LAYERS + ["sliding_attention"], num_nextn_predict_layers=1, sliding_window=9, rope_theta=[500.0, 100.0, 100.0, 100.0],
    partial_rotary_factors=[0.5, 1.0, 1.0, 1.0], moe_layers_enum="1,2", moe_num_experts=8, moe_top_k=3, moe_intermediate_size=24,
    share_expert_dim=40, moe_router_scaling_factor=1.5, norm_expert_weight=True, swiglu_limits=[0.0, 0.0, 0.7, 0.0],
    swiglu_limits_shared=[0.0, 0.6, 0.0, 0.0], tie_word_embeddings=False))
EXAONE = {"architectures": ["ExaoneForCausalLM"], "model_type": "exaone", "num_layers": 3, "activation_function": "silu",
          "layer_norm_epsilon": 1e-5, "rope_theta": 500.0, "rope_scaling": LLAMA3, "head_dim": 16, "tie_word_embeddings": False}
GPT = dict(IDS, n_embd=32, n_layer=3, n_head=4, n_positions=128, layer_norm_epsilon=1e-4)
# A sliding window of so many positions in front of the query's own.
MIMO = dict(EXPERTS, num_hidden_layers=4, head_dim=24, v_head_dim=16, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
            attention_value_scale=0.6, sliding_window=9, needs=5, rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.334},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.334}})
KOLIBRI = dict(EXPERTS, head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, shared_expert_intermediate_size=24,
               sliding_window=9, needs=5, published=dict(EACH, renames=[
                   (".mlp.gate.e_score_correction_bias", ".moe.router.expert_bias"), (".post_self_attn_layernorm.", ".post_attn_norm."),
                   (".post_mlp_layernorm.", ".post_ffn_norm.")]))
GRANITE_SWA = dict(GROUPED, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=2.5, sliding_window=9,
                   needs=5)
KDA = dict(EXPERTS, num_key_value_heads=None, num_experts=8, moe_intermediate_size=24, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8,
           v_head_dim=12, routed_scaling_factor=1.8, needs=5)
KIMI = dict(KDA, linear_num_heads=4, linear_head_dim=16, linear_conv_kernel_dim=4, num_experts_per_token=3, rms_norm_eps=1e-5)
KIMI_NAMES = dict(MINIMAX, convs=True, own_dense=True, renames=[(".self_attn.forget_gate.", ".self_attn.")])
KIMI_INNER = dict(head_dim=16, num_heads=4, short_conv_kernel_size=4, full_attn_layers=[2, 4], kda_layers=[1, 3, 5])
LING = dict(KDA, num_experts=12, num_experts_per_tok=3, num_shared_experts=1, n_group=3, topk_group=2, head_dim=16, short_conv_kernel_size=4,
            rope_theta=500.0)
LING_NAMES = dict(EACH, convs=True, renames=[("model.embed_tokens.", "model.word_embeddings."), (".self_attn.", ".attention."), (
    ".forget_gate.", "."), (".o_proj.", ".dense."), (".gate.e_score_correction_bias", ".gate.expert_bias")])
# Qwen 4 (experimental): the table of n-grams is in shards. The end of a text is a token that stands among the others, twice side by side.
QWEN4 = dict(QWEN_MOE | DELTA, head_dim=16, num_experts_per_tok=3, shared_expert_intermediate_size=40, output_gate_type="sigmoid", eos_token_id=43,
             indexer_kv_heads=1, needs=5, plus_one=True)
VISION_ROPE = {"rope_type": "default", "rope_theta": 500.0, "mrope_section": [3, 3, 2]}


def of_images(name, **settings):
    return dict(GROUPED, head_dim=16, num_hidden_layers=3, rope_parameters=VISION_ROPE, needs=5, known_as=dict(
        architectures=[f"{name}ForConditionalGeneration"]), **settings)


# Name: (class, settings); "context" and "tokens" are of the session, "plus_one" says that norms multiply by 1 + weight,
# "needs" is the major version of transformers where it is not 4, "published" names tensors as folders do,
# "known_as" are settings of another class with the same formulas.
MODELS = {
    "llama-yarn": ("Llama", dict(GROUPED, num_hidden_layers=2, rope_scaling=YARN)),
    "llama-yarn-betas": ("Llama", dict(GROUPED, num_hidden_layers=2, head_dim=24, rope_theta=500.0, rope_scaling=dict(
        YARN, beta_fast=4.0, beta_slow=0.5, attention_factor=1.3))),
    "qwen2-yarn": ("Qwen2", dict(GROUPED, num_hidden_layers=2, rope_scaling=dict(YARN, factor=2.0))),
    "gemma": ("Gemma", dict(GROUPED, num_hidden_layers=3, head_dim=24, hidden_act="gelu_pytorch_tanh", plus_one=True)),
    "phi2": ("Phi", dict(SMALL, num_hidden_layers=3, hidden_act="gelu_new", partial_rotary_factor=0.5, layer_norm_eps=1e-4)),
    "phi2-grouped": ("Phi", dict(GROUPED, num_hidden_layers=2, hidden_act="gelu_new", partial_rotary_factor=0.25)),
    "phi3-long": ("Phi3", dict(GROUPED, num_hidden_layers=2, sliding_window=None, original_max_position_embeddings=48,
                               rope_scaling=longrope(4))),
    "phi3-short": ("Phi3", dict(GROUPED, num_hidden_layers=2, sliding_window=None, original_max_position_embeddings=48,
                                rope_scaling=longrope(4), context=48, tokens=40)),
    "phi3-partial": ("Phi3", dict(GROUPED, num_hidden_layers=2, sliding_window=11, original_max_position_embeddings=48,
                                  partial_rotary_factor=0.75, rope_scaling=longrope(3))),
    "olmo2": ("Olmo2", dict(GROUPED, num_hidden_layers=3, rope_theta=500.0)),
    "olmo3": ("Olmo3", dict(GROUPED, num_hidden_layers=6, sliding_window=9, layer_types=windows(6, 4), rope_scaling=YARN)),
    # Layers with a window have a base of their own, as version 5 may write it.
    "olmo3-bases": ("Olmo3", dict(GROUPED, num_hidden_layers=4, sliding_window=9, layer_types=windows(4, 4), needs=5, rope_parameters={
        "full_attention": dict(YARN, rope_theta=500.0), "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})),
    "olmo": ("Olmo", dict(GROUPED, num_hidden_layers=3, clip_qkv=0.7)),
    "olmo-tied": ("Olmo", dict(SMALL, num_hidden_layers=2, tie_word_embeddings=True)),
    "smollm3": ("SmolLM3", dict(GROUPED, num_hidden_layers=5, no_rope_layer_interval=4, rope_scaling=None)),
    "granite": ("Granite", dict(GROUPED, num_hidden_layers=3, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2,
                                logits_scaling=2.5)),
    "granite-bias": ("Granite", dict(GROUPED, num_hidden_layers=2, embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.5,
                                     logits_scaling=0.5, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    # The class is not one of transformers; Granite's has the same formulas.
    "minicpm": ("Granite", dict(GROUPED, num_hidden_layers=3, embedding_multiplier=4.0, residual_multiplier=1.1 / 3**0.5,
                                attention_multiplier=8**-0.5, logits_scaling=32 / 100, known_as=MINICPM)),
    # The factors beyond the original context, and those up to it.
    "minicpm-long": ("Granite", dict(GROUPED, num_hidden_layers=2, embedding_multiplier=4.0, residual_multiplier=1.1 / 2**0.5,
                                     attention_multiplier=8**-0.5, logits_scaling=32 / 100, known_as=MINICPM,
                                     original_max_position_embeddings=48, rope_scaling=dict(longrope(4), rope_type="longrope"))),
    "minicpm-short": ("Granite", dict(GROUPED, num_hidden_layers=2, embedding_multiplier=4.0, residual_multiplier=1.1 / 2**0.5,
                                      attention_multiplier=8**-0.5, logits_scaling=32 / 100, known_as=MINICPM,
                                      original_max_position_embeddings=48, rope_scaling=dict(longrope(4), rope_type="longrope"),
                                      context=48, tokens=40)),
    "command-r": ("Cohere", dict(GROUPED, num_hidden_layers=3, logit_scale=0.3)),
    "command-r-norms": ("Cohere", dict(GROUPED, num_hidden_layers=2, logit_scale=2.0, use_qk_norm=True)),
    "cohere2": ("Cohere2", dict(GROUPED, num_hidden_layers=6, logit_scale=0.5, sliding_window=9, layer_types=windows(6, 4))),
    "exaone4": ("Exaone4", dict(GROUPED, num_hidden_layers=6, sliding_window=9, sliding_window_pattern=4, layer_types=windows(6, 4),
                                rope_scaling=LLAMA3)),
    "exaone4-full": ("Exaone4", dict(GROUPED, num_hidden_layers=2, sliding_window=None, sliding_window_pattern=None, head_dim=24,
                                     layer_types=["full_attention"] * 2, tie_word_embeddings=True)),
    "starcoder2": ("Starcoder2", dict(GROUPED, num_hidden_layers=3, use_bias=True, hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-4)),
    "starcoder2-window": ("Starcoder2", dict(GROUPED, num_hidden_layers=2, sliding_window=10, hidden_act="gelu_pytorch_tanh",
                                             tie_word_embeddings=False)),
    "stablelm": ("StableLm", dict(GROUPED, num_hidden_layers=3, partial_rotary_factor=0.25, use_qkv_bias=True, use_parallel_residual=False)),
    "stablelm-parallel": ("StableLm", dict(GROUPED, num_hidden_layers=3, partial_rotary_factor=0.5, use_parallel_residual=True)),
    "stablelm-norms": ("StableLm", dict(GROUPED, num_hidden_layers=2, partial_rotary_factor=0.25, use_parallel_residual=True, qk_layernorm=True)),
    "glm4": ("Glm4", dict(GROUPED, num_hidden_layers=3, head_dim=16, partial_rotary_factor=0.5, attention_bias=True)),
    "chatglm": ("Glm", dict(GROUPED, num_hidden_layers=3, head_dim=16, partial_rotary_factor=0.5, attention_bias=True)),
    "seed_oss": ("SeedOss", dict(GROUPED, num_hidden_layers=3, head_dim=16, attention_bias=True, attention_out_bias=False)),
    "ernie4_5": ("Ernie4_5", dict(GROUPED, num_hidden_layers=3, head_dim=16, use_bias=True, tie_word_embeddings=False)),
    "ernie4_5-tied": ("Ernie4_5", dict(GROUPED, num_hidden_layers=2, head_dim=8, use_bias=False, tie_word_embeddings=True)),
    "hunyuan-dense": ("HunYuanDenseV1", dict(GROUPED, num_hidden_layers=3, head_dim=16, rope_scaling={
        "type": "dynamic", "rope_type": "dynamic", "factor": 1.0, "alpha": 50.0})),
    "nemotron": ("Nemotron", dict(GROUPED, num_hidden_layers=3, hidden_act="relu2", partial_rotary_factor=0.5, plus_one=True)),
    "gpt2": ("GPT2LMHead", dict(IDS, n_embd=32, n_layer=3, n_head=4, n_positions=96, context=96)),
    "gptneox": ("GPTNeoX", dict(SMALL, num_hidden_layers=3, rotary_pct=0.25, hidden_act="gelu", use_parallel_residual=True)),
    "gptneox-sequential": ("GPTNeoX", dict(SMALL, num_hidden_layers=2, rotary_pct=0.5, rotary_emb_base=500, hidden_act="gelu",
                                           use_parallel_residual=False)),
    "falcon-multi-query": ("Falcon", dict(IDS, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, multi_query=True, parallel_attn=True,
                                          new_decoder_architecture=False, bias=False, alibi=False, max_position_embeddings=128)),
    "falcon-two-norms": ("Falcon", dict(IDS, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_kv_heads=2,
                                        new_decoder_architecture=True, bias=False, alibi=False, max_position_embeddings=128)),
    "falcon-one-norm": ("Falcon", dict(IDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_kv_heads=2, num_ln_in_parallel_attn=1,
                                       new_decoder_architecture=True, bias=False, alibi=False, max_position_embeddings=128)),
    # Sequential sublayers with biases and ALiBi, which the class counts twice where attention is "eager".
    "falcon-alibi": ("Falcon", dict(IDS, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, multi_query=False, parallel_attn=False,
                                    new_decoder_architecture=False, bias=True, alibi=True, max_position_embeddings=128, attention="sdpa")),
    "bloom": ("Bloom", dict(IDS, hidden_size=48, n_layer=3, n_head=6)),
    "mpt": ("Mpt", dict(IDS, d_model=48, n_layers=3, n_heads=6, expansion_ratio=4, max_seq_len=128,
                        attn_config={"clip_qkv": 0.8, "alibi": True, "alibi_bias_max": 8})),
    "mixtral": ("Mixtral", dict(EXPERTS, intermediate_size=24, num_local_experts=8, rope_theta=1e6, sliding_window=None)),
    # Weights of experts as they are, a shared expert with a gate.
    "qwen2moe": ("Qwen2Moe", dict(QWEN_MOE, shared_expert_intermediate_size=40, norm_topk_prob=False)),
    # Normalized weights, a layer without experts between others.
    "qwen2moe-normalized": ("Qwen2Moe", dict(QWEN_MOE, shared_expert_intermediate_size=40, norm_topk_prob=True, mlp_only_layers=[1],
                                             tie_word_embeddings=True, rope_scaling=YARN)),
    "qwen3moe": ("Qwen3Moe", dict(QWEN_MOE, num_experts=12, num_experts_per_tok=3, head_dim=16, norm_topk_prob=True, rope_theta=1e6,
                                  rope_scaling=YARN)),
    "qwen3moe-single": ("Qwen3Moe", dict(QWEN_MOE, num_experts=12, num_experts_per_tok=1, head_dim=16, norm_topk_prob=False,
                                         mlp_only_layers=[0], tie_word_embeddings=True)),
    "dots1": ("Dots1", dict(SIGMOID, n_shared_experts=2, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5)),
    "glm4moe": ("Glm4Moe", dict(SIGMOID, n_shared_experts=1, first_k_dense_replace=1, attention_bias=True, routed_scaling_factor=1.5)),
    "glm4moe-norms": ("Glm4Moe", dict(SIGMOID, n_shared_experts=2, first_k_dense_replace=0, use_qk_norm=True, partial_rotary_factor=0.25,
                                      norm_topk_prob=False)),
    "ernie4_5-moe": ("Ernie4_5_Moe", dict(ERNIE_MOE, moe_num_shared_experts=2)),
    "ernie4_5-moe-step": ("Ernie4_5_Moe", dict(ERNIE_MOE, moe_k=3, moe_num_shared_experts=0, moe_layer_interval=2, tie_word_embeddings=False)),
    "olmoe": ("Olmoe", dict(EXPERTS, intermediate_size=24, num_experts=8, num_experts_per_tok=3)),
    # Experts in one tensor; in the second, a shared one whose gate and up are one.
    "granitemoe": ("GraniteMoe", GRANITE_MOE),
    "granitemoe-shared": ("GraniteMoeShared", dict(GRANITE_MOE, shared_intermediate_size=40)),
    # Experts in all layers; in every second one, where the number of experts says that queries and keys have no norms; in none, where all
    # layers see everything.
    "llama4": ("Llama4", dict(LLAMA4, num_local_experts=4, interleave_moe_layer_step=1)),
    "llama4-step": ("Llama4", dict(LLAMA4, num_local_experts=128, interleave_moe_layer_step=2, use_qk_norm=False, no_rope_layer_interval=3,
                                   attention_chunk_size=11, tie_word_embeddings=True,
                                   rope_scaling=dict(LLAMA3, high_freq_factor=1.0))),
    "llama4-dense": ("Llama4", dict(LLAMA4, num_local_experts=0, moe_layers=[], num_hidden_layers=2, no_rope_layers=[1, 1],
                                    layer_types=["full_attention"] * 2, attn_temperature_tuning=False)),
    # Windows in every second layer, a prompt longer than the context that YaRN stretches; gates and ups are large enough for their
    # bounds.
    "gpt-oss": ("GptOss", dict(EXPERTS, gate_spread=6.0, num_hidden_layers=4, head_dim=16, intermediate_size=24, num_local_experts=8, num_experts_per_tok=3,
                               sliding_window=9, rope_theta=500.0, rope_scaling=dict(
                                   YARN, original_max_position_embeddings=24, beta_fast=2.0, beta_slow=0.5, truncate=False))),
    # Convolutions over three and four rows; layers of attention between them, in the second without widths that the class changes.
    "lfm2": ("Lfm2", dict(GROUPED, intermediate_size=60, num_hidden_layers=5, layer_types=mixers(5, "conv", 1, 4), conv_L_cache=3,
                          block_auto_adjust_ff_dim=True, block_multiple_of=16)),
    "lfm2-bias": ("Lfm2", dict(GROUPED, num_hidden_layers=4, layer_types=mixers(4, "conv", 2), conv_L_cache=4, conv_bias=True,
                               block_auto_adjust_ff_dim=False, tie_word_embeddings=False)),
    # Gated delta nets; two and four value heads for each key head.
    "qwen3next": ("Qwen3Next", dict(QWEN_MOE | DELTA, num_hidden_layers=4, head_dim=16, shared_expert_intermediate_size=40, plus_one=True)),
    "qwen3next-four": ("Qwen3Next", dict(QWEN_MOE | DELTA, num_hidden_layers=3, head_dim=8, linear_num_key_heads=1, linear_num_value_heads=4,
                                         linear_key_head_dim=20, linear_value_head_dim=24, linear_conv_kernel_dim=3, partial_rotary_factor=0.5,
                                         mlp_only_layers=[0], shared_expert_intermediate_size=40, plus_one=True,
                                         layer_types=mixers(3, "linear_attention", 2))),
    # These need transformers 5.23.
    "qwen35": ("Qwen3_5", dict(GROUPED | DELTA, num_hidden_layers=4, head_dim=16, plus_one=True)),
    "qwen35-four": ("Qwen3_5", dict(GROUPED | DELTA, num_hidden_layers=4, head_dim=8, linear_num_key_heads=3, linear_num_value_heads=12,
                                    linear_key_head_dim=12, linear_value_head_dim=20, tie_word_embeddings=True, plus_one=True,
                                    layer_types=mixers(4, "linear_attention", 1, 3))),
    "qwen35moe": ("Qwen3_5Moe", dict(QWEN_MOE | DELTA, num_hidden_layers=4, head_dim=16, shared_expert_intermediate_size=40, plus_one=True)),
    "lfm2moe": ("Lfm2Moe", dict(QWEN_MOE, num_hidden_layers=4, num_dense_layers=1, layer_types=mixers(4, "conv", 1, 3), norm_topk_prob=True,
                                routed_scaling_factor=1.5)),
    "mamba2": ("Mamba2", dict(MAMBA2, num_hidden_layers=3)),
    # Groups are normed one by one, as mamba_ssm does it and transformers does not.
    "mamba2-groups": ("Mamba2", dict(MAMBA2, num_hidden_layers=2, n_groups=2, conv_kernel=3, head_dim=20, num_heads=6, hidden_size=60,
                                     use_bias=True, group_norm=True)),
    "granitehybrid": ("GraniteMoeHybrid", dict(GRANITE_MOE | HYBRID, num_hidden_layers=4, shared_intermediate_size=40,
                                               position_embedding_type="rope", layer_types=granite_layers("mama"))),
    "granitehybrid-dense": ("GraniteMoeHybrid", dict(GRANITE_MOE | HYBRID, num_hidden_layers=3, num_local_experts=0, mamba_conv_bias=False,
                                                     mamba_proj_bias=True, shared_intermediate_size=40, position_embedding_type="nope",
                                                     layer_types=granite_layers("mam"))),
    "falcon-h1": ("FalconH1", dict(FALCON_H1, num_hidden_layers=3, mamba_n_groups=2, mamba_rms_norm=True, mamba_norm_before_gate=False,
                                   head_dim=16)),
    "falcon-h1-tied": ("FalconH1", dict(FALCON_H1, num_hidden_layers=2, mamba_n_groups=1, mamba_d_ssm=64, mamba_n_heads=4,
                                        mamba_conv_bias=False, mamba_proj_bias=True, projectors_bias=True,
                                        tie_word_embeddings=True)),
    "mamba": ("Mamba", dict(IDS, hidden_size=32, state_size=16, num_hidden_layers=2, time_step_rank="auto", expand=2)),
    "mamba-bias": ("Mamba", dict(IDS, hidden_size=40, state_size=6, num_hidden_layers=2, time_step_rank=5, conv_kernel=3, use_bias=True,
                                 use_conv_bias=False, tie_word_embeddings=False)),
    "mamba-falcon": ("FalconMamba", dict(IDS, hidden_size=32, state_size=16, num_hidden_layers=2, time_step_rank=4, mixer_rms_eps=1e-3,
                                         tie_word_embeddings=False)),
    "jamba": ("Jamba", dict(EXPERTS, num_hidden_layers=3, num_experts=8, mamba_d_state=16, mamba_dt_rank=4, attn_layer_period=3,
                            attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1, use_mamba_kernels=False)),
    "jamba-dense": ("Jamba", dict(GROUPED, num_hidden_layers=2, num_experts=1, num_experts_per_tok=1, mamba_d_state=8, mamba_dt_rank="auto",
                                  mamba_d_conv=3, attn_layer_period=2, attn_layer_offset=0, use_mamba_kernels=False,
                                  tie_word_embeddings=True)),
    # Without a lower bound of steps, which the class has and the definition of the published models has not.
    "nemotron_h": ("NemotronH", dict(NEMOTRON_H, layers_block_type=nemotron_layers("M*-MM-*"))),
    "nemotron_h_moe": ("NemotronH", dict(NEMOTRON_H, layers_block_type=nemotron_layers("ME*EM"), n_routed_experts=8, num_experts_per_tok=3,
                                         moe_intermediate_size=24, moe_shared_expert_intermediate_size=40, routed_scaling_factor=2.5,
                                         n_group=1, topk_group=1)),
    "nemotron_h_moe-latent": ("NemotronH", dict(NEMOTRON_H, layers_block_type=nemotron_layers("EM*E"), n_routed_experts=12,
                                                num_experts_per_tok=3, moe_intermediate_size=24, moe_shared_expert_intermediate_size=40,
                                                moe_latent_size=20, n_group=3, topk_group=2, norm_topk_prob=False)),
    "nemotron_h_moe-mixed": ("NemotronH", dict(NEMOTRON_H, layers_block_type=nemotron_layers("M-*E"), n_routed_experts=8, num_experts_per_tok=2,
                                               moe_intermediate_size=24, moe_shared_expert_intermediate_size=24)),
    # Heads that differ in size between both kinds of layers; values that are keys; the last layers read keys of earlier ones, and have wider
    # feed-forwards and inputs by the token; experts beside each feed-forward.
    "gemma4": ("Gemma4", dict(GEMMA4, num_hidden_layers=7, layer_types=windows(7, 3)[:6] + ["full_attention"], attention_k_eq_v=True,
                              num_global_key_value_heads=1, final_logit_softcapping=5.0)),
    "gemma4-inputs": ("Gemma4", dict(GEMMA4, num_hidden_layers=8, layer_types=windows(8, 4), num_kv_shared_layers=4, num_key_value_heads=1,
                                     final_logit_softcapping=9.0, use_double_wide_mlp=True, hidden_size_per_layer_input=12, vocab_size_per_layer_input=VOCAB,
                                     rope_parameters=dict(GEMMA4_ROPE, full_attention=dict(
                                         GEMMA4_ROPE["full_attention"], partial_rotary_factor=0.5, factor=2.0)))),
    # The keys that are read stand further back; no cap.
    "gemma4-shared": ("Gemma4", dict(GEMMA4, num_hidden_layers=6, num_kv_shared_layers=2, attention_bias=True, hidden_size_per_layer_input=8,
                                     vocab_size_per_layer_input=VOCAB, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"])),
    "gemma4-moe": ("Gemma4", dict(GEMMA4, num_hidden_layers=4, layer_types=windows(4, 2), enable_moe_block=True, num_experts=8, top_k_experts=3,
                                  moe_intermediate_size=24, attention_k_eq_v=True, num_global_key_value_heads=2, final_logit_softcapping=8.0)),
    # The stream is halved after the second layer; then without that, and with one head.
    "rwkv6": ("Rwkv6", dict(RWKV, hidden_size=64, head_size=32, intermediate_size=96, layer_norm_epsilon=1e-5, head_size_divisor=8,
                            rescale_every=2)),
    "rwkv6-one": ("Rwkv6", dict(RWKV, num_hidden_layers=2, hidden_size=40, head_size=40, intermediate_size=96, layer_norm_epsilon=1e-4,
                                head_size_divisor=8, rescale_every=0)),
    "rwkv7": ("RWKV7", dict(RWKV, hidden_size=128, head_dim=64, intermediate_size=96, norm_eps=1e-5, norm_first=True, hidden_act="sqrelu",
                            decay_low_rank_dim=12, a_low_rank_dim=8, v_low_rank_dim=6, gate_low_rank_dim=20)),
    # Several streams; few active gates in the first layers; keys of earlier layers; tokens without inputs of their own.
    "gemma3n": ("Gemma3n", dict(GEMMA3N, num_hidden_layers=7, num_kv_shared_layers=3, layer_types=windows(7, 3),
                                activation_sparsity_pattern=[0.9, 0.6, 0.3] + [0.0] * 4, vocab_size_per_layer_input=50)),
    "gemma3n-three": ("Gemma3n", dict(GEMMA3N, num_hidden_layers=3, num_kv_shared_layers=1, altup_num_inputs=3, altup_correct_scale=False,
                                      layer_types=["full_attention", "sliding_attention", "full_attention"], intermediate_size=[48, 40, 56],
                                      activation_sparsity_pattern=[0.0, 0.8, 0.0], vocab_size_per_layer_input=VOCAB, attention_bias=True)),
    # Experts under the names of the published folders; the class keeps them in one tensor.
    "minimax-m2": ("MiniMaxM2", dict(EXPERTS, num_local_experts=8, num_experts_per_tok=3, intermediate_size=24, head_dim=16, rotary_dim=8,
                                     rope_theta=500.0, needs=5, published=MINIMAX)),
    "mistral3": ("Ministral3", dict(GROUPED, num_hidden_layers=3, head_dim=16, needs=5, rope_parameters=MINISTRAL)),
    "mistral3-window": ("Ministral3", dict(GROUPED, num_hidden_layers=2, head_dim=16, sliding_window=11, tie_word_embeddings=True, needs=5,
                                           rope_parameters=dict(MINISTRAL, mscale=0.7, mscale_all_dim=1.3, llama_4_scaling_beta=0.5))),
    # In one of thirty choices another expert is close enough to take a share of the weight.
    "phimoe-long": ("Phimoe", dict(EXPERTS, intermediate_size=24, num_local_experts=8, sliding_window=None, attention_bias=True,
                                   lm_head_bias=True, rope_scaling=PHIMOE)),
    "phimoe-short": ("Phimoe", dict(EXPERTS, intermediate_size=24, num_local_experts=8, sliding_window=None, rope_scaling=PHIMOE,
                                    context=48, tokens=40)),
    # Gates of the attention's result: for each value and, in the first two families, for each head.
    "afmoe": ("Afmoe", AFMOE),
    "laguna": ("Laguna", dict(LAGUNA, num_hidden_layers=5, layer_types=["full_attention"] + windows(4, 4), sliding_window=9,
                              num_attention_heads_per_layer=[4, 6, 6, 2, 4])),
    "laguna-element": ("Laguna", dict(LAGUNA, num_hidden_layers=3, gating="per-element", tie_word_embeddings=True,
                                      mlp_layer_types=["dense", "dense", "sparse"])),
    "qwen3vl": ("Qwen3VL", of_images("Qwen3VL")),
    "qwen3vlmoe": ("Qwen3VLMoe", of_images("Qwen3VLMoe", num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, mlp_only_layers=[1],
                                           published=dict(transposed=True))),
    "qwen2vl": ("Qwen2_5_VL", dict(of_images("Qwen2_5_VL", rms_norm_eps=1e-5), hidden_size=64)),
    "arcee": ("Arcee", dict(GROUPED, num_hidden_layers=3, head_dim=16, rope_parameters=dict(YARN, rope_theta=500.0), needs=5)),
    "hy_v3": ("HYV3", dict(EXPERTS, head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, num_shared_experts=2,
                           router_scaling_factor=1.7, rope_parameters={"rope_type": "default", "rope_theta": 500.0}, needs=5,
                           published=dict(EACH, renames=[(".mlp.gate.weight", ".mlp.router.gate.weight"), (".shared_experts.", ".shared_mlp."),
                                                         (".mlp.e_score_correction_bias", ".mlp.expert_bias")]))),
    "exaone-moe": ("ExaoneMoe", dict(EXPERTS, num_hidden_layers=5, head_dim=16, num_experts=12, num_experts_per_tok=3, moe_intermediate_size=24,
                                     num_shared_experts=2, routed_scaling_factor=2.5, n_group=3, topk_group=2, sliding_window=9,
                                     layer_types=windows(5, 4), first_k_dense_replace=1, needs=5, rope_parameters=dict(LLAMA3, rope_theta=500.0),
                                     published=dict(EACH, renames=[(".mlp.gate.e_score", ".mlp.e_score")]))),
    # Layers without experts, which are rotated, and in the second model RMS norms, a sigmoid and a shared expert.
    "cohere2moe": ("Cohere2Moe", dict(EXPERTS, num_hidden_layers=6, intermediate_size=24, head_dim=16, num_experts=8, num_experts_per_tok=3,
                                      logit_scale=0.5, sliding_window=9, layer_types=["full_attention"] * 2 + windows(4, 4), needs=5,
                                      mlp_layer_types=["dense"] * 2 + ["sparse"] * 4, prefix_dense_intermediate_size=48, published=EACH)),
    "cohere2moe-shared": ("Cohere2Moe", dict(EXPERTS, intermediate_size=24, head_dim=16, num_experts=8, num_experts_per_tok=3, rms_norm_eps=1e-4,
                                             logit_scale=2.0, sliding_window=9, layer_types=windows(3, 2), mlp_layer_types=["sparse"] * 3,
                                             num_shared_experts=2, expert_selection_fn="sigmoid", norm_topk_prob=False, needs=5, published=EACH)),
    "bailingmoe2": ("BailingMoeV2", dict(EXPERTS, hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=False, head_dim=8, num_experts=12,
                                         num_experts_per_tok=3, moe_intermediate_size=24, num_shared_experts=1, first_k_dense_replace=1,
                                         n_group=3, topk_group=2, routed_scaling_factor=2.5, partial_rotary_factor=0.5, rope_theta=500.0,
                                         score_function="sigmoid", norm_topk_prob=True, use_qk_norm=True)),
    # Decays of two steps, latent attention without positions; as transformers writes its settings, and as published folders have them.
    "kimi-linear": ("KimiLinear", dict(KIMI, num_hidden_layers=5, num_shared_experts=1, layer_types=mixers(5, "linear_attention", 2, 4),
                                       published=dict(KIMI_NAMES, own_dense=False))),
    "kimi-linear-published": ("KimiLinear", dict(KIMI, num_hidden_layers=5, num_shared_experts=2, num_expert_group=4, topk_group=2, moe_renormalize=False,
                                                 layer_types=mixers(5, "linear_attention", 1, 3), published=KIMI_NAMES, written=dict(
        SMALL, architectures=["KimiLinearForCausalLM"], num_hidden_layers=5, hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=False,
        model_max_length=128, num_key_value_heads=4, head_dim=24, first_k_dense_replace=1, linear_attn_config=KIMI_INNER, kv_lora_rank=24,
        q_lora_rank=None, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, mla_use_nope=True, num_experts=8, num_experts_per_token=3,
        moe_intermediate_size=24, num_shared_experts=2, num_expert_group=4, topk_group=2, moe_renormalize=False, routed_scaling_factor=1.8,
        moe_router_activation_func="sigmoid", use_grouped_topk=True, moe_layer_freq=1))),
    "bailingmoe3": ("BailingHybrid", dict(LING, num_hidden_layers=4, layer_group_size=2, first_k_dense_replace=1, kda_lower_bound=-0.8,
                                          published=LING_NAMES)),
    "bailingmoe3-published": ("BailingHybrid", dict(LING, num_hidden_layers=3, layer_group_size=3, first_k_dense_replace=2, q_lora_rank=20,
                                                    kda_lower_bound=-2.0, published=dict(LING_NAMES, kda_out=True), written=dict(
        SMALL, architectures=["BailingMoeV3ForCausalLM"], num_hidden_layers=3, layer_group_size=3, hidden_act="silu", rms_norm_eps=1e-6,
        tie_word_embeddings=False, num_key_value_heads=4, head_dim=16, short_conv_kernel_size=4, first_k_dense_replace=2, kda_safe_gate=True,
        kda_lower_bound=-2.0, no_kda_lora=True, gated_attention_proj_granularity_type="head_wise", kv_lora_rank=24, q_lora_rank=20,
        qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, rope_theta=500.0, num_experts=12, num_experts_per_tok=3, moe_intermediate_size=24,
        num_shared_experts=1, moe_shared_expert_intermediate_size=24, n_group=3, topk_group=2, norm_topk_prob=True, routed_scaling_factor=1.8,
        score_function="sigmoid", num_nextn_predict_layers=1, expert_swiglu_limit_list=[None, 0.0, 0.0, 0.0]))),
    # Indexers that choose 8 positions, or 2 blocks, by each row. In the second some layers see what an earlier one has chosen. With these
    # numbers of heads no two scores between which a choice lies are equal, where the class does not say which one counts.
    "deepseek32": ("DeepseekV32", dict(INDEXED, n_routed_experts=12, n_group=3, topk_group=2, routed_scaling_factor=2.5, index_n_heads=10,
                                       rope_parameters=dict(YARN, rope_theta=500.0, mscale=0.8, mscale_all_dim=0.8))),
    "glm-dsa": ("GlmMoeDsa", dict(INDEXED, num_hidden_layers=4, n_group=1, topk_group=1, n_shared_experts=1, routed_scaling_factor=1.4,
                                  index_n_heads=12, indexer_types=["full", "shared", "full", "shared"],
                                  rope_parameters={"rope_type": "default", "rope_theta": 500.0})),
    "minimax-m3": ("MiniMaxM3VL", dict(EXPERTS, num_attention_heads=8, num_local_experts=8, num_experts_per_tok=3,
                                       intermediate_size=24, dense_intermediate_size=48, shared_intermediate_size=24, head_dim=16, rotary_dim=8,
                                       routed_scaling_factor=1.7, index_n_heads=2, index_head_dim=24, index_block_size=16, index_topk_blocks=2,
                                       layer_types=["full_attention"] + ["minimax_m3_sparse"] * 2, mlp_layer_types=["dense", "sparse", "sparse"],
                                       rope_parameters={"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}, plus_one=True,
                                       needs=5, published=MINIMAX3)),
    # Three streams, an indexer of 2 blocks; then two streams, 4-grams and blocks of 3.
    "qwen4exp": ("Qwen4Exp", dict(QWEN4, num_hidden_layers=4, hc_count=3, hc_lowrank=12, ple_layer_ids=[2], heads_per_ngram=2,
                                  ngram_vocab_size_base=50, make_ngram_vocab_size_divisible_by=16, split_ngram_parts=5, indexer_n_heads=10,
                                  indexer_head_dim=24, indexer_budget=8, indexer_compress_ratio=4, published=dict(EACH, shards=5), rope_parameters={
                                      "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5})),
    "qwen4exp-two": ("Qwen4Exp", dict(QWEN4, num_hidden_layers=4, layer_types=mixers(4, "linear_attention", 1, 3), hc_count=2, hc_lowrank=20,
                                      ple_layer_ids=[1], ple_embed_dim=36, ngram_size=4, heads_per_ngram=3, ple_conv_kernel_size=3,
                                      ngram_vocab_size_base=30, make_ngram_vocab_size_divisible_by=8, split_ngram_parts=3, indexer_n_heads=12,
                                      indexer_head_dim=16, indexer_budget=12, indexer_compress_ratio=3, tie_word_embeddings=True,
                                      published=dict(EACH, shards=3))),
    "mistral4": ("Mistral4", dict(LATENT, n_group=1, topk_group=1, n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=1.4, needs=5,
                                  rope_parameters=dict(YARN, rope_theta=500.0, mscale=0.8, mscale_all_dim=0.8, llama_4_scaling_beta=0.3))),
    "mistral4-text": ("Mistral4", dict(LATENT, num_hidden_layers=2, n_group=4, topk_group=2, n_shared_experts=2, norm_topk_prob=False, needs=5,
                                       known_as=dict(architectures=["Mistral3ForConditionalGeneration"], model_type="mistral4"),
                                       rope_parameters=dict(YARN, rope_theta=500.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.2))),
    "step35": ("Step3p5", STEP),
    "step35-published": ("Step3p5", STEP_PUBLISHED),
    "muse-glimmer": ("MuseGlimmer", MUSE),
    "maple": ("Maple", dict(EXPERTS, num_hidden_layers=5, hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=False, head_dim=16,
                            num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, layer_types=windows(5, 4), sliding_window=9,
                            partial_rotary_factor=0.5, rope_theta=500.0, nope_on_global_attention=True, wide_gates=True)),
    "spark2_5": ("Spark2_5", dict(GROUPED, num_hidden_layers=5, hidden_act="gelu", rms_norm_eps=1e-5, tie_word_embeddings=True, head_dim=16,
                                  layer_types=windows(5, 4), sliding_window=9, gate_attn_act_mode="sigmoid", headwise_attn_output_gate=True,
                                  rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
                                                   "sliding_attention": {"rope_type": "default", "rope_theta": 100.0,
                                                                         "partial_rotary_factor": 1.0}})),
    # Classes of version 5 that are Llama's under another name; the type "dynamic" changes nothing up to the context.
    "internlm3": ("Llama", dict(GROUPED, num_hidden_layers=2, head_dim=16, rope_theta=500.0, attention_bias=True, mlp_bias=True, written=dict(
        GROUPED, architectures=["InternLM3ForCausalLM"], model_type="internlm3", num_hidden_layers=2, head_dim=16, rope_theta=500.0,
        rms_norm_eps=1e-6, hidden_act="silu", qkv_bias=True, bias=True, rope_scaling={"rope_type": "dynamic", "factor": 6.0},
        tie_word_embeddings=False))),
    "iquestcoder": ("Llama", dict(GROUPED, num_hidden_layers=2, head_dim=16, rope_theta=500.0, written=dict(
        GROUPED, architectures=["IQuestCoderForCausalLM"], model_type="iquestcoder", num_hidden_layers=2, head_dim=16, rope_theta=500.0,
        rms_norm_eps=1e-6, hidden_act="silu", clip_qkv=None, use_sliding_window=False, sliding_window=64, tie_word_embeddings=False))),
    "jais2": ("Jais2", dict(GROUPED, num_hidden_layers=3, head_dim=16, needs=5, rope_parameters=dict(YARN, rope_theta=500.0))),
    "orion": ("Orion", dict(GROUPED, num_hidden_layers=3, hidden_act="silu", rms_norm_eps=1e-4, tie_word_embeddings=False, rope_theta=500.0,
                            max_sequence_length=128)),
    "xverse": ("Xverse", dict(GROUPED, num_hidden_layers=3, hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=False,
                              rope_theta=500.0)),
    "exaone": ("Llama", dict(GROUPED, num_hidden_layers=3, rope_theta=500.0, rope_scaling=LLAMA3, head_dim=16, rms_norm_eps=1e-5,
                             written=dict(GROUPED, **EXAONE), published=dict(EACH, renames=[
        ("model.embed_tokens.", "transformer.wte."), ("model.layers.", "transformer.h."), ("model.norm.", "transformer.ln_f."),
        (".self_attn.o_proj.", ".attn.attention.out_proj."), (".self_attn.", ".attn.attention."), (".input_layernorm.", ".ln_1."),
        (".post_attention_layernorm.", ".ln_2."), (".gate_proj.", ".c_fc_0."), (".up_proj.", ".c_fc_1."), (".down_proj.", ".c_proj.")]))),
    "qwen": ("QWenLMHeadModel", dict(SMALL, num_hidden_layers=3, intermediate_size=96, kv_channels=8, layer_norm_epsilon=1e-5,
                                     rotary_emb_base=500.0, seq_length=128, scale_attn_weights=True, tie_word_embeddings=False,
                                     use_dynamic_ntk=True, use_logn_attn=True)),
    "codeshell": ("CodeShell", dict(GPT, hidden_size=32, num_query_groups=2, group_query_attention=True, position_embedding_type="rope",
                                    activation_function="gelu_pytorch_tanh", tie_word_embeddings=False, rope_scaling=None)),
    # Slopes of six heads.
    "refact": ("GPTRefact", dict(GPT, n_embd=48, n_head=6, n_layer=2, multi_query=True, tie_word_embeddings=False)),
    "starcoder": ("GPTBigCode", dict(GPT, n_inner=None)),
    "starcoder-heads": ("GPTBigCode", dict(GPT, n_layer=2, multi_query=False, n_inner=48, activation_function="gelu")),
    "gptj": ("GPTJ", dict(GPT, n_embd=64, rotary_dim=8, tie_word_embeddings=False, context=128)),
    "bailingmoe": ("BailingMoe", dict(EXPERTS, hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=False, head_dim=16, num_experts=8,
                                      num_experts_per_tok=3, moe_intermediate_size=24, num_shared_experts=2, first_k_dense_replace=1,
                                      norm_topk_prob=True, rope_theta=500.0)),
    "bailingmoe-sum": ("BailingMoe", dict(EXPERTS, num_hidden_layers=2, hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=False,
                                          head_dim=8, num_experts=8, moe_intermediate_size=24, num_shared_experts=1,
                                          first_k_dense_replace=0, norm_topk_prob=False, rope_theta=500.0)),
    "mellum": ("Mellum", dict(EXPERTS, num_hidden_layers=5, head_dim=16, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=24,
                              sliding_window=9, layer_types=windows(5, 4), mlp_layer_types=["dense"] + ["sparse"] * 4, needs=5,
                              published=EACH, rope_parameters={
        "full_attention": dict(YARN, rope_theta=500.0), "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})),
    # As llama.cpp has it: experts in all layers, and one base.
    "mellum-sparse": ("Mellum", dict(EXPERTS, num_hidden_layers=4, head_dim=16, num_experts=8, moe_intermediate_size=24, sliding_window=9,
                                     layer_types=windows(4, 4), needs=5, published=EACH, rope_parameters={
        "full_attention": dict(YARN, rope_theta=500.0), "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}})),
    "kolibri1": ("Kolibri1", dict(KOLIBRI, num_hidden_layers=6, rope_parameters=dict(YARN, rope_theta=500.0))),
    "kolibri1-wide": ("Kolibri1", dict(KOLIBRI, num_hidden_layers=2, shared_expert_intermediate_size=40, norm_topk_prob=True,
                                       layer_types=windows(2, 2), rope_parameters={"rope_type": "default", "rope_theta": 500.0})),
    "hunyuan_vl": ("HunYuanVLText", dict(GROUPED, num_hidden_layers=3, head_dim=16, needs=5, tie_word_embeddings=False, rope_parameters={
        "rope_type": "dynamic", "alpha": 50.0, "rope_theta": 500.0, "factor": 1.0, "mrope_section": [2, 2, 2, 2]},
        known_as=dict(architectures=["HunYuanVLForConditionalGeneration"]))),
    "paddleocr": ("PaddleOCRText", dict(GROUPED, num_hidden_layers=3, head_dim=16, needs=5, tie_word_embeddings=False, rope_parameters=dict(
        VISION_ROPE), known_as=dict(architectures=["PaddleOCRVLForConditionalGeneration"]))),
    "granite_swa": ("GraniteSWA", dict(GRANITE_SWA, num_hidden_layers=6, rope_parameters={"rope_type": "default", "rope_theta": 500.0},
                                       layer_rope_theta=[0, 500.0, 500.0, 500.0, 0, 500.0])),
    "granite_swa-moe": ("GraniteMoeSWA", dict(GRANITE_SWA, num_hidden_layers=4, intermediate_size=24, num_local_experts=8,
                                              num_experts_per_tok=3, shared_intermediate_size=40, layer_types=windows(4, 3), rope_parameters={
        "rope_type": "default", "rope_theta": 500.0})),
    "mimo2": ("MiMoV2Flash", dict(MIMO, layer_types=["full_attention"] + ["sliding_attention"] * 2 + ["full_attention"], published=EACH)),
    "mimo2-published": ("MiMoV2Flash", dict(MIMO, num_hidden_layers=3, sliding_window=10, layer_types=["full_attention"] + [
        "sliding_attention"] * 2, published=dict(EACH, renames=[(".self_attn.sinks", ".self_attn.attention_sink_bias")]), written=dict(
        EXPERTS, architectures=["MiMoV2FlashForCausalLM"], head_dim=24, v_head_dim=16, swa_head_dim=24, swa_v_head_dim=16,
        swa_num_attention_heads=4, swa_num_key_value_heads=4, hidden_act="silu", layernorm_epsilon=1e-5, hybrid_layer_pattern=[0, 1, 1],
        moe_layer_freq=[0, 1, 1], n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, n_group=1, topk_group=1,
        norm_topk_prob=True, topk_method="noaux_tc", scoring_func="sigmoid", rope_theta=500.0, swa_rope_theta=100.0,
        partial_rotary_factor=0.334, sliding_window=9, sliding_window_size=9, attention_value_scale=0.6, routed_scaling_factor=None,
        tie_word_embeddings=False))),
    "apertus": ("Apertus", dict(GROUPED, num_hidden_layers=3, rope_theta=500.0, rope_scaling=LLAMA3)),
    "bitnet": ("BitNet", dict(GROUPED, num_hidden_layers=3, rope_theta=500.0, hidden_act="relu2")),
    "bitnet-silu": ("BitNet", dict(SMALL, num_key_value_heads=4, num_hidden_layers=2, hidden_act="silu", tie_word_embeddings=True)),
    "hunyuan-moe": ("HunYuanMoEV1", dict(EXPERTS, intermediate_size=24, head_dim=16, num_experts=8, moe_topk=[2, 2, 2],
                                         rope_scaling={"type": "dynamic", "alpha": 50.0, "factor": 1.0})),
    "deepseek": ("Deepseek", dict(EXPERTS, tie_word_embeddings=False, rms_norm_eps=1e-6, rope_theta=500.0, hidden_act="silu",
                                  n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, n_shared_experts=2,
                                  first_k_dense_replace=1, norm_topk_prob=False)),
    # Queries in one step and one group, as V2-Lite; then groups that are worth their best expert.
    "deepseek2-lite": ("DeepseekV2", dict(LATENT, q_lora_rank=None, topk_method="greedy", routed_scaling_factor=1.0)),
    "deepseek2-groups": ("DeepseekV2", dict(LATENT, n_routed_experts=12, topk_method="group_limited_greedy", n_group=4, topk_group=2,
                                            n_shared_experts=1, routed_scaling_factor=2.5)),
    # Groups that are worth their best two, a bias of the choice, YaRN; latents so small that many rows are absorbed, too.
    "deepseek2-v3": ("DeepseekV3", dict(LATENT, kv_lora_rank=12, n_routed_experts=12, n_group=3, topk_group=2, routed_scaling_factor=2.5,
                                        rope_scaling=dict(YARN, mscale=0.8, mscale_all_dim=0.8))),
    # One group, as Kimi-K2.
    "deepseek2-kimi": ("DeepseekV3", dict(LATENT, n_group=1, topk_group=1, n_shared_experts=1, routed_scaling_factor=1.4)),
    # GLM-4.7-Flash has the formulas of DeepSeek-V3, and a class in later versions only.
    "deepseek2-glm": ("DeepseekV3", dict(LATENT, num_attention_heads=5, num_key_value_heads=5, kv_lora_rank=40, qk_nope_head_dim=24,
                                         v_head_dim=32, n_group=1, topk_group=1, n_shared_experts=1, routed_scaling_factor=1.8,
                                         known_as=dict(architectures=["Glm4MoeLiteForCausalLM"]))),
    "minicpm3-long": ("MiniCPM3", dict(MINICPM3, session_context=128, rope_scaling=dict(longrope(4), original_max_position_embeddings=48))),
    # With the factors of the released models.
    "minicpm3-short": ("MiniCPM3", dict(MINICPM3, session_context=48, context=48, tokens=40, scale_emb=12.0, scale_depth=1.4,
                                        dim_model_base=256, rope_scaling=dict(
                                            longrope(4), original_max_position_embeddings=48))),
}


# Classes that transformers does not have, by the definitions that come with their weights. Name: (class, settings); the folder's names
# of tensors are those of `plain_tensors`.
INTERN = dict(GROUPED, num_hidden_layers=3, hidden_act="silu", rms_norm_eps=1e-5, tie_word_embeddings=False)
BAICHUAN = dict(IDS, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_hidden_layers=3, hidden_act="silu", rms_norm_eps=1e-5,
                tie_word_embeddings=False)
PLAIN_MODELS = {
    "internlm2": ("InternLM2ForCausalLM", dict(INTERN, bias=False, rope_theta=1000.0, rope_scaling={"type": "dynamic", "factor": 2.0})),
    "internlm2-bias": ("InternLM2ForCausalLM", dict(INTERN, bias=True, num_key_value_heads=1)),
    "baichuan": ("BaichuanForCausalLM", dict(BAICHUAN, max_position_embeddings=128, model_max_length=128)),
    # 6 heads: slopes of powers of two and between them.
    "baichuan-alibi": ("BaichuanForCausalLM", dict(BAICHUAN, hidden_size=48, num_attention_heads=6, model_max_length=128)),
}


def splitmix(seed, count):
    with np.errstate(over="ignore"):
        x = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def seeded(name, shape, mean, spread):
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    top = (splitmix(seed, int(np.prod(shape))) >> np.uint64(48)).astype(np.float64)
    return (mean + spread * ((top - 32767.5) / 32768.0)).astype(np.float32).reshape(shape)


def tensor_row(name, parameter, plus_one, gate_spread=2.0):
    """Vectors differ from what they are initialized to; matrices keep the size of activations."""
    is_norm = any(part in name for part in ("norm", ".ln_", ".ln1", ".ln2", ".pre_ln")) or name.endswith(("ln_f.weight", "ln_f.bias"))
    shape = list(parameter.shape)
    mean, spread = 0.0, 0.6
    if name.endswith(("e_score_correction_bias", "expert_bias")):
        spread = 0.3
    elif name.endswith("sinks"):
        mean, spread = 1.0, 2.0
    elif name.endswith("time_decay"):
        mean, spread = -1.0, 1.5
    elif name.endswith(("alpha_p", "alpha_n")):
        mean = 0.8
    elif name.endswith("r_k") or len(shape) == 3 and shape[:2] == [1, 1]:
        mean, spread = 0.4, 0.4
    elif name.endswith("bias"):
        spread = 0.5
    elif name.endswith(("layer_scalar", "per_expert_scale", "router.scale")):
        mean = 1.0
    elif is_norm:
        mean = 0.0 if plus_one and "linear_attn.norm" not in name else 1.0
    elif "embed" in name or "wte" in name or "wpe" in name or "embedding" in name:
        spread = 0.8
    else:
        transposed = name.endswith(("experts.gate_up_proj", "experts.down_proj", "_w1", "_w2"))
        columns = shape[-2] if transposed else shape[0] if "c_attn" in name or "c_proj" in name or "c_fc" in name else shape[-1]
        spread = round((gate_spread if transposed and "gate" in name else 2.0) / columns**0.5, 4)
    return {"name": name, "shape": shape, "mean": mean, "spread": spread}


def norm_groups(norm, groups):
    def forward(hidden, gate):
        gated = (hidden * torch.nn.functional.silu(gate)).unflatten(-1, (groups, -1))
        normed = gated * torch.rsqrt(gated.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
        return norm.weight * normed.flatten(-2)
    norm.forward = forward


def published_parts(name, parameter, names):
    """The names in a folder and the parts of the parameter that they stand for."""
    for found, other in names.get("renames", []):
        name = name.replace(found, other)
    if names.get("kda_out") and parameter.shape == (32, 64):
        name = name.replace(".dense.", ".o_proj.")
    if names.get("shards") and name.endswith("ngram_embedding.weight"):
        return [(name.replace("weight", f"shard_{i}.weight"), rows) for i, rows in enumerate(parameter.chunk(names["shards"]))]
    if names.get("gate_up") and name.endswith(".gate_up_proj.weight"):
        parts = [(name.replace("gate_up_proj", f"{part}_proj"), half) for part, half in zip(("gate", "up"), parameter.chunk(2))]
        return [(part.replace(".mlp.shared_", ".block_sparse_moe.shared_"), half) for part, half in parts]
    if names.get("convs") and name.endswith("conv1d.weight"):
        return [(name.replace("conv1d", f"{part}_conv1d"), rows) for part, rows in zip("qkv", parameter.chunk(3))]
    if names.get("transposed"):
        return [(name, parameter.transpose(1, 2) if ".mlp.experts." in name else parameter)]
    if names.get("stacked"):
        if name.endswith("moe.gate_up_proj"):
            return [(name.replace("gate_up_proj", f"{part}_proj.weight"), half) for part, half in zip(("gate", "up"), parameter.chunk(2, 1))]
        return [(name + (".weight" if name.endswith("moe.down_proj") else ""), parameter)]
    if "prefix" in names:
        name = name.replace("model.", f"{names['prefix']}.", 1)
        prefix, kind = name.rsplit(".", 1)
        if not prefix.endswith(".experts"):
            return [(name, parameter)]
        return [(f"{prefix}.{i}.{kind}.weight", parameter[i]) for i in range(parameter.shape[0])]
    if not names or ".mlp." not in name or names.get("own_dense") and ".mlp.experts" not in name and name.endswith("_proj.weight") and (
            ".shared_" not in name):
        return [(name, parameter)]
    name = name.replace(".mlp.", f".{names['mlp']}.")
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return [(name, parameter)]
    prefix, kind = name.rsplit(".", 1)
    parts = []
    for i in range(parameter.shape[0]):
        halves = zip(("gate", "up"), parameter[i].chunk(2)) if kind == "gate_up_proj" else [("down", parameter[i])]
        parts += [(f"{prefix}.{i}.{names[part]}.weight", matrix) for part, matrix in halves]
    return parts


# What a row of MODELS says beside the settings of its class, where it does not say it.
ASIDE = dict(context=128, tokens=TOKENS, plus_one=False, gate_spread=2.0, known_as={}, published={}, written={}, needs=4, attention="eager", wide_gates=False,
             group_norm=False, no_step_min=False)


def find_class(hf_class):
    """The class of a row of MODELS; None where neither transformers nor one of the files of definitions has it."""
    for name in (hf_class + "ForCausalLM", hf_class + "Model", hf_class):
        for module in (remote_code_models, text_models, older_models, transformers):
            if hasattr(module, name):
                return getattr(module, name)
    return None


def make(hf_class, settings):
    """The model of a row of MODELS with weights that are still to be set, and what the row says aside; None where the row needs a later
    transformers."""
    settings = copy.deepcopy(settings)  # version 5 writes into the objects that it is given
    aside = {key: settings.pop(key, otherwise) for key, otherwise in ASIDE.items()}
    model_class = find_class(hf_class)
    if model_class is None or aside["needs"] > int(transformers.__version__.split(".")[0]):
        return None, aside
    config = model_class.config_class(**settings, attn_implementation=aside["attention"])
    # All weights are set below, and StableLM with norms of heads cannot be initialized.
    library = getattr(transformers, "initialization", transformers.modeling_utils)  # the first one from version 5 on
    with library.no_init_weights():
        model = model_class(config).float().eval()
    if hasattr(model, "tie_weights"):
        model.tie_weights()
    follow_published(model, aside)
    return model, aside


def follow_published(model, aside):
    """Makes the class compute what the code of the published models does, where both differ."""
    for module in model.modules() if aside["no_step_min"] else []:
        if hasattr(module, "time_step_limit"):
            module.time_step_limit = (0.0, float("inf"))
    for layer in model.backbone.layers if aside["group_norm"] else []:
        norm_groups(layer.mixer.norm, model.config.n_groups)


def weights_of(model):
    """The parameters, and the buffers that hold weights."""
    choices = [row for row in model.named_buffers() if row[0].endswith(("e_score_correction_bias", "expert_bias", "layer_scalar"))]
    return list(model.named_parameters()) + choices


def write(name, hf_class, settings):
    model, aside = make(hf_class, settings)
    if model is None:
        print(f"{name:20} needs a later transformers than {transformers.__version__}")
        return
    config, known_as, count = model.config, aside["known_as"], aside["tokens"]
    rows = []
    with torch.no_grad():
        for whole, parameter in weights_of(model):
            for key, part in published_parts(whole, parameter, aside["published"]):
                row = tensor_row(key, part, aside["plus_one"], aside["gate_spread"])
                if aside["wide_gates"] and key.endswith(("gate_proj.weight", "up_proj.weight")):
                    row["spread"] *= 6
                part.copy_(torch.from_numpy(seeded(key, row["shape"], row["mean"], row["spread"])))
                rows.append(row)
    tokens = torch.randint(3, VOCAB, (count,), generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        logits = model(input_ids=tokens[None], use_cache=False).logits[0]
    saved = config.to_dict() | {"architectures": [type(model).__name__]}
    # What only generation and training need is left out.
    general = set(transformers.PretrainedConfig().to_dict()) - {"architectures", "tie_word_embeddings"}
    kept = {key: value for key, value in saved.items() if key in settings or key not in general}
    # Not JSON, and what the class assumes.
    kept = {key: value for key, value in kept.items() if float("inf") not in (value if isinstance(value, (list, tuple)) else [value])}
    if aside["written"]:
        kept = aside["written"]
    if known_as:
        kept = {key: value for key, value in kept.items() if "multiplier" not in key and key != "logits_scaling"} | known_as
    save(name, kept, aside["context"], tokens, rows, logits)


def save(name, config, context, tokens, rows, logits):
    parts = [f'"config": {json.dumps(config)}', f'"context": {context}', f'"tokens": {json.dumps(tokens.tolist())}',
             '"tensors": [\n ' + ",\n ".join(json.dumps(row) for row in rows) + "]"]
    (FOLDER / f"{name}.json").write_text("{" + ",\n".join(parts) + "}\n")
    np.save(FOLDER / f"{name}.npy", logits.numpy())
    print(f"{name:20} logits {logits.min():.2f} .. {logits.max():.2f}, spread {logits.std():.2f}")


def plain_tensors(hf_class, settings):
    """Names and shapes of the tensors of a folder, layer by layer."""
    dim, ffn, heads = settings["hidden_size"], settings["intermediate_size"], settings["num_attention_heads"]
    kv_dim = dim // heads * settings.get("num_key_value_heads", heads)
    is_intern = hf_class == "InternLM2ForCausalLM"
    yield ("model.tok_embeddings.weight" if is_intern else "model.embed_tokens.weight"), (VOCAB, dim)
    for layer in range(settings["num_hidden_layers"]):
        if is_intern:
            names = [("attention.wqkv.weight", (dim + 2 * kv_dim, dim)), ("attention.wo.weight", (dim, dim)), ("feed_forward.w1.weight", (ffn, dim)),
                     ("feed_forward.w3.weight", (ffn, dim)), ("feed_forward.w2.weight", (dim, ffn)), ("attention_norm.weight", (dim,)),
                     ("ffn_norm.weight", (dim,))]
            if settings["bias"]:
                names += [("attention.wqkv.bias", (dim + 2 * kv_dim,)), ("attention.wo.bias", (dim,))]
        else:
            names = [("self_attn.W_pack.weight", (3 * dim, dim)), ("self_attn.o_proj.weight", (dim, dim)), ("mlp.gate_proj.weight", (ffn, dim)),
                     ("mlp.up_proj.weight", (ffn, dim)), ("mlp.down_proj.weight", (dim, ffn)), ("input_layernorm.weight", (dim,)),
                     ("post_attention_layernorm.weight", (dim,))]
        for name, shape in names:
            yield f"model.layers.{layer}.{name}", shape
    yield "model.norm.weight", (dim,)
    yield ("output.weight" if is_intern else "lm_head.weight"), (VOCAB, dim)


def rms_norm(x, weight, epsilon):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)


def rotate_halves(x, base):
    """x: [heads, tokens, head_dim]; pairs are numbers i and i + head_dim / 2."""
    half = x.shape[-1] // 2
    angles = torch.outer(torch.arange(x.shape[1]).float(), base ** (-torch.arange(half).float() / half))
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def alibi_slopes(heads):
    """Those of the power of two below, then every second one of the power of two above (arXiv 2108.12409 and its code)."""
    def of_power(count):
        return [2 ** (-8 * (i + 1) / count) for i in range(count)]
    below = 1 << (heads.bit_length() - 1)
    return torch.tensor(of_power(below) + of_power(2 * below)[0::2][:heads - below])


def split_qkv(hf_class, qkv, heads, kv_heads):
    """[tokens, rows] to queries, keys and values [heads, tokens, head_dim], keys and values repeated for their query heads."""
    tokens = qkv.shape[0]
    if hf_class != "InternLM2ForCausalLM":
        return (part.view(tokens, heads, -1).transpose(0, 1) for part in qkv.chunk(3, -1))
    # Every kv head has its query heads, its key and its value side by side.
    groups = qkv.view(tokens, kv_heads, heads // kv_heads + 2, -1)
    queries = groups[:, :, :-2].reshape(tokens, heads, -1).transpose(0, 1)
    repeat = lambda one: one.transpose(0, 1).repeat_interleave(heads // kv_heads, 0)
    return queries, repeat(groups[:, :, -2]), repeat(groups[:, :, -1])


def plain_logits(hf_class, settings, weights, tokens):
    heads, epsilon = settings["num_attention_heads"], settings["rms_norm_eps"]
    kv_heads = settings.get("num_key_value_heads", heads)
    is_intern = hf_class == "InternLM2ForCausalLM"
    embedding, output = ("tok_embeddings", "output.weight") if is_intern else ("embed_tokens", "lm_head.weight")
    of_layer = (("attention.wqkv", "attention.wo", "feed_forward.w1", "feed_forward.w3", "feed_forward.w2", "attention_norm", "ffn_norm") if is_intern
                else ("self_attn.W_pack", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm",
                      "post_attention_layernorm"))
    count = len(tokens)
    distance = torch.arange(count)[:, None] - torch.arange(count)[None]
    x = weights[f"model.{embedding}.weight"][tokens]
    for layer in range(settings["num_hidden_layers"]):
        qkv, out, gate, up, down, norm, ffn_norm = (f"model.layers.{layer}.{name}" for name in of_layer)
        linear = lambda name, row: torch.nn.functional.linear(row, weights[name + ".weight"], weights.get(name + ".bias"))
        q, k, v = split_qkv(hf_class, linear(qkv, rms_norm(x, weights[norm + ".weight"], epsilon)), heads, kv_heads)
        scores = None
        if "max_position_embeddings" in settings:
            base = settings.get("rope_theta", 10000.0)
            scores = rotate_halves(q, base) @ rotate_halves(k, base).transpose(1, 2) / q.shape[-1] ** 0.5
        else:
            scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 - alibi_slopes(heads)[:, None, None] * distance
        weighed = scores.masked_fill(distance < 0, float("-inf")).softmax(-1) @ v
        x = x + linear(out, weighed.transpose(0, 1).reshape(count, -1))
        normed = rms_norm(x, weights[ffn_norm + ".weight"], epsilon)
        x = x + linear(down, torch.nn.functional.silu(linear(gate, normed)) * linear(up, normed))
    return rms_norm(x, weights["model.norm.weight"], epsilon) @ weights[output].T


def write_plain(name, hf_class, settings):
    rows, weights = [], {}
    for key, shape in plain_tensors(hf_class, settings):
        row = tensor_row(key, torch.empty(shape), False)
        weights[key] = torch.from_numpy(seeded(key, row["shape"], row["mean"], row["spread"]))
        rows.append(row)
    tokens = torch.randint(3, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(8))
    save(name, dict(settings, architectures=[hf_class]), 128, tokens, rows, plain_logits(hf_class, settings, weights, tokens))


def main():
    FOLDER.mkdir(exist_ok=True)
    beginning = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, (hf_class, settings) in PLAIN_MODELS.items():
        if name.startswith(beginning):
            write_plain(name, hf_class, settings)
    for name, (hf_class, settings) in MODELS.items():
        if name.startswith(beginning):
            write(name, hf_class, settings)


if __name__ == "__main__":
    main()
