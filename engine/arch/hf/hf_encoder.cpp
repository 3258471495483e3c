#include "engine/arch/hf/hf_encoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/arch/hf/hf_settings.h"
#include "engine/limits.h"

namespace kvant::arch {
namespace {

using formats::Json;

constexpr int64_t kSegmentsMax = 1 << 10;
constexpr int64_t kLabelsMax = 1 << 16;
// Positions of RoBERTa's classes begin behind the id of the padding token, which is 1 where
// config.json names none.
constexpr int64_t kRobertaPadding = 1;

// The names of the labels in the order of their numbers. Empty where there are none, or only those
// that transformers makes up.
std::vector<std::string> LabelNames(const JsonObject& config) {
  const Json* labels = config.Find("id2label");
  std::vector<std::string> names;
  if (labels == nullptr || !labels->is_object()) return names;
  bool made_up = true;
  for (size_t i = 0; i < labels->size(); ++i) {
    const auto label = labels->find(std::to_string(i));
    if (label == labels->end() || !label->is_string()) return {};
    names.push_back(label->get<std::string>());
    made_up = made_up && names.back() == fmt::format("LABEL_{}", i);
  }
  if (made_up) names.clear();
  return names;
}

}  // namespace

Status FinishHfBert(const JsonObject& config, HfShape& shape) {
  KVANT_ASSIGN(const auto positions, config.String("position_embedding_type"));
  if (positions.value_or("absolute") != "absolute") {
    return MakeError(ErrorCode::kNotSupported, "{}: expected absolute, found \"{}\"",
                     config.Where("position_embedding_type"), *positions);
  }
  KVANT_TRY(RefuseTrue(config, "is_decoder"));
  KVANT_TRY(RefuseTrue(config, "add_cross_attention"));
  KVANT_ASSIGN(const auto segments, config.Integer("type_vocab_size", kSegmentsMax));
  shape.segments = segments.value_or(0);
  return {};
}

Status FinishHfRoberta(const JsonObject& config, HfShape& shape) {
  KVANT_TRY(FinishHfBert(config, shape));
  KVANT_ASSIGN(const auto padding, config.Integer("pad_token_id", kHfVocabMax));
  shape.unread_positions = padding.value_or(kRobertaPadding) + 1;
  shape.context -= shape.unread_positions;
  if (shape.context >= 1) return {};
  return config.Wrong("max_position_embeddings",
                      fmt::format("at least {}", shape.unread_positions + 1));
}

Status ReadHfLabels(const JsonObject& config, HfShape& shape) {
  const Json* labels = config.Find("id2label");
  KVANT_ASSIGN(const auto count, config.Integer("num_labels", kLabelsMax));
  shape.labels = count.value_or(2);
  if (labels != nullptr && labels->is_object()) shape.labels = std::ssize(*labels);
  if (shape.labels >= 1 && shape.labels <= kLabelsMax) return {};
  return config.Wrong("id2label", fmt::format("1 to {} labels", kLabelsMax));
}

Status AddHfLabels(const JsonObject& config, Parameters& out) {
  out.writer->AddU32(out.Key("pooling_type"), static_cast<uint32_t>(Pooling::kRank));
  const std::vector<std::string> names = LabelNames(config);
  if (!names.empty()) out.writer->AddStrings(out.Key("classifier.output_labels"), names);
  return {};
}

Status AddHfEncoder(const JsonObject& config, const HfShape& shape, Parameters& out) {
  out.writer->AddBool(out.Key("attention.causal"), false);
  // llama.cpp needs the number of segments where a model has no rows for them, too.
  out.writer->AddU32("tokenizer.ggml.token_type_count",
                     static_cast<uint32_t>(std::max<int64_t>(shape.segments, 1)));
  return shape.labels > 0 ? AddHfLabels(config, out) : Status();
}

Status AddHfActivation(const JsonObject& config, std::string_view name, Parameters& out) {
  KVANT_ASSIGN(auto activation, config.String(name));
  if (!activation || *activation == "gelu") return {};
  if (*activation == "gelu_fast") activation = "gelu_new";  // one formula, written differently
  out.writer->AddString(out.Key("hidden_act"), *activation);
  return {};
}

}  // namespace kvant::arch
