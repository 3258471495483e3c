#include "kvant/generator.h"

#include "base/result.h"

namespace kvant {
namespace {

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

Result<Generation> Generate(SequenceHost& host, SequenceId sequence, const Tokenizer& tokenizer,
                            Sampler& sampler, std::span<const TokenId> prompt,
                            const GenerateOptions& options, const TextFunction& on_text) {
  return GenerateOn(host, sequence,
                    {.tokenizer = &tokenizer,
                     .prompt = prompt,
                     .options = &options,
                     .sampler = &sampler,
                     .on_text = on_text});
}

Result<Generation> Generate(Session& session, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text) {
  return Generate(session.runner(), session.sequence(), tokenizer, sampler, prompt, options,
                  on_text);
}

}  // namespace kvant
