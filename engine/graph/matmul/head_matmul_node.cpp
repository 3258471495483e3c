// Products of every head's vector with a matrix of its own, in passes whose latent attention is
// absorbed. The work is cut into tiles of weight rows of one head each.
#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/table.h"
#include "engine/graph/attention/latent_nodes.h"
#include "engine/graph/cut.h"
#include "engine/graph/matmul/head_matrices.h"
#include "quant/format.h"

namespace kvant::graph {
namespace {

// Weight rows of a tile, where the kernel's own tile divides it.
constexpr int64_t kHeadTileRows = 32;

class HeadMatMulNode final : public Node {
 public:
  HeadMatMulNode(std::string name, const LatentShape& shape, HeadProduct product,
                 const HeadColumns& in, ValueId records, const HeadColumns& out)
      : Node(std::move(name), {product.reads_int8() ? records : in.value}, {out.value}),
        shape_(shape),
        product_(product),
        in_(in),
        records_(records),
        out_(out) {
    KVANT_CHECK(!product.reads_int8() || records != kNoValue);
  }

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (FormOf(shape_, pass) == LatentForm::kExpanded) return;
    const int64_t rows = product_.matrices().rows;
    const int64_t tile = TileRows();
    const int64_t tiles = Tiles();
    const Range owned = OwnedRange(tiles * shape_.heads, 1, member.index, member.count);
    for (int64_t i = owned.begin; i < owned.end;) {
      const int64_t head = i / tiles;
      const int64_t end = std::min(owned.end, (head + 1) * tiles);
      const Range weight_rows = {(i - head * tiles) * tile,
                                 std::min(rows, (end - head * tiles) * tile)};
      product_.Run(head, weight_rows, RowsOf(pass, head), pass.Scratch(member));
      i = end;
    }
  }

  size_t ScratchBytes(const PassLimits&) const override { return product_.ScratchBytes(); }

  int64_t UnitsOf(const PassShape&) const override { return shape_.heads * Tiles(); }
  void VisitOwnedRows(const ShareNumber& share, const RowVisit& visit) const override {
    const HeadMatrices& matrices = product_.matrices();
    const Range owned = OwnedRange(shape_.heads * Tiles(), 1, static_cast<int>(share.index),
                                   static_cast<int>(share.count));
    for (int64_t i = owned.begin; i < owned.end; ++i) {
      const int64_t first = matrices.first + i / Tiles() * matrices.stride;
      const int64_t row = i % Tiles() * TileRows();
      visit(*matrices.tensor, {first + row, first + std::min(matrices.rows, row + TileRows())});
    }
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    double tokens = 0;
    for (const PassShape::Part& part : pass.parts) {
      if (FormOf(shape_, pass, part) == LatentForm::kAbsorbed) {
        tokens += static_cast<double>(part.rows);
      }
    }
    if (tokens > 0) product_.AddWork(shape_.heads, tokens, work);
  }
  std::vector<const formats::GgufTensor*> Matrices() const override {
    return {product_.matrices().tensor};
  }
  std::string Describe() const override {
    return fmt::format("matmul of {} heads {}", shape_.heads, product_.Describe());
  }

 private:
  int64_t TileRows() const { return std::lcm(product_.row_tile(), kHeadTileRows); }
  int64_t Tiles() const {  // of a head
    return (product_.matrices().rows + TileRows() - 1) / TileRows();
  }

  HeadProduct::Rows RowsOf(const PassContext& pass, int64_t head) const {
    HeadProduct::Rows rows;
    if (product_.reads_int8()) {
      const auto bytes = static_cast<int64_t>(pass.RowBytes(records_));
      rows.in = pass.Bytes(records_) + head * bytes;
      rows.in_stride = shape_.heads * bytes;
    } else {
      rows.in = reinterpret_cast<const std::byte*>(pass.Floats(in_.value) + in_.first +
                                                   head * in_.stride);
      rows.in_stride = static_cast<int64_t>(pass.RowBytes(in_.value));
    }
    rows.count = pass.RowCount(out_.value);
    rows.tokens = pass.TokenCount(out_.value);
    rows.out = pass.Floats(out_.value) + out_.first + head * out_.stride;
    rows.out_stride = pass.RowFloats(out_.value);
    return rows;
  }

  LatentShape shape_;
  HeadProduct product_;
  HeadColumns in_;
  ValueId records_;
  HeadColumns out_;
};

}  // namespace

const std::byte* HeadMatrices::Of(int64_t head) const {
  return tensor->data + (first + head * stride) * tensor->row_bytes();
}

HeadProduct::HeadProduct(const cpu::KernelTable& kernels, const cpu::FloatGemm& float_gemm,
                         const HeadMatrices& matrices)
    : matrices_(matrices),
      kernel_(&kernels.matmul[static_cast<size_t>(quant::FormatIndex(*matrices.tensor->format))]),
      panels_((float_gemm.panels || float_gemm.run != nullptr) && kernel_->run_many != nullptr) {}

void HeadProduct::Run(int64_t head, const Range& weight_rows, const Rows& rows,
                      std::span<std::byte> scratch) const {
  if (weight_rows.begin >= weight_rows.end) return;
  cpu::MatMulTask task;
  task.format = matrices_.tensor->format;
  task.weights = matrices_.Of(head);
  task.row_bytes = matrices_.tensor->row_bytes();
  task.cols = matrices_.cols();
  task.row_begin = weight_rows.begin;
  task.row_end = weight_rows.end;
  task.activations = rows.in;
  task.activation_stride = rows.in_stride;
  task.tokens = rows.count;
  task.out = rows.out;
  task.out_stride = rows.out_stride;
  task.store = cpu::Store::kSet;
  task.scratch = scratch;
  task.count = rows.tokens;
  const bool many = panels_ && !reads_int8() && rows.tokens == cpu::TokenCount::kMany;
  many ? kernel_->run_many(task) : kernel_->run(task);
}

void HeadProduct::AddWork(int64_t heads, double tokens, Work& work) const {
  const formats::GgufTensor& tensor = *matrices_.tensor;
  const double part =
      static_cast<double>(heads * matrices_.rows) / static_cast<double>(tensor.rows());
  work.AddProducts(tensor, part, part * tokens);
}

std::string HeadProduct::Describe() const {
  return fmt::format("{} [{} x {}] {}{}", matrices_.tensor->name, matrices_.cols(), matrices_.rows,
                     kernel_->name,
                     panels_ ? fmt::format(" (>= {} rows: panels)", cpu::kManyTokens) : "");
}

std::unique_ptr<Node> MakeHeadMatMul(const cpu::KernelTable& kernels,
                                     const cpu::FloatGemm& float_gemm, std::string name,
                                     const LatentShape& shape, const HeadMatrices& matrices,
                                     const HeadColumns& in, ValueId records,
                                     const HeadColumns& out) {
  return std::make_unique<HeadMatMulNode>(
      std::move(name), shape, HeadProduct(kernels, float_gemm, matrices), in, records, out);
}

}  // namespace kvant::graph
