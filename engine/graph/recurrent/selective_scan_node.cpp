// The scan of Mamba 1, and the softplus that makes its steps.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/recurrence.h"
#include "cpu/kernels/table.h"
#include "cpu/kv_format_list.h"
#include "engine/graph/recurrent/part_states.h"
#include "engine/graph/recurrent/recurrent_nodes.h"

namespace kvant::graph {
namespace {

// torch takes this limit, too: beyond it the function is x to the last bit.
constexpr float kStepLinear = 20.0f;

class SoftplusNode final : public Node {
 public:
  SoftplusNode(std::string name, ValueId values, int64_t cols)
      : Node(std::move(name), {values}, {values}), values_(values), cols_(cols) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t pieces = (cols_ + kPiece - 1) / kPiece;
    const Range range = OwnedRange(pass.RowCount(values_) * pieces, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      const int64_t begin = task % pieces * kPiece;
      float* values = pass.FloatRow(values_, task / pieces);
      for (int64_t i = begin; i < std::min(begin + kPiece, cols_); ++i) {
        values[i] = values[i] > kStepLinear ? values[i] : std::log1p(std::exp(values[i]));
      }
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kValuesPerSoftplus * cols_);
  }
  int64_t UnitsOf(const PassShape& pass) const override {
    return pass.rows[rows()] * ((cols_ + kPiece - 1) / kPiece);
  }

  std::string Describe() const override { return fmt::format("softplus [{}]", cols_); }

 private:
  static constexpr int64_t kPiece = 256;
  // One softplus takes as long as norming this many values.
  static constexpr int64_t kValuesPerSoftplus = 64;

  ValueId values_;
  int64_t cols_;
};

class SelectiveScanNode final : public Node {
 public:
  SelectiveScanNode(const cpu::KernelTable& kernels, std::string name, const SelectiveScan& scan,
                    StateSlice state, const SelectiveScanValues& values)
      : Node(std::move(name), {values.x, values.steps, values.parameters}, {values.out}),
        kernels_(kernels),
        scan_(scan),
        state_(state),
        values_(values),
        rates_(static_cast<size_t>(scan.state_floats())) {
    KVANT_CHECK(std::ssize(scan.rates) == scan.cols * scan.depth);
    for (int64_t col = 0; col < scan.cols; ++col) {
      const int64_t panel = col / cpu::kScanColumns * scan.panel_floats();
      for (int64_t i = 0; i < scan.depth; ++i) {
        const int64_t place = panel + i * cpu::kScanColumns + col % cpu::kScanColumns;
        rates_[static_cast<size_t>(place)] = scan.rates[static_cast<size_t>(col * scan.depth + i)];
      }
    }
  }

  // A task is some columns, in all rows of a part.
  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t panels = scan_.panels();
    const Range range = OwnedRange(CountParts(pass) * panels, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      RunPanel(pass, member, PartStatesOf(pass, state_, task / panels), task % panels);
    }
    KeepTails(pass, state_, tail_offset(), member, [&](int64_t row, float* kept) {
      kept = std::copy_n(pass.FloatRow(values_.x, row), scan_.cols, kept);
      kept = std::copy_n(pass.FloatRow(values_.steps, row), scan_.cols, kept);
      std::copy_n(pass.FloatRow(values_.parameters, row) + scan_.b, scan_.depth, kept);
    });
  }

  int64_t UnitsOf(const PassShape& pass) const override {
    return std::ssize(pass.parts) * scan_.panels();
  }
  // x, steps and b: all but c.
  int64_t TailFloats() const override { return 2 * scan_.cols + scan_.depth; }

  void ScanAgain(const PassContext& pass, const TailRange& range,
                 const ThreadPool::Member& member) const override {
    const PartStates part = PartStatesOf(pass, state_, 0);
    const Range panels = OwnedRange(scan_.panels(), 1, member.index, member.count);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      void* state = ScanPanels(part, scan_.panel_floats()).Begin(panel, {});
      for (int64_t position = range.begin; position < range.end; ++position) {
        ScanRowAgain(panel, range.tail.Row(position) + tail_offset(), state, part.element);
      }
    }
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    return limits.kv_cache ? 0 : static_cast<size_t>(scan_.panel_floats()) * sizeof(float);
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kValuesPerNumber * scan_.state_floats());
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    work.cache_bytes += pass.ScanBytes(scan_.state_floats());
    work.float_macs += kProducts * static_cast<double>(pass.rows[RowSpace::kPass]) *
                       static_cast<double>(scan_.depth * scan_.cols);
  }

  std::string Describe() const override {
    return fmt::format("selective scan {} [{} x {}]", kernels_.isa, scan_.depth, scan_.cols);
  }

 private:
  // The exponential takes most of the time.
  static constexpr int64_t kValuesPerNumber = 4;
  static constexpr double kProducts = 12;

  // The scan of a row that a log has kept. What it gives for c is of no interest.
  void ScanRowAgain(int64_t panel, const float* kept, void* state, KvType element) const {
    const int64_t col = panel * cpu::kScanColumns;
    const float* b = kept + 2 * scan_.cols;
    std::array<float, cpu::kScanColumns> unused;
    kernels_.selective_scan({.rows = 1,
                             .depth = scan_.depth,
                             .cols = std::min(cpu::kScanColumns, scan_.cols - col),
                             .x = kept + col,
                             .x_stride = 0,
                             .steps = kept + scan_.cols + col,
                             .step_stride = 0,
                             .b = b,
                             .c = b,
                             .bc_stride = 0,
                             .rates = rates_.data() + panel * scan_.panel_floats(),
                             .skips = scan_.skips.data() + col,
                             .state = state,
                             .out = unused.data(),
                             .out_stride = 0,
                             .state_type = element});
  }

  void RunPanel(const PassContext& pass, const ThreadPool::Member& member, const PartStates& part,
                int64_t panel) const {
    const int64_t col = panel * cpu::kScanColumns;
    void* state = ScanPanels(part, scan_.panel_floats()).Begin(panel, pass.Scratch(member));
    const float* parameters = pass.FloatRow(values_.parameters, part.first_row);
    kernels_.selective_scan({.rows = part.rows,
                             .depth = scan_.depth,
                             .cols = std::min(cpu::kScanColumns, scan_.cols - col),
                             .x = pass.FloatRow(values_.x, part.first_row) + col,
                             .x_stride = pass.RowFloats(values_.x),
                             .steps = pass.FloatRow(values_.steps, part.first_row) + col,
                             .step_stride = pass.RowFloats(values_.steps),
                             .b = parameters + scan_.b,
                             .c = parameters + scan_.c,
                             .bc_stride = pass.RowFloats(values_.parameters),
                             .rates = rates_.data() + panel * scan_.panel_floats(),
                             .skips = scan_.skips.data() + col,
                             .state = state,
                             .out = pass.FloatRow(values_.out, part.first_row) + col,
                             .out_stride = pass.RowFloats(values_.out),
                             .state_type = part.element});
  }

  const cpu::KernelTable& kernels_;
  SelectiveScan scan_;
  StateSlice state_;
  SelectiveScanValues values_;
  WeightVector rates_;  // [panels][depth][kScanColumns]
};

}  // namespace

std::unique_ptr<Node> MakeSoftplus(std::string name, ValueId values, int64_t cols) {
  return std::make_unique<SoftplusNode>(std::move(name), values, cols);
}

std::unique_ptr<Node> MakeSelectiveScan(const cpu::KernelTable& kernels, std::string name,
                                        const SelectiveScan& scan, StateSlice state,
                                        const SelectiveScanValues& values) {
  return std::make_unique<SelectiveScanNode>(kernels, std::move(name), scan, state, values);
}

}  // namespace kvant::graph
