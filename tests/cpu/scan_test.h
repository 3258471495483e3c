// Shared by the tests of scans: random inputs, and the rows of a task one by one.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "base/half.h"
#include "cpu/kernels/recurrence.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "tests/cpu/isa_test.h"

namespace kvant::cpu::test {

inline std::vector<float> RandomFloats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// The expected result of a scan, in double precision.
struct Scanned {
  std::vector<double> state;
  std::vector<double> out;
};

// The next row of a task.
inline void Advance(ScanTask& task) {
  task.keys += task.key_stride;
  task.queries += task.key_stride;
  task.values += task.value_stride;
  task.decays += task.gate_stride;
  if (task.gains != nullptr) task.gains += task.gate_stride;
  if (task.erasers != nullptr) task.erasers += task.eraser_stride;
  if (task.writers != nullptr) task.writers += task.eraser_stride;
  task.out += task.out_stride;
}

inline void Advance(SelectiveScanTask& task) {
  task.x += task.x_stride;
  task.steps += task.step_stride;
  task.b += task.bc_stride;
  task.c += task.bc_stride;
  task.out += task.out_stride;
}

inline void Run(const KernelTable& kernels, const ScanTask& task) { kernels.scan(task); }
inline void Run(const KernelTable& kernels, const SelectiveScanTask& task) {
  kernels.selective_scan(task);
}

template <class Task, class AfterRow>
void RunRowByRow(const KernelTable& kernels, Task task, const AfterRow& after_row) {
  const int64_t rows = std::exchange(task.rows, 1);
  for (int64_t row = 0; row < rows; ++row) {
    Run(kernels, task);
    after_row();
    Advance(task);
  }
}

// A state of F16 is that of F32, rounded after each row, and rows read it rounded.
template <class Task>
void ExpectRoundedRows(const KernelTable& kernels, Task task, const std::vector<float>& before) {
  std::vector<uint16_t> halves(before.size());
  std::vector<float> rounded = before;
  const auto round = [&rounded] {
    for (float& number : rounded) number = F16ToF32(F32ToF16(number));
  };
  round();
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = F32ToF16(before[i]);
  const auto out_size = static_cast<size_t>(task.rows * task.out_stride);
  std::vector<float> out(out_size);
  task.out = out.data();
  task.state = halves.data();
  task.state_type = KvType::kF16;
  Run(kernels, task);

  std::vector<float> expected(out_size);
  task.out = expected.data();
  task.state = rounded.data();
  task.state_type = KvType::kF32;
  RunRowByRow(kernels, task, round);
  ExpectSameBits(out, expected, "rows of a state of F16");
  std::vector<float> state;
  for (const uint16_t half : halves) state.push_back(F16ToF32(half));
  ExpectSameBits(state, rounded, "state of F16");
}

}  // namespace kvant::cpu::test
