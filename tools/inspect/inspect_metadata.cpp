#include "tools/inspect/inspect_metadata.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/counted.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr size_t kArrayShown = 8;  // elements of an array that are shown
constexpr size_t kTextShown = 76;  // bytes of a text that are shown, in the overview for people

template <class T>
T LoadElement(const formats::GgufArray& array, size_t index) {
  T value;
  std::memcpy(&value, array.data + index * sizeof(T), sizeof(T));
  return value;
}

Json ArrayElement(const formats::GgufArray& array, size_t index) {
  using formats::GgufType;
  switch (array.type) {
    case GgufType::kUint8: return LoadElement<uint8_t>(array, index);
    case GgufType::kInt8: return LoadElement<int8_t>(array, index);
    case GgufType::kUint16: return LoadElement<uint16_t>(array, index);
    case GgufType::kInt16: return LoadElement<int16_t>(array, index);
    case GgufType::kUint32: return LoadElement<uint32_t>(array, index);
    case GgufType::kInt32: return LoadElement<int32_t>(array, index);
    case GgufType::kUint64: return LoadElement<uint64_t>(array, index);
    case GgufType::kInt64: return LoadElement<int64_t>(array, index);
    case GgufType::kFloat32: return LoadElement<float>(array, index);
    case GgufType::kFloat64: return LoadElement<double>(array, index);
    case GgufType::kBool: return LoadElement<uint8_t>(array, index) != 0;
    case GgufType::kString: return std::string(array.strings[index]);
    case GgufType::kArray: break;
  }
  return nullptr;
}

// An array becomes {count, type, first}, everything else its value.
Json ValueJson(const formats::GgufValue& value) {
  if (const auto* array = std::get_if<formats::GgufArray>(&value.value)) {
    Json first = Json::array();
    for (size_t i = 0; i < std::min<uint64_t>(array->count, kArrayShown); ++i) {
      first.push_back(ArrayElement(*array, i));
    }
    return {{"count", array->count},
            {"type", formats::GgufTypeName(array->type)},
            {"first", std::move(first)}};
  }
  if (const auto* text = std::get_if<std::string_view>(&value.value)) return std::string(*text);
  if (const auto* number = std::get_if<double>(&value.value)) {
    // Shortest form of what the file holds, not of its widening to double.
    if (value.type == formats::GgufType::kFloat32) return static_cast<float>(*number);
    return *number;
  }
  if (const auto* number = std::get_if<int64_t>(&value.value)) return *number;
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag;
  return std::get<uint64_t>(value.value);
}

std::string Shorten(const std::string& text) {
  if (text.size() <= kTextShown) return text;
  size_t end = kTextShown;
  while ((static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // whole characters
  return fmt::format("{}… ({} bytes)", text.substr(0, end), text.size());
}

// Text as it is, numbers of the file's type at their shortest, elements of arrays in quotes where
// they are texts.
std::string ElementText(const Json& value, formats::GgufType type) {
  if (value.is_string()) return fmt::format("\"{}\"", Visible(value.get<std::string>()));
  if (value.is_number_float() && type == formats::GgufType::kFloat32) {
    return fmt::format("{}", value.get<float>());
  }
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return Dump(value, -1);
}

std::string ValueText(const formats::GgufValue& value) {
  const Json json = ValueJson(value);
  if (!json.is_object()) {
    return json.is_string() ? Shorten(Visible(json.get<std::string>()))
                            : ElementText(json, value.type);
  }
  // Whole elements, as many as fit.
  const formats::GgufType type = std::get<formats::GgufArray>(value.value).type;
  std::string shown;
  uint64_t elements = 0;
  for (const Json& element : json["first"]) {
    const std::string text = Shorten(ElementText(element, type));
    if (elements > 0 && shown.size() + text.size() + 2 > kTextShown) break;
    shown += (elements++ > 0 ? ", " : "") + text;
  }
  const uint64_t count = json["count"].get<uint64_t>();
  return fmt::format("[{}{}] {} {}", shown, count > elements ? ", …" : "", count,
                     json["type"].get<std::string>());
}

}  // namespace

Json MetadataJson(const formats::GgufFile& file) {
  Json out = Json::object();
  for (const auto& [key, value] : file.metadata()) out[std::string(key)] = ValueJson(value);
  return out;
}

std::string MetadataText(const formats::GgufFile& file) {
  std::string out = fmt::format("metadata      {}\n", Counted(file.metadata().size(), "key"));
  for (const auto& [key, value] : file.metadata()) {
    out += fmt::format("  {:<40} {}\n", Visible(key), ValueText(value));
  }
  return out;
}

}  // namespace kvant::tools
