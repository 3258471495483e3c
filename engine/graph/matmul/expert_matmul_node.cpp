// Products with the matrices of experts. The work is cut over pairs of an expert that has rows and
// a tile of its weight rows, weighted by the expert's rows, so that unequal experts still make
// equal shares; a tile's weights are read once for all rows of its expert.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"
#include "engine/graph/cut.h"
#include "engine/graph/matmul/expert_nodes.h"
#include "engine/graph/matmul/gated_columns.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "quant/format.h"

namespace kvant::graph {
namespace {

// The time to read and unpack the weights of a tile, in rows that are multiplied with the tile.
constexpr int64_t kRowsPerTile = 8;

// Rows [begin, end) of a routed value.
using ExpertRows = Range;

// Calls run(expert, rows, columns) for every piece of a share. Each expert with rows has `cols`
// weight rows, which are cut at multiples of `tile`.
template <class Run>
void ForShare(std::span<const int32_t> offsets, int64_t cols, int64_t tile,
              const ThreadPool::Member& member, const Run& run) {
  const auto tiles = [&](int64_t) { return (cols + tile - 1) / tile; };
  const auto rows_of = [offsets](int64_t expert) {
    return ExpertRows{offsets[static_cast<size_t>(expert)],
                      offsets[static_cast<size_t>(expert) + 1]};
  };
  const auto cost = [&](int64_t expert) {
    const ExpertRows rows = rows_of(expert);
    return rows.begin == rows.end ? 0 : rows.end - rows.begin + kRowsPerTile;
  };
  ForWeightedShare(
      std::ssize(offsets) - 1, tiles, cost, ShareOf(member),
      [&](int64_t expert, const Range& owned) {
        run(expert, rows_of(expert), Range{owned.begin * tile, std::min(owned.end * tile, cols)});
      });
}

class ExpertProduct {
 public:
  ExpertProduct(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
                std::vector<ExpertOperand> operands, const RoutedRows& rows, const Activations& in,
                ValueId out)
      : panels_(float_gemm.panels || float_gemm.run != nullptr),
        operands_(std::move(operands)),
        routed_(rows),
        in_(in),
        out_(out) {
    for (const ExpertOperand& operand : operands_) {
      KVANT_CHECK(operand.weight->dims[0] == in.cols);
      const auto format = static_cast<size_t>(quant::FormatIndex(*operand.weight->format));
      kernels_.push_back(&kernels.matmul[format]);
    }
  }

  size_t operands() const { return operands_.size(); }
  int64_t rows(size_t operand) const { return operands_[operand].weight->dims[1]; }
  int64_t RowTile(size_t operand) const { return kernels_[operand]->row_tile; }

  std::span<const int32_t> Offsets(const PassContext& pass) const {
    return {reinterpret_cast<const int32_t*>(pass.Bytes(routed_.offsets)),
            static_cast<size_t>(routed_.experts + 1)};
  }

  // The products of an expert's rows with some of its weight rows. Matrices that follow each other
  // and share `arranged` arrange their activations once.
  void Run(const PassContext& pass, const ThreadPool::Member& member, size_t operand,
           int64_t expert, const ExpertRows& rows, const Range& weight_rows,
           cpu::ArrangedActivations& arranged) const {
    if (weight_rows.begin == weight_rows.end) return;
    const cpu::MatMulKernel& kernel = *kernels_[operand];
    cpu::MatMulTask task = Task(pass, operand, expert, rows, weight_rows);
    task.scratch = pass.Scratch(member);
    if (kernel.activation == cpu::ActivationKind::kInt8) {
      task.arranged = &arranged;
      kernel.run(task);
    } else {
      arranged = {};
      const bool panels = UsesPanels(operand) && task.count == cpu::TokenCount::kMany;
      panels ? kernel.run_many(task) : kernel.run(task);
    }
    if (operands_[operand].scales.empty() && operands_[operand].bias.empty()) return;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      float* out = pass.FloatRow(out_, row) + operands_[operand].out_col;
      Finish(operands_[operand], expert, weight_rows, out + weight_rows.begin);
    }
  }

  // Whether gates and ups can be computed side by side.
  bool TakesPairs(const PassContext& pass) const {
    return pass.TokenCount(out_) == cpu::TokenCount::kMany && kernels_.front() == kernels_.back() &&
           kernels_.front()->takes_pairs;
  }
  // The products of an expert's rows with `gates` of the first operand and with the rows of the
  // last operand that lie `up` after them: take(row, first gate, count, gates, ups) gets them in
  // parts.
  template <class Take>
  void RunPair(const PassContext& pass, const ThreadPool::Member& member, int64_t expert,
               const ExpertRows& rows, const Range& gates, int64_t up,
               cpu::ArrangedActivations& arranged, const Take& take) const {
    const auto finish = [&](int64_t row, int64_t gate, int64_t count, float* gate_products,
                            float* up_products) {
      Finish(operands_.front(), expert, {gate, gate + count}, gate_products);
      Finish(operands_.back(), expert, {up + gate, up + gate + count}, up_products);
      take(rows.begin + row, gate, count, gate_products, up_products);
    };
    cpu::MatMulTask task = Task(pass, 0, expert, rows, gates);
    task.scratch = pass.Scratch(member);
    task.arranged = &arranged;
    const cpu::MatMulTask second = Task(pass, operands() - 1, expert, rows, gates);
    const cpu::MatMulPair pair = PairOf(second.weights + up * second.row_bytes, finish);
    task.pair = &pair;
    kernels_.front()->run(task);
  }

  size_t ScratchBytes() const {
    size_t bytes = 0;
    for (const cpu::MatMulKernel* kernel : kernels_) {
      bytes = std::max(bytes, kernel->scratch_bytes(in_.cols));
    }
    return bytes;
  }

  // Tiles of `tile` weight rows, for the experts that tokens use on average.
  int64_t UnitsOf(int64_t tokens, int64_t cols, int64_t tile) const {
    if (tokens == 0) return 0;
    const double used = ExpectedExperts(routed_.experts, routed_.used, tokens);
    return static_cast<int64_t>(used + 0.5) * ((cols + tile - 1) / tile);
  }

  void AddWork(int64_t tokens, Work& work) const {
    if (tokens == 0) return;
    const auto all = static_cast<double>(routed_.experts);
    const double read = ExpectedExperts(routed_.experts, routed_.used, tokens) / all;
    const double used = static_cast<double>(tokens * routed_.used) / all;
    for (const ExpertOperand& operand : operands_) {
      work.AddProducts(*operand.weight, read, used);
    }
  }

  std::vector<const formats::GgufTensor*> Matrices() const {
    std::vector<const formats::GgufTensor*> matrices;
    for (const ExpertOperand& operand : operands_) matrices.push_back(operand.weight);
    return matrices;
  }

  std::string Describe() const {
    std::string text = "matmul";
    for (size_t i = 0; i < operands_.size(); ++i) {
      const formats::GgufTensor& weight = *operands_[i].weight;
      text +=
          fmt::format(" {} [{} x {} x {}] {}{}{};", weight.name, weight.dims[0], weight.dims[1],
                      weight.dims[2], kernels_[i]->name,
                      UsesPanels(i) ? fmt::format(" (>= {} rows: panels)", cpu::kManyTokens) : "",
                      operands_[i].bias.empty() ? "" : " + bias");
      if (!operands_[i].scales.empty()) text.insert(text.size() - 1, " * scales");
    }
    text.pop_back();
    return text;
  }

 private:
  bool UsesPanels(size_t operand) const {
    return panels_ && kernels_[operand]->run_many != nullptr;
  }

  cpu::MatMulTask Task(const PassContext& pass, size_t i, int64_t expert, const ExpertRows& rows,
                       const Range& weight_rows) const {
    const formats::GgufTensor& weight = *operands_[i].weight;
    const ValueId in =
        kernels_[i]->activation == cpu::ActivationKind::kInt8 ? in_.int8 : in_.floats;
    cpu::MatMulTask task;
    task.format = weight.format;
    task.row_bytes = weight.row_bytes();
    task.weights = weight.data + expert * weight.dims[1] * task.row_bytes;
    task.cols = in_.cols;
    task.row_begin = weight_rows.begin;
    task.row_end = weight_rows.end;
    task.activation_stride = static_cast<int64_t>(pass.RowBytes(in));
    task.activations = pass.Bytes(in) + rows.begin * task.activation_stride;
    task.tokens = rows.end - rows.begin;
    task.out = pass.FloatRow(out_, rows.begin) + operands_[i].out_col;
    task.out_stride = pass.RowFloats(out_);
    task.store = cpu::Store::kSet;
    task.count = pass.TokenCount(out_);  // of the pass
    return task;
  }

  // Scales the products of one token with `rows` of an expert, and adds their bias.
  static void Finish(const ExpertOperand& operand, int64_t expert, const Range& rows,
                     float* products) {
    const float scale = operand.scales.empty() ? 1.0f : operand.scales[static_cast<size_t>(expert)];
    const float* bias = operand.bias.empty()
                            ? nullptr
                            : operand.bias.data() + expert * operand.weight->dims[1] + rows.begin;
    ScaleAndAddBias({products, static_cast<size_t>(rows.end - rows.begin)}, scale, bias);
  }

  bool panels_;
  std::vector<ExpertOperand> operands_;
  std::vector<const cpu::MatMulKernel*> kernels_;  // one per operand
  RoutedRows routed_;
  Activations in_;
  ValueId out_;
};

class ExpertMatMulNode final : public Node {
 public:
  ExpertMatMulNode(std::string name, std::vector<ValueId> reads, ValueId out, ExpertProduct product)
      : Node(std::move(name), std::move(reads), {out}), product_(std::move(product)) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    cpu::ArrangedActivations& arranged = pass.Arranged(member, *this);
    ForShare(product_.Offsets(pass), product_.rows(0), product_.RowTile(0), member,
             [&](int64_t expert, const ExpertRows& rows, const Range& weight_rows) {
               arranged = {};
               product_.Run(pass, member, 0, expert, rows, weight_rows, arranged);
             });
  }

  size_t ScratchBytes(const PassLimits&) const override { return product_.ScratchBytes(); }
  int64_t UnitsOf(const PassShape& pass) const override {
    return product_.UnitsOf(pass.rows[rows()], product_.rows(0), product_.RowTile(0));
  }
  std::string Describe() const override { return product_.Describe(); }
  void AddWork(const PassShape& pass, Work& work) const override {
    product_.AddWork(pass.rows[rows()], work);
  }
  std::vector<const formats::GgufTensor*> Matrices() const override { return product_.Matrices(); }

 private:
  ExpertProduct product_;
};

// Gate and up are one operand of 2 * cols rows or two of cols rows, as in the gated unit of a
// feed-forward without experts.
class ExpertUnitNode final : public Node {
 public:
  ExpertUnitNode(std::string name, std::vector<ValueId> reads, std::vector<ValueId> writes,
                 ExpertProduct product, const GatedColumns& gated)
      : Node(std::move(name), std::move(reads), std::move(writes)),
        product_(std::move(product)),
        gated_(gated) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const size_t up = product_.operands() - 1;
    const int64_t tile = Tile();
    const int64_t piece = (GatedColumns::kPiece + tile - 1) / tile * tile;
    const int64_t first_up = up == 0 ? gated_.cols() : 0;
    cpu::ArrangedActivations& arranged = pass.Arranged(member, *this);
    const auto activate = [&](int64_t row, int64_t col, int64_t count, float* gate,
                              float* up_products) {
      gated_.RunRow(pass, row, {col, col + count}, gate, up_products);
    };
    ForShare(product_.Offsets(pass), gated_.cols(), tile, member,
             [&](int64_t expert, const ExpertRows& rows, const Range& cols) {
               arranged = {};
               if (product_.TakesPairs(pass)) {
                 return product_.RunPair(pass, member, expert, rows, cols, first_up, arranged,
                                         activate);
               }
               for (int64_t begin = cols.begin; begin < cols.end; begin += piece) {
                 const Range gates = {begin, std::min(begin + piece, cols.end)};
                 const Range ups = {first_up + gates.begin, first_up + gates.end};
                 product_.Run(pass, member, 0, expert, rows, gates, arranged);
                 product_.Run(pass, member, up, expert, rows, ups, arranged);
                 gated_.Run(pass, rows, gates);
               }
             });
  }

  size_t ScratchBytes(const PassLimits&) const override { return product_.ScratchBytes(); }
  int64_t UnitsOf(const PassShape& pass) const override {
    return product_.UnitsOf(pass.rows[rows()], gated_.cols(), Tile());
  }
  void AddWork(const PassShape& pass, Work& work) const override {
    product_.AddWork(pass.rows[rows()], work);
  }
  std::vector<const formats::GgufTensor*> Matrices() const override { return product_.Matrices(); }

  std::string Describe() const override {
    return fmt::format("{}; {}", product_.Describe(), gated_.Describe());
  }

 private:
  int64_t Tile() const {
    const size_t up = product_.operands() - 1;
    return std::lcm(std::lcm(product_.RowTile(0), product_.RowTile(up)), GatedColumns::kTile);
  }

  ExpertProduct product_;
  GatedColumns gated_;
};

std::vector<ValueId> ReadsOfProduct(const RoutedRows& rows, const Activations& in) {
  std::vector<ValueId> reads = in.ids();
  reads.push_back(rows.offsets);
  return reads;
}

}  // namespace

std::unique_ptr<Node> MakeExpertMatMul(const cpu::KernelTable& kernels,
                                       const cpu::FloatGemm& float_gemm, std::string name,
                                       ExpertOperand operand, const RoutedRows& rows,
                                       const Activations& in, ValueId out) {
  std::vector<ExpertOperand> operands;
  operands.push_back(std::move(operand));
  return std::make_unique<ExpertMatMulNode>(
      std::move(name), ReadsOfProduct(rows, in), out,
      ExpertProduct(kernels, float_gemm, std::move(operands), rows, in, out));
}

std::unique_ptr<Node> MakeExpertUnit(const cpu::KernelTable& kernels,
                                     const cpu::FloatGemm& float_gemm, std::string name,
                                     std::vector<ExpertOperand> operands, const RoutedRows& rows,
                                     const Activations& in, const cpu::GateActivation& activation,
                                     ValueId gate_up, const Activations& out) {
  KVANT_CHECK(operands.size() == 1 || operands.size() == 2);
  std::vector<ValueId> writes = out.ids();
  writes.push_back(gate_up);
  return std::make_unique<ExpertUnitNode>(
      std::move(name), ReadsOfProduct(rows, in), std::move(writes),
      ExpertProduct(kernels, float_gemm, std::move(operands), rows, in, gate_up),
      GatedColumns(kernels, activation, gate_up, out));
}

}  // namespace kvant::graph
