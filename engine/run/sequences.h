// The sequences and snapshots of a runner: which there are, what each holds, and how they branch.
//
// A number (SequenceId) is a place that refers to a state; beams are permuted by exchanging what
// their places refer to. Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/kv/prefix_index.h"
#include "engine/run/core.h"
#include "engine/run/logit_rows.h"
#include "kvant/sequence_host.h"

namespace kvant::run {

// Where what the cache holds of a sequence comes from.
enum class Origin : uint8_t {
  kTokens,    // computed here from its tokens, and nothing else: can be computed again, and shared
  kImported,  // computed from its tokens by something else, so not to the last bit
  kPruned,    // computed while there were other tokens, too
};

struct SequenceState {
  kv::Sequence kv;                           // its length also counts without a cache
  std::vector<TokenId> tokens;               // by position; those of pruned positions are kept
  LogitRows::Row logits = LogitRows::kNone;  // of the last token
  Origin origin = Origin::kTokens;
  int64_t indexed_blocks = 0;  // full blocks that the prefix index knows
};

class Sequences {
 public:
  explicit Sequences(Core& core);

  // kOutOfMemory where SessionOptions::sequences are alive.
  Result<SequenceId> New();
  // Null where there is none of this number.
  SequenceState* Find(SequenceId id) const { return FindIn(alive_, id); }
  // kInvalid where there is none.
  Result<SequenceState*> Get(SequenceId id) const;
  void Free(SequenceId id);
  // Empty, as new.
  void Clear(SequenceState& state);
  int64_t count() const;

  // `to`, which is empty, becomes what `from` is: blocks and logits are shared, tokens copied.
  void Copy(const SequenceState& from, SequenceState& to);
  Result<SequenceId> Fork(SequenceId id);
  // See Runner::Reorder.
  Status Reorder(std::span<const SequenceId> ids, std::span<const int> parents);

  SnapshotId NewSnapshot();
  SequenceState* FindSnapshot(SnapshotId id) const { return FindIn(snapshots_, id); }
  Result<SequenceState*> GetSnapshot(SnapshotId id) const;
  void FreeSnapshot(SnapshotId id);
  int64_t snapshots() const;

  // The pass that took in these tokens is complete, without logits of the last one.
  void Extend(SequenceState& state, std::span<const TokenId> tokens);
  std::span<const float> logits(const SequenceState& state) const {
    return rows_.values(state.logits);
  }
  LogitRows& rows() { return rows_; }
  // Takes over a reference to the row; kNone: there are no logits any more.
  void SetLogits(SequenceState& state, LogitRows::Row row);

  // Gives an empty sequence the blocks that are known for the beginning of these tokens, all but
  // the last token at most. Returns how many tokens it has then.
  int64_t ReusePrefix(SequenceState& state, std::span<const TokenId> tokens);
  // Takes that back.
  void ForgetReuse(SequenceState& state);
  // Other sequences may find its full blocks, if its tokens alone give them.
  void Remember(SequenceState& state);

  // The invariants of the cache, see kv::Cache::Check.
  Status Check() const;
  // Check, where options ask for it after every operation.
  Status CheckIfAsked() const { return core_.options.kv_check ? Check() : Status(); }

  // By number; null where there is none.
  std::span<const std::unique_ptr<SequenceState>> alive() const { return alive_; }

 private:
  using States = std::vector<std::unique_ptr<SequenceState>>;
  static SequenceState* FindIn(const States& states, int id);
  int Add(States& states);
  void Remove(States& states, int id);

  Core& core_;
  LogitRows rows_;
  std::optional<kv::PrefixIndex> prefixes_;
  States alive_;
  States snapshots_;
  States unused_;  // empty states, to be used again
  // Of a reorder, by input: what each sequence was, until a child takes it.
  States parents_;
};

}  // namespace kvant::run
