// The head of a row, which some formats have: a factor of all scales of the row.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/block.h"
#include "quant/packed_word.h"

namespace kvant::quant {

struct FloatHead {
  PackedU32 bits;

  float value() const { return std::bit_cast<float>(bits.value()); }
  static FloatHead Of(float value) {
    FloatHead head{};
    head.bits.Set(std::bit_cast<uint32_t>(value));
    return head;
  }
};

struct HalfHead {
  PackedHalf half;

  float value() const { return half.value(); }
  static HalfHead Of(float value) { return {PackedHalf::Nearest(value)}; }
};

// Writes a row from the factor and the blocks of a fit.
template <class Format, class RowFit>
void PackRow(const RowFit& fit, std::byte* row) {
  const auto head = Format::Head::Of(fit.d);
  std::memcpy(row, &head, sizeof(head));
  row += sizeof(head);
  for (const auto& of_block : fit.blocks) {
    typename Format::Block block{};
    Format::Pack(of_block, block);
    std::memcpy(row, &block, sizeof(block));
    row += sizeof(block);
  }
}

}  // namespace kvant::quant
