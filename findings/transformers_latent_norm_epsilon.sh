# Python package transformers 5.24.0 of PyPI.
#
# DeepSeek V3 and GLM 4.7 Flash norm the latents of their attention. Good guess: rms_norm_eps of the configuration is the
# epsilon of every RMS norm, as the name says. Seen: the norms of latents and of what queries are made of have 1e-06,
# whatever the configuration says.
source "$(dirname "$0")/common.bash"

cat >norms.py <<'END'
from transformers import AutoModelForCausalLM, DeepseekV3Config, Glm4MoeLiteConfig

sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=32, moe_intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=2, n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, kv_lora_rank=16, q_lora_rank=16,
             qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8)
for config_class in (DeepseekV3Config, Glm4MoeLiteConfig):
    layer = AutoModelForCausalLM.from_config(config_class(**sizes, rms_norm_eps=0.01)).model.layers[0]
    norms = layer.input_layernorm, layer.self_attn.q_a_layernorm, layer.self_attn.kv_a_layernorm
    print(*(norm.variance_epsilon for norm in norms))
END

python_with torch==2.15.0 transformers==5.24.0
found=$("$python" norms.py 2>/dev/null)
expect "epsilons in DeepSeek V3: of the layer, of queries, of latents" "0.01 1e-06 1e-06" "$(sed -n 1p <<<"$found")"
expect "epsilons in GLM 4.7 Flash" "0.01 1e-06 1e-06" "$(sed -n 2p <<<"$found")"
