#include "tools/bench_bound.h"

#include <algorithm>

#include "engine/arch/spec.h"

namespace kvant::tools {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kOutput = "output.weight";

enum class MatrixUse : uint8_t {
  kNone,  // rows are looked up, or no matrix at all
  kBody,  // every token of a pass
  kHead,  // tokens whose logits are wanted
};

MatrixUse UseOf(const formats::GgufTensor& tensor, bool tied) {
  if (tensor.n_dims < 2) return MatrixUse::kNone;
  if (tensor.name == kEmbedding) return tied ? MatrixUse::kHead : MatrixUse::kNone;
  return tensor.name == kOutput ? MatrixUse::kHead : MatrixUse::kBody;
}

class Counter {
 public:
  Counter(const Model& model, const SessionOptions& options) : model_(model), options_(options) {
    const auto plan = PlanMemory(model, options);
    if (plan.ok()) plan_ = *plan;
  }

  const BenchWork& work() const { return work_; }

  // Matrices over so many tokens, in the fewest passes.
  void AddMatrices(int64_t rows, int64_t logit_rows) {
    const int64_t chunk = options_.kv_cache ? options_.chunk : rows;
    AddWeights(MatrixUse::kBody, rows, (rows + chunk - 1) / chunk);
    AddWeights(MatrixUse::kHead, logit_rows, 1);
  }

  // Attention of the tokens at [end - rows, end) of one sequence, in one pass.
  void AddAttention(int64_t rows, int64_t end) {
    AddQueries(rows, end);
    AddCacheReads(rows, end);
  }

  // One pass over a token each of several sequences with `end` tokens. They share nothing, or all.
  void AddStep(int64_t rows, int64_t end, bool shared) {
    AddMatrices(rows, rows);
    for (int64_t row = 0; row < rows; ++row) {
      AddQueries(1, end);
      if (row == 0 || !shared) AddCacheReads(1, end);
    }
  }

 private:
  void AddWeights(MatrixUse use, int64_t rows, int64_t passes) {
    const bool tied = model_.file().FindTensor(kOutput) == nullptr;
    for (const formats::GgufTensor& tensor : model_.file().tensors()) {
      if (UseOf(tensor, tied) != use) continue;
      work_.weight_bytes += static_cast<double>(tensor.size_bytes) * static_cast<double>(passes);
      const double macs = static_cast<double>(tensor.n_values()) * static_cast<double>(rows);
      const bool half = tensor.format->block_bytes == 2;
      (tensor.format->quantized() ? work_.int8_macs
       : half                     ? work_.int16_macs
                                  : work_.float_macs) += macs;
    }
  }

  // Products of the tokens at [end - rows, end).
  void AddQueries(int64_t rows, int64_t end) {
    for (const arch::Attention* attention : arch::Attentions(model_.spec().stacks.front())) {
      double seen = 0;  // positions, over all rows
      const bool windowed = attention->mask.kind == arch::MaskKind::kWindow;
      for (int64_t position = end - rows; position < end; ++position) {
        seen += static_cast<double>(windowed ? std::min(position + 1, attention->mask.window)
                                             : position + 1);
      }
      AddProducts(options_.k_type, seen * static_cast<double>(attention->heads * attention->k_dim));
      AddProducts(options_.v_type, seen * static_cast<double>(attention->heads * attention->v_dim));
    }
  }

  void AddProducts(cpu::KvElement type, double macs) {
    const bool int8 = type == cpu::KvElement::kQ8 && options_.kv_cache;
    (int8 ? work_.int8_macs : work_.float_macs) += macs;
  }

  // Positions that the tokens at [end - rows, end) see.
  void AddCacheReads(int64_t rows, int64_t end) {
    for (const MemoryPlan::Group& group : plan_.groups) {
      const int64_t visible = group.window == 0 ? end : std::min(end, group.window + rows - 1);
      work_.kv_bytes += static_cast<double>(visible) * static_cast<double>(group.bytes_per_token);
    }
  }

  const Model& model_;
  const SessionOptions& options_;
  MemoryPlan plan_;
  BenchWork work_;
};

}  // namespace

BenchWork CountWork(const Model& model, const SessionOptions& options, const SpeedCase& test) {
  Counter counter(model, options);
  const int64_t end = test.depth + test.n_prompt;
  if (!options.kv_cache) {  // every step computes all that is there, and stores nothing
    const auto add = [&](int64_t rows) {
      counter.AddMatrices(rows * test.sequences, test.sequences);
      for (int64_t i = 0; i < test.sequences; ++i) counter.AddAttention(rows, rows);
    };
    if (test.n_prompt > 0) add(end);
    for (int64_t i = 1; i <= test.n_gen; ++i) add(end + i);
    return counter.work();
  }
  if (test.n_prompt > 0) counter.AddMatrices(test.n_prompt * test.sequences, test.sequences);
  for (int64_t sequence = 0; sequence < test.sequences; ++sequence) {
    for (int64_t done = 0; done < test.n_prompt;) {
      const int64_t rows = std::min(options.chunk, test.n_prompt - done);
      done += rows;
      counter.AddAttention(rows, test.depth + done);
    }
  }
  const bool beams = test.beams > 1;
  // A search begins with at least one token, and with one beam for all of them.
  const int64_t first = beams ? std::max<int64_t>(end, 1) : end;
  for (int64_t i = 1; i <= test.n_gen; ++i) {
    counter.AddStep(beams ? test.beams : test.sequences, first + i, beams);
  }
  return counter.work();
}

std::vector<std::span<const std::byte>> DecodeWeights(const Model& model) {
  const bool tied = model.file().FindTensor(kOutput) == nullptr;
  std::vector<std::span<const std::byte>> pieces;
  for (const formats::GgufTensor& tensor : model.file().tensors()) {
    if (UseOf(tensor, tied) == MatrixUse::kNone) continue;
    pieces.emplace_back(tensor.data, static_cast<size_t>(tensor.size_bytes));
  }
  return pieces;
}

double KvBytes(const MemoryPlan& plan, int64_t positions) {
  double bytes = 0;
  for (const MemoryPlan::Group& group : plan.groups) {
    bytes += static_cast<double>(std::min(group.rows, positions)) *
             static_cast<double>(group.bytes_per_token);
  }
  return bytes;
}

SpeedBound BoundOf(const BenchWork& work, const SpeedLimits& limits) {
  const auto seconds = [](double amount, double per_second) {
    return amount > 0 && per_second > 0 ? amount / per_second : 0.0;
  };
  const double memory = seconds(work.weight_bytes, limits.weights_per_second) +
                        seconds(work.kv_bytes, limits.kv_per_second);
  const double compute = seconds(work.int8_macs, limits.int8) +
                         seconds(work.int16_macs, std::max(limits.int16, limits.float32)) +
                         seconds(work.float_macs, limits.float32);
  if (memory == 0 && compute == 0) return {};
  return {memory >= compute ? "memory" : "compute", std::max(memory, compute)};
}

}  // namespace kvant::tools
