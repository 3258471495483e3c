#include "cpu/matmul_table.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <mutex>

#include <fmt/format.h>

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
  name += fmt::format(" {} {}", format.quantized() ? family.quantized : "float", family.isa);
  if (!special) name += " generic";
  const std::lock_guard lock(mutex);
  return names.emplace_back(std::move(name)).c_str();
}

// The kernel of a format; entry: null where the family has none of its own for it.
MatMulKernel BuildKernel(const quant::FormatTraits& format, const MatMulFamily& family,
                         const MatMulEntry* entry) {
  MatMulKernel kernel;
  kernel.name = KernelName(format, family, entry != nullptr);
  kernel.activation = format.quantized() ? ActivationKind::kInt8 : ActivationKind::kFloat32;
  kernel.row_tile = kRowTile;
  kernel.scratch_bytes =
      format.quantized() ? family.int8_scratch_bytes : family.float_scratch_bytes;
  kernel.run = entry != nullptr     ? entry->run
               : format.has_offsets ? family.generic_offsets
                                    : family.generic;
  kernel.generic = entry == nullptr;
  if (entry != nullptr) kernel.run_many = entry->run_many;
  kernel.takes_pairs = family.panels && format.quantized();
  kernel.finishes = kernel.takes_pairs || kernel.run_many != nullptr;
  return kernel;
}

const MatMulEntry* FindEntry(const MatMulFamily& family, const quant::FormatTraits& format) {
  for (const MatMulEntry& entry : family.special) {
    if (entry.type == format.type) return &entry;
  }
  return nullptr;
}

}  // namespace

std::vector<MatMulKernel> BuildMatMulTable(const MatMulFamily& family) {
  std::vector<MatMulKernel> table;
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    const MatMulEntry* entry = FindEntry(family, format);
    KVANT_CHECK(entry != nullptr || format.quantized());
    table.push_back(BuildKernel(format, family, entry));
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

std::vector<MatMulKernel> WithSpecialKernels(std::vector<MatMulKernel> table,
                                             const MatMulFamily& family) {
  for (const quant::FormatTraits& format : quant::AllFormats()) {
    const MatMulEntry* entry = FindEntry(family, format);
    if (entry == nullptr) continue;
    table[static_cast<size_t>(quant::FormatIndex(format))] = BuildKernel(format, family, entry);
  }
  return table;
}

}  // namespace kvant::cpu
