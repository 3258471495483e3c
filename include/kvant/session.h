// One running sequence of tokens on a model: append, read logits, rewind. For several at once, and
// for forks and snapshots, see runner.h, on which it is built.
//
// Append takes tokens in passes of at most `chunk`, each of which is all or nothing: cancelled, a
// sequence has the tokens of the passes that were complete. Memory is reserved as address space at
// creation and committed as the sequence grows; appending a token allocates nothing. Thread-safety:
// one thread at a time per session; sessions on one model are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kvant/result.h"
#include "kvant/runner.h"
#include "kvant/session_options.h"

namespace kvant {

class Session {
 public:
  // kInvalid for impossible options, kOutOfMemory if memory cannot be reserved.
  static Result<std::unique_ptr<Session>> Create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options);

  // Processes the tokens after those already there. Afterwards logits() belongs to the last one.
  // kInvalid for an id outside the vocabulary or no token at all, kContextFull if they do not fit;
  // nothing is processed then. After kCancelled, length() tells how many were taken in by the
  // passes that were complete, and logits() is empty unless that is none.
  Status Append(std::span<const TokenId> tokens);

  // Appends tokens as Append does, and calls `row` with the logits, [vocab], of every token in
  // order.
  using LogitRow = std::function<Status(std::span<const float> logits)>;
  Status AppendAll(std::span<const TokenId> tokens, const LogitRow& row);

  // Appends tokens as Append does, and calls `row` with the logits, [vocab], of the tokens from
  // number `first` of this call on. Rows are handed to all threads of the session: calls come in
  // any order and at the same time, one for each row. Whatever a row needs to store belongs at its
  // own index.
  using LogitRowFunction = std::function<void(int64_t index, std::span<const float> logits)>;
  Status AppendScoring(std::span<const TokenId> tokens, int64_t first, const LogitRowFunction& row);

  // The logits of the last token, [vocab]. Empty before the first token, and after Rewind and Prune
  // until ComputeLogits.
  std::span<const float> logits() const;

  int64_t length() const;
  int64_t context() const;  // positions that fit
  int32_t vocab_size() const;
  std::span<const TokenId> tokens() const;
  int threads() const;

  // Forgets all but the first `length` tokens: the state is as if no more had been processed.
  // kInvalid if length is negative or beyond the sequence. Where a sliding window has already
  // dropped positions that are needed they are computed again, or kNotSupported names the smallest
  // possible length.
  Status Rewind(int64_t length, Replay replay = Replay::kAllowed);

  // Computes the logits of the last token after a rewind or a prune, see Runner::ComputeLogits.
  Status ComputeLogits();

  // See Runner::Prune.
  Status Prune(int64_t keep_first, int64_t keep_last, PrunePositions positions);

  // Saves the sequence; or takes a saved one over into a session that has no tokens yet (see
  // Runner::Save and Load). The session is unchanged if that fails. kInvalid for a file without
  // a sequence, or if there are tokens already; kOutOfMemory for a file of more than one.
  Status Save(const std::string& path, const std::string& note = {}) const;
  Status Load(const std::string& path, std::string* note = nullptr);

  // See Runner::SetKvLog.
  void SetKvLog(Runner::LogSink sink);

  // Bytes of KV blocks in use now.
  uint64_t kv_bytes_used() const;

  // The runner beneath, and the number of its only sequence, which Load may change.
  Runner& runner() { return *runner_; }
  SequenceId sequence() const { return sequence_; }

 private:
  Session(std::unique_ptr<Runner> runner, SequenceId sequence)
      : runner_(std::move(runner)), sequence_(sequence) {}

  std::unique_ptr<Runner> runner_;
  SequenceId sequence_;
};

}  // namespace kvant
