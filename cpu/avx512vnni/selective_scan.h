// The scan of Mamba 1 for AVX-512.
#pragma once

#include "cpu/selective_scan.h"

namespace kvant::cpu::avx512vnni {

// Null where the folder is not compiled; to be called where its features are there.
extern const SelectiveScanFunction kSelectiveScan;

}  // namespace kvant::cpu::avx512vnni
