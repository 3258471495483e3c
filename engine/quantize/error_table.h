// The table behind `kvant quantize --size`: for each matrix of a model and each format that its
// rows can hold, the bytes that it would take and the error that it would leave.
//
// The error is relative: sum w (x - y)^2 / sum w x^2 over sampled rows, w the importances of the
// columns where there are some. With importances that are mean squares of the columns' inputs it is
// the ratio of noise to signal in what the matrix computes. Rows are sampled at equal distances, so
// the same file gives the same numbers, with any number of threads and on any instruction set.
//
// Thread-safety: calls are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/quantize/quantize.h"
#include "formats/gguf.h"
#include "quant/format.h"

namespace kvant::quantize {

struct MeasuredMatrix {
  const formats::GgufTensor* tensor = nullptr;
  std::vector<float> importance;  // [dims[3] * dims[2], dims[0]], or empty
  struct Row {
    const quant::FormatTraits* format = nullptr;
    uint64_t tensor_bytes = 0;
    uint64_t bytes = 0;  // the same, padded to the file's alignment
    double error = 0;
  };
  std::vector<Row> rows;  // by bytes
  bool fallback = false;  // whether the formats of the rows are fallbacks
};

struct MeasureOptions {
  // Formats that need importances are left out where a matrix has none.
  std::vector<const quant::FormatTraits*> formats;
  // Formats for matrices that none of `formats` can hold, because of their rows or for lack of
  // importances.
  std::vector<const quant::FormatTraits*> fallbacks = {};
  // Values of a matrix that are encoded in each format, about; whole rows, one at least.
  int64_t sample_values = int64_t{1} << 16;
  int threads = 1;
  NonFinite non_finite = NonFinite::kRefused;
  // Called now and then on the calling thread; an error ends the work with it. May be empty.
  std::function<Status(std::string_view tensor, size_t done, size_t count)> on_progress = {};
};

// The weight of a column with this importance: as in encoders, 0 where it is negative or not
// finite.
double UsableWeight(float importance);

// Fills the rows of matrices whose tensor and importance are set, but for the errors. kInvalid,
// naming the tensor, for a matrix that none of the formats can hold.
Status ListFormats(const formats::GgufFile& file, const MeasureOptions& options,
                   std::span<MeasuredMatrix> matrices);

// Measures the errors of the rows. Where rows have the same bytes, only the one with the least
// error stays. kInvalid, naming the tensor, for values that are NaN or infinite.
Status MeasureErrors(const formats::GgufFile& file, const MeasureOptions& options,
                     std::span<MeasuredMatrix> matrices);

}  // namespace kvant::quantize
