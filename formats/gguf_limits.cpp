// The checked shape and size of a tensor.
#include "formats/gguf_limits.h"

#include <algorithm>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/quoted.h"

namespace kvant::formats {

Result<int64_t> TensorValues(std::string_view tensor, std::span<const int64_t> dims) {
  if (dims.size() > size_t{kGgufDimsMax}) {
    return MakeError(ErrorCode::kInvalid, "tensor {} has {} dimensions, expected at most {}",
                     Quoted(tensor), dims.size(), kGgufDimsMax);
  }
  int64_t values = 1;  // without dimensions of 0
  bool empty = false;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 0) {
      return MakeError(ErrorCode::kInvalid, "dimension {} of tensor {} is {}, expected at least 0",
                       d, Quoted(tensor), dims[d]);
    }
    empty = empty || dims[d] == 0;
    if (__builtin_mul_overflow(values, std::max<int64_t>(dims[d], 1), &values)) {
      return MakeError(ErrorCode::kInvalid,
                       "the dimensions of tensor {} multiply to more than 2^63 - 1 values",
                       Quoted(tensor));
    }
  }
  return empty ? 0 : values;
}

Result<int64_t> TensorBytes(std::string_view tensor, const BlockSize& block,
                            std::span<const int64_t> dims) {
  KVANT_TRY(TensorValues(tensor, dims));
  const int64_t columns = dims.empty() ? 1 : dims[0];
  if (columns % block.values != 0) {
    return MakeError(ErrorCode::kInvalid,
                     "tensor {} has rows of {} values, expected a multiple of {} for type {}",
                     Quoted(tensor), columns, block.values, block.type);
  }
  int64_t rows = 1;
  for (size_t d = 1; d < dims.size(); ++d) rows *= dims[d];
  int64_t row_bytes = 0;  // of a tensor without rows, too
  int64_t bytes = 0;
  if (__builtin_mul_overflow(columns / block.values, block.bytes, &row_bytes) ||
      __builtin_add_overflow(row_bytes, block.row_head_bytes, &row_bytes) ||
      __builtin_mul_overflow(rows, row_bytes, &bytes)) {
    return MakeError(ErrorCode::kInvalid, "tensor {} has more than 2^63 - 1 bytes", Quoted(tensor));
  }
  return bytes;
}

}  // namespace kvant::formats
