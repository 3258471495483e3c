#include "engine/convert/space_handling.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "formats/json.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonFlag;
using formats::JsonText;

constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581

// False for a step that does anything else.
bool ReadSpaceStep(const Json& step, SpaceHandling& out) {
  if (!step.is_object()) return false;
  const std::string type = JsonText(step, "type");
  if (type == "Sequence") {
    for (const char* key : {"normalizers", "pretokenizers"}) {
      const auto steps = step.find(key);
      if (steps == step.end() || !steps->is_array()) continue;
      return std::all_of(steps->begin(), steps->end(),
                         [&](const Json& inner) { return ReadSpaceStep(inner, out); });
    }
    return false;
  }
  if (type == "Prepend") {
    out.adds_prefix = true;
    return JsonText(step, "prepend") == kEscapedSpace;
  }
  if (type == "Replace") {
    out.escapes = true;
    const auto pattern = step.find("pattern");
    return pattern != step.end() && JsonText(*pattern, "String") == " " &&
           JsonText(step, "content") == kEscapedSpace;
  }
  if (type == "Split") {  // at spaces, which are gone by then
    const auto pattern = step.find("pattern");
    return out.escapes && pattern != step.end() && JsonText(*pattern, "String") == " ";
  }
  if (type != "Metaspace") return false;
  out.escapes = true;
  // Before there were schemes, a flag said whether there is a prefix.
  const bool prefix = JsonFlag(step, "add_prefix_space", true);
  out.adds_prefix |= JsonText(step, "prepend_scheme", prefix ? "always" : "never") != "never";
  return JsonText(step, "replacement") == kEscapedSpace;
}

}  // namespace

Result<SpaceHandling> ReadSpaceHandling(const TokenizerJson& tokenizer) {
  SpaceHandling spaces;
  for (const char* key : {"normalizer", "pre_tokenizer"}) {
    const Json* step = tokenizer.root.Find(key);
    if (step == nullptr || ReadSpaceStep(*step, spaces)) continue;
    return MakeError(ErrorCode::kNotSupported,
                     "{} cannot be converted, expected only spaces to become U+2581; found {}",
                     tokenizer.root.Where(key), formats::Shown(*step));
  }
  if (!spaces.escapes) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: with byte_fallback, spaces are expected to become U+2581",
                     tokenizer.file);
  }
  return spaces;
}

bool NormalizerSpellsSpaces(const TokenizerJson& tokenizer) {
  const Json* normalizer = tokenizer.root.Find("normalizer");
  SpaceHandling spaces;
  return normalizer != nullptr && ReadSpaceStep(*normalizer, spaces) &&
         (spaces.escapes || spaces.adds_prefix);
}

}  // namespace kvant::convert
