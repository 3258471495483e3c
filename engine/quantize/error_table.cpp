#include "engine/quantize/error_table.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <tuple>

#include "base/aligned_buffer.h"
#include "base/first_error.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/table.h"
#include "formats/check_tensors.h"
#include "formats/quoted.h"
#include "quant/format.h"

namespace kvant::quantize {
namespace {

using formats::GgufFile;
using formats::GgufTensor;
using formats::Quoted;
using quant::FormatTraits;

// Sampled rows of a matrix as floats.
struct Sample {
  std::vector<float> values;      // [rows][cols]
  std::vector<int64_t> matrices;  // of each row: which of the tensor's matrices it is of
  int64_t cols = 0;

  int64_t rows() const { return static_cast<int64_t>(matrices.size()); }
  const float* row(int64_t r) const { return values.data() + r * cols; }
};

size_t IndexOf(const FormatTraits& format) {
  return static_cast<size_t>(quant::FormatIndex(format));
}

Result<Sample> TakeSample(const GgufFile& file, const cpu::KernelTable& kernels,
                          const GgufTensor& tensor, const MeasureOptions& options) {
  Sample sample;
  sample.cols = tensor.dims[0];
  const int64_t wanted = std::max<int64_t>(1, options.sample_values / sample.cols);
  const int64_t rows = std::min(tensor.rows(), wanted);
  sample.values.resize(static_cast<size_t>(rows * sample.cols));
  for (int64_t r = 0; r < rows; ++r) {
    // The middles of `rows` equal pieces.
    const int64_t row = (2 * r + 1) * tensor.rows() / (2 * rows);
    kernels.decode[IndexOf(*tensor.format)](tensor.data + row * tensor.row_bytes(),
                                            sample.values.data() + r * sample.cols, sample.cols);
    sample.matrices.push_back(row / tensor.dims[1]);
  }
  const int64_t at = formats::FirstNonFinite(sample.values);
  if (at >= 0 && options.non_finite == NonFinite::kRefused) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: tensor {} holds {}: the model is broken "
                     "(--allow-nonfinite quantizes it all the same)",
                     file.path(), Quoted(tensor.name),
                     formats::NonFiniteName(sample.values[static_cast<size_t>(at)]));
  }
  return sample;
}

const float* ImportanceOf(const MeasuredMatrix& matrix, const Sample& sample, int64_t row) {
  if (matrix.importance.empty()) return nullptr;
  return matrix.importance.data() + sample.matrices[static_cast<size_t>(row)] * sample.cols;
}

// sum w (x - y)^2 / sum w x^2
double RelativeError(const MeasuredMatrix& matrix, const Sample& sample,
                     const cpu::KernelTable& kernels, const FormatTraits& format) {
  std::vector<std::byte> blocks(static_cast<size_t>(format.row_bytes(sample.cols)));
  std::vector<float> decoded(static_cast<size_t>(sample.cols));
  double noise = 0;
  double signal = 0;
  for (int64_t r = 0; r < sample.rows(); ++r) {
    const float* importance = ImportanceOf(matrix, sample, r);
    const float* values = sample.row(r);
    kernels.encode[IndexOf(format)]({.format = &format,
                                     .values = values,
                                     .importance = importance,
                                     .rows = 1,
                                     .cols = sample.cols,
                                     .blocks = blocks.data()});
    kernels.decode[IndexOf(format)](blocks.data(), decoded.data(), sample.cols);
    for (int64_t c = 0; c < sample.cols; ++c) {
      const double x = double{values[c]};
      if (!std::isfinite(x)) continue;
      const double difference = x - double{decoded[static_cast<size_t>(c)]};
      const double weight = importance == nullptr ? 1 : UsableWeight(importance[c]);
      noise += weight * difference * difference;
      signal += weight * x * x;
    }
  }
  if (signal <= 0) return 0;
  // A format that makes infinities of large values.
  constexpr double kHopeless = 1e30;
  return std::isfinite(noise / signal) ? noise / signal : kHopeless;
}

// Keeps, of formats with the same bytes, only the one of least error, the matrix's own before
// others: a format whose sample shows no error may still have one.
void KeepBest(MeasuredMatrix& matrix) {
  const auto order = [&](const MeasuredMatrix::Row& row) {
    return std::tuple(row.bytes, row.error, row.format != matrix.tensor->format);
  };
  auto& rows = matrix.rows;
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const auto& a, const auto& b) { return order(a) < order(b); });
  rows.erase(std::unique(rows.begin(), rows.end(),
                         [](const auto& a, const auto& b) { return a.bytes == b.bytes; }),
             rows.end());
}

void ListRows(std::span<const FormatTraits* const> formats, uint64_t alignment,
              MeasuredMatrix& matrix) {
  const GgufTensor& tensor = *matrix.tensor;
  for (const FormatTraits* format : formats) {
    if (tensor.dims[0] % format->block_values != 0) continue;
    const bool is_own = format == tensor.format;  // its bytes would be copied
    if (format->needs_importance && matrix.importance.empty() && !is_own) continue;
    const auto bytes = static_cast<uint64_t>(format->row_bytes(tensor.dims[0]) * tensor.rows());
    matrix.rows.push_back({format, bytes, RoundUp(bytes, alignment), 0});
  }
  std::stable_sort(matrix.rows.begin(), matrix.rows.end(),
                   [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
}

// `go_on` is asked before each format.
Status MeasureMatrix(const GgufFile& file, const MeasureOptions& options,
                     const cpu::KernelTable& kernels, const std::function<bool()>& go_on,
                     MeasuredMatrix& matrix) {
  KVANT_ASSIGN(const Sample sample, TakeSample(file, kernels, *matrix.tensor, options));
  for (MeasuredMatrix::Row& row : matrix.rows) {
    if (!go_on()) return {};
    if (row.format == matrix.tensor->format) continue;
    row.error = RelativeError(matrix, sample, kernels, *row.format);
  }
  KeepBest(matrix);
  return {};
}

}  // namespace

double UsableWeight(float importance) {
  return std::isfinite(importance) ? std::max(double{importance}, 0.0) : 0;
}

Status ListFormats(const GgufFile& file, const MeasureOptions& options,
                   std::span<MeasuredMatrix> matrices) {
  for (MeasuredMatrix& matrix : matrices) {
    ListRows(options.formats, file.alignment(), matrix);
    matrix.fallback = matrix.rows.empty();
    if (matrix.fallback) ListRows(options.fallbacks, file.alignment(), matrix);
    if (!matrix.rows.empty()) continue;
    return MakeError(ErrorCode::kInvalid,
                     "{}: tensor {} has rows of {} values{}, which none of the types can hold",
                     file.path(), Quoted(matrix.tensor->name), matrix.tensor->dims[0],
                     matrix.importance.empty() ? " and no importances" : "");
  }
  return {};
}

Status MeasureErrors(const GgufFile& file, const MeasureOptions& options,
                     std::span<MeasuredMatrix> matrices) {
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernelsFromEnvironment());
  std::atomic<size_t> next{0};
  FirstError error;
  ThreadPool pool(options.threads);
  pool.Run([&](const ThreadPool::Member& member) {
    while (error.none()) {
      const size_t i = next.fetch_add(1);
      if (i >= matrices.size()) return;
      const auto go_on = [&] {
        if (member.index == 0 && options.on_progress) {
          error.Set(options.on_progress(matrices[i].tensor->name, i, matrices.size()));
        }
        return error.none();
      };
      error.Set(MeasureMatrix(file, options, *kernels, go_on, matrices[i]));
    }
  });
  return error.Take();
}

}  // namespace kvant::quantize
