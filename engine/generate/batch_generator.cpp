// The running batch: which requests are under way, and one step for all of them.
#include "engine/generate/batch_generator.h"

#include <algorithm>
#include <deque>

#include "engine/generate/token_text.h"

namespace kvant {
namespace {

// A text under way.
struct Active {
  SequenceId sequence;
  Sampler sampler;
  TokenText text;
  BatchText out;
  TokenId next = 0;  // chosen, not yet processed
};

// Samples of a request that are not under way.
struct Waiting {
  size_t request;
  std::vector<int32_t> samples;
};

class Batch {
 public:
  Batch(Runner& runner, const Tokenizer& tokenizer, std::span<const BatchRequest> requests,
        const BatchOptions& options, const std::function<bool(const BatchText& text)>& on_text)
      : runner_(runner),
        tokenizer_(tokenizer),
        requests_(requests),
        options_(options),
        on_text_(on_text) {}
  ~Batch() {
    for (const Active& active : active_) (void)runner_.FreeSequence(active.sequence);
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  Status Run() {
    KVANT_TRY(CheckRequests());
    for (size_t request = 0; request < requests_.size(); ++request) {
      Waiting& waiting = waiting_.emplace_back(request, std::vector<int32_t>());
      for (int32_t i = 0; i < requests_[request].samples; ++i) waiting.samples.push_back(i);
    }
    const Status status = RunAll();
    const bool cancelled = !status.ok() && status.error().code == ErrorCode::kCancelled;
    // By the flag, between steps or in the middle of one.
    while (cancelled && !refused_ && !active_.empty()) {
      KVANT_TRY(End(0, FinishReason::kCancelled));
    }
    return status;
  }

 private:
  Status CheckRequests() const {
    for (size_t i = 0; i < requests_.size(); ++i) {
      const BatchRequest& request = requests_[i];
      const int64_t tokens = static_cast<int64_t>(request.prompt.size());
      if (tokens == 0) return MakeError(ErrorCode::kInvalid, "prompt {} has no tokens", i);
      if (tokens > runner_.options().context) {
        return MakeError(ErrorCode::kContextFull,
                         "prompt {} has {} tokens, but the context has room for {}", i, tokens,
                         runner_.options().context);
      }
      if (request.samples < 1 || request.samples > runner_.options().sequences) {
        return MakeError(ErrorCode::kInvalid, "prompt {}: expected 1 to {} samples, found {}", i,
                         runner_.options().sequences, request.samples);
      }
    }
    return {};
  }

  Status RunAll() {
    while (true) {
      KVANT_TRY(Join());
      if (active_.empty()) return {};
      if (options_.cancel != nullptr && options_.cancel->load()) {
        return MakeError(ErrorCode::kCancelled, "cancelled");
      }
      inputs_.clear();
      for (const Active& active : active_) inputs_.push_back({active.sequence, {&active.next, 1}});
      const Status status = runner_.Step(inputs_);
      if (OutOfMemory(status)) {
        KVANT_TRY(MakeRoom());
        continue;
      }
      if (!status.ok()) return status;
      KVANT_TRY(TakeTokens(0));
    }
  }

  // Waiting requests, in order, as long as there is room for all their samples.
  Status Join() {
    while (!waiting_.empty() && !full_) {
      const Waiting waiting = waiting_.front();
      const int64_t room = runner_.options().sequences - static_cast<int64_t>(active_.size());
      if (std::ssize(waiting.samples) > room) return {};
      const size_t first = active_.size();
      waiting_.pop_front();
      for (const int32_t sample : waiting.samples) {
        const bool shared = active_.size() > first;
        const Status status = Add(waiting.request, sample, shared ? &active_[first] : nullptr);
        if (OutOfMemory(status) && first > 0) {
          // Only the first sample takes memory, for the prompt.
          KVANT_TRY(SendBack());
          waiting_.front().samples = waiting.samples;
          return {};
        }
        if (!status.ok()) return status;
      }
      KVANT_TRY(TakeTokens(first));  // texts that end with their first token leave at once
    }
    return {};
  }

  // Memory is full. The text that came last waits until another has ended and begins anew; it will
  // be the same. One that is alone ends here.
  Status MakeRoom() {
    if (active_.size() == 1) return End(0, FinishReason::kMemory);
    return SendBack();
  }

  Status SendBack() {
    const size_t request = active_.back().out.request;
    if (waiting_.empty() || waiting_.front().request != request) {
      waiting_.push_front({request, {}});
    }
    std::vector<int32_t>& samples = waiting_.front().samples;
    samples.insert(samples.begin(), active_.back().out.sample);
    KVANT_TRY(runner_.FreeSequence(active_.back().sequence));
    active_.pop_back();
    full_ = true;
    return {};
  }

  Status Add(size_t index, int32_t sample, const Active* shared) {
    const BatchRequest& request = requests_[index];
    SamplingOptions sampling = options_.sampling;
    if (sampling.seed.has_value()) *sampling.seed += static_cast<uint64_t>(sample);
    KVANT_ASSIGN(Sampler sampler, Sampler::Create(sampling, runner_.model().vocab_size()));
    if (options_.ignore_eos) {
      for (const TokenId id : tokenizer_.special().end_of_generation) sampler.Forbid(id);
    }
    for (const TokenId id : request.prompt) sampler.Accept(id);
    SequenceId sequence = 0;
    if (shared != nullptr) {
      KVANT_ASSIGN(sequence, runner_.Fork(shared->sequence));
    } else {
      KVANT_ASSIGN(sequence, runner_.NewSequence());
    }
    BatchText out;
    out.request = index;
    out.sample = sample;
    out.seed = sampler.seed();
    active_.push_back(
        {sequence, std::move(sampler),
         TokenText(tokenizer_, options_.stop_texts, options_.special, options_.ignore_eos),
         std::move(out)});
    return shared != nullptr ? Status() : runner_.Append(sequence, request.prompt);
  }

  // The next token of every text from number `i` on; those that end leave in order.
  Status TakeTokens(size_t i) {
    while (i < active_.size()) {
      const size_t before = active_.size();
      KVANT_TRY(TakeToken(i));
      if (active_.size() == before) ++i;
    }
    return {};
  }

  // Chooses the next token of a text, or ends it.
  Status TakeToken(size_t i) {
    Active& active = active_[i];
    if (static_cast<int64_t>(active.out.ids.size()) == options_.max_tokens) {
      return End(i, FinishReason::kLength);
    }
    KVANT_ASSIGN(active.next, active.sampler.Sample(runner_.logits(active.sequence)));
    active.sampler.Accept(active.next);
    const TokenText::State state = active.text.Push(active.next, active.out.text);
    if (state == TokenText::State::kEndToken) return End(i, FinishReason::kStop);
    active.out.ids.push_back(active.next);
    if (state == TokenText::State::kStopText) return End(i, FinishReason::kStopText);
    if (static_cast<int64_t>(active.out.ids.size()) == options_.max_tokens) {
      return End(i, FinishReason::kLength);
    }
    if (runner_.length(active.sequence) == runner_.options().context) {
      return End(i, FinishReason::kContext);
    }
    return {};
  }

  Status End(size_t i, FinishReason reason) {
    Active ended = std::move(active_[i]);
    active_.erase(active_.begin() + static_cast<std::ptrdiff_t>(i));
    full_ = false;
    KVANT_TRY(runner_.FreeSequence(ended.sequence));
    ended.out.text += ended.text.Finish();
    ended.out.finish_reason = reason;
    if (on_text_(ended.out)) return {};
    refused_ = true;
    return MakeError(ErrorCode::kCancelled, "cancelled");
  }

  Runner& runner_;
  const Tokenizer& tokenizer_;
  std::span<const BatchRequest> requests_;
  const BatchOptions& options_;
  const std::function<bool(const BatchText& text)>& on_text_;
  std::vector<Active> active_;
  std::vector<StepInput> inputs_;
  std::deque<Waiting> waiting_;
  bool full_ = false;     // memory is, until a text ends
  bool refused_ = false;  // by on_text_
};

}  // namespace

Status GenerateBatch(Runner& runner, const Tokenizer& tokenizer,
                     std::span<const BatchRequest> requests, const BatchOptions& options,
                     const std::function<bool(const BatchText& text)>& on_text) {
  return Batch(runner, tokenizer, requests, options, on_text).Run();
}

}  // namespace kvant
