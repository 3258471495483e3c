// Little-endian words inside a block, for formats whose fields cross byte borders. Alignment 1,
// like every member of a block.
#pragma once

#include <cstdint>

namespace kvant::quant {

struct PackedU16 {
  uint8_t bytes[2];

  uint32_t value() const { return bytes[0] | uint32_t{bytes[1]} << 8; }
  void Set(uint32_t value) {
    for (int i = 0; i < 2; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  }
};

struct PackedU32 {
  uint8_t bytes[4];

  uint32_t value() const {
    return bytes[0] | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 | uint32_t{bytes[3]} << 24;
  }
  void Set(uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
  }
};
static_assert(alignof(PackedU16) == 1 && alignof(PackedU32) == 1);

}  // namespace kvant::quant
