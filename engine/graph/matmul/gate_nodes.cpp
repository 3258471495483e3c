// Nodes that part gates from queries, and that apply them.
#include "engine/graph/matmul/gate_nodes.h"

#include <cstring>

#include <fmt/format.h>

#include "cpu/kernels/table.h"

namespace kvant::graph {
namespace {

class SplitGatesNode final : public Node {
 public:
  SplitGatesNode(std::string name, const SplitGates& split, ValueId in, ValueId qkv, ValueId gates)
      : Node(std::move(name), {in}, {qkv, gates}),
        split_(split),
        in_(in),
        qkv_(qkv),
        gates_(gates) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(in_), 1, member.index, member.count);
    const size_t bytes = static_cast<size_t>(split_.dim) * sizeof(float);
    for (int64_t row = range.begin; row < range.end; ++row) {
      const float* in = pass.FloatRow(in_, row);
      float* query = pass.FloatRow(qkv_, row);
      float* gate = pass.FloatRow(gates_, row);
      for (int64_t head = 0; head < split_.heads; ++head) {
        std::memcpy(query, in, bytes);
        std::memcpy(gate, in + split_.dim, bytes);
        query += split_.dim;
        gate += split_.dim;
        in += 2 * split_.dim;
      }
      std::memcpy(query, in, static_cast<size_t>(split_.rest) * sizeof(float));
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 2 * split_.heads * split_.dim + split_.rest);
  }

  std::string Describe() const override {
    return fmt::format("queries and gates [{} x {}]", split_.heads, split_.dim);
  }

 private:
  SplitGates split_;
  ValueId in_;
  ValueId qkv_;
  ValueId gates_;
};

class ResultGateNode final : public Node {
 public:
  ResultGateNode(const cpu::KernelTable& kernels, std::string name, const ResultGates& gates,
                 ValueId in, const Activations& out)
      : Node(std::move(name), {in, gates.value}, Writes(in, gates.value, out)),
        kernels_(kernels),
        activation_(kernels.ForActivation(gates.activation)),
        gates_(gates),
        in_(in),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(in_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* in = pass.FloatRow(in_, row);
      float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) : in;
      float* gates = pass.FloatRow(gates_.value, row) + gates_.first;
      if (gates_.count == out_.cols && gates_.activation == cpu::Activation::kSigmoid) {
        kernels_.sigmoid_gate(gates, in, out_.cols, out);  // rounds once less
      } else if (gates_.count == out_.cols) {
        activation_.multiply(gates, in, out_.cols, out);
      } else {
        activation_.apply(gates, gates_.count, gates);
        MultiplyPieces(gates, in, out);
      }
      if (out_.int8 == kNoValue) continue;
      pass.Quantize(kernels_, out, out_.cols, {out_.int8, row, out_.cols, 0});
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 4 * out_.cols);
  }

  std::string Describe() const override {
    return fmt::format("* {} of {} gates{} {} [{}]", activation_.name, gates_.count,
                       out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa, out_.cols);
  }

 private:
  static std::vector<ValueId> Writes(ValueId in, ValueId gates, const Activations& out) {
    std::vector<ValueId> writes = out.ids();
    writes.push_back(gates);
    if (out.floats != in) writes.push_back(in);
    return writes;
  }

  void MultiplyPieces(const float* gates, const float* in, float* out) const {
    const int64_t size = out_.cols / gates_.count;
    for (int64_t piece = 0; piece < gates_.count; ++piece) {
      const int64_t begin = piece * size;
      for (int64_t i = begin; i < begin + size; ++i) out[i] = gates[piece] * in[i];
    }
  }

  const cpu::KernelTable& kernels_;
  const cpu::ActivationKernel& activation_;
  ResultGates gates_;
  ValueId in_;
  Activations out_;
};

class ActivatedProductNode final : public Node {
 public:
  ActivatedProductNode(const cpu::KernelTable& kernels, std::string name,
                       cpu::Activation activation, ValueId in, ValueId factors,
                       int64_t first_factor, const Activations& out)
      : Node(std::move(name), {in, factors}, Writes(in, out)),
        kernels_(kernels),
        activation_(kernels.ForActivation(activation)),
        in_(in),
        factors_(factors),
        first_factor_(first_factor),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(in_), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* in = pass.FloatRow(in_, row);
      float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) : in;
      activation_.multiply(in, pass.FloatRow(factors_, row) + first_factor_, out_.cols, out);
      if (out_.int8 == kNoValue) continue;
      pass.Quantize(kernels_, out, out_.cols, {out_.int8, row, out_.cols, 0});
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 4 * out_.cols);
  }

  std::string Describe() const override {
    return fmt::format("{} * columns {} to {}{} {}", activation_.name, first_factor_,
                       first_factor_ + out_.cols, out_.int8 != kNoValue ? " + quantize int8" : "",
                       kernels_.isa);
  }

 private:
  static std::vector<ValueId> Writes(ValueId in, const Activations& out) {
    std::vector<ValueId> writes = out.ids();
    if (out.floats != in) writes.push_back(in);
    return writes;
  }

  const cpu::KernelTable& kernels_;
  const cpu::ActivationKernel& activation_;
  ValueId in_;
  ValueId factors_;
  int64_t first_factor_;
  Activations out_;
};

}  // namespace

std::unique_ptr<Node> MakeActivatedProduct(const cpu::KernelTable& kernels, std::string name,
                                           cpu::Activation activation, ValueId in, ValueId factors,
                                           int64_t first_factor, const Activations& out) {
  return std::make_unique<ActivatedProductNode>(kernels, std::move(name), activation, in, factors,
                                                first_factor, out);
}

std::unique_ptr<Node> MakeResultGate(const cpu::KernelTable& kernels, std::string name,
                                     const ResultGates& gates, ValueId in, const Activations& out) {
  return std::make_unique<ResultGateNode>(kernels, std::move(name), gates, in, out);
}

std::unique_ptr<Node> MakeSplitGates(std::string name, const SplitGates& split, ValueId in,
                                     ValueId qkv, ValueId gates) {
  return std::make_unique<SplitGatesNode>(std::move(name), split, in, qkv, gates);
}

}  // namespace kvant::graph
