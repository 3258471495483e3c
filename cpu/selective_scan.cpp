#include "cpu/selective_scan.h"

#include <string_view>

#include "base/check.h"
#include "cpu/avx2/selective_scan.h"
#include "cpu/avx512vnni/selective_scan.h"
#include "cpu/neon/selective_scan.h"
#include "cpu/scalar/selective_scan.h"

namespace kvant::cpu {

SelectiveScanFunction SelectiveScanOf(const KernelTable& kernels) {
  struct Row {
    std::string_view isa;
    SelectiveScanFunction function;
  };
  const Row rows[] = {
      {"amx", avx512vnni::kSelectiveScan}, {"avx512vnni", avx512vnni::kSelectiveScan},
      {"avxvnni", avx2::kSelectiveScan},   {"avx2", avx2::kSelectiveScan},
      {"i8mm", neon::kSelectiveScan},      {"neon", neon::kSelectiveScan},
      {"scalar", scalar::SelectiveScan},
  };
  // Tables that only tests have are named after these.
  for (const Row& row : rows) {
    if (std::string_view(kernels.isa).starts_with(row.isa)) return row.function;
  }
  KVANT_CHECK(false);
  return nullptr;
}

}  // namespace kvant::cpu
