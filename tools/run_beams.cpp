// kvant run --beams: the best texts that a beam search finds.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

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
    out.seed = sampling.seed.value_or(0);
  }
  return out;
}

std::string ToJson(const std::string& model, const std::vector<TokenId>& prompt,
                   const BeamGeneration& generation, const Tokenizer& tokenizer, bool special) {
  Json out = {{"model", model},
              {"prompt_tokens", prompt.size()},
              {"prompt_ids", prompt},
              {"steps", generation.steps},
              {"finish_reason", generation.cancelled ? "cancelled" : "done"},
              {"beams", Json::array()}};
  for (const BeamHypothesis& hypothesis : generation.hypotheses) {
    out["beams"].push_back({{"text", tokenizer.Decode(hypothesis.ids, special)},
                            {"ids", hypothesis.ids},
                            {"score", hypothesis.score},
                            {"logprobs", hypothesis.log_probs},
                            {"parents", hypothesis.parents},
                            {"ended", hypothesis.ended}});
  }
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

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
  list.Real("--diversity", &options.diversity_penalty, {0, 1e6f},
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
  KVANT_ASSIGN(const auto prompt_text, options.prompt.Read(positionals));
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  StatusLine status(!options.quiet);
  status.Set(fmt::format("loading {}", positionals.model));
  KVANT_ASSIGN(const auto model, Model::Open(positionals.model, options.model.Options()));
  KVANT_ASSIGN(const auto prompt, PromptTokens(model->tokenizer(), prompt_text.value_or("")));
  BeamGenerateOptions generate;
  KVANT_ASSIGN(generate.search, ToBeamOptions(options, *model));
  session_options.sequences = 2 * options.beams.count;
  KVANT_ASSIGN(const auto runner, Runner::Create(model, session_options));
  const int64_t room = runner->options().context - static_cast<int64_t>(prompt.size());
  if (room < 1) {
    return MakeError(ErrorCode::kContextFull,
                     "the prompt has {} tokens, but the context has room for {}", prompt.size(),
                     runner->options().context);
  }
  generate.search.max_new_tokens =
      options.max_tokens < 0 ? room : std::min(room, options.max_tokens);
  generate.cancel = &CancelFlag();
  generate.on_step = [&](size_t, const BeamSearch& search) {
    status.Set(fmt::format("{} tokens, {} beams", search.generated(), search.rows()));
    return true;
  };
  KVANT_ASSIGN(const auto found, GenerateBeams(*runner, {&prompt, 1}, generate));
  status.Clear();
  const BeamGeneration& generation = found.front();
  *finish_reason = generation.cancelled ? FinishReason::kCancelled : FinishReason::kStop;
  if (options.json) {
    out.Write(ToJson(positionals.model, prompt, generation, model->tokenizer(), options.special));
    return {};
  }
  for (const BeamHypothesis& hypothesis : generation.hypotheses) {
    std::vector<TokenId> ids;
    if (options.echo) ids = prompt;
    ids.insert(ids.end(), hypothesis.ids.begin(), hypothesis.ids.end());
    if (hypothesis.ended && !options.special) ids.pop_back();
    out.Write(model->tokenizer().Decode(ids, options.special) + "\n");
  }
  if (status.enabled()) {
    fmt::print(stderr, "{} steps of {} beams; best score {:.6f}\n", generation.steps,
               options.beams.count,
               generation.hypotheses.empty() ? 0.0f : generation.hypotheses.front().score);
  }
  return {};
}

}  // namespace kvant::tools
