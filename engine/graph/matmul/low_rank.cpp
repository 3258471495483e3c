#include "engine/graph/matmul/low_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/graph/cut.h"

namespace kvant::graph {
namespace {

constexpr int64_t kLowRankLanes = 16;

Status CheckMatrices(const Adapter& adapter, const LowRankMatrices& matrices) {
  const auto error = [&](std::string_view what) {
    return MakeError(ErrorCode::kInvalid, "adapter {}: tensor {}: {}", adapter.name,
                     matrices.tensor, what);
  };
  if (matrices.rank < 1) {
    return error(fmt::format("expected a rank of at least 1, found {}", matrices.rank));
  }
  const auto rank = static_cast<size_t>(matrices.rank);
  if (matrices.a.empty() || matrices.a.size() % rank != 0 || matrices.b.empty() ||
      matrices.b.size() % rank != 0) {
    return error(fmt::format("expected matrices of rank {}, found {} and {} values", rank,
                             matrices.a.size(), matrices.b.size()));
  }
  for (const std::vector<float>* values : {&matrices.a, &matrices.b}) {
    for (const float value : *values) {
      if (!std::isfinite(value)) return error(fmt::format("expected numbers, found {}", value));
    }
  }
  return {};
}

// Computes A x, one dot product for each row and number of all ranks.
class LowRankInputNode final : public Node {
 public:
  LowRankInputNode(std::string name, std::vector<LowRankPart> parts, const Activations& in,
                   ValueId low)
      : Node(std::move(name), {in.floats}, {low}), parts_(std::move(parts)), in_(in) {
    for (const LowRankPart& part : parts_) ranks_ += part.rank;
  }

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    if (pass.adapters.empty()) return;
    const ValueId low = writes().front();
    const int64_t rows_all = pass.RowCount(low);
    const Range units = OwnedRange(rows_all * ranks_, 1, member.index, member.count);
    for (int64_t unit = units.begin; unit < units.end;) {
      const int64_t row = unit / ranks_;
      const int64_t end = std::min(units.end, (row + 1) * ranks_);
      ComputeRow(pass, row, {unit - row * ranks_, end - row * ranks_});
      unit = end;
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], in_.cols * ranks_ / 8);
  }
  std::string Describe() const override {
    return fmt::format("low rank of {} adapter matrices [{} x {}]", parts_.size(), in_.cols,
                       ranks_);
  }

 private:
  void ComputeRow(const PassContext& pass, int64_t row, const Range& cols) const {
    const std::span<const AdapterUse> uses = pass.AdaptersOf(rows(), row);
    if (uses.empty()) return;
    const float* const x = pass.FloatRow(in_.floats, row);
    float* const out = pass.FloatRow(writes().front(), row);
    for (const LowRankPart& part : parts_) {
      const auto used = [&](const AdapterUse& use) { return use.adapter == part.adapter; };
      if (std::ranges::none_of(uses, used)) continue;
      const int64_t begin = std::max(cols.begin, part.low_col);
      const int64_t end = std::min(cols.end, part.low_col + part.rank);
      for (int64_t col = begin; col < end; ++col) {
        out[col] = LowRankDot(part.a + (col - part.low_col) * in_.cols, x, in_.cols);
      }
    }
  }

  std::vector<LowRankPart> parts_;
  Activations in_;
  int64_t ranks_ = 0;
};

}  // namespace

Result<AdapterSet> AdapterSet::Create(std::vector<std::shared_ptr<const Adapter>> adapters) {
  AdapterSet set;
  for (const std::shared_ptr<const Adapter>& adapter : adapters) {
    std::vector<Entry>& entries = set.entries_.emplace_back();
    for (const LowRankMatrices& matrices : adapter->matrices) {
      KVANT_TRY(CheckMatrices(*adapter, matrices));
      const auto same = [&](const Entry& entry) {
        return entry.matrices->tensor == matrices.tensor;
      };
      if (std::ranges::any_of(entries, same)) {
        return MakeError(ErrorCode::kInvalid, "adapter {}: tensor {}: expected once, found twice",
                         adapter->name, matrices.tensor);
      }
      entries.push_back({&matrices});
    }
  }
  set.adapters_ = std::move(adapters);
  return set;
}

Result<std::vector<LowRankPart>> AdapterSet::Find(const std::string& tensor, int64_t cols,
                                                  int64_t rows) const {
  std::vector<LowRankPart> parts;
  for (size_t i = 0; i < entries_.size(); ++i) {
    for (const Entry& entry : entries_[i]) {
      const LowRankMatrices& matrices = *entry.matrices;
      if (matrices.tensor != tensor) continue;
      const int64_t rank = matrices.rank;
      if (std::ssize(matrices.a) != rank * cols || std::ssize(matrices.b) != rows * rank) {
        return MakeError(ErrorCode::kInvalid,
                         "adapter {}: tensor {}: expected [{} x {}] and [{} x {}] as the model has "
                         "it, found {} and {} values",
                         adapters_[i]->name, tensor, cols, rank, rank, rows, matrices.a.size(),
                         matrices.b.size());
      }
      parts.push_back({.adapter = static_cast<int>(i),
                       .scale = adapters_[i]->scale,
                       .rank = rank,
                       .a = matrices.a.data(),
                       .b = matrices.b.data()});
    }
  }
  return parts;
}

void AdapterSet::Confirm(std::span<const LowRankPart> parts) {
  for (const LowRankPart& part : parts) {
    for (Entry& entry : entries_[static_cast<size_t>(part.adapter)]) {
      if (entry.matrices->a.data() == part.a) entry.confirmed = true;
    }
  }
}

Status AdapterSet::CheckConfirmed(const std::string& path) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    for (const Entry& entry : entries_[i]) {
      if (entry.confirmed) continue;
      return MakeError(ErrorCode::kNotSupported,
                       "adapter {}: tensor {}: {} has no matrix of this name that can be added to",
                       adapters_[i]->name, entry.matrices->tensor, path);
    }
  }
  return {};
}

float LowRankDot(const float* a, const float* b, int64_t count) {
  std::array<float, kLowRankLanes> sums = {};
  int64_t i = 0;
  for (; i + kLowRankLanes <= count; i += kLowRankLanes) {
    for (int64_t lane = 0; lane < kLowRankLanes; ++lane) {
      sums[static_cast<size_t>(lane)] += a[i + lane] * b[i + lane];
    }
  }
  for (int64_t lane = 0; i + lane < count; ++lane) {
    sums[static_cast<size_t>(lane)] += a[i + lane] * b[i + lane];
  }
  for (size_t width = kLowRankLanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0];
}

std::unique_ptr<Node> MakeLowRankInput(std::string name, std::vector<LowRankPart> parts,
                                       const Activations& in, ValueId low) {
  return std::make_unique<LowRankInputNode>(std::move(name), std::move(parts), in, low);
}

}  // namespace kvant::graph
