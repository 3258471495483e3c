// A batch: a request for every text, and rounds until all have ended.
#include "kvant/batch_generator.h"
#include "base/counted.h"

#include <deque>

#include "base/result.h"

namespace kvant {
namespace {

Status CheckRequests(const Runner& runner, std::span<const BatchRequest> requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const BatchRequest& request = requests[i];
    const int64_t tokens = std::ssize(request.prompt);
    if (tokens == 0) return MakeError(ErrorCode::kInvalid, "prompt {} has no tokens", i);
    if (tokens > runner.options().context) {
      return MakeError(ErrorCode::kContextFull, "prompt {} has {}, but the context has room for {}",
                       i, Counted(tokens, "token"), runner.options().context);
    }
    if (request.samples < 1 || request.samples > runner.options().sequences) {
      return MakeError(ErrorCode::kInvalid, "prompt {}: expected 1 to {} samples, found {}", i,
                       runner.options().sequences, request.samples);
    }
  }
  return {};
}

SamplingOptions SamplingOf(const BatchRequest& request, int32_t sample,
                           const BatchOptions& options) {
  SamplingOptions sampling = request.sampling.value_or(options.sampling);
  if (sampling.seed.has_value()) *sampling.seed += static_cast<uint64_t>(sample);
  return sampling;
}

}  // namespace

Status GenerateBatch(Runner& runner, const Tokenizer& tokenizer,
                     std::span<const BatchRequest> requests, const BatchOptions& options,
                     const std::function<bool(const BatchText& text)>& on_text) {
  KVANT_TRY(CheckRequests(runner, requests));
  GenerateOptions generate;
  generate.max_tokens = options.max_tokens;
  generate.stop_texts = options.stop_texts;
  generate.ignore_eos = options.ignore_eos;
  generate.special = options.special;
  generate.logits = options.logits;
  generate.processors = options.processors;
  std::deque<TextRequest> texts;
  Scheduler scheduler(runner, {.prompt_slice = options.prompt_slice, .cancel = options.cancel});
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto input = std::make_shared<const TextInput>(
        TextInput{requests[i].prompt, requests[i].source, requests[i].frames});
    for (int32_t sample = 0; sample < requests[i].samples; ++sample) {
      TextRequest::Setup setup = {
          .tokenizer = std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), &tokenizer),
          .input = input,
          .options = generate,
          .sampling = SamplingOf(requests[i], sample, options),
          .vocab_size = runner.model().vocab_size()};
      if (options.on_piece) {
        setup.on_text = [&options, i, sample](std::string_view piece) {
          return options.on_piece(i, sample, piece);
        };
      }
      setup.on_end = [&on_text, i, sample](TextRequest& text) {
        const uint64_t seed = text.seed();
        Generation generation = text.TakeGeneration();
        return on_text({i, sample, seed, std::move(generation.ids), std::move(generation.text),
                        generation.finish_reason});
      };
      scheduler.Submit(texts.emplace_back(std::move(setup)));
    }
  }
  return scheduler.Drain();
}

}  // namespace kvant
