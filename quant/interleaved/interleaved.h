// Types of files in which several rows of a matrix lie interleaved: ik_llama.cpp's _R4, _R8 and
// _R16. Such a tensor is unpacked into rows of a plain format that has the same values.
//
// Type ids and layouts are facts of ik_llama.cpp (ggml.h, ggml-common.h and the repack_ functions
// of iqk_quantize.cpp, August 2026). IQ1_M_R4 is not here: no other format has its values, whose
// scales of 4 bits may be even.
//
// Thread-safety: everything is constant or pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace kvant::quant {

struct InterleavedType {
  uint32_t id;
  const char* name;
  const char* plain;  // the format that it is unpacked into
  int rows;           // so many rows are interleaved: 4, 8 or 16
  int head_bytes;     // of each row
  int block_values;
  int block_bytes;  // of each row
  // `rows` rows of `cols` values, interleaved, into as many plain rows.
  void (*unpack)(const std::byte* from, int64_t cols, std::byte* to);

  const FormatTraits& format() const { return *FindFormat(plain); }
  // Bytes of each row; cols must be a multiple of block_values, and of the plain format's.
  int64_t row_bytes(int64_t cols) const { return head_bytes + cols / block_values * block_bytes; }
};

// The type with this id, or null.
const InterleavedType* FindInterleavedType(uint32_t id);

}  // namespace kvant::quant
