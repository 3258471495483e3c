#include "formats/json_object.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/result.h"

namespace kvant::formats {
namespace {

// The largest published tokenizer.json has some 35 MB.
constexpr uint64_t kFileBytesMax = uint64_t{256} << 20;

Result<std::shared_ptr<const Json>> CheckedObject(Json json, const std::string& file) {
  if (!json.is_object()) {
    return MakeError(ErrorCode::kCorrupt, "{}: expected a JSON object, found {}", file,
                     json.type_name());
  }
  return std::shared_ptr<const Json>(std::make_shared<Json>(std::move(json)));
}

}  // namespace

JsonObject::JsonObject(std::string file)
    : json_(std::make_shared<Json>(Json::object())), where_(std::move(file)) {}

JsonObject::JsonObject(std::shared_ptr<const Json> json, std::string where)
    : json_(std::move(json)), where_(std::move(where)) {}

Result<JsonObject> JsonObject::Read(const std::string& path) {
  KVANT_ASSIGN(Json json, formats::ReadJson(path, kFileBytesMax));
  KVANT_ASSIGN(auto object, CheckedObject(std::move(json), path));
  return JsonObject(std::move(object), path);
}

Result<JsonObject> JsonObject::Parse(std::string_view text, const std::string& file) {
  KVANT_ASSIGN(Json json, formats::ParseJson(text, file));
  KVANT_ASSIGN(auto object, CheckedObject(std::move(json), file));
  return JsonObject(std::move(object), file);
}

const Json* JsonObject::Find(std::string_view key) const {
  const auto member = json_->find(key);
  return member == json_->end() || member->is_null() ? nullptr : &*member;
}

std::vector<std::string> JsonObject::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json_->items()) keys.push_back(key);
  return keys;
}

std::string JsonObject::Where(std::string_view key) const {
  return fmt::format("{}: {}", where_, key);
}

Error JsonObject::Wrong(std::string_view key, std::string_view expected) const {
  const Json* value = Find(key);
  return MakeError(ErrorCode::kCorrupt, "{} is {}, expected {}", Where(key),
                   value == nullptr ? "missing" : formats::Shown(*value), expected);
}

Result<std::optional<int64_t>> JsonObject::Integer(std::string_view key, int64_t max) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  // Exporters write some counts as 32.0.
  const double number = value->is_number() ? value->get<double>() : -1;
  if (number < 0 || number > static_cast<double>(max) || number != std::floor(number)) {
    return Wrong(key, fmt::format("a whole number from 0 to {}", max));
  }
  return std::optional<int64_t>(static_cast<int64_t>(number));
}

Result<std::optional<double>> JsonObject::Number(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number() || !std::isfinite(value->get<double>())) return Wrong(key, "a number");
  return std::optional<double>(value->get<double>());
}

Result<std::optional<std::vector<float>>> JsonObject::Numbers(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<float>>();
  if (!value->is_array()) return Wrong(key, "an array of numbers");
  std::vector<float> numbers;
  for (const Json& element : *value) {
    const double number = element.is_number() ? element.get<double>() : std::nan("");
    if (!(std::abs(number) <= static_cast<double>(std::numeric_limits<float>::max()))) {
      return Wrong(key, "an array of numbers");
    }
    numbers.push_back(static_cast<float>(number));
  }
  return std::optional(std::move(numbers));
}

Result<std::optional<bool>> JsonObject::Bool(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return Wrong(key, "true or false");
  return std::optional<bool>(value->get<bool>());
}

Result<std::optional<std::string>> JsonObject::String(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return Wrong(key, "a string");
  return std::optional(value->get<std::string>());
}

Result<std::optional<JsonObject>> JsonObject::Object(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return std::optional<JsonObject>();
  if (!value->is_object()) return Wrong(key, "an object");
  return std::optional(JsonObject(std::shared_ptr<const Json>(json_, value), Where(key)));
}

JsonObject JsonObject::With(const JsonObject& other) const {
  auto merged = std::make_shared<Json>(*json_);
  for (const auto& [key, value] : other.json_->items()) {
    if (!value.is_null()) (*merged)[key] = value;
  }
  return {std::move(merged), where_};
}

Result<int64_t> JsonObject::Count(std::string_view key, int64_t max) const {
  KVANT_ASSIGN(const std::optional<int64_t> value, Integer(key, max));
  if (value.value_or(0) == 0) return Wrong(key, fmt::format("a whole number from 1 to {}", max));
  return *value;
}

}  // namespace kvant::formats
