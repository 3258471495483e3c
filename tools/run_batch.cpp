// kvant run --prompts: a batch of prompts, a line of JSON for each text as it ends.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/generate/batch_generator.h"
#include "formats/json.h"
#include "tools/run_modes.h"

namespace kvant::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kParallelMax = 1024;

// Lines of {"prompt": TEXT}; other keys are left alone.
Result<std::vector<std::string>> ReadPrompts(const std::string& path) {
  TextGroup source;
  source.file = path;
  KVANT_ASSIGN(const auto text, source.Read({}));
  std::istringstream file(*text);
  std::vector<std::string> prompts;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}: line {}", path, number);
    const auto entry = formats::ParseJson(line, where);
    if (!entry.ok() || !entry->is_object() || !entry->contains("prompt") ||
        !(*entry)["prompt"].is_string()) {
      return MakeError(ErrorCode::kInvalid, "{}: expected {{\"prompt\": TEXT}}{}", where,
                       entry.ok() ? "" : ", found what is not valid JSON");
    }
    prompts.push_back((*entry)["prompt"].get<std::string>());
  }
  if (prompts.empty()) return MakeError(ErrorCode::kInvalid, "{}: no prompts", path);
  return prompts;
}

std::string ToJson(const BatchText& text) {
  const Json out = {{"prompt", text.request},
                    {"sample", text.sample},
                    {"text", text.text},
                    {"ids", text.ids},
                    {"finish_reason", FinishReasonName(text.finish_reason)},
                    {"seed", text.seed}};
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

void AddBatchOptions(OptionList& list, BatchRunOptions& options) {
  list.Group("Batches");
  list.Text(
      "--prompts", &options.prompts, "FILE",
      "Lines of {\"prompt\": TEXT}, - is standard input; texts are printed as lines of JSON as "
      "they end: prompt (its "
      "number from 0), sample, text, ids, finish_reason, seed; with --beams prompt, finish_reason "
      "and beams");
  list.Integer("--samples", &options.samples, {1, kParallelMax},
               "Texts for each prompt, with seeds one after the other");
  list.Integer(
      "--parallel", &options.parallel, {1, kParallelMax},
      "Texts under way at the same time, at most; the samples of a prompt always are together");
}

Status RunBatch(const RunOptions& options, const Positionals& positionals, ResultStream& out,
                FinishReason* finish_reason) {
  KVANT_ASSIGN(const auto texts, ReadPrompts(*options.batch.prompts));
  if (options.beams.count > 1) return RunBeamBatch(options, positionals, texts, out, finish_reason);
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  BatchOptions batch;
  KVANT_ASSIGN(batch.sampling, options.sampling.Options());
  batch.max_tokens = options.max_tokens;
  batch.stop_texts = options.StopTexts();
  batch.ignore_eos = options.ignore_eos;
  batch.special = options.special;
  batch.cancel = &CancelFlag();
  StatusLine status(!options.quiet);
  status.Set(fmt::format("loading {}", positionals.model));
  KVANT_ASSIGN(const auto model, Model::Open(positionals.model, options.model.Options()));
  session_options.sequences = std::max(options.batch.parallel, options.batch.samples);
  KVANT_ASSIGN(const auto runner, Runner::Create(model, session_options));
  KVANT_ASSIGN(auto log, options.session.KvLog());
  if (log) runner->SetKvLog(std::move(log));
  std::vector<BatchRequest> requests;
  for (const std::string& text : texts) {
    KVANT_ASSIGN(auto prompt, PromptTokens(model->tokenizer(), text));
    requests.push_back({std::move(prompt), static_cast<int32_t>(options.batch.samples)});
  }
  const size_t total = requests.size() * static_cast<size_t>(options.batch.samples);
  size_t ended = 0;
  const Status result =
      GenerateBatch(*runner, model->tokenizer(), requests, batch, [&](const BatchText& text) {
        status.Clear();
        const bool written = out.Write(ToJson(text));
        status.Set(fmt::format("{} of {} texts", ++ended, total));
        return written;
      });
  status.Clear();
  if (result.ok() || result.error().code != ErrorCode::kCancelled) return result;
  *finish_reason = FinishReason::kCancelled;
  return {};
}

}  // namespace kvant::tools
