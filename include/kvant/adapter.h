// Adapters of a model: low-rank additions to its matrices, which single sequences use.
//
// With an adapter a matrix W that it names becomes W + scale * B A, but neither is the sum computed
// nor are other sequences changed: y = W x + scale * B (A x), for the rows of those sequences that
// use the adapter. Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021.
//
// Thread-safety: values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvant {

// The addition to one matrix.
struct LowRankMatrices {
  std::string tensor;  // of the model's file: "blk.0.attn_q.weight"
  int64_t rank = 0;
  std::vector<float> a;  // [rank][columns of the matrix]
  std::vector<float> b;  // [rows of the matrix][rank]
};

struct Adapter {
  std::string name;  // in messages
  float scale = 1;   // of B A, as the adapter was trained: alpha / rank
  std::vector<LowRankMatrices> matrices;
};

// An adapter that a sequence uses, by its number in ModelOptions::adapters.
struct AdapterUse {
  int adapter = 0;
  float scale = 1;  // times Adapter::scale
  bool operator==(const AdapterUse&) const = default;
};

}  // namespace kvant
