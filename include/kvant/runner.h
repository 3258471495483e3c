// Any number of token sequences on a model, in one KV cache: append, decode in batches, fork,
// reorder (beams), rewind, prune, snapshot.
//
// Sequences that were forked share what they have in common; only the block that one of them writes
// into is copied. A step takes new tokens of several sequences at once, without padding, in one or
// more passes over the weights. Every row gets the bits that it would get alone: rows of different
// sequences meet only in passes of at most kSharedRowsMax rows, which share one arithmetic.
//
// A pass is all or nothing, and so is every operation but a step of several passes: one that fails
// leaves the sequences as they were. A step that is refused, for a wrong token, a full context or
// too little memory, changes nothing either; one that is cancelled keeps the passes that were
// complete (see Step).
//
// Errors: kInvalid for a wrong number, kContextFull beyond the context, kOutOfMemory with the bytes
// that are needed and free, kNotSupported for what these options cannot do, kCancelled.
// Thread-safety: one thread at a time; only the cancel flags may be set by others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/kv_tensors.h"
#include "kvant/memory_plan.h"
#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/sequence_host.h"
#include "kvant/session_options.h"

namespace kvant {

namespace run {
struct Engine;
}

using SnapshotId = int;

// The cache of layers with the same shape. Blocks of kv::kBlockTokens positions.
struct KvGroupStats {
  int layers = 0;
  int64_t window = 0;            // 0 = all positions
  uint64_t bytes_per_token = 0;  // of all its layers
  uint64_t block_bytes = 0;
  int64_t blocks_capacity = 0;   // address space
  int64_t blocks_committed = 0;  // memory that was written to at some time
  int64_t blocks_used = 0;
  int64_t blocks_shared = 0;    // of these: held more than once
  int64_t blocks_private = 0;   // held once, by a sequence
  int64_t blocks_kept = 0;      // held by snapshots and the prefix cache alone
  int64_t rows = 0;             // positions that the sequences hold, shared ones for each
  uint64_t blocks_dropped = 0;  // behind the window since creation
};

struct RunnerStats {
  uint64_t kv_bytes_used = 0;       // of blocks in use, shared ones once
  uint64_t kv_bytes_peak = 0;       // the most of it since creation
  uint64_t kv_bytes_committed = 0;  // memory that was written to at some time
  uint64_t kv_bytes_capacity = 0;   // address space
  uint64_t kv_bytes_written = 0;    // rows stored by steps
  uint64_t kv_bytes_copied = 0;     // by copies on write
  uint64_t kv_blocks_taken = 0;
  uint64_t kv_blocks_copied = 0;
  uint64_t rewinds = 0;
  uint64_t replays = 0;
  uint64_t tokens_processed = 0;  // rows of all steps, replays included
  uint64_t tokens_replayed = 0;
  uint64_t tokens_reused = 0;  // found in the prefix cache
  uint64_t passes = 0;         // times the weights were read
  int64_t sequences = 0;       // alive
  int64_t snapshots = 0;
  std::vector<KvGroupStats> groups;
};

class Runner final : public SequenceHost {
 public:
  static Result<std::unique_ptr<Runner>> Create(std::shared_ptr<const Model> model,
                                                const SessionOptions& options);
  ~Runner() override;

  // ---- Sequences ----

  // An empty one. kOutOfMemory where SessionOptions::sequences are alive.
  Result<SequenceId> NewSequence() override;
  Status FreeSequence(SequenceId sequence) override;
  // Empty again, as new.
  Status Reset(SequenceId sequence);

  bool Has(SequenceId sequence) const;
  // Of a sequence that does not exist: 0, and nothing.
  int64_t length(SequenceId sequence) const override;  // the next token's position
  std::span<const TokenId> tokens(SequenceId sequence) const;
  // Of the last token, [vocab]. Empty before the first step, while a step is not complete, and
  // after Rewind, Prune and Import, until ComputeLogits. They stay until the sequence's next step.
  std::span<const float> logits(SequenceId sequence) const override;

  // ---- Steps ----

  // Processes new tokens of different sequences. Afterwards logits(sequence) belongs to the last
  // token of each, unless it wants none.
  //
  // The step is refused before anything is processed if one of the inputs is wrong or all together
  // do not fit (kOutOfMemory says what would). Cancelled in a later pass, or ended by an error of
  // options.rows, each sequence has the tokens that complete passes took in: length() tells how
  // many, and one that is short of its tokens has no logits. Appending the others goes on from
  // there with the same bits.
  Status Step(std::span<const StepInput> inputs, const StepOptions& options = {}) override;
  Status Append(SequenceId sequence, std::span<const TokenId> tokens);

  // Gives an empty sequence the cache of the longest beginning of these tokens that is known
  // (SessionOptions::prefix_cache), all but the last token at most, and returns how many tokens
  // that are. Step does the same for the tokens that it gets; a caller who cuts a prompt asks with
  // all.
  Result<int64_t> ReusePrefix(SequenceId sequence, std::span<const TokenId> prompt) override;

  // Appends to one sequence and shows the logits of its tokens from number `first` of the call on:
  // `rows(index, count)` may read row(i), 0 <= i < count, the logits of token index + i. An error
  // of `rows` undoes the pass and is returned.
  using HeadRows = std::function<Status(int64_t index, int64_t count)>;
  Status AppendScoring(SequenceId sequence, std::span<const TokenId> tokens, int64_t first,
                       const HeadRows& rows);
  // Empty beyond the rows that are being shown, and at any other time.
  std::span<const float> row(int64_t i) const;

  // ---- Branching ----

  // A new sequence with the same tokens and logits.
  Result<SequenceId> Fork(SequenceId sequence) override;

  // Simultaneous assignment: sequences[i] becomes what sequences[parents[i]] was. Parents without
  // children end there.
  Status Reorder(std::span<const SequenceId> sequences, std::span<const int> parents) override;

  // Keeps the first `length` tokens: the state is as if no more had been processed. Exact within
  // kRewindSlack tokens of a window, at snapshots, and by replay beyond; replay is kNotSupported
  // where the tokens alone do not give the state: after a prune or an import.
  Status Rewind(SequenceId sequence, int64_t length, Replay replay = Replay::kAllowed) override;

  // The logits of the last token where there are none: computes that token again. Where a window no
  // longer has what it saw, at the limit of a rewind or after an import, that is computed again
  // from the tokens, too, beside what the sequence has. kInvalid for an empty sequence and where
  // the last token was pruned; kNotSupported where a window has dropped what it saw before tokens
  // were pruned.
  Status ComputeLogits(SequenceId sequence);

  // Forgets all but the first `keep_first` and the last `keep_last` tokens.
  Status Prune(SequenceId sequence, int64_t keep_first, int64_t keep_last,
               PrunePositions positions) override;

  // A state to return to; shares its blocks. Restore may be repeated and leaves the snapshot.
  Result<SnapshotId> TakeSnapshot(SequenceId sequence);
  Status Restore(SequenceId sequence, SnapshotId snapshot);
  Status DropSnapshot(SnapshotId snapshot);

  // ---- Files ----

  // Saves sequences with all that they need to continue with the same bits in a later process; what
  // they share is saved once (format: engine/kv/session_file.h). The file appears whole or not at
  // all.
  Status Save(const std::string& path, std::span<const SequenceId> sequences) const;
  // New sequences, in the order in which they were saved. kCorrupt for a damaged file,
  // kNotSupported for one of another model or of other cache types; nothing is created then.
  Result<std::vector<SequenceId>> Load(const std::string& path);

  // ---- Tensors ----

  // The caches of sequences of one length as plain tensors. kNotSupported for sequences with pruned
  // positions, and where keys and values of different dimensions would have to share a tensor.
  Result<KvTensors> Export(std::span<const SequenceId> sequences, KvLayout layout) const;
  // New sequences that continue from these, without logits before their next step. kInvalid names
  // the tensor that is missing or misshapen; nothing is created then.
  Result<std::vector<SequenceId>> Import(const KvTensors& tensors, KvLayout layout);

  // ---- What there is ----

  const Model& model() const;
  const SessionOptions& options() const;  // with defaults filled in
  int64_t context() const override { return options().context; }
  int64_t sequences_max() const override { return options().sequences; }
  PromptCut prompt_cut() const override;
  RunnerStats stats() const;
  // The cache's invariants (see kv::Cache::Check).
  Status Check() const;
  // Calls `sink` with a line for everything that happens to the cache from now on; empty = nobody.
  // First for each layer
  //   Adding KV cache input: past_key_values.0.key shape=[batch,kv heads,0,dim]
  // and .value, with as many rows as there may be sequences; then after each step
  //   KV cache update: present.0.key shape=[batch,kv heads,positions,dim]
  // with the sequences of one length as a batch, and the positions that the layer holds; and
  //   KV event: fork sequence=0 copy=1
  // and the like for blocks taken, copied and dropped, for reorder, rewind, replay, prune,
  // snapshot, restore, free.
  using LogSink = std::function<void(std::string_view line)>;
  void SetKvLog(LogSink sink);

  // Runs a function of (index, count) on every thread of the team.
  void RunOnTeam(const std::function<void(int index, int count)>& body);

 private:
  explicit Runner(std::unique_ptr<run::Engine> engine);

  std::unique_ptr<run::Engine> engine_;
  std::span<const std::span<const float>> shown_;  // by AppendScoring, while it calls
};

}  // namespace kvant
