// Fuzzes JSON schemas: whatever they say, they are refused or say which tokens may follow, and
// every token that is allowed can be taken.
//
// The first byte chooses the form and the way through the grammar; the rest is the schema.
#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/grammar/schema/json_schema.h"
#include "tests/fuzz/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 2000) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto built = kvant::grammar::ParseJsonSchema(
      text, {.compact = (data[0] & 1) != 0, .allows_unknown = (data[0] & 2) != 0});
  if (built.ok()) kvant::test::WalkThrough(std::move(*built), data[0] / 4);
  return 0;
}
