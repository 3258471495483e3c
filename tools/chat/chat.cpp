// kvant chat: a conversation with a model, on a terminal or through pipes.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "tools/chat/chat_talk.h"
#include "tools/commands.h"
#include "tools/options/groups/model_group.h"
#include "tools/options/model_names.h"
#include "tools/options/option_values.h"
#include "tools/options/sampling_defaults.h"

namespace kvant::tools {
namespace {

constexpr const char* kOwnModel = "dialogue";

constexpr const char* kChatCommon[] = {
    "--system-prompt", "--prompt",  "--single-turn", "--load",  "--reasoning", "--chat-template",
    "--context-shift", "--predict", "--stop",        "--temp",  "--tools",     "--top-k",
    "--top-p",         "--seed",    "--draft",       "--stats", "--quiet",     "--threads",
    "--ctx-size",      "--kv-type", "--help"};

constexpr HelpText kChatHelp = {
    "[MODEL] [OPTIONS]",
    "Talks with a model. Without MODEL it takes the small one that comes with kvant, which adds\n"
    "and subtracts, counts days and months, and spells words. The template of the model's file\n"
    "turns messages into a prompt. Each turn computes only the tokens that are new.\n"
    "\n"
    "On a terminal: Enter sends, Alt+Enter, Ctrl+J or a backslash before Enter begins another\n"
    "line, Ctrl+C stops the answer, Ctrl+D ends. /help lists the commands: /undo, /regen, /edit,\n"
    "/save ... The lines typed are kept in $XDG_STATE_HOME/kvant/chat_history.\n"
    "\n"
    "Without a terminal every line of standard input is a message or a command (a backslash at\n"
    "its end goes on in the next line), and standard output gets the answers and nothing else.",
    "  kvant chat\n"
    "  kvant chat model.gguf --system-prompt \"Answer in one sentence.\"\n"
    "  kvant chat model.gguf -p \"Why is the sky blue?\" --single-turn > answer.txt\n"
    "  printf 'Hello\\nWhat did I just say?\\n' | kvant chat model.gguf --temp 0 --stats\n"
    "  kvant chat model.gguf --chat-template chatml --reasoning hide --context-shift -c 4096\n",
    kChatCommon,
};

// Whether the editor can be used here.
bool OnTerminalBothWays() {
  const char* const term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  return isatty(STDIN_FILENO) == 1 && StdoutIsTerminal() && !dumb;
}

// Takes what the model's file recommends for what the user has not chosen into the options.
Result<std::unique_ptr<Conversation>> OpenChat(const OptionList& list,
                                               const std::string& model_path,
                                               ChatOptions& options) {
  KVANT_ASSIGN(SessionOptions session_options, options.session.Options());
  session_options = options.draft.With(session_options);
  StatusLine status(options.quiet ? StatusUse::kHidden : StatusUse::kShown);
  status.Set(fmt::format("loading {}", model_path));
  KVANT_ASSIGN(const auto model,
               Model::Open(model_path, options.draft.With(options.model.Options())));
  KVANT_TRY(model->CheckDecoder());
  status.Clear();
  const std::string taken = TakeModelSampling(*model, list, options.sampling);
  if (!taken.empty() && !options.quiet) Note(taken);
  KVANT_ASSIGN(ChatTemplate chat_template, options.conversation.Template(*model));
  const auto open = [&options, session_options, model](int64_t sequences) {
    SessionOptions with_room = session_options;
    with_room.sequences = sequences;
    return options.session.OpenRunner(model, with_room);
  };
  ConversationOptions wanted;
  wanted.sampling = options.sampling.Options();
  wanted.max_tokens = options.max_tokens;
  if (options.prompt.escape) {
    for (std::string& text : options.stop_texts) text = Unescape(text);
  }
  wanted.stop_texts = options.stop_texts;
  wanted.ignore_eos = options.ignore_eos;
  KVANT_ASSIGN(wanted.grammar, options.grammar.Make(model->tokenizer()));
  wanted.context_shift = options.context_shift;
  wanted.beams = options.beams;
  wanted.cancel = &CancelFlag();
  KVANT_ASSIGN(const SessionOptions resolved, ResolveOptions(*model, session_options));
  KVANT_ASSIGN(wanted.draft, options.draft.Make(options.model, resolved, model->vocab_size()));
  wanted.draft_tokens = options.draft.TokensAtOnce();
  KVANT_ASSIGN(wanted.render, options.conversation.Render());
  KVANT_ASSIGN(wanted.render.tools, options.tools.Read());
  wanted.tool_choice = ToolChoice::Of(options.tools.choice);
  KVANT_ASSIGN(auto conversation,
               Conversation::Create(model, open, std::move(chat_template), std::move(wanted)));
  KVANT_ASSIGN(const std::string system_text, options.conversation.System());
  conversation->SetSystem(system_text);
  if (options.load.has_value()) {
    std::string note;
    KVANT_TRY(conversation->Load(*options.load, &note));
    if (!note.empty()) Note("the tokens will be computed again: " + note);
    if (!system_text.empty()) conversation->SetSystem(system_text);
  }
  return conversation;
}

}  // namespace

int ChatCommand(CommandLine& line) {
  ChatOptions options;
  OptionList list;
  options.Add(list);
  if (const auto code = line.Parse(list, kChatHelp)) return *code;
  Positionals positionals;
  if (const auto code = TakePositionals(line, options.model, ModelNeed::kOptional, StdinUse::kNone,
                                        &positionals)) {
    return *code;
  }
  if (const Status status = options.Check(list); !status.ok()) {
    return line.UsageError(status.error().message);
  }
  if (positionals.model.empty()) {
    auto own = FindModel(kOwnModel);
    if (!own.ok()) {
      return line.UsageError("no model given, and the one that comes with kvant is missing");
    }
    positionals.model = std::move(*own);
  }
  const auto first = options.prompt.Read({});
  if (!first.ok()) return Fail(first.error());
  auto conversation = OpenChat(list, positionals.model, options);
  if (!conversation.ok()) return Fail(conversation.error());
  ResultStream out;
  ChatTalk talk(options, std::move(*conversation), out);
  if (OnTerminalBothWays()) return talk.OnTerminal(positionals.model, *first);
  return talk.OnLines(*first);
}

}  // namespace kvant::tools
