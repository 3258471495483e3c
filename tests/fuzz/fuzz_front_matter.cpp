// Fuzzes the reader of model cards: what it takes from a text must be pieces of it, and UTF-8,
// since it goes into the metadata of models.
#include <cstdint>
#include <string_view>

#include "engine/convert/front_matter.h"
#include "engine/tokenizer/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  size_t bytes = 0;
  for (const auto& [key, values] : kvant::convert::ParseFrontMatter(text)) {
    if (key.empty()) __builtin_trap();
    for (const std::string& value : values) {
      if (value.empty() || !kvant::IsValidUtf8(value)) __builtin_trap();
      bytes += value.size();
    }
  }
  if (bytes > size) __builtin_trap();
  return 0;
}
