#include "formats/ctranslate2.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/result.h"
#include "formats/byte_cursor.h"
#include "formats/other_files.h"
#include "formats/quoted.h"
#include "quant/format.h"

namespace kvant::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read in the host's order");

constexpr uint32_t kFirstVersion = 2;  // version 1 has the names of another program's graph
constexpr uint32_t kFirstVersionWithAliases = 3;
constexpr uint32_t kFirstVersionWithTypes = 4;
constexpr uint32_t kLastVersion = 6;

constexpr size_t kCTranslate2DimsMax = 8;  // real ones have up to 3

// By the number of the type.
constexpr std::string_view kTypeNames[] = {"F32", "I8", "I16", "I32", "F16", "BF16"};

// The type that a file without types means by the bytes of a value.
std::string_view TypeOfWidth(uint8_t width) {
  switch (width) {
    case 4: return "F32";
    case 2: return "I16";
    case 1: return "I8";
    default: return "";
  }
}

// An integer of N bytes.
template <class T>
double IntegerAt(const std::byte* data) {
  T value = 0;
  std::memcpy(&value, data, sizeof(value));
  return static_cast<double>(value);
}

}  // namespace

class CTranslate2Parser {
 public:
  CTranslate2Parser(std::span<const std::byte> bytes, CTranslate2Model& model)
      : bytes_(bytes), cursor_(bytes), model_(model) {}

  Status Parse() {
    KVANT_TRY(ReadHead());
    uint32_t count = 0;
    if (!cursor_.Read(count)) return Truncated("the number of variables");
    for (uint32_t i = 0; i < count; ++i) KVANT_TRY(ReadVariable(i, count));
    const auto duplicate = model_.variable_index_.Build(
        model_.variables_, [](const auto& one) { return std::string_view(one.name); });
    if (duplicate) {
      return Corrupt("variable {} occurs twice", Quoted(model_.variables_[duplicate->first].name));
    }
    if (model_.version_ >= kFirstVersionWithAliases) KVANT_TRY(ReadAliases());
    if (cursor_.remaining() == 0) return {};
    return Corrupt("{} bytes behind the last variable or alias, expected none",
                   cursor_.remaining());
  }

 private:
  template <class... Args>
  Error Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return MakeError(ErrorCode::kCorrupt, "{}: {}", model_.path_,
                     fmt::format(format, std::forward<Args>(args)...));
  }
  Error Truncated(std::string_view what) const {
    return Corrupt("the file of {} bytes ends inside {}", bytes_.size(), what);
  }

  // A text, whose length counts the zero behind it.
  bool ReadText(std::string& text) {
    std::string_view view;
    if (!cursor_.ReadString<uint16_t>(view) || !view.ends_with('\0')) return false;
    view.remove_suffix(1);
    text = view;
    return true;
  }

  Status ReadHead() {
    if (!cursor_.Read(model_.version_)) return Truncated("its version");
    if (model_.version_ < kFirstVersion || model_.version_ > kLastVersion) {
      return MakeError(ErrorCode::kNotSupported,
                       "{}: no model of CTranslate2 of the versions {} to {}: the version is {}{}",
                       model_.path_, kFirstVersion, kLastVersion, model_.version_,
                       OtherFileHint(bytes_));
    }
    if (!ReadText(model_.spec_)) return Truncated("the name of its spec");
    if (!cursor_.Read(model_.revision_)) return Truncated("the revision of its spec");
    return {};
  }

  Status ReadVariable(uint32_t number, uint32_t count) {
    SafetensorsTensor variable;
    const std::string place = fmt::format("variable {} of {}", uint64_t{number} + 1, count);
    if (!ReadText(variable.name)) return Truncated(fmt::format("the name of {}", place));
    if (variable.name.empty()) return Corrupt("{} has no name", place);
    uint8_t dims = 0;
    if (!cursor_.Read(dims)) return Truncated(place);
    if (dims > kCTranslate2DimsMax) {
      return Corrupt("variable {} has {} dimensions, expected at most {}", Quoted(variable.name),
                     dims, kCTranslate2DimsMax);
    }
    uint64_t values = 1;
    for (uint8_t i = 0; i < dims; ++i) {
      uint32_t size = 0;
      if (!cursor_.Read(size)) return Truncated(place);
      variable.shape.push_back(size);
      if (__builtin_mul_overflow(values, uint64_t{size}, &values)) {
        return Corrupt("variable {} has more than 2^64 values", Quoted(variable.name));
      }
    }
    KVANT_TRY(ReadType(place, variable));
    const auto width = static_cast<uint64_t>(variable.type->bytes);
    if (values > UINT64_MAX / width || values * width != variable.size_bytes) {
      return Corrupt("variable {} has {} bytes, but its shape and type {} make {} values of {}",
                     Quoted(variable.name), variable.size_bytes, variable.type->name, values,
                     width);
    }
    variable.data = cursor_.Take(variable.size_bytes);
    if (variable.data == nullptr) {
      return Corrupt("variable {} has {} bytes, but only {} of the file are left",
                     Quoted(variable.name), variable.size_bytes, cursor_.remaining());
    }
    model_.variables_.push_back(std::move(variable));
    return {};
  }

  // Sets type and size_bytes.
  Status ReadType(const std::string& place, SafetensorsTensor& variable) {
    uint8_t type = 0;
    uint32_t size = 0;
    if (!cursor_.Read(type) || !cursor_.Read(size)) return Truncated(place);
    const bool typed = model_.version_ >= kFirstVersionWithTypes;
    std::string_view name = typed ? "" : TypeOfWidth(type);
    if (typed && type < std::size(kTypeNames)) name = kTypeNames[type];
    if (name.empty()) {
      return Corrupt("variable {}: {} {}, expected {}", Quoted(variable.name),
                     typed ? "type" : "values of bytes", type, typed ? "0 to 5" : "1, 2 or 4");
    }
    variable.type = FindSafetensorsType(name);
    variable.size_bytes = typed ? size : uint64_t{size} * static_cast<uint64_t>(type);
    return {};
  }

  Status ReadAliases() {
    uint32_t count = 0;
    if (!cursor_.Read(count)) return Truncated("the number of aliases");
    for (uint32_t i = 0; i < count; ++i) {
      CTranslate2Model::Alias alias{};
      std::string of;
      if (!ReadText(alias.name) || !ReadText(of)) {
        return Truncated(fmt::format("alias {} of {}", uint64_t{i} + 1, count));
      }
      const auto variable = model_.variable_index_.Find(of);
      if (!variable) {
        return Corrupt("alias {} stands for the variable {}, which is missing", Quoted(alias.name),
                       Quoted(of));
      }
      if (model_.variable_index_.Find(alias.name)) {
        return Corrupt("alias {} is the name of a variable, too", Quoted(alias.name));
      }
      alias.variable = *variable;
      model_.aliases_.push_back(std::move(alias));
    }
    const auto duplicate = model_.alias_index_.Build(
        model_.aliases_, [](const auto& one) { return std::string_view(one.name); });
    if (!duplicate) return {};
    return Corrupt("alias {} occurs twice", Quoted(model_.aliases_[duplicate->first].name));
  }

  std::span<const std::byte> bytes_;
  ByteCursor cursor_;
  CTranslate2Model& model_;
};

Result<CTranslate2Model> CTranslate2Model::Open(const std::string& path, FileAccess access) {
  CTranslate2Model model;
  model.path_ = path;
  KVANT_ASSIGN(model.mapping_, MappedFile::Open(path, access));
  KVANT_TRY(CTranslate2Parser(model.mapping_.bytes(), model).Parse());
  return model;
}

Result<CTranslate2Model> CTranslate2Model::Parse(std::span<const std::byte> bytes,
                                                 const std::string& name) {
  CTranslate2Model model;
  model.path_ = name;
  KVANT_TRY(CTranslate2Parser(bytes, model).Parse());
  return model;
}

const SafetensorsTensor* CTranslate2Model::Find(std::string_view name) const {
  if (const auto found = variable_index_.Find(name)) return &variables_[*found];
  const auto alias = alias_index_.Find(name);
  return alias ? &variables_[aliases_[*alias].variable] : nullptr;
}

Result<std::optional<double>> CTranslate2Model::Number(std::string_view name) const {
  const SafetensorsTensor* variable = Find(name);
  if (variable == nullptr) return std::optional<double>();
  double number = std::nan("");
  const std::string_view type = variable->type->name;
  if (variable->n_values() != 1) {
    return MakeError(ErrorCode::kCorrupt, "{}: variable {} has {} values, expected one", path_,
                     Quoted(name), variable->n_values());
  }
  if (type == "I8") {
    number = IntegerAt<int8_t>(variable->data);
  } else if (type == "I16") {
    number = IntegerAt<int16_t>(variable->data);
  } else if (type == "I32") {
    number = IntegerAt<int32_t>(variable->data);
  } else {
    std::array<std::byte, sizeof(float)> bytes{};
    float value = 0;
    std::memcpy(bytes.data(), variable->data, variable->size_bytes);
    quant::FindFormat(type)->decode(bytes.data(), &value, 1);
    number = static_cast<double>(value);
  }
  if (std::isfinite(number)) return std::optional(number);
  return MakeError(ErrorCode::kCorrupt, "{}: variable {} is {}, expected a finite number", path_,
                   Quoted(name), number);
}

Result<std::optional<std::string>> CTranslate2Model::Text(std::string_view name) const {
  const SafetensorsTensor* variable = Find(name);
  if (variable == nullptr) return std::optional<std::string>();
  if (variable->type->bytes != 1 || variable->shape.size() != 1) {
    return MakeError(ErrorCode::kCorrupt, "{}: variable {} holds {} values, expected a text", path_,
                     Quoted(name), variable->type->name);
  }
  return std::optional(std::string(reinterpret_cast<const char*>(variable->data),
                                   static_cast<size_t>(variable->size_bytes)));
}

}  // namespace kvant::formats
