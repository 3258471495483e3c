// Strict JSON, for the files around a model (config.json, tokenizer.json, headers of safetensors).
// nlohmann-json does the lexing; this parser also refuses duplicate keys and endless nesting, which
// nlohmann-json lets pass, and turns every failure into one line with the place.
//
// Values are trees of ordinary objects, so memory is bounded by a constant multiple of the text,
// which is bounded by the caller. Users of the tree include <nlohmann/json.hpp>.
// Thread-safety: pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvant::formats {

using Json = nlohmann::json;

// Deeper than any file of a model, and shallow enough for code that walks a tree by recursion.
inline constexpr int kJsonDepthMax = 64;

// Reads one JSON value. `file` is used in messages. kCorrupt for text that is not JSON or not
// UTF-8, for a key that occurs twice in an object, and for nesting beyond kJsonDepthMax.
Result<Json> ParseJson(std::string_view text, const std::string& file);

// Parses a whole file as ParseJson does. The file has at most `bytes_max` bytes and may have
// Infinity, -Infinity and NaN as Python writes them, bare or as transformers does,
// {"__float__": "Infinity"}: the first two are read as infinite numbers, the third as null.
Result<Json> ReadJson(const std::string& path, uint64_t bytes_max);

// A member of an object, or the alternative if there is none of that type. `object` may be any
// value.
std::string JsonText(const Json& object, std::string_view key, std::string_view otherwise = "");
bool JsonFlag(const Json& object, std::string_view key, bool otherwise);

// A value as it appears in messages: its JSON text, cut where it is long.
std::string Shown(const Json& value);

}  // namespace kvant::formats
