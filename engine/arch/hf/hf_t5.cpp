#include "engine/arch/hf/hf_t5.h"

#include <algorithm>
#include <string>

#include "base/result.h"
#include "engine/limits.h"

namespace kvant::arch {
namespace {

constexpr int64_t kUsualContext = 512;  // of models whose config.json does not say it
constexpr int64_t kUsualBuckets = 32;   // likewise
constexpr int64_t kHfBucketsMax = 1 << 12;
constexpr int64_t kHfDistanceMax = 1 << 16;

constexpr std::string_view kGatedBeginning = "gated-";

}  // namespace

bool IsGatedHfT5(const JsonObject& config) {
  const auto name = config.String(kHfT5FfnKey);
  return name.ok() && name->value_or("").starts_with(kGatedBeginning);
}

Status FinishHfT5Shape(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(shape.head_dim, config.Count("d_kv", kHeadDimMax));
  KVANT_ASSIGN(const auto context, config.Integer("n_positions", kContextMax));
  shape.context = std::max<int64_t>(1, context.value_or(kUsualContext));
  KVANT_ASSIGN(const auto buckets, config.Integer("relative_attention_num_buckets", kHfBucketsMax));
  shape.buckets = buckets.value_or(kUsualBuckets);
  return {};
}

Status AddHfT5Parameters(const JsonObject& config, const HfShape& shape, Parameters& out) {
  const auto add = [&](std::string_view name, int64_t value) {
    out.writer->AddU32(out.Key(name), static_cast<uint32_t>(value));
  };
  add("attention.key_length", shape.head_dim);
  add("attention.value_length", shape.head_dim);
  add("attention.relative_buckets_count", shape.buckets);
  KVANT_ASSIGN(const auto distance,
               config.Integer("relative_attention_max_distance", kHfDistanceMax));
  if (distance.has_value()) add("attention.relative_distance_max", *distance);
  // The two usual activations need no key.
  KVANT_ASSIGN(const auto ffn, config.String(kHfT5FfnKey));
  std::string name = ffn.value_or("relu");
  if (name.starts_with(kGatedBeginning)) name.erase(0, kGatedBeginning.size());
  const bool usual = !ffn.has_value() || name == (IsGatedHfT5(config) ? "gelu" : "relu");
  if (!usual) out.writer->AddString(out.Key("hidden_act"), name);
  return {};
}

}  // namespace kvant::arch
