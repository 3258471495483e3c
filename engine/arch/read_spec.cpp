// Makes the ModelSpec of a file: finds the family and has it read the metadata.
#include <algorithm>

#include "base/counted.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/arch/embedding_head.h"
#include "engine/arch/family.h"
#include "engine/arch/keys/check_keys.h"
#include "formats/gguf.h"

namespace kvant::arch {
namespace {

// Beginnings of the names of tensors that turn images and sound into rows of the stream.
constexpr std::string_view kOtherParts[] = {"v.", "mm.", "a."};

void LogOtherParts(const formats::GgufFile& file) {
  const auto of_another_part = [](const formats::GgufTensor& tensor) {
    return std::ranges::any_of(
        kOtherParts, [&](std::string_view part) { return tensor.name.starts_with(part); });
  };
  const auto count = std::ranges::count_if(file.tensors(), of_another_part);
  if (count == 0) return;
  const auto first = std::ranges::find_if(file.tensors(), of_another_part);
  Log(LogLevel::kWarning,
      fmt::format("{}: left out: {} of parts that read images or sound, the first {}", file.path(),
                  Counted(count, "tensor"), first->name));
}

// Takes the layers that predict further tokens off the stack.
Status TakePredictors(const formats::GgufFile& file, ModelSpec& spec) {
  const bool decodes = spec.stacks.size() == 1 && !spec.encoder.has_value();
  const size_t count = decodes ? spec.stacks.front().predictors.count : 0;
  if (count == 0) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: the file has no layers that predict further tokens", file.path());
  }
  Stack& stack = spec.stacks.front();
  if (stack.streams.has_value() || stack.hyper.has_value() || stack.layer_inputs.has_value()) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: layers that predict further tokens are not supported for this "
                     "architecture",
                     file.path());
  }
  const auto first = stack.layers.end() - static_cast<std::ptrdiff_t>(count);
  stack.predictors.layers.assign(first, stack.layers.end());
  stack.layers.erase(first, stack.layers.end());
  return {};
}

}  // namespace

const Stack& FirstStack(const ModelSpec& spec) {
  if (spec.embedder.has_value()) return *spec.embedder;
  return spec.encoder.has_value() ? spec.encoder->stack : spec.stacks.front();
}

Result<ModelSpec> ReadSpec(const formats::GgufFile& file, std::span<const std::string> ignored_keys,
                           PredictingLayers predicting) {
  KVANT_ASSIGN(const auto name, file.GetString("general.architecture"));
  if (!name.has_value()) {
    return MakeError(ErrorCode::kCorrupt, "{}: key general.architecture is missing", file.path());
  }
  const Family* found = nullptr;
  std::string known;
  for (const Family* family : AllFamilies()) {
    if (family->name == *name) found = family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family->name);
  }
  if (found == nullptr) {
    return MakeError(ErrorCode::kNotSupported, "{}: unknown architecture \"{}\" (known: {})",
                     file.path(), *name, known);
  }
  const Metadata metadata(file, *name, predicting);
  KVANT_ASSIGN(ModelSpec spec, found->read(metadata));
  if (predicting == PredictingLayers::kRead) KVANT_TRY(TakePredictors(file, spec));
  KVANT_TRY(ReadEmbedding(metadata, spec));
  KVANT_TRY(CheckUnreadKeys(metadata, spec, ignored_keys));
  spec.family = found->name;
  const Input& input = (spec.stacks.empty() ? FirstStack(spec) : spec.stacks.front()).input;
  const formats::GgufTensor* embedding = file.FindTensor(fmt::format("{}.weight", input.tensor));
  if (embedding != nullptr) spec.vocab = embedding->dims[1];
  const formats::GgufTensor* positions = file.FindTensor(fmt::format("{}.weight", input.positions));
  if (positions != nullptr) spec.context_max = positions->dims[1];
  if (spec.encoder.has_value() && !spec.encoder->frames.has_value()) {
    const formats::GgufTensor* own =
        file.FindTensor(fmt::format("{}.weight", spec.encoder->stack.input.tensor));
    if (own != nullptr) spec.encoder->vocab = own->dims[1];
    const formats::GgufTensor* of_source =
        file.FindTensor(fmt::format("{}.weight", spec.encoder->stack.input.positions));
    if (of_source != nullptr) spec.encoder->source_max = of_source->dims[1];
  }
  LogOtherParts(file);
  return spec;
}

}  // namespace kvant::arch
