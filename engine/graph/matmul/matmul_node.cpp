// Matrix products of one or several weight matrices with the same activations, and the gated unit,
// which goes on with the columns that it has just computed.
//
// The rows of all operands together are split over the team at their kernels' row tiles, by the
// bytes they take. With many tokens a tile is a panel, and where a team has more shares than there
// are panels, tokens are split, too. Float matrices with many tokens may go to a library, in tiles
// of weight rows whose borders depend on the matrix alone.
#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/activations.h"
#include "cpu/float_gemm.h"
#include "cpu/kernels/activation.h"
#include "cpu/kernels/blocks.h"
#include "cpu/kernels/matmul.h"
#include "cpu/kernels/table.h"
#include "cpu/kernels/token_count.h"
#include "engine/graph/activations.h"
#include "engine/graph/cut.h"
#include "engine/graph/matmul/gated_columns.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/plan.h"
#include "formats/gguf.h"
#include "quant/format.h"

namespace kvant::graph {
namespace {

// Values of a tile of weight rows that is decoded for the library: 512 KiB of floats, which stay in
// a core's second-level cache.
constexpr int64_t kTileValues = 64 * 2048;
constexpr int64_t kTileRowsMin = 16;
constexpr int64_t kTileRowsMax = 256;

int64_t GemmTileRows(int64_t cols) {
  return std::clamp(kTileValues / cols / kTileRowsMin * kTileRowsMin, kTileRowsMin, kTileRowsMax);
}

// Products of weight matrices with activations. The arithmetic follows from the formats of the
// matrices and from whether there are few tokens or many (cpu::TokenCountOf).
class Product {
 public:
  Product(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
          std::vector<MatMulOperand> operands, const Activations& in, ValueId out, cpu::Store store)
      : float_gemm_(float_gemm), operands_(std::move(operands)), in_(in), out_(out), store_(store) {
    for (const MatMulOperand& operand : operands_) {
      KVANT_CHECK(operand.weight->dims[0] == in.cols);
      KVANT_CHECK(operand.scale == 1 || store == cpu::Store::kSet);
      const auto format = static_cast<size_t>(quant::FormatIndex(*operand.weight->format));
      kernels_.push_back(&kernels.matmul[format]);
      decode_.push_back(kernels.decode[format]);
    }
  }

  size_t operands() const { return operands_.size(); }
  int64_t rows(size_t operand) const { return operands_[operand].weight->rows(); }

  const formats::GgufTensor& matrix(size_t operand) const { return *operands_[operand].weight; }

  // Shares of an operand's rows begin at multiples of this.
  int64_t RowTile(cpu::TokenCount count, size_t operand) const {
    const int64_t tile = kernels_[operand]->row_tile;
    if (count == cpu::TokenCount::kFew) return tile;
    if (UsesLibrary(operand)) return GemmTileRows(in_.cols);
    return std::lcm(tile, kPanelTile);
  }
  // Whether tokens may be split: not where a library sees them, or where float panels are made.
  bool SplitsTokens(cpu::TokenCount count) const {
    if (count == cpu::TokenCount::kFew) return false;
    return std::ranges::all_of(kernels_, [](const cpu::MatMulKernel* kernel) {
      return kernel->activation == cpu::ActivationKind::kInt8;
    });
  }

  // A product of some weight rows of one operand with some tokens.
  struct Piece {
    size_t operand;
    Range rows;
    Range tokens;
  };

  // Computes a piece, for a share of `node`.
  void Run(const PassContext& pass, const ThreadPool::Member& member, const Node& node,
           const Piece& piece) const {
    const size_t operand = piece.operand;
    if (piece.rows.begin == piece.rows.end) return;
    const std::span<std::byte> scratch = pass.Scratch(member);
    cpu::ArrangedActivations& arranged = pass.Arranged(member, node);
    if (kernels_[operand]->activation == cpu::ActivationKind::kInt8) {
      cpu::MatMulTask task = KernelTask(pass, piece, scratch);
      task.arranged = &arranged;
      kernels_[operand]->run(task);
    } else {
      arranged = {};
      MultiplyFloats(pass, piece, scratch);
    }
    if (operands_[operand].scale == 1 && operands_[operand].bias.empty()) return;
    for (int64_t token = piece.tokens.begin; token < piece.tokens.end; ++token) {
      float* out = pass.FloatRow(out_, token) + operands_[operand].out_col;
      Finish(operands_[operand], piece.rows, out + piece.rows.begin);
    }
  }

  // Whether pieces of equal height of the first and the last operand can be computed side by side.
  bool TakesPairs(cpu::TokenCount count) const {
    return count == cpu::TokenCount::kMany && kernels_.front() == kernels_.back() &&
           kernels_.front()->takes_pairs;
  }
  // Computes two such pieces for one range of tokens: take(token, first row, count, products with
  // rows of the first piece, products with rows of the second) gets them in parts.
  template <class Take>
  void RunPair(const PassContext& pass, const ThreadPool::Member& member, const Node& node,
               const std::array<Piece, 2>& pieces, const Take& take) const {
    const auto& [first, second] = pieces;
    const auto finish = [&](int64_t token, int64_t row, int64_t count, float* products,
                            float* second_products) {
      const int64_t second_row = row + second.rows.begin - first.rows.begin;
      Finish(operands_[first.operand], {row, row + count}, products);
      Finish(operands_[second.operand], {second_row, second_row + count}, second_products);
      take(first.tokens.begin + token, row, count, products, second_products);
    };
    cpu::MatMulTask task = KernelTask(pass, first, pass.Scratch(member));
    task.arranged = &pass.Arranged(member, node);
    const cpu::MatMulPair pair = PairOf(operands_[second.operand].weight->data +
                                            (second.rows.begin - first.rows.begin) * task.row_bytes,
                                        finish);
    task.pair = &pair;
    kernels_[first.operand]->run(task);
  }

  size_t ScratchBytes(const PassLimits& limits) const {
    size_t bytes = 0;
    for (size_t i = 0; i < operands_.size(); ++i) {
      bytes = std::max(bytes, kernels_[i]->scratch_bytes(in_.cols));
      if (UsesLibrary(i) && limits.chunk >= cpu::kManyTokens) {
        bytes =
            std::max(bytes, static_cast<size_t>(GemmTileRows(in_.cols) * in_.cols) * sizeof(float));
      }
    }
    return bytes;
  }

  void AddWork(int64_t tokens, Work& work) const {
    if (tokens == 0) return;
    for (size_t i = 0; i < operands(); ++i) AddWork({i, {0, rows(i)}, {0, tokens}}, work);
  }
  void AddWork(const Piece& piece, Work& work) const {
    const formats::GgufTensor& weight = matrix(piece.operand);
    const double part =
        static_cast<double>(piece.rows.end - piece.rows.begin) / static_cast<double>(weight.rows());
    work.AddProducts(weight, part,
                     part * static_cast<double>(piece.tokens.end - piece.tokens.begin));
  }

  std::vector<const formats::GgufTensor*> Matrices() const {
    std::vector<const formats::GgufTensor*> matrices;
    for (const MatMulOperand& operand : operands_) matrices.push_back(operand.weight);
    return matrices;
  }

  std::string Describe() const {
    std::string text = store_ == cpu::Store::kAdd ? "matmul +=" : "matmul";
    for (size_t i = 0; i < operands_.size(); ++i) {
      const formats::GgufTensor& weight = *operands_[i].weight;
      text += fmt::format(" {} [{} x {}] {}{}{};", weight.name, weight.dims[0], weight.rows(),
                          kernels_[i]->name,
                          UsesLibrary(i) || UsesPanels(i)
                              ? fmt::format(" (>= {} rows: {})", cpu::kManyTokens, float_gemm_.name)
                              : "",
                          operands_[i].bias.empty() ? "" : " + bias");
      if (operands_[i].scale != 1) text.insert(text.size() - 1, " * scale");
    }
    text.pop_back();
    return text;
  }

 private:
  bool Many(const PassContext& pass) const {
    return pass.TokenCount(out_) == cpu::TokenCount::kMany;
  }
  // Many tokens times a matrix of floats go to the library or to the kernel with panels; where
  // neither is there, to the kernel for few tokens.
  bool UsesLibrary(size_t operand) const {
    return kernels_[operand]->activation == cpu::ActivationKind::kFloat32 &&
           float_gemm_.run != nullptr;
  }
  bool UsesPanels(size_t operand) const {
    return float_gemm_.panels && kernels_[operand]->run_many != nullptr;
  }

  cpu::MatMulTask KernelTask(const PassContext& pass, const Piece& piece,
                             std::span<std::byte> scratch) const {
    const size_t i = piece.operand;
    const formats::GgufTensor& weight = *operands_[i].weight;
    const ValueId in =
        kernels_[i]->activation == cpu::ActivationKind::kInt8 ? in_.int8 : in_.floats;
    // The form of a record follows from the tokens of its row space.
    KVANT_CHECK(pass.TokenCount(in) == pass.TokenCount(out_));
    cpu::MatMulTask task;
    task.format = weight.format;
    task.weights = weight.data;
    task.row_bytes = weight.row_bytes();
    task.cols = in_.cols;
    task.row_begin = piece.rows.begin;
    task.row_end = piece.rows.end;
    task.activation_stride = static_cast<int64_t>(pass.RowBytes(in));
    task.activations = pass.Bytes(in) + piece.tokens.begin * task.activation_stride;
    task.tokens = piece.tokens.end - piece.tokens.begin;
    task.out = pass.FloatRow(out_, piece.tokens.begin) + operands_[i].out_col;
    task.out_stride = pass.RowFloats(out_);
    task.store = store_;
    task.scratch = scratch;
    task.count = pass.TokenCount(out_);
    return task;
  }

  void MultiplyFloats(const PassContext& pass, const Piece& piece,
                      std::span<std::byte> scratch) const {
    const size_t i = piece.operand;
    if (Many(pass) && UsesLibrary(i)) return RunLibrary(pass, i, piece.rows, scratch);
    const cpu::MatMulTask task = KernelTask(pass, piece, scratch);
    Many(pass) && UsesPanels(i) ? kernels_[i]->run_many(task) : kernels_[i]->run(task);
  }

  void RunLibrary(const PassContext& pass, size_t i, const Range& range,
                  std::span<std::byte> scratch) const {
    const formats::GgufTensor& weight = *operands_[i].weight;
    const int64_t tile = GemmTileRows(in_.cols);
    for (int64_t row = range.begin; row < range.end; row += tile) {
      const int64_t rows = std::min(tile, range.end - row);
      const std::byte* data = weight.data + row * weight.row_bytes();
      const float* floats = reinterpret_cast<const float*>(scratch.data());
      const bool in_place = weight.row_bytes() == in_.cols * static_cast<int64_t>(sizeof(float)) &&
                            reinterpret_cast<uintptr_t>(data) % alignof(float) == 0;
      if (in_place) {
        floats = reinterpret_cast<const float*>(data);
      } else {
        decode_[i](data, reinterpret_cast<float*>(scratch.data()), rows * in_.cols);
      }
      float_gemm_.run(floats, rows, in_.cols, pass.Floats(in_.floats), pass.RowFloats(in_.floats),
                      pass.RowCount(out_), pass.Floats(out_) + operands_[i].out_col + row,
                      pass.RowFloats(out_), store_);
    }
  }

  // Scales the products of one token with `rows`, and adds their bias.
  static void Finish(const MatMulOperand& operand, const Range& rows, float* products) {
    ScaleAndAddBias({products, static_cast<size_t>(rows.end - rows.begin)}, operand.scale,
                    operand.bias.empty() ? nullptr : operand.bias.data() + rows.begin);
  }

  const cpu::FloatGemm& float_gemm_;
  std::vector<MatMulOperand> operands_;
  std::vector<const cpu::MatMulKernel*> kernels_;  // one per operand
  std::vector<cpu::DecodeFunction> decode_;        // one per operand
  Activations in_;
  ValueId out_;
  cpu::Store store_;
};

// The tokens of a pass.
struct Tokens {
  int64_t count;
  cpu::TokenCount kind;
};

// The work of each share of a node: the sum of its pieces.
template <class ProductNode>
std::vector<ShareWork> SharesOfPieces(const ProductNode& node, const Product& product,
                                      const PassShape& pass, int64_t shares) {
  std::vector<ShareWork> result(static_cast<size_t>(shares));
  const Tokens tokens = {pass.rows[node.rows()], pass.rows.tokens(node.rows())};
  if (tokens.count == 0) return result;
  for (int64_t i = 0; i < shares; ++i) {
    ShareWork& share = result[static_cast<size_t>(i)];
    node.ForPieces(tokens, {i, shares}, [&](const Product::Piece& piece) {
      share.units += static_cast<double>(piece.rows.end - piece.rows.begin) *
                     static_cast<double>(piece.tokens.end - piece.tokens.begin);
      product.AddWork(piece, share.work);
    });
  }
  return result;
}

// The rows that a share of a node reads where there is one token.
template <class ProductNode>
void VisitRowsOfPieces(const ProductNode& node, const Product& product, const ShareNumber& share,
                       const Node::RowVisit& visit) {
  node.ForPieces({1, cpu::TokenCount::kFew}, share, [&](const Product::Piece& piece) {
    visit(product.matrix(piece.operand), piece.rows);
  });
}

class MatMulNode final : public Node {
 public:
  MatMulNode(std::string name, std::vector<ValueId> reads, ValueId out, Product product)
      : Node(std::move(name), std::move(reads), {out}), product_(std::move(product)) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const ValueId out = writes().front();
    ForPieces({pass.RowCount(out), pass.TokenCount(out)}, ShareOf(member),
              [&](const Product::Piece& piece) { product_.Run(pass, member, *this, piece); });
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
      return product_.RowTile(tokens.kind, static_cast<size_t>(i));
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
  std::string Describe() const override { return product_.Describe(); }
  void AddWork(const PassShape& pass, Work& work) const override {
    product_.AddWork(pass.rows[rows()], work);
  }
  std::vector<const formats::GgufTensor*> Matrices() const override { return product_.Matrices(); }

 private:
  Product product_;
};

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

std::unique_ptr<Node> MakeMatMul(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
                                 std::string name, std::vector<MatMulOperand> operands,
                                 const Activations& in, ValueId out, cpu::Store store) {
  std::vector<ValueId> reads = in.ids();
  if (store == cpu::Store::kAdd) reads.push_back(out);
  return std::make_unique<MatMulNode>(
      std::move(name), std::move(reads), out,
      Product(kernels, float_gemm, std::move(operands), in, out, store));
}

std::unique_ptr<Node> MakeGatedUnit(const cpu::KernelTable& kernels,
                                    const cpu::FloatGemm& float_gemm, std::string name,
                                    std::vector<MatMulOperand> operands, const Activations& in,
                                    cpu::Activation activation, ValueId gate_up,
                                    const Activations& out) {
  KVANT_CHECK(operands.size() == 1 || operands.size() == 2);
  std::vector<ValueId> writes = out.ids();
  writes.push_back(gate_up);
  return std::make_unique<GatedUnitNode>(
      std::move(name), in.ids(), std::move(writes),
      Product(kernels, float_gemm, std::move(operands), in, gate_up, cpu::Store::kSet),
      GatedColumns(kernels, activation, gate_up, out));
}

}  // namespace kvant::graph
