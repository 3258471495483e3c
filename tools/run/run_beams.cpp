// kvant run --beams: the best texts that a beam search finds.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/counted.h"
#include "base/result.h"
#include "kvant/beam_generator.h"
#include "tools/options/json.h"
#include "tools/run/prompt_lines.h"
#include "tools/run/run_modes.h"
#include "tools/run/search_request.h"
#include "tools/run/written_text.h"

namespace kvant::tools {
namespace {

Json HypothesesJson(const std::vector<BeamHypothesis>& hypotheses, const Tokenizer& tokenizer,
                    bool special) {
  Json out = Json::array();
  for (const BeamHypothesis& hypothesis : hypotheses) {
    out.push_back({{"text", tokenizer.Decode(hypothesis.ids, {.special = special})},
                   {"ids", hypothesis.ids},
                   {"score", hypothesis.score},
                   {"logprobs", hypothesis.log_probs},
                   {"parents", hypothesis.parents},
                   {"ended", hypothesis.ended}});
  }
  return out;
}

// Model, runner and prompts of a search.
struct BeamRun {
  SessionOptions session;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Runner> runner;
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<TokenId>> sources;  // of encoder-decoders
  std::vector<std::vector<float>> frames;     // of those that read sound
  Translation translation;                    // likewise
  BeamGenerateOptions generate;
};

Status AddText(const RunOptions& options, const std::optional<std::string>& text, BeamRun& run) {
  if (!run.model->has_encoder()) {
    KVANT_ASSIGN(run.prompts.emplace_back(), options.PromptIds(*run.model, text));
    return {};
  }
  KVANT_ASSIGN(WrittenText written,
               ReadWritten(options.translation, options.frames, *run.model, text));
  std::vector<TokenId>& prompt = run.prompts.emplace_back(std::move(written.first));
  if (written.frames.empty()) {
    run.sources.push_back(std::move(written.source));
    return {};
  }
  run.frames.push_back(std::move(written.frames));
  KVANT_ASSIGN(const SequenceId sequence, run.runner->NewSequenceOfFrames(run.frames.back()));
  const Status chosen = ChooseLanguage(options.translation, *run.runner, sequence, prompt);
  KVANT_TRY(run.runner->FreeSequence(sequence));
  return chosen;
}

// `texts` is how many texts are searched; the prompts come later, when the context is known.
Result<BeamRun> Prepare(const RunOptions& options, const RunModel& opened, size_t texts) {
  BeamRun run;
  run.model = opened.model;
  KVANT_ASSIGN(run.session, options.session.Options());
  KVANT_TRY(run.model->CheckDecoder());
  KVANT_ASSIGN(run.generate.logits.grammar, options.grammar.Make(run.model->tokenizer()));
  if (run.model->has_encoder() && !run.model->frame_shape().has_value()) {
    KVANT_ASSIGN(run.translation, MakeTranslation(*run.model, options.translation.languages));
  }
  KVANT_ASSIGN(run.generate.search, ToBeamOptions(options, *run.model, run.translation));
  run.generate.parallel = std::min(texts, static_cast<size_t>(std::max<int64_t>(
                                              1, options.batch.parallel / options.search.beams())));
  run.session.sequences = static_cast<int64_t>(run.generate.parallel) * options.search.beams();
  KVANT_ASSIGN(run.runner, options.session.OpenRunner(run.model, run.session));
  const int64_t most = run.runner->options().context;
  BeamOptions& search = run.generate.search;
  search.max_new_tokens = options.max_tokens < 0 ? most : std::min(most, options.max_tokens);
  if (options.max_tokens > 0) search.max_length = 0;
  run.generate.cancel = &CancelFlag();
  return run;
}

// The results of the search, or why there are none.
Result<std::vector<BeamGeneration>> Search(const RunOptions& options, BeamRun& run) {
  run.generate.sources = run.sources;
  run.generate.frames = run.frames;
  auto found = GenerateBeams(*run.runner, run.prompts, run.generate);
  if (found.ok()) return found;
  return options.session.Explain(found.error(), *run.model, run.session).error();
}

}  // namespace

Status RunBeams(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
                ResultStream& out, FinishReason* finish_reason) {
  KVANT_ASSIGN(const auto text, options.prompt.Read(positionals));
  StatusLine status(options.status_use());
  KVANT_ASSIGN(BeamRun run, Prepare(options, opened, 1));
  KVANT_TRY(AddText(options, text, run));
  run.generate.on_step = [&](size_t, const BeamSearch& search) {
    status.Set(fmt::format("{}, {}", Counted(search.generated(), "token"),
                           Counted(search.rows(), "beam")));
    return BeamStep::kGoOn;
  };
  KVANT_ASSIGN(const auto found, Search(options, run));
  status.Clear();
  const BeamGeneration& generation = found.front();
  const std::vector<TokenId>& prompt = run.prompts.front();
  const Tokenizer& tokenizer = run.model->tokenizer();
  *finish_reason = generation.cancelled ? FinishReason::kCancelled : FinishReason::kStop;
  if (options.json) {
    Json json = {{"model", positionals.model},
                 {"prompt_tokens", prompt.size()},
                 {"prompt_ids", prompt},
                 {"steps", generation.steps},
                 {"finish_reason", generation.cancelled ? "cancelled" : "done"},
                 {"beams", HypothesesJson(generation.hypotheses, tokenizer, options.special)}};
    if (!run.sources.empty()) json["source_ids"] = run.sources.front();
    if (options.search.sample) json["seed"] = run.generate.search.seed;
    out.Write(Dump(json) + "\n");
    return {};
  }
  for (const BeamHypothesis& hypothesis : generation.hypotheses) {
    std::vector<TokenId> ids;
    if (options.echo) ids = prompt;
    ids.insert(ids.end(), hypothesis.ids.begin(), hypothesis.ids.end());
    if (hypothesis.ended && !options.special) ids.pop_back();
    out.Write(tokenizer.Decode(ids, {.special = options.special}) + "\n");
  }
  if (status.enabled()) {
    WriteError(
        fmt::format("{} of {}\nbest score {:.6f}\n", Counted(generation.steps, "step"),
                    Counted(options.search.beams(), "beam"),
                    generation.hypotheses.empty() ? 0.0f : generation.hypotheses.front().score));
  }
  return {};
}

Status RunBeamBatch(const RunOptions& options, const RunModel& opened,
                    std::vector<PromptLine> lines, ResultStream& out, FinishReason* finish_reason) {
  StatusLine status(options.status_use());
  KVANT_ASSIGN(BeamRun run, Prepare(options, opened, lines.size()));
  int64_t most = run.runner->options().context;
  const int64_t longest = run.generate.search.max_length;
  if (longest > 0) most = std::min(most, longest - 1);
  std::vector<TokenId> first;
  if (run.model->has_encoder()) {
    most = run.model->source_length();
    KVANT_ASSIGN(first, FirstWritten(options.translation, *run.model, run.translation));
  }
  const auto good = CheckPrompts(*run.model, run.translation, most, lines, out);
  for (const size_t i : good) {
    run.prompts.push_back(first.empty() ? lines[i].tokens : first);
    if (!first.empty()) run.sources.push_back(lines[i].tokens);
  }
  const auto write = [&](size_t request, const char* reason,
                         const std::vector<BeamHypothesis>& found) {
    Json json = AnswerTo(good[request], lines[good[request]]);
    json["finish_reason"] = reason;
    json["beams"] = HypothesesJson(found, run.model->tokenizer(), options.special);
    if (options.search.sample) json["seed"] = run.generate.search.seed;
    return out.Write(Dump(json) + "\n");
  };
  size_t ended = 0;
  run.generate.on_step = [&](size_t request, const BeamSearch& search) {
    if (!search.done()) return BeamStep::kGoOn;
    status.Clear();
    const bool written = write(request, "done", search.Results());
    status.Set(fmt::format("{} of {} prompts", ++ended, good.size()));
    return written ? BeamStep::kGoOn : BeamStep::kEndAll;
  };
  std::vector<BeamGeneration> found;
  if (!good.empty()) {
    KVANT_ASSIGN(found, Search(options, run));
  }
  status.Clear();
  for (size_t i = 0; i < found.size() && !out.failed(); ++i) {
    if (found[i].cancelled) write(i, "cancelled", found[i].hypotheses);
  }
  const bool cancelled = CancelFlag().load();
  if (cancelled) *finish_reason = FinishReason::kCancelled;
  return cancelled || out.failed() ? Status() : CheckAnswered(*options.batch.prompts, lines);
}

}  // namespace kvant::tools
