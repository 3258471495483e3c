#include "tools/bench/synthetic_pairs.h"

#include <fmt/format.h>

#include <cmath>

namespace kvant::tools {
namespace {

using Tensors = std::vector<SyntheticTensor>;

constexpr int64_t kBuckets = 32;  // of T5's distances

// Lists the tensors of a family with or without biases.
class PairLister {
 public:
  explicit PairLister(const SyntheticShape& shape) : shape_(shape) {}

  Tensors List() {
    list_.push_back({"token_embd.weight", shape_.dim, shape_.vocab});
    ListStack("enc", shape_.layers);
    ListStack("dec", shape_.encoder->decoder_layers);
    if (!shape_.tied) list_.push_back({"output.weight", shape_.dim, shape_.vocab});
    if (biased()) AddConstant("output.bias", shape_.vocab, 1, 0);
    return std::move(list_);
  }

 private:
  bool biased() const { return !shape_.encoder->distances; }

  void AddConstant(const std::string& name, int64_t cols, int64_t rows, float value) {
    list_.push_back({.name = name, .cols = cols, .rows = rows, .value = value});
  }

  void AddMatrix(const std::string& name, int64_t cols, int64_t rows) {
    list_.push_back({name + ".weight", cols, rows});
    if (biased()) AddConstant(name + ".bias", rows, 1, 0);
  }

  void AddNorm(const std::string& name) {
    AddConstant(name + ".weight", shape_.dim, 1, 1);
    if (biased()) AddConstant(name + ".bias", shape_.dim, 1, 0);
  }

  void ListAttention(const std::string& name) {
    const int64_t rows = shape_.HeadDim() * shape_.heads;
    for (const char* part : {"_q", "_k", "_v"}) AddMatrix(name + part, shape_.dim, rows);
    AddMatrix(name + "_o", rows, shape_.dim);
  }

  void ListStack(const std::string& stack, int64_t layers) {
    if (biased()) {
      AddConstant(stack + ".position_embd.weight", shape_.dim, shape_.encoder->source_max, 0);
    }
    for (int64_t layer = 0; layer < layers; ++layer) {
      const std::string prefix = fmt::format("{}.blk.{}.", stack, layer);
      AddNorm(prefix + "attn_norm");
      ListAttention(prefix + "attn");
      if (!biased() && layer == 0) {
        AddConstant(prefix + "attn_rel_b.weight", shape_.heads, kBuckets, 0);
      }
      if (stack == "dec") {
        AddNorm(prefix + "cross_attn_norm");
        ListAttention(prefix + "cross_attn");
      }
      AddNorm(prefix + "ffn_norm");
      if (!biased()) AddMatrix(prefix + "ffn_gate", shape_.dim, shape_.ffn);
      AddMatrix(prefix + "ffn_up", shape_.dim, shape_.ffn);
      AddMatrix(prefix + "ffn_down", shape_.ffn, shape_.dim);
    }
    if (!biased()) AddNorm(stack + ".output_norm");
  }

  const SyntheticShape& shape_;
  Tensors list_;
};

}  // namespace

std::vector<SyntheticTensor> PairTensors(const SyntheticShape& shape) {
  return PairLister(shape).List();
}

void AddPairShape(const SyntheticShape& shape, formats::GgufWriter& writer) {
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", shape.family->name, name);
  };
  const auto add = [&](std::string_view name, int64_t value) {
    writer.AddU32(key(name), static_cast<uint32_t>(value));
  };
  writer.AddString("general.architecture", shape.family->name);
  add("context_length", shape.encoder->source_max);
  add("embedding_length", shape.dim);
  add("block_count", shape.layers);
  add("decoder_block_count", shape.encoder->decoder_layers);
  add("feed_forward_length", shape.ffn);
  add("attention.head_count", shape.heads);
  add("attention.key_length", shape.HeadDim());
  add("attention.value_length", shape.HeadDim());
  add("decoder_start_token_id", 0);
  if (shape.encoder->distances) {
    add("attention.relative_buckets_count", kBuckets);
    writer.AddF32(key("attention.layer_norm_rms_epsilon"), 1e-6f);
  } else {
    writer.AddF32(key("attention.layer_norm_epsilon"), 1e-5f);
    writer.AddF32(key("embedding_scale"), std::sqrt(static_cast<float>(shape.dim)));
  }
}

}  // namespace kvant::tools
