// Sorts the rows of tokens by expert, and moves the rows there and back. The loops over the experts
// of one token and over one row run once per token and have no kernel.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/table.h"
#include "engine/graph/matmul/expert_nodes.h"
#include "engine/graph/matmul/route_values.h"
#include "engine/graph/rowwise/observer.h"

namespace kvant::graph {
namespace {

// Floats of a cache line.
constexpr int64_t kLineFloats = 16;

// Columns that are summed over all experts of a token before the next ones.
constexpr int64_t kSumColumns = 256;

// Counting sort: rows of an expert keep the order of the tokens.
class SortByExpertNode final : public Node {
 public:
  SortByExpertNode(std::string name, const RoutedRows& rows)
      : Node(std::move(name), {rows.chosen}, {rows.places, rows.order, rows.offsets}),
        routed_(rows) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (member.index != 0) return;
    const int64_t tokens = pass.RowCount(routed_.chosen);
    int32_t* offsets = Integers(pass, routed_.offsets);
    std::fill(offsets, offsets + routed_.experts + 1, 0);
    for (int64_t token = 0; token < tokens; ++token) {
      const int32_t* chosen = IntegerRow(pass, routed_.chosen, token);
      for (int64_t rank = 0; rank < routed_.used; ++rank) ++offsets[chosen[rank] + 1];
    }
    for (int64_t expert = 0; expert < routed_.experts; ++expert) {
      offsets[expert + 1] += offsets[expert];
    }
    int32_t* next = reinterpret_cast<int32_t*>(pass.Scratch(member).data());
    std::copy(offsets, offsets + routed_.experts, next);
    int32_t* order = Integers(pass, routed_.order);
    for (int64_t token = 0; token < tokens; ++token) {
      const int32_t* chosen = IntegerRow(pass, routed_.chosen, token);
      int32_t* places = IntegerRow(pass, routed_.places, token);
      for (int64_t rank = 0; rank < routed_.used; ++rank) {
        places[rank] = next[chosen[rank]]++;
        order[places[rank]] = static_cast<int32_t>(token);
      }
    }
  }

  size_t ScratchBytes(const PassLimits&) const override {
    return static_cast<size_t>(routed_.experts) * sizeof(int32_t);
  }
  Width WidthOf(const RowCounts&) const override { return Width::kOne; }
  std::string Describe() const override {
    return fmt::format("rows of {} experts, one after the other", routed_.experts);
  }

 private:
  RoutedRows routed_;
};

class GatherRowsNode final : public Node {
 public:
  GatherRowsNode(const cpu::KernelTable& kernels, std::string name, const RoutedRows& rows,
                 const Activations& in, const Activations& out)
      : Node(std::move(name), Reads(rows, in, out), out.ids()),
        kernels_(kernels),
        routed_(rows),
        in_(in),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int32_t* order = Integers(pass, routed_.order);
    const int64_t rows = pass.RowCount(routed_.chosen) * routed_.used;
    const Range range = OwnedRange(rows, 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      if (out_.floats != kNoValue) Copy(pass, in_.floats, order[row], out_.floats, row);
      if (out_.int8 != kNoValue) Copy(pass, in_.int8, order[row], out_.int8, row);
      if (routed_.weighs == Weighs::kInput) Weigh(pass, order[row], row);
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], routed_.used * in_.cols);
  }

  std::string Describe() const override {
    return fmt::format("rows of tokens{} in the order of experts [{}]",
                       routed_.weighs == Weighs::kInput ? " * weight" : "", in_.cols);
  }

 private:
  static std::vector<ValueId> Reads(const RoutedRows& rows, const Activations& in,
                                    const Activations& out) {
    std::vector<ValueId> reads = {rows.order};
    if (rows.weighs == Weighs::kInput) {
      reads.push_back(rows.weights);
      reads.push_back(rows.places);
    }
    if (out.floats != kNoValue) reads.push_back(in.floats);
    if (out.int8 != kNoValue) reads.push_back(in.int8);
    for (const ValueId id : reads) KVANT_CHECK(id != kNoValue);
    return reads;
  }

  static void Copy(const PassContext& pass, ValueId from, int64_t from_row, ValueId to,
                   int64_t to_row) {
    const size_t bytes = pass.RowBytes(to);
    std::memcpy(pass.Bytes(to) + static_cast<size_t>(to_row) * bytes,
                pass.Bytes(from) + static_cast<size_t>(from_row) * bytes, bytes);
  }

  // Multiplies a routed row by the weight of its expert.
  void Weigh(const PassContext& pass, int64_t token, int64_t row) const {
    const int32_t* places = IntegerRow(pass, routed_.places, token);
    const auto rank = std::find(places, places + routed_.used, row) - places;
    const float weight = pass.FloatRow(routed_.weights, token)[rank];
    const auto multiply = [weight](float* values, int64_t count) {
      for (int64_t i = 0; i < count; ++i) values[i] *= weight;
    };
    if (out_.floats != kNoValue) multiply(pass.FloatRow(out_.floats, row), out_.cols);
    if (out_.int8 == kNoValue) return;
    cpu::MultiplyActivations(pass.RecordAt(out_.int8, row, out_.cols, 0),
                             kernels_.FormFor(pass.TokenCount(out_.int8)), out_.cols, weight);
  }

  const cpu::KernelTable& kernels_;
  RoutedRows routed_;
  Activations in_;
  Activations out_;
};

class SumExpertsNode final : public Node {
 public:
  SumExpertsNode(std::string name, std::vector<ValueId> reads, const RoutedRows& rows,
                 ValueId products, const SharedProduct& shared, int64_t cols, ValueId out,
                 cpu::Store store)
      : Node(std::move(name), std::move(reads), {out}),
        routed_(rows),
        products_(products),
        shared_(shared),
        cols_(cols),
        out_(out),
        store_(store) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(out_), 1, member.index, member.count);
    for (int64_t token = range.begin; token < range.end; ++token) Sum(pass, token);
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], routed_.used * cols_);
  }

  std::string Describe() const override {
    return fmt::format("{} {}sum of {} experts{} [{}]", store_ == cpu::Store::kAdd ? "+=" : "=",
                       routed_.weighs == Weighs::kResult ? "weighted " : "", routed_.used,
                       shared_.product == kNoValue ? ""
                       : shared_.gate == kNoValue  ? " and the shared one"
                                                   : " and sigmoid(gate) * the shared one",
                       cols_);
  }

 private:
  void Sum(const PassContext& pass, int64_t token) const {
    const float* weights = pass.FloatRow(routed_.weights, token);
    const int32_t* places = IntegerRow(pass, routed_.places, token);
    float shared_weight = 1;
    if (shared_.gate != kNoValue) {
      shared_weight = Sigmoid(pass.FloatRow(shared_.gate, token)[shared_.gate_col]);
    }
    float* out = pass.FloatRow(out_, token);
    for (int64_t begin = 0; begin < cols_; begin += kSumColumns) {
      const int64_t count = std::min(kSumColumns, cols_ - begin);
      std::array<float, kSumColumns> sums = {};
      for (int64_t rank = 0; rank < routed_.used; ++rank) {
        const float* values = pass.FloatRow(products_, places[rank]) + begin;
        const float weight = routed_.weighs == Weighs::kResult ? weights[rank] : 1.0f;
        AddTimes(values, weight, count, sums.data());
      }
      if (shared_.product != kNoValue) {
        AddTimes(pass.FloatRow(shared_.product, token) + begin, shared_weight, count, sums.data());
      }
      for (int64_t i = 0; i < count; ++i) {
        const float sum = sums[static_cast<size_t>(i)];
        out[begin + i] = store_ == cpu::Store::kAdd ? out[begin + i] + sum : sum;
      }
    }
  }

  static void AddTimes(const float* values, float weight, int64_t count, float* sums) {
    for (int64_t i = 0; i < count; ++i) sums[i] += weight * values[i];
  }

  RoutedRows routed_;
  ValueId products_;
  SharedProduct shared_;
  int64_t cols_;
  ValueId out_;
  cpu::Store store_;
};

class ObserveExpertsNode final : public Node {
 public:
  ObserveExpertsNode(MatMulObserver& observer, std::string name, const RoutedRows& rows,
                     const Activations& in)
      : Node(std::move(name), {in.floats, rows.offsets}, {}),
        observer_(observer),
        routed_(rows),
        in_(in) {
    KVANT_CHECK(in.floats != kNoValue && in.observed.has_value());
  }

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range columns = OwnedRange(in_.cols, kLineFloats, member.index, member.count);
    if (columns.begin == columns.end) return;
    const std::span<const int32_t> offsets(Integers(pass, routed_.offsets),
                                           static_cast<size_t>(routed_.experts + 1));
    observer_.ObserveExperts(*in_.observed, pass.Floats(in_.floats), pass.RowFloats(in_.floats),
                             offsets, columns);
  }

  std::string Describe() const override { return fmt::format("observe experts [{}]", in_.cols); }

 private:
  MatMulObserver& observer_;
  RoutedRows routed_;
  Activations in_;
};

}  // namespace

RoutedRows NewRoutedRows(Plan& plan, const std::string& name, int64_t experts, int64_t used) {
  const auto add = [&](const char* suffix, RowSpace rows, int64_t count) {
    return plan.AddValue(name + suffix, rows, count, cpu::ActivationKind::kFloat32);
  };
  return {.experts = experts,
          .used = used,
          .chosen = add(".chosen", RowSpace::kPass, used),
          .weights = add(".weights", RowSpace::kPass, used),
          .places = add(".places", RowSpace::kPass, used),
          .order = add(".order", RowSpace::kPass, used),
          .offsets = add(".offsets", RowSpace::kOnce, experts + 1)};
}

std::unique_ptr<Node> MakeSortByExpert(std::string name, const RoutedRows& rows) {
  return std::make_unique<SortByExpertNode>(std::move(name), rows);
}

std::unique_ptr<Node> MakeGatherRows(const cpu::KernelTable& kernels, std::string name,
                                     const RoutedRows& rows, const Activations& in,
                                     const Activations& out) {
  return std::make_unique<GatherRowsNode>(kernels, std::move(name), rows, in, out);
}

std::unique_ptr<Node> MakeSumExperts(std::string name, const RoutedRows& rows, ValueId products,
                                     const SharedProduct& shared, int64_t cols, ValueId out,
                                     cpu::Store store) {
  std::vector<ValueId> reads = {rows.weights, rows.places, products};
  if (shared.product != kNoValue) reads.push_back(shared.product);
  if (shared.gate != kNoValue) reads.push_back(shared.gate);
  if (store == cpu::Store::kAdd) reads.push_back(out);
  return std::make_unique<SumExpertsNode>(std::move(name), std::move(reads), rows, products, shared,
                                          cols, out, store);
}

std::unique_ptr<Node> MakeObserveExperts(MatMulObserver& observer, std::string name,
                                         const RoutedRows& rows, const Activations& in) {
  return std::make_unique<ObserveExpertsNode>(observer, std::move(name), rows, in);
}

double ExpectedExperts(int64_t experts, int64_t used, int64_t tokens) {
  const auto count = static_cast<double>(experts);
  const double unused = std::pow(1.0 - static_cast<double>(used) / count, tokens);
  return count * (1.0 - unused);
}

}  // namespace kvant::graph
