// The gated unit: two products of the same activations, and what follows with the columns that a
// share has just computed.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "engine/graph/cut.h"
#include "engine/graph/matmul/gated_columns.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/matmul/product.h"
#include "engine/graph/plan.h"

namespace kvant::graph {
namespace {

// Gate and up are one operand of 2 * cols rows or two of cols rows; a share computes the same
// columns of both, so that it can go on with them.
class GatedUnitNode final : public Node {
 public:
  GatedUnitNode(std::string name, std::vector<ValueId> reads, std::vector<ValueId> writes,
                Product product, const GatedColumns& gated)
      : Node(std::move(name), std::move(reads), std::move(writes)),
        product_(std::move(product)),
        gated_(gated) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const ValueId out = gated_.gate_up();
    const auto activate = [&](int64_t token, int64_t col, int64_t count, float* gate, float* up) {
      gated_.RunRow(pass, token, {col, col + count}, gate, up);
    };
    ForColumns({pass.RowCount(out), pass.TokenCount(out)}, ShareOf(member),
               [&](const Range& cols, const Range& tokens) {
                 const std::array pieces = PiecesOf(cols, tokens);
                 if (product_.TakesPairs(pass.TokenCount(out))) {
                   return product_.RunPair(pass, member, *this, pieces, activate);
                 }
                 for (const Product::Piece& piece : pieces) {
                   product_.Run(pass, member, *this, piece);
                 }
                 gated_.Run(pass, tokens, cols);
               });
  }

  std::vector<ShareWork> SharesOf(const PassShape& pass, int64_t shares) const override {
    return SharesOfPieces(*this, product_, pass, shares);
  }
  void VisitOwnedRows(const ShareNumber& share, const RowVisit& visit) const override {
    VisitRowsOfPieces(*this, product_, share, visit);
  }
  template <class RunPiece>
  void ForPieces(const Tokens& tokens, const ShareNumber& share, const RunPiece& run) const {
    ForColumns(tokens, share, [&](const Range& cols, const Range& of_tokens) {
      for (const Product::Piece& piece : PiecesOf(cols, of_tokens)) run(piece);
    });
  }

  size_t ScratchBytes(const PassLimits& limits) const override {
    return product_.ScratchBytes(limits);
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    product_.AddWork(pass.rows[rows()], work);
  }
  std::vector<const formats::GgufTensor*> Matrices() const override { return product_.Matrices(); }

  std::string Describe() const override {
    return fmt::format("{}; {}", product_.Describe(), gated_.Describe());
  }

 private:
  // The rows of gate and of up that make these columns.
  std::array<Product::Piece, 2> PiecesOf(const Range& cols, const Range& tokens) const {
    const size_t up = product_.operands() - 1;
    const int64_t first_up = up == 0 ? gated_.cols() : 0;
    return {Product::Piece{0, cols, tokens},
            Product::Piece{up, {first_up + cols.begin, first_up + cols.end}, tokens}};
  }

  int64_t Tile(cpu::TokenCount count, int64_t least) const {
    const size_t up = product_.operands() - 1;
    return std::lcm(std::lcm(product_.RowTile(count, 0), product_.RowTile(count, up)), least);
  }

  // Calls run(columns, tokens) for a share's columns, so few at a time that what was multiplied is
  // still in the cache when it is activated.
  template <class RunColumns>
  void ForColumns(const Tokens& tokens, const ShareNumber& share, const RunColumns& run) const {
    const bool few = tokens.kind == cpu::TokenCount::kFew;
    int64_t tile = Tile(tokens.kind, GatedColumns::kTile);
    // Where shares would be of one tile or none, equal shares are worth more than whole lines.
    if (few && gated_.cols() < 2 * tile * share.count) {
      tile = Tile(tokens.kind, GatedColumns::kTileLeast);
    }
    const int64_t tiles = (gated_.cols() + tile - 1) / tile;
    const int64_t pieces =
        product_.SplitsTokens(tokens.kind) ? TokenPieces(tiles, tokens.count, share.count) : 1;
    if (pieces == 1) {
      const Range cols = OwnedRange(gated_.cols(), tile, static_cast<int>(share.index),
                                    static_cast<int>(share.count));
      const int64_t step = few ? gated_.cols() : (GatedColumns::kPiece + tile - 1) / tile * tile;
      for (int64_t begin = cols.begin; begin < cols.end; begin += step) {
        run({begin, std::min(begin + step, cols.end)}, {0, tokens.count});
      }
      return;
    }
    ForTilesAndPieces(tiles, pieces, share, [&](int64_t number, const Range& range) {
      run({number * tile, std::min((number + 1) * tile, gated_.cols())},
          {TokenPiece(tokens.count, range.begin, pieces).begin,
           TokenPiece(tokens.count, range.end - 1, pieces).end});
    });
  }

  Product product_;
  GatedColumns gated_;
};

}  // namespace

std::unique_ptr<Node> MakeGatedUnit(const cpu::KernelTable& kernels,
                                    const cpu::FloatGemm& float_gemm, std::string name,
                                    std::vector<MatMulOperand> operands, const Activations& in,
                                    const cpu::GateActivation& activation, ValueId gate_up,
                                    const Activations& out) {
  KVANT_CHECK(operands.size() == 1 || operands.size() == 2);
  std::vector<ValueId> writes = out.ids();
  writes.push_back(gate_up);
  Product product(kernels, float_gemm, std::move(operands), in, gate_up, cpu::Store::kSet);
  std::vector<ValueId> reads = in.ids();
  for (const ValueId low : product.LowRanks()) reads.push_back(low);
  return std::make_unique<GatedUnitNode>(std::move(name), std::move(reads), std::move(writes),
                                         std::move(product),
                                         GatedColumns(kernels, activation, gate_up, out));
}

}  // namespace kvant::graph
