#include "cpu/matmul_table.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <mutex>

#include "base/check.h"

namespace kvant::cpu {
namespace {

// Sixteen outputs fill a cache line: threads that split rows here never share one.
constexpr int kRowTile = 16;

const char* KernelName(const quant::FormatTraits& format, const MatMulFamily& family,
                       bool special) {
  static std::mutex mutex;
  static std::deque<std::string> names;
  std::string name = format.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  name += format.quantized() ? " int8 " : " float ";
  name += family.isa;
  if (!special) name += " generic";
  const std::lock_guard lock(mutex);
  return names.emplace_back(std::move(name)).c_str();
}

}  // namespace

std::vector<MatMulKernel> BuildMatMulTable(const MatMulFamily& family) {
  std::vector<MatMulKernel> table;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    const auto entry =
        std::find_if(family.special.begin(), family.special.end(),
                     [&](const MatMulEntry& candidate) { return candidate.type == format.type; });
    const bool special = entry != family.special.end();
    KVANT_CHECK(special || format.quantized());
    MatMulKernel kernel;
    kernel.name = KernelName(format, family, special);
    kernel.activation = format.quantized() ? ActivationKind::kInt8 : ActivationKind::kFloat32;
    kernel.row_tile = kRowTile;
    kernel.scratch_bytes =
        format.quantized() ? family.int8_scratch_bytes : family.float_scratch_bytes;
    kernel.run = special              ? entry->run
                 : format.has_offsets ? family.generic_offsets
                                      : family.generic;
    kernel.generic = !special;
    if (special) kernel.run_many = entry->run_many;
    table.push_back(kernel);
  }
  return table;
}

std::vector<MatMulKernel> WithKernelsOf(const std::vector<MatMulKernel>& other,
                                        std::vector<MatMulKernel> table) {
  KVANT_CHECK(other.size() == table.size());
  for (size_t i = 0; i < table.size(); ++i) {
    if (table[i].generic && !other[i].generic) table[i] = other[i];
  }
  return table;
}

}  // namespace kvant::cpu
