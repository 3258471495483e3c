#include "engine/generate/generator.h"

#include <algorithm>
#include <chrono>

#include "engine/generate/token_text.h"

namespace kvant {
namespace {

// Adds the time of its life to a sum of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// One run of the loop.
class Loop {
 public:
  Loop(LogitSource& sequence, const Tokenizer& tokenizer, Sampler& sampler,
       const GenerateOptions& options, const TextFunction& on_text)
      : sequence_(sequence),
        tokenizer_(tokenizer),
        sampler_(sampler),
        options_(options),
        on_text_(on_text),
        text_(tokenizer, options.stop_texts, options.special, options.ignore_eos) {}

  Result<Generation> Run(std::span<const TokenId> prompt) {
    KVANT_TRY(CheckPrompt(prompt));
    if (options_.ignore_eos) {
      for (const TokenId id : tokenizer_.special().end_of_generation) sampler_.Forbid(id);
    }
    bool shown = true;
    if (options_.echo) shown = Show(Complete(tokenizer_.Decode(prompt, options_.special)));
    Status status = shown ? Prefill(prompt) : Status();
    if (status.ok() && shown) status = Decode();
    if (!status.ok() && status.error().code != ErrorCode::kCancelled) return status.error();
    Show(text_.Finish());  // cancelled or not
    return std::move(out_);
  }

 private:
  Status CheckPrompt(std::span<const TokenId> prompt) const {
    if (prompt.empty()) return MakeError(ErrorCode::kInvalid, "the prompt has no tokens");
    const int64_t room = sequence_.context() - sequence_.length();
    const int64_t tokens = static_cast<int64_t>(prompt.size());
    if (tokens > room) {
      return MakeError(ErrorCode::kContextFull,
                       "the prompt has {} tokens, but the context has room for {}", tokens, room);
    }
    return {};
  }

  Status Prefill(std::span<const TokenId> prompt) {
    const size_t slice =
        options_.prefill_slice > 0 ? static_cast<size_t>(options_.prefill_slice) : prompt.size();
    for (size_t done = 0; done < prompt.size();) {
      const auto part = prompt.subspan(done, std::min(slice, prompt.size() - done));
      {
        Stopwatch watch(&out_.prefill_seconds);
        KVANT_TRY(sequence_.Append(part));
      }
      for (const TokenId id : part) sampler_.Accept(id);
      done += part.size();
      out_.prefill_tokens += static_cast<int64_t>(part.size());
      if (options_.on_prefill) options_.on_prefill(static_cast<int64_t>(done));
    }
    return {};
  }

  // Sets out_.finish_reason. An error of kCancelled leaves it at its default.
  Status Decode() {
    while (true) {
      if (static_cast<int64_t>(out_.ids.size()) == options_.max_tokens) {
        return Finish(FinishReason::kLength);
      }
      if (!out_.ids.empty()) {
        if (sequence_.length() >= sequence_.context()) return Finish(FinishReason::kContext);
        Stopwatch watch(&out_.decode_seconds);
        KVANT_TRY(sequence_.Append({&out_.ids.back(), 1}));
        ++out_.decode_tokens;
      }
      if (options_.cancel != nullptr && options_.cancel->load()) {
        return Finish(FinishReason::kCancelled);
      }
      TokenId id = 0;
      {
        Stopwatch watch(&out_.decode_seconds);
        KVANT_ASSIGN(id, sampler_.Sample(sequence_.logits()));
        sampler_.Accept(id);
      }
      std::string piece;
      const TokenText::State state = text_.Push(id, piece);
      if (state == TokenText::State::kEndToken) return Finish(FinishReason::kStop);
      out_.ids.push_back(id);
      if (!Show(piece)) return Finish(FinishReason::kCancelled);
      if (state == TokenText::State::kStopText) return Finish(FinishReason::kStopText);
    }
  }

  Status Finish(FinishReason reason) {
    out_.finish_reason = reason;
    return {};
  }

  // Bytes of any kind as complete UTF-8.
  static std::string Complete(std::string_view bytes) {
    Utf8Stream stream;
    std::string text = stream.Push(bytes);
    return text + stream.Finish();
  }

  bool Show(std::string_view piece) {
    if (piece.empty()) return true;
    out_.text += piece;
    return on_text_ == nullptr || on_text_(piece);
  }

  LogitSource& sequence_;
  const Tokenizer& tokenizer_;
  Sampler& sampler_;
  const GenerateOptions& options_;
  const TextFunction& on_text_;
  TokenText text_;
  Generation out_;
};

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kStopText: return "stop_text";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kCancelled: return "cancelled";
  }
  return "unknown";
}

Result<Generation> Generate(LogitSource& sequence, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text) {
  return Loop(sequence, tokenizer, sampler, options, on_text).Run(prompt);
}

}  // namespace kvant
