// Matrix products of one or several weight matrices with the same activations.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "engine/graph/cut.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/matmul/product.h"
#include "engine/graph/plan.h"

namespace kvant::graph {
namespace {

// Columns of a product that become those of an activation while they are near.
class ActivatedColumns {
 public:
  // Columns are cut at multiples of this: so many have one scale.
  static constexpr int64_t kTile = 32;

  ActivatedColumns(const cpu::KernelTable& kernels, cpu::Activation activation,
                   const Activations& out)
      : kernels_(&kernels), activation_(&kernels.ForActivation(activation)), out_(out) {}

  void Run(const PassContext& pass, int64_t row, const Range& cols, float* products) const {
    const int64_t count = cols.end - cols.begin;
    float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) + cols.begin : products;
    activation_->apply(products, count, out);
    if (out_.int8 == kNoValue) return;
    pass.Quantize(*kernels_, out, count, {out_.int8, row, out_.cols, cols.begin});
  }

  std::string Describe() const {
    return fmt::format("{}{} {} [{}]", activation_->name,
                       out_.int8 != kNoValue ? " + quantize int8" : "", kernels_->isa, out_.cols);
  }

 private:
  const cpu::KernelTable* kernels_;
  const cpu::ActivationKernel* activation_;
  Activations out_;
};

class MatMulNode final : public Node {
 public:
  MatMulNode(std::string name, std::vector<ValueId> reads, std::vector<ValueId> writes,
             Product product, std::optional<ActivatedColumns> activated = {})
      : Node(std::move(name), std::move(reads), std::move(writes)),
        product_(std::move(product)),
        activated_(activated) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const ValueId out = product_.out();
    ForPieces({pass.RowCount(out), pass.TokenCount(out)}, ShareOf(member),
              [&](const Product::Piece& piece) {
                if (!activated_.has_value()) return product_.Run(pass, member, *this, piece);
                product_.RunThen(pass, member, *this, piece, Product::Outputs::kDiscarded,
                                 [&](int64_t token, const Range& rows, float* products) {
                                   activated_->Run(pass, token, rows, products);
                                 });
              });
  }

  std::vector<ShareWork> SharesOf(const PassShape& pass, int64_t shares) const override {
    return SharesOfPieces(*this, product_, pass, shares);
  }
  void VisitOwnedRows(const ShareNumber& share, const RowVisit& visit) const override {
    VisitRowsOfPieces(*this, product_, share, visit);
  }

  // Calls run(piece) for all pieces of a share.
  template <class RunPiece>
  void ForPieces(const Tokens& tokens, const ShareNumber& share, const RunPiece& run) const {
    const auto tile = [&](int64_t i) {
      const int64_t of_product = product_.RowTile(tokens.kind, static_cast<size_t>(i));
      return activated_.has_value() ? std::lcm(of_product, ActivatedColumns::kTile) : of_product;
    };
    const auto tiles = [&](int64_t i) {
      return (product_.rows(static_cast<size_t>(i)) + tile(i) - 1) / tile(i);
    };
    const auto rows_of = [&](int64_t i, const Range& range) {
      const int64_t rows = product_.rows(static_cast<size_t>(i));
      return Range{range.begin * tile(i), std::min(range.end * tile(i), rows)};
    };
    const auto operands = static_cast<int64_t>(product_.operands());
    int64_t all = 0;
    for (int64_t i = 0; i < operands; ++i) all += tiles(i);
    const int64_t pieces =
        product_.SplitsTokens(tokens.kind) ? TokenPieces(all, tokens.count, share.count) : 1;
    if (pieces == 1) {
      // Few tokens take as long as the bytes of the weights, many as the multiplications.
      const auto cost = [&](int64_t i) {
        const int64_t row = tokens.kind == cpu::TokenCount::kFew
                                ? product_.matrix(static_cast<size_t>(i)).row_bytes()
                                : 1;
        return row * tile(i);
      };
      return ForWeightedShare(operands, tiles, cost, share, [&](int64_t i, const Range& range) {
        run({static_cast<size_t>(i), rows_of(i, range), {0, tokens.count}});
      });
    }
    ForTilesAndPieces(all, pieces, share, [&](int64_t number, const Range& range) {
      int64_t i = 0;
      for (; number >= tiles(i); ++i) number -= tiles(i);
      run({static_cast<size_t>(i),
           rows_of(i, {number, number + 1}),
           {TokenPiece(tokens.count, range.begin, pieces).begin,
            TokenPiece(tokens.count, range.end - 1, pieces).end}});
    });
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    return product_.ScratchBytes(limits);
  }
  std::string Describe() const override {
    if (!activated_.has_value()) return product_.Describe();
    return fmt::format("{}; {}", product_.Describe(), activated_->Describe());
  }
  void AddWork(const PassShape& pass, Work& work) const override {
    product_.AddWork(pass.rows[rows()], work);
  }
  std::vector<const formats::GgufTensor*> Matrices() const override { return product_.Matrices(); }

 private:
  Product product_;
  std::optional<ActivatedColumns> activated_;  // what follows with the columns of a share
};

}  // namespace

std::unique_ptr<Node> MakeMatMul(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
                                 std::string name, std::vector<MatMulOperand> operands,
                                 const Activations& in, ValueId out, cpu::Store store) {
  std::vector<ValueId> reads = in.ids();
  if (store == cpu::Store::kAdd) reads.push_back(out);
  Product product(kernels, float_gemm, std::move(operands), in, out, store);
  for (const ValueId low : product.LowRanks()) reads.push_back(low);
  return std::make_unique<MatMulNode>(std::move(name), std::move(reads), std::vector{out},
                                      std::move(product));
}

std::unique_ptr<Node> MakeActivatedMatMul(const cpu::KernelTable& kernels,
                                          const cpu::FloatGemm& float_gemm, std::string name,
                                          MatMulOperand operand, const Activations& in,
                                          cpu::Activation activation, ValueId product_value,
                                          const Activations& out) {
  std::vector<ValueId> reads = in.ids();
  std::vector<ValueId> writes = out.ids();
  writes.push_back(product_value);
  Product product(kernels, float_gemm, {std::move(operand)}, in, product_value, cpu::Store::kSet);
  for (const ValueId low : product.LowRanks()) reads.push_back(low);
  return std::make_unique<MatMulNode>(std::move(name), std::move(reads), std::move(writes),
                                      std::move(product),
                                      ActivatedColumns(kernels, activation, out));
}

}  // namespace kvant::graph
