// The norms that vectors of texts are divided by. Thread-safety: pure.
#pragma once

#include <span>

#include "base/result.h"

namespace kvant::embed {

// kInvalid for a number that is none of VectorOptions::normalize.
Status CheckNormalize(double kind);

// Divides the values by their norm; sums in double precision.
void Normalize(double kind, std::span<float> values);

}  // namespace kvant::embed
