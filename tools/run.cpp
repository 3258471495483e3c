// kvant run: a prompt in, text out as it is generated.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/generate/generator.h"
#include "tools/commands.h"
#include "tools/common_options.h"
#include "tools/console.h"
#include "tools/model_facts.h"
#include "tools/model_names.h"
#include "tools/run_modes.h"
#include "tools/sampling_defaults.h"

namespace kvant::tools {
namespace {

constexpr HelpText kHelp = {
    "MODEL [-p TEXT | -f FILE | -] [OPTIONS]",
    "Generates text that continues a prompt and streams it to standard output, followed by a line\n"
    "break (on a terminal only if the text does not end with one). Without a prompt the text "
    "starts\n"
    "from the model's BOS token. The prompt gets the BOS token that the model asks for, and "
    "control\n"
    "tokens in it, such as <|im_end|>, are understood. Where the file names settings for sampling "
    "and\n"
    "none are given here, those of the file hold, and a note says so.\n"
    "\n"
    "Generation ends at an end token, a --stop text, -n tokens, a full context or a full\n"
    "--kv-budget. Ctrl+C ends it early, keeping the text so far; a second Ctrl+C kills.",
    "  kvant run model.gguf -p \"Once upon a time\"\n"
    "  kvant run model.gguf -p \"The capital of France is\" --temp 0 -n 16\n"
    "  kvant run model.gguf -f prompt.txt -c 8192 --seed 1 > answer.txt\n"
    "  echo \"Dear diary,\" | kvant run model.gguf - --stop \"\\n\\n\" -e\n"
    "  kvant run model.gguf -p \"Hello\" --json | jq .timings\n"
    "  kvant run model.gguf -p \"Hello\" -n 32 --beams 4 --num-return 2 --json\n"
    "  kvant run model.gguf --prompts prompts.jsonl --samples 3 -n 64 > answers.jsonl\n",
};

void AddOptions(OptionList& list, RunOptions& options) {
  options.prompt.Add(list, "Prompt", "prompt");
  list.Group("Generation");
  list.Integer("-n,--predict,--n-predict", &options.max_tokens, {-1},
               "Tokens to generate at most; -1 is until an end token or a full context");
  list.Texts("--stop", &options.stop_texts, "TEXT",
             "End before this text, which is not shown; may be repeated");
  list.Flag("--ignore-eos", &options.ignore_eos, "Never choose an end token");
  list.Group("Output");
  list.Flag("--echo", &options.echo, "Show the prompt before the text");
  list.Flag("--special", &options.special, "Show control tokens");
  list.Flag("--json", &options.json,
            "Print one line of JSON at the end: text, ids, finish_reason, timings ...");
  list.Flag("-q,--quiet", &options.quiet, "No progress and no speeds on the terminal");
  options.sampling.Add(list);
  list.Group("Long texts and speed");
  list.Text("--session", &options.continuation.session, "FILE",
            "Continue from the tokens that this file and the prompt have in common, and save the "
            "whole sequence there at the end");
  list.Text("--context-shift", &options.continuation.shift, "keep=N",
            "When the context is full, keep N tokens of its beginning and the later half of the "
            "rest",
            "end the text");
  list.Text("--draft", &options.continuation.draft, "MODEL",
            "Guess several tokens at once with a smaller model, or with 'ngram' from the text "
            "itself; the text stays the same");
  list.Integer("--draft-tokens", &options.continuation.draft_tokens, {1, 31},
               "Tokens to guess at once, at most");
  AddBeamOptions(list, options.beams);
  AddBatchOptions(list, options.batch);
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.model.AddLoading(list);
  options.session.AddThreads(list);
  options.session.AddContext(list, "the length the model was trained for");
  options.session.AddKvTypes(list);
  options.session.AddKvBudget(list);
  options.session.AddKvChecks(list);
  options.session.AddLog(list);
  options.session.AddChunk(list);
  options.session.AddNoKvCache(list);
  AddIgnoredOptions(list);
}

nlohmann::ordered_json Rate(int64_t tokens, double seconds) {
  if (tokens == 0 || seconds <= 0) return nullptr;
  return static_cast<double>(tokens) / seconds;
}

std::string ToJson(const std::string& model, const std::vector<TokenId>& prompt,
                   const Generation& generation, uint64_t seed, double load_seconds) {
  nlohmann::ordered_json out;
  out["model"] = model;
  out["prompt_tokens"] = prompt.size();
  out["prompt_ids"] = prompt;
  out["text"] = generation.text;
  out["ids"] = generation.ids;
  out["finish_reason"] = FinishReasonName(generation.finish_reason);
  out["seed"] = seed;
  out["timings"] = {
      {"load_seconds", load_seconds},
      {"prefill_tokens", generation.prefill_tokens},
      {"prefill_seconds", generation.prefill_seconds},
      {"prefill_tokens_per_second", Rate(generation.prefill_tokens, generation.prefill_seconds)},
      {"decode_tokens", generation.decode_tokens},
      {"decode_seconds", generation.decode_seconds},
      {"decode_tokens_per_second", Rate(generation.decode_tokens, generation.decode_seconds)},
  };
  if (generation.drafted_tokens > 0) {
    out["draft"] = {{"drafted_tokens", generation.drafted_tokens},
                    {"accepted_tokens", generation.accepted_tokens},
                    {"passes", generation.decode_passes}};
  }
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string SpeedText(const char* phase, int64_t tokens, double seconds) {
  std::string text = fmt::format("{} {} token{}", phase, tokens, tokens == 1 ? "" : "s");
  if (tokens > 0 && seconds > 0) {
    text += fmt::format(", {:.1f} tokens/s", static_cast<double>(tokens) / seconds);
  }
  return text;
}

const char* EndText(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "end token";
    case FinishReason::kStopText: return "stop text";
    case FinishReason::kLength: return "-n";
    case FinishReason::kContext: return "full context";
    case FinishReason::kMemory: return "full KV cache memory";
    case FinishReason::kCancelled: return "interruption";
  }
  return "";
}

void PrintSummary(const Generation& generation, uint64_t kv_bytes, uint64_t kv_bytes_planned) {
  if (generation.drafted_tokens > 0) {
    fmt::print(stderr, "{} of {} guesses were right; {} passes for {} tokens\n",
               generation.accepted_tokens, generation.drafted_tokens, generation.decode_passes,
               generation.decode_tokens);
  }
  fmt::print(stderr, "{}; {}; KV cache {} of {}; ended by {}\n",
             SpeedText("prefill", generation.prefill_tokens, generation.prefill_seconds),
             SpeedText("decode", generation.decode_tokens, generation.decode_seconds),
             SizeText(kv_bytes), SizeText(kv_bytes_planned), EndText(generation.finish_reason));
}

GenerateOptions ToGenerateOptions(const RunOptions& options) {
  GenerateOptions out;
  out.max_tokens = options.max_tokens;
  out.stop_texts = options.StopTexts();
  out.ignore_eos = options.ignore_eos;
  out.special = options.special;
  out.echo = options.echo;
  out.cancel = &CancelFlag();
  return out;
}

Result<std::optional<int64_t>> ShiftKeep(const ContinueRunOptions& options) {
  if (!options.shift.has_value()) return std::optional<int64_t>();
  constexpr std::string_view kName = "keep=";
  const std::string_view text = *options.shift;
  const char* const end = text.data() + text.size();
  int64_t keep = -1;
  const bool named = text.starts_with(kName);
  if (named) {
    const auto [stop, error] = std::from_chars(text.data() + kName.size(), end, keep);
    if (error != std::errc() || stop != end) keep = -1;
  }
  if (keep >= 0) return std::optional(keep);
  return MakeError(ErrorCode::kInvalid, "--context-shift: expected keep=N, found '{}'",
                   Visible(*options.shift));
}

// What only one streamed text can do.
Status CheckModes(const RunOptions& options, const Positionals& positionals) {
  const ContinueRunOptions& one = options.continuation;
  const bool batch = options.batch.prompts.has_value();
  const char* const mode = batch ? "--prompts" : options.beams.count > 1 ? "--beams" : nullptr;
  const auto refuse = [&](bool given, const char* name) -> Status {
    if (!given || mode == nullptr) return {};
    return MakeError(ErrorCode::kInvalid, "{}: not possible together with {}", name, mode);
  };
  KVANT_TRY(refuse(one.session.has_value(), "--session"));
  KVANT_TRY(refuse(one.shift.has_value(), "--context-shift"));
  KVANT_TRY(refuse(one.draft.has_value(), "--draft"));
  KVANT_TRY(refuse(options.session.no_kv_cache, "--no-kv-cache"));
  const bool prompt =
      options.prompt.text.has_value() || options.prompt.file.has_value() || positionals.stdin_text;
  KVANT_TRY(refuse(batch && prompt, "a prompt"));
  KVANT_TRY(refuse(batch && options.echo, "--echo"));
  KVANT_TRY(CheckBeamModes(options));
  if (options.batch.samples > 1 && (!batch || options.beams.count > 1)) {
    return MakeError(ErrorCode::kInvalid, "--samples: expected --prompts with it, and no --beams");
  }
  const auto need_cache = [&](bool given, const char* name) -> Status {
    if (!given || !options.session.no_kv_cache) return {};
    return MakeError(ErrorCode::kInvalid, "{}: not possible together with --no-kv-cache", name);
  };
  KVANT_TRY(need_cache(one.draft.has_value(), "--draft"));
  KVANT_TRY(need_cache(one.session.has_value(), "--session"));
  KVANT_TRY(need_cache(one.shift.has_value(), "--context-shift"));
  if (one.draft.has_value() && one.draft->empty()) {
    return MakeError(ErrorCode::kInvalid, "--draft: expected a model or ngram, found ''");
  }
  return {};
}

// What would make the session's file impossible to write, found before the work is done.
Status CheckSessionPath(const std::optional<std::string>& session) {
  if (!session.has_value()) return {};
  const std::string& path = *session;
  if (path.empty()) return MakeError(ErrorCode::kInvalid, "--session: expected a file, found ''");
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (folder.empty() || std::filesystem::is_directory(folder, error)) return {};
  return MakeError(ErrorCode::kIo, "--session: there is no folder '{}'", Visible(folder.string()));
}

// Takes over what the file and the prompt have in common, if the file exists.
Status LoadSession(const std::string& path, std::span<const TokenId> prompt, Session& session) {
  if (!std::filesystem::exists(path)) return {};
  KVANT_TRY(session.Load(path));
  const std::span<const TokenId> known = session.tokens();
  const auto end = std::mismatch(known.begin(), known.end(), prompt.begin(), prompt.end()).first;
  const int64_t common = std::min(end - known.begin(), std::ssize(prompt) - 1);
  return session.Rewind(common);
}

Result<std::unique_ptr<Draft>> MakeDraft(const RunOptions& options, const Session& session) {
  const std::optional<std::string>& draft = options.continuation.draft;
  if (!draft.has_value()) return std::unique_ptr<Draft>();
  if (*draft == "ngram") return std::unique_ptr<Draft>(std::make_unique<NgramDraft>());
  KVANT_ASSIGN(SessionOptions draft_options, options.session.Options());
  draft_options.context = session.context();
  KVANT_ASSIGN(const auto model, Model::Open(ModelPath(*draft), options.model.Options()));
  KVANT_ASSIGN(auto draft_session, Session::Create(model, draft_options));
  KVANT_ASSIGN(auto made, ModelDraft::Create(std::move(draft_session), session.vocab_size()));
  return std::unique_ptr<Draft>(std::move(made));
}

// The whole of the command after parsing. On success `finish_reason` tells how it ended.
Status Run(const RunOptions& options, const Positionals& positionals, ResultStream& out,
           FinishReason* finish_reason) {
  const auto start = std::chrono::steady_clock::now();
  KVANT_TRY(CheckSessionPath(options.continuation.session));
  KVANT_ASSIGN(const auto prompt_text, options.prompt.Read(positionals));
  KVANT_ASSIGN(const SamplingOptions sampling, options.sampling.Options());
  KVANT_ASSIGN(const SessionOptions session_options, options.session.Options());
  StatusLine status(!options.quiet);
  status.Set(fmt::format("loading {}", positionals.model));
  KVANT_ASSIGN(const auto model, Model::Open(positionals.model, options.model.Options()));
  const Tokenizer& tokenizer = model->tokenizer();
  KVANT_ASSIGN(const auto prompt, PromptTokens(tokenizer, prompt_text.value_or("")));
  KVANT_ASSIGN(auto sampler, Sampler::Create(sampling, model->vocab_size()));
  KVANT_ASSIGN(const auto session, Session::Create(model, session_options));
  KVANT_ASSIGN(auto log, options.session.KvLog());
  if (log) session->SetKvLog(std::move(log));
  const std::chrono::duration<double> load_time = std::chrono::steady_clock::now() - start;
  if (session->context() > model->context_length()) {
    status.Clear();
    Note(fmt::format("a context of {} is beyond the {} positions the model was trained for",
                     session->context(), model->context_length()));
  }

  GenerateOptions generate = ToGenerateOptions(options);
  if (options.continuation.session.has_value()) {
    KVANT_TRY(LoadSession(*options.continuation.session, prompt, *session));
    generate.continues = true;
  }
  KVANT_ASSIGN(const auto draft, MakeDraft(options, *session));
  generate.draft = draft.get();
  generate.draft_tokens = options.continuation.draft_tokens;
  KVANT_ASSIGN(generate.shift_keep, ShiftKeep(options.continuation));
  if (status.enabled() && session_options.kv_cache) {
    generate.prefill_slice = session_options.chunk;
    generate.on_prefill = [&](int64_t done) {
      status.Set(fmt::format("prefill {} of {} tokens", done, prompt.size()));
    };
  }
  SessionLogits sequence(session.get());
  const auto on_text = [&](std::string_view piece) {
    status.Clear();
    return options.json || out.Write(piece);
  };
  KVANT_ASSIGN(const Generation generation,
               Generate(sequence, tokenizer, sampler, prompt, generate, on_text));
  status.Clear();
  *finish_reason = generation.finish_reason;
  if (options.continuation.session.has_value()) {
    KVANT_TRY(session->Save(*options.continuation.session));
  }
  if (options.json) {
    out.Write(ToJson(positionals.model, prompt, generation, sampler.seed(), load_time.count()));
  } else if (StdoutIsTerminal()) {
    out.EndLineOnTerminal();
  } else {
    out.Write("\n");
  }
  if (status.enabled() && !out.failed()) {
    KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(*model, session_options));
    PrintSummary(generation, session->kv_bytes_used(), plan.kv);
  }
  return {};
}

}  // namespace

std::vector<std::string> RunOptions::StopTexts() const {
  std::vector<std::string> texts;
  for (const std::string& text : stop_texts) texts.push_back(prompt.escape ? Unescape(text) : text);
  return texts;
}

int RunCommand(CommandLine& line) {
  RunOptions options;
  OptionList list;
  AddOptions(list, options);
  if (const auto code = line.Parse(list, kHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  ResultStream out;
  FinishReason finish_reason = FinishReason::kStop;
  if (const Status modes = CheckModes(options, positionals); !modes.ok()) {
    return line.UsageError(modes.error().message);
  }
  const std::string note = TakeModelSampling(positionals.model, list, options.sampling);
  if (!note.empty() && !options.quiet) Note(note);
  const Status status =
      options.batch.prompts.has_value() ? RunBatch(options, positionals, out, &finish_reason)
      : options.beams.count > 1         ? RunBeams(options, positionals, out, &finish_reason)
                                        : Run(options, positionals, out, &finish_reason);
  if (!status.ok()) {
    out.EndLineOnTerminal();
    return Fail(status.error());
  }
  if (finish_reason == FinishReason::kCancelled && !out.failed()) return SignalExitCode();
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
