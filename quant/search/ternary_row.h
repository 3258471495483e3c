// Fits a row of ternary values with one scale: quant/formats/iq1_bn.h, quant/formats/iq2_bn.h. The
// rules for weights and for values that are not finite are those of quant/search/scale_search.h.
//
// Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kvant::quant {

// value[i] = d * (codes[i] - 1); d is not negative.
struct TernaryRowFit {
  float d;
  std::vector<uint8_t> codes;
};
// greatest: what d is at most.
TernaryRowFit FitTernaryRow(const float* values, const float* importance, int64_t count,
                            float greatest);

template <class Format>
void EncodeTernaryRow(const float* values, const float* importance, std::byte* row, int64_t count) {
  const bool half = sizeof(typename Format::Head) == 2;
  const TernaryRowFit fit = FitTernaryRow(values, importance, count, half ? 65504.0f : 0x1p127f);
  const auto head = Format::Head::Of(fit.d);
  std::memcpy(row, &head, sizeof(head));
  row += sizeof(head);
  for (int64_t i = 0; i < count; i += Format::kBlockValues) {
    typename Format::Block block{};
    Format::Pack(fit.codes.data() + i, block);
    std::memcpy(row, &block, sizeof(block));
    row += sizeof(block);
  }
}

}  // namespace kvant::quant
