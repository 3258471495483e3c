"""Model classes of 2026 that transformers has as parts of larger ones, or not at all, in plain torch.

Step3p5ForCausalLM, MuseGlimmerForCausalLM    the text models of transformers 5, with the output that makes texts
Qwen3VLForCausalLM and others                 the text models of classes that read images
MapleForCausalLM and others                   by their published definitions, without caches, dropout and training
"""
from types import SimpleNamespace

import torch
from torch import nn

from remote_code_models import Mlp, RmsNorm, angles_of, heads_of, linear, turn_halves

try:
    from transformers import MuseGlimmerTextConfig, MuseGlimmerTextModel, Step3p7TextConfig, Step3p7TextModel
except ImportError:  # an older transformers, which has none of them
    MuseGlimmerTextConfig = MuseGlimmerTextModel = Step3p7TextConfig = Step3p7TextModel = None


try:
    from transformers import Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel, Qwen3VLMoeTextConfig, Qwen3VLMoeTextModel, Qwen3VLTextConfig, Qwen3VLTextModel
except ImportError:
    Qwen3VLTextModel = None

try:
    from transformers.models.hunyuan_vl.modeling_hunyuan_vl import HunYuanVLTextConfig, HunYuanVLTextModel
    from transformers.models.paddleocr_vl.modeling_paddleocr_vl import PaddleOCRTextConfig, PaddleOCRTextModel
except ImportError:
    PaddleOCRTextModel = None


class PlainConfig:
    """Settings as they are."""
    def __init__(self, attn_implementation=None, **settings):
        self.__dict__.update(settings)

    def to_dict(self):
        return dict(self.__dict__)


class WithOutput(nn.Module):
    """A text model and the matrix behind it."""
    def __init__(self, config, model):
        super().__init__()
        self.config, self.model = config, model
        self.lm_head = linear(config.hidden_size, config.vocab_size)

    def rows(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).last_hidden_state

    def forward(self, input_ids, use_cache=False):
        return SimpleNamespace(logits=self.lm_head(self.rows(input_ids)))


if Step3p7TextModel is not None:
    class Step3p5ForCausalLM(WithOutput):
        config_class = Step3p7TextConfig

        def __init__(self, config):
            super().__init__(config, Step3p7TextModel(config))

    class MuseGlimmerForCausalLM(WithOutput):
        config_class = MuseGlimmerTextConfig

        def __init__(self, config):
            super().__init__(config, MuseGlimmerTextModel(config))

        def forward(self, input_ids, use_cache=False):
            cap = self.config.final_logit_softcapping
            logits = self.lm_head(self.rows(input_ids)) * self.config.output_multiplier
            return SimpleNamespace(logits=torch.tanh(logits / cap) * cap)


def text_of_images(config, model):
    """The class of a text model that is a part of one that reads images."""
    class Whole(WithOutput):
        config_class = config

        def __init__(self, settings):
            super().__init__(settings, model(settings))
    return Whole


if Qwen3VLTextModel is not None:
    Qwen3VLForCausalLM = text_of_images(Qwen3VLTextConfig, Qwen3VLTextModel)
    Qwen3VLMoeForCausalLM = text_of_images(Qwen3VLMoeTextConfig, Qwen3VLMoeTextModel)
    Qwen2_5_VLForCausalLM = text_of_images(Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel)

if PaddleOCRTextModel is not None:
    HunYuanVLTextForCausalLM = text_of_images(HunYuanVLTextConfig, HunYuanVLTextModel)
    PaddleOCRTextForCausalLM = text_of_images(PaddleOCRTextConfig, PaddleOCRTextModel)


def seen(positions, window):
    """Which keys a query sees, [positions, positions]; window 0: all before it."""
    distance = torch.arange(positions)[:, None] - torch.arange(positions)[None]
    return (distance >= 0) & ((distance < window) if window else True)


def attend(q, k, v, window):
    """q [heads, positions, dims], k and v [kv heads, positions, dims]"""
    k, v = (t.repeat_interleave(q.shape[0] // k.shape[0], dim=0) for t in (k, v))
    scores = (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).masked_fill(~seen(q.shape[1], window), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(0, 1)


class Layer(nn.Module):
    def __init__(self, config, attention, mlp):
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = attention
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = mlp

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Text(nn.Module):
    embedding = "embed_tokens"

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = nn.Module()
        setattr(self.model, self.embedding, nn.Embedding(config.vocab_size, config.hidden_size))
        self.model.layers = nn.ModuleList(self.layer(config, i) for i in range(config.num_hidden_layers))
        self.model.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        if not config.tie_word_embeddings:
            self.lm_head = linear(config.hidden_size, config.vocab_size)

    def forward(self, input_ids, use_cache=False):
        embedding = getattr(self.model, self.embedding)
        x = embedding(input_ids[0])
        for layer in self.model.layers:
            x = layer(x)
        x = self.model.norm(x)
        return SimpleNamespace(logits=(x @ embedding.weight.T if self.config.tie_word_embeddings else self.lm_head(x))[None])


class MapleAttention(nn.Module):
    def __init__(self, config, windowed):
        super().__init__()
        self.config, self.window = config, config.sliding_window if windowed else 0
        size, kv_size = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
        self.q_proj, self.k_proj, self.v_proj = (linear(config.hidden_size, rows) for rows in (size, kv_size, kv_size))
        self.o_proj = linear(size, config.hidden_size)
        self.q_norm, self.k_norm = (RmsNorm(config.head_dim, config.rms_norm_eps) for _ in range(2))

    def forward(self, x):
        c = self.config
        q = self.q_norm(heads_of(self.q_proj(x), c.num_attention_heads))
        k = self.k_norm(heads_of(self.k_proj(x), c.num_key_value_heads))
        if self.window:
            n_rot = int(c.head_dim * c.partial_rotary_factor)
            angles = angles_of(x.shape[0], n_rot, c.rope_theta)
            q, k = (torch.cat((turn_halves(t[..., :n_rot], angles), t[..., n_rot:]), -1) for t in (q, k))
        return self.o_proj(attend(q, k, heads_of(self.v_proj(x), c.num_key_value_heads), self.window).flatten(1))


class Router(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))


class MapleMoe(nn.Module):
    limit = 7.0

    def __init__(self, config):
        super().__init__()
        self.used = config.num_experts_per_tok
        self.gate = Router(config)
        self.experts = nn.ModuleList(Mlp(config.hidden_size, config.moe_intermediate_size) for _ in range(config.num_experts))

    def forward(self, x):
        weights, chosen = torch.topk(torch.softmax(x @ self.gate.weight.T, dim=-1), self.used)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return torch.stack([sum(w * self.run(self.experts[e], row) for w, e in zip(ws, es)) for row, ws, es in zip(x, weights, chosen.tolist())])

    def run(self, expert, row):
        gate = expert.gate_proj(row).clamp(max=self.limit)
        return expert.down_proj(nn.functional.silu(gate) * expert.up_proj(row).clamp(-self.limit, self.limit))


class MapleForCausalLM(Text):
    config_class = PlainConfig

    @staticmethod
    def layer(config, number):
        return Layer(config, MapleAttention(config, config.layer_types[number] == "sliding_attention"), MapleMoe(config))


class SparkAttention(nn.Module):
    def __init__(self, config, kind):
        super().__init__()
        self.config, self.kind = config, kind
        heads, kv_heads, dims = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.q_k_v_proj = linear(config.hidden_size, (heads + 2 * kv_heads) * dims)
        self.g_proj = linear(config.hidden_size, heads)
        self.out_proj = linear(heads * dims, config.hidden_size)

    def forward(self, x):
        c = self.config
        heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
        rope = c.rope_parameters[self.kind]
        n_rot = int(c.head_dim * rope["partial_rotary_factor"])
        angles = angles_of(x.shape[0], n_rot, rope["rope_theta"])
        q, k, v = heads_of(self.q_k_v_proj(x), heads + 2 * kv_heads).split((heads, kv_heads, kv_heads))
        q, k = (torch.cat((turn_halves(t[..., :n_rot], angles), t[..., n_rot:]), -1) for t in (q, k))
        attended = attend(q, k, v, c.sliding_window if self.kind == "sliding_attention" else 0)
        return self.out_proj((attended * torch.sigmoid(self.g_proj(x))[..., None]).flatten(1))


class BailingAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        heads, kv_heads, dims = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.query_key_value = linear(config.hidden_size, (heads + 2 * kv_heads) * dims)
        self.query_layernorm, self.key_layernorm = (RmsNorm(dims, config.rms_norm_eps) for _ in range(2))
        self.dense = linear(heads * dims, config.hidden_size)

    def forward(self, x):
        c = self.config
        heads, kv_heads = c.num_attention_heads, c.num_key_value_heads
        n_rot = int(c.head_dim * c.partial_rotary_factor)
        angles = angles_of(x.shape[0], n_rot, c.rope_theta)
        q, k, v = heads_of(self.query_key_value(x), heads + 2 * kv_heads).split((heads, kv_heads, kv_heads))
        q, k = self.query_layernorm(q), self.key_layernorm(k)
        q, k = (torch.cat((turn_halves(t[..., :n_rot], angles), t[..., n_rot:]), -1) for t in (q, k))
        return self.dense(attend(q, k, v, 0).flatten(1))


class BailingGate(Router):
    def __init__(self, config):
        super().__init__(config)
        self.expert_bias = nn.Parameter(torch.zeros(config.num_experts))


class BailingMoe(nn.Module):
    """A sigmoid router that first chooses the groups whose best two experts are worth most."""
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.gate = BailingGate(config)
        self.experts = nn.ModuleList(Mlp(config.hidden_size, config.moe_intermediate_size) for _ in range(config.num_experts))
        self.shared_experts = Mlp(config.hidden_size, config.moe_intermediate_size * config.num_shared_experts)

    def forward(self, x):
        c = self.config
        scores = torch.sigmoid(x @ self.gate.weight.T)
        choice = (scores + self.gate.expert_bias).unflatten(-1, (c.n_group, -1))
        groups = choice.topk(2, dim=-1).values.sum(-1).topk(c.topk_group, dim=-1).indices
        kept = torch.zeros(choice.shape[:2]).scatter_(1, groups, 1.0)[..., None].bool()
        chosen = choice.masked_fill(~kept, float("-inf")).flatten(-2).topk(c.num_experts_per_tok, dim=-1).indices
        weights = scores.gather(-1, chosen)
        weights = weights / weights.sum(-1, keepdim=True) * c.routed_scaling_factor
        routed = torch.stack([sum(w * self.experts[e](row) for w, e in zip(ws, es)) for row, ws, es in zip(x, weights, chosen.tolist())])
        return routed + self.shared_experts(x)


class BailingLayer(nn.Module):
    def __init__(self, config, number):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = (RmsNorm(config.hidden_size, config.rms_norm_eps) for _ in range(2))
        self.attention = BailingAttention(config)
        self.mlp = BailingMoe(config) if number >= config.first_k_dense_replace else Mlp(config.hidden_size, config.intermediate_size)

    def forward(self, x):
        x = x + self.attention(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class BailingMoeV2ForCausalLM(Text):
    config_class = PlainConfig
    embedding = "word_embeddings"
    layer = BailingLayer


class GeluMlp(Mlp):
    def forward(self, x):
        return self.down_proj(nn.functional.gelu(self.gate_proj(x)) * self.up_proj(x))


class Spark2_5ForCausalLM(Text):
    config_class = PlainConfig
    embedding = "embedding"

    @staticmethod
    def layer(config, number):
        return Layer(config, SparkAttention(config, config.layer_types[number]), GeluMlp(config.hidden_size, config.intermediate_size))
