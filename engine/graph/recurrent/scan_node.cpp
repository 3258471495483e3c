// The scan of states that are matrices, and what comes before and after it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/table.h"
#include "engine/graph/recurrent/delta_norms.h"
#include "engine/graph/recurrent/part_states.h"
#include "engine/graph/recurrent/recurrent_nodes.h"
#include "engine/graph/rowwise/norm.h"

namespace kvant::graph {
namespace {

// torch takes this limit, too: beyond it the function is x to the last bit.
constexpr float kSoftplusLinear = 20.0f;

float Softplus(float x) { return x > kSoftplusLinear ? x : std::log1p(std::exp(x)); }

class DeltaGatesNode final : public Node {
 public:
  DeltaGatesNode(const cpu::KernelTable& kernels, std::string name, DeltaGates gates, ValueId in,
                 ValueId qkv, ValueId out)
      : Node(std::move(name), {in, qkv}, {out, qkv}),
        kernels_(kernels),
        gates_(std::move(gates)),
        in_(in),
        qkv_(qkv),
        out_(out),
        norms_(MakeDeltaNorms(gates_.key_dim)) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(out_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* head = pass.FloatRow(qkv_, row);
      for (int64_t i = 0; i < 2 * gates_.key_heads; ++i, head += gates_.key_dim) {
        const Norm& norm = i < gates_.key_heads ? norms_.query : norms_.key;
        ApplyNorm(kernels_, norm, 0, gates_.key_dim, head, head);
      }
      SetGates(pass.FloatRow(in_, row), pass.FloatRow(out_, row));
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 2 * gates_.key_heads * gates_.key_dim +
                                           kValuesPerGate * std::ssize(gates_.rates));
  }

  std::string Describe() const override {
    return fmt::format("lengths of {} heads, {} gates {}", 2 * gates_.key_heads,
                       gates_.rates.size(), kernels_.isa);
  }

 private:
  // The gates of a head take as long as norming this many values.
  static constexpr int64_t kValuesPerGate = 256;

  void SetGates(const float* in, float* out) const {
    const size_t heads = gates_.rates.size();
    for (size_t i = 0; i < heads; ++i) {
      const float step = Softplus(in[gates_.decay_columns[i]] + gates_.biases[i]);
      out[i] = std::exp(gates_.rates[i] * step);
      out[heads + i] = 1.0f / (1.0f + std::exp(-in[gates_.gain_columns[i]]));
    }
  }

  const cpu::KernelTable& kernels_;
  DeltaGates gates_;
  ValueId in_;
  ValueId qkv_;
  ValueId out_;
  DeltaNorms norms_;
};

class StepGatesNode final : public Node {
 public:
  StepGatesNode(std::string name, StepGates gates, ValueId in, ValueId out)
      : Node(std::move(name), {in}, {out}), gates_(std::move(gates)), in_(in), out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(out_), 1, member.index, member.count);
    const size_t heads = gates_.rates.size();
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* in = pass.FloatRow(in_, row) + gates_.first;
      float* out = pass.FloatRow(out_, row);
      for (size_t i = 0; i < heads; ++i) {
        const float step = Softplus(in[i] + gates_.biases[i]);
        out[i] = std::exp(gates_.rates[i] * step);
        out[heads + i] = step;
      }
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], kValuesPerStep * std::ssize(gates_.rates));
  }

  std::string Describe() const override { return fmt::format("{} steps", gates_.rates.size()); }

 private:
  // The step of a head takes as long as norming this many values.
  static constexpr int64_t kValuesPerStep = 256;

  StepGates gates_;
  ValueId in_;
  ValueId out_;
};

class ScanNode final : public Node {
 public:
  ScanNode(const cpu::KernelTable& kernels, std::string name, ScanShape shape, StateSlice state,
           ScanValues values)
      : Node(std::move(name), Reads(values), {values.out}),
        kernels_(kernels),
        shape_(std::move(shape)),
        state_(state),
        values_(values) {}

  // A task is some columns of a head, in all rows of a part.
  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t tasks = shape_.heads * shape_.panels();
    const Range range = OwnedRange(CountParts(pass) * tasks, 1, member.index, member.count);
    int64_t together = 0;
    for (int64_t task = range.begin; task < range.end; task += together) {
      const PartStates part = PartStatesOf(pass, state_, task / tasks);
      const int64_t panel = task % tasks;
      together = std::min({range.end - task, shape_.panels() - panel % shape_.panels(),
                           part.after == nullptr ? 1 : kPanelsTogether});
      RunPanels(pass, member, part, {panel, panel + together});
    }
    KeepTails(pass, state_, tail_offset(), member, [&](int64_t row, float* kept) {
      const auto copy = [&kept](const float* from, int64_t count) {
        kept = std::copy_n(from, count, kept);
      };
      copy(pass.FloatRow(values_.in, row) + shape_.keys, KeyFloats());
      copy(pass.FloatRow(values_.in, row) + shape_.values, shape_.heads * shape_.cols);
      copy(pass.FloatRow(values_.gates, row), GateFloats());
      if (EraserFloats() > 0) copy(pass.FloatRow(values_.erasers, row), EraserFloats());
    });
  }

  int64_t UnitsOf(const PassShape& pass) const override {
    return std::ssize(pass.parts) * shape_.heads * shape_.panels();
  }
  // Keys, values, gates, erasers: all but queries.
  int64_t TailFloats() const override {
    return KeyFloats() + shape_.heads * shape_.cols + GateFloats() + EraserFloats();
  }

  void ScanAgain(const PassContext& pass, const TailRange& range,
                 const ThreadPool::Member& member) const override {
    const PartStates part = PartStatesOf(pass, state_, 0);
    const Range panels = OwnedRange(shape_.heads * shape_.panels(), 1, member.index, member.count);
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      void* state = ScanPanels(part, shape_.panel_floats()).Begin(panel, {});
      for (int64_t position = range.begin; position < range.end; ++position) {
        ScanRowAgain(panel, range.tail.Row(position) + tail_offset(), state, part.element);
      }
    }
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    return limits.kv_cache ? 0 : static_cast<size_t>(shape_.panel_floats()) * sizeof(float);
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], shape_.heads * shape_.panels() * shape_.panel_floats());
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    work.cache_bytes += pass.ScanBytes(shape_.state_floats());
    const bool twice = shape_.rule != cpu::ScanRule::kAdd && shape_.rule != cpu::ScanRule::kWkv6;
    const double products = twice ? 4 : 3;
    work.float_macs += products * static_cast<double>(pass.rows[RowSpace::kPass]) *
                       static_cast<double>(shape_.heads * shape_.depth * shape_.cols);
  }

  std::string Describe() const override {
    return fmt::format("{} scan {} [{} x {} x {}]", RuleName(), kernels_.isa, shape_.heads,
                       shape_.depth, shape_.cols);
  }

 private:
  static std::vector<ValueId> Reads(const ScanValues& values) {
    std::vector<ValueId> reads = {values.in, values.gates};
    if (values.erasers != kNoValue) reads.push_back(values.erasers);
    return reads;
  }

  int64_t KeyFloats() const {
    return (*std::ranges::max_element(shape_.key_heads) + 1) * shape_.depth;
  }
  int64_t GateFloats() const { return shape_.decays() + (shape_.has_gains() ? shape_.heads : 0); }
  int64_t EraserFloats() const {
    return values_.erasers == kNoValue ? 0 : 2 * shape_.heads * shape_.depth;
  }

  const float* GainsOf(const float* gates, int64_t head) const {
    return shape_.has_gains() ? gates + shape_.decays() + head : nullptr;
  }

  // The scan of a row that a log has kept. What it gives for a query is of no interest.
  void ScanRowAgain(int64_t panel, const float* kept, void* state, KvType element) const {
    const int64_t head = panel / shape_.panels();
    const int64_t col = panel % shape_.panels() * cpu::kScanColumns;
    const float* keys = kept + shape_.key_heads[static_cast<size_t>(head)] * shape_.depth;
    const float* values = kept + KeyFloats();
    const float* gates = values + shape_.heads * shape_.cols;
    const float* erasers = gates + GateFloats();
    const bool of_keys = shape_.has_key_decays();
    std::array<float, cpu::kScanColumns> unused;
    cpu::ScanTask task = {.rule = shape_.rule,
                          .rows = 1,
                          .depth = shape_.depth,
                          .cols = std::min(cpu::kScanColumns, shape_.cols - col),
                          .keys = keys,
                          .queries = keys,
                          .key_stride = 0,
                          .values = values + head * shape_.cols + col,
                          .value_stride = 0,
                          .decays = gates + head * (of_keys ? shape_.depth : 1),
                          .gains = GainsOf(gates, head),
                          .gate_stride = 0,
                          .state = state,
                          .out = unused.data(),
                          .out_stride = 0,
                          .state_type = element};
    if (!shape_.bonus.empty()) task.bonus = shape_.bonus.data() + head * shape_.depth;
    if (EraserFloats() > 0) {
      task.erasers = erasers + head * shape_.depth;
      task.writers = task.erasers + shape_.heads * shape_.depth;
    }
    kernels_.scan(task);
  }

  std::string_view RuleName() const {
    switch (shape_.rule) {
      case cpu::ScanRule::kAdd: return "linear";
      case cpu::ScanRule::kDelta: return "delta";
      case cpu::ScanRule::kKda: return "kda";
      case cpu::ScanRule::kWkv6: return "wkv6";
      case cpu::ScanRule::kWkv7: return "wkv7";
    }
    return "";
  }

  // Panels of a head take turns, so that the rows that they read are in a cache. Without a state to
  // keep there is scratch for one panel.
  static constexpr int64_t kPanelsTogether = 8;
  static constexpr int64_t kRowsOfTurn = 16;

  void RunPanels(const PassContext& pass, const ThreadPool::Member& member, const PartStates& part,
                 const Range& panels) const {
    std::array<void*, kPanelsTogether> states = {};
    const ScanPanels all(part, shape_.panel_floats());
    for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
      states[static_cast<size_t>(panel - panels.begin)] = all.Begin(panel, pass.Scratch(member));
    }
    for (int64_t row = 0; row < part.rows; row += kRowsOfTurn) {
      const Range rows = {part.first_row + row,
                          part.first_row + std::min(row + kRowsOfTurn, part.rows)};
      for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
        void* state = states[static_cast<size_t>(panel - panels.begin)];
        RunPanel(pass, rows, panel, state, part.element);
      }
    }
  }

  void RunPanel(const PassContext& pass, const Range& rows, int64_t panel, void* state,
                KvType element) const {
    const int64_t head = panel / shape_.panels();
    const int64_t col = panel % shape_.panels() * cpu::kScanColumns;
    const int64_t keys = shape_.key_heads[static_cast<size_t>(head)] * shape_.depth;
    const float* in = pass.FloatRow(values_.in, rows.begin);
    const float* values = in + shape_.values + head * shape_.cols + col;
    const float* gates = pass.FloatRow(values_.gates, rows.begin);
    cpu::ScanTask task = {.rule = shape_.rule,
                          .rows = rows.end - rows.begin,
                          .depth = shape_.depth,
                          .cols = std::min(cpu::kScanColumns, shape_.cols - col),
                          .keys = in + shape_.keys + keys,
                          .queries = in + shape_.queries + keys,
                          .key_stride = pass.RowFloats(values_.in),
                          .values = values,
                          .value_stride = pass.RowFloats(values_.in),
                          .decays = gates + head * (shape_.has_key_decays() ? shape_.depth : 1),
                          .gains = GainsOf(gates, head),
                          .gate_stride = pass.RowFloats(values_.gates),
                          .state = state,
                          .out = pass.FloatRow(values_.out, rows.begin) + head * shape_.cols + col,
                          .out_stride = pass.RowFloats(values_.out),
                          .state_type = element};
    if (!shape_.bonus.empty()) task.bonus = shape_.bonus.data() + head * shape_.depth;
    if (values_.erasers != kNoValue) {
      task.erasers = pass.FloatRow(values_.erasers, rows.begin) + head * shape_.depth;
      task.writers = task.erasers + shape_.heads * shape_.depth;
      task.eraser_stride = pass.RowFloats(values_.erasers);
    }
    kernels_.scan(task);
    if (!shape_.skips.empty()) AddSkips(task, shape_.skips[static_cast<size_t>(head)]);
  }

  // Adds the values that go past the state.
  static void AddSkips(const cpu::ScanTask& task, float factor) {
    for (int64_t row = 0; row < task.rows; ++row) {
      const float* value = task.values + row * task.value_stride;
      float* out = task.out + row * task.out_stride;
      for (int64_t i = 0; i < task.cols; ++i) out[i] += factor * value[i];
    }
  }

  const cpu::KernelTable& kernels_;
  ScanShape shape_;
  StateSlice state_;
  ScanValues values_;
};

class GatedNormNode final : public Node {
 public:
  GatedNormNode(const cpu::KernelTable& kernels, std::string name, GatedNorm norm, ValueId in,
                ValueId gates, const Activations& out)
      : Node(std::move(name), {in, gates}, Writes(in, out)),
        kernels_(kernels),
        norm_(std::move(norm)),
        in_(in),
        gates_(gates),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(in_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* in = pass.FloatRow(in_, row);
      float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) : in;
      const float* gate = pass.FloatRow(gates_, row) + norm_.gate;
      const cpu::ActivationKernel& activation = kernels_.ForActivation(norm_.activation);
      if (norm_.order == GateOrder::kBeforeNorm) activation.multiply(gate, in, out_.cols, in);
      if (norm_.norm.weight.empty()) {
        if (out != in) std::memcpy(out, in, static_cast<size_t>(out_.cols) * sizeof(float));
      } else {
        ApplyPieces(in, out);
      }
      if (norm_.order == GateOrder::kAfterNorm) activation.multiply(gate, out, out_.cols, out);
      if (out_.int8 == kNoValue) continue;
      pass.Quantize(kernels_, out, out_.cols, {out_.int8, row, out_.cols, 0});
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 4 * out_.cols);
  }

  std::string Describe() const override {
    return fmt::format("{} x {} * {}{} {} [{}]", NormName(norm_.norm.kind), norm_.pieces,
                       kernels_.ForActivation(norm_.activation).name,
                       out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa, out_.cols);
  }

 private:
  static std::vector<ValueId> Writes(ValueId in, const Activations& out) {
    std::vector<ValueId> writes = out.ids();
    writes.push_back(in);
    return writes;
  }

  void ApplyPieces(const float* in, float* out) const {
    const int64_t cols = out_.cols / norm_.pieces;
    const bool shared = norm_.norm.cols() == cols;
    for (int64_t piece = 0; piece < norm_.pieces; ++piece) {
      ApplyNorm(kernels_, norm_.norm, shared ? 0 : piece * cols, cols, in + piece * cols,
                out + piece * cols);
    }
  }

  const cpu::KernelTable& kernels_;
  GatedNorm norm_;
  ValueId in_;
  ValueId gates_;
  Activations out_;
};

}  // namespace

std::unique_ptr<Node> MakeDeltaGates(const cpu::KernelTable& kernels, std::string name,
                                     DeltaGates gates, ValueId in, ValueId qkv, ValueId out) {
  return std::make_unique<DeltaGatesNode>(kernels, std::move(name), std::move(gates), in, qkv, out);
}

std::unique_ptr<Node> MakeStepGates(std::string name, StepGates gates, ValueId in, ValueId out) {
  return std::make_unique<StepGatesNode>(std::move(name), std::move(gates), in, out);
}

std::unique_ptr<Node> MakeScan(const cpu::KernelTable& kernels, std::string name, ScanShape shape,
                               StateSlice state, const ScanValues& values) {
  KVANT_CHECK(std::ssize(shape.key_heads) == shape.heads);
  KVANT_CHECK(shape.rule != cpu::ScanRule::kKda || shape.depth <= cpu::kKdaDepthMax);
  return std::make_unique<ScanNode>(kernels, std::move(name), std::move(shape), state, values);
}

std::unique_ptr<Node> MakeGatedNorm(const cpu::KernelTable& kernels, std::string name,
                                    GatedNorm norm, ValueId in, ValueId gates,
                                    const Activations& out) {
  KVANT_CHECK(norm.pieces > 0 && out.cols % norm.pieces == 0);
  return std::make_unique<GatedNormNode>(kernels, std::move(name), std::move(norm), in, gates, out);
}

}  // namespace kvant::graph
