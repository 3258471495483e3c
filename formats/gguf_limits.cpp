// The checked shape and size of a tensor.
#include "formats/gguf_limits.h"

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/quoted.h"

namespace kvant::formats {

Result<int64_t> TensorValues(std::string_view tensor, std::span<const int64_t> dims) {
  if (dims.size() > size_t{kGgufDimsMax}) {
    return MakeError(ErrorCode::kInvalid, "tensor {} has {} dimensions, expected at most {}",
                     Quoted(tensor), dims.size(), kGgufDimsMax);
  }
  int64_t values = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] < 1) {
      return MakeError(ErrorCode::kInvalid, "dimension {} of tensor {} is {}, expected at least 1",
                       d, Quoted(tensor), dims[d]);
    }
    if (__builtin_mul_overflow(values, dims[d], &values)) {
      return MakeError(ErrorCode::kInvalid,
                       "the dimensions of tensor {} multiply to more than 2^63 - 1 values",
                       Quoted(tensor));
    }
  }
  return values;
}

Result<int64_t> TensorBytes(std::string_view tensor, const BlockSize& block,
                            std::span<const int64_t> dims) {
  KVANT_ASSIGN(const int64_t values, TensorValues(tensor, dims));
  const int64_t columns = dims.empty() ? 1 : dims[0];
  if (columns % block.values != 0) {
    return MakeError(ErrorCode::kInvalid,
                     "tensor {} has rows of {} values, expected a multiple of {} for type {}",
                     Quoted(tensor), columns, block.values, block.type);
  }
  int64_t bytes = 0;
  int64_t heads = 0;
  if (__builtin_mul_overflow(values / block.values, block.bytes, &bytes) ||
      __builtin_mul_overflow(values / columns, block.row_head_bytes, &heads) ||
      __builtin_add_overflow(bytes, heads, &bytes)) {
    return MakeError(ErrorCode::kInvalid, "tensor {} has more than 2^63 - 1 bytes", Quoted(tensor));
  }
  return bytes;
}

}  // namespace kvant::formats
