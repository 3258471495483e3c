#include "engine/quantize/type_speed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "cpu/activations.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/table.h"
#include "quant/format.h"

namespace kvant::quantize {
namespace {

using quant::FormatTraits;

// A row, and how much memory a matrix of one format takes.
constexpr int64_t kCols = 4096;
constexpr size_t kMatrixBytes = size_t{96} << 20;
constexpr int kRepeats = 5;

// Values that have no structure, without a library's generator.
std::vector<float> SomeValues(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  return values;
}

class SpeedTest {
 public:
  SpeedTest(const cpu::KernelTable& kernels, int threads) : kernels_(kernels), pool_(threads) {}

  Status Prepare() {
    KVANT_ASSIGN(weights_, AlignedBuffer::Allocate(kMatrixBytes, "the measurement of types"));
    values_ = SomeValues(kCols);
    KVANT_ASSIGN(activations_, AlignedBuffer::Allocate(cpu::ActivationRowBytes(kCols),
                                                       "the activations of a measurement"));
    kernels_.quantize(values_.data(), kCols, cpu::ActivationRowAt(activations_.data(), kCols));
    return {};
  }

  // Seconds per weight.
  Result<double> Measure(const FormatTraits& format) {
    const cpu::MatMulKernel& kernel =
        kernels_.matmul[static_cast<size_t>(quant::FormatIndex(format))];
    const int64_t row_bytes = format.row_bytes(kCols);
    const int64_t rows = static_cast<int64_t>(kMatrixBytes) / row_bytes / 1024 * 1024;
    FillRows(format, rows);
    std::vector<float> out(static_cast<size_t>(rows));
    std::vector<AlignedBuffer> scratch;
    for (int thread = 0; thread < pool_.size(); ++thread) {
      KVANT_ASSIGN(AlignedBuffer buffer,
                   AlignedBuffer::Allocate(kernel.scratch_bytes(kCols), "a kernel's memory"));
      scratch.push_back(std::move(buffer));
    }
    const bool floats = kernel.activation == cpu::ActivationKind::kFloat32;
    std::vector<double> seconds;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      pool_.Run([&](const ThreadPool::Member& member) {
        const Range range = OwnedRange(rows, kernel.row_tile, member.index, member.count);
        cpu::MatMulTask task{};
        task.format = &format;
        task.weights = weights_.data();
        task.row_bytes = row_bytes;
        task.cols = kCols;
        task.row_begin = range.begin;
        task.row_end = range.end;
        task.activations =
            floats ? reinterpret_cast<const std::byte*>(values_.data()) : activations_.data();
        task.tokens = 1;
        task.out = out.data();
        task.out_stride = rows;
        task.store = cpu::Store::kSet;
        task.scratch = scratch[static_cast<size_t>(member.index)].bytes();
        kernel.run(task);
      });
      const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
      seconds.push_back(time.count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
    return seconds[kRepeats / 2] / static_cast<double>(rows * kCols);
  }

 private:
  // Fills the matrix with one row again and again: its contents do not change its time.
  void FillRows(const FormatTraits& format, int64_t rows) {
    const auto row_bytes = static_cast<size_t>(format.row_bytes(kCols));
    format.encode(values_.data(), nullptr, weights_.data(), kCols);
    for (int64_t row = 1; row < rows; ++row) {
      std::memcpy(weights_.data() + static_cast<size_t>(row) * row_bytes, weights_.data(),
                  row_bytes);
    }
  }

  const cpu::KernelTable& kernels_;
  ThreadPool pool_;
  AlignedBuffer weights_;
  AlignedBuffer activations_;
  std::vector<float> values_;
};

}  // namespace

Result<std::vector<double>> MeasureSpeeds(std::span<const FormatTraits* const> formats, int threads,
                                          const SpeedProgress& progress) {
  KVANT_ASSIGN(const cpu::KernelTable* kernels, cpu::ChooseKernelsFromEnvironment());
  SpeedTest test(*kernels, threads);
  KVANT_TRY(test.Prepare());
  std::vector<double> seconds;
  for (const FormatTraits* format : formats) {
    if (progress) KVANT_TRY(progress(*format));
    KVANT_ASSIGN(const double of_weight, test.Measure(*format));
    seconds.push_back(of_weight);
  }
  return seconds;
}

std::vector<const FormatTraits*> FastestFormats(std::span<const FormatTraits* const> formats,
                                                std::span<const double> seconds) {
  constexpr double kClearly = 0.97;
  std::vector<const FormatTraits*> fastest;
  for (size_t i = 0; i < formats.size(); ++i) {
    bool beaten = false;
    for (size_t j = 0; j < formats.size(); ++j) {
      beaten |= formats[j]->bits_per_value() > formats[i]->bits_per_value() &&
                seconds[j] < kClearly * seconds[i];
    }
    if (!beaten) fastest.push_back(formats[i]);
  }
  return fastest;
}

}  // namespace kvant::quantize
