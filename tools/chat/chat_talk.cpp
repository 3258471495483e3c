#include "tools/chat/chat_talk.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "tools/options/json.h"
#include "tools/terminal/text_width.h"

namespace kvant::tools {
namespace {

constexpr const char* kDimStyle = "\x1b[2m";
constexpr const char* kBoldStyle = "\x1b[1m";
constexpr const char* kPlainStyle = "\x1b[0m";

// NO_COLOR as https://no-color.org has it.
bool WantsColours() {
  const char* const none = std::getenv("NO_COLOR");
  return StdoutIsTerminal() && (none == nullptr || *none == '\0');
}

size_t TalkColumns() {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col : 80;
}

// Text of a model as a terminal may have it: line breaks and tabs, and nothing else to obey.
std::string ForTerminal(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\n\t"), text.size());
    out += Visible(text.substr(0, end));
    if (end < text.size()) out += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// Text of a user as messages have it.
std::string AsUtf8(std::string_view text) {
  Utf8Stream stream;
  std::string out = stream.Push(text);
  return out + stream.Finish();
}

std::string RateText(int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? fmt::format(" {:.1f}/s", static_cast<double>(tokens) / seconds)
                                   : "";
}

std::string GaugeText(int64_t tokens, int64_t context) {
  constexpr int64_t kCells = 10;
  const int64_t full = std::clamp<int64_t>(tokens * kCells / context, 0, kCells);
  return "[" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(kCells - full), '.') + "]";
}

// Why an answer ended where it should not have; "" where it should.
std::string EarlyEndNote(FinishReason reason, int64_t context, bool has_grammar) {
  switch (reason) {
    case FinishReason::kLength:
      return has_grammar ? "-n ends the answer before its grammar does" : "";
    case FinishReason::kContext:
      return fmt::format("the context of {} is full: the answer ends here",
                         Counted(context, "token"));
    case FinishReason::kMemory: return "the KV cache's memory is full: the answer ends here";
    case FinishReason::kNoToken: return "no token is left to go on with: the answer ends here";
    default: return "";
  }
}

// Seconds, as JSON has them.
double RoundedToMicroseconds(double seconds) { return std::round(seconds * 1e6) / 1e6; }

}  // namespace

ChatTalk::ChatTalk(const ChatOptions& options, std::unique_ptr<Conversation> conversation,
                   ResultStream& out)
    : options_(options),
      conversation_(std::move(conversation)),
      out_(out),
      progress_(options.quiet ? StatusUse::kHidden : StatusUse::kShown),
      settings_{.sampling = options.sampling,
                .max_tokens = options.max_tokens,
                .stop_texts = options.stop_texts,
                .reasoning = options.conversation.reasoning.value_or(ReasoningUse::kHide),
                .word_wrap = !options.no_word_wrap} {}

// ---- The two ways of talking --------------------------------------------------------------------

int ChatTalk::OnTerminal(const std::string& model_name, const std::optional<std::string>& first) {
  terminal_ = true;
  colours_ = WantsColours();
  settings_.reasoning = options_.conversation.reasoning.value_or(ReasoningUse::kShow);
  history_ = std::make_unique<InputHistory>(HistoryPath());
  editor_ = std::make_unique<LineEditor>(
      STDIN_FILENO, STDOUT_FILENO, history_.get(),
      [this](std::string_view before_cursor) { return Complete(before_cursor); });
  if (!options_.quiet) {
    ShowLine(fmt::format("{}, a context of {}; /help shows what you can do", model_name,
                         Counted(conversation_->context(), "token")));
  }
  LineEditor::Prompt prompt;
  if (colours_) prompt = {.text = "> ", .style = kBoldStyle, .style_end = kPlainStyle};
  if (first.has_value()) {
    ShowLine("> " + *first);
    TakeText(*first);
  }
  while (!end_.has_value()) {
    std::string text;
    switch (editor_->ReadText(prompt, std::exchange(initial_, ""), &text)) {
      case LineEditor::End::kText: break;
      case LineEditor::End::kInterrupted:
        TakeSignal();
        if (text.empty()) ShowLine("Ctrl+D or /exit ends the program");
        continue;
      case LineEditor::End::kEndOfInput: return kExitDone;
      case LineEditor::End::kHungUp: return HangUpExitCode();
    }
    history_->Add(text);
    TakeText(text);
  }
  return *end_;
}

// A text of the terminal; errors do not end the talk there.
void ChatTalk::TakeText(const std::string& text) {
  const bool command = text.starts_with('/') && !text.starts_with("//");
  if (text.find_first_not_of(" \t\n") == std::string::npos) return;
  const Status status = command ? Obey(text) : Say(text.starts_with("//") ? text.substr(1) : text);
  if (!status.ok()) Tell(status.error());
  if (!status.ok() && !command && HasUnanswered() && !end_.has_value()) {
    ShowLine("the message is kept: /regen answers it, /edit changes it");
  }
  if (options_.single_turn && turns_ > 0 && !end_.has_value()) end_ = kExitDone;
  if (out_.failed()) end_ = out_.Finish(kExitDone);
}

int ChatTalk::OnLines(const std::optional<std::string>& first) {
  std::optional<std::string> text = first;
  while (true) {
    if (!text.has_value()) {
      auto turn = ReadTurn();
      if (!turn.ok()) return Fail(turn.error());
      text = std::move(*turn);
      if (!text.has_value()) return out_.Finish(kExitDone);
    }
    const bool command = text->starts_with('/') && !text->starts_with("//");
    Status status;
    if (command) {
      status = Obey(*text);
    } else if (text->find_first_not_of(" \t\r\n") != std::string::npos) {
      status = Say(text->starts_with("//") ? text->substr(1) : *text);
    }
    if (!status.ok()) return Fail(status.error());
    if (out_.failed()) return out_.Finish(kExitDone);
    if (end_.has_value()) return *end_;
    if (options_.single_turn && turns_ > 0) return out_.Finish(kExitDone);
    text.reset();
  }
}

// The next line of standard input; lines that end with a backslash go on in the next one.
Result<std::optional<std::string>> ChatTalk::ReadTurn() {
  std::string turn;
  while (true) {
    if (CancelFlag().load()) return MakeError(ErrorCode::kCancelled, "interrupted");
    const size_t end = bytes_.find('\n');
    if (end != std::string::npos || (input_ended_ && !bytes_.empty())) {
      const size_t length = std::min(end, bytes_.size());
      turn += bytes_.substr(0, length);
      bytes_.erase(0, length + 1);
      if (turn.ends_with('\r')) turn.pop_back();
      if (!turn.ends_with('\\') || (input_ended_ && bytes_.empty())) return std::optional(turn);
      turn.back() = '\n';
      continue;
    }
    if (input_ended_) return turn.empty() ? std::optional<std::string>() : std::optional(turn);
    char buffer[65536];
    const ssize_t count = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return MakeError(ErrorCode::kIo, "standard input: cannot read: {}", std::strerror(errno));
    }
    input_ended_ = count == 0;
    bytes_.append(buffer, static_cast<size_t>(count));
  }
}

// ---- Answers ------------------------------------------------------------------------------------

// A message that got no answer stays, for /regen and /edit, until another one takes its place.
Status ChatTalk::Say(std::string text) {
  if (HasUnanswered()) conversation_->Undo();
  said_ = AsUtf8(text);
  said_with_ = AsUtf8(std::exchange(attached_, ""));
  conversation_->AddUser(Joined(said_with_, said_));
  return Answer();
}

std::string ChatTalk::Joined(const std::string& front, const std::string& text) {
  return front.empty() ? text : front + "\n" + text;
}

bool ChatTalk::HasUnanswered() const {
  const auto& entries = conversation_->entries();
  if (entries.empty()) return false;
  const std::string& role = entries.back().message.role;
  return role == "user" || role == "tool";
}

// A call that was asked for is asked for once: an answer to its result may be content.
Status ChatTalk::Answer() {
  using Kind = ToolChoice::Kind;
  const ToolChoice choice = conversation_->tool_choice();
  const bool is_asked_for = choice.kind == Kind::kRequired || choice.kind == Kind::kNamed;
  const Status status = AnswerWithResults();
  if (is_asked_for) KVANT_TRY(conversation_->SetToolChoice(choice));
  return status;
}

// Answers, and goes on with the results of calls until an answer has none.
Status ChatTalk::AnswerWithResults() {
  do {
    KVANT_TRY(AnswerTurn());
    const bool goes_on = !last_.calls.empty() && last_.calls.back().is_complete &&
                         last_.finish_reason != FinishReason::kCancelled && !options_.single_turn;
    if (!goes_on || end_.has_value() || out_.failed()) return {};
    KVANT_TRY(AnswerCalls());
    if (conversation_->tool_choice().kind != ToolChoice::Kind::kAuto) {
      KVANT_TRY(conversation_->SetToolChoice({}));
    }
  } while (HasUnanswered());
  return {};
}

// Asks for the result of each call. Nothing is added where one is not given.
Status ChatTalk::AnswerCalls() {
  std::vector<ChatMessage> results;
  for (const ToolCall& call : last_.calls) {
    if (!call.is_complete) continue;
    KVANT_ASSIGN(const auto text, ReadResult(call));
    if (!text.has_value()) {
      ShowLine("[the calls have no results; /undo takes the message back]");
      return {};
    }
    const Json members = {{"tool_call_id", call.id}, {"name", call.name}};
    results.push_back(
        {.role = "tool", .content = AsUtf8(*text), .reasoning = {}, .members = Dump(members)});
  }
  for (ChatMessage& result : results) KVANT_TRY(conversation_->Add(std::move(result)));
  return {};
}

Result<std::optional<std::string>> ChatTalk::ReadResult(const ToolCall& call) {
  if (!terminal_) return ReadTurn();
  std::string text;
  const std::string prompt = fmt::format("result of {}> ", Visible(call.name));
  const auto end = editor_->ReadText({.text = prompt}, "", &text);
  if (end == LineEditor::End::kInterrupted) TakeSignal();
  if (end != LineEditor::End::kText) return std::optional<std::string>();
  return std::optional(text);
}

// A call on a line of JSON, or on a terminal with a line for each argument.
void ChatTalk::ShowCall(const ToolCall& call) {
  if (!call.is_complete) {
    Note(fmt::format("the call of {} is not complete: {}", Visible(call.name),
                     Visible(call.arguments)));
  } else if (!terminal_) {
    out_.Write(CallLine(call));
  } else {
    const Json arguments = Json::parse(call.arguments, nullptr, false);
    ShowLine("call of " + call.name);
    for (const auto& [key, value] : arguments.items()) {
      const std::string text = value.is_string() ? value.get<std::string>() : Dump(value);
      ShowLine(fmt::format("  {}: {}", key, text), 4);
    }
  }
}

Status ChatTalk::AnswerTurn() {
  auto report = AnswerOnce();
  while (terminal_ && !report.ok() && report.error().code == ErrorCode::kContextFull) {
    if (!AskToForget(report.error())) {
      ShowLine("[not sent; /edit changes the message]");
      return {};
    }
    KVANT_ASSIGN(const int64_t forgotten, conversation_->Forget());
    if (forgotten == 0) break;
    ShowLine(Counted(forgotten, "message") + " left out from now on");
    report = AnswerOnce();
  }
  if (!report.ok()) {
    if (report.error().code != ErrorCode::kContextFull || terminal_) return report.error();
    return MakeError(ErrorCode::kContextFull,
                     "{}; --context-shift forgets the oldest messages, -c makes it larger",
                     report.error().message);
  }
  After(*report);
  return {};
}

bool ChatTalk::AskToForget(const Error& error) {
  ShowLine(error.message + ".");
  std::string answer;
  const auto end = editor_->ReadText({.text = "Forget the oldest messages? [y/N] "}, "", &answer);
  return end == LineEditor::End::kText && (answer == "y" || answer == "Y" || answer == "yes");
}

Result<AnswerReport> ChatTalk::AnswerOnce() {
  part_.reset();
  line_open_ = false;
  wrap_.BeginRow();
  AnswerSink sink;
  sink.take = [this](AnswerPart part, std::string_view text) { return Show(part, text); };
  sink.progress = [this](int64_t done, int64_t tokens) {
    progress_.Set(fmt::format("prefill {} of {} tokens", done, tokens));
    return true;
  };
  sink.call = [this](const ToolEvent& event) {
    if (event.kind == ToolEvent::Kind::kCallBegin) {
      progress_.Set(fmt::format("calling {}", Visible(event.text)));
    }
    return !out_.failed();
  };
  auto report = conversation_->Answer(sink);
  progress_.Clear();
  return report;
}

bool ChatTalk::Show(AnswerPart part, std::string_view text) {
  progress_.Clear();
  if (part == AnswerPart::kReasoning && settings_.reasoning != ReasoningUse::kShow) {
    if (part_ != part) progress_.Set("thinking");
    return !out_.failed();
  }
  if (part_ != part) {
    // Blanks before the first word are not shown.
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
    if (text.empty()) return true;
    std::string front;
    if (part_.has_value() && line_open_) front = "\n";
    if (part_.has_value()) front += "\n";
    if (colours_) front += part == AnswerPart::kReasoning ? kDimStyle : kPlainStyle;
    part_ = part;
    if (!front.empty() && !out_.Write(front)) return false;
    wrap_.BeginRow();
  }
  std::string shown = terminal_ ? ForTerminal(text) : std::string(text);
  if (terminal_ && settings_.word_wrap) shown = wrap_.Push(shown, TalkColumns() - 1);
  line_open_ = !shown.ends_with('\n');
  return out_.Write(shown);
}

// The end of what is shown of an answer, on any way of talking.
void ChatTalk::EndAnswer(const AnswerReport& report) {
  if (colours_ && part_ == AnswerPart::kReasoning) out_.Write(kPlainStyle);
  const bool none = report.finish_reason == FinishReason::kCancelled && !part_.has_value();
  const bool only_calls = !part_.has_value() && !report.calls.empty();
  if ((line_open_ || !part_.has_value()) && !none && !only_calls) out_.Write("\n");
  for (const ToolCall& call : report.calls) ShowCall(call);
  if (report.forgotten_messages > 0 && !options_.quiet) {
    Note(fmt::format("the context is full: {} at the beginning left out from now on",
                     Counted(report.forgotten_messages, "message")));
  }
  const std::string note = EarlyEndNote(report.finish_reason, conversation_->context(),
                                        conversation_->grammar() != nullptr);
  if (!note.empty()) Note(note);
}

void ChatTalk::After(const AnswerReport& report) {
  last_ = report;
  ++turns_;
  EndAnswer(report);
  if (options_.stats) WriteError(Dump(StatsJson()) + "\n");
  if (report.finish_reason != FinishReason::kCancelled) {
    if (terminal_ && !options_.quiet) ShowGauge(report);
    return;
  }
  if (out_.failed()) return;
  if (!terminal_ || SignalExitCode() != 128 + SIGINT) {
    end_ = SignalExitCode();
    return;
  }
  TakeSignal();
  ShowLine(report.generated_tokens > 0
               ? "[stopped]"
               : "[stopped before the answer; /regen answers the message, /edit changes it]");
}

void ChatTalk::ShowGauge(const AnswerReport& report) {
  // The last token of an answer that fills the context has no room in it.
  const int64_t tokens =
      std::min(report.shifted ? conversation_->held_tokens() : report.conversation_tokens,
               conversation_->context());
  ShowLine(fmt::format(
      "{} {}/{}  new {}{}  kept {}  answer {}{}", GaugeText(tokens, conversation_->context()),
      tokens, conversation_->context(), report.processed_tokens,
      RateText(report.processed_tokens, report.prefill_seconds), report.reused_tokens,
      report.generated_tokens, RateText(report.generated_tokens, report.decode_seconds)));
}

// Shows a line that is no part of an answer: dimmed and broken at the terminal's width, or whole on
// stderr where there is no terminal.
void ChatTalk::ShowLine(std::string_view line, size_t indent) {
  if (!terminal_) {
    WriteError(fmt::format("{}\n", Visible(line)));
    return;
  }
  for (const std::string& shown : WrapToColumns(Visible(line), TalkColumns() - 1, indent)) {
    out_.Write(
        fmt::format("{}{}{}\n", colours_ ? kDimStyle : "", shown, colours_ ? kPlainStyle : ""));
  }
}

void ChatTalk::Tell(const Error& error) {
  if (error.code == ErrorCode::kCancelled) {
    if (SignalExitCode() == 128 + SIGINT) {
      TakeSignal();
      ShowLine("[stopped]");
    } else {
      end_ = SignalExitCode();
    }
    return;
  }
  if (!StderrIsTerminal()) {
    Fail(error);
    return;
  }
  for (const std::string& line :
       WrapToColumns(Visible("kvant: " + error.message), TalkColumns() - 1, 2)) {
    WriteError(line + "\n");
  }
}

Json ChatTalk::StatsJson() const {
  Json stats = {{"turn", turns_},
                {"messages", conversation_->entries().size()},
                {"forgotten_messages", conversation_->forgotten()},
                {"conversation_tokens", last_.conversation_tokens},
                {"processed_tokens", last_.processed_tokens},
                {"reused_tokens", last_.reused_tokens},
                {"replayed_tokens", last_.replayed_tokens},
                {"generated_tokens", last_.generated_tokens},
                {"held_tokens", conversation_->held_tokens()},
                {"context", conversation_->context()},
                {"finish_reason", FinishReasonName(last_.finish_reason)},
                {"prefill_seconds", RoundedToMicroseconds(last_.prefill_seconds)},
                {"decode_seconds", RoundedToMicroseconds(last_.decode_seconds)}};
  if (options_.draft.model.has_value()) {
    stats["drafted_tokens"] = last_.drafted_tokens;
    stats["accepted_tokens"] = last_.accepted_tokens;
  }
  return stats;
}

}  // namespace kvant::tools
