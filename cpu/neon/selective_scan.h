// The scan of Mamba 1 for 64-bit Arm.
#pragma once

#include "cpu/selective_scan.h"

namespace kvant::cpu::neon {

// Null where the folder is not compiled; to be called where its features are there.
extern const SelectiveScanFunction kSelectiveScan;

}  // namespace kvant::cpu::neon
