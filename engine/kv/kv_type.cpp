#include "kvant/kv_type.h"

#include <algorithm>
#include <array>

#include "base/result.h"
#include "cpu/kv_format_list.h"

namespace kvant {
namespace {

// In the list's order.
template <class... Formats>
constexpr std::array<KvType, sizeof...(Formats)> TypesOf(cpu::KvFormatTypes<Formats...> /*list*/) {
  return {Formats::kType...};
}
constexpr std::array kTypes = TypesOf(cpu::KvFormatList());

// Files and the C API have types as their numbers, and read none that the list lacks.
constexpr bool AreNumbered() {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<size_t>(kTypes[i]) != i) return false;
  }
  return true;
}
static_assert(AreNumbered());

}  // namespace

std::span<const KvType> AllKvTypes() { return kTypes; }

std::string_view KvTypeName(KvType type) { return cpu::KvTraitsOf(type).name; }

std::string KvTypeNames(std::span<const KvType> types) {
  std::string names;
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0) names += i + 1 < types.size() ? ", " : " or ";
    names += KvTypeName(types[i]);
  }
  return names;
}

Result<KvType> ParseKvType(std::string_view name) {
  const auto is_named = [name](KvType type) {
    const cpu::KvTraits& traits = cpu::KvTraitsOf(type);
    return !name.empty() && (name == traits.name || name == traits.other_name);
  };
  const auto* const found = std::ranges::find_if(kTypes, is_named);
  if (found != kTypes.end()) return *found;
  return MakeError(ErrorCode::kInvalid, "KV cache type: expected {}, found \"{}\"",
                   KvTypeNames(kTypes), name);
}

}  // namespace kvant
