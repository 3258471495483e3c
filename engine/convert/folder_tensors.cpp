#include "engine/convert/folder_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>
#include <ranges>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/result.h"
#include "engine/convert/left_out.h"
#include "formats/quoted.h"

namespace kvant::convert {
namespace {

using arch::HfFamily;
using arch::HfShape;
using arch::HfTensor;
using arch::kEmbeddingName;
using arch::kOutputName;
using arch::Presence;
using formats::JsonObject;
using formats::Quoted;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;

constexpr std::string_view kNumberMark = "{}";

constexpr std::string_view kByteType = "U8";

// The name of the text model in models that read more than text. Their tensors have it at the
// beginning of their names, or behind the inner model's beginning. So do tensors of
// Gemma 3n's text model that transformers 4 saves alone.
constexpr std::string_view kTextModel = "language_model.";

bool HaveSameBytes(const SafetensorsTensor& a, const SafetensorsTensor& b) {
  return a.type == b.type && a.shape == b.shape && std::memcmp(a.data, b.data, a.size_bytes) == 0;
}

std::string ShapeText(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return text + "]";
}

// The name in a network "mtp" of a tensor of its layer `number`, by the end of the name that it has
// in a layer behind the others.
std::string MtpName(int64_t number, std::string_view end) {
  constexpr std::pair<std::string_view, std::string_view> kOwnNames[] = {
      {"eh_proj.weight", "mtp.fc.weight"},
      {"enorm.weight", "mtp.pre_fc_norm_embedding.weight"},
      {"hnorm.weight", "mtp.pre_fc_norm_hidden.weight"},
      {"shared_head.norm.weight", "mtp.norm.weight"}};
  for (const auto& [name, own] : kOwnNames) {
    if (end == name) return std::string(own);
  }
  return fmt::format("mtp.layers.{}.{}", number, end);
}

// Whether a tensor belongs to a layer behind the others, or to a network of its own for it.
bool PredictsFurtherTokens(const HfShape& shape, std::string_view name) {
  if (name.starts_with("mtp.") || name.starts_with("model.mtp.")) return true;
  const int64_t count = std::max(shape.prediction_layers, shape.kept_predictors);
  for (int64_t i = 0; i < count; ++i) {
    if (name.starts_with(fmt::format("model.layers.{}.", shape.layers + i))) return true;
  }
  return false;
}

// Whether a tensor holds a number of a layer, which becomes metadata.
bool IsLayerNumber(const HfFamily& family, std::string_view name) {
  return std::ranges::any_of(family.numbers, [name](const arch::HfNumber& number) {
    const size_t mark = number.hf_name.find("{}");
    return name.starts_with(number.hf_name.substr(0, mark)) &&
           name.ends_with(number.hf_name.substr(mark + 2));
  });
}

// The class that config.json names; the row's first one where the folder is of another kind.
std::string ClassOf(const JsonObject& config, const HfFamily& family) {
  const formats::Json* classes = config.Find("architectures");
  const bool named = classes != nullptr && classes->is_array() && !classes->empty() &&
                     classes->front().is_string();
  return named ? classes->front().get<std::string>() : std::string(family.classes.front());
}

}  // namespace

std::string WithNumber(std::string_view name, int64_t number) {
  const size_t mark = name.find(kNumberMark);
  if (mark == std::string_view::npos) return std::string(name);
  return fmt::format("{}{}{}", name.substr(0, mark), number,
                     name.substr(mark + kNumberMark.size()));
}

bool HasNumberMark(std::string_view name) {
  return name.find(kNumberMark) != std::string_view::npos;
}

// Dimensions of one change nothing of where values lie.
Status CheckShape(const SafetensorsModel& model, const SafetensorsTensor& source,
                  const std::vector<int64_t>& expected) {
  const auto counts = [](int64_t size) { return size != 1; };
  if (std::ranges::equal(source.shape | std::views::filter(counts),
                         expected | std::views::filter(counts))) {
    return {};
  }
  return MakeError(
      ErrorCode::kCorrupt, "{}: tensor {} has shape {}, but the sizes in config.json make {}",
      model.FileOf(source), Quoted(source.name), ShapeText(source.shape), ShapeText(expected));
}

Status CheckBytes(const SafetensorsModel& model, const SafetensorsTensor& source,
                  const std::vector<int64_t>& expected) {
  if (source.type->name != kByteType) {
    return MakeError(ErrorCode::kNotSupported, "{}: tensor {} holds {} values, expected {}",
                     model.FileOf(source), Quoted(source.name), source.type->name, kByteType);
  }
  return CheckShape(model, source, expected);
}

Result<FolderTensors> FolderTensors::Create(const arch::HfFamily& family,
                                            const SafetensorsModel& model, const JsonObject& config,
                                            const Quantization& quantization) {
  FolderTensors tensors(family, model);
  tensors.quantized_ = quantization.declared;
  tensors.class_ = ClassOf(config, family);
  tensors.of_more_than_text_ =
      config.Find("text_config") != nullptr || config.Find("vision_config") != nullptr;
  KVANT_TRY(tensors.FindTying(config));
  return tensors;
}

const HfTensor* FolderTensors::Row(std::string_view gguf_name) const {
  for (const HfTensor& row : family_.tensors) {
    if (row.gguf_name == gguf_name) return &row;
  }
  return nullptr;
}

const SafetensorsTensor* FolderTensors::Find(std::string_view hf_name) const {
  const SafetensorsTensor* found = FindPredictor(hf_name);
  if (found == nullptr) found = FindAsItIs(hf_name);
  if (found == nullptr && !family_.outer_prefix.empty()) {
    found = FindAsItIs(fmt::format("{}{}", family_.outer_prefix, hf_name));
  }
  if (found == nullptr) found = FindInTextModel(hf_name);
  const std::string_view prefix = family_.optional_prefix;
  if (found != nullptr || prefix.empty() || !hf_name.starts_with(prefix)) return found;
  hf_name.remove_prefix(prefix.size());
  found = model_.Find(hf_name);
  if (found != nullptr || family_.other_prefix.empty()) return found;
  return model_.Find(fmt::format("{}{}", family_.other_prefix, hf_name));
}

int64_t FolderTensors::CountPredictors(const HfFamily& family, const SafetensorsModel& model,
                                       int64_t layers) {
  if (!family.keeps_predictors) return 0;
  const auto has = [&](const std::string& name) { return model.Find(name) != nullptr; };
  int64_t count = 0;
  while (has(fmt::format("{}layers.{}.eh_proj.weight", kInnerModel, layers + count))) ++count;
  // A network of its own may share one matrix among several layers, which has no place.
  const bool is_one = !has(MtpName(1, "input_layernorm.weight")) &&
                      has(MtpName(0, "input_layernorm.weight")) &&
                      has(MtpName(0, "eh_proj.weight")) && has(MtpName(0, "enorm.weight")) &&
                      has(MtpName(0, "hnorm.weight"));
  return count == 0 && is_one ? 1 : count;
}

// The name in "mtp" of a tensor that would have this name in a layer behind the others.
std::optional<std::string> FolderTensors::NameOfPredictor(std::string_view hf_name) const {
  constexpr std::string_view kLayers = "layers.";
  if (predictors_from_ < 0 || !hf_name.starts_with(kInnerModel)) return {};
  hf_name.remove_prefix(kInnerModel.size());
  if (!hf_name.starts_with(kLayers)) return {};
  hf_name.remove_prefix(kLayers.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(hf_name.begin(), hf_name.end(), layer);
  if (error != std::errc() || layer < predictors_from_) return {};
  hf_name.remove_prefix(static_cast<size_t>(end - hf_name.begin()) + 1);
  return MtpName(layer - predictors_from_, hf_name);
}

const SafetensorsTensor* FolderTensors::FindPredictor(std::string_view hf_name) const {
  const auto name = NameOfPredictor(hf_name);
  return name.has_value() ? FindAsItIs(*name) : nullptr;
}

std::string FolderTensors::ShownName(std::string_view hf_name) const {
  const auto name = NameOfPredictor(hf_name);
  const bool is_network = model_.Find(MtpName(0, "eh_proj.weight")) != nullptr;
  return name.has_value() && is_network ? *name : std::string(hf_name);
}

// A tensor under the full name. Folders of 2018 and 2019 call the weights and biases of BERT's
// norms gamma and beta.
const SafetensorsTensor* FolderTensors::FindAsItIs(std::string_view hf_name) const {
  constexpr std::string_view kNorm = "LayerNorm.";
  const SafetensorsTensor* found = model_.Find(hf_name);
  const size_t end = hf_name.rfind(kNorm);
  if (found != nullptr || end == std::string_view::npos) return found;
  const std::string_view place = hf_name.substr(0, end + kNorm.size());
  return model_.Find(fmt::format("{}{}", place, hf_name.ends_with("bias") ? "beta" : "gamma"));
}

// A tensor of a text model that is a part of another model.
const SafetensorsTensor* FolderTensors::FindInTextModel(std::string_view hf_name) const {
  const SafetensorsTensor* found = model_.Find(fmt::format("{}{}", kTextModel, hf_name));
  if (found != nullptr || !hf_name.starts_with(kInnerModel)) return found;
  found = model_.Find(
      fmt::format("{}{}{}", kInnerModel, kTextModel, hf_name.substr(kInnerModel.size())));
  if (found != nullptr) return found;
  // transformers 4 puts the name behind every "model", wherever that stands.
  constexpr std::string_view kWord = kInnerModel.substr(0, kInnerModel.size() - 1);
  std::string renamed(hf_name);
  for (size_t at = renamed.find(kWord); at != renamed.npos;) {
    const size_t end = at + kWord.size();
    renamed.insert(end, fmt::format(".{}", kTextModel.substr(0, kTextModel.size() - 1)));
    at = renamed.find(kWord, end + kTextModel.size());
  }
  return model_.Find(renamed);
}

// Whether the output's weights are the embedding's. A folder holds such weights under either
// name, or under both; where both differ, the output has its own, whatever config.json says.
Status FolderTensors::FindTying(const JsonObject& config) {
  const HfTensor* embedding = Row(kEmbeddingName);
  const HfTensor* output = Row(kOutputName);
  if (embedding != nullptr) KVANT_TRY(FindEmbedding(*embedding));
  if (embedding == nullptr || output == nullptr) return {};
  KVANT_ASSIGN(const auto tied, config.Bool("tie_word_embeddings"));
  tied_ = tied.value_or(family_.tied_unless_told || Find(output->hf_name) == nullptr);
  if (!tied_) return {};
  const SafetensorsTensor* own = Find(output->hf_name);
  const SafetensorsTensor* shared =
      Find(tied_embedding_.empty() ? embedding->hf_name : std::string_view(tied_embedding_));
  if (own != nullptr && shared != nullptr && !HaveSameBytes(*own, *shared)) {
    Log(LogLevel::kWarning,
        fmt::format("{}: tensors {} and {} differ, though the output is said to be the embedding "
                    "(tie_word_embeddings); the output keeps its own weights",
                    model_.FileOf(*own), Quoted(own->name), Quoted(shared->name)));
    tied_ = false;
    return {};
  }
  used_.emplace(output->hf_name);
  if (shared == nullptr && own != nullptr) tied_embedding_ = output->hf_name;
  return {};
}

// The embedding under its other names, which must hold the same values.
Status FolderTensors::FindEmbedding(const HfTensor& embedding) {
  const SafetensorsTensor* first = Find(embedding.hf_name);
  for (const std::string_view name : family_.embedding_names) {
    const SafetensorsTensor* found = Find(name);
    if (found == nullptr) continue;
    used_.emplace(found->name);
    if (first == nullptr) {
      first = found;
      tied_embedding_ = name;
    } else if (!HaveSameBytes(*first, *found)) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: tensors {} and {} differ; expected one embedding for both stacks",
                       model_.FileOf(*found), Quoted(first->name), Quoted(found->name));
    }
  }
  return {};
}

bool FolderTensors::HasExperts(int64_t layer) const {
  const HfTensor* router = Row(arch::kRouterName);
  return router != nullptr && Find(WithNumber(router->hf_name, layer)) != nullptr;
}

std::string FolderTensors::SourceName(const HfTensor& row, int64_t layer) const {
  const bool is_tied = tied_ && row.presence == Presence::kUnlessTied;
  if (row.gguf_name == kEmbeddingName || is_tied) {
    if (!tied_embedding_.empty()) return tied_embedding_;
    return std::string(Row(kEmbeddingName)->hf_name);
  }
  const bool of_stack = row.gguf_name.find(kNumberMark) == std::string_view::npos &&
                        row.layers != arch::InLayers::kWithNgrams;
  return of_stack ? std::string(row.hf_name) : WithNumber(row.hf_name, layer);
}

Status FolderTensors::CheckAllUsed(const HfShape& shape) const {
  bool left_out = false;
  bool other_parts = false;
  bool activation_scales = false;
  for (const SafetensorsTensor& tensor : model_.tensors()) {
    if (used_.contains(tensor.name) || IsIgnored(tensor.name)) continue;
    if (IsLayerNumber(family_, tensor.name)) continue;
    if (std::ranges::any_of(family_.left_out, [&](std::string_view beginning) {
          return tensor.name.starts_with(beginning);
        })) {
      continue;
    }
    if (PredictsFurtherTokens(shape, tensor.name)) {
      left_out = true;
      continue;
    }
    if (quantized_ && IsActivationScale(tensor.name)) {
      activation_scales = true;
      continue;
    }
    if (of_more_than_text_ && IsOfAnotherPart(tensor.name)) {
      other_parts = true;
      continue;
    }
    return MakeError(ErrorCode::kNotSupported,
                     "{}: tensor {} has no place in a model of class {} with {} layers",
                     model_.FileOf(tensor), Quoted(tensor.name), class_, shape.layers);
  }
  if (left_out && shape.kept_predictors > 0) {
    Log(LogLevel::kWarning, "some tensors that predict further tokens are left out");
  } else if (left_out) {
    Log(LogLevel::kWarning, "layers that predict further tokens are left out");
  }
  if (activation_scales) {
    Log(LogLevel::kWarning,
        "scales of activations and of the cache are left out: kvant finds scales of its own for "
        "each row");
  }
  if (other_parts) Log(LogLevel::kWarning, "parts that read images or sound are left out");
  return {};
}

}  // namespace kvant::convert
