// A single text: prefill a prompt, then sample, show and append tokens until something ends it. It
// is a batch of one (text_request.h, run/scheduler.h).
//
// Thread-safety: one thread at a time per sequence and sampler.
#pragma once

#include <cstdint>
#include <span>

#include "kvant/result.h"
#include "kvant/session.h"
#include "kvant/text_request.h"

namespace kvant {

// A sequence that Generate can run on in place of a Session, such as a script of a test. Errors are
// those of Session.
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

// Names the sequence of a session, for the overload of Generate below.
class SessionLogits final {
 public:
  explicit SessionLogits(Session* session) : session_(session) {}
  Session& session() const { return *session_; }

 private:
  Session* session_;
};

// Appends `prompt` to the sequence and generates. kInvalid for an empty prompt, kContextFull if it
// does not fit; then the sequence is unchanged.
Result<Generation> Generate(Session& session, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text);
Result<Generation> Generate(SessionLogits& sequence, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text);
Result<Generation> Generate(LogitSource& sequence, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text);

}  // namespace kvant
