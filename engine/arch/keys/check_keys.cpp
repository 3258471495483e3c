#include "engine/arch/keys/check_keys.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <variant>
#include <vector>

#include "base/counted.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/arch/keys/key_rows.h"
#include "formats/gguf.h"
#include "formats/quoted.h"

namespace kvant::arch {
namespace {

using formats::GgufValue;

// Beginnings of keys that belong to no architecture and may change what a model computes.
constexpr std::array<std::string_view, 4> kCheckedParts = {"tokenizer.", "adapter.", "prism.",
                                                           "xielu."};

constexpr size_t kNamesMax = 10;  // in a warning

// The name of a key that is checked: without the architecture, or whole. "" for others.
std::string_view CheckedName(const Metadata& metadata, std::string_view key) {
  const std::string& arch = metadata.arch();
  const bool of_arch = key.size() > arch.size() && key.starts_with(arch) && key[arch.size()] == '.';
  if (of_arch) return key.substr(arch.size() + 1);
  const bool checked = std::ranges::any_of(
      kCheckedParts, [key](std::string_view part) { return key.starts_with(part); });
  return checked ? key : std::string_view();
}

std::string ValueText(const GgufValue& value) {
  return std::visit(
      [&value](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, formats::GgufArray>) {
          return fmt::format("an array of {} {} values", held.count,
                             formats::GgufTypeName(held.type));
        } else if constexpr (std::is_same_v<Held, std::string_view>) {
          return formats::Quoted(held.substr(0, 80));
        } else if constexpr (std::is_same_v<Held, double>) {
          if (value.type == formats::GgufType::kFloat32) {
            return fmt::format("{}", static_cast<float>(held));
          }
          return fmt::format("{}", held);
        } else {
          return fmt::format("{}", held);
        }
      },
      value.value);
}

// Keys that a row for a beginning stands for may have any bytes.
std::string Shown(std::string_view key) {
  const bool plain = std::ranges::all_of(key, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("._-").find(c) != std::string_view::npos;
  });
  return plain ? std::string(key) : formats::Quoted(key);
}

bool Names(std::string_view ignored, std::string_view name, std::string_view key) {
  return ignored == name || ignored == key;
}

// Keys that must not be left out, because the family reads them.
Status CheckIgnored(const Metadata& metadata, std::span<const std::string> ignored) {
  for (const std::string& given : ignored) {
    const std::string_view name = CheckedName(metadata, given);
    const std::string_view asked = name.empty() ? std::string_view(given) : name;
    const bool whole = metadata.asked_whole().contains(given);
    if (!whole && (!metadata.asked().contains(asked) || !metadata.Has(asked))) continue;
    return MakeError(ErrorCode::kInvalid,
                     "{}: --ignore-keys {}: expected a key that is not read, found one that is",
                     metadata.file().path(), given);
  }
  return {};
}

struct Refused {
  std::string_view key;
  std::string_view name;
  const GgufValue* value;
  const KeyRow* row;
};

Error RefusedKeys(const Metadata& metadata, const std::vector<Refused>& refused) {
  std::string names;
  for (const Refused& key : refused) {
    names += fmt::format("{}{}", names.empty() ? "" : ",", Shown(key.name));
  }
  const Refused& first = refused.front();
  return MakeError(ErrorCode::kNotSupported,
                   "{}: key {} is {}: {}, which is not computed here; --ignore-keys {} opens the "
                   "file without it",
                   metadata.file().path(), Shown(first.key), ValueText(*first.value),
                   first.row->text, names);
}

void WarnOfUnknown(const Metadata& metadata, const std::vector<std::string_view>& unknown) {
  if (unknown.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(unknown.size(), kNamesMax); ++i) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", formats::Quoted(unknown[i]));
  }
  if (unknown.size() > kNamesMax) names += ", ...";
  Log(LogLevel::kWarning,
      fmt::format(
          "{}: {} not known here and left out: {}", metadata.file().path(),
          unknown.size() == 1 ? "a key is" : fmt::format("{} are", Counted(unknown.size(), "key")),
          names));
}

}  // namespace

Status CheckUnreadKeys(const Metadata& metadata, const ModelSpec& spec,
                       std::span<const std::string> ignored) {
  KVANT_TRY(CheckIgnored(metadata, ignored));
  std::vector<Refused> refused;
  std::vector<std::string_view> unknown;
  const auto asked = metadata.asked();  // conditions ask for further keys
  for (const auto& [key, value] : metadata.file().metadata()) {
    const std::string_view name = CheckedName(metadata, key);
    const bool whole = name == key;
    const auto& read = whole ? metadata.asked_whole() : asked;
    if (name.empty() || read.contains(name)) continue;
    const auto is_ignored = [&, key = key](const std::string& given) {
      return Names(given, name, key);
    };
    if (std::ranges::any_of(ignored, is_ignored)) continue;
    const KeyRow* row = FindKeyRow(name);
    if (row == nullptr) {
      unknown.push_back(key);
    } else if (!row->is_idle({metadata, spec, value})) {
      refused.push_back({key, name, &value, row});
    }
  }
  if (!refused.empty()) return RefusedKeys(metadata, refused);
  WarnOfUnknown(metadata, unknown);
  return {};
}

}  // namespace kvant::arch
