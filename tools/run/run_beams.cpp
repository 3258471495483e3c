// kvant run --beams: the best texts that a beam search finds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <sstream>

#include "base/result.h"
#include "base/system_random.h"
#include "engine/generate/model_generation.h"
#include "engine/generate/samplers/stage.h"
#include "engine/limits.h"
#include "formats/gguf.h"
#include "kvant/beam_generator.h"
#include "tools/options/frames_file.h"
#include "tools/options/groups/language_options.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/sampling_group.h"
#include "tools/options/json.h"
#include "tools/options/number_list.h"
#include "tools/run/run_modes.h"

namespace kvant::tools {
namespace {

constexpr float kFactorMax = 1e6f;

// Leaves `tokens` as they are where the option was not given.
Status TakeIds(const char* option, const std::vector<std::string>& texts,
               std::vector<TokenId>& tokens) {
  if (texts.empty()) return {};
  constexpr int64_t kMost = std::numeric_limits<TokenId>::max();
  KVANT_ASSIGN(const auto numbers, ParseNumbers(option, texts, {0, kMost}));
  tokens.assign(numbers.begin(), numbers.end());
  return {};
}

// "5,6;9": the tokens 5 and 6 in this order, and token 9.
Status TakeWords(const std::vector<std::string>& texts, std::vector<std::vector<TokenId>>& words) {
  for (const std::string& text : texts) {
    std::istringstream lists(text + ";");
    for (std::string list; std::getline(lists, list, ';');) {
      KVANT_TRY(TakeIds("--bad-words-ids", {list}, words.emplace_back()));
    }
  }
  return {};
}

// Takes the options that force and ban tokens; where one is not given, the model's file decides.
Status TakeProcessors(const BeamRunOptions& beams, BeamOptions& out) {
  if (beams.forced_bos) out.forced_bos = static_cast<TokenId>(*beams.forced_bos);
  KVANT_TRY(TakeIds("--forced-eos-id", beams.forced_eos, out.forced_eos));
  KVANT_TRY(TakeIds("--suppress-ids", beams.suppress, out.suppress));
  KVANT_TRY(TakeIds("--begin-suppress-ids", beams.begin_suppress, out.begin_suppress));
  KVANT_TRY(TakeWords(beams.bad_words, out.bad_words));
  out.min_length = beams.min_length.value_or(out.min_length);
  out.min_new_tokens = beams.min_tokens.value_or(out.min_new_tokens);
  out.no_repeat_ngram = static_cast<int32_t>(beams.no_repeat_ngram.value_or(out.no_repeat_ngram));
  out.renormalize = out.renormalize || beams.renormalize;
  return {};
}

Result<BeamOptions> ToBeamOptions(const RunOptions& options, const Model& model,
                                  const Translation& translation) {
  const BeamRunOptions& beams = options.beams;
  BeamOptions out = beams.model;
  out.beams = static_cast<int32_t>(beams.beams());
  out.num_return = static_cast<int32_t>(beams.num_return);
  out.groups = static_cast<int32_t>(beams.groups);
  out.diversity_penalty = beams.diversity_penalty;
  out.patience = beams.patience;
  KVANT_ASSIGN(out.scoring, ParseBeamScoring(beams.scoring.value_or("hf")));
  if (beams.early_stopping) {
    KVANT_ASSIGN(out.early_stopping, ParseEarlyStopping(*beams.early_stopping));
  }
  if (beams.length_penalty) out.length_penalty = beams.length_penalty;
  KVANT_TRY(TakeProcessors(beams, out));
  if (translation.forced) out.forced_bos = translation.forced;
  const auto& ends = model.tokenizer().special().end_of_generation;
  if (options.ignore_eos) {
    out.suppress.insert(out.suppress.end(), ends.begin(), ends.end());
    out.forced_eos.clear();
  } else {
    out.end_tokens.assign(ends.begin(), ends.end());
  }
  const SamplingOptions sampling = options.sampling.Options();
  out.repetition_penalty = sampling.repeat_penalty;
  if (beams.sample) {
    out.sample = true;
    out.temperature = sampling.temperature;
    out.top_k = sampling.top_k;
    out.top_p = sampling.top_p;
    out.seed = sampling.seed.has_value() ? *sampling.seed : SystemRandom();
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
  KVANT_ASSIGN(WrittenText written, ReadWritten(options, *run.model, text));
  std::vector<TokenId>& prompt = run.prompts.emplace_back(std::move(written.first));
  if (written.frames.empty()) {
    run.sources.push_back(std::move(written.source));
    return {};
  }
  run.frames.push_back(std::move(written.frames));
  KVANT_ASSIGN(const SequenceId sequence, run.runner->NewSequenceOfFrames(run.frames.back()));
  const Status chosen = ChooseLanguage(options, *run.runner, sequence, prompt);
  KVANT_TRY(run.runner->FreeSequence(sequence));
  return chosen;
}

// `texts` is how many texts are searched; the prompts come later, when the context is known.
Result<BeamRun> Prepare(const RunOptions& options, const RunModel& opened, size_t texts) {
  BeamRun run;
  run.model = opened.model;
  KVANT_ASSIGN(run.session, options.session.Options());
  KVANT_TRY(run.model->CheckDecoder());
  if (run.model->has_encoder() && !run.model->frame_shape().has_value()) {
    KVANT_ASSIGN(run.translation, MakeTranslation(*run.model, options.beams.languages));
  }
  KVANT_ASSIGN(run.generate.search, ToBeamOptions(options, *run.model, run.translation));
  run.generate.parallel = std::min(texts, static_cast<size_t>(std::max<int64_t>(
                                              1, options.batch.parallel / options.beams.beams())));
  run.session.sequences = static_cast<int64_t>(run.generate.parallel) * options.beams.beams();
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

void AddProcessorOptions(OptionList& list, BeamRunOptions& options) {
  constexpr Bounds<int64_t> kIds = {0, std::numeric_limits<TokenId>::max()};
  constexpr const char* kNoTokens = "none";
  list.Group("Beam search: rules for the next token (in this order)");
  list.Integer("--no-repeat-ngram", &options.no_repeat_ngram, {0, kContextMax},
               "Allow no sequence of N tokens twice; 0 is off", "0");
  list.Texts("--bad-words-ids", &options.bad_words, "IDS",
             "Ban sequences of tokens: 5,6;9 is 5 followed by 6, and 9 alone; may be repeated",
             kNoTokens);
  list.Integer("--min-length", &options.min_length, {0, kContextMax},
               "Allow no end token before the text has N tokens, the prompt included", "0");
  list.Integer("--min-tokens", &options.min_tokens, {0, kContextMax},
               "Allow no end token before N generated tokens; replaces --min-length", "0");
  list.Integer("--forced-bos-id", &options.forced_bos, kIds,
               "Token that follows a prompt of one token", kNoTokens);
  list.Texts(
      "--forced-eos-id", &options.forced_eos, "IDS",
      "Last token of a text that reaches its greatest length, or several to choose from: 2,3",
      kNoTokens);
  list.Texts("--suppress-ids", &options.suppress, "IDS",
             "Ban these tokens: 7 or 7,9 or 50257-50300", kNoTokens);
  list.Texts(
      "--begin-suppress-ids", &options.begin_suppress, "IDS",
      "Ban these tokens as the first generated one, or as the second where the first is forced",
      kNoTokens);
  list.Flag(
      "--renormalize", &options.renormalize,
      "Normalize the probabilities again, after all the rules above and before scores are summed");
}

// Options of the samplers, but the penalty of repetition, which searches have, too.
bool DrawsTokens(const OptionList& list) {
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) {
      if (setting.name != "repeat-penalty" && list.Given(FirstFlag(setting))) return true;
    }
  }
  const auto given = [&](const char* name) { return list.Given(name); };
  return std::ranges::any_of(
      std::array{"--seed", "--logit-bias", "--dry-sequence-breaker", "--samplers", "--sampler-seq"},
      given);
}

}  // namespace

void TakeTextMode(const OptionList& list, RunOptions& options) {
  BeamRunOptions& beams = options.beams;
  if (!beams.has_encoder || beams.count.has_value() || beams.sample) return;
  beams.draws = DrawsTokens(list) || options.batch.samples > 1;
  const bool one =
      list.Given("--session") || list.Given("--stop") || list.Given("--reverse-prompt");
  beams.writes_text = beams.draws || one;
}

Result<std::vector<TokenId>> FirstWritten(const RunOptions& options, const Model& model,
                                          const Translation& translation) {
  std::vector<TokenId> tokens;
  const std::optional<std::string>& prefix = options.beams.prefix;
  if (prefix.has_value() && !model.frame_shape().has_value()) {
    KVANT_ASSIGN(tokens, EncodeTarget(model, translation, *prefix, TargetEnd::kOpen));
  } else if (translation.first) {
    tokens.push_back(*translation.first);
  }
  if (!prefix.has_value()) {
    const auto& own = options.beams.first_tokens;
    tokens.insert(tokens.end(), own.begin(), own.end());
  } else if (model.frame_shape().has_value()) {
    KVANT_ASSIGN(const auto more,
                 model.tokenizer().Encode(*prefix, {.add_special = false, .parse_special = true}));
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  if (!tokens.empty()) return tokens;
  return MakeError(ErrorCode::kInvalid,
                   "{}: the file names no token that texts begin with; expected --prefix",
                   model.file().path());
}

Result<WrittenText> ReadWritten(const RunOptions& options, const Model& model,
                                const std::optional<std::string>& text) {
  WrittenText out;
  Translation translation;
  translation.first = model.decoder_start();
  if (options.beams.frames.has_value()) {
    KVANT_ASSIGN(out.frames, ReadFrames(*options.beams.frames, model));
  } else {
    KVANT_ASSIGN(translation, MakeTranslation(model, options.beams.languages));
    KVANT_ASSIGN(out.source, EncodeSource(model, translation, text.value_or("")));
  }
  KVANT_ASSIGN(out.first, FirstWritten(options, model, translation));
  return out;
}

Status ChooseLanguage(const RunOptions& options, Runner& runner, SequenceId sequence,
                      std::vector<TokenId>& first) {
  const auto open = std::ranges::find(first, kOpenLanguage);
  const std::optional<std::string>& name = options.beams.languages.source;
  if (!name.has_value() && open == first.end()) return {};
  KVANT_ASSIGN(const Languages languages, ReadLanguages(runner.model()));
  TokenId language = 0;
  if (name.has_value()) {
    KVANT_ASSIGN(language, FindLanguage(runner.model(), languages, *name));
  } else {
    KVANT_ASSIGN(language, LikeliestLanguage(runner, languages, sequence, first.front()));
  }
  const bool has_another =
      first.size() > 1 && std::ranges::find(languages.tokens, first[1]) != languages.tokens.end();
  if (open != first.end()) {
    *open = language;
  } else if (has_another) {
    first[1] = language;
  } else {
    first.insert(first.begin() + 1, language);
  }
  return {};
}

Result<BeamOptions> Processors(const RunOptions& options, const Model& model, size_t first,
                               int64_t* max_tokens) {
  Translation translation;
  if (!model.frame_shape().has_value()) {
    KVANT_ASSIGN(translation, MakeTranslation(model, options.beams.languages));
  }
  KVANT_ASSIGN(BeamOptions out, ToBeamOptions(options, model, translation));
  out.repetition_penalty = 1.0f;  // the sampler's
  *max_tokens = options.max_tokens;
  if (options.max_tokens < 0 && out.max_length > 0) {
    *max_tokens = std::max<int64_t>(1, out.max_length - static_cast<int64_t>(first));
  }
  return out;
}

Status CheckFrames(const RunOptions& options, const Positionals& positionals,
                   std::string_view besides) {
  const BeamRunOptions& beams = options.beams;
  if (!beams.reads.has_value() || (beams.frames.has_value() && besides.empty())) return {};
  return MakeError(ErrorCode::kInvalid, "{}: the model reads {}: expected --frames FILE.npy{}{}",
                   positionals.model, FramesText(*beams.reads), besides.empty() ? "" : ", and no ",
                   besides);
}

Status CheckBeamModes(const OptionList& list, const RunOptions& options) {
  if (options.beams.reads.has_value()) {
    KVANT_TRY(list.Exclude({"--target-lang"}, "a model that reads frames"));
  } else {
    KVANT_TRY(list.Need({"--frames"}, "a model that reads frames"));
  }
  if (options.beams.has_encoder) {
    KVANT_TRY(list.Exclude({"--chat"}, "a model that has an encoder"));
  } else {
    KVANT_TRY(
        list.Need({"--prefix", "--source-lang", "--target-lang"}, "a model that has an encoder"));
  }
  if (!options.beams.on()) {
    KVANT_TRY(list.Need({"--length-penalty", "--early-stopping", "--num-return", "--beam-groups",
                         "--diversity", "--beam-scoring", "--patience", "--beam-sample"},
                        "--beams"));
    if (options.beams.writes_text) return {};
    return list.Need(
        {"--no-repeat-ngram", "--bad-words-ids", "--min-length", "--min-tokens", "--forced-bos-id",
         "--forced-eos-id", "--suppress-ids", "--begin-suppress-ids", "--renormalize"},
        "--beams");
  }
  KVANT_TRY(list.Exclude({"--stop"}, "--beams"));
  KVANT_TRY(SamplingGroup::CheckBeams(list));
  if (options.ignore_eos) KVANT_TRY(list.Exclude({"--forced-eos-id"}, "--ignore-eos"));
  if (!options.beams.sample) {
    KVANT_TRY(list.Need({"--temp", "--top-k", "--top-p", "--seed"}, "--beam-sample"));
  }
  if (options.max_tokens != 0) return {};
  return MakeError(ErrorCode::kInvalid, "-n: expected at least 1 token with --beams, found 0");
}

void AddBeamOptions(OptionList& list, BeamRunOptions& options) {
  list.Group("Beam search");
  list.Integer("--beams", &options.count, {1, kSequencesMax},
               "Follow N texts at once and show the best; 1 takes the likeliest token at each step",
               "off");
  list.Real("--length-penalty", &options.length_penalty, {-kFactorMax, kFactorMax},
            "Divide a text's sum of log-probabilities by length^N to get its score", "1");
  list.Text("--early-stopping", &options.early_stopping, "WHEN",
            "When to end, once as many texts have ended as there are beams. true: at once; false: "
            "when the best live text now scores less than the worst ended one; never: when no live "
            "text can beat an ended one any more",
            "false");
  list.Integer("--num-return", &options.num_return, {1, kSequencesMax}, "Texts to show");
  list.Integer("--beam-groups", &options.groups, {1, kSequencesMax},
               "Groups of beams that avoid each other's tokens");
  list.Real(
      "--diversity,--diversity-penalty", &options.diversity_penalty, {0, kFactorMax},
      "Penalty on a token for each beam of an earlier group that has chosen it in the same step");
  list.Text("--beam-scoring", &options.scoring, "PROGRAM",
            "Score and end texts as another program does: hf (Hugging Face transformers), ct2 "
            "(CTranslate2), whisper (OpenAI Whisper) or oga (ONNX Runtime GenAI)",
            "hf");
  list.Real(
      "--patience", &options.patience, {0, kFactorMax},
      "With --beam-scoring ct2 or whisper: end when N times as many texts have ended as there "
      "are beams");
  list.Text("--prefix", &options.prefix, "TEXT",
            "For encoder-decoders: the beginning of the text that the model writes");
  list.Text("--frames", &options.frames, "FILE.npy",
            "For models that read sound, such as Whisper: the features, float32 or float16 [values "
            "of a frame, frames]");
  AddLanguageOptions(list, options.languages);
  list.Flag("--beam-sample", &options.sample,
            "Draw tokens by --temp, --top-k and --top-p instead of taking the likeliest");
  AddProcessorOptions(list, options);
}

Status RunBeams(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
                ResultStream& out, FinishReason* finish_reason) {
  KVANT_ASSIGN(const auto text, options.prompt.Read(positionals));
  StatusLine status(options.status_use());
  KVANT_ASSIGN(BeamRun run, Prepare(options, opened, 1));
  KVANT_TRY(AddText(options, text, run));
  run.generate.on_step = [&](size_t, const BeamSearch& search) {
    status.Set(fmt::format("{} tokens, {} beams", search.generated(), search.rows()));
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
    if (options.beams.sample) json["seed"] = run.generate.search.seed;
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
    WriteError(fmt::format(
        "{} steps of {} beams\nbest score {:.6f}\n", generation.steps, options.beams.beams(),
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
    KVANT_ASSIGN(first, FirstWritten(options, *run.model, run.translation));
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
    if (options.beams.sample) json["seed"] = run.generate.search.seed;
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
