// The scan of Mamba 1 in plain code, the reference of the others.
#pragma once

#include "cpu/selective_scan.h"

namespace kvant::cpu::scalar {

void SelectiveScan(const SelectiveScanTask& task);

}  // namespace kvant::cpu::scalar
