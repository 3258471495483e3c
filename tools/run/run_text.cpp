// kvant run without a search or a batch: one streamed text.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "engine/run/memory_plan.h"
#include "kvant/draft.h"
#include "kvant/generator.h"
#include "kvant/memory_plan.h"
#include "tools/options/stopwatch.h"
#include "tools/run/resumed_text.h"
#include "tools/run/run_modes.h"
#include "tools/run/run_session.h"
#include "tools/run/text_report.h"

namespace kvant::tools {
namespace {

// How many tokens of the beginning stay when the context is full, nullopt to end the text there.
std::optional<int64_t> ShiftKeep(const ContinueRunOptions& options, const Tokenizer& tokenizer,
                                 size_t prompt_tokens, int64_t context) {
  if (!options.context_shift && !options.keep.has_value()) return std::nullopt;
  const int64_t keep = options.keep.value_or(0);
  const int64_t prompt = static_cast<int64_t>(prompt_tokens);
  const int64_t bos = tokenizer.special().add_bos ? 1 : 0;
  const int64_t wanted = keep < 0 ? prompt : std::min(prompt, keep + bos);
  // Two positions at least are for what changes.
  return std::min(wanted, std::max<int64_t>(0, context - 2));
}

// Before anything is computed.
Status CheckThatItShifts(const ContinueRunOptions& options, const Runner& runner) {
  if (!options.context_shift && !options.keep.has_value()) return {};
  const Status possible = CheckShift(runner.model(), runner.options());
  if (possible.ok()) return {};
  return MakeError(possible.error().code, "{}: {}",
                   options.context_shift ? "--context-shift" : "--keep", possible.error().message);
}

Result<GenerateOptions> ToGenerateOptions(const RunOptions& options, const TextRun& run) {
  GenerateOptions out;
  out.max_tokens = options.max_tokens;
  out.stop_texts = options.StopTexts();
  out.ignore_eos = options.ignore_eos;
  out.special = options.special;
  out.echo = options.echo;
  out.cancel = &CancelFlag();
  out.continues = true;
  KVANT_TRY(SetProcessors(options, run, &out));
  out.logits.grammar = run.grammar;
  const bool inside = run.grammar_begin < std::ssize(run.prompt);
  if (inside && !out.processors.has_value()) out.processors_prompt = run.grammar_begin;
  const DraftGroup& draft = options.continuation.draft;
  KVANT_ASSIGN(out.draft, draft.Make(options.model, run.session->runner().options(),
                                     run.session->vocab_size()));
  out.draft_tokens = draft.TokensAtOnce();
  out.shift_keep = ShiftKeep(options.continuation, run.model->tokenizer(), run.prompt.size(),
                             run.session->context());
  return out;
}

}  // namespace

Status RunText(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
               ResultStream& out, FinishReason* finish_reason) {
  std::optional<SessionLock> saved;
  if (options.continuation.File().has_value()) {
    KVANT_ASSIGN(SessionLock lock, SessionLock::Take(*options.continuation.File()));
    saved.emplace(std::move(lock));
  }
  KVANT_ASSIGN(const auto prompt_text, options.prompt.Read(positionals));
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  session_options = options.continuation.draft.With(session_options);
  StatusLine status(options.status_use());
  TextRun run;
  run.model = opened.model;
  const Tokenizer& tokenizer = run.model->tokenizer();
  KVANT_TRY(run.model->CheckDecoder());
  KVANT_ASSIGN(run.grammar, options.grammar.Make(tokenizer));
  KVANT_ASSIGN(auto sampler,
               Sampler::Create(options.Sampling(), run.model->vocab_size(), &tokenizer));
  KVANT_ASSIGN(run.session, options.session.Open(run.model, session_options));
  KVANT_TRY(CheckThatItShifts(options.continuation, run.session->runner()));
  KVANT_TRY(TakeUp(options, prompt_text, saved ? &*saved : nullptr, &run));
  KVANT_TRY(TakeUpGrammar(options, &run));
  const double load_seconds = SecondsSince(opened.start);

  KVANT_ASSIGN(GenerateOptions generate, ToGenerateOptions(options, run));
  if (status.enabled() && session_options.kv_cache) {
    generate.prefill_slice = session_options.chunk;
    generate.on_prefill = [&](int64_t done) {
      status.Set(fmt::format("prefill {} of {} tokens", done, run.prompt.size()));
    };
  }
  const auto on_text = [&](std::string_view piece) {
    status.Clear();
    return options.json || out.Write(piece);
  };
  auto generated = Generate(*run.session, tokenizer, sampler, run.prompt, generate, on_text);
  status.Clear();
  if (!generated.ok()) {
    return options.session.Explain(generated.error(), *run.model, session_options);
  }
  Generation& generation = *generated;
  *finish_reason = generation.finish_reason;
  if (saved) KVANT_TRY(SaveText(options.continuation, generation, run));
  if (options.json) {
    const auto source = run.session->runner().source_tokens(run.session->sequence());
    out.Write(
        TextJson(positionals.model, run.prompt, source, generation, sampler.seed(), load_seconds));
  } else if (StdoutIsTerminal()) {
    out.EndLineOnTerminal();
  } else {
    out.Write("\n");
  }
  const std::string early =
      EarlyEnd(generation.finish_reason, run.session->context(),
               run.grammar != nullptr ? GrammarUse::kFollowed : GrammarUse::kNone);
  if (!early.empty() && !options.json && !options.quiet && !out.failed()) Note(early);
  if (status.enabled() && !out.failed()) {
    KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(*run.model, session_options));
    PrintSummary(generation, run.session->kv_bytes_used(), plan.kv);
  }
  return {};
}

}  // namespace kvant::tools
