#include "engine/quantize/typical_sensitivity.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "engine/quantize/recipe.h"

namespace kvant::quantize {
namespace {

constexpr size_t kDepths = 6;

// A role has these numbers in each sixth of the depth, times the layers.
struct TypicalRole {
  std::string_view part;  // of the name; the first row that fits counts
  std::array<double, kDepths> by_depth;
};

// Rounded from `bench/measure_sensitivities --table bench/results/sensitivities.csv` of the models
// with more than 100 million weights. Roles that none of them has are scaled from those of small
// models by what both have.
constexpr TypicalRole kTypicalRoles[] = {
    {"attn_qkv", {2.5, 2.5, 2.5, 2.5, 2.5, 2.0}},
    {"attn_q", {0.22, 0.74, 0.71, 0.96, 0.79, 0.43}},
    {"attn_k", {0.37, 0.66, 0.77, 1.0, 0.98, 0.57}},
    {"attn_v", {2.3, 3.3, 3.9, 3.7, 3.3, 2.2}},
    {"attn_output", {1.3, 1.2, 2.0, 2.1, 1.0, 1.3}},
    {"ffn_down", {2.7, 3.0, 3.1, 2.7, 3.5, 5.8}},
    {"ffn_gate", {1.7, 1.8, 1.7, 1.9, 1.9, 2.5}},
    {"ffn_up", {2.2, 3.7, 3.1, 3.5, 3.3, 4.6}},
    {"in_proj", {3.0, 3.0, 3.0, 3.0, 3.0, 3.0}},
    {"ssm_out", {1.5, 1.5, 1.5, 1.5, 1.5, 1.5}},
    {"attn_gate", {0.7, 0.7, 0.7, 0.7, 0.7, 0.7}},
    {"", {1.5, 1.5, 1.5, 1.5, 1.5, 1.5}},
};

// The output matrix, which may be the embedding, has 3.1, 6.8 and 7.9 in these models; an embedding
// that is not: a twentieth.
constexpr double kTypicalOutput = 5.5;
constexpr double kTypicalEmbedding = 0.3;

// The number in "blk.12.attn_q.weight", or 0.
int64_t NumberOfLayer(std::string_view tensor) {
  constexpr std::string_view kPrefix = "blk.";
  int64_t layer = 0;
  if (tensor.starts_with(kPrefix)) {
    std::from_chars(tensor.data() + kPrefix.size(), tensor.data() + tensor.size(), layer);
  }
  return std::max<int64_t>(layer, 0);
}

}  // namespace

double TypicalSensitivity(std::string_view tensor, int64_t layers, OutputMatrix output) {
  if (tensor == (output == OutputMatrix::kOwn ? kOutputName : kEmbeddingName)) {
    return kTypicalOutput;
  }
  if (tensor == kEmbeddingName) return kTypicalEmbedding;
  layers = std::max<int64_t>(layers, 1);
  const auto* role = std::find_if(
      std::begin(kTypicalRoles), std::end(kTypicalRoles),
      [tensor](const TypicalRole& row) { return tensor.find(row.part) != std::string_view::npos; });
  const int64_t layer = std::min(NumberOfLayer(tensor), layers - 1);
  const auto depth = static_cast<size_t>(layer * static_cast<int64_t>(kDepths) / layers);
  return role->by_depth[depth] / static_cast<double>(layers);
}

}  // namespace kvant::quantize
