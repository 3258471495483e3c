#include "engine/convert/ctranslate2/variables_as_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/result.h"
#include "engine/convert/ctranslate2/stack_settings.h"
#include "engine/convert/folder_tensors.h"
#include "formats/quoted.h"
#include "quant/format.h"

namespace kvant::convert {
namespace {

using arch::Extent;
using arch::HfShape;
using arch::HfTensor;
using formats::Quoted;
using formats::SafetensorsTensor;

enum class PartKind : uint8_t { kLinear, kNorm, kPlain };

// Where the tensors of a stack lie: without the beginning "enc." or "dec." and the ending of the
// name in the GGUF architecture, and the variable without the name of the stack. `part` is the one
// of `parts` of the variable's rows.
struct VariableRow {
  std::string_view gguf_name;
  std::string_view variable;
  PartKind kind = PartKind::kLinear;
  int64_t part = 0;
  int64_t parts = 1;
};
constexpr VariableRow kVariableRows[] = {
    {"blk.{}.attn_norm", "layer_{}/self_attention/layer_norm", PartKind::kNorm},
    {"blk.{}.attn_q", "layer_{}/self_attention/linear_0", PartKind::kLinear, 0, 3},
    {"blk.{}.attn_k", "layer_{}/self_attention/linear_0", PartKind::kLinear, 1, 3},
    {"blk.{}.attn_v", "layer_{}/self_attention/linear_0", PartKind::kLinear, 2, 3},
    {"blk.{}.attn_o", "layer_{}/self_attention/linear_1"},
    {"blk.{}.attn_rel_b", "layer_{}/self_attention/relative_attention_bias", PartKind::kPlain},
    {"blk.{}.cross_attn_norm", "layer_{}/attention/layer_norm", PartKind::kNorm},
    {"blk.{}.cross_attn_q", "layer_{}/attention/linear_0"},
    {"blk.{}.cross_attn_k", "layer_{}/attention/linear_1", PartKind::kLinear, 0, 2},
    {"blk.{}.cross_attn_v", "layer_{}/attention/linear_1", PartKind::kLinear, 1, 2},
    {"blk.{}.cross_attn_o", "layer_{}/attention/linear_2"},
    {"blk.{}.ffn_norm", "layer_{}/ffn/layer_norm", PartKind::kNorm},
    {"blk.{}.ffn_gate", "layer_{}/ffn/linear_0"},
    {"blk.{}.ffn_up", "layer_{}/ffn/linear_0"},
    {"blk.{}.ffn_down", "layer_{}/ffn/linear_1"},
    {"token_embd", "embeddings_0"},
    {"token_embd_norm", "layernorm_embedding", PartKind::kNorm},
    {"output_norm", "layer_norm", PartKind::kNorm},
    {"position_embd", "position_encodings/encodings", PartKind::kPlain},
    {"conv1d.0", "conv1"},
    {"conv1d.1", "conv2"},
};
// The row of feed-forwards with gates.
constexpr VariableRow kUpBesideGate = {"blk.{}.ffn_up", "layer_{}/ffn/linear_0_noact"};
// Without a stack.
constexpr VariableRow kEndRows[] = {{"token_embd", "decoder/embeddings"},
                                    {"output", "decoder/projection"}};

// Ends of the names of variables that are read elsewhere or change nothing that kvant computes.
constexpr std::string_view kSettings[] = {"num_heads",
                                          "pre_norm",
                                          "activation",
                                          "scale_embeddings",
                                          "scale_outputs",
                                          "multiply_by_sqrt_depth",
                                          "queries_scale",
                                          "start_from_zero_embedding",
                                          "embeddings_merge",
                                          "multi_query_attention",
                                          "alibi",
                                          "alibi_use_positive_positions",
                                          "scale_alibi",
                                          "alignment_layer",
                                          "alignment_heads",
                                          "final_logit_softcapping",
                                          "sliding_window",
                                          "relative_attention_bias",
                                          "unk_token",
                                          "relative_attention_max_distance",
                                          "bos_token",
                                          "eos_token",
                                          "with_source_bos",
                                          "with_source_eos",
                                          "with_target_bos",
                                          "user_decoder_start_tokens"};

// Copies of the decoder's embedding in files without aliases.
constexpr std::string_view kTwins[] = {"encoder/embeddings_0/weight", "encoder/embeddings/weight",
                                       "decoder/projection/weight"};
constexpr std::string_view kScaleEnding = "_scale";

constexpr std::string_view kStacks[] = {"encoder", "decoder"};

bool IsSetting(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('/') + 1);
  return std::ranges::find(kSettings, last) != std::end(kSettings);
}

bool AreZero(const SafetensorsTensor& tensor) {
  return std::all_of(tensor.data, tensor.data + tensor.size_bytes,
                     [](std::byte byte) { return byte == std::byte{0}; });
}

bool IsInteger(const SafetensorsTensor& tensor) {
  return tensor.type->name == "I8" || tensor.type->name == "I16";
}

// Keeps the rows [first, first + rows) of a tensor.
void CutRows(int64_t first, int64_t rows, SafetensorsTensor& tensor) {
  const uint64_t row_bytes =
      tensor.size_bytes / static_cast<uint64_t>(std::max<int64_t>(1, tensor.shape[0]));
  tensor.data += static_cast<uint64_t>(first) * row_bytes;
  tensor.size_bytes = static_cast<uint64_t>(rows) * row_bytes;
  tensor.shape[0] = rows;
  if (tensor.row_divisors != nullptr) {
    tensor.row_divisors += static_cast<size_t>(first) * sizeof(float);
  }
}

}  // namespace

std::byte* VariablesAsTensors::NewBuffer(size_t bytes) {
  return buffers_.emplace_back(bytes, std::byte{0}).data();
}

// The numbers that divide the rows of a matrix of integers; null for floats.
Result<const std::byte*> VariablesAsTensors::DivisorsOf(const SafetensorsTensor& variable) {
  const std::string name = variable.name + std::string(kScaleEnding);
  const SafetensorsTensor* scale = model_.Find(name);
  if (!IsInteger(variable)) {
    if (scale == nullptr && variable.type->name != "I32") return nullptr;
    return MakeError(ErrorCode::kNotSupported,
                     "{}: variable {} holds {} values{}; expected floats, or I8 or I16 with {}",
                     model_.path(), Quoted(variable.name), variable.type->name,
                     scale == nullptr ? "" : " with scales", Quoted(name));
  }
  const int64_t rows = variable.shape.empty() ? 0 : variable.shape[0];
  const bool fits = scale != nullptr && scale->type->name == "F32" &&
                    (scale->n_values() == 1 || scale->n_values() == rows);
  if (!fits) {
    return MakeError(
        ErrorCode::kCorrupt,
        "{}: variable {} holds {} values: expected a variable {} of one or {} F32 "
        "values, found {}",
        model_.path(), Quoted(variable.name), variable.type->name, Quoted(name), rows,
        scale == nullptr ? "none" : fmt::format("{} of {}", scale->n_values(), scale->type->name));
  }
  used_.insert(scale->name);
  for (int64_t i = 0; i < scale->n_values(); ++i) {
    float value = 0;
    std::memcpy(&value, scale->data + i * static_cast<int64_t>(sizeof(value)), sizeof(value));
    if (std::isfinite(value) && value > 0) continue;
    return MakeError(ErrorCode::kCorrupt, "{}: variable {}: value {} is {}, expected above 0",
                     model_.path(), Quoted(name), i, value);
  }
  if (scale->n_values() == rows) return scale->data;
  std::byte* all = NewBuffer(static_cast<size_t>(rows) * sizeof(float));
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(all + i * static_cast<int64_t>(sizeof(float)), scale->data, sizeof(float));
  }
  return all;
}

// A row of zeros behind the others, for the token that begins texts.
void VariablesAsTensors::AddZeroRow(SafetensorsTensor& tensor) {
  const size_t row_bytes = tensor.size_bytes / static_cast<size_t>(tensor.shape[0]);
  std::byte* bytes = NewBuffer(tensor.size_bytes + row_bytes);
  std::memcpy(bytes, tensor.data, tensor.size_bytes);
  tensor.data = bytes;
  tensor.size_bytes += row_bytes;
  if (tensor.row_divisors != nullptr) {
    const size_t size = static_cast<size_t>(tensor.shape[0]) * sizeof(float);
    constexpr float kOne = 1;
    std::byte* divisors = NewBuffer(size + sizeof(kOne));
    std::memcpy(divisors, tensor.row_divisors, size);
    std::memcpy(divisors + size, &kOne, sizeof(kOne));
    tensor.row_divisors = divisors;
  }
  ++tensor.shape[0];
}

// Rows that are never read in front of the others: Hugging Face's tables of positions begin there.
Status VariablesAsTensors::AddRowsBefore(int64_t rows, SafetensorsTensor& tensor) {
  const size_t row_bytes = tensor.size_bytes / static_cast<size_t>(tensor.shape[0]);
  const size_t before = static_cast<size_t>(rows) * row_bytes;
  std::byte* bytes = NewBuffer(before + tensor.size_bytes);
  std::memcpy(bytes + before, tensor.data, tensor.size_bytes);
  tensor.data = bytes;
  tensor.size_bytes += before;
  tensor.shape[0] += rows;
  return {};
}

Status VariablesAsTensors::AddPlace(const Place& place, const HfTensor& row, const HfShape& shape,
                                    int64_t layer) {
  const SafetensorsTensor* variable = model_.Find(place.variable);
  if (variable == nullptr) {
    if (row.presence == arch::Presence::kOptional) return {};
    return MakeError(ErrorCode::kCorrupt, "{}: variable {} is missing", model_.path(),
                     Quoted(place.variable));
  }
  // The shape of the whole variable.
  std::vector<int64_t> expected = arch::SourceShapeOf(row, shape);
  const bool of_vocabulary = row.rows == Extent::kVocab || row.rows == Extent::kSourceVocab;
  const bool adds_zero = form_.has_zero_token && of_vocabulary;
  const int64_t before = row.part == arch::RowPart::kBehindTwo ? 2 : 0;
  const int64_t rows = expected[0] - before - (adds_zero ? 1 : 0);
  expected[0] = rows * place.parts;
  if (variable->shape != expected || rows < 1) {
    return MakeError(ErrorCode::kCorrupt, "{}: variable {} has the shape [{}], expected [{}]",
                     model_.path(), Quoted(place.variable), fmt::join(variable->shape, ", "),
                     fmt::join(expected, ", "));
  }
  used_.insert(variable->name);
  SafetensorsTensor tensor = *variable;
  KVANT_ASSIGN(tensor.row_divisors, DivisorsOf(*variable));
  if (tensor.row_divisors != nullptr && tensor.shape.size() < 2) {
    return MakeError(ErrorCode::kNotSupported, "{}: variable {} holds {} values, expected floats",
                     model_.path(), Quoted(place.variable), tensor.type->name);
  }
  tensor.name = WithNumber(row.hf_name, layer);
  CutRows(place.part * rows, rows, tensor);
  // Keys have no bias in models of speech, and one of zeros beside the others' here.
  const bool of_keys = row.gguf_name.ends_with("attn_k.bias");
  if (of_keys && shape.bins > 0 && AreZero(tensor)) return {};
  if (adds_zero) AddZeroRow(tensor);
  if (before > 0) KVANT_TRY(AddRowsBefore(before, tensor));
  tensors_.push_back(std::move(tensor));
  return {};
}

Status VariablesAsTensors::AddRow(const HfTensor& row, const HfShape& shape, int64_t layer) {
  if (form_.tied && row.presence == arch::Presence::kUnlessTied) return {};
  if (!arch::HasTensorsOf(row.layers, shape, {layer, false})) return {};
  std::string_view name = row.gguf_name;
  const std::string_view ending = name.substr(name.rfind('.'));
  name.remove_suffix(ending.size());
  std::string stack;
  std::span<const VariableRow> rows = kEndRows;
  for (const std::string_view one : kStacks) {
    if (!name.starts_with(one.substr(0, 3)) || !name.substr(3).starts_with('.')) continue;
    stack = fmt::format("{}/", one);
    name.remove_prefix(4);
    rows = kVariableRows;
  }
  const auto found = std::ranges::find(rows, name, &VariableRow::gguf_name);
  if (found == rows.end()) {
    return MakeError(ErrorCode::kNotSupported, "{}: no variable is known for the tensor {}",
                     model_.path(), row.gguf_name);
  }
  const auto full = [&](const VariableRow& one, std::string_view variable_end) {
    return fmt::format("{}{}{}", stack, WithNumber(one.variable, layer), variable_end);
  };
  const VariableRow* place = &*found;
  const bool beside_gate = place->gguf_name == kUpBesideGate.gguf_name &&
                           model_.Find(full(kUpBesideGate, "/weight")) != nullptr;
  if (beside_gate) place = &kUpBesideGate;
  const bool is_bias = ending == ".bias";
  std::string_view variable_end = is_bias ? "/bias" : "/weight";
  if (place->kind == PartKind::kNorm) variable_end = is_bias ? "/beta" : "/gamma";
  if (place->kind == PartKind::kPlain) variable_end = "";
  std::string variable = full(*place, variable_end);
  // Older files have an embedding without a number.
  if (name == "token_embd" && !stack.empty() && model_.Find(variable) == nullptr) {
    variable = fmt::format("{}embeddings{}", stack, variable_end);
  }
  return AddPlace({std::move(variable), place->part, place->parts}, row, shape, layer);
}

Status VariablesAsTensors::CheckQueryScales() const {
  const bool unscaled = shape_.buckets > 0;
  const HfShape decoder = arch::ShapeOfDecoder(shape_);
  for (const SafetensorsTensor& variable : model_.variables()) {
    if (!variable.name.ends_with("/queries_scale")) continue;
    const HfShape& shape = variable.name.starts_with("encoder") ? shape_ : decoder;
    const double expected = unscaled ? 1 : 1 / std::sqrt(static_cast<double>(shape.head_dim));
    KVANT_ASSIGN(const double found, NumberOr(model_, variable.name, expected));
    if (std::abs(found - expected) <= 1e-6) continue;
    return UnexpectedNumber(model_, variable.name, found, fmt::format("{:.7g}", expected));
  }
  // Scores are scaled where nothing says otherwise.
  constexpr std::string_view kFirst = "encoder/layer_0/self_attention/queries_scale";
  if (!unscaled || model_.Find(kFirst) != nullptr) return {};
  return MakeError(ErrorCode::kNotSupported, "{}: expected a variable {} of 1, found none",
                   model_.path(), Quoted(kFirst));
}

Status VariablesAsTensors::CheckAllUsed() const {
  for (const SafetensorsTensor& variable : model_.variables()) {
    if (used_.contains(variable.name) || IsSetting(variable.name)) continue;
    // They were compared with the decoder's embedding.
    std::string_view name = variable.name;
    if (name.ends_with(kScaleEnding)) name.remove_suffix(kScaleEnding.size());
    if (std::ranges::find(kTwins, name) != std::end(kTwins)) continue;
    return MakeError(ErrorCode::kNotSupported,
                     "{}: variable {} has no place in a model of class {}", model_.path(),
                     Quoted(variable.name), family_.classes.front());
  }
  return {};
}

Result<std::vector<SafetensorsTensor>> VariablesAsTensors::Make() {
  const auto add = [&](const HfShape& stack, bool of_decoder) -> Status {
    for (int64_t layer = 0; layer < stack.layers; ++layer) {
      for (const HfTensor& row : family_.tensors) {
        const bool in_decoder = row.gguf_name.starts_with(arch::kHfDecoderPrefix);
        if (in_decoder != of_decoder || !HasNumberMark(row.gguf_name)) continue;
        KVANT_TRY(AddRow(row, stack, layer));
      }
    }
    return {};
  };
  for (const HfTensor& row : family_.tensors) {
    if (!HasNumberMark(row.gguf_name)) KVANT_TRY(AddRow(row, shape_, 0));
  }
  KVANT_TRY(add(shape_, false));
  KVANT_TRY(add(arch::ShapeOfDecoder(shape_), true));
  KVANT_TRY(CheckQueryScales());
  for (const std::string_view stack : kStacks) {
    const std::string positions = fmt::format("{}/position_encodings/encodings", stack);
    if (model_.Find(positions) != nullptr) used_.insert(model_.Find(positions)->name);
  }
  KVANT_TRY(CheckAllUsed());
  return std::move(tensors_);
}

Result<std::vector<float>> FloatsOf(const formats::CTranslate2Model& model, std::string_view name) {
  const SafetensorsTensor* variable = model.Find(name);
  std::vector<float> values;
  if (variable == nullptr) return values;
  const quant::FormatTraits* format = quant::FindFormat(variable->type->name);
  if (format == nullptr) {
    return MakeError(ErrorCode::kNotSupported, "{}: variable {} holds {} values, expected floats",
                     model.path(), Quoted(name), variable->type->name);
  }
  // The file aligns nothing.
  const std::vector<std::byte> aligned(variable->data, variable->data + variable->size_bytes);
  values.resize(static_cast<size_t>(variable->n_values()));
  format->decode(aligned.data(), values.data(), variable->n_values());
  return values;
}

}  // namespace kvant::convert
