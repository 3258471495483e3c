// kvant perplexity: how well a model predicts a text, how far its predictions are from another
// model's, and how many multiple-choice questions it answers right.
#include <fmt/format.h>

#include "base/counted.h"
#include "base/result.h"
#include "engine/evaluate/multiple_choice.h"
#include "engine/evaluate/perplexity.h"
#include "engine/evaluate/text_pairs.h"
#include "tools/commands.h"
#include "tools/options/evaluation_options.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/groups/language_options.h"
#include "tools/options/json.h"

namespace kvant::tools {
namespace {

using evaluate::Divergence;
using evaluate::Estimate;
using evaluate::PerplexityReport;
constexpr HelpText kPerplexityHelp = {
    "MODEL TEXT [-c 512] [--chunks N] [OPTIONS]",
    "Prints the perplexity of a model on a text, with one standard error: e to the mean negative\n"
    "log-probability of its tokens. The text is cut into windows of -c tokens, and the second "
    "half\n"
    "of each is scored; with --stride, windows overlap and more tokens have a long context. The\n"
    "numbers are comparable with llama-perplexity's.\n"
    "\n"
    "--save-logits saves the model's logits, and --kl-base compares another model with them. It\n"
    "prints the Kullback-Leibler divergence in nats per token, the share of tokens where both\n"
    "models find one token likeliest, and the change of perplexity. TEXT may be left out then.\n"
    "The file holds exact logits. --logits-type u16 writes llama-perplexity's file of\n"
    "--kl-divergence-base, which is half as large. It blurs each divergence by some 0.0001 nats\n"
    "and makes very unlikely tokens likelier, so that the base perplexity may come out too low.\n"
    "--kl-base reads both forms.\n"
    "\n"
    "--multiple-choice FILE scores lines of {\"context\": text, \"choices\": [texts], \"answer\":\n"
    "number from 0} instead. It prints in how many lines the right choice is the likeliest: by "
    "the\n"
    "sum of its log-probabilities, by that sum per byte of the choice, and per token. A space\n"
    "comes between context and choice where neither has one.\n"
    "\n"
    "--pairs FILE is the perplexity of texts that an encoder-decoder writes, given their sources.",
    "  kvant perplexity model.gguf wiki.test.raw\n"
    "  kvant perplexity model-f16.gguf wiki.test.raw --chunks 32 --save-logits f16.logits\n"
    "  kvant perplexity model-q4.gguf --kl-base f16.logits --json\n"
    "  kvant perplexity model.gguf --multiple-choice questions.jsonl\n",
};

constexpr int64_t kPerplexityWindowMin = 4;
constexpr int64_t kPerplexityWindowMax = int64_t{1} << 24;

// Bad lines of a task file that are printed one by one.
constexpr size_t kProblemsShown = 100;

struct PerplexityOptions {
  EvaluationGroup evaluation;
  int64_t context = 512;
  int64_t stride = 0;
  std::optional<std::string> save_logits;
  std::string logits_type = "f32";
  std::optional<std::string> logits_type_option;
  std::optional<std::string> kl_base;
  std::optional<std::string> multiple_choice;
  std::optional<std::string> pairs;
  LanguageNames languages;
  bool json = false;
};

// ---- Output ------------------------------------------------------------------------------------

std::string Line(const char* name, const Estimate& estimate, int digits, const char* unit = "") {
  return fmt::format("{:<18}{:.{}f} +/- {:.{}f}{}\n", name, estimate.value, digits, estimate.error,
                     digits, unit);
}

Estimate Percent(const Estimate& share) { return {100 * share.value, 100 * share.error}; }

std::string ReportText(const PerplexityReport& report, const evaluate::Windows& windows) {
  std::string out = Line("perplexity", report.perplexity, 4);
  if (report.divergence.has_value()) {
    const Divergence& d = *report.divergence;
    out += Line("base perplexity", d.base_perplexity, 4);
    out += Line("ratio", d.perplexity_ratio, 6);
    out += Line("change", d.perplexity_change, 6);
    out += Line("KL mean", d.kl_mean, 6);
    for (const auto& [name, value] : {std::pair{"KL median", d.kl_median},
                                      {"KL 90 %", d.kl_p90},
                                      {"KL 99 %", d.kl_p99},
                                      {"KL 99.9 %", d.kl_p999},
                                      {"KL max", d.kl_max}}) {
      out += fmt::format("{:<18}{:.6f}\n", name, value);
    }
    out += Line("same top token", Percent(d.same_top), 3, " %");
    out += Line("p change, mean", Percent(d.p_change), 3, " %");
    out += Line("p change, RMS", Percent(d.p_rms), 3, " %");
  }
  return out + fmt::format("{:<18}{} in {} of {}\n", "tokens scored", report.tokens,
                           Counted(report.windows, "window"), windows.size());
}

void Put(Json& json, const std::string& key, const Estimate& estimate) {
  json[key] = estimate.value;
  json[key + "_error"] = estimate.error;
}

Json ReportJson(const PerplexityReport& report, const evaluate::Windows& windows, double seconds) {
  Json json;
  Put(json, "perplexity", report.perplexity);
  Put(json, "nll", report.nll);
  if (report.divergence.has_value()) {
    const Divergence& d = *report.divergence;
    Put(json, "base_perplexity", d.base_perplexity);
    Put(json, "perplexity_ratio", d.perplexity_ratio);
    Put(json, "perplexity_change", d.perplexity_change);
    Put(json, "kl_mean", d.kl_mean);
    json["kl_median"] = d.kl_median;
    json["kl_p90"] = d.kl_p90;
    json["kl_p99"] = d.kl_p99;
    json["kl_p999"] = d.kl_p999;
    json["kl_min"] = d.kl_min;
    json["kl_max"] = d.kl_max;
    Put(json, "same_top", d.same_top);
    Put(json, "p_change", d.p_change);
    Put(json, "p_rms", d.p_rms);
  }
  json["tokens"] = report.tokens;
  json["windows"] = report.windows;
  json["window_size"] = windows.size();
  json["seconds"] = seconds;
  json["tokens_per_second"] = static_cast<double>(report.windows * windows.size()) / seconds;
  return json;
}

// ---- Perplexity and divergence -----------------------------------------------------------------

Result<evaluate::LogitRows> LogitType(const PerplexityOptions& options) {
  const std::string name = options.logits_type_option.value_or(options.logits_type);
  if (name == "f32") return evaluate::LogitRows::kFloat32;
  if (name == "u16") return evaluate::LogitRows::kUint16;
  return MakeError(ErrorCode::kInvalid, "--logits-type: expected f32 or u16, found '{}'", name);
}

// The windows of a file of logits; a text, if given, must begin with the tokens of the file.
Result<evaluate::Windows> BaseWindows(const PerplexityOptions& options, const Model& model,
                                      const evaluate::LogitFile& base,
                                      const std::optional<std::string>& text_path) {
  const std::string& path = *options.kl_base;
  if (base.vocab() != model.vocab_size()) {
    return MakeError(ErrorCode::kInvalid,
                     "{}: it has {} logits a token, expected the model's {}; it comes from a model "
                     "with another vocabulary",
                     path, base.vocab(), model.vocab_size());
  }
  int64_t count = base.windows();
  if (options.evaluation.chunks.has_value()) count = std::min(count, *options.evaluation.chunks);
  const auto tokens = base.tokens().first(static_cast<size_t>(count * base.window_size()));
  if (text_path.has_value()) {
    KVANT_ASSIGN(const auto text_tokens, TokenizeText(*text_path, model.tokenizer()));
    if (text_tokens.size() < tokens.size() ||
        !std::equal(tokens.begin(), tokens.end(), text_tokens.begin())) {
      return MakeError(ErrorCode::kInvalid, "{}: its logits belong to another text than {}", path,
                       *text_path);
    }
  }
  return evaluate::Windows::Whole({tokens.begin(), tokens.end()}, model.tokenizer().special(),
                                  base.window_size());
}

Result<evaluate::Windows> TextWindows(const PerplexityOptions& options, const Model& model,
                                      const std::string& text_path) {
  KVANT_ASSIGN(auto tokens, TokenizeText(text_path, model.tokenizer()));
  return evaluate::Windows::Cut(
      std::move(tokens), model.tokenizer().special(),
      {.size = options.context, .stride = options.stride, .count_max = options.evaluation.chunks});
}

Status MeasureText(const PerplexityOptions& options, const std::string& model_path,
                   const std::optional<std::string>& text_path, ResultStream& out) {
  KVANT_ASSIGN(const evaluate::LogitRows logit_rows, LogitType(options));
  std::optional<evaluate::LogitFile> base;
  if (options.kl_base.has_value()) {
    KVANT_ASSIGN(base, evaluate::LogitFile::Open(*options.kl_base));
  }
  KVANT_ASSIGN(const auto model, Model::Open(model_path, options.evaluation.model.Options()));
  KVANT_ASSIGN(const auto windows, base.has_value() ? BaseWindows(options, *model, *base, text_path)
                                                    : TextWindows(options, *model, *text_path));
  KVANT_ASSIGN(const auto session_options,
               WindowSessionOptions(options.evaluation.session, windows.size()));
  KVANT_ASSIGN(const auto session, options.evaluation.session.Open(model, session_options));
  evaluate::PerplexityOptions evaluation;
  std::optional<evaluate::LogitFileWriter> writer;
  if (options.save_logits.has_value()) {
    KVANT_ASSIGN(writer, evaluate::LogitFileWriter::Create(*options.save_logits, windows,
                                                           model->vocab_size(), logit_rows));
    evaluation.save = &*writer;
  }
  if (base.has_value()) evaluation.base = &*base;
  EvaluationProgress progress("windows", windows.count());
  evaluation.progress = [&](const PerplexityReport& so_far) {
    return progress.Update(so_far.windows, so_far.windows * windows.size(),
                           fmt::format("perplexity {:.4f}", so_far.perplexity.value));
  };
  KVANT_ASSIGN(const PerplexityReport report,
               evaluate::EvaluatePerplexity(*session, windows, evaluation));
  if (writer.has_value()) KVANT_TRY(writer->Finish());
  progress.Clear();
  out.Write(options.json ? Dump(ReportJson(report, windows, progress.seconds()), 2) + "\n"
                         : ReportText(report, windows));
  return {};
}

// ---- Multiple choice ---------------------------------------------------------------------------

std::string ReportText(const evaluate::ChoiceReport& report) {
  std::string out = Line("accuracy", Percent(report.accuracy), 2, " %");
  out += Line("per byte", Percent(report.accuracy_per_byte), 2, " %  (acc_norm)");
  out += Line("per token", Percent(report.accuracy_per_token), 2, " %");
  out += fmt::format("{:<18}{:.2f} %\n", "blind guess", 100 * report.chance);
  return out + fmt::format("{:<18}{}\n", "tasks", report.tasks);
}

Json ReportJson(const evaluate::ChoiceReport& report, double seconds) {
  Json json;
  Put(json, "accuracy", report.accuracy);
  Put(json, "accuracy_per_byte", report.accuracy_per_byte);
  Put(json, "accuracy_per_token", report.accuracy_per_token);
  json["chance"] = report.chance;
  json["tasks"] = report.tasks;
  json["seconds"] = seconds;
  return json;
}

Status MeasureChoices(const PerplexityOptions& options, const std::string& model_path,
                      const std::vector<evaluate::ChoiceTask>& tasks, ResultStream& out) {
  const std::string& path = *options.multiple_choice;
  KVANT_ASSIGN(const auto model, Model::Open(model_path, options.evaluation.model.Options()));
  std::vector<evaluate::ChoiceTokens> tokens;
  int64_t length_max = 0;
  for (const evaluate::ChoiceTask& task : tasks) {
    KVANT_ASSIGN(auto encoded, evaluate::EncodeChoices(task, model->tokenizer(), path));
    length_max = std::max(length_max, static_cast<int64_t>(encoded.length_max));
    tokens.push_back(std::move(encoded));
  }
  KVANT_ASSIGN(const auto session_options,
               WindowSessionOptions(options.evaluation.session, length_max));
  KVANT_ASSIGN(const auto session, options.evaluation.session.Open(model, session_options));
  EvaluationProgress progress("tasks", static_cast<int64_t>(tasks.size()));
  evaluate::ChoiceReport report;
  int64_t tokens_done = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const auto scores = evaluate::ScoreChoices(*session, tokens[i]);
    if (!scores.ok()) {
      return MakeError(scores.error().code, "{}:{}: {}", path, tasks[i].line,
                       scores.error().message);
    }
    report.Add(tasks[i], *scores);
    tokens_done += static_cast<int64_t>(tokens[i].length_max);
    KVANT_TRY(progress.Update(report.tasks, tokens_done,
                              fmt::format("accuracy {:.1f} %", 100 * report.accuracy.value)));
  }
  progress.Clear();
  out.Write(options.json ? Dump(ReportJson(report, progress.seconds()), 2) + "\n"
                         : ReportText(report));
  return {};
}

// Prints what is wrong with a file of tasks. False if something is.
bool HasNoProblems(const std::string& path, const std::vector<std::string>& problems) {
  for (size_t i = 0; i < std::min(problems.size(), kProblemsShown); ++i) Fail(problems[i]);
  if (problems.size() > kProblemsShown) {
    Fail(fmt::format("{}: {} with mistakes", path,
                     Counted(problems.size() - kProblemsShown, "more line")));
  }
  return problems.empty();
}

int RunChoices(const PerplexityOptions& options, const std::string& model_path) {
  const std::string& path = *options.multiple_choice;
  const auto text = ReadText(path);
  if (!text.ok()) return Fail(text.error());
  evaluate::ChoiceTasks read = evaluate::ParseChoiceTasks(*text, path);
  if (!HasNoProblems(path, read.problems)) return kExitFailed;
  if (read.tasks.empty()) return Fail(fmt::format("{}: no task in it", path));
  if (options.evaluation.chunks.has_value()) {
    read.tasks.resize(std::min(read.tasks.size(), static_cast<size_t>(*options.evaluation.chunks)));
  }
  ResultStream out;
  const Status status = MeasureChoices(options, model_path, read.tasks, out);
  return status.ok() ? out.Finish(kExitDone) : Fail(status.error());
}

// ---- Pairs -------------------------------------------------------------------------------------

Status MeasurePairs(const PerplexityOptions& options, const std::string& model_path,
                    const std::vector<evaluate::TextPair>& pairs, ResultStream& out) {
  KVANT_ASSIGN(const auto model, Model::Open(model_path, options.evaluation.model.Options()));
  const auto at = [&](const evaluate::TextPair& pair, const Error& error) {
    return MakeError(error.code, "{}:{}: {}", *options.pairs, pair.line, error.message);
  };
  std::vector<evaluate::PairTokens> tokens;
  int64_t length_max = 0;
  for (const evaluate::TextPair& pair : pairs) {
    auto encoded = evaluate::EncodePair(pair, *model, options.languages);
    if (!encoded.ok()) return at(pair, encoded.error());
    length_max = std::max(length_max, std::ssize(encoded->target));
    tokens.push_back(std::move(*encoded));
  }
  KVANT_ASSIGN(const auto session_options,
               WindowSessionOptions(options.evaluation.session, length_max));
  KVANT_ASSIGN(const auto session, options.evaluation.session.Open(model, session_options));
  EvaluationProgress progress("pairs", std::ssize(pairs));
  evaluate::PairScorer scorer(*session);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Status status = scorer.Add(tokens[i]);
    if (!status.ok()) return at(pairs[i], status.error());
    const evaluate::PairReport so_far = scorer.report();
    KVANT_TRY(progress.Update(so_far.pairs, so_far.tokens,
                              fmt::format("perplexity {:.4f}", so_far.perplexity.value)));
  }
  progress.Clear();
  const evaluate::PairReport report = scorer.report();
  if (!options.json) {
    out.Write(Line("perplexity", report.perplexity, 4) +
              fmt::format("{:<18}{} in {}\n", "tokens scored", report.tokens,
                          Counted(report.pairs, "pair")));
    return {};
  }
  Json json;
  Put(json, "perplexity", report.perplexity);
  Put(json, "nll", report.nll);
  json["tokens"] = report.tokens;
  json["pairs"] = report.pairs;
  json["seconds"] = progress.seconds();
  out.Write(Dump(json, 2) + "\n");
  return {};
}

int RunPairs(const PerplexityOptions& options, const std::string& model_path) {
  const std::string& path = *options.pairs;
  const auto text = ReadText(path);
  if (!text.ok()) return Fail(text.error());
  evaluate::TextPairs read = evaluate::ParseTextPairs(*text, path);
  if (!HasNoProblems(path, read.problems)) return kExitFailed;
  if (read.pairs.empty()) return Fail(fmt::format("{}: no pair in it", path));
  if (options.evaluation.chunks.has_value()) {
    read.pairs.resize(std::min(read.pairs.size(), static_cast<size_t>(*options.evaluation.chunks)));
  }
  ResultStream out;
  const Status status = MeasurePairs(options, model_path, read.pairs, out);
  return status.ok() ? out.Finish(kExitDone) : Fail(status.error());
}

int Run(const PerplexityOptions& options, const CommandLine& line) {
  std::string model_path;
  std::optional<std::string> text_path;
  if (const auto code = options.evaluation.TakeFiles(line, &model_path, &text_path)) return *code;
  if (options.multiple_choice.has_value() || options.pairs.has_value()) {
    const std::string name = options.pairs.has_value() ? "--pairs" : "--multiple-choice";
    if (options.multiple_choice.has_value() && options.pairs.has_value()) {
      return line.UsageError("--pairs goes without --multiple-choice");
    }
    if (text_path.has_value()) {
      return line.UsageError(name + " has its own texts: leave out '" + *text_path + "'");
    }
    if (options.save_logits.has_value() || options.kl_base.has_value() || options.stride > 0) {
      return line.UsageError(name + " goes with neither logits nor --stride");
    }
    return options.pairs.has_value() ? RunPairs(options, model_path)
                                     : RunChoices(options, model_path);
  }
  if (!text_path.has_value() && !options.kl_base.has_value()) {
    return line.UsageError(
        "no text given: name a file, as in 'kvant perplexity model.gguf text.txt'");
  }
  if (options.kl_base.has_value() && options.stride > 0) {
    return line.UsageError("--kl-base goes without --stride: its windows do not overlap");
  }
  ResultStream out;
  const Status status = MeasureText(options, model_path, text_path, out);
  return status.ok() ? out.Finish(kExitDone) : Fail(status.error());
}

}  // namespace

int PerplexityCommand(CommandLine& line) {
  PerplexityOptions options;
  OptionList list;
  list.Group("Windows");
  list.Integer("-c,--ctx-size", &options.context, {kPerplexityWindowMin, kPerplexityWindowMax},
               "Tokens of a window; --kl-base brings its own");
  list.Integer("--stride,--ppl-stride", &options.stride, {0, kPerplexityWindowMax},
               "Begin a window every N tokens and score the last N tokens of each; windows are "
               "then N/2 tokens longer; 0 is off");
  options.evaluation.Add(list);
  list.Group("Comparison");
  list.Text("--save-logits", &options.save_logits, "FILE", "Save the model's logits to this file");
  list.Text("--logits-type", &options.logits_type_option, "TYPE",
            "Form of the saved logits: f32 (exact), or u16, as llama-perplexity writes them",
            options.logits_type);
  list.Text("--kl-base,--kl-divergence-base", &options.kl_base, "FILE",
            "Compare with the logits saved in this file");
  list.Group("Other");
  list.Text("--multiple-choice", &options.multiple_choice, "FILE",
            "Score the tasks in this file instead of a text; --chunks N takes the first N");
  list.Text("--pairs", &options.pairs, "FILE",
            "For encoder-decoders: score the lines of this file, each {\"source\": text, "
            "\"target\": text}, instead of a text; --chunks N takes the first N");
  AddLanguageOptions(list, options.languages);
  list.Flag("--json", &options.json,
            "Print one JSON object: perplexity, perplexity_error, kl_mean");
  AddIdleOptions(list);
  if (const auto code = line.Parse(list, kPerplexityHelp)) return *code;
  return Run(options, line);
}

}  // namespace kvant::tools
