// A conversation with a model: its messages, and the sequence that holds their tokens.
//
// For every answer the template renders the whole conversation to ids. The sequence is rewound to
// the end of the ids that it has in common with the rendered ones, and only the rest is processed.
// Where rendered ids spell an answer that was generated here, the generated ids take their place:
// they may cut the text into other pieces, and an answer need not be computed again. Undoing,
// editing and generating again only change messages, and the next answer finds how much of the
// sequence still holds.
//
// Texts are UTF-8. A function that returns an error has changed nothing unless it says so; errors
// of the runner and of the template are returned as they are. Thread-safety: one thread at a time
// for a conversation and all its forks, which use one runner; only the cancel flag may be set by
// others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvant/chat.h"
#include "kvant/draft.h"
#include "kvant/reasoning_text.h"
#include "kvant/runner.h"
#include "kvant/sampler.h"
#include "kvant/text_request.h"
#include "kvant/tool_calls.h"

namespace kvant {

class AnswerText;
class ConversationRunner;

// Opens a runner with room for this number of sequences.
using RunnerMaker = std::function<Result<std::unique_ptr<Runner>>(int64_t sequences)>;

struct ConversationOptions {
  SamplingOptions sampling = {};  // without a seed: one is drawn; each answer adds its number to it
  // Where it has tools, calls of them are told from the content of answers, and follow a grammar.
  ChatRenderOptions render = {};
  ToolChoice tool_choice = {};
  int64_t max_tokens = -1;  // of an answer; -1: until an end token or a full context
  std::vector<std::string> stop_texts = {};
  bool ignore_eos = false;
  // The content of answers follows it; thoughts that come before it are free. Null: there is none.
  std::shared_ptr<const Grammar> grammar = {};
  bool context_shift = false;  // forget the oldest messages where the context is full
  // Above 1: an answer is the best text of a beam search, which needs room for so many more
  // sequences.
  int64_t beams = 1;
  // Guesses the next tokens of answers that are no search, as in GenerateOptions. Forks use it,
  // too.
  std::shared_ptr<Draft> draft = nullptr;
  int64_t draft_tokens = 8;
  // Once set, the answer under way ends as it is, with FinishReason::kCancelled. Must outlive the
  // conversation and its forks. Null: an answer is ended by its sink alone.
  const std::atomic<bool>* cancel = nullptr;
};

struct ConversationEntry {
  ChatMessage message;
  // The ids of an answer that was generated here, and how many ids of the template come before
  // them.
  std::vector<TokenId> ids = {};
  int64_t begin = -1;  // -1: the ids are not used again
};

// Counts and times of an answer.
struct AnswerReport {
  int64_t conversation_tokens = 0;  // prompt and answer
  int64_t processed_tokens = 0;     // of the prompt, for this answer
  int64_t reused_tokens = 0;        // of the prompt, which the sequence held already
  int64_t replayed_tokens = 0;      // computed again to go back to those
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;      // guesses of the draft
  int64_t accepted_tokens = 0;     // of these, those that were right
  int64_t forgotten_messages = 0;  // for this answer, since the context was full
  double prefill_seconds = 0;
  double decode_seconds = 0;
  FinishReason finish_reason = FinishReason::kStop;
  std::vector<ToolCall> calls = {};  // of tools, those that were cut included
  bool shifted = false;  // in the middle of the answer, the context was full and has moved on
};

// Receives an answer as it comes. Each may be empty; returning false ends the answer.
struct AnswerSink {
  PartFunction take = {};
  ToolEventFunction call = {};  // kCallBegin, kArguments and kCallEnd
  std::function<bool(int64_t done, int64_t tokens)> progress = {};  // of the prompt
};

class Conversation {
 public:
  // A conversation in runners that `open` makes of the model, a larger one where more sequences are
  // needed than the present one has room for. kNotSupported for a context shift where a model has
  // recurrent layers; kInvalid for sampling options that are impossible.
  static Result<std::unique_ptr<Conversation>> Create(std::shared_ptr<const Model> model,
                                                      RunnerMaker open, ChatTemplate chat_template,
                                                      ConversationOptions options);
  // A conversation in a sequence of this runner, which others may use between two calls.
  // kOutOfMemory where the runner has no room for a sequence.
  static Result<std::unique_ptr<Conversation>> Create(std::shared_ptr<Runner> runner,
                                                      ChatTemplate chat_template,
                                                      ConversationOptions options);
  ~Conversation();
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // ---- Messages ----

  // All messages but the system's, the oldest first.
  const std::vector<ConversationEntry>& entries() const { return entries_; }
  const std::string& system() const { return system_; }  // "": there is none
  void SetSystem(std::string text) { system_ = std::move(text); }
  void AddUser(std::string text);
  // Adds a message of the user, the assistant or a tool. kInvalid for another role,
  // and where its further members are no JSON object.
  Status Add(ChatMessage message);
  // Adds the messages of a JSON array as MessagesOfJson reads them, or none. One of the system can
  // only come first; it takes the place of the system's message.
  Status AddJson(std::string_view json);
  // Takes the last exchange back: the last message of the user and all behind it, which is
  // returned; nullopt where there is none.
  std::optional<std::string> Undo();
  // Puts this text in place of the last message of the user, and takes back all behind it; false
  // where there is none.
  bool Edit(std::string text);
  // Takes the last answer back; false where the last message is none.
  bool DropAnswer();
  void Reset();  // no messages but the system's
  // Leaves out the oldest exchanges until the rest takes at most half the context. Returns how many
  // messages that are; 0 where there is nothing more to leave out.
  Result<int64_t> Forget();
  // All messages, the system's first, as a JSON array that AddJson reads.
  std::string Json() const;
  // How many messages are left out.
  int64_t forgotten() const { return forgotten_; }

  // ---- Answers ----

  // Answers the last message. kContextFull where the conversation has no room in the context. An
  // answer that was cancelled before its first text is none, and the message stays the last one. A
  // context that fills up ends the answer, or moves on with `context_shift`. After an error there
  // is no answer; messages that a context shift has left out stay left out.
  //
  // The answer is one message with reasoning and content as ReasoningText tells them apart. With
  // tools, complete calls are the member tool_calls of the message, as OpenAI's API has them, each
  // with an id that no other call has; a message of the role tool with that id as its member
  // tool_call_id brings the result. Calls that were cut are in the report only. Without tools they
  // are a part of the content.
  Result<AnswerReport> Answer(const AnswerSink& sink);
  // Puts a message in place of the last one. Its generated ids are used again as long as the
  // template spells them. kInvalid where there is no message, for another role than it had, and
  // where its further members are no JSON object.
  Status SetLast(ChatMessage message);

  // Other options for the answers to come. kInvalid for impossible ones, which change nothing.
  // Without a seed the present one stays.
  Status SetSampling(SamplingOptions sampling);
  Status SetEnds(int64_t max_tokens, std::vector<std::string> stop_texts);
  // The grammar that the content of answers follows; null: none. kInvalid for one beside tools that
  // answers may call, since calls have a grammar of their own.
  Status SetGrammar(std::shared_ptr<const Grammar> grammar);
  const std::shared_ptr<const Grammar>& grammar() const { return options_.grammar; }
  // Chooses whether the answers to come call tools. kInvalid for a tool that is not there, and for
  // schemas that cannot be enforced.
  Status SetToolChoice(ToolChoice choice);
  const ToolChoice& tool_choice() const { return options_.tool_choice; }
  // How the model writes calls; null without tools.
  const ToolFormat* tool_format() const { return format_.has_value() ? &*format_ : nullptr; }
  // Tells the template whether to think; nullopt tells it nothing.
  void SetThinking(std::optional<bool> enabled) { options_.render.enable_thinking = enabled; }

  // Opens a larger runner where that is needed, and takes the sequence over. kInvalid below 1.
  Status SetBeams(int64_t beams);
  int64_t beams() const { return options_.beams; }

  // ---- Copies and files ----

  // A conversation of its own that goes on from here. It shares the blocks of the cache with this
  // one for what both have in common. `seed` is that of its answers; nullopt: the seed of this
  // conversation, so that equal messages get equal answers. kOutOfMemory where a given runner has
  // no room for one more sequence.
  Result<std::unique_ptr<Conversation>> Fork(std::optional<uint64_t> seed = {});

  // Saves messages, tools, tool choice and grammar in the file, and the sequence with the messages'
  // tokens in another one whose name has ".kvs" behind it. Each file appears whole or not at all.
  // `note` tells why the sequence could not be saved, "" if it was.
  Status Save(const std::string& path, std::string* note) const;
  // Takes a saved conversation over in place of the present one, which stays where this fails.
  // Every number of a file is checked: kCorrupt names the key. The messages are the truth: where
  // the file of tokens is missing, older or of another model, they are computed again, and `note`
  // tells why; "" if they need not be. Tools, tool choice and grammar come from the file where this
  // conversation has neither tools nor a grammar.
  Status Load(const std::string& path, std::string* note);

  // ---- What there is ----

  const Model& model() const { return *model_; }
  const Runner& runner() const;
  SequenceId sequence() const;
  int64_t context() const { return runner().context(); }
  int64_t held_tokens() const { return runner().length(sequence()); }

 private:
  struct Prompt {
    std::string text;
    std::vector<TokenId> template_ids;
    std::vector<TokenId> ids;  // with those that were generated
  };
  struct Saved {
    std::string system;
    std::vector<ConversationEntry> entries;
    std::vector<TokenId> template_ids;
    int64_t forgotten = 0;
    int64_t answers = 0;
    std::string tools;
    ToolChoice tool_choice;
    std::optional<GrammarText> grammar;
  };
  // Answers follow the tools or the grammar.
  struct Follows {
    std::string tools;
    ToolChoice tool_choice;
    std::optional<ToolFormat> format;
    std::shared_ptr<const Grammar> tool_grammar;
    std::shared_ptr<const Grammar> grammar;
  };

  Conversation(std::shared_ptr<const Model> model, ChatTemplate chat_template,
               ConversationOptions options);
  static Result<std::unique_ptr<Conversation>> Make(std::shared_ptr<const Model> model,
                                                    std::shared_ptr<ConversationRunner> runners,
                                                    ChatTemplate chat_template,
                                                    ConversationOptions options);

  std::vector<ChatMessage> SystemMessages() const;
  std::vector<ChatMessage> Messages() const;
  Runner& running();
  Status MakeRoom();
  Result<Prompt> MakePrompt();
  Result<Prompt> FittingPrompt(AnswerReport* report);
  std::vector<TokenId> WithGenerated(std::span<const TokenId> template_ids);
  int64_t EndOfAnswer(std::span<const TokenId> template_ids, const ConversationEntry& entry) const;
  Result<int64_t> SystemTokens(std::span<const TokenId> ids) const;
  Status TakeUp(std::span<const TokenId> ids, const AnswerSink& sink, AnswerReport* report);
  LogitOptions LogitsFor(const Prompt& prompt) const;
  Result<Generation> Generate(const Prompt& prompt, AnswerText& text);
  Result<Generation> Search(const Prompt& prompt, AnswerText& text);
  void Keep(Prompt prompt, Generation generation, const AnswerText& text, AnswerReport* report);
  Status PrepareTools();
  Result<std::shared_ptr<const Grammar>> MakeToolGrammar(const ToolFormat& format,
                                                         const std::string& tools,
                                                         const ToolChoice& choice) const;
  Result<Follows> FollowsOf(const Saved& saved, const std::string& path) const;
  bool UsesTools() const;
  Result<ChatText> Rendered(std::span<const ChatMessage> messages) const;
  Result<std::vector<TokenId>> TokensOf(std::span<const ChatMessage> messages) const;
  std::string MembersOfCalls(std::span<ToolCall> calls) const;
  static Result<Saved> ReadSaved(const std::string& path, const Model& model, bool* has_tokens,
                                 bool* same_model);
  // The status tells why the sequence is not that of the file; "" for `tokens_path`: there is none.
  Status TakeOver(Saved saved, const std::string& tokens_path);

  std::shared_ptr<const Model> model_;
  ChatTemplate template_;
  ConversationOptions options_;
  std::shared_ptr<ConversationRunner> runners_;
  int member_ = -1;  // its number there; -1: it has no sequence yet
  bool marks_are_control_ = false;
  std::optional<ToolFormat> format_;             // of calls, where there are tools
  std::shared_ptr<const Grammar> tool_grammar_;  // of answers; null: calls are not asked for
  bool follows_file_ = false;                    // tools and grammar are those of a file
  bool moved_ = false;  // the sequence's tokens lie at other positions than they were at
  std::string system_;
  std::vector<ConversationEntry> entries_;
  int64_t forgotten_ = 0;              // entries at the beginning that are left out
  std::vector<TokenId> template_ids_;  // of the last prompt
  int64_t answers_ = 0;                // that were begun; each has a seed of its own
};

}  // namespace kvant
