#include "engine/graph/recurrent/rwkv_nodes.h"

#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "cpu/kernels/table.h"
#include "engine/graph/recurrent/part_states.h"
#include "engine/graph/rowwise/norm.h"

namespace kvant::graph {
namespace {

class TokenMixNode final : public Node {
 public:
  TokenMixNode(const cpu::KernelTable& kernels, std::string name, TokenMix mix, ValueId in)
      : Node(std::move(name), Reads(mix, in), Writes(mix)),
        kernels_(kernels),
        mix_(std::move(mix)),
        in_(in) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(in_), 1, member.index, member.count);
    PartStates part;
    int64_t number = 0;
    for (int64_t row = range.begin; row < range.end; ++row) {
      while (row >= part.first_row + part.rows) {
        part = PartStatesOf(pass, mix_.state, number++);
      }
      const float* before = row > part.first_row ? pass.FloatRow(in_, row - 1) : part.before;
      MixRow(pass, member, row, before);
      const bool last = row + 1 == part.first_row + part.rows;
      if (last && part.after != nullptr && mix_.keeps == TokenMix::Keeps::kLastRow) {
        std::memcpy(part.after, pass.FloatRow(in_, row),
                    static_cast<size_t>(mix_.cols) * sizeof(float));
      }
    }
    if (TailFloats() == 0) return;
    KeepTails(pass, mix_.state, tail_offset(), member, [&](int64_t row, float* kept) {
      std::memcpy(kept, pass.FloatRow(in_, row), static_cast<size_t>(mix_.cols) * sizeof(float));
    });
  }

  int64_t TailFloats() const override {
    return mix_.keeps == TokenMix::Keeps::kLastRow ? mix_.cols : 0;
  }

  void ScanAgain(const PassContext& pass, const TailRange& range,
                 const ThreadPool::Member& member) const override {
    if (member.index > 0 || TailFloats() == 0) return;
    std::memcpy(PartStatesOf(pass, mix_.state, 0).after,
                range.tail.Row(range.end - 1) + tail_offset(),
                static_cast<size_t>(mix_.cols) * sizeof(float));
  }

  size_t ScratchBytes(const PassLimits&) const override {
    return static_cast<size_t>(mix_.cols) * sizeof(float);
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 2 * std::ssize(mix_.targets) * mix_.cols);
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    work.cache_bytes +=
        static_cast<double>(pass.parts.size()) * static_cast<double>(mix_.cols) * sizeof(float);
  }

  std::string Describe() const override {
    return fmt::format("{} mixes with the row before {} [{}]", mix_.targets.size(), kernels_.isa,
                       mix_.cols);
  }

 private:
  static std::vector<ValueId> Reads(const TokenMix& mix, ValueId in) {
    std::vector<ValueId> reads = {in};
    if (mix.deltas != kNoValue) reads.push_back(mix.deltas);
    return reads;
  }

  static std::vector<ValueId> Writes(const TokenMix& mix) {
    std::vector<ValueId> writes;
    for (const TokenMix::Target& target : mix.targets) {
      for (const ValueId id : target.out.ids()) writes.push_back(id);
    }
    return writes;
  }

  // `before`: null for zeros.
  void MixRow(const PassContext& pass, const ThreadPool::Member& member, int64_t row,
              const float* before) const {
    const float* in = pass.FloatRow(in_, row);
    for (const TokenMix::Target& target : mix_.targets) {
      float* out = target.out.floats != kNoValue
                       ? pass.FloatRow(target.out.floats, row)
                       : reinterpret_cast<float*>(pass.Scratch(member).data());
      const float* factors = target.factors.data();
      if (mix_.deltas != kNoValue) {
        kernels_.add(factors, pass.FloatRow(mix_.deltas, row) + target.delta_col, mix_.cols, out);
        factors = out;
      }
      for (int64_t i = 0; i < mix_.cols; ++i) {
        const float difference = (before != nullptr ? before[i] : 0.0f) - in[i];
        out[i] = in[i] + factors[i] * difference;
      }
      if (target.out.int8 == kNoValue) continue;
      pass.Quantize(kernels_, out, mix_.cols, {target.out.int8, row, mix_.cols, 0});
    }
  }

  const cpu::KernelTable& kernels_;
  TokenMix mix_;
  ValueId in_;
};

class Wkv7InputsNode final : public Node {
 public:
  Wkv7InputsNode(const cpu::KernelTable& kernels, std::string name, Wkv7Inputs inputs)
      : Node(std::move(name), Reads(inputs), Writes(inputs)),
        kernels_(kernels),
        inputs_(std::move(inputs)) {
    // x / sqrt(sum of squares + e) is the RMS norm with e / n and weights 1 / sqrt(n).
    const auto dim = static_cast<float>(inputs_.head_dim);
    length_ = {NormKind::kRms, kLengthEpsilon / dim,
               std::vector<float>(static_cast<size_t>(inputs_.head_dim), 1.0f / std::sqrt(dim))};
  }

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(inputs_.rkv), 1, member.index, member.count);
    const int64_t cols = inputs_.heads * inputs_.head_dim;
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* key = pass.FloatRow(inputs_.rkv, row) + cols;
      SetErasers(key, pass.FloatRow(inputs_.rates, row), pass.FloatRow(inputs_.erasers, row));
      MixValues(pass, row, key + cols);
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 6 * inputs_.heads * inputs_.head_dim);
  }

  std::string Describe() const override {
    return fmt::format("keys, erasers and values {} [{} x {}]", kernels_.isa, inputs_.heads,
                       inputs_.head_dim);
  }

 private:
  static constexpr float kLengthEpsilon = 1e-24f;  // of the square

  static std::vector<ValueId> Reads(const Wkv7Inputs& inputs) {
    std::vector<ValueId> reads = {inputs.rkv, inputs.rates};
    if (inputs.mixes != kNoValue) reads.insert(reads.end(), {inputs.mixes, inputs.first_values});
    return reads;
  }

  static std::vector<ValueId> Writes(const Wkv7Inputs& inputs) {
    std::vector<ValueId> writes = {inputs.rkv, inputs.erasers};
    if (inputs.mixes == kNoValue) writes.push_back(inputs.first_values);
    return writes;
  }

  void SetErasers(float* key, const float* rates, float* erasers) const {
    const int64_t cols = inputs_.heads * inputs_.head_dim;
    float* writers = erasers + cols;
    for (int64_t i = 0; i < cols; ++i) writers[i] = key[i] * inputs_.erased[static_cast<size_t>(i)];
    for (int64_t first = 0; first < cols; first += inputs_.head_dim) {
      ApplyNorm(kernels_, length_, 0, inputs_.head_dim, writers + first, writers + first);
    }
    for (int64_t i = 0; i < cols; ++i) {
      erasers[i] = -writers[i];
      writers[i] *= rates[i];
      key[i] *= 1.0f + inputs_.kept[static_cast<size_t>(i)] * (rates[i] - 1.0f);
    }
  }

  void MixValues(const PassContext& pass, int64_t row, float* value) const {
    const int64_t cols = inputs_.heads * inputs_.head_dim;
    float* first = pass.FloatRow(inputs_.first_values, row);
    if (inputs_.mixes == kNoValue) {
      std::memcpy(first, value, static_cast<size_t>(cols) * sizeof(float));
      return;
    }
    const float* mixes = pass.FloatRow(inputs_.mixes, row);
    for (int64_t i = 0; i < cols; ++i) value[i] += mixes[i] * (first[i] - value[i]);
  }

  const cpu::KernelTable& kernels_;
  Wkv7Inputs inputs_;
  Norm length_;
};

class Wkv7ResultNode final : public Node {
 public:
  Wkv7ResultNode(const cpu::KernelTable& kernels, std::string name, Wkv7Result result,
                 const Activations& out)
      : Node(std::move(name), {result.rkv, result.gates, result.in}, Writes(result, out)),
        kernels_(kernels),
        result_(std::move(result)),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const Range range = OwnedRange(pass.RowCount(result_.in), 1, member.index, member.count);
    for (int64_t row = range.begin; row < range.end; ++row) {
      float* in = pass.FloatRow(result_.in, row);
      AddBonus(pass.FloatRow(result_.rkv, row), in);
      float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) : in;
      const float* gates = pass.FloatRow(result_.gates, row);
      for (int64_t i = 0; i < out_.cols; ++i) out[i] = in[i] * gates[i];
      if (out_.int8 == kNoValue) continue;
      pass.Quantize(kernels_, out, out_.cols, {out_.int8, row, out_.cols, 0});
    }
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 4 * out_.cols);
  }

  std::string Describe() const override {
    return fmt::format("(+ bonus of {} heads) * gates{} {} [{}]", result_.heads,
                       out_.int8 != kNoValue ? " + quantize int8" : "", kernels_.isa, out_.cols);
  }

 private:
  // A sum is kept in this many lanes, whatever the width of vectors.
  static constexpr int64_t kBonusLanes = 16;

  static std::vector<ValueId> Writes(const Wkv7Result& result, const Activations& out) {
    std::vector<ValueId> writes = out.ids();
    writes.push_back(result.in);
    return writes;
  }

  void AddBonus(const float* query, float* out) const {
    const int64_t cols = result_.heads * result_.head_dim;
    const float* key = query + cols;
    const float* value = key + cols;
    for (int64_t first = 0; first < cols; first += result_.head_dim) {
      std::array<float, kBonusLanes> lanes = {};
      for (int64_t i = 0; i < result_.head_dim; ++i) {
        const int64_t col = first + i;
        lanes[static_cast<size_t>(i % kBonusLanes)] +=
            query[col] * key[col] * result_.weights[static_cast<size_t>(col)];
      }
      float bonus = 0;
      for (const float lane : lanes) bonus += lane;
      for (int64_t i = first; i < first + result_.head_dim; ++i) out[i] += bonus * value[i];
    }
  }

  const cpu::KernelTable& kernels_;
  Wkv7Result result_;
  Activations out_;
};

}  // namespace

std::unique_ptr<Node> MakeTokenMix(const cpu::KernelTable& kernels, std::string name, TokenMix mix,
                                   ValueId in) {
  return std::make_unique<TokenMixNode>(kernels, std::move(name), std::move(mix), in);
}

std::unique_ptr<Node> MakeWkv7Inputs(const cpu::KernelTable& kernels, std::string name,
                                     Wkv7Inputs inputs) {
  KVANT_CHECK(std::ssize(inputs.erased) == inputs.heads * inputs.head_dim);
  return std::make_unique<Wkv7InputsNode>(kernels, std::move(name), std::move(inputs));
}

std::unique_ptr<Node> MakeWkv7Result(const cpu::KernelTable& kernels, std::string name,
                                     Wkv7Result result, const Activations& out) {
  KVANT_CHECK(std::ssize(result.weights) == out.cols);
  return std::make_unique<Wkv7ResultNode>(kernels, std::move(name), std::move(result), out);
}

}  // namespace kvant::graph
