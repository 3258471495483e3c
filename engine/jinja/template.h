// A parsed template, and the values that it is rendered with. What is implemented is told in
// parser.h (grammar) and natives.h (filters, tests, methods, functions).
//
// Thread-safety: const after Parse; Render may run concurrently with values of its own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/jinja/run.h"
#include "engine/jinja/text.h"
#include "engine/jinja/value.h"

namespace kvant::jinja {

struct Tree;

class Template {
 public:
  // kInvalid for what is no template: "name: line 3: expected ...".
  static Result<Template> Parse(const std::string& name, std::string_view source);

  // The text that it writes. kInvalid, with name and line, where it fails, refuses its input or
  // exceeds a limit. `now` is in seconds since 1970, for strftime_now.
  Result<Text> Render(const std::vector<std::pair<std::string, Value>>& variables, int64_t now,
                      const Limits& limits = {}) const;

 private:
  std::string name_;
  std::shared_ptr<const Tree> tree_;
};

// A JSON text as a value whose strings are foreign, members in their order; where members share a
// key, the last one counts, as in Python. kInvalid for what is no JSON, for nesting deeper than
// kJsonValueDepthMax and for whole numbers beyond 64 bits. `what` is named in errors.
inline constexpr int kJsonValueDepthMax = 64;
Result<Value> ValueOfJson(std::string_view json, const std::string& what);

}  // namespace kvant::jinja
