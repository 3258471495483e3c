// Finds weights that are not finite: NaN or infinities, whatever the tensor's format. A model that
// holds one answers nothing but NaN, and a quantizer would spread it over a whole block.
//
// Thread-safety: pure functions that use the team given to them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "formats/gguf.h"

namespace kvant::formats {

// The position of the first NaN or infinity, or -1.
int64_t FirstNonFinite(std::span<const float> values);

// "NaN", "infinity" or "-infinity".
std::string_view NonFiniteName(float value);

// The values of a tensor that are not finite; none if count is 0.
struct NonFinite {
  int64_t count = 0;
  int64_t first = 0;  // index of the first, in file order: row * dims[0] + column
  float value = 0;    // what it is
};

// Decodes the tensor piece by piece; kvant must be able to read its type.
NonFinite FindNonFinite(const GgufTensor& tensor, ThreadPool& pool);

// One line for such a tensor: "tensor blk.0.attn_q.weight: 2 of 4096 values are not finite, the
// first is NaN at row 3, column 17". Rows and columns count from 0.
std::string DescribeNonFinite(const GgufTensor& tensor, const NonFinite& found);

struct TensorFinding {
  const GgufTensor* tensor = nullptr;
  NonFinite values;
};

// All tensors of a file that hold values that are not finite, in file order; tensors of a type that
// kvant cannot read are passed over. `progress` is called before each tensor; an error ends the
// work and is returned.
using CheckProgress = std::function<Status(const GgufTensor& next, uint64_t bytes_done)>;
Result<std::vector<TensorFinding>> CheckTensors(const GgufFile& file, ThreadPool& pool,
                                                const CheckProgress& progress);

}  // namespace kvant::formats
