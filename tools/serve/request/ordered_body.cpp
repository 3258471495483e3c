#include "tools/serve/request/ordered_body.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

namespace kvant::tools {
namespace {

// A member is compared with all members before it. An object of 10,000 of them takes a tenth of a
// second.
constexpr double kComparisonsMax = 1e8;

double ComparisonsOf(const RequestJson& json) {
  double count = 0;
  if (json.is_object()) count = static_cast<double>(json.size()) * static_cast<double>(json.size());
  if (json.is_structured()) {
    for (const RequestJson& value : json) count += ComparisonsOf(value);
  }
  return count;
}

}  // namespace

Refusal ParseInOrder(const RequestJson& body, std::string_view text, Json* out) {
  if (ComparisonsOf(body) > kComparisonsMax) {
    ApiError error;
    error.message = "the body: its objects have too many members";
    return error;
  }
  *out = Json::parse(text);
  return {};
}

const Json* MemberInOrder(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(name));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace kvant::tools
