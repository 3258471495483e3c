// kvant run --prompts: a batch of prompts, a line of JSON for each text as it ends.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "kvant/batch_generator.h"
#include "tools/options/json.h"
#include "tools/run/run_modes.h"
#include "tools/run/search_request.h"
#include "tools/run/written_text.h"

namespace kvant::tools {
namespace {

std::string ToJson(size_t number, const PromptLine& line, const BatchText& text) {
  Json out = AnswerTo(number, line);
  out["sample"] = text.sample;
  out["text"] = text.text;
  out["ids"] = text.ids;
  out["finish_reason"] = FinishReasonName(text.finish_reason);
  out["seed"] = text.seed;
  return Dump(out) + "\n";
}

}  // namespace

Status RunBatch(const RunOptions& options, const RunModel& opened, std::vector<PromptLine> prompts,
                ResultStream& out, FinishReason* finish_reason) {
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  BatchOptions batch;
  batch.sampling = options.Sampling();
  batch.max_tokens = options.max_tokens;
  batch.stop_texts = options.StopTexts();
  batch.ignore_eos = options.ignore_eos;
  batch.special = options.special;
  batch.cancel = &CancelFlag();
  StatusLine status(options.status_use());
  const std::shared_ptr<const Model>& model = opened.model;
  KVANT_ASSIGN(batch.logits.grammar, options.grammar.Make(model->tokenizer()));
  session_options.sequences = std::max(options.batch.parallel, options.batch.samples);
  KVANT_ASSIGN(const auto runner, options.session.OpenRunner(model, session_options));
  int64_t most = runner->options().context;
  Translation translation;
  std::vector<TokenId> first;  // of what a model with an encoder writes
  if (model->has_encoder()) {
    KVANT_TRY(model->CheckDecoder());
    most = model->source_length();
    KVANT_ASSIGN(translation, MakeTranslation(*model, options.translation.languages));
    KVANT_ASSIGN(first, FirstWritten(options.translation, *model, translation));
    KVANT_ASSIGN(batch.processors, Processors(options, *model, first.size(), &batch.max_tokens));
  }
  const auto good = CheckPrompts(*model, translation, most, prompts, out);
  std::vector<BatchRequest> requests;
  for (const size_t i : good) {
    BatchRequest& request = requests.emplace_back();
    request.prompt = prompts[i].tokens;
    request.samples = static_cast<int32_t>(options.batch.samples);
    if (!model->has_encoder()) continue;
    request.source = std::exchange(request.prompt, first);
  }
  const size_t total = requests.size() * static_cast<size_t>(options.batch.samples);
  size_t ended = 0;
  const Status result =
      GenerateBatch(*runner, model->tokenizer(), requests, batch, [&](const BatchText& text) {
        status.Clear();
        const size_t number = good[text.request];
        const bool written = out.Write(ToJson(number, prompts[number], text));
        status.Set(fmt::format("{} of {} texts", ++ended, total));
        return written;
      });
  status.Clear();
  const bool cancelled = !result.ok() && result.error().code == ErrorCode::kCancelled;
  if (!result.ok() && !cancelled) {
    return options.session.Explain(result, *model, session_options);
  }
  if (cancelled) *finish_reason = FinishReason::kCancelled;
  return cancelled || out.failed() ? Status() : CheckAnswered(*options.batch.prompts, prompts);
}

}  // namespace kvant::tools
