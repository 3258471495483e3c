// The sources of a runner: what an encoder-decoder has read, and who may still ask for it.
//
// A source is found again by what it was made from: encoding the same tokens or frames a second
// time runs nothing. Without a cache a source is only its input. Sources that nobody holds stay
// until their memory is needed, the least recently used one goes first; sequences keep the blocks
// that they refer to in any case. Thread-safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/run/source_encoder.h"
#include "kvant/runner.h"

namespace kvant::run {

// The identity of a source. Sequences hold it, too: it outlives the source's state.
struct SourceIdentity {
  SourceInput input;
  uint64_t hash = 0;    // of the input
  uint64_t number = 0;  // of no other source of the runner, from 1
};

struct SourceState {
  kv::Source kv;
  std::shared_ptr<const SourceIdentity> identity;
  int64_t holders = 0;  // how often it was asked for and not freed
  uint64_t used = 0;    // the tick of the last use
};

class Sources {
 public:
  explicit Sources(Core& core) : core_(core), encoder_(core) {}

  // See Runner::Encode.
  Result<SourceId> Encode(std::span<const TokenId> tokens, const SourceOptions& options);
  Result<SourceId> EncodeFrames(std::span<const float> frames, const SourceOptions& options);
  // A source of a session file, in rows that its encoder gave before; without rows it is encoded.
  // Where the input is known already, its source is returned and the rows are freed. The rows are
  // freed on errors, too. One more reference, as from Encode.
  Result<SourceId> Restore(SourceInput input, std::optional<kv::Source> rows);
  // kInvalid where the model's encoder does not read such an input.
  Status CheckInput(const SourceInput& input) const;
  Status Free(SourceId id);
  // kInvalid where there is none that is held.
  Result<SourceState*> Get(SourceId id);

  // Gives up the least recently used source that nobody holds. False if there is none.
  bool GiveUp();
  // How many references to the block sources hold.
  int references(kv::GroupId group, kv::BlockId block) const;
  int64_t count() const;  // held or not

 private:
  Status CheckTokens(std::span<const TokenId> tokens) const;
  Status CheckFrames(std::span<const float> frames) const;
  // Encodes an input that was checked.
  Result<SourceId> EncodeInput(SourceInput input, const SourceOptions& options);
  // The blocks of a source, filled. Without a cache there are none: each pass encodes again, and
  // here only what the caller wants to see is computed.
  Result<kv::Source> FillBlocks(const SourceInput& input, const SourceOptions& options);
  Status MakeRoom();
  // Adds a source whose rows are there.
  SourceId Add(SourceInput input, uint64_t hash, kv::Source rows);
  SourceState* FindKnown(uint64_t hash, const SourceInput& input, SourceId* id) const;
  void Drop(SourceId id);

  Core& core_;
  SourceEncoder encoder_;
  std::vector<std::unique_ptr<SourceState>> sources_;  // by SourceId
  uint64_t tick_ = 0;
  uint64_t numbers_ = 0;  // of sources so far
};

}  // namespace kvant::run
