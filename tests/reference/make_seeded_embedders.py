#!/usr/bin/env python3
"""Write what transformers and published definitions compute from small embedding models and rerankers, whose weights anyone can make
again from their names.

    seeded/embedders/NAME.json         as in make_seeded_models.py: "source" are the tokens of a text, "types" their token types,
                                       "files" further files of the folder, "file_tensors" the tensors of the matrices behind the
                                       pooling, "pooling" how rows become one vector, "vector" that vector, of length 1 where the
                                       folder says so, and "logits" those of a head, if there is one
    seeded/embedders/NAME.encoded.npy  float32 rows of the encoder, [tokens][dim]

Usage: make_seeded_embedders.py [NAME_BEGINNING]
The pinned packages are transformers 4.57.1, 5.24.0 for models that need version 5 (those that say so are left alone otherwise), and torch
2.15.0. Models that neither has are defined in remote_code_encoders.py.
"""
import copy
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

import remote_code_encoders
from make_seeded_models import FOLDER, VOCAB, seeded

TOKENS = 48
EMBEDDERS = FOLDER / "embedders"

BERT = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, max_position_embeddings=64,
            type_vocab_size=2, pad_token_id=0, hidden_act="gelu", layer_norm_eps=1e-4)
ROBERTA = dict(BERT, max_position_embeddings=66, type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2)
DISTIL = dict(vocab_size=VOCAB, dim=32, n_layers=3, n_heads=4, hidden_dim=48, max_position_embeddings=64, pad_token_id=0)
MODERN = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=4, num_attention_heads=4, intermediate_size=48, max_position_embeddings=64,
              local_attention=12, global_attn_every_n_layers=3, global_rope_theta=900.0, local_rope_theta=50.0, norm_eps=1e-4,
              pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, reference_compile=False)
NOMIC = dict(vocab_size=VOCAB, n_embd=32, n_layer=3, n_head=4, n_inner=48, n_positions=96, type_vocab_size=2, layer_norm_epsilon=1e-4,
             rotary_emb_base=100, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None, prenorm=False,
             causal=False, use_rms_norm=False, parallel_block=False, activation_function="swiglu", qkv_proj_bias=False, mlp_fc1_bias=False,
             mlp_fc2_bias=False, max_trained_positions=96)
NOMIC_5 = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, max_position_embeddings=96,
               type_vocab_size=2, layer_norm_eps=1e-4, rope_parameters={"rope_type": "default", "rope_theta": 100.0}, pad_token_id=0)
NOMIC_MOE = dict(NOMIC, type_vocab_size=1, activation_function="gelu", qkv_proj_bias=True, mlp_fc1_bias=True, mlp_fc2_bias=True,
                 moe_every_n_layers=2, num_experts=8, moe_top_k=2, moe_normalize_expert_weights=False, expert_choice_router=False, ffn_div=1,
                 num_shared_experts=0, pad_token_id=1)
JINA = dict(vocab_size=VOCAB, hidden_size=36, num_hidden_layers=3, num_attention_heads=6, intermediate_size=48, max_position_embeddings=64,
            type_vocab_size=2, layer_norm_eps=1e-4, position_embedding_type="alibi", feed_forward_type="geglu", emb_pooler="mean", hidden_act="gelu")
CODE = dict(auto_map={"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"})
JINA_3 = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48, max_position_embeddings=96,
              type_vocab_size=1, layer_norm_eps=1e-4, rope_parameters={"rope_type": "default", "rope_theta": 200.0}, pad_token_id=1, bos_token_id=0,
              eos_token_id=2)
JINA_3_PUBLISHED = dict({key: value for key, value in JINA_3.items() if key != "rope_parameters"}, max_position_embeddings=98, hidden_act="gelu",
                        position_embedding_type="rotary", rotary_emb_base=200.0)
NEO = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=66, max_length=96, norm_eps=1e-4,
           pad_token_id=0)
LLAMA = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
             max_position_embeddings=96, rms_norm_eps=1e-4, bos_token_id=1, eos_token_id=2, pad_token_id=0)
EURO = dict(LLAMA, rope_parameters={"rope_type": "default", "rope_theta": 300.0}, mask_token_id=3)
GEMMA = dict(LLAMA, num_hidden_layers=7, head_dim=16, sliding_window=14, rope_theta=900.0, rope_local_base_freq=50.0, use_bidirectional_attention=True,
             hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=16)
LFM = dict(LLAMA, num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "full_attention"], conv_L_cache=3, norm_eps=1e-4,
           block_multiple_of=8, block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=True)


def sentence_transformers(pooling, normalize=True, dense=(), first="Transformer"):
    """The files of a folder of sentence-transformers. `dense`: (inputs, outputs, activation) of each matrix."""
    kinds = ["mean_tokens", "cls_token", "lasttoken"]
    chosen = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}[pooling]
    modules = [("", f"sentence_transformers.models.{first}"), ("1_Pooling", "sentence_transformers.models.Pooling")]
    files = {"1_Pooling/config.json": {"word_embedding_dimension": 32} | {f"pooling_mode_{kind}": kind == chosen for kind in kinds}}
    for i, (inputs, outputs, activation) in enumerate(dense):
        modules.append((f"{i + 2}_Dense", "sentence_transformers.models.Dense"))
        files[f"{i + 2}_Dense/config.json"] = {"in_features": inputs, "out_features": outputs, "bias": activation != "Identity",
                                               "activation_function": f"torch.nn.modules.{'linear' if activation == 'Identity' else 'activation'}.{activation}"}
    if normalize:
        modules.append((f"{len(modules)}_Normalize", "sentence_transformers.models.Normalize"))
    files["modules.json"] = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]
    return files


# Name: (class, settings). Aside: "needs" is the major version of transformers, "known_as" are the published settings of the same model,
# "pooling" and "files" are the folder's, "pair" says that the text has two parts with token types of their own, "class_name" is
# the published class, "code" that the class is one of remote_code_encoders.py.
MODELS = {
    "bert": ("BertModel", dict(BERT, files=sentence_transformers("mean"))),
    "bert-mlm": ("BertForMaskedLM", dict(BERT, hidden_act="gelu_new", files=sentence_transformers("cls"))),
    "bert-rank": ("BertForSequenceClassification", dict(BERT, num_labels=1, pair=True)),
    "bert-labels": ("BertForSequenceClassification", dict(BERT, num_labels=3, pair=True)),
    "bert-roberta": ("RobertaModel", dict(ROBERTA, files=sentence_transformers("mean", normalize=False))),
    "bert-roberta-pad": ("RobertaModel", dict(ROBERTA, pad_token_id=3, max_position_embeddings=68, files=sentence_transformers("mean"))),
    "bert-xlmr": ("XLMRobertaModel", dict(ROBERTA, files=sentence_transformers("cls"))),
    "bert-xlmr-rank": ("XLMRobertaForSequenceClassification", dict(ROBERTA, num_labels=1)),
    "bert-roberta-rank": ("RobertaForSequenceClassification", dict(ROBERTA, num_labels=1)),
    "bert-camembert": ("CamembertModel", dict(ROBERTA, files=sentence_transformers("mean"))),
    "bert-distil": ("DistilBertModel", dict(DISTIL, files=sentence_transformers("mean", dense=[(32, 20, "Tanh")]))),
    "bert-distil-rank": ("DistilBertForSequenceClassification", dict(DISTIL, num_labels=2)),
    "modern-bert": ("ModernBertModel", dict(MODERN, files=sentence_transformers("cls"))),
    "modern-bert-silu": ("ModernBertForMaskedLM", dict(MODERN, hidden_activation="silu", local_rope_theta=900.0, global_attn_every_n_layers=2,
                                                       files=sentence_transformers("mean"))),
    "modern-bert-rank": ("ModernBertForSequenceClassification", dict(MODERN, num_labels=1, classifier_pooling="mean")),
    "modern-bert-cls": ("ModernBertForSequenceClassification", dict(MODERN, num_labels=1, classifier_pooling="cls", norm_bias=False,
                                                                    classifier_bias=True)),
    "nomic-bert": ("NomicBertModel", dict(NOMIC_5, needs=5, known_as=NOMIC, files=sentence_transformers("mean"))),
    "nomic-bert-later": ("NomicBertModel", dict(NOMIC_5, needs=5, files=sentence_transformers("mean"))),
    "nomic-bert-moe": ("NomicBertMoeModel", dict(NOMIC_MOE, code=True, class_name="NomicBertModel", files=sentence_transformers("mean"))),
    "jina-bert-v2": ("JinaBertModel", dict(JINA, code=True, qk_post_norm=False, files=sentence_transformers("mean"))),
    "jina-bert-v2-code": ("JinaBertModel", dict(JINA, code=True, qk_post_norm=True, known_as=CODE, files=sentence_transformers("mean"))),
    "jina-bert-v2-rank": ("JinaBertForSequenceClassification", dict(JINA, code=True, qk_post_norm=False, num_labels=1)),
    "jina-bert-v3": ("JinaEmbeddingsV3Model", dict(JINA_3, needs=5, files=sentence_transformers("mean"))),
    "jina-bert-v3-published": ("JinaEmbeddingsV3Model", dict(JINA_3, needs=5, class_name="XLMRobertaModel", known_as=JINA_3_PUBLISHED,
                                                             files=sentence_transformers("mean"))),
    "neo-bert": ("NeoBertModel", dict(NEO, code=True, class_name="NeoBERT", files=sentence_transformers("cls"))),
    "neo-bert-rank": ("NeoBertForSequenceClassification", dict(NEO, code=True, class_name="NeoBERTForSequenceClassification", num_labels=2)),
    "eurobert": ("EuroBertModel", dict(EURO, needs=5, files=sentence_transformers("mean"))),
    "eurobert-rank": ("EuroBertForSequenceClassification", dict(EURO, needs=5, num_labels=1, classifier_pooling="mean")),
    "eurobert-labels": ("EuroBertForSequenceClassification", dict(EURO, needs=5, num_labels=3, classifier_pooling="bos")),
    "eurobert-late": ("EuroBertForSequenceClassification", dict(EURO, needs=5, num_labels=2, classifier_pooling="late")),
    "gemma-embedding": ("Gemma3TextModel", dict(GEMMA, files=sentence_transformers("mean", dense=[(32, 80, "Identity"), (80, 32, "Identity")]))),
    "qwen3": ("Qwen3Model", dict(LLAMA, head_dim=16, files=sentence_transformers("last"))),
    "qwen3-rank": ("Qwen3ForSequenceClassification", dict(LLAMA, head_dim=16, num_labels=1)),
    "llama": ("LlamaModel", dict(LLAMA, all_see_all=True, known_as=dict(is_causal=False), files=sentence_transformers("mean"))),
    "lfm2-causal": ("Lfm2Model", dict(LFM, files=sentence_transformers("last"))),
    "lfm2": ("Lfm2Model", dict(LFM, all_see_all=True, class_name="Lfm2BidirectionalModel", files=sentence_transformers("cls"))),
}
ASIDE = dict(needs=4, known_as={}, files={}, pair=False, class_name=None, code=False, all_see_all=False)


def tensor_row(name, shape):
    """Vectors differ from what they are initialized to; matrices keep the size of activations."""
    lower = name.lower()
    mean, spread = 0.0, 0.6
    if name.endswith("bias"):
        spread = 0.5
    elif "norm" in lower or "emb_ln" in lower:
        mean = 1.0
    elif "embed" in lower or name == "encoder.weight" or name == "model.encoder.weight":
        spread = 0.8
    elif name.endswith("mlp.w2"):
        spread = 0.3
    else:
        spread = round(2.0 / shape[-1] ** 0.5, 4)
    return {"name": name, "shape": list(shape), "mean": mean, "spread": spread}


def weights_of(rows):
    return {row["name"]: torch.from_numpy(seeded(row["name"], row["shape"], row["mean"], row["spread"])) for row in rows}


def published_model(name, settings):
    model = getattr(remote_code_encoders, name)(remote_code_encoders.Config(**settings))
    rows = [tensor_row(key, value.shape) for key, value in model.state_dict().items()]
    model.load_state_dict(weights_of(rows))
    return model, settings, rows


def library_model(name, settings, is_plus_one):
    """A model of transformers, whose folder is written, given its weights, and read again."""
    model_class = getattr(transformers, name)
    config = model_class.config_class(**copy.deepcopy(settings), attn_implementation="eager")
    with tempfile.TemporaryDirectory() as folder:
        model_class(config).save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        with safe_open(f"{folder}/model.safetensors", "pt") as file:
            rows = [tensor_row(key, file.get_slice(key).get_shape()) for key in file.keys()]
        for row in rows if is_plus_one else []:
            row["mean"] = 0.0 if "norm" in row["name"] else row["mean"]
        save_file(weights_of(rows), f"{folder}/model.safetensors", metadata={"format": "pt"})
        # Some configurations change what they are given.
        (Path(folder) / "config.json").write_text(json.dumps(saved | {key: settings[key] for key in settings}))
        model = model_class.from_pretrained(folder, attn_implementation="eager")
    general = set(transformers.PretrainedConfig().to_dict()) - {"architectures", "tie_word_embeddings", "id2label", "label2id"}
    kept = {key: value for key, value in saved.items() if key in settings or key not in general or key in ("id2label", "label2id")}
    return model, kept | {key: settings[key] for key in settings if key != "num_labels"}, rows


def let_all_see_all(model):
    """What published folders with such settings do: no position is hidden, and convolutions are centred."""
    for module in model.modules():
        if type(module).__name__ == "Lfm2ShortConv":
            centre(module)
    body = model.model if hasattr(model, "model") else model
    module = sys.modules[type(body).__module__]
    module.create_causal_mask = lambda **_: None


def centre(module):
    def forward(hidden_states, **_):
        columns = hidden_states.shape[-1]
        b, c, x = module.in_proj(hidden_states).transpose(-1, -2).chunk(3, dim=-2)
        taps = module.conv.weight.shape[-1]
        padded = torch.nn.functional.pad(b * x, ((taps - 1) // 2, taps - 1 - (taps - 1) // 2))
        mixed = torch.nn.functional.conv1d(padded, module.conv.weight, module.conv.bias, groups=columns)
        return module.out_proj((c * mixed).transpose(-1, -2))
    module.forward = forward


def body_of(model):
    for name in ("bert", "roberta", "distilbert", "model"):
        if hasattr(model, name) and isinstance(getattr(model, name), torch.nn.Module):
            return getattr(model, name)
    return model


def run(model, tokens, types, settings):
    """Rows of the encoder, and logits of a head or None."""
    if type(model).__module__ == remote_code_encoders.__name__:
        rows = model(tokens, types)
        return rows, getattr(model, "logits", None)
    given = dict(input_ids=tokens[None])
    if "type_vocab_size" in settings:
        given["token_type_ids"] = types[None]
    rows = body_of(model)(**given)[0][0]
    return rows, model(**given).logits[0] if type(model).__name__.endswith("ForSequenceClassification") else None


def vector_of(rows, files, weights):
    """What the modules behind the encoder make of its rows."""
    pooling = files["1_Pooling/config.json"]
    vector = rows.mean(0) if pooling["pooling_mode_mean_tokens"] else rows[0] if pooling["pooling_mode_cls_token"] else rows[-1]
    for module in files["modules.json"]:
        if module["type"].endswith("Dense"):
            settings, tensors = files[f"{module['path']}/config.json"], weights[f"{module['path']}/model.safetensors"]
            vector = tensors["linear.weight"].double() @ vector
            if settings["bias"]:
                vector = vector + tensors["linear.bias"].double()
            vector = torch.tanh(vector) if settings["activation_function"].endswith("Tanh") else vector
        elif module["type"].endswith("Normalize"):
            vector = vector / vector.norm()
    return vector


def write(name, class_name, settings):
    settings = copy.deepcopy(settings)
    aside = {key: settings.pop(key, otherwise) for key, otherwise in ASIDE.items()}
    if not aside["code"] and aside["needs"] != int(transformers.__version__.split(".")[0]):
        return
    if aside["code"]:
        model, config, rows = published_model(class_name, settings)
        config = {key: value for key, value in config.items() if key not in ("qk_post_norm", "num_labels")}
        if settings.get("num_labels", 0) > 0:
            config["id2label"] = {str(i): f"LABEL_{i}" for i in range(settings["num_labels"])}
    else:
        model, config, rows = library_model(class_name, settings, class_name.startswith("Gemma"))
    model = model.double().eval()
    if aside["all_see_all"]:
        let_all_see_all(model)
    tokens = torch.randint(4, VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(9))
    types = torch.zeros_like(tokens)
    if aside["pair"]:
        types[TOKENS // 3:] = 1
    with torch.no_grad():
        encoded, logits = run(model, tokens, types, settings)
    if aside["known_as"]:
        config = aside["known_as"] if "vocab_size" in aside["known_as"] else config | aside["known_as"]
    config = config | {"architectures": [aside["class_name"] or class_name]}
    entries = {"config": config, "context": settings.get("max_position_embeddings", TOKENS), "source": tokens.tolist()}
    if aside["pair"]:
        entries["types"] = types.tolist()
    if aside["files"]:
        files = aside["files"]
        file_rows = {}
        for path, content in files.items():
            if "in_features" not in content:
                continue
            made = [{"name": "linear.weight", "shape": [content["out_features"], content["in_features"]]}]
            made += [{"name": "linear.bias", "shape": [content["out_features"]]}] if content["bias"] else []
            file_rows[path.replace("config.json", "model.safetensors")] = [tensor_row(row["name"], row["shape"]) for row in made]
        weights = {path: weights_of(made) for path, made in file_rows.items()}
        vector = vector_of(encoded, files, weights)
        entries |= {"files": files, "file_tensors": file_rows, "vector": [round(value, 7) for value in vector.tolist()]}
    if logits is not None:
        entries["logits"] = [round(value, 7) for value in logits.tolist()]
    parts = [f'"{key}": {json.dumps(value)}' for key, value in entries.items()]
    parts.append('"tensors": [\n ' + ",\n ".join(json.dumps(row) for row in rows) + "]")
    (EMBEDDERS / f"{name}.json").write_text("{" + ",\n".join(parts) + "}\n")
    np.save(EMBEDDERS / f"{name}.encoded.npy", encoded.float().numpy())
    print(f"{name:20} encoded up to {encoded.abs().max():.2f}, spread {encoded.std():.2f}, rows differ by {(encoded - encoded.mean(0)).abs().max():.2f}",
          "" if logits is None else f"logits {logits.tolist()}")


if __name__ == "__main__":
    EMBEDDERS.mkdir(exist_ok=True)
    beginning = sys.argv[1] if len(sys.argv) > 1 else ""
    for name, (class_name, settings) in MODELS.items():
        if name.startswith(beginning):
            write(name, class_name, settings)
