// Products of weight matrices with activations, in pieces: the part that the nodes of a product and
// of a gated unit share.
//
// The rows of all operands together are split over the team at their kernels' row tiles, by the
// bytes they take. With many tokens a tile is a panel, and where a team has more shares than there
// are panels, tokens are split, too. Float matrices with many tokens may go to a library, in tiles
// of weight rows whose borders depend on the matrix alone.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

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
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/plan.h"
#include "formats/gguf.h"
#include "quant/format.h"

namespace kvant::graph {

// Values of a tile of weight rows that is decoded for the library: 512 KiB of floats, which stay in
// a core's second-level cache.
inline constexpr int64_t kTileValues = 64 * 2048;
inline constexpr int64_t kTileRowsMin = 16;
inline constexpr int64_t kTileRowsMax = 256;

inline int64_t GemmTileRows(int64_t cols) {
  return std::clamp(kTileValues / cols / kTileRowsMin * kTileRowsMin, kTileRowsMin, kTileRowsMax);
}

// Products of weight matrices with activations. The arithmetic follows from the formats of the
// matrices and from whether there are few tokens or many (cpu::TokenCountOf).
class Product {
 public:
  Product(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
          std::vector<MatMulOperand> operands, const Activations& in, ValueId out, cpu::Store store)
      : table_(kernels),
        float_gemm_(float_gemm),
        operands_(std::move(operands)),
        in_(in),
        out_(out),
        store_(store) {
    for (const MatMulOperand& operand : operands_) {
      KVANT_CHECK(operand.weight->dims[0] == in.cols);
      KVANT_CHECK(operand.scale == 1 || store == cpu::Store::kSet);
      const auto format = static_cast<size_t>(quant::FormatIndex(*operand.weight->format));
      kernels_.push_back(&kernels.matmul[format]);
      decode_.push_back(kernels.decode[format]);
    }
  }

  size_t operands() const { return operands_.size(); }
  ValueId out() const { return out_; }
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
    const MatMulOperand& operand = operands_[piece.operand];
    const bool adapted = !operand.adapters.empty() && !pass.adapters.empty();
    if (operand.scale == 1 && operand.bias.empty() && !adapted) {
      return Multiply(pass, member, node, piece, nullptr);
    }
    RunThen(pass, member, node, piece, Outputs::kKept, [](int64_t, const Range&, float*) {});
  }

  // Whether anybody reads the product as it is.
  enum class Outputs : uint8_t { kKept, kDiscarded };

  // Computes a piece and calls then(token, rows, products) for stretches of its rows, which begin
  // at row tiles.
  template <class Then>
  void RunThen(const PassContext& pass, const ThreadPool::Member& member, const Node& node,
               const Piece& piece, Outputs outputs, const Then& then) const {
    const MatMulOperand& operand = operands_[piece.operand];
    const bool adapted = !operand.adapters.empty() && !pass.adapters.empty();
    const auto finish = [&](int64_t token, int64_t row, int64_t count, float* products) {
      const Range rows = {row, row + count};
      Finish(operand, rows, products);
      if (adapted) AddLowRank(pass, operand, piece.tokens.begin + token, rows, products);
      then(piece.tokens.begin + token, rows, products);
    };
    if (Many(pass) && !UsesLibrary(piece.operand) && kernels_[piece.operand]->finishes &&
        (kernels_[piece.operand]->activation == cpu::ActivationKind::kInt8 ||
         UsesPanels(piece.operand))) {
      const cpu::MatMulFinish after = FinishOf(outputs, finish);
      return Multiply(pass, member, node, piece, &after);
    }
    Multiply(pass, member, node, piece, nullptr);
    for (int64_t token = 0; token < piece.tokens.end - piece.tokens.begin; ++token) {
      finish(token, piece.rows.begin, piece.rows.end - piece.rows.begin,
             pass.FloatRow(out_, piece.tokens.begin + token) + operand.out_col + piece.rows.begin);
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
      const MatMulOperand& one = operands_[first.operand];
      const MatMulOperand& other = operands_[second.operand];
      Finish(one, {row, row + count}, products);
      Finish(other, {second_row, second_row + count}, second_products);
      if (!pass.adapters.empty()) {
        const int64_t of_pass = first.tokens.begin + token;
        AddLowRank(pass, one, of_pass, {row, row + count}, products);
        AddLowRank(pass, other, of_pass, {second_row, second_row + count}, second_products);
      }
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

  // The value that the operands' adapters read beside the activations, if there are any.
  std::vector<ValueId> LowRanks() const {
    for (const MatMulOperand& operand : operands_) {
      if (operand.low != kNoValue) return {operand.low};
    }
    return {};
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
  void Multiply(const PassContext& pass, const ThreadPool::Member& member, const Node& node,
                const Piece& piece, const cpu::MatMulFinish* finish) const {
    const size_t operand = piece.operand;
    if (piece.rows.begin == piece.rows.end) return;
    const std::span<std::byte> scratch = pass.Scratch(member);
    cpu::ArrangedActivations& arranged = pass.Arranged(member, node);
    if (kernels_[operand]->activation != cpu::ActivationKind::kInt8) {
      arranged = {};
      return MultiplyFloats(pass, piece, scratch, finish);
    }
    cpu::MatMulTask task = KernelTask(pass, piece, scratch);
    task.arranged = &arranged;
    task.finish = finish;
    kernels_[operand]->run(task);
  }

  // Has a product call finish(token, row, count, products), as cpu::MatMulFinish says; the function
  // must outlive it.
  template <class Function>
  static cpu::MatMulFinish FinishOf(Outputs outputs, const Function& finish) {
    return {[](const void* context, int64_t token, int64_t row, int64_t count, float* out) {
              (*static_cast<const Function*>(context))(token, row, count, out);
            },
            &finish, outputs == Outputs::kDiscarded};
  }

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

  void MultiplyFloats(const PassContext& pass, const Piece& piece, std::span<std::byte> scratch,
                      const cpu::MatMulFinish* finish) const {
    const size_t i = piece.operand;
    if (Many(pass) && UsesLibrary(i)) return RunLibrary(pass, i, piece.rows, scratch);
    cpu::MatMulTask task = KernelTask(pass, piece, scratch);
    task.finish = finish;
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
  void Finish(const MatMulOperand& operand, const Range& rows, float* products) const {
    const int64_t count = rows.end - rows.begin;
    ScaleAndAddBias({products, static_cast<size_t>(count)}, operand.scale, nullptr);
    if (operand.bias.empty()) return;
    table_.add(products, operand.bias.data() + rows.begin, count, products);
  }

  // Adds the additions of the token's adapters to the products of one token with `rows`.
  void AddLowRank(const PassContext& pass, const MatMulOperand& operand, int64_t token,
                  const Range& rows, float* products) const {
    if (operand.adapters.empty()) return;
    for (const AdapterUse& use : pass.AdaptersOf(pass.ValueOf(out_).rows, token)) {
      for (const LowRankPart& part : operand.adapters) {
        if (part.adapter != use.adapter) continue;
        const float* const low = pass.FloatRow(operand.low, token) + part.low_col;
        const float scale = use.scale * part.scale;
        for (int64_t row = rows.begin; row < rows.end; ++row) {
          products[row - rows.begin] +=
              scale * LowRankDot(part.b + row * part.rank, low, part.rank);
        }
      }
    }
  }

  const cpu::KernelTable& table_;
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

}  // namespace kvant::graph
