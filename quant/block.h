// The pieces that block formats are made of: a half-precision scale and fields of a few bits.
//
// Blocks lie in files at any address, so every member of a block is made of bytes: a block type has
// alignment 1 and can be copied from and to a file as it is. Multi-byte fields are little-endian on
// every host.
#pragma once

#include <cstdint>

#include "base/half.h"
#include "quant/format.h"

namespace kvant::quant {

// An IEEE binary16 number inside a block.
struct PackedHalf {
  uint8_t low;
  uint8_t high;

  uint16_t bits() const { return static_cast<uint16_t>(low | high << 8); }
  float value() const { return F16ToF32(bits()); }

  static PackedHalf FromBits(uint16_t bits) {
    return {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8)};
  }
  static PackedHalf Nearest(float value) { return FromBits(F32ToF16(value)); }
};
static_assert(sizeof(PackedHalf) == 2 && alignof(PackedHalf) == 1);

// An array of kWidth-bit fields in the order that all block formats share: runs of kRun bytes, in
// which field i of a run lies in byte i % kRun at bit (i / kRun) * kWidth. So the first kRun fields
// are the low bits of the run's bytes, the next kRun fields the bits above them.
//
//   BitPlane<4, 16>: byte b of a run = | field b + 16 | field b |
//   BitPlane<1, 1>:  plain bit order, bit i of the array = bit i % 8 of byte i / 8
template <int kWidth, int kRun>
struct BitPlane {
  static_assert(8 % kWidth == 0);
  static constexpr int kRunFields = kRun * (8 / kWidth);
  static constexpr int kMask = (1 << kWidth) - 1;

  static constexpr int Byte(int i) { return i / kRunFields * kRun + i % kRun; }
  static constexpr int Shift(int i) { return i % kRunFields / kRun * kWidth; }

  static int Get(const uint8_t* bytes, int i) { return bytes[Byte(i)] >> Shift(i) & kMask; }

  // Writes the first `count` fields, whole runs: field i is the low bits of (codes[i] + bias) >>
  // shift. Each byte of a run is made at once, which compilers turn into vector code.
  template <class Code>
  static void PutAll(uint8_t* bytes, const Code* codes, int count, int bias, int shift) {
    for (int begin = 0; begin < count; begin += kRunFields) {
      for (int b = 0; b < kRun; ++b) {
        int byte = 0;
        for (int k = 0; k < 8 / kWidth; ++k) {
          byte |= ((codes[begin + k * kRun + b] + bias) >> shift & kMask) << (k * kWidth);
        }
        bytes[begin / (8 / kWidth) + b] = static_cast<uint8_t>(byte);
      }
    }
  }

  // Sets a field of an array that was zero there; takes the low kWidth bits of `field`.
  static void Put(uint8_t* bytes, int i, int field) {
    bytes[Byte(i)] = static_cast<uint8_t>(bytes[Byte(i)] | (field & kMask) << Shift(i));
  }
};

// Gives the values [begin, begin + count) of a block one scale and offset; both arguments are
// multiples of kGroupValues.
inline void SetScale(IntegerBlock& out, int begin, int count, float scale, float offset = 0) {
  for (int group = begin / kGroupValues; group < (begin + count) / kGroupValues; ++group) {
    out.scales[group] = scale;
    out.offsets[group] = offset;
  }
}

}  // namespace kvant::quant
