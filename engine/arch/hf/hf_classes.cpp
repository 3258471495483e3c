#include "engine/arch/hf/hf_classes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/arch/family.h"

namespace kvant::arch {
namespace {

// Beginnings of names of classes, the longest one of several first.
struct KindOfClass {
  std::string_view beginning;
  std::string_view meaning;
};
constexpr std::string_view kOfTexts =
    "it is an encoder as BERT, of another architecture than those here or with another head";
constexpr std::string_view kOfImages = "it reads images, and no model here does";
constexpr std::string_view kOfSound =
    "it reads sound, and of those models Whisper is the only one here";
constexpr KindOfClass kKindsOfClass[] = {
    {"Wav2Vec2", kOfSound},    {"Hubert", kOfSound},        {"WavLM", kOfSound},
    {"Speech2Text", kOfSound}, {"SeamlessM4T", kOfSound},   {"Clap", kOfSound},
    {"Bert", kOfTexts},        {"Roberta", kOfTexts},       {"XLMRoberta", kOfTexts},
    {"DistilBert", kOfTexts},  {"MPNet", kOfTexts},         {"Deberta", kOfTexts},
    {"Electra", kOfTexts},     {"Albert", kOfTexts},        {"ModernBert", kOfTexts},
    {"Camembert", kOfTexts},   {"NomicBert", kOfTexts},     {"Longformer", kOfTexts},
    {"JinaBert", kOfTexts},    {"NewModel", kOfTexts},      {"CLIP", kOfImages},
    {"Siglip", kOfImages},     {"ViT", kOfImages},          {"Dinov2", kOfImages},
    {"Blip", kOfImages},       {"VisionEncoder", kOfImages}};

// Endings of names of classes whose output is no text.
constexpr std::string_view kLabels[] = {"ForSequenceClassification", "ForTokenClassification",
                                        "ForQuestionAnswering", "ForMultipleChoice", "ForMaskedLM"};

bool IsKnown(std::string_view name) {
  const auto known = KnownHfClasses();
  return std::ranges::find(known, name, &HfClassName::name) != known.end();
}

}  // namespace

std::vector<HfClassName> KnownHfClasses() {
  std::vector<HfClassName> classes;
  for (const Family* family : AllFamilies()) {
    for (const HfFamily& row : family->hf) {
      if (row.is_of != nullptr) continue;  // a later row has the same classes
      for (const std::string_view name : row.classes) classes.push_back({name, row.arch});
    }
  }
  std::ranges::sort(classes, {}, &HfClassName::name);
  return classes;
}

std::string WhyHfClassIsUnknown(std::string_view name) {
  const auto* kind = std::ranges::find_if(
      kKindsOfClass, [name](const KindOfClass& one) { return name.starts_with(one.beginning); });
  if (kind != std::end(kKindsOfClass)) return std::string(kind->meaning);
  const bool labels = std::ranges::any_of(
      kLabels, [name](std::string_view ending) { return name.ends_with(ending); });
  if (labels) return "it gives labels, not texts";
  constexpr std::string_view kInner = "Model";
  if (!name.ends_with(kInner)) return "";
  name.remove_suffix(kInner.size());
  for (const std::string_view ending : {"ForCausalLM", "ForConditionalGeneration"}) {
    const std::string whole = fmt::format("{}{}", name, ending);
    if (IsKnown(whole)) {
      return fmt::format("it is the inner part of {}, without the output that makes texts", whole);
    }
  }
  return "";
}

}  // namespace kvant::arch
