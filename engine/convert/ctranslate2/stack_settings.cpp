#include "engine/convert/ctranslate2/stack_settings.h"

#include <cmath>
#include <cstring>

#include "base/result.h"
#include "engine/limits.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using formats::CTranslate2Model;
using formats::Quoted;
using formats::SafetensorsTensor;

constexpr double kUsualHeads = 8;
constexpr std::string_view kScaleSuffix = "_scale";

// Scalars of a stack that are other than 0 in models of other kinds.
constexpr std::string_view kMustBeZero[] = {"multi_query_attention", "alibi",
                                            "final_logit_softcapping", "sliding_window"};

bool SameBytes(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  return a.type == b.type && a.shape == b.shape && std::memcmp(a.data, b.data, a.size_bytes) == 0;
}

// A matrix of the model, of `dims` dimensions.
Result<const SafetensorsTensor*> NeedMatrix(const CTranslate2Model& model, const std::string& name,
                                            size_t dims = 2) {
  const SafetensorsTensor* found = model.Find(name);
  if (found == nullptr) {
    return MakeError(ErrorCode::kCorrupt, "{}: variable {} is missing", model.path(), Quoted(name));
  }
  if (found->shape.size() == dims) return found;
  return MakeError(ErrorCode::kCorrupt, "{}: variable {} has {} dimensions, expected {}",
                   model.path(), Quoted(name), found->shape.size(), dims);
}

Result<int64_t> WholeNumber(const CTranslate2Model& model, const std::string& name,
                            double otherwise, int64_t max) {
  KVANT_ASSIGN(const double number, NumberOr(model, name, otherwise));
  if (number == std::floor(number) && number >= 0 && number <= static_cast<double>(max)) {
    return static_cast<int64_t>(number);
  }
  return UnexpectedNumber(model, name, number, fmt::format("a whole number from 0 to {}", max));
}

// A flag or a number: nothing and true mean the root of the width, false and 1 mean that there is
// no scale.
Result<float> EmbeddingScale(const CTranslate2Model& model, std::string_view stack, int64_t dim) {
  std::string name = fmt::format("{}/scale_embeddings", stack);
  const SafetensorsTensor* scale = model.Find(name);
  if (scale == nullptr) {
    name = fmt::format("{}/embeddings/multiply_by_sqrt_depth", stack);
    scale = model.Find(name);
  }
  const float root = std::sqrt(static_cast<float>(dim));
  if (scale == nullptr) return root;
  KVANT_ASSIGN(const double number, NumberOr(model, name, 0));
  if (scale->type->name == "I8") return number != 0 ? root : 1.0f;
  return static_cast<float>(number);
}

// Reads what layers have: widths of attention and feed-forwards, and distances.
Status ReadLayers(const CTranslate2Model& model, std::string_view stack, StackSettings& out) {
  const auto name = [&](int64_t layer, std::string_view rest) {
    return fmt::format("{}/layer_{}/{}", stack, layer, rest);
  };
  constexpr std::string_view kFirstOfFfn = "ffn/linear_0/weight";
  constexpr std::string_view kBias = "self_attention/relative_attention_bias";
  while (out.layers <= kLayersMax && model.Find(name(out.layers, kFirstOfFfn)) != nullptr) {
    ++out.layers;
  }
  KVANT_ASSIGN(const auto* up, NeedMatrix(model, name(0, kFirstOfFfn)));
  out.ffn = up->shape[0];
  out.dim = up->shape[1];
  KVANT_ASSIGN(const auto* qkv, NeedMatrix(model, name(0, "self_attention/linear_0/weight")));
  out.q_rows = qkv->shape[0] / 3;
  out.gated = model.Find(name(0, "ffn/linear_0_noact/weight")) != nullptr;
  const SafetensorsTensor* first = model.Find(name(0, kBias));
  if (first == nullptr) return {};
  KVANT_ASSIGN(first, NeedMatrix(model, name(0, kBias)));
  out.distances = true;
  out.buckets = first->shape[0];
  KVANT_ASSIGN(out.distance_max,
               WholeNumber(model, name(0, "self_attention/relative_attention_max_distance"), 128,
                           int64_t{1} << 16));
  for (int64_t layer = 1; layer < out.layers; ++layer) {
    KVANT_ASSIGN(const auto* bias, NeedMatrix(model, name(layer, kBias)));
    if (!AreSameVariable(model, *first, *bias)) out.own_distances = true;
  }
  return {};
}

}  // namespace

Result<double> NumberOr(const CTranslate2Model& model, std::string_view name, double otherwise) {
  KVANT_ASSIGN(const auto number, model.Number(name));
  return number.value_or(otherwise);
}

Error UnexpectedNumber(const CTranslate2Model& model, std::string_view name, double found,
                       std::string_view expected) {
  return MakeError(ErrorCode::kNotSupported, "{}: variable {} is {}, expected {}", model.path(),
                   Quoted(name), found, expected);
}

const SafetensorsTensor* FindStackEmbedding(const CTranslate2Model& model, std::string_view stack) {
  const SafetensorsTensor* found = model.Find(fmt::format("{}/embeddings/weight", stack));
  if (found != nullptr) return found;
  return model.Find(fmt::format("{}/embeddings_0/weight", stack));
}

bool AreSameVariable(const CTranslate2Model& model, const SafetensorsTensor& first,
                     const SafetensorsTensor& second) {
  if (&first == &second) return true;
  if (!SameBytes(first, second)) return false;
  const SafetensorsTensor* scale = model.Find(first.name + std::string(kScaleSuffix));
  const SafetensorsTensor* other = model.Find(second.name + std::string(kScaleSuffix));
  if (scale == nullptr || other == nullptr) return scale == other;
  return SameBytes(*scale, *other);
}

Result<StackSettings> ReadStackSettings(const CTranslate2Model& model, std::string_view stack) {
  StackSettings out;
  const auto name = [&](std::string_view rest) { return fmt::format("{}/{}", stack, rest); };
  // Before revision 5 both stacks shared such settings.
  const auto shared = [&](std::string_view rest) {
    return model.Find(name(rest)) != nullptr ? name(rest) : std::string(rest);
  };
  KVANT_TRY(ReadLayers(model, stack, out));
  KVANT_ASSIGN(out.heads, WholeNumber(model, shared("num_heads"), kUsualHeads, kHeadsMax));
  if (out.heads < 1) return UnexpectedNumber(model, shared("num_heads"), 0, "1 or more");
  KVANT_ASSIGN(out.activation, WholeNumber(model, shared("activation"), 0, INT8_MAX));
  KVANT_ASSIGN(const double before, NumberOr(model, shared("pre_norm"), 1));
  out.norms_before = before != 0;
  for (const std::string_view zero : kMustBeZero) {
    KVANT_ASSIGN(const double number, NumberOr(model, name(zero), 0));
    if (number != 0) return UnexpectedNumber(model, name(zero), number, "0");
  }
  if (const auto* embedding = FindStackEmbedding(model, stack)) {
    KVANT_ASSIGN(embedding, NeedMatrix(model, embedding->name));
    out.vocab = embedding->shape[0];
    KVANT_ASSIGN(out.embedding_scale, EmbeddingScale(model, stack, out.dim));
  }
  out.embedding_norm = model.Find(name("layernorm_embedding/gamma")) != nullptr;
  if (out.distances) return out;
  const std::string positions = name("position_encodings/encodings");
  if (model.Find(positions) == nullptr) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: variable {} is missing: positions that CTranslate2 makes up itself "
                     "cannot be converted",
                     model.path(), Quoted(positions));
  }
  KVANT_ASSIGN(const auto* table, NeedMatrix(model, positions));
  out.context = table->shape[0];
  return out;
}

}  // namespace kvant::convert
