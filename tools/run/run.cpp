// kvant run: a prompt in, text out as it is generated.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/result.h"
#include "engine/limits.h"
#include "kvant/generator.h"
#include "tools/commands.h"
#include "tools/options/groups/idle_options.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/groups/session_group.h"
#include "tools/options/json.h"
#include "tools/options/model_defaults.h"
#include "tools/options/model_facts.h"
#include "tools/options/model_names.h"
#include "tools/options/option_values.h"
#include "tools/options/stopwatch.h"
#include "tools/run/run_modes.h"
#include "tools/run/run_text.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr HelpText kRunHelp = {
    "MODEL [-p TEXT | -f FILE | -] [OPTIONS]",
    "Generates text that continues a prompt and streams it to standard output, followed by a line\n"
    "break (on a terminal only if the text does not end with one). Without a prompt the text "
    "starts\n"
    "from the model's BOS token. The prompt gets the BOS token that the model asks for, and "
    "control\n"
    "tokens in it, such as <|im_end|>, are understood. Settings for sampling that the model's\n"
    "file names hold unless an option says otherwise; a note says which.\n"
    "\n"
    "Generation ends at an end token, a --stop text, -n tokens, a full context or a full\n"
    "--kv-budget. Ctrl+C ends it early, keeping the text so far; a second Ctrl+C kills.\n"
    "\n"
    "With --session FILE the whole text is saved, and the next run with that file continues it.\n"
    "Without a prompt, generation goes on at the end of the saved text. A prompt is appended to\n"
    "the saved text; if the prompt begins with the saved text, only its rest is appended. A note\n"
    "on stderr tells which.",
    "  kvant run model.gguf -p \"Once upon a time\"\n"
    "  kvant run model.gguf -p \"The capital of France is\" --temp 0 -n 16\n"
    "  kvant run model.gguf -f prompt.txt -c 8192 --seed 1 > answer.txt\n"
    "  echo \"Dear diary,\" | kvant run model.gguf - --stop \"\\n\\n\" -e\n"
    "  kvant run model.gguf -p \"Hello\" --json | jq .timings\n"
    "  kvant run model.gguf -p \"Once\" -n 64 --session s.kvs; kvant run model.gguf --session "
    "s.kvs\n"
    "  kvant run model.gguf --chat -p \"Why is the sky blue?\"\n"
    "  kvant run model.gguf -p \"Hello\" -n 32 --beams 4 --num-return 2 --json\n"
    "  kvant run whisper.gguf --frames mel.npy --prefix \"<|en|><|transcribe|><|notimestamps|>\"\n"
    "  kvant run model.gguf --prompts prompts.jsonl --samples 3 -n 64 > answers.jsonl\n",
};

// "keep=N"
Status TakeShift(std::string_view text, std::optional<int64_t>* keep) {
  constexpr std::string_view kName = "keep=";
  int64_t count = -1;
  if (text.starts_with(kName)) {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + kName.size(), end, count);
    if (error != std::errc() || stop != end) count = -1;
  }
  if (count < 0) {
    return MakeError(ErrorCode::kInvalid, "expected keep=N, found '{}'", Visible(text));
  }
  *keep = count;
  return {};
}

void AddContinuation(OptionList& list, ContinueRunOptions& options) {
  list.Group("Long texts and speed");
  list.Text("--session", &options.session, "FILE",
            "Continue the text saved in this file, and save the whole text there at the end");
  list.Flag("--session-rewind", &options.session_rewind,
            "With --session: where prompt and saved text differ, keep the beginning that both "
            "share and drop the rest of the saved text");
  list.Text("--prompt-cache", &options.prompt_cache, "FILE",
            "Keep the KV cache of the prompt in this file, for prompts with the same beginning");
  list.Flag("--prompt-cache-all", &options.prompt_cache_all,
            "Keep the generated text in the --prompt-cache, too");
  list.Flag("--prompt-cache-ro", &options.prompt_cache_read_only,
            "Leave the --prompt-cache as it is");
  list.Checked(
      "--context-shift",
      [&options](const std::string& text) { return TakeShift(text, &options.shift_keep); },
      "keep=N", "When the context is full, keep its first N tokens and the later half of the rest",
      "end the text");
  list.Integer("--keep", &options.keep, {-1, kContextMax},
               "Like --context-shift, but N counts tokens of the prompt without BOS; -1 keeps the "
               "whole prompt",
               "");
  list.Text("--draft,--model-draft", &options.draft, "MODEL",
            "Guess several tokens at once with a smaller model, or with 'ngram' from the text "
            "itself; can be faster, and never changes the text");
  list.Integer("--draft-tokens,--draft-max,--draft-n", &options.draft_tokens, {1, 31},
               "Most tokens to guess at once");
}

void AddOptions(OptionList& list, RunOptions& options) {
  options.prompt.Add(list, "Prompt", "prompt");
  list.Flag("--chat", &options.chat,
            "Take the prompt as a message: the template of the model's file makes a conversation "
            "of it, and the text is the answer");
  options.conversation.Add(list, "Prompt, with --chat");
  list.Group("Generation");
  list.Integer("-n,--predict,--n-predict", &options.max_tokens, {-1, kContextMax},
               "Most tokens to generate; -1 goes on until an end token or a full context");
  list.Texts("--stop", &options.stop_texts, "TEXT",
             "End before this text, which is not shown; may be repeated");
  list.Texts("-r,--reverse-prompt", &options.reverse_prompts, "TEXT",
             "End behind this text, which is shown; may be repeated");
  list.Flag("--ignore-eos", &options.ignore_eos, "Never choose an end token");
  list.Flag("--no-model-defaults", &options.no_model_defaults,
            "Ignore the settings for sampling and beam search in the model's file");
  list.Group("Output");
  list.Flag("--echo", &options.echo, "Show the prompt before the text");
  list.Flag("--special", &options.special, "Show control tokens");
  list.Flag("--json", &options.json,
            "Print one line of JSON at the end: text, ids, finish_reason, timings ...");
  list.Flag("-q,--quiet", &options.quiet,
            "Show no progress and no speeds on the terminal, and no note about a session");
  options.sampling.Add(list);
  AddContinuation(list, options.continuation);
  AddBeamOptions(list, options.beams);
  AddBatchOptions(list, options.batch);
  options.model.AddPath(list);
  options.model.AddPre(list);
  options.model.AddLoading(list);
  options.session.Add(list, SessionUse::kTexts, "the length the model was trained for");
  AddIdleOptions(list);
}

Json Rate(int64_t tokens, double seconds) {
  if (tokens == 0 || seconds <= 0) return nullptr;
  return static_cast<double>(tokens) / seconds;
}

std::string ToJson(const std::string& model, const std::vector<TokenId>& prompt,
                   std::span<const TokenId> source, const Generation& generation, uint64_t seed,
                   double load_seconds) {
  Json out;
  out["model"] = model;
  if (!source.empty()) out["source_ids"] = std::vector<TokenId>(source.begin(), source.end());
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
  return Dump(out) + "\n";
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

// Short lines, for terminals of 40 columns.
void PrintSummary(const Generation& generation, uint64_t kv_bytes, uint64_t kv_bytes_planned) {
  std::string lines;
  if (generation.drafted_tokens > 0) {
    lines +=
        fmt::format("guesses {} of {} right\npasses {} for {} tokens\n", generation.accepted_tokens,
                    generation.drafted_tokens, generation.decode_passes, generation.decode_tokens);
  }
  WriteError(
      lines +
      fmt::format("{}\n{}\nKV cache {} of {}\nended by {}\n",
                  SpeedText("prefill", generation.prefill_tokens, generation.prefill_seconds),
                  SpeedText("decode", generation.decode_tokens, generation.decode_seconds),
                  SizeText(kv_bytes), SizeText(kv_bytes_planned),
                  EndText(generation.finish_reason)));
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

Status CheckChatModes(const OptionList& list, const RunOptions& options) {
  if (options.conversation.no_template) KVANT_TRY(ConversationGroup::Check(list));
  if (options.chat) return list.Exclude({"--session", "--prompt-cache"}, "--chat");
  return list.Need(
      {"--system-prompt", "--system-prompt-file", "--chat-template", "--no-chat-template"},
      "--chat");
}

// Refuses options that exclude each other, and options that have no effect without another one.
Status CheckModes(const OptionList& list, const RunOptions& options,
                  const Positionals& positionals) {
  KVANT_TRY(options.sampling.Check(list));
  const ContinueRunOptions& one = options.continuation;
  const bool batch = options.batch.prompts.has_value();
  const bool beams = options.beams.on();
  const bool prompt =
      options.prompt.text.has_value() || options.prompt.file.has_value() || positionals.stdin_text;
  if (batch || beams) {  // what only one streamed text can do
    const char* const mode = batch                       ? "--prompts"
                             : options.beams.has_encoder ? "a model that has an encoder"
                                                         : "--beams";
    KVANT_TRY(list.Exclude({"--session", "--session-rewind", "--prompt-cache", "--context-shift",
                            "--keep", "--draft", "--reverse-prompt"},
                           mode));
    if (batch && prompt) {
      return MakeError(ErrorCode::kInvalid, "a prompt: not possible together with --prompts");
    }
    if (batch) KVANT_TRY(list.Exclude({"--echo", "--chat", "--no-kv-cache"}, "--prompts"));
  }
  if (options.beams.has_encoder) {
    KVANT_TRY(CheckFrames(options, positionals, batch ? "--prompts" : prompt ? "prompt" : ""));
    KVANT_TRY(list.Exclude({"--prompt-cache", "--context-shift", "--keep", "--draft", "--echo"},
                           "a model that has an encoder"));
  }
  KVANT_TRY(CheckChatModes(list, options));
  KVANT_TRY(CheckBeamModes(list, options));
  if (options.batch.samples > 1 && beams) {
    return MakeError(ErrorCode::kInvalid, "--samples: expected --prompts with it, and no --beams");
  }
  if (!batch) KVANT_TRY(list.Need({"--samples", "--parallel"}, "--prompts"));
  if (!one.draft) KVANT_TRY(list.Need({"--draft-tokens"}, "--draft"));
  if (!one.session) KVANT_TRY(list.Need({"--session-rewind"}, "--session"));
  if (!one.prompt_cache) {
    KVANT_TRY(list.Need({"--prompt-cache-all", "--prompt-cache-ro"}, "--prompt-cache"));
  }
  if (options.session.no_kv_cache) {
    KVANT_TRY(list.Exclude({"--draft", "--session", "--prompt-cache", "--context-shift", "--keep"},
                           "--no-kv-cache"));
  }
  if (one.session.has_value()) KVANT_TRY(list.Exclude({"--prompt-cache"}, "--session"));
  if (one.keep.has_value()) KVANT_TRY(list.Exclude({"--context-shift"}, "--keep"));
  if (one.prompt_cache_all) KVANT_TRY(list.Exclude({"--prompt-cache-ro"}, "--prompt-cache-all"));
  if (one.draft.has_value() && one.draft->empty()) {
    return MakeError(ErrorCode::kInvalid, "--draft: expected a model or ngram, found ''");
  }
  for (const char* name : {"--session", "--prompt-cache"}) {
    if (!list.Given(name) || !one.File()->empty()) continue;
    return MakeError(ErrorCode::kInvalid, "{}: expected a file, found ''", name);
  }
  return {};
}

// How many tokens of the beginning stay when the context is full, nullopt to end the text there.
Result<std::optional<int64_t>> ShiftKeep(const ContinueRunOptions& options,
                                         const Tokenizer& tokenizer, size_t prompt_tokens,
                                         int64_t context) {
  if (options.keep.has_value()) {
    const int64_t prompt = static_cast<int64_t>(prompt_tokens);
    const int64_t bos = tokenizer.special().add_bos ? 1 : 0;
    const int64_t wanted = *options.keep < 0 ? prompt : std::min(prompt, *options.keep + bos);
    return std::optional(std::min(wanted, std::max<int64_t>(0, context - 2)));
  }
  // Two positions at least are for what changes.
  const int64_t most = std::max<int64_t>(0, context - 2);
  if (options.shift_keep.value_or(0) > most) {
    return MakeError(ErrorCode::kInvalid,
                     "--context-shift: expected keep=0 to keep={} in a context of {}, found "
                     "keep={}",
                     most, context, *options.shift_keep);
  }
  return options.shift_keep;
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

// Adds the reverse prompt that ended the text, which the loop has left out like every stop text.
void ShowReversePrompt(const RunOptions& options, const Tokenizer& tokenizer, ResultStream& out,
                       Generation* generation) {
  if (generation->finish_reason != FinishReason::kStopText) return;
  std::string all;
  for (const TokenId id : generation->ids)
    all += tokenizer.TokenBytes(id, {.special = options.special});
  size_t end = std::string::npos;
  for (const std::string& text : options.StopTexts()) {
    if (!text.empty()) end = std::min(end, all.find(text));
  }
  if (end == std::string::npos) return;
  for (const std::string& word : options.reverse_prompts) {
    const std::string text = options.prompt.escape ? Unescape(word) : word;
    if (text.empty() || all.compare(end, text.size(), text) != 0) continue;
    generation->text += text;
    if (!options.json) out.Write(text);
    return;
  }
}

Result<RunModel> OpenModel(const RunOptions& options, const std::string& path) {
  RunModel opened;
  opened.start = std::chrono::steady_clock::now();
  StatusLine status(options.status_use());
  status.Set(fmt::format("loading {}", path));
  KVANT_ASSIGN(opened.model, Model::Open(path, options.model.Options()));
  return opened;
}

// The whole of the command after the model was opened. On success `finish_reason` tells how it
// ended.
Status Run(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
           ResultStream& out, FinishReason* finish_reason) {
  std::optional<SessionLock> saved;
  if (options.continuation.File().has_value()) {
    KVANT_ASSIGN(SessionLock lock, SessionLock::Take(*options.continuation.File()));
    saved.emplace(std::move(lock));
  }
  KVANT_ASSIGN(const auto prompt_text, options.prompt.Read(positionals));
  KVANT_ASSIGN(const SessionOptions session_options, options.session.Options());
  StatusLine status(options.status_use());
  TextRun run;
  run.model = opened.model;
  const Tokenizer& tokenizer = run.model->tokenizer();
  KVANT_TRY(run.model->CheckDecoder());
  KVANT_ASSIGN(auto sampler,
               Sampler::Create(options.Sampling(), run.model->vocab_size(), &tokenizer));
  KVANT_ASSIGN(run.session, options.session.Open(run.model, session_options));
  KVANT_TRY(TakeUp(options, prompt_text, saved ? &*saved : nullptr, &run));
  const double load_seconds = SecondsSince(opened.start);

  GenerateOptions generate = ToGenerateOptions(options);
  generate.continues = true;
  BeamOptions processors;
  KVANT_TRY(SetProcessors(options, run, &processors, &generate));
  KVANT_ASSIGN(const auto draft, MakeDraft(options, *run.session));
  generate.draft = draft.get();
  generate.draft_tokens = options.continuation.draft_tokens;
  KVANT_ASSIGN(generate.shift_keep, ShiftKeep(options.continuation, tokenizer, run.prompt.size(),
                                              run.session->context()));
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
  ShowReversePrompt(options, tokenizer, out, &generation);
  *finish_reason = generation.finish_reason;
  if (saved) KVANT_TRY(SaveText(options.continuation, generation, run));
  if (options.json) {
    const auto source = run.session->runner().source_tokens(run.session->sequence());
    out.Write(
        ToJson(positionals.model, run.prompt, source, generation, sampler.seed(), load_seconds));
  } else if (StdoutIsTerminal()) {
    out.EndLineOnTerminal();
  } else {
    out.Write("\n");
  }
  if (status.enabled() && !out.failed()) {
    KVANT_ASSIGN(const MemoryPlan plan, PlanMemory(*run.model, session_options));
    PrintSummary(generation, run.session->kv_bytes_used(), plan.kv);
  }
  return {};
}

}  // namespace

// The likeliest tokens of models with an encoder, unless an option says otherwise.
SamplingOptions RunOptions::Sampling() const {
  SamplingOptions out = sampling.Options();
  if (beams.has_encoder && !beams.draws) out.temperature = 0.0f;
  return out;
}

std::vector<std::string> RunOptions::StopTexts() const {
  std::vector<std::string> texts;
  for (const auto& words : {stop_texts, reverse_prompts}) {
    for (const std::string& text : words) texts.push_back(prompt.escape ? Unescape(text) : text);
  }
  return texts;
}

Result<std::vector<TokenId>> RunOptions::PromptIds(const Model& opened,
                                                   const std::optional<std::string>& text) const {
  if (!chat) return PromptTokens(opened.tokenizer(), text.value_or(""));
  return conversation.Prompt(opened, text.value_or(""));
}

int RunCommand(CommandLine& line) {
  RunOptions options;
  OptionList list;
  AddOptions(list, options);
  if (const auto code = line.Parse(list, kRunHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  ResultStream out;
  FinishReason finish_reason = FinishReason::kStop;
  const auto opened = OpenModel(options, positionals.model);
  if (!opened.ok()) return Fail(opened.error());
  const auto note = TakeModelDefaults(*opened->model, list, options);
  if (!note.ok()) return Fail(note.error());
  if (const Status modes = CheckModes(list, options, positionals); !modes.ok()) {
    return line.UsageError(modes.error().message);
  }
  if (!note->empty() && !options.quiet) Note(*note);
  const Status status =
      options.batch.prompts.has_value() ? RunBatch(options, *opened, out, &finish_reason)
      : options.beams.on() ? RunBeams(options, positionals, *opened, out, &finish_reason)
                           : Run(options, positionals, *opened, out, &finish_reason);
  if (!status.ok()) {
    out.EndLineOnTerminal();
    return Fail(status.error());
  }
  if (finish_reason == FinishReason::kCancelled && !out.failed()) return SignalExitCode();
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
