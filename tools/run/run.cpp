// kvant run: a prompt in, text out as it is generated.
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <utility>

#include "base/result.h"
#include "tools/commands.h"
#include "tools/run/no_prompt.h"
#include "tools/run/options/run_checks.h"
#include "tools/run/options/run_defaults.h"
#include "tools/run/options/run_options.h"
#include "tools/run/prompt_lines.h"
#include "tools/run/run_modes.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

constexpr const char* kRunCommon[] = {
    "--prompt",   "--file",          "--chat",  "--system-prompt", "--predict", "--stop",
    "--temp",     "--top-k",         "--top-p", "--seed",          "--json",    "--quiet",
    "--session",  "--context-shift", "--draft", "--beams",         "--prompts", "--threads",
    "--ctx-size", "--kv-type",       "--help"};

constexpr HelpText kRunHelp = {
    "MODEL [-p TEXT | -f FILE | -] [OPTIONS]",
    "Generates text that continues a prompt and streams it to standard output, followed by a line\n"
    "break (on a terminal only if the text does not end with one).\n"
    "\n"
    "Without a prompt the text starts from the model's BOS token; on a terminal a conversation is\n"
    "offered instead where the model holds some. The prompt gets the BOS token that the model "
    "asks\n"
    "for, and control tokens in it, such as <|im_end|>, are understood. Settings for sampling "
    "that\n"
    "the model's file names hold unless an option says otherwise; a note says which.\n"
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
    "  kvant run model.gguf --tools tools.json -p \"How is the weather in Oslo?\"\n"
    "  kvant run model.gguf -p \"Hello\" -n 32 --beams 4 --num-return 2 --json\n"
    "  kvant run whisper.gguf --frames mel.npy --prefix \"<|en|><|transcribe|><|notimestamps|>\"\n"
    "  kvant run model.gguf --prompts prompts.jsonl --samples 3 -n 64 > answers.jsonl\n",
    kRunCommon,
};

Result<RunModel> OpenModel(const RunOptions& options, const std::string& path) {
  RunModel opened;
  opened.start = std::chrono::steady_clock::now();
  StatusLine status(options.status_use());
  status.Set(fmt::format("loading {}", path));
  KVANT_ASSIGN(opened.model,
               Model::Open(path, options.continuation.draft.With(options.model.Options())));
  return opened;
}

// The whole of the command after the model was opened. On success `finish_reason` tells how it
// ended.
Status RunMode(const RunOptions& options, const Positionals& positionals, const RunModel& opened,
               ResultStream& out, FinishReason* finish_reason) {
  if (options.tools.file.has_value()) {
    return RunTools(options, positionals, opened, out, finish_reason);
  }
  if (!options.batch.prompts.has_value()) {
    return options.searches() ? RunBeams(options, positionals, opened, out, finish_reason)
                              : RunText(options, positionals, opened, out, finish_reason);
  }
  KVANT_ASSIGN(auto prompts, ReadPrompts(*options.batch.prompts));
  return options.searches() ? RunBeamBatch(options, opened, std::move(prompts), out, finish_reason)
                            : RunBatch(options, opened, std::move(prompts), out, finish_reason);
}

}  // namespace

int RunCommand(CommandLine& line) {
  RunOptions options;
  OptionList list;
  options.Add(list);
  if (const auto code = line.Parse(list, kRunHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kRequired,
                                        StdinUse::kAccepted, &positionals)) {
    return *code;
  }
  // The draft decides how the model is opened.
  if (const Status draft = options.continuation.draft.Check(list); !draft.ok()) {
    return line.UsageError(draft.error().message);
  }
  ResultStream out;
  FinishReason finish_reason = FinishReason::kStop;
  const auto opened = OpenModel(options, positionals.model);
  if (!opened.ok()) return Fail(opened.error());
  options.chat = options.chat || options.tools.file.has_value();
  const auto note = TakeModelDefaults(*opened->model, list, options);
  if (!note.ok()) return Fail(note.error());
  if (const Status modes = CheckModes(list, options, positionals); !modes.ok()) {
    return line.UsageError(modes.error().message);
  }
  if (const auto code = OfferPrompt(line, options, positionals, *opened)) return *code;
  if (!note->empty() && !options.quiet) Note(*note);
  const Status status = RunMode(options, positionals, *opened, out, &finish_reason);
  if (!status.ok()) {
    out.EndLineOnTerminal();
    return Fail(status.error());
  }
  if (finish_reason == FinishReason::kCancelled && !out.failed()) return SignalExitCode();
  return out.Finish(kExitDone);
}

}  // namespace kvant::tools
