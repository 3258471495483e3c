// The generation loop: prefill a prompt, then sample, show and append tokens until something ends
// it.
//
// Text reaches the caller as pieces of complete UTF-8 the moment they are final: bytes of an
// unfinished character and beginnings of stop texts are held back (stop_text.h, Utf8Stream).
// The loop knows a running sequence only through LogitSource, so that tests can script one.
//
// Thread-safety: one thread at a time per sequence and sampler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/generate/draft.h"
#include "engine/generate/sampler.h"
#include "engine/session.h"
#include "engine/tokenizer/tokenizer.h"

namespace kvant {

// A running sequence as the loop sees it. Errors are those of Session.
class LogitSource {
 public:
  virtual ~LogitSource() = default;
  virtual Status Append(std::span<const TokenId> tokens) = 0;
  // The same, and calls `row` with the logits of every token in order.
  virtual Status AppendAll(std::span<const TokenId> tokens, const Session::LogitRow& row) = 0;
  virtual Status Rewind(int64_t length) = 0;
  // Forgets all but the first and the last tokens, which move to earlier positions.
  virtual Status Shift(int64_t keep_first, int64_t keep_last) = 0;
  virtual std::span<const float> logits() const = 0;  // of the last token appended
  virtual int64_t length() const = 0;
  virtual int64_t context() const = 0;
};

class SessionLogits final : public LogitSource {
 public:
  explicit SessionLogits(Session* session) : session_(session) {}
  Status Append(std::span<const TokenId> tokens) override { return session_->Append(tokens); }
  Status AppendAll(std::span<const TokenId> tokens, const Session::LogitRow& row) override {
    return session_->AppendAll(tokens, row);
  }
  Status Rewind(int64_t length) override { return session_->Rewind(length); }
  Status Shift(int64_t keep_first, int64_t keep_last) override {
    return session_->Prune(keep_first, keep_last, PrunePositions::kMoved);
  }
  std::span<const float> logits() const override { return session_->logits(); }
  int64_t length() const override { return session_->length(); }
  int64_t context() const override { return session_->context(); }

 private:
  Session* session_;
};

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: until an end token or a full context
  std::vector<std::string> stop_texts;
  bool ignore_eos = false;  // end tokens are never chosen
  bool special = false;     // show the text of control tokens
  bool echo = false;        // the prompt's text comes first
  // Where > 0, the prompt is processed in slices of so many tokens and on_prefill is called after
  // each with the number done.
  int64_t prefill_slice = 0;
  std::function<void(int64_t done)> on_prefill;
  const std::atomic<bool>* cancel = nullptr;  // set: ends with kCancelled, keeping what there is
  // The sequence holds the beginning of the prompt already, all but its last token at most.
  bool continues = false;
  // What happens when the context is full: nullopt ends the text; else so many tokens of the
  // beginning are kept, and the later half of the others. A context of one token is never shifted.
  std::optional<int64_t> shift_keep;
  // Guesses of at most draft_tokens, and kSharedRowsMax - 1, are checked together with each token;
  // null: none.
  Draft* draft = nullptr;
  int64_t draft_tokens = 8;
};

enum class FinishReason : uint8_t {
  kStop,       // an end-of-generation token
  kStopText,   // a stop text
  kLength,     // max_tokens
  kContext,    // the context is full
  kMemory,     // the KV cache's memory is full
  kCancelled,  // by the cancel flag or by the caller's text function
};

// "stop", "stop_text", "length", "context", "memory", "cancelled".
const char* FinishReasonName(FinishReason reason);

// Whether a step was refused because the KV cache's memory is full.
inline bool OutOfMemory(const Status& status) {
  return !status.ok() && status.error().code == ErrorCode::kOutOfMemory;
}

struct Generation {
  std::vector<TokenId> ids;  // generated, the end token excluded
  std::string text;          // all pieces together
  FinishReason finish_reason = FinishReason::kCancelled;
  int64_t prefill_tokens = 0;
  double prefill_seconds = 0;
  int64_t decode_tokens = 0;  // tokens appended after the prompt, without wrong guesses
  int64_t decode_passes = 0;
  int64_t drafted_tokens = 0;   // guessed
  int64_t accepted_tokens = 0;  // of these, right
  double decode_seconds = 0;    // sampling and appending, the caller's text function excluded
};

// Receives each piece of text; false ends the generation.
using TextFunction = std::function<bool(std::string_view piece)>;

// Appends `prompt` to the sequence and generates. kInvalid for an empty prompt, kContextFull if it
// does not fit; then the sequence is unchanged.
Result<Generation> Generate(LogitSource& sequence, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text);

}  // namespace kvant
