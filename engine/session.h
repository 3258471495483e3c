// One running sequence of tokens on a model: append, read logits, rewind.
//
// Tokens are processed in steps of at most `chunk`. A step is a transaction: on failure or
// cancellation the sequence is what it was before the step. Memory is reserved as address space at
// creation and committed as the sequence grows; a decode step allocates nothing. Thread-safety: one
// thread at a time per session; sessions on one model are independent.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cpu/kernels.h"
#include "engine/model.h"

namespace kvant {

// Rows that a step computes at most; longer inputs are cut into steps of this size.
inline constexpr int64_t kDefaultChunk = 512;

struct SessionOptions {
  int64_t context = 0;  // positions the sequence may hold; 0 = the model's training length
  cpu::KvElement k_type = cpu::KvElement::kF16;
  cpu::KvElement v_type = cpu::KvElement::kF16;
  // 0 = DefaultThreadCount(), and one for steps that are too small to share.
  int threads = 0;
  int64_t chunk = kDefaultChunk;
  bool kv_cache =
      true;  // false: every step recomputes the whole sequence (the oracle; uses no KV memory)
  const std::atomic<bool>* cancel = nullptr;  // polled between phases; set = kCancelled
};

// What a session will use. All in bytes.
struct MemoryPlan {
  struct Group {  // layers with the same cache shape
    int layers;
    int64_t window;  // 0 = all positions
    int kv_heads, k_dim, v_dim;
    int64_t rows;  // positions held at most
    uint64_t bytes;
    uint64_t bytes_per_token;  // of all layers of the group
  };
  uint64_t weights = 0;      // mapped from the file
  uint64_t kv = 0;           // when the context is full
  uint64_t activations = 0;  // buffers and scratch of all threads
  uint64_t logits = 0;
  std::vector<Group> groups;
  uint64_t total() const { return weights + kv + activations + logits; }
};

// The plan for these options, without loading weights or reserving anything.
Result<MemoryPlan> PlanMemory(const Model& model, const SessionOptions& options);

// Reads "f32" or "f16".
Result<cpu::KvElement> ParseKvType(std::string_view name);

class Session {
 public:
  // kInvalid for impossible numbers, kOutOfMemory if the reservation fails.
  static Result<std::unique_ptr<Session>> Create(std::shared_ptr<const Model> model,
                                                 const SessionOptions& options);
  ~Session();

  // Processes the tokens after those already there. Afterwards logits() belongs to the last one.
  // kInvalid for an id outside the vocabulary or no token at all, kContextFull if they do not fit;
  // nothing is processed then. After kCancelled, length() tells how many were taken in by the steps
  // that were complete.
  Status Append(std::span<const TokenId> tokens);

  // The same, and calls `row` with the logits, [vocab], of every token in order.
  using LogitRow = std::function<Status(std::span<const float> logits)>;
  Status AppendAll(std::span<const TokenId> tokens, const LogitRow& row);

  // The same, and calls `row` with the logits, [vocab], of the tokens from number `first` of this
  // call on. Rows are handed to all threads of the session: calls come in any order and at the same
  // time, one for each row. What a row needs to store belongs at its own index.
  using LogitRowFunction = std::function<void(int64_t index, std::span<const float> logits)>;
  Status AppendScoring(std::span<const TokenId> tokens, int64_t first, const LogitRowFunction& row);

  // Of the last token processed, [vocab]; empty before the first step and after Rewind.
  std::span<const float> logits() const;

  int64_t length() const;
  int64_t context() const;  // positions that fit
  std::span<const TokenId> tokens() const;
  int threads() const;

  // Forgets all but the first `length` tokens, exactly: the state is as if no more had been
  // processed. kInvalid if length is negative or beyond the sequence; kNotSupported, with the
  // smallest possible length, where a sliding window has already dropped positions that are needed.
  Status Rewind(int64_t length);

  // Bytes of KV blocks in use now.
  uint64_t kv_bytes_used() const;

 private:
  struct State;
  explicit Session(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace kvant
