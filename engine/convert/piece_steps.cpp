#include "engine/convert/piece_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/log.h"
#include "engine/convert/precompiled_table.h"
#include "engine/tokenizer/byte_piece.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonFlag;
using formats::JsonObject;
using formats::JsonText;

// A replacement of runs of spaces by one.
bool MergesSpaces(const Json& step) {
  const auto pattern = step.find("pattern");
  if (JsonText(step, "type") != "Replace" || pattern == step.end()) return false;
  const std::string regex = JsonText(*pattern, "Regex");
  const std::string with = JsonText(step, "content");
  return regex == " {2,}" && (with == " " || with == kSpacePiece);
}

// A replacement of each space by its mark.
bool MarksSpaces(const Json& step) {
  const auto pattern = step.find("pattern");
  return JsonText(step, "type") == "Replace" && pattern != step.end() &&
         JsonText(*pattern, "String") == " " && JsonText(step, "content") == kSpacePiece;
}

bool ReadMetaspace(const Json& step, PieceSteps& out) {
  const bool prefix = JsonFlag(step, "add_prefix_space", true);
  const std::string scheme = JsonText(step, "prepend_scheme", prefix ? "always" : "never");
  out.prefix = out.unless_space = scheme != "never";
  out.behind_tokens = scheme != "first";
  out.marks_spaces = true;
  out.cuts_words |= JsonFlag(step, "split", true);
  // Words that were cut out have lost the space in front.
  if (out.cuts_white_space && scheme != "always") return false;
  return JsonText(step, "replacement") == kSpacePiece;
}

// False for a step that is not understood. The depth of JSON is limited.
bool ReadStep(const Json& step, PieceSteps& out) {
  if (!step.is_object()) return false;
  const std::string type = JsonText(step, "type");
  if (type == "Sequence") {
    for (const char* key : {"normalizers", "pretokenizers"}) {
      const auto steps = step.find(key);
      if (steps == step.end() || !steps->is_array()) continue;
      return std::ranges::all_of(*steps, [&](const Json& inner) { return ReadStep(inner, out); });
    }
    return false;
  }
  // A table behind marks would see them in place of spaces.
  if (type == "Precompiled") {
    out.has_table |= !JsonText(step, "precompiled_charsmap").empty();
    return !out.marks_spaces;
  }
  if (type == "Prepend") {
    if (std::exchange(out.prefix, true)) return false;
    return JsonText(step, "prepend") == kSpacePiece;
  }
  if (MarksSpaces(step)) {
    out.marks_spaces = true;
    return true;
  }
  if (out.marks_spaces) return false;  // the steps below look for plain spaces
  if (type == "WhitespaceSplit" || MergesSpaces(step)) {
    out.merges_spaces = true;
    if (type != "WhitespaceSplit") return true;
    // Tabs and line breaks are cut away like spaces, which a table in front makes of them.
    out.strips_end = out.cuts_words = out.cuts_white_space = true;
    return out.has_table;
  }
  if (type == "Strip") {
    // A space in front becomes the one that is put there anyway.
    out.strips_end = JsonFlag(step, "strip_right", true);
    return out.strips_end;
  }
  return type == "Metaspace" && !out.prefix && ReadMetaspace(step, out);
}

}  // namespace

Result<PieceSteps> ReadPieceSteps(const JsonObject& tokenizer) {
  PieceSteps steps;
  for (const char* key : {"normalizer", "pre_tokenizer"}) {
    const Json* step = tokenizer.Find(key);
    if (step == nullptr || ReadStep(*step, steps)) continue;
    return MakeError(ErrorCode::kNotSupported,
                     "{} cannot be converted, expected a table of characters, runs of spaces that "
                     "become one, and spaces that become U+2581; found {}",
                     tokenizer.Where(key), formats::Shown(*step));
  }
  if (!steps.marks_spaces) {
    return MakeError(ErrorCode::kNotSupported,
                     "{} cannot be converted, expected spaces to become U+2581, found no step "
                     "that does it",
                     tokenizer.Where("pre_tokenizer"));
  }
  if (steps.strips_end && !steps.merges_spaces) {
    return MakeError(ErrorCode::kNotSupported,
                     "{}: \"Strip\" cannot be converted where runs of spaces stay as they are",
                     tokenizer.Where("normalizer"));
  }
  return steps;
}

Status UsePieceSteps(const JsonObject& tokenizer, const PieceSteps& steps, Vocabulary& vocabulary) {
  vocabulary.add_space_prefix = steps.prefix;
  vocabulary.prefix_unless_space = steps.unless_space;
  vocabulary.remove_extra_whitespaces = steps.merges_spaces;
  if (steps.merges_spaces && !steps.strips_end) {
    Log(LogLevel::kWarning,
        fmt::format("{}: spaces at the end of a text are left out, though the tokenizer keeps one",
                    tokenizer.where()));
  }
  if (steps.prefix && !steps.behind_tokens) {
    Log(LogLevel::kWarning,
        fmt::format("{}: texts behind added tokens get a space in front, though the tokenizer puts "
                    "it in front of a whole text alone",
                    tokenizer.where()));
  }
  KVANT_ASSIGN(vocabulary.charsmap, PrecompiledTable(tokenizer));
  return {};
}

}  // namespace kvant::convert
