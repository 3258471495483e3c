// The sequences and snapshots of a runner: what each holds, and how they branch.
//
// A SequenceId is the index of a pointer to a state; reordering beams permutes these pointers.
// Thread-safety: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/kv/prefix_index.h"
#include "engine/run/core.h"
#include "engine/run/hidden_rows.h"
#include "engine/run/logit_rows.h"
#include "engine/run/sources.h"
#include "engine/run/tail_log.h"
#include "kvant/adapter.h"
#include "kvant/sequence_host.h"

namespace kvant::run {

// Where the cache rows of a sequence come from.
enum class Origin : uint8_t {
  kTokens,    // computed here from its tokens alone: can be replayed, and found by prefix
  kImported,  // computed from its tokens by another program, so a replay would give other bits
  kPruned,    // computed while there were more tokens than now
};

// Passes over a prompt end at multiples of this many tokens where a model has states, which are
// kept there: the smallest distance at which a state of 50 MiB costs little beside 32 KiB of keys
// and values for each token.
inline constexpr int64_t kCheckpointTokens = 512;

// The adapters of a sequence, and of those that were forked from it.
struct AdaptersInUse {
  std::vector<AdapterUse> uses;
  uint64_t source = 0;  // the number of the sequence's source; 0: there is none
  uint64_t number = 0;  // of the two together; no source has it
};

struct SequenceState {
  kv::Sequence kv;  // without a cache only its length is used
  // By position; those of pruned positions are kept. Sequences::AddTokens and RemoveTokens change
  // them.
  std::vector<TokenId> tokens;
  LogitRows::Row logits = LogitRows::kNone;  // of the last token
  Origin origin = Origin::kTokens;
  std::shared_ptr<const SourceIdentity> source = {};   // null: there is none
  std::shared_ptr<const AdaptersInUse> adapters = {};  // null: it uses none
  std::unique_ptr<TailLog> tail = {};                  // of models with states; null: there is none
  // Where layers predict further tokens, or null.
  std::unique_ptr<HiddenRows> hidden = {};
  int64_t indexed_blocks = 0;  // how many of its full blocks the prefix index knows

  const SourceInput* source_input() const { return source == nullptr ? nullptr : &source->input; }
  std::span<const AdapterUse> adapters_in_use() const {
    return adapters == nullptr ? std::span<const AdapterUse>() : adapters->uses;
  }
  // Tells apart what rows depend on beside the tokens: sources, and adapters.
  uint64_t prefix_number() const {
    if (adapters != nullptr) return adapters->number;
    return source == nullptr ? 0 : source->number;
  }
};

class Sequences {
 public:
  // Becomes the cache's source of blocks to be taken back, until it ends.
  Sequences(Core& core, Sources& sources);
  ~Sequences();
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;

  // kOutOfMemory where SessionOptions::sequences are alive.
  Result<SequenceId> New();
  // Null where there is none of this number.
  SequenceState* Find(SequenceId id) const { return FindIn(alive_, id); }
  // kInvalid where there is none.
  Result<SequenceState*> Get(SequenceId id) const;
  void Free(SequenceId id);
  // Makes the state as it was when new: no tokens, no blocks, no logits.
  void Clear(SequenceState& state);
  int64_t count() const;
  // See Runner::SetAdapters.
  Status SetAdapters(SequenceId id, std::span<const AdapterUse> uses);
  // See Runner::SetSource.
  Status SetSource(SequenceState& state, const SourceState& source);

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
  // Bytes of the blocks that the prefix cache refers to.
  uint64_t prefix_bytes() const { return prefixes_.has_value() ? prefixes_->bytes() : 0; }

  // Changes the tokens of a state, and which row blocks they hold, but nothing else of the state.
  void AddTokens(SequenceState& state, std::span<const TokenId> tokens);
  void RemoveTokens(SequenceState& state, int64_t begin, int64_t end);
  // Adds tokens whose pass is complete, and drops the logits, which belong to an earlier token.
  void Extend(SequenceState& state, std::span<const TokenId> tokens,
              kv::States states = kv::States::kAdded);
  std::span<const float> logits(const SequenceState& state) const {
    return rows_.values(state.logits);
  }
  LogitRows& rows() { return rows_; }
  // Takes over a reference to the row; kNone: there are no logits any more.
  void SetLogits(SequenceState& state, LogitRows::Row row);

  // Gives an empty sequence the blocks that the prefix index finds for the beginning of `tokens`,
  // or the positions that another sequence has of it, where these are more; never the last token.
  // Returns how many tokens the sequence has then.
  int64_t ReusePrefix(SequenceState& state, std::span<const TokenId> tokens);
  // Undoes ReusePrefix.
  void ForgetReuse(SequenceState& state);
  // Adds the sequence's full blocks to the prefix index, if they come from its tokens alone.
  void Remember(SequenceState& state, kv::States states = kv::States::kAdded);

  // Gives up something that no running sequence needs: a checkpoint of the group, or any known
  // block. False if there is nothing.
  bool Reclaim(kv::GroupId group);

  // The invariants of the cache and of row blocks, see kv::Cache::Check and kv::RowBlocks::Check.
  Status Check() const;
  // Check, where options ask for it after every operation.
  Status CheckIfAsked() const { return core_.options.kv_check ? Check() : Status(); }

  // The sequences by SequenceId; null where there is none.
  std::span<const std::unique_ptr<SequenceState>> alive() const { return alive_; }

 private:
  using States = std::vector<std::unique_ptr<SequenceState>>;
  static SequenceState* FindIn(const States& states, int id);
  // A sequence, and how many of its positions are wanted.
  struct Beginning {
    const SequenceState* state = nullptr;
    int64_t length = 0;
  };
  Beginning FindAlive(const SequenceState& state, std::span<const TokenId> tokens,
                      int64_t length) const;
  int Add(States& states);
  void Remove(States& states, int id);

  Status CheckRowBlocks() const;

  Core& core_;
  Sources& sources_;
  LogitRows rows_;
  std::optional<kv::PrefixIndex> prefixes_;
  std::vector<std::shared_ptr<const AdaptersInUse>> adapters_;  // all that sequences ever used
  States alive_;
  States snapshots_;
  States unused_;  // empty states, to be used again
  // During Reorder, by input: the state of each parent, until a child takes it.
  States parents_;
};

}  // namespace kvant::run
