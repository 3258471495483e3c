// What a runner holds, for the files that implement it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "engine/graph/plan.h"
#include "engine/kv/kv_cache.h"
#include "engine/kv/prefix_index.h"
#include "engine/kv/step_view.h"
#include "engine/runner.h"

namespace kvant {

// A sequence or a snapshot of one.
struct Slot {
  bool used = false;
  kv::Sequence kv;              // its length also counts without a cache
  std::vector<TokenId> tokens;  // by position; those of pruned positions are kept
  std::vector<float> logits;    // [vocab]
  bool has_logits = false;
  // The cache holds what its tokens alone give: other sequences may use its blocks.
  bool plain = true;
  int64_t indexed_blocks = 0;  // known to the prefix index
};

// The tokens of one sequence in a pass.
struct PassPart {
  Slot* slot;
  std::span<const TokenId> tokens;
};

struct Runner::State {
  State(std::shared_ptr<const Model> model_in, const SessionOptions& options_in)
      : model(std::move(model_in)), options(options_in), pool(options_in.threads) {
    for (const auto& tensor : model->file().tensors()) weight_bytes += tensor.size_bytes;
  }

  Status CheckMemory() const;
  Status Prepare();
  Result<Slot*> Find(std::vector<std::unique_ptr<Slot>>& slots, int id, const char* what);
  Result<Slot*> Find(SequenceId id) { return Find(sequences, id, "sequence"); }
  std::unique_ptr<Slot> MakeSlot() const;
  Result<int> NewSlot(std::vector<std::unique_ptr<Slot>>& slots);
  void Clear(Slot& slot);
  void Copy(const Slot& from, Slot& to);
  Status Finish(Status status) const;
  Status Check() const;

  Status CheckTokens(const Slot& slot, std::span<const TokenId> ids) const;
  Status CheckRoom(std::span<const StepInput> inputs);
  std::span<const TokenId> ReusePrefix(Slot& slot, std::span<const TokenId> tokens);
  void IndexPrefix(Slot& slot);
  void CountBlocks(int group, KvGroupStats& out) const;
  void LogUpdate(std::span<const StepInput> inputs);
  // A line of the log, made only if somebody reads it.
  template <typename... Args>
  void LogEvent(fmt::format_string<Args...> format, Args&&... args) const {
    if (log) log("KV event: " + fmt::format(format, std::forward<Args>(args)...));
  }
  Status RunPass(std::span<const PassPart> parts);
  Status ReserveParts(std::span<const PassPart> parts);
  Status RunHead();
  Status RunStage(graph::Stage stage);
  void RunCopies();
  std::span<const float> HeadRow(int64_t row) const;
  Status ReplayTo(SequenceId sequence, int64_t length);
  Status MoveTokens(Slot& slot, int64_t begin, int64_t end);
  Result<std::vector<int64_t>> FirstPositions(const KvTensors& tensors, KvLayout arrangement) const;
  Status FillSlot(const KvTensors& tensors, KvLayout arrangement, int64_t batch_row, Slot& slot);

  std::shared_ptr<const Model> model;
  SessionOptions options;
  ThreadPool pool;
  graph::ArenaLayout layout;
  AlignedBuffer arena;
  AlignedBuffer scratch;
  AlignedBuffer shared;
  std::vector<std::atomic<int32_t>> arrivals;
  std::vector<graph::RopeAngles> ropes;
  std::optional<kv::Cache> cache;
  std::optional<kv::StepView> view;
  std::optional<kv::PrefixIndex> prefixes;
  std::vector<std::unique_ptr<Slot>> sequences;
  std::vector<std::unique_ptr<Slot>> snapshots;
  // For Reorder: an empty slot for every sequence, and the slots it is asked about.
  std::vector<std::unique_ptr<Slot>> spare;
  std::vector<Slot*> reordered;

  graph::StepContext step;
  // Of the pass under way.
  std::vector<TokenId> tokens;
  std::vector<int64_t> positions;
  std::vector<kv::StepPart> parts;
  std::vector<int64_t> head;
  // Of the step under way.
  std::vector<std::span<const TokenId>> left;
  std::vector<PassPart> pass;
  std::vector<kv::Growth> growths;

  LogSink log;
  RunnerStats stats;
  uint64_t weight_bytes = 0;
  bool may_run_alone = false;  // the number of threads is ours to choose
};

}  // namespace kvant
