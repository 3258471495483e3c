#include "kvant/kv_type.h"

#include <array>

#include "base/result.h"
#include "cpu/kv_format_list.h"

namespace kvant {
namespace {

struct Row {
  cpu::KvElement type;
  std::string_view name;
  std::string_view other_name;  // accepted too; empty: none
};

constexpr std::array kRows = {
    Row{cpu::KvElement::kF32, "f32", ""},
    Row{cpu::KvElement::kF16, "f16", ""},
    Row{cpu::KvElement::kQ8, "q8", "q8_0"},
};

}  // namespace

std::string_view KvTypeName(cpu::KvElement type) {
  for (const Row& row : kRows) {
    if (row.type == type) return row.name;
  }
  return "";
}

Result<cpu::KvElement> ParseKvType(std::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name || (name == row.other_name && !name.empty())) return row.type;
  }
  return MakeError(ErrorCode::kInvalid, "KV cache type: expected f32, f16 or q8, found \"{}\"",
                   name);
}

}  // namespace kvant
