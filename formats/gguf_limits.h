// What the reader demands of a GGUF file and the writer therefore checks before it writes one:
// lengths of names and the sizes of tensors.
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

// The bytes of a tensor, at most 2^63 - 1. kInvalid, naming the tensor, if there are more than
// kGgufDimsMax dimensions, one is below 1, the number of values or bytes exceeds 2^63 - 1, or rows
// (dims[0] values) are not whole blocks.
Result<int64_t> TensorBytes(std::string_view tensor, const quant::FormatTraits& format,
                            std::span<const int64_t> dims);

}  // namespace kvant::formats
