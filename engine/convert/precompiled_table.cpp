#include "engine/convert/precompiled_table.h"

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "engine/tokenizer/charsmap.h"

namespace kvant::convert {
namespace {

using formats::Json;
using formats::JsonObject;
using formats::JsonText;

// The first step of a type in a normalizer or pre-tokenizer, which may be a list of steps, of lists
// and so on (the depth of JSON is limited).
const Json* FindStep(const Json& step, std::string_view type) {
  if (!step.is_object()) return nullptr;
  if (JsonText(step, "type") == type) return &step;
  for (const char* key : {"normalizers", "pretokenizers"}) {
    const auto steps = step.find(key);
    if (steps == step.end() || !steps->is_array()) continue;
    for (const Json& inner : *steps) {
      if (const Json* found = FindStep(inner, type)) return found;
    }
  }
  return nullptr;
}

int Base64Value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool DecodeBase64(std::string_view text, std::vector<uint8_t>& bytes) {
  if (text.size() % 4 != 0) return false;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = Base64Value(c);
    if (value < 0) return false;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xFFFF;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> count));
  }
  return true;
}

}  // namespace

bool HasSpacePieces(const JsonObject& tokenizer) {
  const Json* model = tokenizer.Find("model");
  if (model == nullptr || formats::JsonFlag(*model, "byte_fallback", false)) return false;
  const Json* step = tokenizer.Find("pre_tokenizer");
  return step != nullptr && FindStep(*step, "Metaspace") != nullptr;
}

Result<std::vector<uint8_t>> PrecompiledTable(const JsonObject& tokenizer) {
  std::vector<uint8_t> bytes;
  const Json* normalizer = tokenizer.Find("normalizer");
  const Json* step = normalizer == nullptr ? nullptr : FindStep(*normalizer, "Precompiled");
  if (step == nullptr) return bytes;
  const std::string where = tokenizer.Where("normalizer") + ": precompiled_charsmap";
  if (!DecodeBase64(JsonText(*step, "precompiled_charsmap"), bytes)) {
    return MakeError(ErrorCode::kCorrupt, "{} is no base64", where);
  }
  if (bytes.empty()) return bytes;
  const std::string_view table(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto map = Charsmap::Parse(table, where);
  if (!map.ok()) return map.error();
  return bytes;
}

}  // namespace kvant::convert
