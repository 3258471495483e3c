// Metadata values of GGUF files as typed numbers: the sizes of the stored types and the conversions
// behind the typed getters of GgufFile, which check the type and the range before they convert.
//
// Each getter takes the value of `key` or null where the file has no such key; `file` is used in
// messages. Errors: kCorrupt. Thread-safety: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/gguf.h"

namespace kvant::formats {

// Bytes of one stored number or boolean; 0 for strings, arrays and unknown types.
uint64_t GgufTypeBytes(GgufType type);

Result<std::optional<uint32_t>> ValueAsU32(const std::string& file, std::string_view key,
                                           const GgufValue* value);
Result<std::optional<float>> ValueAsF32(const std::string& file, std::string_view key,
                                        const GgufValue* value);
Result<std::optional<bool>> ValueAsBool(const std::string& file, std::string_view key,
                                        const GgufValue* value);
Result<std::optional<std::string_view>> ValueAsString(const std::string& file, std::string_view key,
                                                      const GgufValue* value);
Result<const GgufArray*> ValueAsArray(const std::string& file, std::string_view key,
                                      const GgufValue* value, GgufType element);

}  // namespace kvant::formats
