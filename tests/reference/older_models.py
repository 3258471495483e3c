"""Model classes of 2023 and 2024 that transformers knows only as code in the model's own folder, in plain torch: their published definitions
without caches, dropout and training, as far as the context that they were trained for. Parameters have the names of the published classes.

OrionForCausalLM, XverseForCausalLM, BailingMoeForCausalLM    with the names of Llama
QWenLMHeadModel, CodeShellForCausalLM, GPTRefactForCausalLM   with those of GPT-2
"""
from types import SimpleNamespace

import torch
from torch import nn

from remote_code_models import Mlp, RmsNorm, angles_of, heads_of, linear, turn_halves
from text_models import Layer, PlainConfig, Router, Text, attend, seen


class PlainAttention(nn.Module):
    """Without biases and norms; halves of each head are turned."""
    def __init__(self, config):
        super().__init__()
        self.config = config
        size = config.hidden_size
        kv_size = size // config.num_attention_heads * config.num_key_value_heads
        self.q_proj, self.k_proj, self.v_proj = linear(size, size), linear(size, kv_size), linear(size, kv_size)
        self.o_proj = linear(size, size)

    def forward(self, x):
        c = self.config
        angles = angles_of(x.shape[0], c.hidden_size // c.num_attention_heads, c.rope_theta)
        q = turn_halves(heads_of(self.q_proj(x), c.num_attention_heads), angles)
        k = turn_halves(heads_of(self.k_proj(x), c.num_key_value_heads), angles)
        return self.o_proj(attend(q, k, heads_of(self.v_proj(x), c.num_key_value_heads), 0).flatten(1))


class XverseForCausalLM(Text):
    config_class = PlainConfig

    @staticmethod
    def layer(config, number):
        return Layer(config, PlainAttention(config), Mlp(config.hidden_size, config.intermediate_size))


class OrionForCausalLM(Text):
    """Its norms subtract the mean, whatever their epsilon is called."""
    config_class = PlainConfig

    def __init__(self, config):
        super().__init__(config)
        self.model.norm = nn.LayerNorm(config.hidden_size, config.rms_norm_eps)

    @staticmethod
    def layer(config, number):
        layer = XverseForCausalLM.layer(config, number)
        layer.input_layernorm, layer.post_attention_layernorm = (nn.LayerNorm(config.hidden_size, config.rms_norm_eps) for _ in range(2))
        return layer


class LingAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        heads, kv_heads, dims = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.query_key_value = linear(config.hidden_size, (heads + 2 * kv_heads) * dims)
        self.dense = linear(heads * dims, config.hidden_size)

    def forward(self, x):
        c = self.config
        heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
        angles = angles_of(x.shape[0], c.head_dim, c.rope_theta)
        q, k, v = heads_of(self.query_key_value(x), heads + 2 * kv_heads).split((heads, kv_heads, kv_heads))
        return self.dense(attend(turn_halves(q, angles), turn_halves(k, angles), v, 0).flatten(1))


class LingMoe(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.gate = Router(config)
        self.experts = nn.ModuleList(Mlp(config.hidden_size, config.moe_intermediate_size) for _ in range(config.num_experts))
        self.shared_experts = Mlp(config.hidden_size, config.moe_intermediate_size * config.num_shared_experts)

    def forward(self, x):
        weights, chosen = torch.softmax(x @ self.gate.weight.T, dim=-1).topk(self.config.num_experts_per_tok)
        if self.config.norm_topk_prob:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        routed = torch.stack([sum(w * self.experts[e](row) for w, e in zip(ws, es)) for row, ws, es in zip(x, weights, chosen.tolist())])
        return routed + self.shared_experts(x)


class LingLayer(nn.Module):
    def __init__(self, config, number):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (RmsNorm(config.hidden_size, config.rms_norm_eps) for _ in range(2))
        self.attention = LingAttention(config)
        dense = number < config.first_k_dense_replace
        self.mlp = Mlp(config.hidden_size, config.intermediate_size) if dense else LingMoe(config)

    def forward(self, x):
        x = x + self.attention(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class BailingMoeForCausalLM(Text):
    config_class = PlainConfig
    embedding = "word_embeddings"
    layer = LingLayer


class Block(nn.Module):
    def __init__(self, norms, attention, mlp):
        super().__init__()
        self.ln_1, self.ln_2 = norms
        self.attn, self.mlp = attention, mlp

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """The frame of classes with the names of GPT-2."""
    config_class = PlainConfig

    def __init__(self, config, size, layers):
        super().__init__()
        self.config = config
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(config.vocab_size, size)
        self.transformer.h = nn.ModuleList(self.block(config) for _ in range(layers))
        self.lm_head = linear(size, config.vocab_size)

    def rows(self, input_ids):
        x = self.transformer.wte(input_ids[0])
        for block in self.transformer.h:
            x = block(x)
        return x

    def forward(self, input_ids, use_cache=False):
        return SimpleNamespace(logits=self.lm_head(self.transformer.ln_f(self.rows(input_ids)))[None])


class QwenAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.base = config.num_attention_heads, config.rotary_emb_base
        self.c_attn = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.c_proj = linear(config.hidden_size, config.hidden_size)

    def forward(self, x):
        q, k, v = (heads_of(part, self.heads) for part in self.c_attn(x).chunk(3, -1))
        angles = angles_of(x.shape[0], q.shape[-1], self.base)
        return self.c_proj(attend(turn_halves(q, angles), turn_halves(k, angles), v, 0).flatten(1))


class QwenMlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.intermediate_size // 2
        self.w1, self.w2 = linear(config.hidden_size, width), linear(config.hidden_size, width)
        self.c_proj = linear(width, config.hidden_size)

    def forward(self, x):
        return self.c_proj(self.w1(x) * nn.functional.silu(self.w2(x)))


class QWenLMHeadModel(Gpt):
    def __init__(self, config):
        super().__init__(config, config.hidden_size, config.num_hidden_layers)
        self.transformer.ln_f = RmsNorm(config.hidden_size, config.layer_norm_epsilon)

    @staticmethod
    def block(config):
        norms = [RmsNorm(config.hidden_size, config.layer_norm_epsilon) for _ in range(2)]
        return Block(norms, QwenAttention(config), QwenMlp(config))


class CodeShellAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.groups = config.n_head, config.num_query_groups
        self.dims = config.n_embd // config.n_head
        self.c_attn = nn.Linear(config.n_embd, config.n_embd + 2 * self.groups * self.dims)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x):
        q, k, v = heads_of(self.c_attn(x), self.heads + 2 * self.groups).split((self.heads, self.groups, self.groups))
        angles = angles_of(x.shape[0], self.dims, 10000.0)
        return self.c_proj(attend(turn_halves(q, angles), turn_halves(k, angles), v, 0).flatten(1))


class CodeShellMlp(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(size, width), nn.Linear(width, size)

    def forward(self, x):
        return self.c_proj(nn.functional.gelu(self.c_fc(x), approximate="tanh"))


class CodeShellForCausalLM(Gpt):
    def __init__(self, config):
        super().__init__(config, config.n_embd, config.n_layer)
        self.transformer.ln_f = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)

    @staticmethod
    def block(config):
        norms = [nn.LayerNorm(config.n_embd, config.layer_norm_epsilon) for _ in range(2)]
        return Block(norms, CodeShellAttention(config), CodeShellMlp(config.n_embd, 4 * config.n_embd))


def slopes(heads):
    """ALiBi (arXiv 2108.12409): those of the power of two below, then every second one of the power of two above."""
    below = 2 ** (heads.bit_length() - 1)
    first = [2 ** (-8 * i / below) for i in range(1, below + 1)]
    return torch.tensor(first + [2 ** (-4 * i / below) for i in range(1, 2 * (heads - below), 2)])


class RefactAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.dims = config.n_head, config.n_embd // config.n_head
        self.q, self.kv = linear(config.n_embd, config.n_embd), linear(config.n_embd, 2 * self.dims)
        self.c_proj = linear(config.n_embd, config.n_embd)

    def forward(self, x):
        q = heads_of(self.q(x), self.heads)
        k, v = self.kv(x).chunk(2, -1)
        biases = slopes(self.heads)[:, None, None] * torch.arange(1, x.shape[0] + 1)  # those of a row differ by the same number
        scores = (q @ k.T / self.dims ** 0.5 + biases).masked_fill(~seen(x.shape[0], 0), float("-inf"))
        return self.c_proj((scores.softmax(-1) @ v).transpose(0, 1).flatten(1))


class RefactMlp(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.width = -(-int(2 * 4 * size / 3) // 256) * 256
        self.gate_up_proj, self.c_proj = linear(size, 2 * self.width), linear(self.width, size)

    def forward(self, x):
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        return self.c_proj(nn.functional.silu(gate) * up)


class GPTRefactForCausalLM(Gpt):
    """Its norms have no bias, and the last one stands outside of the inner model."""
    def __init__(self, config):
        super().__init__(config, config.n_embd, config.n_layer)
        self.ln_f = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon, bias=False)

    def forward(self, input_ids, use_cache=False):
        return SimpleNamespace(logits=self.lm_head(self.ln_f(self.rows(input_ids)))[None])

    @staticmethod
    def block(config):
        norms = [nn.LayerNorm(config.n_embd, config.layer_norm_epsilon, bias=False) for _ in range(2)]
        return Block(norms, RefactAttention(config), RefactMlp(config.n_embd))
