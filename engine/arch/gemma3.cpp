// Gemma 3 (text): norms of queries and keys, norms before and after both halves of a layer, GELU
// gates, a scaled embedding, and five layers with a window and their own rotary base for each layer
// that sees everything.
#include <cmath>

#include "engine/arch/arch_spec.h"

namespace kvant::arch {
namespace {

constexpr uint32_t kPatternDefault = 6;  // every sixth layer sees all positions
constexpr float kLocalBaseDefault = 10000.0f;
constexpr size_t kLayers27b = 62;

// One layer in `pattern` has no window; the keys are absent in most files, whose readers know them.
Status AdjustGemma3(const formats::GgufFile& file, ArchSpec& spec) {
  KVANT_ASSIGN(const auto pattern, file.GetU32("gemma3.attention.sliding_window_pattern"));
  if (pattern == 0u) {
    return MakeError(
        ErrorCode::kCorrupt,
        "{}: key gemma3.attention.sliding_window_pattern: expected at least 1, found 0",
        file.path());
  }
  KVANT_ASSIGN(const auto local_base, file.GetF32("gemma3.rope.freq_base_swa"));
  RopeSpec local = spec.ropes.front();
  local.base = local_base.value_or(kLocalBaseDefault);
  local.linear_factor = 1.0f;  // scaling is for the layers that see far
  local.factors.clear();
  if (!std::isfinite(local.base) || local.base <= 0) {
    return MakeError(ErrorCode::kCorrupt,
                     "{}: key gemma3.rope.freq_base_swa: expected a positive number, found {}",
                     file.path(), local.base);
  }
  spec.ropes.push_back(local);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i];
    const bool is_global = (i + 1) % pattern.value_or(kPatternDefault) == 0;
    if (is_global) layer.window = 0;
    layer.rope = is_global ? 0 : 1;
  }
  spec.embedding_scale = std::sqrt(static_cast<float>(spec.dim));
  // Only the 27B model scales by something else than its head size; no key says so.
  if (spec.layers.size() == kLayers27b && spec.attention_scale == 0) {
    const auto heads = static_cast<float>(spec.layers.front().heads);
    spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.dim) / heads);
  }
  return {};
}

}  // namespace

extern const ArchFamily kGemma3Family;
const ArchFamily kGemma3Family = {
    .name = "gemma3",
    .rope_style = cpu::RopeStyle::kHalves,
    .qkv = Packing::kSeparate,
    .gate_up = Packing::kSeparate,
    .gate = graph::Gate::kGelu,
    .qk_norms = true,
    .post_norms = true,
    .adjust = AdjustGemma3,
};

}  // namespace kvant::arch
