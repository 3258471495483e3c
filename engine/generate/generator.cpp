#include "kvant/generator.h"

#include "base/counted.h"
#include "base/result.h"
#include "engine/run/memory_plan.h"
#include "kvant/scheduler.h"

namespace kvant {

Result<Generation> Generate(SequenceHost& host, SequenceId sequence, const Tokenizer& tokenizer,
                            Sampler& sampler, std::span<const TokenId> prompt,
                            const GenerateOptions& options, const TextFunction& on_text) {
  const int64_t tokens = std::ssize(prompt);
  if (tokens == 0) return MakeError(ErrorCode::kInvalid, "the prompt has no tokens");
  const int64_t length = host.length(sequence);
  const int64_t room = host.context() - (options.continues ? 0 : length);
  if (tokens > room) {
    return MakeError(ErrorCode::kContextFull, "the prompt has {}, but the context has room for {}",
                     Counted(tokens, "token"), room);
  }
  const int64_t held = options.continues ? length : 0;
  TextRequest request(
      {.tokenizer = std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), &tokenizer),
       .input = std::make_shared<TextInput>(TextInput{{prompt.begin(), prompt.end()}}),
       .options = options,
       .held = held,
       .sampler = std::move(sampler),
       .on_text = on_text});
  Scheduler scheduler(host, {});
  scheduler.Submit(request,
                   {.sequence = sequence, .done = held, .prompt_piece = options.prefill_slice});
  const Status status = scheduler.Drain();
  sampler = request.TakeSampler();
  if (!status.ok() && !status.Is(ErrorCode::kCancelled)) return status.error();
  return request.TakeGeneration();
}

Result<Generation> Generate(Session& session, const Tokenizer& tokenizer, Sampler& sampler,
                            std::span<const TokenId> prompt, const GenerateOptions& options,
                            const TextFunction& on_text) {
  if (options.shift_keep.has_value()) {
    KVANT_TRY(CheckShift(session.runner().model(), session.runner().options()));
  }
  return Generate(session.runner(), session.sequence(), tokenizer, sampler, prompt, options,
                  on_text);
}

}  // namespace kvant
