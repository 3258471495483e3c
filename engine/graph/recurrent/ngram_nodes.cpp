#include "engine/graph/recurrent/ngram_nodes.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/check.h"
#include "base/mapped_file.h"
#include "cpu/kernels/table.h"
#include "engine/graph/recurrent/part_states.h"

namespace kvant::graph {

void NgramHash::Find(const int32_t* tokens, int64_t* rows) const {
  uint64_t mixed = static_cast<uint64_t>(tokens[0]) * multipliers[0];
  size_t row = 0;
  for (size_t back = 1; back < static_cast<size_t>(size); ++back) {
    mixed ^= static_cast<uint64_t>(tokens[back]) * multipliers[back];
    for (int64_t head = 0; head < heads; ++head, ++row) {
      rows[row] = static_cast<int64_t>(offsets[row] + mixed % counts[row]);
    }
  }
}

namespace {

// The tokens of a part, and those before it.
class Tokens {
 public:
  Tokens(const NgramHash& hash, const PassContext& pass, const PartStates& part)
      : hash_(hash), pass_(pass), part_(part) {}

  // The token of row `row` of the part, which may lie before it; `eos` where there is none.
  int32_t At(int64_t row) const {
    if (row >= 0) {
      const int32_t token = pass_.tokens[static_cast<size_t>(part_.first_row + row)];
      return token < hash_.vocab ? token : hash_.other;
    }
    const int64_t kept = hash_.size - 1 + row;
    return part_.before == nullptr || kept < 0 ? hash_.eos
                                               : static_cast<int32_t>(part_.before[kept]);
  }

  // t[0] to t[size - 1] of a row.
  void Gather(int64_t row, int32_t* tokens) const {
    tokens[0] = At(row);
    bool ended = false;
    for (int64_t back = 1; back < hash_.size; ++back) {
      tokens[back] = ended ? hash_.eos : At(row - back);
      ended = ended || tokens[back] == hash_.eos;
    }
  }

 private:
  const NgramHash& hash_;
  const PassContext& pass_;
  const PartStates& part_;
};

class NgramRowsNode final : public Node {
 public:
  NgramRowsNode(const cpu::KernelTable& kernels, std::string name, NgramHash hash,
                const formats::GgufTensor& table, StateSlice state, const Activations& out)
      : Node(std::move(name), {}, out.ids()),
        kernels_(kernels),
        hash_(std::move(hash)),
        table_(table),
        state_(state),
        out_(out) {}

  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const ScratchArrays scratch = Place(pass.Scratch(member).data());
    const Range range = OwnedRange(RowCount(pass), 1, member.index, member.count);
    PartStates part;
    int64_t number = 0;
    // Pages of the table come from the disk together, not one after the other.
    for (int64_t row = range.begin; IsLarge() && row < range.end; ++row) {
      while (row >= part.first_row + part.rows) part = PartStatesOf(pass, state_, number++);
      FindRows(pass, part, row, scratch);
      for (int64_t i = 0; i < hash_.rows(); ++i) {
        WillRead({table_.data + scratch.rows[i] * table_.row_bytes(), RowBytes()});
      }
    }
    part = PartStates();
    number = 0;
    for (int64_t row = range.begin; row < range.end; ++row) {
      while (row >= part.first_row + part.rows) part = PartStatesOf(pass, state_, number++);
      FindRows(pass, part, row, scratch);
      Decode(pass, row, scratch);
      if (row + 1 == part.first_row + part.rows && part.after != nullptr) Keep(pass, part);
    }
    KeepTails(pass, state_, tail_offset(), member, [&](int64_t row, float* kept) {
      const int32_t token = pass.tokens[static_cast<size_t>(row)];
      *kept = static_cast<float>(token < hash_.vocab ? token : hash_.other);
    });
  }

  int64_t TailFloats() const override { return 1; }

  void ScanAgain(const PassContext& pass, const TailRange& range,
                 const ThreadPool::Member& member) const override {
    if (member.index != 0) return;
    const PartStates part = PartStatesOf(pass, state_, 0);
    for (int64_t i = 0; i < hash_.state_floats(); ++i) {
      const int64_t position = range.end - hash_.state_floats() + i;
      const int64_t kept = hash_.state_floats() + position - range.begin;
      part.after[i] = position >= range.begin  ? range.tail.Row(position)[tail_offset()]
                      : part.before != nullptr ? part.before[kept]
                                               : static_cast<float>(hash_.eos);
    }
  }

  size_t ScratchBytes(const PassLimits&) const override {
    return static_cast<size_t>(hash_.rows()) * sizeof(int64_t) +
           static_cast<size_t>(RoundedSize()) * sizeof(int32_t) +
           static_cast<size_t>(out_.cols) * sizeof(float);
  }

  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], out_.cols);
  }

  void AddWork(const PassShape& pass, Work& work) const override {
    work.cache_bytes += static_cast<double>(pass.parts.size()) *
                        static_cast<double>(hash_.state_floats()) * sizeof(float);
  }

  std::string Describe() const override {
    return fmt::format("{} hashed rows of {} {} [{} x {}]{}", hash_.rows(), table_.name,
                       table_.format->name, table_.dims[0], table_.dims[1],
                       out_.int8 != kNoValue ? " + quantize int8" : "");
  }

 private:
  struct ScratchArrays {
    int64_t* rows;
    int32_t* tokens;
    float* floats;
  };

  // Tables that hardly stay in memory.
  static constexpr uint64_t kLargeBytes = uint64_t{1} << 30;
  bool IsLarge() const { return table_.size_bytes >= kLargeBytes; }

  size_t RowBytes() const { return static_cast<size_t>(table_.row_bytes()); }
  // An even number, so that what follows is aligned.
  int64_t RoundedSize() const { return (hash_.size + 1) / 2 * 2; }

  int64_t RowCount(const PassContext& pass) const { return pass.RowCount(out_.ids().front()); }

  ScratchArrays Place(std::byte* base) const {
    auto* rows = reinterpret_cast<int64_t*>(base);
    auto* tokens = reinterpret_cast<int32_t*>(rows + hash_.rows());
    return {rows, tokens, reinterpret_cast<float*>(tokens + RoundedSize())};
  }

  void FindRows(const PassContext& pass, const PartStates& part, int64_t row,
                const ScratchArrays& scratch) const {
    Tokens(hash_, pass, part).Gather(row - part.first_row, scratch.tokens);
    hash_.Find(scratch.tokens, scratch.rows);
  }

  void Decode(const PassContext& pass, int64_t row, const ScratchArrays& scratch) const {
    float* out = out_.floats != kNoValue ? pass.FloatRow(out_.floats, row) : scratch.floats;
    for (int64_t i = 0; i < hash_.rows(); ++i) {
      table_.format->decode(table_.data + scratch.rows[i] * table_.row_bytes(),
                            out + i * table_.dims[0], table_.dims[0]);
    }
    if (out_.int8 == kNoValue) return;
    pass.Quantize(kernels_, out, out_.cols, {out_.int8, row, out_.cols, 0});
  }

  void Keep(const PassContext& pass, const PartStates& part) const {
    const Tokens tokens(hash_, pass, part);
    for (int64_t i = 0; i < hash_.state_floats(); ++i) {
      part.after[i] = static_cast<float>(tokens.At(part.rows - hash_.state_floats() + i));
    }
  }

  const cpu::KernelTable& kernels_;
  NgramHash hash_;
  const formats::GgufTensor& table_;
  StateSlice state_;
  Activations out_;
};

// The least magnitude of which a square root is taken, as in the model's definition.
constexpr float kMagnitudeMin = 1e-6f;

class NgramGateNode final : public Node {
 public:
  NgramGateNode(const cpu::KernelTable& kernels, std::string name, NgramGate gate)
      : Node(std::move(name), {gate.in, gate.streams}, {gate.in, gate.gated, gate.normed}),
        kernels_(kernels),
        gate_(std::move(gate)) {}

  // A task is a stream of a row.
  void Run(const PassContext& pass, const ThreadPool::Member& member) const override {
    const int64_t count = gate_.shape.count;
    const Range range = OwnedRange(pass.RowCount(gate_.in) * count, 1, member.index, member.count);
    for (int64_t task = range.begin; task < range.end; ++task) {
      RunStream(pass, task / count, task % count, pass.Scratch(member).data());
    }
  }

  size_t ScratchBytes(const PassLimits&) const override {
    return static_cast<size_t>(gate_.shape.dim) * sizeof(float);
  }

  int64_t UnitsOf(const PassShape& pass) const override {
    return pass.rows[rows()] * gate_.shape.count;
  }
  Width WidthOf(const RowCounts& counts) const override {
    return WidthOfRows(counts[rows()], 4 * gate_.shape.columns());
  }

  std::string Describe() const override {
    return fmt::format("{} streams' gates of a row {} [{}]", gate_.shape.count, kernels_.isa,
                       gate_.shape.dim);
  }

 private:
  void RunStream(const PassContext& pass, int64_t row, int64_t stream, std::byte* scratch) const {
    const int64_t dim = gate_.shape.dim;
    const int64_t first = stream * dim;
    auto* query = reinterpret_cast<float*>(scratch);
    float* key = pass.FloatRow(gate_.in, row) + first;
    ApplyNorm(kernels_, gate_.query_norm, first, dim, pass.FloatRow(gate_.streams, row) + first,
              query);
    ApplyNorm(kernels_, gate_.key_norm, first, dim, key, key);
    double dot = 0;
    for (int64_t d = 0; d < dim; ++d) {
      dot += static_cast<double>(query[d]) * static_cast<double>(key[d]);
    }
    const auto score = static_cast<float>(dot / std::sqrt(static_cast<double>(dim)));
    const float root = std::sqrt(std::max(std::abs(score), kMagnitudeMin));
    const float signed_root = score > 0 ? root : score < 0 ? -root : 0.0f;
    const float share = 1.0f / (1.0f + std::exp(-signed_root));
    const float* value = pass.FloatRow(gate_.in, row) + gate_.shape.columns();
    float* gated = pass.FloatRow(gate_.gated, row) + first;
    for (int64_t d = 0; d < dim; ++d) gated[d] = share * value[d];
    ApplyNorm(kernels_, gate_.out_norm, first, dim, gated,
              pass.FloatRow(gate_.normed, row) + first);
  }

  const cpu::KernelTable& kernels_;
  NgramGate gate_;
};

}  // namespace

std::unique_ptr<Node> MakeNgramRows(const cpu::KernelTable& kernels, std::string name,
                                    NgramHash hash, const formats::GgufTensor& table,
                                    StateSlice state, const Activations& out) {
  return std::make_unique<NgramRowsNode>(kernels, std::move(name), std::move(hash), table, state,
                                         out);
}

std::unique_ptr<Node> MakeNgramGate(const cpu::KernelTable& kernels, std::string name,
                                    NgramGate gate) {
  return std::make_unique<NgramGateNode>(kernels, std::move(name), std::move(gate));
}

}  // namespace kvant::graph
