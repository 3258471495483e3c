// Rows of floats into rows of blocks and back: a function per format and instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace kvant::cpu {

// Encodes rows of floats into rows of blocks, with the bytes of quant::FormatTraits::encode on
// every instruction set. Pointers may have any alignment; batches of at least 16 blocks are
// fastest.
struct EncodeTask {
  const quant::FormatTraits* format;
  const float* values;      // [rows][cols]
  const float* importance;  // [cols], a weight for each column of every row; null: all weigh alike
  int64_t rows;
  int64_t cols;       // multiple of format->block_values
  std::byte* blocks;  // [rows][format->row_bytes(cols)]
};

using EncodeFunction = void (*)(const EncodeTask& task);

// quant::FormatTraits::decode, with its arguments and bits.
using DecodeFunction = void (*)(const std::byte* blocks, float* values, int64_t n_values);

}  // namespace kvant::cpu
