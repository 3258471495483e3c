#include "engine/convert/text_frame.h"

#include <nlohmann/json.hpp>

#include "formats/json.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonText;

// The step that puts special tokens around a text, null if there is none: a template, or "cls" in
// front and "sep" behind, as BART's and RoBERTa's tokenizers have it.
const Json* FindFrame(const Json& processor) {
  if (!processor.is_object()) return nullptr;
  const std::string type = JsonText(processor, "type");
  for (const char* name : {"TemplateProcessing", "RobertaProcessing", "BertProcessing"}) {
    if (type == name) return &processor;
  }
  const auto processors = processor.find("processors");
  if (type != "Sequence" || processors == processor.end()) return nullptr;
  for (const Json& inner : *processors) {
    if (const Json* found = FindFrame(inner)) return found;
  }
  return nullptr;
}

// The special token that a part of a template stands for.
std::optional<int32_t> TemplateToken(const Json& part, const Vocabulary& vocabulary) {
  const auto special = part.is_object() ? part.find("SpecialToken") : part.end();
  if (special == part.end()) return std::nullopt;
  return vocabulary.Find(JsonText(*special, "id"));
}

// Whether two texts have two special tokens between them; nothing where the step does not say it.
std::optional<bool> HasTwoBetween(const Json& frame) {
  const std::string type = JsonText(frame, "type");
  if (type == "RobertaProcessing") return true;
  if (type == "BertProcessing") return false;
  const auto pair = frame.find("pair");
  if (pair == frame.end() || !pair->is_array()) return std::nullopt;
  int tokens = 0;
  int texts = 0;
  for (const Json& part : *pair) {
    if (!part.is_object()) return std::nullopt;
    if (part.contains("Sequence")) ++texts;
    if (part.contains("SpecialToken") && texts == 1) ++tokens;
  }
  return texts == 2 ? std::optional(tokens == 2) : std::nullopt;
}

// ["<s>", 0]: a token and its id.
std::optional<int32_t> NamedToken(const Json& step, const char* key, const Vocabulary& vocabulary) {
  const auto token = step.find(key);
  const bool named =
      token != step.end() && token->is_array() && !token->empty() && token->front().is_string();
  if (!named) return std::nullopt;
  return vocabulary.Find(token->front().get_ref<const std::string&>());
}

}  // namespace

void ReadTextFrame(const formats::JsonObject& tokenizer, Vocabulary& vocabulary) {
  const Json* processor = tokenizer.Find("post_processor");
  vocabulary.add_bos = vocabulary.add_eos = false;
  if (processor == nullptr) return;
  const Json* frame = FindFrame(*processor);
  if (frame == nullptr) return;
  const auto parts = frame->find("single");
  std::optional<int32_t> first;
  std::optional<int32_t> last;
  if (parts == frame->end()) {
    first = NamedToken(*frame, "cls", vocabulary);
    last = NamedToken(*frame, "sep", vocabulary);
  } else if (parts->is_array() && parts->size() >= 2) {
    first = TemplateToken(parts->front(), vocabulary);
    last = TemplateToken(parts->back(), vocabulary);
  }
  if (first) {
    vocabulary.bos = first;
    vocabulary.add_bos = true;
  }
  if (last) {
    vocabulary.eos = last;
    vocabulary.add_eos = true;
  }
  if (first && last) vocabulary.add_sep = HasTwoBetween(*frame);
}

}  // namespace kvant::convert
