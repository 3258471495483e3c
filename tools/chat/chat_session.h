// A conversation with a model: its messages, and the sequence that holds their tokens.
//
// For every answer the template renders the whole conversation to ids. The sequence is rewound to
// the end of the ids that it has in common with the rendered ones, and only the rest is processed.
// Where rendered ids spell an answer that was generated here, the generated ids take their place:
// they may cut the text into other pieces, and an answer need not be computed again. Undoing,
// editing and generating again only change messages, and the next answer finds how much of the
// sequence still holds.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvant/chat.h"
#include "kvant/runner.h"
#include "kvant/text_request.h"
#include "tools/chat/reasoning_text.h"

namespace kvant::tools {

struct ChatEntry {
  ChatMessage message;
  // The ids of an answer that was generated here, and how many ids of the template come before
  // them.
  std::vector<TokenId> ids = {};
  int64_t begin = -1;  // -1: the ids are not used again
};

// The parts that a session of chat is made from.
struct ChatSetup {
  std::shared_ptr<const Model> model;
  // Opens a runner with room for this number of sequences.
  std::function<Result<std::unique_ptr<Runner>>(int64_t sequences)> open;
  SamplingOptions sampling;
  ChatRenderOptions render;
  int64_t max_tokens = -1;  // of an answer
  std::vector<std::string> stop_texts;
  bool ignore_eos = false;
  bool context_shift = false;  // forget the oldest messages where the context is full
  int64_t beams = 1;
};

// Counts and times of the last answer.
struct ChatReport {
  int64_t conversation_tokens = 0;  // prompt and answer
  int64_t processed_tokens = 0;     // of the prompt, in this turn
  int64_t reused_tokens = 0;        // of the prompt, which the sequence held already
  int64_t replayed_tokens = 0;      // computed again to go back to those
  int64_t generated_tokens = 0;
  int64_t forgotten_messages = 0;  // by this turn, since the context was full
  double prefill_seconds = 0;
  double decode_seconds = 0;
  FinishReason finish_reason = FinishReason::kStop;
  bool shifted = false;  // in the middle of the answer, the context was full and has moved on
};

struct ChatSink {
  PartFunction take;
  std::function<void(int64_t done, int64_t tokens)> progress;  // of the prompt
};

class ChatSession {
 public:
  static Result<std::unique_ptr<ChatSession>> Create(ChatSetup setup, ChatTemplate chat_template);

  // ---- Messages ----

  const std::vector<ChatEntry>& entries() const { return entries_; }  // without the system message
  const std::string& system() const { return system_; }               // "": there is none
  void SetSystem(std::string text) { system_ = std::move(text); }
  void AddUser(std::string text);
  // Takes the last exchange back: the last message of the user and all behind it, which is
  // returned; nullopt where there is none.
  std::optional<std::string> Undo();
  // Takes the last answer back; false where the last message is none.
  bool DropAnswer();
  void Reset();  // no messages but the system's
  // Leaves out the oldest exchanges until the rest takes at most half the context. Returns how many
  // messages that are; 0 where there is nothing more to leave out.
  Result<int64_t> Forget();

  // ---- Answers ----

  // Answers the last message. kContextFull where the conversation has no room in the context, and
  // nothing has changed then; an answer that was cancelled before its first text is none, and the
  // message stays the last one. A context that fills up ends the answer, or moves on with
  // `context_shift`.
  Result<ChatReport> Answer(const ChatSink& sink);

  Status SetBeams(int64_t beams);
  int64_t beams() const { return setup_.beams; }

  // ---- What there is ----

  int64_t context() const { return runner_->context(); }
  int64_t held_tokens() const { return runner_->length(sequence_); }
  const Model& model() const { return *setup_.model; }
  const Runner& runner() const { return *runner_; }
  SequenceId sequence() const { return sequence_; }
  int64_t answers() const { return answers_; }
  int64_t forgotten() const { return std::ssize(entries_) - std::ssize(Shown()); }

  // ---- Files: chat_file.h ----

  struct Saved {
    std::string system;
    std::vector<ChatEntry> entries;
    std::vector<TokenId> template_ids;
    int64_t forgotten = 0;
    int64_t answers = 0;
  };
  Saved State() const { return {system_, entries_, template_ids_, forgotten_, answers_}; }
  // Takes a conversation over, and its sequence from `tokens_path` unless that is "" or fails,
  // which is told by the status: the conversation is there anyway.
  Status Restore(Saved saved, const std::string& tokens_path);

 private:
  ChatSession(ChatSetup setup, ChatTemplate chat_template)
      : setup_(std::move(setup)), template_(std::move(chat_template)) {}

  struct Prompt {
    std::string text;
    std::vector<TokenId> template_ids;
    std::vector<TokenId> ids;  // with those that were generated
  };

  std::span<const ChatEntry> Shown() const;
  std::vector<ChatMessage> Messages() const;
  Result<Prompt> MakePrompt();
  Result<Prompt> FittingPrompt(ChatReport* report);
  std::vector<TokenId> WithGenerated(std::span<const TokenId> template_ids);
  int64_t EndOfAnswer(std::span<const TokenId> template_ids, const ChatEntry& entry) const;
  Result<int64_t> SystemTokens(std::span<const TokenId> ids) const;
  Status OpenRunner();
  Result<SequenceId> MoveTo(Runner& runner) const;
  Status TakeUp(std::span<const TokenId> ids, const ChatSink& sink, ChatReport* report);
  Result<Generation> Generate(std::span<const TokenId> ids, ReasoningText& text);
  Result<Generation> Search(std::span<const TokenId> ids, ReasoningText& text);
  void Keep(Prompt prompt, Generation generation, const ReasoningText& text, ChatReport* report);

  ChatSetup setup_;
  ChatTemplate template_;
  std::unique_ptr<Runner> runner_;
  SequenceId sequence_ = -1;
  int64_t sequences_ = 0;  // that the runner has room for
  bool marks_are_control_ = false;
  bool moved_ = false;  // the sequence's tokens lie at other positions than they were at
  std::string system_;
  std::vector<ChatEntry> entries_;
  int64_t forgotten_ = 0;              // entries at the beginning that are left out
  std::vector<TokenId> template_ids_;  // of the last prompt
  int64_t answers_ = 0;                // that were begun; each has a seed of its own
};

}  // namespace kvant::tools
