#include "engine/convert/pre_tokenizer_name.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "engine/tokenizer/pre_tokenizers.h"
#include "engine/tokenizer/unicode.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonFlag;
using formats::JsonText;
using Patterns = std::vector<std::string>;

// Expressions that steps without an expression of their own stand for, in the spelling of the
// table.
constexpr std::string_view kByteLevel =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kEachDigit = R"(\p{N})";
constexpr std::string_view kDigitRun = R"(\p{N}+)";
constexpr std::string_view kPunctuationRun = R"([\p{P}\$\+<=>\^~\|`]+)";

// Expressions that the table has in another form with the same matches.
struct Rewritten {
  std::string_view original;
  std::string_view in_table;
};
constexpr Rewritten kRewritten[] = {
    {R"(\s+$)", R"((?<!\s)\s++\z)"},
    {R"((?=(\d{3})+(?!\d)))", R"((*open-threes)\d++)"},
    {R"(\d{1,3}(?=(?:\d{3})*\b))", R"((*threes)\d++(?:(?=\w)()|))"},
};

// Falcon's list has one step more than the row of that name, which follows llama.cpp.
constexpr std::string_view kFalconSteps[] = {kPunctuationRun, kByteLevel, kDigitRun,
                                             "[0-9][0-9][0-9]"};

Patterns Canonical(std::span<const std::string_view> patterns) {
  Patterns out;
  for (const std::string_view pattern : patterns) out.push_back(CanonicalPattern(pattern));
  return out;
}

// Appends the expression of a Split step. Keeping matches and dropping the rest is the same as
// isolating matches for expressions that match everything, as all expressions here do.
bool AppendSplit(const Json& step, Patterns& out) {
  const auto pattern = step.find("pattern");
  if (pattern == step.end() || !pattern->is_object()) return false;
  const std::string regex = JsonText(*pattern, "Regex");
  const std::string behavior = JsonText(step, "behavior");
  const bool inverted = JsonFlag(step, "invert", false);
  const bool isolates =
      (behavior == "Isolated" && !inverted) || (behavior == "Removed" && inverted);
  if (regex.empty() || !isolates) return false;
  for (const Rewritten& entry : kRewritten) {
    if (regex != entry.original) continue;
    out.push_back(CanonicalPattern(entry.in_table));
    return true;
  }
  out.push_back(CanonicalPattern(regex));
  return true;
}

// Appends the expressions of a step; a sequence's steps in order. False for a step without
// expressions. Recursion is bounded by the depth of the JSON text.
bool AppendSteps(const Json& step, Patterns& out) {
  if (!step.is_object()) return false;
  const std::string type = JsonText(step, "type");
  if (type == "Sequence") {
    const auto steps = step.find("pretokenizers");
    if (steps == step.end() || !steps->is_array()) return false;
    return std::all_of(steps->begin(), steps->end(),
                       [&](const Json& inner) { return AppendSteps(inner, out); });
  }
  if (type == "Split") return AppendSplit(step, out);
  if (type == "ByteLevel") {
    if (JsonFlag(step, "use_regex", true)) out.push_back(CanonicalPattern(kByteLevel));
    return !JsonFlag(step, "add_prefix_space", false);
  }
  if (type == "Digits") {
    const bool each = JsonFlag(step, "individual_digits", false);
    out.push_back(CanonicalPattern(each ? kEachDigit : kDigitRun));
    return true;
  }
  if (type == "Punctuation") {
    out.push_back(CanonicalPattern(kPunctuationRun));
    return JsonText(step, "behavior") == "Contiguous";
  }
  return false;
}

enum class Normalizer : uint8_t { kNone, kNfc, kOther };

Normalizer ReadNormalizer(const Json* step) {
  if (step == nullptr) return Normalizer::kNone;
  if (!step->is_object()) return Normalizer::kOther;
  const std::string type = JsonText(*step, "type");
  if (type == "NFC") return Normalizer::kNfc;
  const auto steps = step->find("normalizers");
  if (type != "Sequence" || steps == step->end() || !steps->is_array()) return Normalizer::kOther;
  if (steps->empty()) return Normalizer::kNone;
  return steps->size() == 1 && JsonText(steps->front(), "type") == "NFC" ? Normalizer::kNfc
                                                                         : Normalizer::kOther;
}

// The row with the expressions `patterns` that agrees best in the rest; null if there is none.
const PreTokenizerRow* FindRow(const Patterns& patterns, bool ignore_merges, bool nfc) {
  const PreTokenizerRow* best = nullptr;
  int best_score = -1;
  for (const PreTokenizerRow& row : PreTokenizerRows()) {
    const bool byte_level = row.spelling == PreTokenizerRow::Spelling::kBytes;
    if (!byte_level || Canonical(row.patterns) != patterns) continue;
    const int score =
        (row.ignore_merges == ignore_merges ? 2 : 0) + (row.normalize_nfc == nfc ? 1 : 0);
    if (score <= best_score) continue;
    best = &row;
    best_score = score;
  }
  return best;
}

}  // namespace

std::string CanonicalPattern(std::string_view pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out += pattern[i];
      continue;
    }
    const char escaped = pattern[++i];
    const bool braced = escaped == 'x' && pattern.substr(i + 1).starts_with('{');
    const size_t close = braced ? pattern.find('}', i) : std::string_view::npos;
    uint32_t code = 0;
    bool is_code = false;
    if (close != std::string_view::npos) {
      const char* end = pattern.data() + close;
      is_code = std::from_chars(pattern.data() + i + 2, end, code, 16).ptr == end;
    }
    if (is_code && code <= 0x10ffff) {
      AppendUtf8(code, out);
      i = close;
    } else if (escaped == 'n') {
      out += '\n';
    } else if (escaped == 'r') {
      out += '\r';
    } else if (escaped == 't') {
      out += '\t';
    } else if (escaped == '/') {
      out += '/';
    } else {
      out += '\\';
      out += escaped;
    }
  }
  return out;
}

Result<std::string> PreTokenizerName(const TokenizerJson& tokenizer) {
  const JsonObject& root = tokenizer.root;
  const Json* normalizer_json = root.Find("normalizer");
  const Normalizer normalizer = ReadNormalizer(normalizer_json);
  if (normalizer == Normalizer::kOther) {
    return MakeError(ErrorCode::kNotSupported,
                     "{} cannot be converted, expected none or NFC; found {}",
                     root.Where("normalizer"), formats::Shown(*normalizer_json));
  }
  const Json* steps = root.Find("pre_tokenizer");
  Patterns patterns;
  const bool known_steps = steps != nullptr && AppendSteps(*steps, patterns);
  if (known_steps && patterns == Canonical(kFalconSteps)) return std::string("falcon");
  const bool nfc = normalizer == Normalizer::kNfc;
  const PreTokenizerRow* row =
      known_steps ? FindRow(patterns, tokenizer.ignore_merges, nfc) : nullptr;
  if (row == nullptr) {
    return MakeError(ErrorCode::kNotSupported, "{} is none that kvant knows: {}",
                     root.Where("pre_tokenizer"),
                     steps == nullptr ? "null" : formats::Shown(*steps));
  }
  if (row->ignore_merges != tokenizer.ignore_merges) {
    Log(LogLevel::kWarning,
        fmt::format("{}: ignore_merges is {}, but the pre-tokenizer {} implies {}: a few words may "
                    "be cut differently",
                    tokenizer.file, tokenizer.ignore_merges, row->names.front(),
                    row->ignore_merges));
  }
  return std::string(row->names.front());
}

}  // namespace kvant::convert
