// The talk of `kvant chat`: lines of the user, each a message or a command, and what is shown of
// the answers.
//
// On a terminal it reads with the line editor and shows gauges; reasoning is dimmed there, and
// control characters are made visible. Without a terminal it reads lines from standard input and
// writes the answers, and nothing else, to standard output.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kvant/conversation.h"
#include "tools/chat/chat_options.h"
#include "tools/chat/chat_settings.h"
#include "tools/options/json.h"
#include "tools/terminal/console.h"
#include "tools/terminal/line_editor.h"
#include "tools/terminal/word_wrap.h"

namespace kvant::tools {

class ChatTalk {
 public:
  // A command, which is a line that begins with a slash.
  struct Command {
    std::string_view name;
    std::string_view argument;  // as the help shows it, "" for none
    std::string_view summary;
    Status (ChatTalk::*run)(const std::string& argument);
  };
  static std::span<const Command> Commands();

  // All must outlive the talk.
  ChatTalk(const ChatOptions& options, std::unique_ptr<Conversation> conversation,
           ResultStream& out);

  // Each runs until the end and returns the exit code. `first` is a message that comes before what
  // is read.
  int OnTerminal(const std::string& model_name, const std::optional<std::string>& first);
  int OnLines(const std::optional<std::string>& first);

 private:
  Status Obey(const std::string& line);
  Status Say(std::string text);
  Status Answer();
  Status AnswerTurn();
  bool HasUnanswered() const;
  // A message with the text that /read has put before it, if any.
  static std::string Joined(const std::string& front, const std::string& text);
  Result<AnswerReport> AnswerOnce();
  void After(const AnswerReport& report);
  void EndAnswer(const AnswerReport& report);
  bool Show(AnswerPart part, std::string_view text);
  void ShowCall(const ToolCall& call);
  Status AnswerCalls();
  Status AnswerWithResults();
  Result<std::optional<std::string>> ReadResult(const ToolCall& call);
  void ShowGauge(const AnswerReport& report);
  // `indent` is that of the lines behind the first one, where the line is broken.
  void ShowLine(std::string_view line, size_t indent = 0);
  bool AskToForget(const Error& error);
  void TakeText(const std::string& text);
  Result<std::optional<std::string>> ReadTurn();
  Completion Complete(std::string_view before_cursor) const;
  void Tell(const Error& error);
  Json StatsJson() const;

  Status Help(const std::string& argument);
  Status Reset(const std::string& argument);
  Status Undo(const std::string& argument);
  Status Regenerate(const std::string& argument);
  Status Edit(const std::string& argument);
  Status System(const std::string& argument);
  Status ReadFile(const std::string& argument);
  Status Save(const std::string& argument);
  Status Load(const std::string& argument);
  Status Stats(const std::string& argument);
  Status Beams(const std::string& argument);
  Status Set(const std::string& argument);
  Status ShowState(const std::string& argument);
  Status Exit(const std::string& argument);

  const ChatOptions& options_;
  std::unique_ptr<Conversation> conversation_;
  ResultStream& out_;
  StatusLine progress_;
  bool terminal_ = false;
  bool colours_ = false;
  TalkSettings settings_;
  WordWrap wrap_;
  std::unique_ptr<InputHistory> history_;
  std::unique_ptr<LineEditor> editor_;
  std::string initial_;   // what the next text begins as, on a terminal
  std::string attached_;  // by /read, for the next message
  // The last message as it was typed, and what /read has put before it.
  std::string said_;
  std::string said_with_;
  std::string bytes_;  // of standard input, behind the last line that was taken
  bool input_ended_ = false;
  std::optional<int> end_;  // the exit code, once the talk is over
  // The part of the answer under way that was shown last.
  std::optional<AnswerPart> part_;
  bool line_open_ = false;  // the text does not end with a line break
  AnswerReport last_;
  int64_t turns_ = 0;
};

}  // namespace kvant::tools
