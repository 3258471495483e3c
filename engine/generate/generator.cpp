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
    all_.assign(prompt.begin(), prompt.end());
    if (options_.ignore_eos) {
      for (const TokenId id : tokenizer_.special().end_of_generation) sampler_.Forbid(id);
    }
    bool shown = true;
    if (options_.echo)
      shown = Show(Complete(tokenizer_.Decode(prompt, {.special = options_.special})));
    Status status = shown ? Prefill(prompt) : Status();
    if (status.ok() && shown) status = Decode();
    if (!status.ok() && status.error().code != ErrorCode::kCancelled) return status.error();
    Show(text_.Finish());  // cancelled or not
    return std::move(out_);
  }

 private:
  Status CheckPrompt(std::span<const TokenId> prompt) const {
    if (prompt.empty()) return MakeError(ErrorCode::kInvalid, "the prompt has no tokens");
    const int64_t held = options_.continues ? 0 : sequence_.length();
    const int64_t room = sequence_.context() - held;
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
    size_t done = options_.continues ? static_cast<size_t>(sequence_.length()) : 0;
    for (const TokenId id : prompt.first(done)) sampler_.Accept(id);
    while (done < prompt.size()) {
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
    if (options_.max_tokens == 0) return Finish(FinishReason::kLength);
    chosen_.clear();
    {
      Stopwatch watch(&out_.decode_seconds);
      KVANT_TRY(Choose(sequence_.logits()));
    }
    while (true) {
      for (const TokenId id : chosen_) {
        if (Take(id)) return {};
      }
      if (static_cast<int64_t>(out_.ids.size()) == options_.max_tokens) {
        return Finish(FinishReason::kLength);
      }
      if (sequence_.length() >= sequence_.context()) {
        // Of a single token nothing can go.
        if (!options_.shift_keep.has_value() || sequence_.length() < 2) {
          return Finish(FinishReason::kContext);
        }
        KVANT_TRY(Shift());
      }
      if (options_.cancel != nullptr && options_.cancel->load()) {
        return Finish(FinishReason::kCancelled);
      }
      Stopwatch watch(&out_.decode_seconds);
      KVANT_TRY(Guess());
      Status status = Check();
      if (OutOfMemory(status) && guess_.size() > 1) {
        guess_.erase(guess_.begin() + 1, guess_.end());
        status = Check();
      }
      if (OutOfMemory(status)) return Finish(FinishReason::kMemory);
      if (!status.ok()) return status;
    }
  }

  Status Shift() {
    const int64_t keep = std::min(*options_.shift_keep, sequence_.length() - 2);
    return sequence_.Shift(keep, (sequence_.length() - keep) / 2);
  }

  // The last token and what the draft thinks will follow, as far as there is room for it.
  Status Guess() {
    guess_.assign(1, out_.ids.back());
    if (options_.draft == nullptr) return {};
    // More rows than these would not have the bits of single ones.
    int64_t count = std::min(
        {options_.draft_tokens, kSharedRowsMax - 1, sequence_.context() - sequence_.length() - 1});
    if (options_.max_tokens >= 0) {
      count = std::min(count, options_.max_tokens - static_cast<int64_t>(out_.ids.size()) - 1);
    }
    if (count <= 0) return {};
    KVANT_ASSIGN(const auto proposal, options_.draft->Propose(all_, count));
    guess_.insert(guess_.end(), proposal.begin(), proposal.end());
    out_.drafted_tokens += static_cast<int64_t>(proposal.size());
    return {};
  }

  // Appends the guess and chooses the next token after each of its tokens that was right.
  Status Check() {
    chosen_.clear();
    const int64_t before = sequence_.length();
    size_t row = 0;
    bool right = true;
    const auto choose = [&](std::span<const float> logits) -> Status {
      if (right) {
        KVANT_TRY(Choose(logits));
        right = row + 1 < guess_.size() && chosen_.back() == guess_[row + 1];
      }
      ++row;
      return {};
    };
    if (guess_.size() == 1) {
      KVANT_TRY(sequence_.Append(guess_));
      KVANT_TRY(choose(sequence_.logits()));
    } else {
      KVANT_TRY(sequence_.AppendAll(guess_, choose));
    }
    ++out_.decode_passes;
    out_.decode_tokens += static_cast<int64_t>(chosen_.size());
    out_.accepted_tokens += static_cast<int64_t>(chosen_.size()) - 1;
    const int64_t kept = before + static_cast<int64_t>(chosen_.size());
    return sequence_.length() > kept ? sequence_.Rewind(kept) : Status();
  }

  Status Choose(std::span<const float> logits) {
    KVANT_ASSIGN(const TokenId id, sampler_.Sample(logits));
    sampler_.Accept(id);
    chosen_.push_back(id);
    return {};
  }

  // Adds a token to the text; true if that ends it.
  bool Take(TokenId id) {
    std::string piece;
    const TokenText::State state = text_.Push(id, piece);
    if (state == TokenText::State::kEndToken) return End(FinishReason::kStop);
    out_.ids.push_back(id);
    all_.push_back(id);
    if (!Show(piece)) return End(FinishReason::kCancelled);
    return state == TokenText::State::kStopText && End(FinishReason::kStopText);
  }

  bool End(FinishReason reason) {
    out_.finish_reason = reason;
    return true;
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
  std::vector<TokenId> all_;     // prompt and generated
  std::vector<TokenId> guess_;   // the last token and those that may follow
  std::vector<TokenId> chosen_;  // from the logits of the last pass
  Generation out_;
};

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kStopText: return "stop_text";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kMemory: return "memory";
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
