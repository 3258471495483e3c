// The limits of a GGUF file that the reader demands and the writer therefore checks before it
// writes one: lengths of names and the sizes of tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "quant/format.h"

namespace kvant::formats {

// The specification's limit for keys.
inline constexpr uint64_t kKeyBytesMax = 65535;

// The specification allows 64 bytes; converters of other engines write somewhat longer names. The
// bound keeps comparisons and messages cheap.
inline constexpr uint64_t kTensorNameBytesMax = 255;

// The layout of the values of a tensor: blocks of `values` values in `bytes` bytes.
struct BlockSize {
  std::string_view type;  // its name, for messages
  int64_t values = 0;
  int64_t bytes = 0;
  int64_t row_head_bytes = 0;  // before the blocks of each row
};

inline BlockSize BlockSizeOf(const quant::FormatTraits& format) {
  return {.type = format.name,
          .values = format.block_values,
          .bytes = format.block_bytes,
          .row_head_bytes = format.head_bytes};
}

// The number of a tensor's values. kInvalid, naming the tensor, if there are more than kGgufDimsMax
// dimensions, one is below 0, or there are more than 2^63 - 1 values.
Result<int64_t> TensorValues(std::string_view tensor, std::span<const int64_t> dims);

// The bytes of a tensor, at most 2^63 - 1. kInvalid as above, if there are more than 2^63 - 1
// bytes, or if rows (dims[0] values) are not whole blocks.
Result<int64_t> TensorBytes(std::string_view tensor, const BlockSize& block,
                            std::span<const int64_t> dims);

}  // namespace kvant::formats
