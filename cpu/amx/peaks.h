// The peak loops of this folder's instruction set (cpu/peaks.h).
#pragma once

#include "cpu/peaks.h"

namespace kvant::cpu::amx {

const PeakLoops* Peaks();

}  // namespace kvant::cpu::amx
