// Fuzzes the interpreter of chat templates: whatever a model's file calls its template, rendering a
// conversation ends within the limits, and the marks of foreign text are ranges of it.
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/jinja/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace jinja = kvant::jinja;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = jinja::Template::Parse("fuzz", source);
  if (!parsed.ok()) return 0;
  const auto messages = jinja::ValueOfJson(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": "ab <c>"},
          {"role": "assistant", "content": "", "tool_calls": [{"function":
           {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]}])",
      "messages");
  if (!messages.ok()) __builtin_trap();
  const jinja::Limits limits = {.steps = 5000, .bytes = 1 << 22, .output = 1 << 16, .depth = 100};
  const auto text = parsed->Render(
      {{"messages", *messages}, {"tools", kvant::jinja::None{}}, {"add_generation_prompt", true}},
      0, limits);
  if (!text.ok()) return 0;
  size_t end = 0;
  for (const jinja::ByteRange& range : text->foreign()) {
    if (range.begin < end || range.begin >= range.end) __builtin_trap();
    end = range.end;
  }
  if (end > text->size() || text->size() > (1 << 16)) __builtin_trap();
  return 0;
}
