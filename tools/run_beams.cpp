// kvant run --beams: the best texts that a beam search finds.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/generate/beam_generator.h"
#include "tools/run_modes.h"

namespace kvant::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kBeamsMax = 1024;

Result<BeamOptions> ToBeamOptions(const RunOptions& options, const Model& model) {
  const BeamRunOptions& beams = options.beams;
  BeamOptions out;
  out.beams = static_cast<int32_t>(beams.count);
  out.num_return = static_cast<int32_t>(beams.num_return);
  out.groups = static_cast<int32_t>(beams.groups);
  out.diversity_penalty = beams.diversity_penalty;
  out.patience = beams.patience;
  out.min_new_tokens = beams.min_tokens;
  out.no_repeat_ngram = static_cast<int32_t>(beams.no_repeat_ngram);
  KVANT_ASSIGN(out.scoring, ParseBeamScoring(beams.scoring.value_or("hf")));
  KVANT_ASSIGN(out.early_stopping, ParseEarlyStopping(beams.early_stopping.value_or("false")));
  if (beams.length_penalty.has_value()) {
    const std::string& text = *beams.length_penalty;
    float value = 0.0f;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      return MakeError(ErrorCode::kInvalid, "--length-penalty: expected a number, found '{}'",
                       Visible(text));
    }
    out.length_penalty = value;
  }
  if (!options.ignore_eos) {
    const auto& ends = model.tokenizer().special().end_of_generation;
    out.end_tokens.assign(ends.begin(), ends.end());
  } else {
    const auto& ends = model.tokenizer().special().end_of_generation;
    out.forbidden.assign(ends.begin(), ends.end());
  }
  KVANT_ASSIGN(const SamplingOptions sampling, options.sampling.Options());
  out.repetition_penalty = sampling.repeat_penalty;
  if (beams.sample) {
    out.sample = true;
    out.temperature = sampling.temperature;
    out.top_k = sampling.top_k;
    out.top_p = sampling.top_p;
    out.seed = sampling.seed.has_value() ? *sampling.seed : std::random_device{}();
  }
  return out;
}

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

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Model, runner and prompts of a search.
struct BeamRun {
  std::shared_ptr<const Model> model;
  std::unique_ptr<Runner> runner;
  std::vector<std::vector<TokenId>> prompts;
  BeamGenerateOptions generate;
};

Result<BeamRun> Prepare(const RunOptions& options, const Positionals& positionals,
                        std::span<const std::string> texts) {
  BeamRun run;
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  KVANT_ASSIGN(run.model, Model::Open(positionals.model, options.model.Options()));
  for (const std::string& text : texts) {
    KVANT_ASSIGN(run.prompts.emplace_back(), PromptTokens(run.model->tokenizer(), text));
  }
  KVANT_ASSIGN(run.generate.search, ToBeamOptions(options, *run.model));
  run.generate.parallel = std::min(
      texts.size(),
      static_cast<size_t>(std::max<int64_t>(1, options.batch.parallel / options.beams.count)));
  session_options.sequences = static_cast<int64_t>(run.generate.parallel) * options.beams.count;
  KVANT_ASSIGN(run.runner, Runner::Create(run.model, session_options));
  KVANT_ASSIGN(auto log, options.session.KvLog());
  if (log) run.runner->SetKvLog(std::move(log));
  const int64_t most = run.runner->options().context;
  run.generate.search.max_new_tokens =
      options.max_tokens < 0 ? most : std::min(most, options.max_tokens);
  run.generate.cancel = &CancelFlag();
  return run;
}

// What only a search of several beams looks at.
Status CheckSingle(const BeamRunOptions& options) {
  const BeamRunOptions defaults;
  const auto refuse = [](bool given, const char* name) -> Status {
    if (!given) return {};
    return MakeError(ErrorCode::kInvalid, "{}: expected --beams 2 or more with it", name);
  };
  KVANT_TRY(refuse(options.length_penalty.has_value(), "--length-penalty"));
  KVANT_TRY(refuse(options.early_stopping.has_value(), "--early-stopping"));
  KVANT_TRY(refuse(options.num_return != defaults.num_return, "--num-return"));
  KVANT_TRY(refuse(options.groups != defaults.groups, "--beam-groups"));
  KVANT_TRY(refuse(options.diversity_penalty != defaults.diversity_penalty, "--diversity"));
  KVANT_TRY(refuse(options.scoring.has_value(), "--beam-scoring"));
  KVANT_TRY(refuse(options.patience != defaults.patience, "--patience"));
  KVANT_TRY(refuse(options.min_tokens != defaults.min_tokens, "--min-tokens"));
  KVANT_TRY(refuse(options.no_repeat_ngram != defaults.no_repeat_ngram, "--no-repeat-ngram"));
  return refuse(options.sample, "--beam-sample");
}

}  // namespace

Status CheckBeamModes(const RunOptions& options) {
  if (options.beams.count == 1) return CheckSingle(options.beams);
  const SamplingOptions& sampling = options.sampling.options;
  const auto refuse = [](bool given, const char* name) -> Status {
    if (!given) return {};
    return MakeError(ErrorCode::kInvalid, "{}: not possible together with --beams", name);
  };
  KVANT_TRY(refuse(!options.stop_texts.empty(), "--stop"));
  KVANT_TRY(refuse(!options.sampling.logit_bias.empty(), "--logit-bias"));
  KVANT_TRY(refuse(sampling.presence_penalty != 0.0f, "--presence-penalty"));
  KVANT_TRY(refuse(sampling.frequency_penalty != 0.0f, "--frequency-penalty"));
  KVANT_TRY(refuse(sampling.typical != 1.0f, "--typical"));
  if (options.max_tokens != 0) return {};
  return MakeError(ErrorCode::kInvalid, "-n: expected at least 1 token with --beams, found 0");
}

void AddBeamOptions(OptionList& list, BeamRunOptions& options) {
  list.Group("Beam search");
  list.Integer("--beams", &options.count, {1, kBeamsMax},
               "Follow so many texts at once and show the best; 1 is off");
  list.Text("--length-penalty", &options.length_penalty, "A",
            "Scores are sums of log-probabilities divided by length^A", "1");
  list.Text("--early-stopping", &options.early_stopping, "WHEN",
            "true: end when enough texts have ended; false: when the others hardly can be better; "
            "never: when they cannot",
            "false");
  list.Integer("--num-return", &options.num_return, {1, kBeamsMax}, "Texts to show");
  list.Integer("--beam-groups", &options.groups, {1, kBeamsMax},
               "Groups of beams that avoid each other's tokens");
  list.Real("--diversity,--diversity-penalty", &options.diversity_penalty, {0, 1e6f},
            "What a group pays for a token that earlier groups have just chosen");
  list.Text("--beam-scoring", &options.scoring, "PROGRAM",
            "Scores and endings as in hf, ct2, whisper or oga", "hf");
  list.Real("--patience", &options.patience, {0, 1e6f},
            "ct2 and whisper: end at so many times the beams of ended texts");
  list.Integer("--min-tokens", &options.min_tokens, {0}, "No end token before so many others");
  list.Integer("--no-repeat-ngram", &options.no_repeat_ngram, {0, 1 << 20},
               "No sequence of so many tokens twice; 0 is off");
  list.Flag("--beam-sample", &options.sample,
            "Draw tokens by --temp, --top-k and --top-p instead of taking the likeliest");
}

Status RunBeams(const RunOptions& options, const Positionals& positionals, ResultStream& out,
                FinishReason* finish_reason) {
  KVANT_ASSIGN(const auto text, options.prompt.Read(positionals));
  StatusLine status(!options.quiet);
  status.Set(fmt::format("loading {}", positionals.model));
  const std::string prompt_text = text.value_or("");
  KVANT_ASSIGN(BeamRun run, Prepare(options, positionals, {&prompt_text, 1}));
  run.generate.on_step = [&](size_t, const BeamSearch& search) {
    status.Set(fmt::format("{} tokens, {} beams", search.generated(), search.rows()));
    return BeamStep::kGoOn;
  };
  KVANT_ASSIGN(const auto found, GenerateBeams(*run.runner, run.prompts, run.generate));
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
    if (options.beams.sample) json["seed"] = run.generate.search.seed;
    out.Write(Dump(json));
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
    fmt::print(stderr, "{} steps of {} beams; best score {:.6f}\n", generation.steps,
               options.beams.count,
               generation.hypotheses.empty() ? 0.0f : generation.hypotheses.front().score);
  }
  return {};
}

Status RunBeamBatch(const RunOptions& options, const Positionals& positionals,
                    std::span<const std::string> texts, ResultStream& out,
                    FinishReason* finish_reason) {
  StatusLine status(!options.quiet);
  status.Set(fmt::format("loading {}", positionals.model));
  KVANT_ASSIGN(BeamRun run, Prepare(options, positionals, texts));
  const auto write = [&](size_t request, const char* reason,
                         const std::vector<BeamHypothesis>& found) {
    Json json = {{"prompt", request},
                 {"finish_reason", reason},
                 {"beams", HypothesesJson(found, run.model->tokenizer(), options.special)}};
    if (options.beams.sample) json["seed"] = run.generate.search.seed;
    return out.Write(Dump(json));
  };
  size_t ended = 0;
  run.generate.on_step = [&](size_t request, const BeamSearch& search) {
    if (!search.done()) return BeamStep::kGoOn;
    status.Clear();
    const bool written = write(request, "done", search.Results());
    status.Set(fmt::format("{} of {} prompts", ++ended, texts.size()));
    return written ? BeamStep::kGoOn : BeamStep::kEndAll;
  };
  KVANT_ASSIGN(const auto found, GenerateBeams(*run.runner, run.prompts, run.generate));
  status.Clear();
  for (size_t i = 0; i < found.size() && !out.failed(); ++i) {
    if (found[i].cancelled) write(i, "cancelled", found[i].hypotheses);
  }
  if (CancelFlag().load()) *finish_reason = FinishReason::kCancelled;
  return {};
}

}  // namespace kvant::tools
