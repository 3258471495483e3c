// The commands of a talk: what each does, and how a line that begins with a slash is read.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "tools/chat/chat_talk.h"
#include "tools/options/groups/text_group.h"
#include "tools/options/model_facts.h"
#include "tools/options/nearest_word.h"

namespace kvant::tools {
namespace {

constexpr int64_t kTalkBeamsMax = 64;
constexpr size_t kHelpIndent = 20;
constexpr size_t kShowIndent = 10;

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

Status NeedArgument(const std::string& argument, const char* usage) {
  if (!argument.empty()) return {};
  return MakeError(ErrorCode::kInvalid, "expected {}", usage);
}

}  // namespace

std::span<const ChatTalk::Command> ChatTalk::Commands() {
  static constexpr std::array kRows = {
      Command{"/help", "", "Show this list", &ChatTalk::Help},
      Command{"/reset", "", "Begin a new conversation with the same system message",
              &ChatTalk::Reset},
      Command{"/undo", "", "Take the last message and its answer back", &ChatTalk::Undo},
      Command{"/regen", "", "Answer the last message again", &ChatTalk::Regenerate},
      Command{"/edit", "[TEXT]", "Change the last message, and answer it again", &ChatTalk::Edit},
      Command{"/system", "[TEXT]", "Show or change the system's message; - removes it",
              &ChatTalk::System},
      Command{"/read", "FILE", "Put the text of a file before the next message",
              &ChatTalk::ReadFile},
      Command{"/save", "FILE", "Save the conversation, with its tokens in FILE.kvs",
              &ChatTalk::Save},
      Command{"/load", "FILE", "Go on with a saved conversation", &ChatTalk::Load},
      Command{"/stats", "", "Show tokens and speeds as a line of JSON", &ChatTalk::Stats},
      Command{"/set", "[NAME VALUE]",
              "Change a setting: temp, top-p, seed, predict, stop, word-wrap ...", &ChatTalk::Set},
      Command{"/show", "", "Show model, context, system message and settings",
              &ChatTalk::ShowState},
      Command{"/beams", "N", "Answer with the best of N texts that are followed at once; 1 is off",
              &ChatTalk::Beams},
      Command{"/clear", "", "Begin a new conversation, as /reset", &ChatTalk::Reset},
      Command{"/exit", "", "End the program", &ChatTalk::Exit},
      Command{"/bye", "", "End the program, as /exit", &ChatTalk::Exit},
  };
  return kRows;
}

// "/name argument". Two slashes begin a message with one.
Status ChatTalk::Obey(const std::string& line) {
  const std::string_view all = Trimmed(line);
  const size_t blank = std::min(all.find_first_of(" \t\n"), all.size());
  const std::string name(all.substr(0, blank));
  const std::string argument(Trimmed(all.substr(blank)));
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    names.emplace_back(command.name);
    if (name != command.name) continue;
    if (!argument.empty() && command.argument.empty()) {
      return MakeError(ErrorCode::kInvalid, "{}: expected nothing behind it, found '{}'", name,
                       argument);
    }
    const Status status = (this->*command.run)(argument);
    if (status.ok() || status.error().code == ErrorCode::kCancelled) return status;
    return MakeError(status.error().code, "{}: {}", name, status.error().message);
  }
  const std::string nearest = Nearest(name, names);
  return MakeError(ErrorCode::kInvalid,
                   "unknown command {}{}; /help lists them, and // begins a message with a slash",
                   name, nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

Status ChatTalk::Help(const std::string& /*argument*/) {
  for (const Command& command : Commands()) {
    const std::string head = fmt::format("{} {}", command.name, command.argument);
    ShowLine(fmt::format("{:<{}}{}", head, kHelpIndent, command.summary), kHelpIndent);
  }
  if (terminal_) {
    ShowLine("Enter sends; Alt+Enter, Ctrl+J or a backslash before Enter begins another line.");
    ShowLine("Ctrl+C stops an answer, Ctrl+D ends the program, Tab completes commands and files.");
    ShowLine("Ctrl+Z stops the program, and the shell's fg goes on with it.");
  }
  return {};
}

Status ChatTalk::Reset(const std::string& /*argument*/) {
  conversation_->Reset();
  attached_.clear();
  ShowLine("a new conversation");
  return {};
}

Status ChatTalk::Undo(const std::string& /*argument*/) {
  if (!conversation_->Undo().has_value()) {
    return MakeError(ErrorCode::kInvalid, "there is no message to take back");
  }
  ShowLine(Counted(conversation_->entries().size(), "message") + " left");
  return {};
}

Status ChatTalk::Regenerate(const std::string& /*argument*/) {
  if (conversation_->entries().empty()) {
    return MakeError(ErrorCode::kInvalid, "there is no message to answer");
  }
  conversation_->DropAnswer();
  return Answer();
}

Status ChatTalk::Edit(const std::string& argument) {
  if (conversation_->entries().empty()) {
    return MakeError(ErrorCode::kInvalid, "there is no message to change");
  }
  if (argument.empty() && !terminal_) return NeedArgument(argument, "/edit TEXT");
  std::string before = conversation_->Undo().value_or("");
  // A file that was read for the message stays before it.
  if (before == Joined(said_with_, said_)) {
    attached_ = attached_.empty() ? said_with_ : Joined(said_with_, attached_);
    before = said_;
  }
  if (!argument.empty()) return Say(argument);
  initial_ = before;
  return {};
}

Status ChatTalk::System(const std::string& argument) {
  if (argument.empty()) {
    const std::string& system = conversation_->system();
    ShowLine(system.empty() ? "there is no system message" : system);
    return {};
  }
  conversation_->SetSystem(argument == "-" ? "" : argument);
  return {};
}

Status ChatTalk::ReadFile(const std::string& argument) {
  KVANT_TRY(NeedArgument(argument, "/read FILE"));
  std::error_code error;
  if (!std::filesystem::is_regular_file(argument, error)) {
    return MakeError(ErrorCode::kIo, "{}: no such file", argument);
  }
  TextGroup text;
  text.file = argument;
  KVANT_ASSIGN(const auto content, text.Read({}));
  const std::string& read = content.value_or("");
  if (!attached_.empty()) attached_ += "\n";
  attached_ += read;
  ShowLine(fmt::format("{} put before the next message", Counted(read.size(), "byte")));
  return {};
}

Status ChatTalk::Save(const std::string& argument) {
  KVANT_TRY(NeedArgument(argument, "/save FILE"));
  std::string note;
  KVANT_TRY(conversation_->Save(argument, &note));
  if (!note.empty()) ShowLine("the tokens will be computed again: " + note);
  ShowLine("saved " + Counted(conversation_->entries().size(), "message"));
  return {};
}

Status ChatTalk::Load(const std::string& argument) {
  KVANT_TRY(NeedArgument(argument, "/load FILE"));
  std::string note;
  KVANT_TRY(conversation_->Load(argument, &note));
  if (!note.empty()) ShowLine("the tokens will be computed again: " + note);
  ShowLine(fmt::format("{} of {}", Counted(conversation_->entries().size(), "message"),
                       Counted(conversation_->held_tokens(), "token")));
  return {};
}

Status ChatTalk::Stats(const std::string& /*argument*/) {
  WriteError(Dump(StatsJson()) + "\n");  // whole, however narrow the terminal
  return {};
}

Status ChatTalk::Beams(const std::string& argument) {
  int64_t beams = 0;
  const char* const end = argument.data() + argument.size();
  const auto [stop, error] = std::from_chars(argument.data(), end, beams);
  if (error != std::errc() || stop != end || beams < 1 || beams > kTalkBeamsMax) {
    return MakeError(ErrorCode::kInvalid, "expected a number from 1 to {}, found '{}'",
                     kTalkBeamsMax, argument);
  }
  if (beams > 1 && !settings_.stop_texts.empty()) {
    return MakeError(ErrorCode::kInvalid, "not possible together with --stop");
  }
  return conversation_->SetBeams(beams);
}

// "temp 0.5"; ollama's "parameter temperature 0.5" says the same.
Status ChatTalk::Set(const std::string& argument) {
  constexpr std::string_view kFirst = "parameter ";
  std::string_view rest = argument;
  if (rest.starts_with(kFirst)) rest = Trimmed(rest.substr(kFirst.size()));
  const size_t blank = std::min(rest.find_first_of(" \t\n"), rest.size());
  const std::string value(Trimmed(rest.substr(blank)));
  if (rest.empty()) {
    ShowLine(fmt::format("{}", fmt::join(TalkSettings::Names(), ", ")));
    return {};
  }
  KVANT_TRY(NeedArgument(value, "/set NAME VALUE"));
  TalkSettings next = settings_;
  KVANT_TRY(next.Set(rest.substr(0, blank), value));
  KVANT_TRY(conversation_->SetEnds(next.max_tokens, next.stop_texts));
  const Status sampling = conversation_->SetSampling(next.sampling.Options());
  if (!sampling.ok()) {
    KVANT_TRY(conversation_->SetEnds(settings_.max_tokens, settings_.stop_texts));
    return sampling;
  }
  std::optional<bool> thinking;
  if (next.reasoning == ReasoningUse::kOff) thinking = false;
  conversation_->SetThinking(thinking);
  settings_ = std::move(next);
  if (terminal_) ShowLine(settings_.Text());
  return {};
}

Status ChatTalk::ShowState(const std::string& /*argument*/) {
  const Conversation& talk = *conversation_;
  const formats::GgufFile& file = talk.model().file();
  ShowLine(fmt::format("model     {} ({})", file.path(), GatherFacts(file).description),
           kShowIndent);
  ShowLine(fmt::format("context   {} of {}, {}", talk.held_tokens(),
                       Counted(talk.context(), "token"), Counted(talk.entries().size(), "message")),
           kShowIndent);
  ShowLine("system    " + (talk.system().empty() ? "none" : talk.system()), kShowIndent);
  ShowLine("settings  " + settings_.Text(), kShowIndent);
  if (talk.beams() > 1) ShowLine(fmt::format("beams     {}", talk.beams()));
  if (options_.draft.model.has_value()) ShowLine("draft     " + *options_.draft.model);
  return {};
}

Status ChatTalk::Exit(const std::string& /*argument*/) {
  end_ = kExitDone;
  return {};
}

// Commands, and behind some of them files.
Completion ChatTalk::Complete(std::string_view before_cursor) const {
  namespace fs = std::filesystem;
  Completion out;
  if (!before_cursor.starts_with('/')) return out;
  const size_t blank = before_cursor.find(' ');
  if (blank == std::string_view::npos) {
    for (const Command& command : Commands()) {
      if (!command.name.starts_with(before_cursor)) continue;
      out.candidates.push_back(std::string(command.name) + (command.argument.empty() ? "" : " "));
    }
    return out;
  }
  const std::string_view name = before_cursor.substr(0, blank);
  if (name == "/set") {
    out.begin = blank + 1;
    for (const std::string& setting : TalkSettings::Names()) {
      if (setting.starts_with(before_cursor.substr(out.begin)))
        out.candidates.push_back(setting + " ");
    }
    return out;
  }
  if (name != "/read" && name != "/save" && name != "/load") return out;
  out.begin = blank + 1;
  const std::string typed(before_cursor.substr(out.begin));
  const size_t slash = typed.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : typed.substr(0, slash + 1);
  std::error_code end;
  for (fs::directory_iterator it(folder.empty() ? "." : folder, end);
       !end && it != fs::directory_iterator(); it.increment(end)) {
    const std::string file = it->path().filename().string();
    const std::string path = folder + file;
    const bool hidden = file.starts_with('.') && (typed.empty() || typed.ends_with('/'));
    std::error_code error;
    if (!path.starts_with(typed) || hidden) continue;
    out.candidates.push_back(path + (it->is_directory(error) ? "/" : ""));
  }
  std::sort(out.candidates.begin(), out.candidates.end());
  return out;
}

}  // namespace kvant::tools
