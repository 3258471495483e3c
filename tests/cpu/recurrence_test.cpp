// The kernels of recurrent layers against formulas in double precision, and against the reference
// instruction set bit by bit.
#include <algorithm>
#include <cmath>

#include "cpu/kernels/recurrence.h"
#include "cpu/kernels/table.h"
#include "tests/cpu/isa_test.h"
#include "tests/cpu/scan_test.h"

namespace kvant::cpu::test {
namespace {

class Recurrence : public IsaTest {};
KVANT_FOR_EACH_ISA(Recurrence);

TEST_P(Recurrence, AConvolutionIsASumOverTheLastRows) {
  for (const int64_t cols : {1, 7, 16, 33, 512}) {
    for (const int64_t taps : {2, 3, 4, 7}) {
      const std::vector<float> in = RandomFloats(taps * cols, 1);
      const std::vector<float> weights = RandomFloats(taps * cols, 2);
      const std::vector<float> bias = RandomFloats(cols, 3);
      std::vector<const float*> rows;
      for (int64_t tap = 0; tap < taps; ++tap) rows.push_back(in.data() + tap * cols);
      for (const bool with_bias : {false, true}) {
        const GuardedArray<float> out(static_cast<size_t>(cols));
        ConvTask task = {.rows = rows.data(),
                         .weights = weights.data(),
                         .weight_stride = cols,
                         .bias = with_bias ? bias.data() : nullptr,
                         .taps = taps,
                         .cols = cols,
                         .out = out.data()};
        kernels().causal_conv(task);
        for (int64_t c = 0; c < cols; ++c) {
          double expected = with_bias ? double{bias[static_cast<size_t>(c)]} : 0.0;
          double size = std::abs(expected);
          for (int64_t tap = 0; tap < taps; ++tap) {
            const size_t i = static_cast<size_t>(tap * cols + c);
            expected += double{weights[i]} * double{in[i]};
            size += std::abs(double{weights[i]} * double{in[i]});
          }
          // A rounding for each term.
          ASSERT_NEAR(double{out[static_cast<size_t>(c)]}, expected,
                      static_cast<double>(taps) * 0x1p-23 * size);
        }
        std::vector<float> reference_out(static_cast<size_t>(cols));
        task.out = reference_out.data();
        reference().causal_conv(task);
        ExpectSameBits(out.ToVector(), reference_out, "causal_conv");
      }
    }
  }
}

TEST_P(Recurrence, AGateIsTheSigmoid) {
  const std::vector<float> gates = RandomFloats(100, 1);
  const std::vector<float> x = RandomFloats(100, 2);
  for (const int64_t cols : {1, 15, 16, 100}) {
    const GuardedArray<float> out(static_cast<size_t>(cols));
    kernels().sigmoid_gate(gates.data(), x.data(), cols, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const double expected = double{x[i]} / (1.0 + std::exp(-double{gates[i]}));
      // 2 ulp of the exponential, then addition and division.
      ASSERT_NEAR(double{out[i]}, expected, 6 * 0x1p-23 * std::abs(expected));
    }
    std::vector<float> reference_out(out.size());
    reference().sigmoid_gate(gates.data(), x.data(), cols, reference_out.data());
    ExpectSameBits(out.ToVector(), reference_out, "sigmoid_gate");
  }
}

Scanned ScanInDouble(const ScanTask& task, const std::vector<float>& before) {
  Scanned result;
  result.state.assign(before.begin(), before.end());
  for (int64_t t = 0; t < task.rows; ++t) {
    const double decay = double{task.decays[t * task.gate_stride]};
    const double gain = double{task.gains[t * task.gate_stride]};
    for (int64_t c = 0; c < task.cols; ++c) {
      const auto state = [&](int64_t i) -> double& {
        return result.state[static_cast<size_t>(i * kScanColumns + c)];
      };
      const float* key = task.keys + t * task.key_stride;
      const float* query = task.queries + t * task.key_stride;
      double added = double{task.values[t * task.value_stride + c]};
      for (int64_t i = 0; i < task.depth; ++i) state(i) *= decay;
      for (int64_t i = 0; i < task.depth && task.rule == ScanRule::kDelta; ++i) {
        added -= double{key[i]} * state(i);
      }
      double out = 0;
      for (int64_t i = 0; i < task.depth; ++i) {
        state(i) += double{key[i]} * gain * added;
        out += double{query[i]} * state(i);
      }
      result.out.push_back(out);
    }
  }
  return result;
}

TEST_P(Recurrence, AScanGoesRowByRow) {
  for (const ScanRule rule : {ScanRule::kAdd, ScanRule::kDelta}) {
    for (const int64_t depth : {1, 5, 16, 128}) {
      for (const int64_t cols : {1, 5, 8, 13, 16}) {
        constexpr int64_t kRows = 9;
        std::vector<float> keys = RandomFloats(kRows * depth, 1);
        for (float& key : keys) key /= std::sqrt(static_cast<float>(depth));
        const std::vector<float> queries = RandomFloats(kRows * depth, 2);
        const std::vector<float> values = RandomFloats(kRows * 20, 3);
        std::vector<float> gates = RandomFloats(2 * kRows, 4);
        for (float& gate : gates) gate = 1.0f / (1.0f + std::exp(gate));
        std::vector<float> before = RandomFloats(depth * kScanColumns, 5);
        for (size_t i = 0; i < before.size(); ++i) {
          if (static_cast<int64_t>(i) % kScanColumns >= cols) before[i] = 0.0f;
        }
        std::vector<float> state = before;
        const GuardedArray<float> out(static_cast<size_t>(kRows * cols));
        ScanTask task = {.rule = rule,
                         .rows = kRows,
                         .depth = depth,
                         .cols = cols,
                         .keys = keys.data(),
                         .queries = queries.data(),
                         .key_stride = depth,
                         .values = values.data(),
                         .value_stride = 20,
                         .decays = gates.data(),
                         .gains = gates.data() + 1,
                         .gate_stride = 2,
                         .state = state.data(),
                         .out = out.data(),
                         .out_stride = cols};
        kernels().scan(task);
        const Scanned expected = ScanInDouble(task, before);
        // Sums of `depth` terms of some units in each of the rows.
        const double tolerance = 2e-6 * static_cast<double>(depth + 8);
        for (size_t i = 0; i < expected.out.size(); ++i) {
          ASSERT_NEAR(double{out[i]}, expected.out[i], tolerance) << depth << " x " << cols;
        }
        for (size_t i = 0; i < state.size(); ++i) {
          ASSERT_NEAR(double{state[i]}, expected.state[i], tolerance) << depth << " x " << cols;
        }

        std::vector<float> reference_state = before;
        std::vector<float> reference_out(out.size());
        task.state = reference_state.data();
        task.out = reference_out.data();
        reference().scan(task);
        ExpectSameBits(out.ToVector(), reference_out, "scan");
        ExpectSameBits(state, reference_state, "state");

        // Rows by themselves give the same bits.
        std::vector<float> pieces_state = before;
        std::vector<float> pieces_out(out.size());
        task.state = pieces_state.data();
        task.out = pieces_out.data();
        RunRowByRow(kernels(), task, [] {});
        ExpectSameBits(out.ToVector(), pieces_out, "rows");
        ExpectSameBits(state, pieces_state, "state of rows");
        ExpectRoundedRows(kernels(), task, before);
      }
    }
  }
}

// The rules of RWKV, computed in double precision.
Scanned WkvInDouble(const ScanTask& task, const std::vector<float>& before) {
  Scanned result;
  result.state.assign(before.begin(), before.end());
  for (int64_t t = 0; t < task.rows; ++t) {
    const auto of_row = [t](const float* first, int64_t stride, int64_t i) {
      return double{first[t * stride + i]};
    };
    for (int64_t c = 0; c < task.cols; ++c) {
      const double value = of_row(task.values, task.value_stride, c);
      const auto state = [&](int64_t i) -> double& {
        return result.state[static_cast<size_t>(i * kScanColumns + c)];
      };
      double known = 0;
      for (int64_t i = 0; i < task.depth && task.rule == ScanRule::kWkv7; ++i) {
        known += of_row(task.erasers, task.eraser_stride, i) * state(i);
      }
      double out = 0;
      for (int64_t i = 0; i < task.depth; ++i) {
        const double added = of_row(task.keys, task.key_stride, i) * value;
        const double query = of_row(task.queries, task.key_stride, i);
        if (task.rule == ScanRule::kWkv6) {
          out += query * (state(i) + double{task.bonus[i]} * added);
        }
        state(i) = of_row(task.decays, task.gate_stride, i) * state(i) + added;
        if (task.rule == ScanRule::kWkv7) {
          state(i) += of_row(task.writers, task.eraser_stride, i) * known;
          out += query * state(i);
        }
      }
      result.out.push_back(out);
    }
  }
  return result;
}

// A selective scan, computed in double precision.
Scanned SelectiveScanInDouble(const SelectiveScanTask& task, const std::vector<float>& before) {
  Scanned result;
  result.state.assign(before.begin(), before.end());
  for (int64_t t = 0; t < task.rows; ++t) {
    for (int64_t c = 0; c < task.cols; ++c) {
      const double x = double{task.x[t * task.x_stride + c]};
      const double step = double{task.steps[t * task.step_stride + c]};
      double out = double{task.skips[c]} * x;
      for (int64_t i = 0; i < task.depth; ++i) {
        double& state = result.state[static_cast<size_t>(i * kScanColumns + c)];
        state = std::exp(step * double{task.rates[i * kScanColumns + c]}) * state +
                double{task.b[t * task.bc_stride + i]} * step * x;
        out += double{task.c[t * task.bc_stride + i]} * state;
      }
      result.out.push_back(out);
    }
  }
  return result;
}

TEST_P(Recurrence, AScanOfRwkvGoesRowByRow) {
  constexpr int64_t kRows = 7;
  for (const ScanRule rule : {ScanRule::kWkv6, ScanRule::kWkv7}) {
    for (const int64_t depth : {1, 5, 40, 64}) {
      for (const int64_t cols : {1, 8, 13, 16}) {
        const std::vector<float> keys = RandomFloats(kRows * depth, 1);
        const std::vector<float> queries = RandomFloats(kRows * depth, 2);
        const std::vector<float> values = RandomFloats(kRows * 20, 3);
        std::vector<float> decays = RandomFloats(kRows * depth, 4);
        for (float& decay : decays) decay = 1.0f / (1.0f + std::exp(decay));
        const std::vector<float> bonus = RandomFloats(depth, 5);
        std::vector<float> erasers = RandomFloats(2 * kRows * depth, 6);
        for (float& eraser : erasers) eraser /= std::sqrt(static_cast<float>(depth));
        std::vector<float> before = RandomFloats(depth * kScanColumns, 7);
        for (size_t i = 0; i < before.size(); ++i) {
          if (static_cast<int64_t>(i) % kScanColumns >= cols) before[i] = 0.0f;
        }
        std::vector<float> state = before;
        const GuardedArray<float> out(static_cast<size_t>(kRows * cols));
        ScanTask task = {.rule = rule,
                         .rows = kRows,
                         .depth = depth,
                         .cols = cols,
                         .keys = keys.data(),
                         .queries = queries.data(),
                         .key_stride = depth,
                         .values = values.data(),
                         .value_stride = 20,
                         .decays = decays.data(),
                         .gains = nullptr,
                         .gate_stride = depth,
                         .state = state.data(),
                         .out = out.data(),
                         .out_stride = cols,
                         .bonus = bonus.data(),
                         .erasers = erasers.data(),
                         .writers = erasers.data() + depth,
                         .eraser_stride = 2 * depth};
        kernels().scan(task);
        const Scanned expected = WkvInDouble(task, before);
        // Sums of `depth` terms of some units in each of the rows.
        const double tolerance = 1e-5 * static_cast<double>(depth + 8);
        for (size_t i = 0; i < expected.out.size(); ++i) {
          ASSERT_NEAR(double{out[i]}, expected.out[i], tolerance) << depth << " x " << cols;
        }
        for (size_t i = 0; i < state.size(); ++i) {
          ASSERT_NEAR(double{state[i]}, expected.state[i], tolerance) << depth << " x " << cols;
        }
        std::vector<float> reference_state = before;
        std::vector<float> reference_out(out.size());
        task.state = reference_state.data();
        task.out = reference_out.data();
        reference().scan(task);
        ExpectSameBits(out.ToVector(), reference_out, "scan");
        ExpectSameBits(state, reference_state, "state");
      }
    }
  }
}

TEST_P(Recurrence, ASelectiveScanHasAStepForEachColumn) {
  constexpr int64_t kRows = 9;
  for (const int64_t depth : {1, 5, 16, 64}) {
    for (const int64_t cols : {1, 5, 8, 13, 16}) {
      const std::vector<float> x = RandomFloats(kRows * 20, 1);
      std::vector<float> steps = RandomFloats(kRows * 18, 2);
      for (float& step : steps) step = std::log1p(std::exp(step));
      const std::vector<float> b = RandomFloats(kRows * (2 * depth + 3), 3);
      const std::vector<float> skips = RandomFloats(cols, 4);
      std::vector<float> rates = RandomFloats(depth * kScanColumns, 5);
      for (float& rate : rates) rate = -std::abs(rate);
      std::vector<float> before = RandomFloats(depth * kScanColumns, 6);
      for (size_t i = 0; i < before.size(); ++i) {
        if (static_cast<int64_t>(i) % kScanColumns >= cols) before[i] = rates[i] = 0.0f;
      }
      std::vector<float> state = before;
      const GuardedArray<float> out(static_cast<size_t>(kRows * cols));
      SelectiveScanTask task = {.rows = kRows,
                                .depth = depth,
                                .cols = cols,
                                .x = x.data(),
                                .x_stride = 20,
                                .steps = steps.data(),
                                .step_stride = 18,
                                .b = b.data(),
                                .c = b.data() + depth,
                                .bc_stride = 2 * depth + 3,
                                .rates = rates.data(),
                                .skips = skips.data(),
                                .state = state.data(),
                                .out = out.data(),
                                .out_stride = cols};
      kernels().selective_scan(task);
      const Scanned expected = SelectiveScanInDouble(task, before);
      // Sums of `depth` terms of some units in each of the rows.
      const double tolerance = 4e-6 * static_cast<double>(depth + 8);
      for (size_t i = 0; i < expected.out.size(); ++i) {
        ASSERT_NEAR(double{out[i]}, expected.out[i], tolerance) << depth << " x " << cols;
      }
      for (size_t i = 0; i < state.size(); ++i) {
        ASSERT_NEAR(double{state[i]}, expected.state[i], tolerance) << depth << " x " << cols;
      }

      std::vector<float> reference_state = before;
      std::vector<float> reference_out(out.size());
      task.state = reference_state.data();
      task.out = reference_out.data();
      reference().selective_scan(task);
      ExpectSameBits(out.ToVector(), reference_out, "selective_scan");
      ExpectSameBits(state, reference_state, "state");

      // Rows by themselves give the same bits.
      std::vector<float> pieces_state = before;
      std::vector<float> pieces_out(out.size());
      task.state = pieces_state.data();
      task.out = pieces_out.data();
      RunRowByRow(kernels(), task, [] {});
      ExpectSameBits(out.ToVector(), pieces_out, "rows");
      ExpectSameBits(state, pieces_state, "state of rows");
      ExpectRoundedRows(kernels(), task, before);
    }
  }
}

}  // namespace
}  // namespace kvant::cpu::test
