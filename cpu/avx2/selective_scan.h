// The scan of Mamba 1 for AVX2.
#pragma once

#include "cpu/selective_scan.h"

namespace kvant::cpu::avx2 {

// Null where the folder is not compiled; to be called where its features are there.
extern const SelectiveScanFunction kSelectiveScan;

}  // namespace kvant::cpu::avx2
