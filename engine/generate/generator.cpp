#include "kvant/generator.h"

#include "base/result.h"

namespace kvant {
namespace {

// A LogitSource as the host of its only sequence, number 0.
class OneSequence final : public SequenceHost {
 public:
  explicit OneSequence(LogitSource& source) : source_(source) {}

  int64_t context() const override { return source_.context(); }
  int64_t sequences_max() const override { return 1; }
  PromptCut prompt_cut() const override { return {.chunk = INT64_MAX, .few_rows = 1}; }

  Result<SequenceId> NewSequence() override { return OnlyOne(); }
  Status FreeSequence(SequenceId /*sequence*/) override { return OnlyOne(); }
  Result<SequenceId> Fork(SequenceId /*sequence*/) override { return OnlyOne(); }
  Status Reorder(std::span<const SequenceId> /*sequences*/,
                 std::span<const int> /*parents*/) override {
    return OnlyOne();
  }
  Status Rewind(SequenceId /*sequence*/, int64_t length, Replay /*replay*/) override {
    return source_.Rewind(length);
  }
  Status Prune(SequenceId /*sequence*/, int64_t keep_first, int64_t keep_last,
               PrunePositions /*positions*/) override {
    return source_.Shift(keep_first, keep_last);
  }
  Result<int64_t> ReusePrefix(SequenceId /*sequence*/,
                              std::span<const TokenId> /*prompt*/) override {
    return int64_t{0};
  }
  Status Step(std::span<const StepInput> inputs, const StepOptions& options) override {
    const StepInput& input = inputs.front();
    if (input.logits != Logits::kAll) return source_.Append(input.tokens);
    int64_t token = 0;
    return source_.AppendAll(input.tokens, [&](std::span<const float> logits) -> Status {
      return options.rows(0, token++, logits);
    });
  }

  int64_t length(SequenceId /*sequence*/) const override { return source_.length(); }
  std::span<const float> logits(SequenceId /*sequence*/) const override { return source_.logits(); }

 private:
  static Error OnlyOne() {
    return MakeError(ErrorCode::kNotSupported, "there is only one sequence");
  }

  LogitSource& source_;
};

// One request on a sequence that is there before and afterwards.
Result<Generation> GenerateOn(SequenceHost& host, SequenceId sequence, TextRequest::Setup setup) {
  const GenerateOptions& options = *setup.options;
  const int64_t tokens = std::ssize(setup.prompt);
  if (tokens == 0) return MakeError(ErrorCode::kInvalid, "the prompt has no tokens");
  const int64_t held = host.length(sequence);
  const int64_t room = host.context() - (options.continues ? 0 : held);
  if (tokens > room) {
    return MakeError(ErrorCode::kContextFull,
                     "the prompt has {} tokens, but the context has room for {}", tokens, room);
  }
  setup.held = options.continues ? held : 0;
  const Service service = {
      .sequence = sequence, .done = setup.held, .prompt_piece = options.prefill_slice};
  TextRequest request(std::move(setup));
  Scheduler scheduler(host, {});
  scheduler.Submit(request, service);
  Status status;
  while (status.ok() && !scheduler.idle()) status = scheduler.Poll();
  if (!status.ok() && status.error().code != ErrorCode::kCancelled) return status.error();
  KVANT_TRY(scheduler.CancelAll());
  if (!scheduler.first_failure().ok()) return scheduler.first_failure().error();
  return request.TakeGeneration();
}

}  // namespace

Result<Generation> Generate(Session& session, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text) {
  return GenerateOn(session.runner(), session.sequence(),
                    {.tokenizer = &tokenizer,
                     .prompt = prompt,
                     .options = &options,
                     .sampler = &sampler,
                     .on_text = on_text});
}

Result<Generation> Generate(SessionLogits& sequence, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text) {
  return Generate(sequence.session(), tokenizer, sampler, prompt, options, on_text);
}

Result<Generation> Generate(LogitSource& sequence, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text) {
  OneSequence host(sequence);
  return GenerateOn(host, 0,
                    {.tokenizer = &tokenizer,
                     .prompt = prompt,
                     .options = &options,
                     .sampler = &sampler,
                     .on_text = on_text});
}

}  // namespace kvant
