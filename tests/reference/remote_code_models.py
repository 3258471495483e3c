"""Model classes that transformers knows only as code in the model's own folder, in plain torch: their published definitions without
caches, dropout and training. Parameters have the names of the published classes, and so of the weights in their folders.

DeepseekForCausalLM   DeepSeek-MoE (arXiv 2401.06066)
MiniCPM3ForCausalLM   MiniCPM3: latent attention (arXiv 2405.04434) whose rope turns halves, LongRoPE (arXiv 2402.13753)
"""
import math
from types import SimpleNamespace

import torch
from torch import nn
from transformers import PretrainedConfig


class RmsNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def turn_halves(x, angles, amplitude=1.0):
    """x [..., positions, n], angles [positions, n / 2]"""
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos() * amplitude, angles.sin() * amplitude
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def angles_of(positions, size, base, divisors=1.0):
    frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float32) / size) / divisors
    return torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)


def attend(q, k, v, scale):
    """q, k, v [heads, positions, dims]"""
    positions = q.shape[1]
    hidden = torch.triu(torch.full((positions, positions), -torch.inf), diagonal=1)
    out = torch.softmax(q @ k.transpose(1, 2) * scale + hidden, dim=-1) @ v
    return out.transpose(0, 1).reshape(positions, -1)


def heads_of(x, count):
    return x.view(x.shape[0], count, -1).transpose(0, 1)


class Mlp(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(size, width), linear(size, width), linear(width, size)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class DeepseekGate(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))

    def forward(self, x):
        weights, experts = torch.topk(torch.softmax(x @ self.weight.T, dim=-1), self.config.num_experts_per_tok)
        if self.config.norm_topk_prob:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights, experts


class DeepseekMoe(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = DeepseekGate(config)
        self.experts = nn.ModuleList(Mlp(config.hidden_size, config.moe_intermediate_size) for _ in range(config.n_routed_experts))
        self.shared_experts = Mlp(config.hidden_size, config.moe_intermediate_size * config.n_shared_experts)

    def forward(self, x):
        weights, experts = self.gate(x)
        out = torch.stack([sum(w * self.experts[e](row) for w, e in zip(ws, es)) for row, ws, es in zip(x, weights, experts.tolist())])
        return out + self.shared_experts(x)


class GroupedAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        size = config.hidden_size // config.num_attention_heads
        self.q_proj = linear(config.hidden_size, config.hidden_size)
        self.k_proj = linear(config.hidden_size, config.num_key_value_heads * size)
        self.v_proj = linear(config.hidden_size, config.num_key_value_heads * size)
        self.o_proj = linear(config.hidden_size, config.hidden_size)

    def forward(self, x):
        heads, kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        q, k, v = heads_of(self.q_proj(x), heads), heads_of(self.k_proj(x), kv_heads), heads_of(self.v_proj(x), kv_heads)
        angles = angles_of(x.shape[0], q.shape[-1], self.config.rope_theta)
        k, v = (t.repeat_interleave(heads // kv_heads, dim=0) for t in (turn_halves(k, angles), v))
        return self.o_proj(attend(turn_halves(q, angles), k, v, q.shape[-1] ** -0.5))


class LatentAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        heads, nope, rope = config.num_attention_heads, config.qk_nope_head_dim, config.qk_rope_head_dim
        self.q_a_proj = linear(config.hidden_size, config.q_lora_rank)
        self.q_a_layernorm = RmsNorm(config.q_lora_rank, config.rms_norm_eps)
        self.q_b_proj = linear(config.q_lora_rank, heads * (nope + rope))
        self.kv_a_proj_with_mqa = linear(config.hidden_size, config.kv_lora_rank + rope)
        self.kv_a_layernorm = RmsNorm(config.kv_lora_rank, config.rms_norm_eps)
        self.kv_b_proj = linear(config.kv_lora_rank, heads * (nope + config.v_head_dim))
        self.o_proj = linear(heads * config.v_head_dim, config.hidden_size)

    def forward(self, x):
        c = self.config
        heads, nope, rope = c.num_attention_heads, c.qk_nope_head_dim, c.qk_rope_head_dim
        scaling = c.rope_scaling
        original = scaling["original_max_position_embeddings"]
        # As of a session for so many positions, which may be more than the text has.
        factors = scaling["long_factor" if c.session_context > original else "short_factor"]
        amplitude = math.sqrt(1 + math.log(max(1.0, c.max_position_embeddings / original)) / math.log(original))
        angles = angles_of(x.shape[0], rope, c.rope_theta, torch.tensor(factors))
        q_nope, q_rope = heads_of(self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))), heads).split((nope, rope), dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(x).split((c.kv_lora_rank, rope), dim=-1)
        k_nope, v = heads_of(self.kv_b_proj(self.kv_a_layernorm(latent)), heads).split((nope, c.v_head_dim), dim=-1)
        q_rope, k_rope = turn_halves(q_rope, angles, amplitude), turn_halves(k_rope, angles, amplitude)
        q = torch.cat((q_nope, q_rope), dim=-1)
        k = torch.cat((k_nope, k_rope.expand(heads, -1, -1)), dim=-1)
        return self.o_proj(attend(q, k, v, (nope + rope) ** -0.5))


class Layer(nn.Module):
    def __init__(self, config, attention, mlp):
        super().__init__()
        self.self_attn, self.mlp = attention, mlp
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.factor = config.scale_depth / math.sqrt(config.num_hidden_layers) if hasattr(config, "scale_depth") else 1.0

    def forward(self, x):
        x = x + self.factor * self.self_attn(self.input_layernorm(x))
        return x + self.factor * self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config, layers):
        super().__init__()
        self.config = config
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.model.layers = nn.ModuleList(layers)
        self.model.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = linear(config.hidden_size, config.vocab_size)

    def forward(self, input_ids, use_cache=False):
        x = self.model.embed_tokens(input_ids[0]) * getattr(self.config, "scale_emb", 1.0)
        for layer in self.model.layers:
            x = layer(x)
        divisor = self.config.hidden_size / self.config.dim_model_base if hasattr(self.config, "dim_model_base") else 1.0
        return SimpleNamespace(logits=self.lm_head(self.model.norm(x) / divisor)[None])


class DeepseekForCausalLM(Decoder):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config, [Layer(config, GroupedAttention(config), self.mlp(config, i)) for i in range(config.num_hidden_layers)])

    @staticmethod
    def mlp(config, layer):
        return Mlp(config.hidden_size, config.intermediate_size) if layer < config.first_k_dense_replace else DeepseekMoe(config)


class MiniCPM3ForCausalLM(Decoder):
    config_class = PretrainedConfig

    def __init__(self, config):
        mlps = [Mlp(config.hidden_size, config.intermediate_size) for _ in range(config.num_hidden_layers)]
        super().__init__(config, [Layer(config, LatentAttention(config), mlp) for mlp in mlps])
