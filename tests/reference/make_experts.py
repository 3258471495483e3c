#!/usr/bin/env python3
"""Write small Hugging Face folders of random models with experts and what transformers computes from them.

    mixtral/usual       two of eight experts in every layer
    qwen2moe/usual      weights as they are, a shared expert with a gate
    qwen2moe/varied     normalized weights, a layer without experts between others, a tied output
    qwen3moe/usual      three of twelve experts, normalized weights
    qwen3moe/varied     weights as they are, one expert for a token, a layer without experts
    dots1/usual         sigmoid router with biases, two shared experts, a layer without experts
    glm4moe/usual       the same with scaled weights; biases of q, k and v, half of each head rotated
    glm4moe/varied      norms of queries and keys, a quarter rotated, weights as they are
    ernie4_5-moe/usual  softmax router with biases, two shared experts, tied output
    ernie4_5-moe/varied no shared expert, every second layer without experts
    olmoe/usual         weights as they are, norms of whole projections
    granitemoe/usual    softmax over the chosen, four scales, experts in one tensor
    hunyuan-moe/usual   norms of queries and keys after the rotation, a shared expert, a number for each layer
    granitemoe/shared   the same with a shared expert, whose gate and up are one tensor

The files of a folder are those of make_qwen.py, whose tokenizer they have.

Usage: make_experts.py [OUTPUT_FOLDER]
The pinned packages are those of models/shakespeare/requirements.txt.
"""
import sys
from pathlib import Path

import torch
from transformers import (Dots1Config, Dots1ForCausalLM, Ernie4_5_MoeConfig, Ernie4_5_MoeForCausalLM, Glm4MoeConfig,
                          Glm4MoeForCausalLM, GraniteMoeConfig, GraniteMoeForCausalLM, GraniteMoeSharedConfig,
                          GraniteMoeSharedForCausalLM, HunYuanMoEV1Config, HunYuanMoEV1ForCausalLM, MixtralConfig, MixtralForCausalLM, OlmoeConfig, OlmoeForCausalLM,
                          Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

from hf_models import VOCAB, write_model, write_texts
from make_qwen import TEXTS, write_tokenizer

SHAPE = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=64, num_hidden_layers=3, max_position_embeddings=256,
             eos_token_id=319, bos_token_id=317, attn_implementation="eager", num_attention_heads=4, num_key_value_heads=2)
QWEN2 = SHAPE | dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=40)
QWEN3 = SHAPE | dict(num_experts=12, num_experts_per_tok=3, moe_intermediate_size=24, head_dim=16)
SIGMOID = SHAPE | dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=24, head_dim=16, tie_word_embeddings=False)
GRANITE = SHAPE | dict(intermediate_size=24, num_local_experts=8, num_experts_per_tok=2, tie_word_embeddings=True,
                       embedding_multiplier=3.0, residual_multiplier=0.6, attention_multiplier=0.2, logits_scaling=4.0)
ERNIE = SHAPE | dict(moe_num_experts=8, moe_k=2, moe_intermediate_size=24)
MODELS = {
    "mixtral/usual": lambda: MixtralForCausalLM(MixtralConfig(**SHAPE | dict(intermediate_size=24), num_local_experts=8,
                                                              num_experts_per_tok=2, rope_theta=1e6, sliding_window=None)),
    "qwen2moe/usual": lambda: Qwen2MoeForCausalLM(Qwen2MoeConfig(**QWEN2, norm_topk_prob=False)),
    "qwen2moe/varied": lambda: Qwen2MoeForCausalLM(Qwen2MoeConfig(**QWEN2, norm_topk_prob=True, mlp_only_layers=[1],
                                                                  tie_word_embeddings=True)),
    "qwen3moe/usual": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**QWEN3, norm_topk_prob=True, rope_theta=1e6)),
    "qwen3moe/varied": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**QWEN3 | dict(num_experts_per_tok=1), norm_topk_prob=False,
                                                                  mlp_only_layers=[0], tie_word_embeddings=True)),
    "dots1/usual": lambda: Dots1ForCausalLM(Dots1Config(**SIGMOID, n_shared_experts=2, first_k_dense_replace=1,
                                                        norm_topk_prob=True, routed_scaling_factor=2.5)),
    "glm4moe/usual": lambda: Glm4MoeForCausalLM(Glm4MoeConfig(**SIGMOID, n_shared_experts=1, first_k_dense_replace=1,
                                                              attention_bias=True, routed_scaling_factor=1.5)),
    "glm4moe/varied": lambda: Glm4MoeForCausalLM(Glm4MoeConfig(**SIGMOID, n_shared_experts=2, first_k_dense_replace=0,
                                                               use_qk_norm=True, partial_rotary_factor=0.25, norm_topk_prob=False)),
    "ernie4_5-moe/usual": lambda: Ernie4_5_MoeForCausalLM(Ernie4_5_MoeConfig(**ERNIE, moe_num_shared_experts=2)),
    "ernie4_5-moe/varied": lambda: Ernie4_5_MoeForCausalLM(Ernie4_5_MoeConfig(
        **ERNIE | dict(moe_k=3), moe_num_shared_experts=0, moe_layer_interval=2, tie_word_embeddings=False)),
    "olmoe/usual": lambda: OlmoeForCausalLM(OlmoeConfig(**SHAPE | dict(intermediate_size=24), num_experts=8, num_experts_per_tok=3)),
    "hunyuan-moe/usual": lambda: HunYuanMoEV1ForCausalLM(HunYuanMoEV1Config(
        **SHAPE | dict(intermediate_size=24), head_dim=16, num_experts=8, moe_topk=[2, 2, 2],
        rope_scaling={"type": "dynamic", "alpha": 50.0, "factor": 1.0})),
    "granitemoe/usual": lambda: GraniteMoeForCausalLM(GraniteMoeConfig(**GRANITE)),
    "granitemoe/shared": lambda: GraniteMoeSharedForCausalLM(GraniteMoeSharedConfig(**GRANITE, shared_intermediate_size=40)),
}


def make_biases_random(model):
    # Buffers, which write_model leaves alone. bf16 holds them exactly.
    torch.manual_seed(9)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0.0, 0.2)
                buffer.copy_(buffer.bfloat16())
    return model


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for name, make in MODELS.items():
        write_model(root / name, make_biases_random(make()), embedding_deviation=0.4, norm_mean=1.0)
        write_texts(root / name, write_tokenizer(root / name), TEXTS, "NFC")


if __name__ == "__main__":
    main()
