#include "tools/chat/chat_session.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "base/system_random.h"
#include "kvant/beam_generator.h"
#include "kvant/generator.h"
#include "kvant/memory_plan.h"
#include "tools/options/stopwatch.h"
#include "tools/terminal/console.h"

namespace kvant::tools {
namespace {

namespace fs = std::filesystem;

// Bytes as complete UTF-8, as a message would have them.
std::string CompleteText(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Push(bytes);
  return text + stream.Finish();
}

// The text that ids spell, as a message has it.
enum class ControlTokens : uint8_t { kHidden, kShown };
std::string TextOfIds(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                      ControlTokens control) {
  std::string bytes;
  for (const TokenId id : ids) {
    if (id >= tokenizer.vocab_size()) continue;
    bytes += tokenizer.TokenBytes(id, {.special = control == ControlTokens::kShown});
  }
  return CompleteText(bytes);
}

// The end of the ids from `begin` on that spell just `text`; -1 if no ids do.
int64_t EndOfText(const Tokenizer& tokenizer, std::span<const TokenId> ids, int64_t begin,
                  const std::string& text) {
  size_t matched = 0;
  for (int64_t at = begin;; ++at) {
    if (matched == text.size()) return at;
    if (at == std::ssize(ids)) return -1;
    const std::string bytes = tokenizer.TokenBytes(ids[static_cast<size_t>(at)], {.special = true});
    if (text.compare(matched, bytes.size(), bytes) != 0) return -1;
    matched += bytes.size();
  }
}

int64_t CommonLength(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

bool HasStates(const Model& model, const SessionOptions& options) {
  const auto plan = PlanMemory(model, options);
  return plan.ok() && std::any_of(plan->groups.begin(), plan->groups.end(),
                                  [](const auto& group) { return group.states > 0; });
}

}  // namespace

Result<std::unique_ptr<ChatSession>> ChatSession::Create(ChatSetup setup,
                                                         ChatTemplate chat_template) {
  if (!setup.sampling.seed.has_value()) {
    setup.sampling.seed = (uint64_t{SystemRandom()} << 32) | SystemRandom();
  }
  std::unique_ptr<ChatSession> session(new ChatSession(std::move(setup), std::move(chat_template)));
  const Model& model = session->model();
  session->marks_are_control_ = MarksAreControlTokens(model.tokenizer());
  KVANT_TRY(Sampler::Create(session->setup_.sampling, model.vocab_size(), &model.tokenizer()));
  KVANT_TRY(session->OpenRunner());
  if (session->setup_.context_shift && HasStates(model, session->runner_->options())) {
    return MakeError(ErrorCode::kNotSupported,
                     "--context-shift: not possible with this model: its recurrent layers keep one "
                     "state of all tokens, from which none can be taken away");
  }
  return session;
}

Status ChatSession::OpenRunner() {
  const int64_t needed = setup_.beams == 1 ? 1 : 1 + setup_.beams;
  if (needed <= sequences_) return {};
  KVANT_ASSIGN(auto runner, setup_.open(needed));
  KVANT_ASSIGN(sequence_, MoveTo(*runner));
  runner_ = std::move(runner);
  sequences_ = needed;
  moved_ = false;
  return {};
}

// The sequence in another runner, through a file; an empty one where that fails.
Result<SequenceId> ChatSession::MoveTo(Runner& runner) const {
  if (runner_ == nullptr || moved_ || runner_->length(sequence_) == 0) return runner.NewSequence();
  std::error_code error;
  std::string folder = (fs::temp_directory_path(error) / "kvant-XXXXXX").string();
  if (error || mkdtemp(folder.data()) == nullptr) return runner.NewSequence();
  const std::string path = folder + "/chat.kvs";
  const Status saved = runner_->Save(path, {&sequence_, 1});
  const auto loaded = saved.ok() ? runner.Load(path) : saved.error();
  fs::remove_all(folder, error);
  return loaded.ok() ? loaded->front() : runner.NewSequence();
}

// ---- Messages -----------------------------------------------------------------------------------

void ChatSession::AddUser(std::string text) {
  entries_.push_back({{.role = "user", .content = std::move(text), .reasoning = {}}});
}

std::optional<std::string> ChatSession::Undo() {
  for (size_t i = entries_.size(); i-- > 0;) {
    if (entries_[i].message.role != "user") continue;
    std::string text = std::move(entries_[i].message.content);
    entries_.resize(i);
    forgotten_ = std::min(forgotten_, std::ssize(entries_));
    return text;
  }
  return std::nullopt;
}

bool ChatSession::DropAnswer() {
  if (entries_.empty() || entries_.back().message.role != "assistant") return false;
  entries_.pop_back();
  return true;
}

void ChatSession::Reset() {
  entries_.clear();
  template_ids_.clear();
  forgotten_ = 0;
}

std::span<const ChatEntry> ChatSession::Shown() const {
  return std::span(entries_).subspan(static_cast<size_t>(forgotten_));
}

std::vector<ChatMessage> ChatSession::Messages() const {
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({.role = "system", .content = system_, .reasoning = {}});
  for (const ChatEntry& entry : Shown()) messages.push_back(entry.message);
  return messages;
}

Result<int64_t> ChatSession::Forget() {
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
    KVANT_ASSIGN(const auto ids, template_.Tokens(Messages(), setup_.render));
    if (std::ssize(ids) <= context() / 2) return forgotten_ - before;
  }
}

// ---- The prompt ---------------------------------------------------------------------------------

Result<ChatSession::Prompt> ChatSession::MakePrompt() {
  KVANT_ASSIGN(ChatText text, template_.RenderText(Messages(), setup_.render));
  Prompt prompt;
  KVANT_ASSIGN(prompt.template_ids, template_.Tokens(text));
  if (prompt.template_ids.empty()) {
    return MakeError(ErrorCode::kInvalid, "the chat template makes no tokens of the conversation");
  }
  prompt.text = std::move(text.text);
  prompt.ids = WithGenerated(prompt.template_ids);
  return prompt;
}

// The ids of the template, in which generated ids replace the template's ids of answers. An answer
// is looked for at its place when it was generated, if all ids before it are unchanged.
std::vector<TokenId> ChatSession::WithGenerated(std::span<const TokenId> template_ids) {
  const int64_t same = CommonLength(template_ids, template_ids_);
  std::vector<TokenId> out;
  int64_t at = 0;
  for (ChatEntry& entry : entries_) {
    if (entry.begin < at || entry.begin > same) {
      entry.begin = -1;
      continue;
    }
    const int64_t end = EndOfAnswer(template_ids, entry);
    if (end < 0) continue;
    out.insert(out.end(), template_ids.begin() + at, template_ids.begin() + entry.begin);
    out.insert(out.end(), entry.ids.begin(), entry.ids.end());
    at = end;
  }
  out.insert(out.end(), template_ids.begin() + at, template_ids.end());
  return out;
}

// The end of the template's ids of an answer, if they spell just the generated text; else -1.
// Control tokens may be part of the text or not.
int64_t ChatSession::EndOfAnswer(std::span<const TokenId> template_ids,
                                 const ChatEntry& entry) const {
  const Tokenizer& tokenizer = model().tokenizer();
  for (const ControlTokens control : {ControlTokens::kShown, ControlTokens::kHidden}) {
    const std::string text = TextOfIds(tokenizer, entry.ids, control);
    const int64_t end = EndOfText(tokenizer, template_ids, entry.begin, text);
    if (end >= 0) return end;
  }
  return -1;
}

// How many ids at the beginning do not depend on what the user says.
Result<int64_t> ChatSession::SystemTokens(std::span<const TokenId> ids) const {
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({.role = "system", .content = system_, .reasoning = {}});
  messages.push_back({.role = "user", .content = "\x01", .reasoning = {}});
  KVANT_ASSIGN(const auto other, template_.Tokens(messages, setup_.render));
  return CommonLength(ids, other);
}

Result<ChatSession::Prompt> ChatSession::FittingPrompt(ChatReport* report) {
  KVANT_ASSIGN(Prompt prompt, MakePrompt());
  if (std::ssize(prompt.ids) > context() && setup_.context_shift) {
    KVANT_ASSIGN(report->forgotten_messages, Forget());
    KVANT_ASSIGN(prompt, MakePrompt());
  }
  if (std::ssize(prompt.ids) <= context()) return prompt;
  return MakeError(ErrorCode::kContextFull,
                   "the conversation takes {}, and the context has room for {}",
                   Counted(prompt.ids.size(), "token"), context());
}

// ---- Answers ------------------------------------------------------------------------------------

// Makes the sequence hold all ids but the last, whose logits the answer begins from.
Status ChatSession::TakeUp(std::span<const TokenId> ids, const ChatSink& sink, ChatReport* report) {
  const uint64_t replayed = runner_->stats().tokens_replayed;
  if (std::exchange(moved_, false)) KVANT_TRY(runner_->Reset(sequence_));
  const int64_t last = std::ssize(ids) - 1;
  int64_t held = std::min(CommonLength(runner_->tokens(sequence_), ids), last);
  if (held < runner_->length(sequence_)) KVANT_TRY(runner_->Rewind(sequence_, held));
  report->reused_tokens = held;
  report->processed_tokens = std::ssize(ids) - held;
  report->replayed_tokens = static_cast<int64_t>(runner_->stats().tokens_replayed - replayed);
  while (held < last) {
    const int64_t count = std::min(runner_->options().chunk, last - held);
    KVANT_TRY(runner_->Append(sequence_,
                              ids.subspan(static_cast<size_t>(held), static_cast<size_t>(count))));
    held += count;
    if (sink.progress) sink.progress(held, std::ssize(ids));
  }
  return {};
}

Result<Generation> ChatSession::Generate(std::span<const TokenId> ids, ReasoningText& text) {
  GenerateOptions options;
  options.max_tokens = setup_.max_tokens;
  options.stop_texts = setup_.stop_texts;
  options.ignore_eos = setup_.ignore_eos;
  options.special = marks_are_control_;
  options.cancel = &CancelFlag();
  if (setup_.context_shift) {
    KVANT_ASSIGN(options.shift_keep, SystemTokens(ids));
  }
  SamplingOptions sampling = setup_.sampling;
  sampling.seed = sampling.seed.value_or(0) + static_cast<uint64_t>(answers_);
  const Tokenizer& tokenizer = model().tokenizer();
  KVANT_ASSIGN(Sampler sampler, Sampler::Create(sampling, model().vocab_size(), &tokenizer));
  options.continues = true;
  return kvant::Generate(*runner_, sequence_, tokenizer, sampler, ids, options,
                         [&](std::string_view piece) { return text.Push(piece); });
}

// The best text of a beam search, which is shown when the search is done.
Result<Generation> ChatSession::Search(std::span<const TokenId> ids, ReasoningText& text) {
  const auto start = std::chrono::steady_clock::now();
  const Tokenizer& tokenizer = model().tokenizer();
  BeamGenerateOptions options;
  options.search.beams = static_cast<int32_t>(setup_.beams);
  options.search.max_new_tokens =
      setup_.max_tokens < 0 ? context() : std::min(context(), setup_.max_tokens);
  options.search.repetition_penalty = setup_.sampling.repeat_penalty;
  const auto& ends = tokenizer.special().end_of_generation;
  (setup_.ignore_eos ? options.search.suppress : options.search.end_tokens)
      .assign(ends.begin(), ends.end());
  options.cancel = &CancelFlag();
  options.beginning = sequence_;
  const std::vector<TokenId> prompt(ids.begin(), ids.end());
  KVANT_ASSIGN(auto found, GenerateBeams(*runner_, {&prompt, 1}, options));
  Generation out;
  if (found.empty() || found.front().hypotheses.empty()) return out;
  BeamHypothesis& best = found.front().hypotheses.front();
  const bool room = std::ssize(ids) + found.front().steps <= context();
  out.finish_reason = found.front().cancelled ? FinishReason::kCancelled
                      : best.ended            ? FinishReason::kStop
                      : best.no_token         ? FinishReason::kNoToken
                      : room                  ? FinishReason::kLength
                                              : FinishReason::kContext;
  out.ids = std::move(best.ids);
  if (best.ended && !out.ids.empty()) out.ids.pop_back();
  out.text = TextOfIds(tokenizer, out.ids,
                       marks_are_control_ ? ControlTokens::kShown : ControlTokens::kHidden);
  out.decode_tokens = std::ssize(out.ids);
  out.decode_seconds = SecondsSince(start);
  text.Push(out.text);
  return out;
}

void ChatSession::Keep(Prompt prompt, Generation generation, const ReasoningText& text,
                       ChatReport* report) {
  const int64_t prompt_tokens = std::ssize(prompt.ids);
  report->generated_tokens = std::ssize(generation.ids);
  report->conversation_tokens = prompt_tokens + report->generated_tokens;
  report->decode_seconds = generation.decode_seconds;
  report->finish_reason = generation.finish_reason;
  // The last token of an answer may not have been processed.
  report->shifted =
      setup_.beams == 1 && runner_->length(sequence_) + 1 < report->conversation_tokens;
  moved_ = report->shifted;
  template_ids_ = std::move(prompt.template_ids);
  const bool cancelled = generation.finish_reason == FinishReason::kCancelled;
  if (cancelled && generation.ids.empty()) return;
  ChatEntry& entry = entries_.emplace_back();
  entry.message = {.role = "assistant", .content = text.content(), .reasoning = text.reasoning()};
  entry.ids = std::move(generation.ids);
  entry.begin = std::ssize(template_ids_);
}

Result<ChatReport> ChatSession::Answer(const ChatSink& sink) {
  ChatReport report;
  KVANT_ASSIGN(Prompt prompt, FittingPrompt(&report));
  ReasoningText text(prompt.text, sink.take);
  const auto start = std::chrono::steady_clock::now();
  const Status ready = TakeUp(prompt.ids, sink, &report);
  report.prefill_seconds = SecondsSince(start);
  if (!ready.ok() && ready.error().code == ErrorCode::kCancelled) {
    report.finish_reason = FinishReason::kCancelled;
    return report;
  }
  if (!ready.ok()) return ready.error();
  auto generation = setup_.beams == 1 ? Generate(prompt.ids, text) : Search(prompt.ids, text);
  ++answers_;
  if (!generation.ok()) return generation.error();
  text.Finish();
  report.prefill_seconds += generation->prefill_seconds;
  Keep(std::move(prompt), std::move(*generation), text, &report);
  return report;
}

Status ChatSession::SetBeams(int64_t beams) {
  if (beams > 1 && !setup_.stop_texts.empty()) {
    return MakeError(ErrorCode::kInvalid, "not possible together with --stop");
  }
  const int64_t before = std::exchange(setup_.beams, beams);
  const Status status = OpenRunner();
  if (!status.ok()) setup_.beams = before;
  return status;
}

Status ChatSession::Restore(Saved saved, const std::string& tokens_path) {
  system_ = std::move(saved.system);
  entries_ = std::move(saved.entries);
  template_ids_ = std::move(saved.template_ids);
  forgotten_ = saved.forgotten;
  answers_ = saved.answers;
  moved_ = false;
  KVANT_TRY(runner_->FreeSequence(sequence_));
  Status status;
  if (!tokens_path.empty()) {
    const auto loaded = runner_->Load(tokens_path);
    if (loaded.ok() && loaded->size() == 1) {
      sequence_ = loaded->front();
      return {};
    }
    if (!loaded.ok()) status = loaded.error();
    if (loaded.ok()) {
      for (const SequenceId sequence : *loaded) KVANT_TRY(runner_->FreeSequence(sequence));
      status = MakeError(ErrorCode::kInvalid, "{}: expected one sequence, found {}", tokens_path,
                         loaded->size());
    }
  }
  KVANT_ASSIGN(sequence_, runner_->NewSequence());
  return status;
}

}  // namespace kvant::tools
