"""Encoders that transformers 4.57.1 knows only as code in the model's own folder, in plain torch: their published definitions without
dropout, training and padding. Parameters have the names of the published classes, and so of the weights in their folders.

NomicBertMoeModel  nomic-embed-text-v2-moe: a BERT with rotated positions, whose every second layer has experts
JinaBertModel      jina-embeddings-v2: a BERT with ALiBi in both directions (arXiv 2108.12409, 2310.19923), gated feed-forwards;
                   with "qk_post_norm" as jina-embeddings-v2-base-code has it
NeoBertModel       NeoBERT (arXiv 2502.19587): RMS norms before sublayers, pairs of neighbours are rotated
"""
import math
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional


class Config(SimpleNamespace):
    def to_dict(self):
        return dict(vars(self))


def attend(q, k, v, scale, bias=0.0):
    """q, k, v [positions, heads, dims]; every position sees all."""
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    weights = torch.softmax(q @ k.transpose(1, 2) * scale + bias, dim=-1)
    return (weights @ v).transpose(0, 1).reshape(q.shape[1], -1)


def angles_of(positions, size, base):
    frequencies = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    return torch.outer(torch.arange(positions, dtype=torch.float64), frequencies)[:, None]


def turn_halves(x, angles):
    first, second = x.chunk(2, dim=-1)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def turn_neighbours(x, angles):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    turned = pairs * torch.polar(torch.ones_like(angles), angles).to(pairs.dtype)
    return torch.view_as_real(turned).flatten(-2)


class NomicBertMoeModel(nn.Module):
    class Attention(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config
            self.Wqkv = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.qkv_proj_bias)
            self.out_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.qkv_proj_bias)

        def forward(self, x):
            heads = self.config.n_head
            q, k, v = (part.unflatten(-1, (heads, -1)) for part in self.Wqkv(x).chunk(3, dim=-1))
            angles = angles_of(x.shape[0], q.shape[-1], self.config.rotary_emb_base)
            return self.out_proj(attend(turn_halves(q, angles), turn_halves(k, angles), v, q.shape[-1] ** -0.5))

    class Mlp(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.fc1 = nn.Linear(config.n_embd, config.n_inner, bias=config.mlp_fc1_bias)
            self.fc2 = nn.Linear(config.n_inner, config.n_embd, bias=config.mlp_fc2_bias)

        def forward(self, x):
            return self.fc2(functional.gelu(self.fc1(x)))

    class Mixture(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config
            self.router = nn.Module()
            self.router.layer = nn.Linear(config.n_embd, config.num_experts, bias=False)
            self.experts = nn.Module()
            self.experts.mlp = nn.Module()
            self.experts.mlp.w1 = nn.Parameter(torch.empty(config.num_experts * config.n_inner, config.n_embd))
            self.experts.mlp.w2 = nn.Parameter(torch.empty(config.num_experts * config.n_inner, config.n_embd))
            self.experts.bias = nn.Parameter(torch.empty(config.n_embd))

        def forward(self, x):
            weights, chosen = torch.topk(torch.softmax(self.router.layer(x), dim=-1), self.config.moe_top_k)
            up, down = (w.unflatten(0, (self.config.num_experts, -1)) for w in (self.experts.mlp.w1, self.experts.mlp.w2))
            rows = []
            for row, row_weights, experts in zip(x, weights, chosen):
                rows.append(sum(weight * (functional.gelu(up[expert] @ row) @ down[expert]) for weight, expert in zip(row_weights, experts)))
            return torch.stack(rows) + self.experts.bias

    class Layer(nn.Module):
        def __init__(self, config, number):
            super().__init__()
            has_experts = number % config.moe_every_n_layers == 1
            self.attn = NomicBertMoeModel.Attention(config)
            self.mlp = NomicBertMoeModel.Mixture(config) if has_experts else NomicBertMoeModel.Mlp(config)
            self.norm1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
            self.norm2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

        def forward(self, x):
            x = self.norm1(x + self.attn(x))
            return self.norm2(x + self.mlp(x))

    def __init__(self, config):
        super().__init__()
        self.embeddings = nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(config.vocab_size, config.n_embd)
        self.embeddings.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.n_embd)
        self.emb_ln = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleList(self.Layer(config, i) for i in range(config.n_layer))

    def forward(self, tokens, types):
        x = self.emb_ln(self.embeddings.word_embeddings(tokens) + self.embeddings.token_type_embeddings(types))
        for layer in self.encoder.layers:
            x = layer(x)
        return x


def alibi_slopes(heads):
    """Those of the power of two below, then every second one of the power of two above."""
    def of_power(count):
        return [2 ** (-8 * (i + 1) / count) for i in range(count)]
    below = 2 ** math.floor(math.log2(heads))
    return torch.tensor(of_power(below) + of_power(2 * below)[0::2][:heads - below], dtype=torch.float64)


class JinaBertModel(nn.Module):
    class Attention(nn.Module):
        def __init__(self, config):
            super().__init__()
            dim = config.hidden_size
            self.config = config
            self.self = nn.Module()
            self.self.query, self.self.key, self.self.value = (nn.Linear(dim, dim) for _ in range(3))
            if config.qk_post_norm:
                self.self.layer_norm_q, self.self.layer_norm_k = (nn.LayerNorm(dim, eps=config.layer_norm_eps) for _ in range(2))
            self.output = nn.Module()
            self.output.dense = nn.Linear(dim, dim)
            self.output.LayerNorm = nn.LayerNorm(dim, eps=config.layer_norm_eps)

        def forward(self, x):
            heads = self.config.num_attention_heads
            q, k, v = self.self.query(x), self.self.key(x), self.self.value(x)
            if self.config.qk_post_norm:
                q, k = self.self.layer_norm_q(q), self.self.layer_norm_k(k)
            places = torch.arange(x.shape[0])
            bias = -alibi_slopes(heads).to(x.dtype)[:, None, None] * (places[:, None] - places[None]).abs()
            q, k, v = (row.unflatten(-1, (heads, -1)) for row in (q, k, v))
            return self.output.LayerNorm(self.output.dense(attend(q, k, v, q.shape[-1] ** -0.5, bias)) + x)

    class GatedMlp(nn.Module):
        """The gate comes first, and the norm behind the sum belongs to the feed-forward."""
        def __init__(self, config):
            super().__init__()
            self.gated_layers = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
            self.wo = nn.Linear(config.intermediate_size, config.hidden_size)
            self.layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

        def forward(self, x):
            gate, up = self.gated_layers(x).chunk(2, dim=-1)
            return self.layernorm(self.wo(functional.gelu(gate) * up) + x)

    class UpFirstMlp(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.up_gated_layer = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
            self.down_layer = nn.Linear(config.intermediate_size, config.hidden_size)

        def forward(self, x):
            up, gate = self.up_gated_layer(x).chunk(2, dim=-1)
            return self.down_layer(up * functional.gelu(gate))

    class Layer(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.post_norm = config.qk_post_norm
            self.attention = JinaBertModel.Attention(config)
            self.mlp = JinaBertModel.UpFirstMlp(config) if self.post_norm else JinaBertModel.GatedMlp(config)
            if self.post_norm:
                self.layer_norm_1, self.layer_norm_2 = (nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) for _ in range(2))

        def forward(self, x):
            attended = self.attention(x)
            if not self.post_norm:
                return self.mlp(attended)
            x = self.layer_norm_1(x + attended)
            return self.layer_norm_2(x + self.mlp(x))

    def __init__(self, config):
        super().__init__()
        self.embeddings = nn.Module()
        self.embeddings.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embeddings.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.embeddings.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(self.Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Module()  # of the class alone: vectors are means
        self.pooler.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, tokens, types):
        x = self.embeddings.LayerNorm(self.embeddings.word_embeddings(tokens) + self.embeddings.token_type_embeddings(types))
        for layer in self.encoder.layer:
            x = layer(x)
        return x


class JinaBertForSequenceClassification(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.bert = JinaBertModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, tokens, types):
        rows = self.bert(tokens, types)
        self.logits = self.classifier(torch.tanh(self.bert.pooler.dense(rows[0])))
        return rows


class RmsNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon)


class NeoBertModel(nn.Module):
    class Layer(nn.Module):
        def __init__(self, config):
            super().__init__()
            dim, width = config.hidden_size, 2 * config.intermediate_size // 3
            width = (width + 7) // 8 * 8
            self.config = config
            self.qkv = nn.Linear(dim, 3 * dim, bias=False)
            self.wo = nn.Linear(dim, dim, bias=False)
            self.attention_norm, self.ffn_norm = RmsNorm(dim, config.norm_eps), RmsNorm(dim, config.norm_eps)
            self.ffn = nn.Module()
            self.ffn.w12 = nn.Linear(dim, 2 * width, bias=False)
            self.ffn.w3 = nn.Linear(width, dim, bias=False)

        def forward(self, x):
            # Each head has its query, its key and its value side by side.
            q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (self.config.num_attention_heads, -1)).chunk(3, dim=-1)
            angles = angles_of(x.shape[0], q.shape[-1], 10000.0)
            x = x + self.wo(attend(turn_neighbours(q, angles), turn_neighbours(k, angles), v, q.shape[-1] ** -0.5))
            gate, up = self.ffn.w12(self.ffn_norm(x)).chunk(2, dim=-1)
            return x + self.ffn.w3(functional.silu(gate) * up)

    def __init__(self, config):
        super().__init__()
        self.encoder = nn.Embedding(config.vocab_size, config.hidden_size)
        self.transformer_encoder = nn.ModuleList(self.Layer(config) for _ in range(config.num_hidden_layers))
        self.layer_norm = RmsNorm(config.hidden_size, config.norm_eps)

    def forward(self, tokens, types):
        x = self.encoder(tokens)
        for layer in self.transformer_encoder:
            x = layer(x)
        return self.layer_norm(x)


class NeoBertForSequenceClassification(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = NeoBertModel(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, tokens, types):
        rows = self.model(tokens, types)
        self.logits = self.classifier(torch.tanh(self.dense(rows[0])))
        return rows
