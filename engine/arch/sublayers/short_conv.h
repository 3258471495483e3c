// A gated convolution over the last rows (LFM2):
//   b, c, x = in_proj . input             three equal parts
//   out = out_proj . (c * conv(b * x))    conv: each column over the last `taps` rows
//
// In an encoder the convolution reaches to both sides: with an even number of taps one row more
// ahead than back.
//
// Tensors: shortconv.in_proj, shortconv.conv [taps x dim], shortconv.out_proj, with optional
// biases. It keeps the last taps - 1 rows of b * x as its state.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/arch/metadata.h"

namespace kvant::arch {

class SublayerBuilder;

enum class Reach : uint8_t { kBack, kBothSides };

struct ShortConv {
  int64_t taps = 0;
  Reach reach = Reach::kBack;

  Status AddNodes(SublayerBuilder& builder) const;
};

// Reads shortconv.l_cache.
Result<ShortConv> ReadShortConv(const Metadata& metadata);

}  // namespace kvant::arch
