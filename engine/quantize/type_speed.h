// How fast this machine multiplies one token with weights of each type: `kvant quantize --fastest`
// leaves types out by it. Thread-safety: one measurement at a time.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "quant/format.h"

namespace kvant::quantize {

// Called before each of the types; an error ends the work with it. May be empty.
using SpeedProgress = std::function<Status(const quant::FormatTraits&)>;

// Seconds per weight, medians over reads of a matrix too large for the caches, by `threads`
// threads.
Result<std::vector<double>> MeasureSpeeds(std::span<const quant::FormatTraits* const> formats,
                                          int threads, const SpeedProgress& progress = {});

// The formats for which it is worth reading fewer bytes: none with more bits per value takes
// clearly less time (3 %).
std::vector<const quant::FormatTraits*> FastestFormats(
    std::span<const quant::FormatTraits* const> formats, std::span<const double> seconds);

}  // namespace kvant::quantize
