// Computes windows of tokens from any node of a plan on, for whoever changes one matrix after
// another: the nodes before a changed matrix need not run again.
//
// A window is one pass without a cache, whose rows are those of one text: attention inside texts
// has the kernels of the cache, in 32-bit floats. The values that are alive between two nodes can
// be kept and given to a replay of another plan, where other weights stand: values are known by
// their names.
//
// Errors: kOutOfMemory, kCancelled. Thread-safety: one call at a time; several replays may take
// turns with one team.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/graph/plan.h"
#include "kvant/tokenizer.h"

namespace kvant::run {

// The values of a window that nodes from `node` on read, and earlier ones wrote. At node 0 there
// are none.
struct WindowValues {
  struct Value {
    std::string name;
    cpu::ActivationKind kind;
    std::vector<std::byte> bytes;
  };
  size_t node = 0;  // of the body
  std::vector<Value> values = {};
};

class PlanReplay {
 public:
  struct Options {
    int64_t rows = 0;  // of the largest window
    const std::atomic<bool>* cancel = nullptr;
  };

  // The plan and the team must outlive the object. The plan is one of a decoder without an encoder.
  static Result<std::unique_ptr<PlanReplay>> Create(const graph::Plan& plan, ThreadPool& team,
                                                    const Options& options);

  // Whether all values that this plan needs at their node are there.
  bool Knows(const WindowValues& values) const;

  // Runs the nodes [values.node, end) of the body on the tokens of a window, and replaces the
  // values by those at `end`. The values must be known (Knows).
  Status Run(std::span<const TokenId> tokens, size_t end, WindowValues& values);

  // The logits, [vocab], of the rows from `first` on of the window on which the body has just run
  // to its end. Rows come from several threads at once.
  using OnRow = std::function<void(int64_t row, std::span<const float> values)>;
  Status RunHead(int64_t first, const OnRow& on_row);

  // These rows before the product with the output matrix, [dim]. The matrix must be one of floats.
  Status RunBeforeOutput(int64_t first, const OnRow& on_row);
  const formats::GgufTensor& output() const;

  size_t nodes() const { return plan_.nodes(graph::Stage::kBody).size(); }

 private:
  PlanReplay(const graph::Plan& plan, ThreadPool& team, const Options& options)
      : plan_(plan), team_(team), options_(options) {}
  Status Prepare();
  bool IsAlive(const graph::Value& value, size_t node) const;
  std::span<std::byte> BytesOf(size_t value);
  void Restore(const WindowValues& values);
  void Keep(WindowValues& values);
  size_t OutputNode() const;
  Status RunHeadTo(size_t end, graph::ValueId value, int64_t first, const OnRow& on_row);

  const graph::Plan& plan_;
  ThreadPool& team_;
  Options options_;
  graph::ArenaLayout layout_;
  AlignedBuffer arena_;
  AlignedBuffer scratch_;
  AlignedBuffer shared_;
  std::vector<std::atomic<int32_t>> arrivals_;
  std::vector<graph::RopeAngles> ropes_;
  std::vector<int64_t> positions_;
  std::vector<int64_t> head_;
  graph::TextRows text_;
  graph::PassContext pass_;
};

}  // namespace kvant::run
