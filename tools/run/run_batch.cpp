// kvant run --prompts: a batch of prompts, a line of JSON for each text as it ends.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/result.h"
#include "engine/limits.h"
#include "formats/json.h"
#include "kvant/batch_generator.h"
#include "tools/options/groups/text_group.h"
#include "tools/options/json.h"
#include "tools/run/run_modes.h"

namespace kvant::tools {
namespace {

// Reads a line, {"prompt": TEXT} with an "id" if wanted. Returns its fault, or "".
std::string ReadLine(const std::string& text, PromptLine* line) {
  if (text.find('\0') != std::string::npos) return "expected JSON, found a NUL byte";
  auto entry = formats::ParseJson(text, "line");
  if (!entry.ok()) return "expected {\"prompt\": TEXT}, found what is not valid JSON";
  const Json& object = *entry;
  if (!object.is_object() || !object.contains("prompt") || !object["prompt"].is_string()) {
    return "expected {\"prompt\": TEXT}";
  }
  if (object.contains("id")) line->id = object["id"];
  for (const auto& [key, value] : object.items()) {
    if (key != "prompt" && key != "id") {
      return fmt::format("expected the keys \"prompt\" and \"id\", found \"{}\"", Visible(key));
    }
  }
  line->text = object["prompt"].get<std::string>();
  return "";
}

// One for every line that is not empty.
Result<std::vector<PromptLine>> ReadPrompts(const std::string& path) {
  TextGroup source;
  source.file = path;
  KVANT_ASSIGN(const auto text, source.Read({}));
  std::istringstream file(*text);
  std::vector<PromptLine> prompts;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    PromptLine& prompt = prompts.emplace_back();
    const std::string error = ReadLine(line, &prompt);
    if (!error.empty()) prompt.error = fmt::format("line {}: {}", number, error);
  }
  if (prompts.empty()) return MakeError(ErrorCode::kInvalid, "{}: no prompts", path);
  return prompts;
}

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

Json AnswerTo(size_t number, const PromptLine& line) {
  Json out = {{"prompt", number}};
  if (line.id.has_value()) out["id"] = *line.id;
  return out;
}

std::vector<size_t> CheckPrompts(const Model& model, const Translation& translation,
                                 int64_t context, std::vector<PromptLine>& prompts,
                                 ResultStream& out) {
  std::vector<size_t> good;
  for (size_t i = 0; i < prompts.size(); ++i) {
    PromptLine& line = prompts[i];
    if (line.error.empty()) {
      auto tokens = model.has_encoder() ? EncodeSource(model, translation, line.text)
                                        : PromptTokens(model.tokenizer(), line.text);
      if (!tokens.ok()) {
        line.error = tokens.error().message;
      } else if (std::ssize(*tokens) > context) {
        line.error =
            fmt::format("the prompt has {} tokens, but the {} has room for {}", tokens->size(),
                        model.has_encoder() ? "encoder" : "context", context);
      } else {
        line.tokens = std::move(*tokens);
      }
    }
    if (line.error.empty()) {
      good.push_back(i);
      continue;
    }
    Json answer = AnswerTo(i, line);
    answer["error"] = line.error;
    out.Write(Dump(answer) + "\n");
  }
  return good;
}

Status CheckAnswered(const std::string& path, std::span<const PromptLine> prompts) {
  const auto wrong = std::count_if(prompts.begin(), prompts.end(),
                                   [](const PromptLine& line) { return !line.error.empty(); });
  if (wrong == 0) return {};
  return MakeError(ErrorCode::kCorrupt, "{}: {} of {} prompts could not be answered: see \"error\"",
                   path, wrong, prompts.size());
}

void AddBatchOptions(OptionList& list, BatchRunOptions& options) {
  list.Group("Batches");
  list.Text("--prompts", &options.prompts, "FILE",
            "Answer the lines of a file, each {\"prompt\": TEXT}; - is standard input. Each text "
            "is printed when it ends, as a line of JSON: prompt (its number from 0), sample, text, "
            "ids, finish_reason, seed; with --beams: prompt, finish_reason, beams. An \"id\" in a "
            "line is repeated. A line that cannot be answered gets an \"error\"; the others are "
            "answered, and the exit code is 1");
  list.Integer("--samples", &options.samples, {1, kSequencesMax},
               "Texts to generate for each prompt; each has the seed of the one before plus 1");
  list.Integer(
      "--parallel", &options.parallel, {1, kSequencesMax},
      "Most texts to generate at the same time; all samples of a prompt are generated together");
}

Status RunBatch(const RunOptions& options, const RunModel& opened, ResultStream& out,
                FinishReason* finish_reason) {
  KVANT_ASSIGN(auto prompts, ReadPrompts(*options.batch.prompts));
  if (options.beams.on()) {
    return RunBeamBatch(options, opened, std::move(prompts), out, finish_reason);
  }
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
  session_options.sequences = std::max(options.batch.parallel, options.batch.samples);
  KVANT_ASSIGN(const auto runner, options.session.OpenRunner(model, session_options));
  int64_t most = runner->options().context;
  Translation translation;
  std::vector<TokenId> first;  // of what a model with an encoder writes
  BeamOptions processors;
  if (model->has_encoder()) {
    KVANT_TRY(model->CheckDecoder());
    most = model->source_length();
    KVANT_ASSIGN(translation, MakeTranslation(*model, options.beams.languages));
    KVANT_ASSIGN(first, FirstWritten(options, *model, translation));
    KVANT_ASSIGN(processors, Processors(options, *model, first.size(), &batch.max_tokens));
    batch.processors = &processors;
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
