// The kernels of Kimi delta attention against formulas in double precision, and against the
// reference instruction set bit by bit.
#include <cmath>

#include "cpu/kernels/recurrence.h"
#include "cpu/kernels/table.h"
#include "tests/cpu/isa_test.h"
#include "tests/cpu/scan_test.h"

namespace kvant::cpu::test {
namespace {

class KdaKernels : public IsaTest {};
KVANT_FOR_EACH_ISA(KdaKernels);

Scanned KdaInDouble(const ScanTask& task, const std::vector<float>& before) {
  Scanned result;
  result.state.assign(before.begin(), before.end());
  for (int64_t t = 0; t < task.rows; ++t) {
    const float* key = task.keys + t * task.key_stride;
    const float* query = task.queries + t * task.key_stride;
    const float* decays = task.decays + t * task.gate_stride;
    for (int64_t c = 0; c < task.cols; ++c) {
      double added = double{task.values[t * task.value_stride + c]};
      const auto state = [&](int64_t i) -> double& {
        return result.state[static_cast<size_t>(i * kScanColumns + c)];
      };
      for (int64_t i = 0; i < task.depth; ++i) {
        state(i) *= double{decays[i]};
        added -= double{key[i]} * state(i);
      }
      added *= double{task.gains[t * task.gate_stride]};
      double out = 0;
      for (int64_t i = 0; i < task.depth; ++i) {
        state(i) += double{key[i]} * added;
        out += double{query[i]} * state(i);
      }
      result.out.push_back(out);
    }
  }
  return result;
}

struct KdaCase {
  int64_t depth;
  int64_t cols;
};

void CheckScan(const KernelTable& kernels, const KernelTable& reference, const KdaCase& sizes) {
  constexpr int64_t kRows = 9;
  const auto [depth, cols] = sizes;
  std::vector<float> keys = RandomFloats(kRows * depth, 1);
  for (float& key : keys) key /= std::sqrt(static_cast<float>(depth));
  const std::vector<float> queries = RandomFloats(kRows * depth, 2);
  const std::vector<float> values = RandomFloats(kRows * 20, 3);
  std::vector<float> gates = RandomFloats(kRows * (depth + 1), 4);  // decays, then the gain
  for (float& gate : gates) gate = 1.0f / (1.0f + std::exp(gate));
  std::vector<float> before = RandomFloats(depth * kScanColumns, 5);
  for (size_t i = 0; i < before.size(); ++i) {
    if (static_cast<int64_t>(i) % kScanColumns >= cols) before[i] = 0.0f;
  }
  std::vector<float> state = before;
  const GuardedArray<float> out(static_cast<size_t>(kRows * cols));
  ScanTask task = {.rule = ScanRule::kKda,
                   .rows = kRows,
                   .depth = depth,
                   .cols = cols,
                   .keys = keys.data(),
                   .queries = queries.data(),
                   .key_stride = depth,
                   .values = values.data(),
                   .value_stride = 20,
                   .decays = gates.data(),
                   .gains = gates.data() + depth,
                   .gate_stride = depth + 1,
                   .state = state.data(),
                   .out = out.data(),
                   .out_stride = cols};
  kernels.scan(task);
  const Scanned expected = KdaInDouble(task, before);
  // Sums of `depth` terms of some units in each of the rows.
  const double tolerance = 2e-6 * static_cast<double>(depth + 8);
  for (size_t i = 0; i < expected.out.size(); ++i) {
    ASSERT_NEAR(double{out[i]}, expected.out[i], tolerance);
  }
  for (size_t i = 0; i < state.size(); ++i) {
    ASSERT_NEAR(double{state[i]}, expected.state[i], tolerance);
  }
  std::vector<float> reference_state = before;
  std::vector<float> reference_out(out.size());
  task.state = reference_state.data();
  task.out = reference_out.data();
  reference.scan(task);
  ExpectSameBits(out.ToVector(), reference_out, "scan");
  ExpectSameBits(state, reference_state, "state");

  // Rows by themselves give the same bits.
  std::vector<float> pieces_state = before;
  std::vector<float> pieces_out(out.size());
  task.state = pieces_state.data();
  task.out = pieces_out.data();
  RunRowByRow(kernels, task, [] {});
  ExpectSameBits(out.ToVector(), pieces_out, "rows");
  ExpectSameBits(state, pieces_state, "state of rows");
  ExpectRoundedRows(kernels, task, before);
}

TEST_P(KdaKernels, AScanGoesRowByRow) {
  for (const int64_t depth : {1, 5, 16, 62, 128}) {
    for (const int64_t cols : {1, 5, 8, 13, 16}) {
      SCOPED_TRACE(testing::Message() << depth << " x " << cols);
      CheckScan(kernels(), reference(), {depth, cols});
    }
  }
}

TEST_P(KdaKernels, DecaysOfKeysAreFreeOrBounded) {
  std::vector<float> in = RandomFloats(130, 1);
  // Far ends, where the logarithms are all but 0, the bound, or the number itself.
  for (size_t i = 0; i < 8; ++i) in[i] = i % 2 == 0 ? 40.0f + static_cast<float>(i) : -60.0f;
  const std::vector<float> biases = RandomFloats(130, 2);
  for (const float bound : {0.0f, -0.8f, -5.0f}) {
    for (const float size : {0.06f, 1.0f, 9.0f}) {
      const float rate = bound < 0 ? size : -size;
      for (const int64_t cols : {1, 15, 16, 130}) {
        const GuardedArray<float> out(static_cast<size_t>(cols));
        KeyDecayTask task = {.in = in.data(),
                             .biases = biases.data(),
                             .rate = rate,
                             .bound = bound,
                             .cols = cols,
                             .out = out.data()};
        kernels().key_decays(task);
        for (size_t i = 0; i < out.size(); ++i) {
          const double x = double{in[i]} + double{biases[i]};
          const double power = bound < 0 ? double{bound} / (1.0 + std::exp(-double{rate} * x))
                                         : double{rate} * std::log1p(std::exp(x));
          // A power within 2^-20 of itself and of x, which is rounded.
          const double error = std::exp2(-20) * (1.0 + std::abs(power) * (1.0 + std::abs(x)));
          ASSERT_NEAR(double{out[i]}, std::exp(power), error * std::exp(power) + 1e-37)
              << x << " " << rate << " " << bound;
        }
        std::vector<float> reference_out(out.size());
        task.out = reference_out.data();
        reference().key_decays(task);
        ExpectSameBits(out.ToVector(), reference_out, "key_decays");
      }
    }
  }
}

}  // namespace
}  // namespace kvant::cpu::test
