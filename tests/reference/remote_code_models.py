"""Model classes that transformers knows only as code in the model's own folder, in plain torch: their published definitions without
caches, dropout and training. Parameters have the names of the published classes, and so of the weights in their folders.

DeepseekForCausalLM   DeepSeek-MoE (arXiv 2401.06066)
MiniCPM3ForCausalLM   MiniCPM3: latent attention (arXiv 2405.04434) whose rope turns halves, LongRoPE (arXiv 2402.13753)
Rwkv6ForCausalLM      RWKV 6 (arXiv 2404.05892), whose stream is halved every few layers
RWKV7ForCausalLM      RWKV 7 (arXiv 2503.14456), with the names of flash-linear-attention
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


def shifted(x):
    """The row before each."""
    return torch.cat((torch.zeros_like(x[:1]), x[:-1]))


class LowRankPair(nn.Module):
    """lora.0 and lora.2 of flash-linear-attention, with the activation between them as lora.1."""
    def __init__(self, size, rank, activation, bias=True):
        super().__init__()
        self.lora = nn.Sequential(linear(size, rank), activation, nn.Linear(rank, size, bias=bias))

    def forward(self, x):
        return self.lora(x)


class Rwkv7TimeMix(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        size, self.head_dim, self.is_first = config.hidden_size, config.head_dim, layer == 0
        for letter in "rwkvag":
            setattr(self, f"x_{letter}", nn.Parameter(torch.empty(1, 1, size)))
        self.k_k, self.k_a = nn.Parameter(torch.empty(size)), nn.Parameter(torch.empty(size))
        self.r_k = nn.Parameter(torch.empty(size // self.head_dim, self.head_dim))
        self.r_proj, self.k_proj, self.v_proj, self.o_proj = (linear(size, size) for _ in range(4))
        self.w_lora = LowRankPair(size, config.decay_low_rank_dim, nn.Tanh())
        self.a_lora = LowRankPair(size, config.a_low_rank_dim, nn.Identity())
        self.g_lora = LowRankPair(size, config.gate_low_rank_dim, nn.Sigmoid(), bias=False)
        if not self.is_first:
            self.v_lora = LowRankPair(size, config.v_low_rank_dim, nn.Identity())
        self.g_norm = nn.GroupNorm(size // self.head_dim, size, eps=self.head_dim * config.norm_eps)

    def forward(self, x, first_values):
        before, heads = shifted(x), (x.shape[0], -1, self.head_dim)
        xr, xw, xk, xv, xa, xg = (x + (before - x) * getattr(self, f"x_{letter}")[0] for letter in "rwkvag")
        r, k, v, a = self.r_proj(xr), self.k_proj(xk), self.v_proj(xv), self.a_lora(xa).sigmoid()
        w = torch.exp(-math.exp(-0.5) * self.w_lora(xw).sigmoid())
        if self.is_first:
            first_values = v
        else:
            v = torch.lerp(v, first_values, self.v_lora(xv).sigmoid())
        removed = nn.functional.normalize((k * self.k_k).view(heads), dim=-1, p=2.0)
        k = k * (1 + (a - 1) * self.k_a)
        r, k, v, w, a = (t.view(heads) for t in (r, k, v, w, a))
        state = x.new_zeros(r.shape[1], self.head_dim, self.head_dim)  # [heads, values, keys]
        rows = []
        for t in range(x.shape[0]):
            erased = state @ removed[t, :, :, None] * (removed[t] * a[t])[:, None]
            state = state * w[t][:, None] - erased + v[t][:, :, None] * k[t][:, None]
            rows.append((state @ r[t, :, :, None]).flatten())
        out = self.g_norm(torch.stack(rows)) + ((r * k * self.r_k).sum(-1, keepdim=True) * v).flatten(1)
        return self.o_proj(out * self.g_lora(xg)), first_values


class Rwkv7ChannelMix(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.x_k = nn.Parameter(torch.empty(config.hidden_size))
        self.key, self.value = linear(config.hidden_size, config.intermediate_size), linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        return self.value(torch.relu(self.key(x + (shifted(x) - x) * self.x_k)).square())


class Rwkv7Layer(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        norm = lambda: nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        if layer == 0:
            self.pre_norm = norm()
        self.attn_norm, self.attn, self.ffn_norm, self.ffn = norm(), Rwkv7TimeMix(config, layer), norm(), Rwkv7ChannelMix(config)

    def forward(self, x, first_values):
        x = self.pre_norm(x) if hasattr(self, "pre_norm") else x
        mixed, first_values = self.attn(self.attn_norm(x), first_values)
        x = x + mixed
        return x + self.ffn(self.ffn_norm(x)), first_values


class RWKV7ForCausalLM(nn.Module):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__()
        self.model = nn.Module()
        self.model.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.model.layers = nn.ModuleList(Rwkv7Layer(config, i) for i in range(config.num_hidden_layers))
        self.model.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps)
        self.lm_head = linear(config.hidden_size, config.vocab_size)

    def tie_weights(self):
        pass

    def forward(self, input_ids, use_cache=False):
        x, first_values = self.model.embeddings(input_ids[0]), None
        for layer in self.model.layers:
            x, first_values = layer(x, first_values)
        return SimpleNamespace(logits=self.lm_head(self.model.norm(x))[None])


class Rwkv6TimeMix(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, self.head_dim = config.hidden_size, config.head_size
        rank, decay_rank = (64, 128) if size == 4096 else (32, 64)
        for letter in "xwkvrg":
            setattr(self, f"time_maa_{letter}", nn.Parameter(torch.empty(1, 1, size)))
        self.time_maa_w1, self.time_maa_w2 = nn.Parameter(torch.empty(size, rank * 5)), nn.Parameter(torch.empty(5, rank, size))
        self.time_decay = nn.Parameter(torch.empty(1, 1, size))
        self.time_decay_w1, self.time_decay_w2 = nn.Parameter(torch.empty(size, decay_rank)), nn.Parameter(torch.empty(decay_rank, size))
        self.time_faaaa = nn.Parameter(torch.empty(size // self.head_dim, self.head_dim))
        self.receptance, self.key, self.value, self.gate, self.output = (linear(size, size) for _ in range(5))
        self.ln_x = nn.GroupNorm(size // self.head_dim, size, eps=1e-5 * config.head_size_divisor**2)

    def forward(self, x):
        difference, heads = shifted(x) - x, (x.shape[0], -1, self.head_dim)
        low = torch.tanh((x + difference * self.time_maa_x[0]) @ self.time_maa_w1)
        deltas = low.view(x.shape[0], 5, -1).transpose(0, 1) @ self.time_maa_w2
        xw, xk, xv, xr, xg = (x + difference * (getattr(self, f"time_maa_{letter}")[0] + delta) for letter, delta in zip("wkvrg", deltas))
        r, k, v = (t.view(heads) for t in (self.receptance(xr), self.key(xk), self.value(xv)))
        w = torch.exp(-torch.exp(self.time_decay[0] + torch.tanh(xw @ self.time_decay_w1) @ self.time_decay_w2)).view(heads)
        state = x.new_zeros(r.shape[1], self.head_dim, self.head_dim)  # [heads, keys, values]
        rows = []
        for t in range(x.shape[0]):
            added = k[t][:, :, None] * v[t][:, None]
            rows.append((r[t][:, None] @ (state + self.time_faaaa[:, :, None] * added)).flatten())
            state = state * w[t][:, :, None] + added
        return self.output(self.ln_x(torch.stack(rows)) * nn.functional.silu(self.gate(xg)))


class Rwkv6ChannelMix(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, width = config.hidden_size, config.intermediate_size
        self.time_maa_k, self.time_maa_r = nn.Parameter(torch.empty(1, 1, size)), nn.Parameter(torch.empty(1, 1, size))
        self.key, self.receptance, self.value = linear(size, width), linear(size, size), linear(width, size)

    def forward(self, x):
        difference = shifted(x) - x
        key = torch.relu(self.key(x + difference * self.time_maa_k[0])).square()
        return torch.sigmoid(self.receptance(x + difference * self.time_maa_r[0])) * self.value(key)


class Rwkv6Layer(nn.Module):
    def __init__(self, config, layer):
        super().__init__()
        norm = lambda: nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        if layer == 0:
            self.pre_ln = norm()
        self.ln1, self.ln2, self.attention, self.feed_forward = norm(), norm(), Rwkv6TimeMix(config), Rwkv6ChannelMix(config)
        every = config.rescale_every
        self.divisor = 2 ** (layer // every) if every > 0 else 1
        self.halves = every > 0 and (layer + 1) % every == 0

    def forward(self, x):
        x = self.pre_ln(x) if hasattr(self, "pre_ln") else x
        x = x + self.attention(self.ln1(x)) / self.divisor
        x = x + self.feed_forward(self.ln2(x)) / self.divisor
        return x / 2 if self.halves else x


class Rwkv6ForCausalLM(nn.Module):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__()
        self.rwkv = nn.Module()
        self.rwkv.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.rwkv.blocks = nn.ModuleList(Rwkv6Layer(config, i) for i in range(config.num_hidden_layers))
        self.rwkv.ln_out = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_epsilon)
        self.head = linear(config.hidden_size, config.vocab_size)

    def tie_weights(self):
        pass

    def forward(self, input_ids, use_cache=False):
        x = self.rwkv.embeddings(input_ids[0])
        for block in self.rwkv.blocks:
            x = block(x)
        return SimpleNamespace(logits=self.head(self.rwkv.ln_out(x))[None])
