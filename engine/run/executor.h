// One pass: the plan's nodes over rows of any sequences, then the logits of rows that want them. It
// is one transaction: a pass that fails or is cancelled, wherever that is, leaves every sequence as
// it was.
//
// The executor owns the memory of a pass, sized at creation; a pass allocates nothing. It knows
// blocks and tokens, but neither numbers of sequences nor what becomes of the logits.
// Thread-safety: one pass at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "engine/graph/device/device_attention.h"
#include "engine/graph/plan.h"
#include "engine/kv/pass_view.h"
#include "engine/run/core.h"
#include "engine/run/hidden_rows.h"
#include "engine/run/source_encoder.h"
#include "engine/run/tail_log.h"

namespace kvant::run {

// Below this product of weight bytes and rows one thread runs a pass alone, in well under a
// millisecond. A team would save some hundred microseconds on an idle machine, and lose far more on
// a busy one, where every barrier waits for a thread that is not running. Where the caller asked
// for a number of threads, all of them run every pass.
inline constexpr uint64_t kAloneWork = uint64_t{4} << 20;

// The rows of one sequence in a pass.
struct PassPart {
  kv::Sequence* kv;                  // grows by the tokens
  std::span<const TokenId> earlier;  // its tokens so far; computed again where there is no cache
  std::span<const TokenId> tokens;   // the new ones, at least one
  // Logits are computed for tokens[logits_from] and the tokens after it; tokens.size(): for none.
  size_t logits_from = 0;
  TailLog* tail = nullptr;  // keeps the last of the rows; null: nothing does
  const SourceInput* source =
      nullptr;  // encoded again where there is no cache; null: there is none
  std::span<const AdapterUse> adapters = {};
  // Has the row of the token before the part's first, and gets those of the part; null where no
  // layer predicts further tokens.
  HiddenRows* hidden = nullptr;
  Status status = {};  // kOutOfMemory: there was no room for this part, and the pass ran without it
};

// The logits, [vocab], of tokens[token] of a part. Valid only during the call of the sink.
struct LogitRow {
  size_t part;
  size_t token;
  std::span<const float> logits;
};

class Executor {
 public:
  explicit Executor(Core& core);
  // Allocates the memory of the largest pass. kOutOfMemory.
  Status Prepare();

  // How many sequences a pass may have, and how many rows if it has more than one sequence.
  int64_t parts_max() const { return pass_.limits.sequences; }
  int64_t shared_rows_max() const;

  // Calls `sink` with at most kHeadRows logit rows at a time, ordered by part, then by token. An
  // error that `sink` returns undoes the pass and is returned.
  using LogitSink = std::function<Status(std::span<const LogitRow> rows)>;
  Status RunPass(std::span<PassPart> parts, const std::atomic<bool>* cancel,
                 const LogitSink& sink = {});

  // Gives a sequence, which holds positions up to `begin`, the state after the positions [begin,
  // end) of a log. Its other groups must hold the positions [begin, end). kOutOfMemory.
  Status ScanAgain(kv::Sequence& sequence, TailLog& tail, int64_t end);

  // Makes the copies of shared blocks that the cache has listed (kv::Ledger::copies).
  void RunCopies();

  // The statistics of the device that attends; zeros without one.
  graph::DeviceAttention::Stats device_stats() const {
    return device_ == nullptr ? graph::DeviceAttention::Stats() : device_->stats();
  }

  // The frequencies of a rotation, [n_rot / 2] radians per position: by index into Plan::ropes.
  std::span<const graph::RopeAngles> ropes() const { return ropes_; }

 private:
  void PlaceMemory();
  void Reserve(std::span<PassPart> parts);
  void Fill(std::span<const PassPart> parts);
  // Encodes the source of the only part, where there is no cache.
  Status EncodeAgain(const PassPart& part, const std::atomic<bool>* cancel);
  Status RunStage(graph::Stage stage, const std::atomic<bool>* cancel);
  Status RunHead(std::span<const PassPart> parts, const std::atomic<bool>* cancel,
                 const LogitSink& sink);
  // Keeps the rows that layers which predict further tokens begin with.
  void KeepHidden(std::span<const PassPart> parts);
  Status ShowHead(const std::atomic<bool>* cancel, const LogitSink& sink);

  Core& core_;
  uint64_t weight_bytes_ = 0;
  graph::ArenaLayout layout_;
  AlignedBuffer arena_;
  AlignedBuffer scratch_;
  AlignedBuffer shared_;
  std::vector<std::atomic<int32_t>> arrivals_;
  std::vector<graph::RopeAngles> ropes_;
  std::optional<kv::PassView> view_;
  std::unique_ptr<graph::DeviceAttention> device_;  // null: nothing is offloaded
  SourceEncoder encoder_;
  graph::UncachedSource source_rows_;  // without a cache: of the source of the last pass
  graph::PassContext pass_;

  // The pass under way:
  std::vector<TokenId> tokens_;
  std::vector<int64_t> positions_;
  std::vector<kv::PartRows> rows_;  // of the parts that found room
  std::vector<graph::TailRows> tails_;
  std::vector<std::span<const float>> hidden_;
  std::vector<std::span<const AdapterUse>> adapters_;  // by row; empty: no part uses any
  std::vector<int64_t> head_;                          // rows of the pass whose logits come next
  std::vector<LogitRow> head_rows_;                    // the same, as the sink sees them
};

}  // namespace kvant::run
