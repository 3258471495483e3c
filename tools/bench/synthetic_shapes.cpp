#include "tools/bench/synthetic_shapes.h"

#include <fmt/format.h>

#include "tools/bench/synthetic_pairs.h"

namespace kvant::tools {
namespace {

using Shape = SyntheticShape;
using Tensors = std::vector<SyntheticTensor>;

constexpr int64_t kWindowsBetween = 6;  // of gemma3: every sixth layer sees all positions
constexpr int64_t kSigmoidGating = 2;   // in expert_gating_func
constexpr int64_t kDeltaBetween = 4;    // of qwen35: every fourth layer has attention
constexpr int64_t kNgramSize = 3;       // of qwen4exp
constexpr int64_t kNgramTaps = 4;
constexpr int64_t kNgramLayer = 1;

bool IsGptOss(const Shape& shape) { return shape.family == &arch::gpt_oss::kFamily; }
bool IsGemma3(const Shape& shape) { return shape.family == &arch::gemma3::kFamily; }
bool IsMuseGlimmer(const Shape& shape) { return shape.family == &arch::muse_glimmer::kFamily; }
bool IsLaguna(const Shape& shape) { return shape.family == &arch::laguna::kFamily; }

// Such a router chooses with a bias of its own.
bool HasSigmoidRouter(const Shape& shape) { return shape.kda.has_value() || IsLaguna(shape); }

// The norms behind sublayers, beside those in front of them.
bool HasNormsBehind(const Shape& shape) { return IsGemma3(shape) || IsMuseGlimmer(shape); }

SyntheticTensor NormWeight(const std::string& name, int64_t cols) {
  return {.name = name + ".weight", .cols = cols, .value = 1.0f};
}
SyntheticTensor Bias(const std::string& name, int64_t cols, int64_t rows = 1) {
  return {.name = name + ".bias", .cols = cols, .rows = rows, .value = 0.0f};
}

void ListConnection(const Shape& shape, const std::string& name, Tensors& list) {
  const int64_t columns = shape.hyper->streams * shape.dim;
  list.push_back(NormWeight(name + "_norm", columns));
  list.push_back({name + "_down.weight", columns, shape.hyper->rank});
  list.push_back({name + "_up.weight", shape.hyper->rank, columns});
  if (!name.starts_with("output")) {
    list.push_back({name + "_inject.weight", columns, shape.hyper->streams});
  }
}

int64_t NgramHeads(const Shape::Hyper& hyper) { return (kNgramSize - 1) * hyper.ngram_heads; }

void ListNgrams(const Shape& shape, const std::string& prefix, Tensors& list) {
  const int64_t columns = shape.hyper->streams * shape.dim;
  const int64_t in = NgramHeads(*shape.hyper) * shape.hyper->ngram_row_dim;
  list.push_back({prefix + "ple_key.weight", in, columns});
  list.push_back({prefix + "ple_value.weight", in, shape.dim});
  for (const char* name : {"ple_norm_key", "ple_norm_query", "ple_norm_conv"}) {
    list.push_back(NormWeight(prefix + name, columns));
  }
  list.push_back({.name = prefix + "ple_conv1d.weight",
                  .cols = kNgramTaps,
                  .rows = columns,
                  .value = 1.0f / static_cast<float>(kNgramTaps)});
}

void ListFeedForward(const Shape& shape, int64_t layer, const std::string& prefix, Tensors& list) {
  const auto add_dense = [&](int64_t width, const std::string& suffix) {
    list.push_back({prefix + "ffn_gate" + suffix, shape.dim, width});
    list.push_back({prefix + "ffn_up" + suffix, shape.dim, width});
    list.push_back({prefix + "ffn_down" + suffix, width, shape.dim});
  };
  if (shape.experts == 0) return add_dense(shape.ffn, ".weight");
  if (layer == 0 && shape.dense_ffn > 0) return add_dense(shape.dense_ffn, ".weight");
  if (shape.shared_ffn > 0) add_dense(shape.shared_ffn, "_shexp.weight");
  if (shape.hyper.has_value()) list.push_back({prefix + "ffn_gate_inp_shexp.weight", shape.dim});
  list.push_back({prefix + "ffn_gate_inp.weight", shape.dim, shape.experts});
  list.push_back({prefix + "ffn_gate_exps.weight", shape.dim, shape.ffn, shape.experts});
  list.push_back({prefix + "ffn_up_exps.weight", shape.dim, shape.ffn, shape.experts});
  list.push_back({prefix + "ffn_down_exps.weight", shape.ffn, shape.dim, shape.experts});
  if (HasSigmoidRouter(shape)) list.push_back(Bias(prefix + "exp_probs_b", shape.experts));
  if (!IsGptOss(shape)) return;
  list.push_back(Bias(prefix + "ffn_gate_inp", shape.experts));
  list.push_back(Bias(prefix + "ffn_gate_exps", shape.ffn, shape.experts));
  list.push_back(Bias(prefix + "ffn_up_exps", shape.ffn, shape.experts));
  list.push_back(Bias(prefix + "ffn_down_exps", shape.dim, shape.experts));
}

void ListAttention(const Shape& shape, const std::string& prefix, Tensors& list) {
  const int64_t q_rows = shape.HeadDim() * shape.heads;
  const int64_t kv_rows = shape.HeadDim() * shape.kv_heads;
  // Queries of qwen35 have a gate each.
  list.push_back({prefix + "attn_q.weight", shape.dim, shape.delta ? 2 * q_rows : q_rows});
  list.push_back({prefix + "attn_k.weight", shape.dim, kv_rows});
  list.push_back({prefix + "attn_v.weight", shape.dim, kv_rows});
  if (shape.gates != Shape::Gates::kNone) {
    const int64_t gates = shape.gates == Shape::Gates::kOfHeads ? shape.heads : q_rows;
    list.push_back({prefix + "attn_gate.weight", shape.dim, gates});
  }
  list.push_back({prefix + "attn_output.weight", q_rows, shape.dim});
  if (IsGptOss(shape)) {
    list.push_back(Bias(prefix + "attn_q", q_rows));
    list.push_back(Bias(prefix + "attn_k", kv_rows));
    list.push_back(Bias(prefix + "attn_v", kv_rows));
    list.push_back(Bias(prefix + "attn_output", shape.dim));
    list.push_back({.name = prefix + "attn_sinks.weight", .cols = shape.heads, .value = 0.0f});
  } else if (shape.family != &arch::llama::kFamily) {
    list.push_back(NormWeight(prefix + "attn_q_norm", shape.HeadDim()));
    list.push_back(NormWeight(prefix + "attn_k_norm", shape.HeadDim()));
  }
}

void ListLatentAttention(const Shape& shape, const Shape::Latent& latent, const std::string& prefix,
                         Tensors& list) {
  const int64_t q_rows = shape.heads * (latent.nope + latent.rope);
  if (latent.q_rank == 0) {
    list.push_back({prefix + "attn_q.weight", shape.dim, q_rows});
  } else {
    list.push_back({prefix + "attn_q_a.weight", shape.dim, latent.q_rank});
    list.push_back(NormWeight(prefix + "attn_q_a_norm", latent.q_rank));
    list.push_back({prefix + "attn_q_b.weight", latent.q_rank, q_rows});
  }
  list.push_back({prefix + "attn_kv_a_mqa.weight", shape.dim, latent.rank + latent.rope});
  list.push_back(NormWeight(prefix + "attn_kv_a_norm", latent.rank));
  list.push_back({prefix + "attn_k_b.weight", latent.nope, latent.rank, shape.heads});
  list.push_back({prefix + "attn_v_b.weight", latent.rank, latent.v_dim, shape.heads});
  if (shape.kda.has_value()) list.push_back({prefix + "attn_gate.weight", shape.dim, shape.heads});
  list.push_back({prefix + "attn_output.weight", shape.heads * latent.v_dim, shape.dim});
}

void ListIndexer(const Shape& shape, const Shape::Index& index, const std::string& prefix,
                 Tensors& list) {
  list.push_back(NormWeight(prefix + "indexer.k_norm", index.dim));
  if (index.block > 0) {
    list.push_back(NormWeight(prefix + "indexer.q_norm", index.dim));
    list.push_back({prefix + "indexer.q_proj.weight", shape.dim, index.heads * index.dim});
    list.push_back({prefix + "indexer.k_proj.weight", shape.dim, index.dim});
    return;
  }
  list.push_back(Bias(prefix + "indexer.k_norm", index.dim));
  list.push_back({prefix + "indexer.proj.weight", shape.dim, index.heads});
  list.push_back({prefix + "indexer.attn_k.weight", shape.dim, index.dim});
  list.push_back(
      {prefix + "indexer.attn_q_b.weight", shape.latent->q_rank, index.heads * index.dim});
}

void ListKda(const Shape& shape, const Shape::Kda& kda, const std::string& prefix, Tensors& list) {
  const int64_t columns = shape.heads * kda.head_dim;
  for (const char* name : {"attn_q", "attn_k", "attn_v", "ssm_f_a", "ssm_g_a"}) {
    list.push_back({prefix + name + ".weight", shape.dim, columns});
  }
  list.push_back({prefix + "ssm_beta.weight", shape.dim, shape.heads});
  for (const char* name : {"ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"}) {
    list.push_back({.name = prefix + name + ".weight",
                    .cols = kda.taps,
                    .experts = columns,
                    .value = 1.0f / static_cast<float>(kda.taps)});
  }
  list.push_back({.name = prefix + "ssm_a", .cols = 1, .rows = shape.heads, .value = 1.0f});
  list.push_back(Bias(prefix + "ssm_dt", columns));
  list.push_back(NormWeight(prefix + "ssm_norm", kda.head_dim));
  list.push_back({prefix + "attn_output.weight", columns, shape.dim});
}

void ListDeltaNet(const Shape& shape, const Shape::Delta& delta, const std::string& prefix,
                  Tensors& list) {
  const int64_t values = delta.value_heads * delta.head_dim;
  const int64_t qkv = 2 * delta.key_heads * delta.head_dim + values;
  list.push_back({prefix + "attn_qkv.weight", shape.dim, qkv});
  list.push_back({prefix + "attn_gate.weight", shape.dim, values});
  list.push_back({prefix + "ssm_beta.weight", shape.dim, delta.value_heads});
  list.push_back({prefix + "ssm_alpha.weight", shape.dim, delta.value_heads});
  list.push_back({.name = prefix + "ssm_conv1d.weight",
                  .cols = delta.taps,
                  .rows = qkv,
                  .value = 1.0f / static_cast<float>(delta.taps)});
  list.push_back({.name = prefix + "ssm_a", .cols = delta.value_heads, .value = -0.1f});
  list.push_back(Bias(prefix + "ssm_dt", delta.value_heads));
  list.push_back(NormWeight(prefix + "ssm_norm", delta.head_dim));
  list.push_back({prefix + "ssm_out.weight", values, shape.dim});
}

void ListLayer(const Shape& shape, int64_t layer, Tensors& list) {
  const std::string prefix = fmt::format("blk.{}.", layer);
  if (shape.hyper.has_value()) {
    ListConnection(shape, prefix + "hc_attn", list);
    ListConnection(shape, prefix + "hc_ffn", list);
    if (layer == kNgramLayer) ListNgrams(shape, prefix, list);
  } else {
    list.push_back(NormWeight(prefix + "attn_norm", shape.dim));
  }
  if (shape.kda.has_value() && (layer + 1) % shape.kda->every != 0) {
    ListKda(shape, *shape.kda, prefix, list);
  } else if (shape.latent.has_value()) {
    ListLatentAttention(shape, *shape.latent, prefix, list);
    if (shape.index.has_value()) ListIndexer(shape, *shape.index, prefix, list);
  } else if (shape.delta.has_value() && layer < shape.layers && (layer + 1) % kDeltaBetween != 0) {
    ListDeltaNet(shape, *shape.delta, prefix, list);
  } else {
    ListAttention(shape, prefix, list);
    if (shape.index.has_value()) ListIndexer(shape, *shape.index, prefix, list);
  }
  const bool before_ffn = IsGptOss(shape) || (shape.delta.has_value() && !shape.hyper.has_value());
  if (HasNormsBehind(shape) || before_ffn) {
    list.push_back(NormWeight(prefix + "post_attention_norm", shape.dim));
  }
  if (!IsGptOss(shape) && !shape.delta.has_value()) {
    list.push_back(NormWeight(prefix + "ffn_norm", shape.dim));
  }
  ListFeedForward(shape, layer, prefix, list);
  if (HasNormsBehind(shape)) list.push_back(NormWeight(prefix + "post_ffw_norm", shape.dim));
}

// The layer behind the others that predicts a token more.
void ListPredictor(const Shape& shape, Tensors& list) {
  const std::string prefix = fmt::format("blk.{}.nextn.", shape.layers);
  list.push_back({prefix + "eh_proj.weight", 2 * shape.dim, shape.dim});
  for (const char* norm : {"enorm", "hnorm", "shared_head_norm"}) {
    list.push_back(NormWeight(prefix + norm, shape.dim));
  }
  ListLayer(shape, shape.layers, list);
}

// The keys of hyper-connections, of n-grams and of blocks with one key.
void AddHyper(const Shape& shape, formats::GgufWriter& writer) {
  const Shape::Hyper& hyper = *shape.hyper;
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", shape.family->name, name);
  };
  const auto add = [&](std::string_view name, int64_t value) {
    writer.AddU32(key(name), static_cast<uint32_t>(value));
  };
  add("hyper_connection.count", hyper.streams);
  add("hyper_connection.low_rank", hyper.rank);
  add("embedding_length_per_layer_input", hyper.ngram_row_dim);
  writer.AddI32s(key("ple.layers"), {static_cast<int32_t>(kNgramLayer)});
  add("ple.ngram_size", kNgramSize);
  add("ple.heads_per_ngram", hyper.ngram_heads);
  add("ple.conv_kernel", kNgramTaps);
  add("ple.eos_token_id", 0);
  writer.AddU64s(key("ple.layer_multipliers"), {40503, 69069, 1103515245});
  std::vector<uint64_t> offsets;
  for (int64_t head = 0; head < NgramHeads(hyper); ++head) {
    offsets.push_back(static_cast<uint64_t>(head * hyper.ngram_rows));
  }
  writer.AddU64s(key("ple.head_offsets"), offsets);
  writer.AddU64s(key("ple.head_vocab_sizes"),
                 std::vector<uint64_t>(offsets.size(), static_cast<uint64_t>(hyper.ngram_rows)));
  std::vector<int32_t> blocks;
  for (int64_t layer = 1; layer <= shape.layers; ++layer) {
    blocks.push_back(layer % kDeltaBetween == 0 ? static_cast<int32_t>(shape.index->block) : 0);
  }
  writer.AddI32s(key("attention.compress_ratios"), blocks);
}

// The keys of what only some shapes have.
void AddKinds(const Shape& shape, formats::GgufWriter& writer) {
  const auto add = [&](std::string_view name, int64_t value) {
    writer.AddU32(fmt::format("{}.{}", shape.family->name, name), static_cast<uint32_t>(value));
  };
  if (shape.latent.has_value()) {
    add("attention.kv_lora_rank", shape.latent->rank);
    add("attention.key_length", shape.latent->rank + shape.latent->rope);
    add("attention.value_length", shape.latent->rank);
    add("attention.key_length_mla", shape.latent->nope + shape.latent->rope);
    add("attention.value_length_mla", shape.latent->v_dim);
    // Files of DeepSeek-V2 say this value, and other engines expect it.
    writer.AddF32(fmt::format("{}.expert_weights_scale", shape.family->name), 1.0f);
  }
  if (shape.latent.has_value() && shape.latent->q_rank > 0) {
    add("attention.q_lora_rank", shape.latent->q_rank);
  }
  if (shape.index.has_value()) {
    add("attention.indexer.head_count", shape.index->heads);
    add("attention.indexer.key_length", shape.index->dim);
    add("attention.indexer.top_k", shape.index->top_k);
  }
  if (shape.hyper.has_value()) AddHyper(shape, writer);
  if (shape.delta.has_value()) {
    add("ssm.conv_kernel", shape.delta->taps);
    add("ssm.group_count", shape.delta->key_heads);
    add("ssm.time_step_rank", shape.delta->value_heads);
    add("ssm.state_size", shape.delta->head_dim);
    add("ssm.inner_size", shape.delta->value_heads * shape.delta->head_dim);
    add("full_attention_interval", kDeltaBetween);
    const std::vector<int32_t> sections = {11, 11, 10, 0};  // of a text all turn alike
    writer.AddI32s(fmt::format("{}.rope.dimension_sections", shape.family->name), sections);
  }
  if (shape.kda.has_value()) {
    add("ssm.conv_kernel", shape.kda->taps);
    add("kda.head_dim", shape.kda->head_dim);
    writer.AddF32(fmt::format("{}.kda.gate_lower_bound", shape.family->name), -5.0f);
    add("expert_group_count", shape.kda->groups);
    add("expert_group_used_count", shape.kda->groups / 2);
  }
  if (shape.experts > 0) {
    add("expert_count", shape.experts);
    add("expert_used_count", shape.experts_used);
    add("expert_feed_forward_length", shape.ffn);
  }
  if (shape.dense_ffn > 0) add("leading_dense_block_count", 1);
  if (shape.shared_ffn > 0 && shape.hyper.has_value()) {
    add("expert_shared_feed_forward_length", shape.shared_ffn);
  } else if (shape.shared_ffn > 0) {
    add("expert_shared_count", shape.shared_ffn / shape.ffn);
  }
  if (HasSigmoidRouter(shape)) add("expert_gating_func", kSigmoidGating);
  if (IsMuseGlimmer(shape)) {
    writer.AddF32(fmt::format("{}.logit_scale", shape.family->name), 0.196116f);
    writer.AddF32(fmt::format("{}.final_logit_softcapping", shape.family->name), 20.0f);
  }
  if (shape.family == &arch::qwen3vl::kFamily) {
    const std::vector<int32_t> sections = {24, 20, 20, 0};  // of a text all turn alike
    writer.AddI32s(fmt::format("{}.rope.dimension_sections", shape.family->name), sections);
  }
  if (shape.window > 0) add("attention.sliding_window", shape.window);
  if (IsGemma3(shape)) add("attention.sliding_window_pattern", kWindowsBetween);
}

// The kv heads, which say which layers have latent attention beside others.
void AddKvHeads(const Shape& shape, formats::GgufWriter& writer) {
  const std::string key = fmt::format("{}.attention.head_count_kv", shape.family->name);
  if (!shape.kda.has_value()) return writer.AddU32(key, static_cast<uint32_t>(shape.kv_heads));
  std::vector<int32_t> kv_heads;
  for (int64_t layer = 1; layer <= shape.layers; ++layer) {
    kv_heads.push_back(layer % shape.kda->every == 0 ? static_cast<int32_t>(shape.kv_heads) : 0);
  }
  writer.AddI32s(key, kv_heads);
}

// Dimensions of a head that the rope rotates.
int64_t RotatedDims(const Shape& shape) {
  if (shape.latent.has_value()) return shape.latent->rope;
  return shape.delta.has_value() ? shape.HeadDim() / 4 : shape.HeadDim();
}

}  // namespace

std::vector<SyntheticTensor> TensorsOf(const SyntheticShape& shape) {
  if (shape.encoder.has_value()) return PairTensors(shape);
  Tensors list = {{"token_embd.weight", shape.dim, shape.vocab}};
  for (int64_t layer = 0; layer < shape.layers; ++layer) ListLayer(shape, layer, list);
  if (shape.predicts) ListPredictor(shape, list);
  if (shape.hyper.has_value()) {
    ListConnection(shape, "output_hc", list);
    list.push_back({"per_layer_token_embd.weight", shape.hyper->ngram_row_dim,
                    NgramHeads(*shape.hyper) * shape.hyper->ngram_rows});
  } else {
    list.push_back(NormWeight("output_norm", shape.dim));
  }
  if (!shape.tied) list.push_back({"output.weight", shape.dim, shape.vocab});
  return list;
}

void AddShape(const SyntheticShape& shape, formats::GgufWriter& writer) {
  if (shape.encoder.has_value()) return AddPairShape(shape, writer);
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", shape.family->name, name);
  };
  const auto add = [&](std::string_view name, int64_t value) {
    writer.AddU32(key(name), static_cast<uint32_t>(value));
  };
  writer.AddString("general.architecture", shape.family->name);
  add("context_length", 131072);
  add("embedding_length", shape.dim);
  add("block_count", shape.layers + (shape.predicts ? 1 : 0));
  if (shape.predicts) add("nextn_predict_layers", 1);
  add("feed_forward_length", shape.dense_ffn > 0 ? shape.dense_ffn : shape.ffn);
  add("attention.head_count", shape.heads);
  AddKvHeads(shape, writer);
  add("rope.dimension_count", RotatedDims(shape));
  if (shape.head_dim != 0) {
    add("attention.key_length", shape.head_dim);
    add("attention.value_length", shape.head_dim);
  }
  AddKinds(shape, writer);
  writer.AddF32(key("rope.freq_base"), 500000.0f);
  writer.AddF32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
}

}  // namespace kvant::tools
