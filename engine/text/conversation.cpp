// The messages of a conversation, and its copies; answers are in conversation_answer.cpp.
#include "kvant/conversation.h"

#include <algorithm>
#include <utility>

#include "base/result.h"
#include "base/system_random.h"
#include "engine/limits.h"
#include "engine/run/memory_plan.h"
#include "engine/text/chat_messages.h"
#include "engine/text/conversation_runner.h"

namespace kvant {
namespace {

Status CheckRole(const std::string& role) {
  if (role == "user" || role == "assistant" || role == "tool") return {};
  return MakeError(ErrorCode::kInvalid, "role: expected user, assistant or tool, found '{}'", role);
}

// A search does not look for stop texts.
Status CheckBeams(int64_t beams, const std::vector<std::string>& stop_texts) {
  if (beams > 1 && !stop_texts.empty()) {
    return MakeError(ErrorCode::kInvalid, "beams: not possible together with stop texts");
  }
  if (beams >= 1 && beams <= kSequencesMax) return {};
  return MakeError(ErrorCode::kInvalid, "beams: expected 1 to {}, found {}", kSequencesMax, beams);
}

// Sequences that answers need beside those of the conversations.
int64_t SequencesOf(int64_t beams) { return beams == 1 ? 0 : beams; }

}  // namespace

// ---- Creation -----------------------------------------------------------------------------------

Conversation::Conversation(std::shared_ptr<const Model> model, ChatTemplate chat_template,
                           ConversationOptions options)
    : model_(std::move(model)),
      template_(std::move(chat_template)),
      options_(std::move(options)),
      marks_are_control_(MarksAreControlTokens(model_->tokenizer())) {}

Conversation::~Conversation() {
  if (member_ >= 0) runners_->Leave(member_);
}

Result<std::unique_ptr<Conversation>> Conversation::Make(
    std::shared_ptr<const Model> model, std::shared_ptr<ConversationRunner> runners,
    ChatTemplate chat_template, ConversationOptions options) {
  KVANT_TRY(CheckBeams(options.beams, options.stop_texts));
  if (!options.sampling.seed.has_value()) {
    options.sampling.seed = (uint64_t{SystemRandom()} << 32) | SystemRandom();
  }
  KVANT_TRY(Sampler::Create(options.sampling, model->vocab_size(), &model->tokenizer()));
  std::unique_ptr<Conversation> made(
      new Conversation(std::move(model), std::move(chat_template), std::move(options)));
  KVANT_TRY(made->PrepareTools());
  made->runners_ = std::move(runners);
  KVANT_ASSIGN(made->member_, made->runners_->Join(SequencesOf(made->options_.beams)));
  if (made->options_.context_shift) {
    const Status possible = CheckShift(made->model(), made->runner().options());
    if (!possible.ok()) {
      return MakeError(possible.error().code, "--context-shift: {}", possible.error().message);
    }
  }
  return made;
}

Result<std::unique_ptr<Conversation>> Conversation::Create(std::shared_ptr<const Model> model,
                                                           RunnerMaker open,
                                                           ChatTemplate chat_template,
                                                           ConversationOptions options) {
  return Make(std::move(model), std::make_shared<ConversationRunner>(std::move(open)),
              std::move(chat_template), std::move(options));
}

Result<std::unique_ptr<Conversation>> Conversation::Create(std::shared_ptr<Runner> runner,
                                                           ChatTemplate chat_template,
                                                           ConversationOptions options) {
  const std::shared_ptr<const Model> model(runner, &runner->model());
  return Make(model, std::make_shared<ConversationRunner>(std::move(runner)),
              std::move(chat_template), std::move(options));
}

Result<std::unique_ptr<Conversation>> Conversation::Fork(std::optional<uint64_t> seed) {
  std::unique_ptr<Conversation> fork(new Conversation(model_, template_, options_));
  KVANT_ASSIGN(fork->member_, runners_->JoinAsFork(member_, SequencesOf(options_.beams)));
  fork->runners_ = runners_;
  if (seed.has_value()) fork->options_.sampling.seed = seed;
  fork->format_ = format_;
  fork->tool_grammar_ = tool_grammar_;
  fork->follows_file_ = follows_file_;
  fork->moved_ = moved_;
  fork->system_ = system_;
  fork->entries_ = entries_;
  fork->forgotten_ = forgotten_;
  fork->template_ids_ = template_ids_;
  fork->answers_ = answers_;
  return fork;
}

const Runner& Conversation::runner() const { return runners_->runner(); }
Runner& Conversation::running() { return runners_->runner(); }
SequenceId Conversation::sequence() const { return runners_->sequence(member_); }

// Makes room for the beams. A sequence that has moved is of no use in another runner.
Status Conversation::MakeRoom() {
  const int64_t more = SequencesOf(options_.beams);
  if (!runners_->MustGrow(more)) return {};
  if (std::exchange(moved_, false)) KVANT_TRY(running().Reset(sequence()));
  return runners_->MakeRoom(more);
}

Status Conversation::SetBeams(int64_t beams) {
  KVANT_TRY(CheckBeams(beams, options_.stop_texts));
  const int64_t before = std::exchange(options_.beams, beams);
  const Status status = MakeRoom();
  if (!status.ok()) options_.beams = before;
  return status;
}

// A seed that was drawn stays.
Status Conversation::SetSampling(SamplingOptions sampling) {
  if (!sampling.seed.has_value()) sampling.seed = options_.sampling.seed;
  KVANT_TRY(Sampler::Create(sampling, model().vocab_size(), &model().tokenizer()));
  options_.sampling = std::move(sampling);
  return {};
}

Status Conversation::SetEnds(int64_t max_tokens, std::vector<std::string> stop_texts) {
  KVANT_TRY(CheckBeams(options_.beams, stop_texts));
  options_.max_tokens = max_tokens;
  options_.stop_texts = std::move(stop_texts);
  return {};
}

// ---- Messages -----------------------------------------------------------------------------------

void Conversation::AddUser(std::string text) {
  entries_.push_back({{.role = "user", .content = std::move(text), .reasoning = {}}});
}

Status Conversation::Add(ChatMessage message) {
  KVANT_TRY(CheckRole(message.role));
  KVANT_TRY(CheckMembers(message));
  entries_.push_back({std::move(message)});
  return {};
}

Status Conversation::AddJson(std::string_view json) {
  KVANT_ASSIGN(std::vector<ChatMessage> messages, MessagesOfJson(json));
  const bool has_system = !messages.empty() && messages.front().role == "system";
  const auto first = messages.begin() + (has_system ? 1 : 0);
  for (auto message = first; message != messages.end(); ++message) {
    KVANT_TRY(CheckRole(message->role));
  }
  if (has_system && entries_.empty()) {
    system_ = std::move(messages.front().content);
  } else if (has_system) {
    return MakeError(ErrorCode::kInvalid,
                     "the messages: expected one of the system before all others, found {} before",
                     entries_.size());
  }
  for (auto message = first; message != messages.end(); ++message) {
    entries_.push_back({std::move(*message)});
  }
  return {};
}

std::optional<std::string> Conversation::Undo() {
  for (size_t i = entries_.size(); i-- > 0;) {
    if (entries_[i].message.role != "user") continue;
    std::string text = std::move(entries_[i].message.content);
    entries_.resize(i);
    forgotten_ = std::min(forgotten_, std::ssize(entries_));
    return text;
  }
  return std::nullopt;
}

bool Conversation::Edit(std::string text) {
  if (!Undo().has_value()) return false;
  AddUser(std::move(text));
  return true;
}

bool Conversation::DropAnswer() {
  if (entries_.empty() || entries_.back().message.role != "assistant") return false;
  entries_.pop_back();
  return true;
}

Status Conversation::SetLast(ChatMessage message) {
  if (entries_.empty()) return MakeError(ErrorCode::kInvalid, "there is no message to replace");
  ChatMessage& last = entries_.back().message;
  if (message.role != last.role) {
    return MakeError(ErrorCode::kInvalid, "role: expected {} as before, found '{}'", last.role,
                     message.role);
  }
  KVANT_TRY(CheckMembers(message));
  last = std::move(message);
  return {};
}

void Conversation::Reset() {
  entries_.clear();
  template_ids_.clear();
  forgotten_ = 0;
}

std::vector<ChatMessage> Conversation::SystemMessages() const {
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({.role = "system", .content = system_, .reasoning = {}});
  return messages;
}

std::vector<ChatMessage> Conversation::Messages() const {
  std::vector<ChatMessage> messages = SystemMessages();
  for (const auto& entry : std::span(entries_).subspan(static_cast<size_t>(forgotten_))) {
    messages.push_back(entry.message);
  }
  return messages;
}

std::string Conversation::Json() const {
  std::vector<ChatMessage> messages = SystemMessages();
  for (const ConversationEntry& entry : entries_) messages.push_back(entry.message);
  return JsonOfMessages(messages);
}

Result<int64_t> Conversation::Forget() {
  const int64_t before = forgotten_;
  while (true) {
    // The messages that are left must begin with one of the user.
    int64_t next = forgotten_ + 1;
    while (next < std::ssize(entries_) &&
           entries_[static_cast<size_t>(next)].message.role != "user") {
      ++next;
    }
    if (next >= std::ssize(entries_)) return forgotten_ - before;
    forgotten_ = next;
    KVANT_ASSIGN(const auto ids, TokensOf(Messages()));
    if (std::ssize(ids) <= context() / 2) return forgotten_ - before;
  }
}

}  // namespace kvant
