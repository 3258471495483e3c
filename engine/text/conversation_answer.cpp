// The answers of a conversation: which ids the prompt has, what of them is processed, and what the
// model makes of them.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/counted.h"
#include "base/result.h"
#include "engine/text/answer_text.h"
#include "engine/text/conversation_runner.h"
#include "kvant/beam_generator.h"
#include "kvant/conversation.h"
#include "kvant/generator.h"
#include "kvant/stop_text.h"

namespace kvant {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsFrom(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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

}  // namespace

// ---- The prompt ---------------------------------------------------------------------------------

Result<Conversation::Prompt> Conversation::MakePrompt() {
  KVANT_ASSIGN(ChatText text, Rendered(Messages()));
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
std::vector<TokenId> Conversation::WithGenerated(std::span<const TokenId> template_ids) {
  const int64_t same = CommonLength(template_ids, template_ids_);
  std::vector<TokenId> out;
  int64_t at = 0;
  for (ConversationEntry& entry : entries_) {
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
int64_t Conversation::EndOfAnswer(std::span<const TokenId> template_ids,
                                  const ConversationEntry& entry) const {
  const Tokenizer& tokenizer = model().tokenizer();
  for (const ControlTokens control : {ControlTokens::kShown, ControlTokens::kHidden}) {
    const std::string text = TextOfIds(tokenizer, entry.ids, control);
    const int64_t end = EndOfText(tokenizer, template_ids, entry.begin, text);
    if (end >= 0) return end;
  }
  return -1;
}

// How many ids at the beginning do not depend on what the user says.
Result<int64_t> Conversation::SystemTokens(std::span<const TokenId> ids) const {
  std::vector<ChatMessage> messages = SystemMessages();
  messages.push_back({.role = "user", .content = "\x01", .reasoning = {}});
  KVANT_ASSIGN(const auto other, TokensOf(messages));
  return CommonLength(ids, other);
}

Result<Conversation::Prompt> Conversation::FittingPrompt(AnswerReport* report) {
  KVANT_ASSIGN(Prompt prompt, MakePrompt());
  if (std::ssize(prompt.ids) > context() && options_.context_shift) {
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
Status Conversation::TakeUp(std::span<const TokenId> ids, const AnswerSink& sink,
                            AnswerReport* report) {
  Runner& runner = running();
  const SequenceId sequence = this->sequence();
  const uint64_t replayed = runner.stats().tokens_replayed;
  if (std::exchange(moved_, false)) KVANT_TRY(runner.Reset(sequence));
  const int64_t last = std::ssize(ids) - 1;
  int64_t held = std::min(CommonLength(runner.tokens(sequence), ids), last);
  if (held < runner.length(sequence)) KVANT_TRY(runner.Rewind(sequence, held));
  report->reused_tokens = held;
  report->processed_tokens = std::ssize(ids) - held;
  report->replayed_tokens = static_cast<int64_t>(runner.stats().tokens_replayed - replayed);
  while (held < last) {
    const int64_t count = std::min(runner.options().chunk, last - held);
    const StepInput input{sequence,
                          ids.subspan(static_cast<size_t>(held), static_cast<size_t>(count))};
    KVANT_TRY(runner.Step({&input, 1}, {.cancel = options_.cancel}));
    held += count;
    if (sink.progress && !sink.progress(held, std::ssize(ids))) {
      return MakeError(ErrorCode::kCancelled, "ended by the receiver of the answer");
    }
  }
  return {};
}

// The grammar, and what may come before it in an answer to this prompt.
LogitOptions Conversation::LogitsFor(const Prompt& prompt) const {
  LogitOptions out;
  out.grammar = tool_grammar_ != nullptr ? tool_grammar_ : options_.grammar;
  if (out.grammar == nullptr) return out;
  out.thoughts = tool_grammar_ != nullptr ? ThoughtsBeforeCalls(*format_, prompt.text, template_)
                                          : ThoughtsBehind(prompt.text, template_);
  return out;
}

Result<Generation> Conversation::Generate(const Prompt& prompt, AnswerText& text) {
  const std::span<const TokenId> ids = prompt.ids;
  const Tokenizer& tokenizer = model().tokenizer();
  GenerateOptions options;
  options.max_tokens = options_.max_tokens;
  options.stop_texts = options_.stop_texts;
  options.ignore_eos = options_.ignore_eos;
  options.logits = LogitsFor(prompt);
  options.special = marks_are_control_ || (UsesTools() && HasControlMarks(*format_, tokenizer));
  options.cancel = options_.cancel;
  options.draft = options_.draft;
  options.draft_tokens = options_.draft_tokens;
  if (options_.context_shift) {
    KVANT_ASSIGN(options.shift_keep, SystemTokens(ids));
  }
  SamplingOptions sampling = options_.sampling;
  sampling.seed = sampling.seed.value_or(0) + static_cast<uint64_t>(answers_);
  KVANT_ASSIGN(Sampler sampler, Sampler::Create(sampling, model().vocab_size(), &tokenizer));
  options.continues = true;
  return kvant::Generate(running(), sequence(), tokenizer, sampler, ids, options,
                         [&](std::string_view piece) { return text.Push(piece); });
}

// The best text of a beam search, which is shown when the search is done.
Result<Generation> Conversation::Search(const Prompt& prompt, AnswerText& text) {
  const auto start = Clock::now();
  const Tokenizer& tokenizer = model().tokenizer();
  BeamGenerateOptions options;
  options.logits = LogitsFor(prompt);
  options.search.beams = static_cast<int32_t>(options_.beams);
  options.search.max_new_tokens =
      options_.max_tokens < 0 ? context() : std::min(context(), options_.max_tokens);
  options.search.repetition_penalty = options_.sampling.repeat_penalty;
  const auto& ends = tokenizer.special().end_of_generation;
  (options_.ignore_eos ? options.search.suppress : options.search.end_tokens)
      .assign(ends.begin(), ends.end());
  options.cancel = options_.cancel;
  options.beginning = sequence();
  KVANT_ASSIGN(auto found, GenerateBeams(running(), {&prompt.ids, 1}, options));
  Generation out;
  if (found.empty() || found.front().hypotheses.empty()) return out;
  BeamHypothesis& best = found.front().hypotheses.front();
  const bool room = std::ssize(prompt.ids) + found.front().steps <= context();
  out.finish_reason = found.front().cancelled ? FinishReason::kCancelled
                      : best.ended            ? FinishReason::kStop
                      : best.no_token         ? FinishReason::kNoToken
                      : room                  ? FinishReason::kLength
                                              : FinishReason::kContext;
  out.ids = std::move(best.ids);
  if (best.ended && !out.ids.empty()) out.ids.pop_back();
  const bool shows_control =
      marks_are_control_ || (UsesTools() && HasControlMarks(*format_, tokenizer));
  out.text =
      TextOfIds(tokenizer, out.ids, shows_control ? ControlTokens::kShown : ControlTokens::kHidden);
  out.decode_tokens = std::ssize(out.ids);
  out.decode_seconds = SecondsFrom(start);
  text.Push(out.text);
  return out;
}

void Conversation::Keep(Prompt prompt, Generation generation, const AnswerText& text,
                        AnswerReport* report) {
  const int64_t prompt_tokens = std::ssize(prompt.ids);
  report->generated_tokens = std::ssize(generation.ids);
  report->conversation_tokens = prompt_tokens + report->generated_tokens;
  report->drafted_tokens = generation.drafted_tokens;
  report->accepted_tokens = generation.accepted_tokens;
  report->decode_seconds = generation.decode_seconds;
  report->finish_reason = generation.finish_reason;
  report->calls = text.calls();
  // The last token of an answer may not have been processed.
  report->shifted = options_.beams == 1 && held_tokens() + 1 < report->conversation_tokens;
  moved_ = report->shifted;
  template_ids_ = std::move(prompt.template_ids);
  const bool cancelled = generation.finish_reason == FinishReason::kCancelled;
  if (cancelled && generation.ids.empty()) return;
  std::string members = MembersOfCalls(report->calls);
  ConversationEntry& entry = entries_.emplace_back();
  entry.message = {.role = "assistant",
                   .content = text.content(),
                   .reasoning = text.reasoning(),
                   .members = std::move(members)};
  entry.ids = std::move(generation.ids);
  entry.begin = std::ssize(template_ids_);
}

Result<AnswerReport> Conversation::Answer(const AnswerSink& sink) {
  KVANT_TRY(MakeRoom());
  AnswerReport report;
  KVANT_ASSIGN(Prompt prompt, FittingPrompt(&report));
  AnswerText text(UsesTools() ? &*format_ : nullptr, options_.render.tools, prompt.text, sink);
  const auto start = Clock::now();
  const Status ready = TakeUp(prompt.ids, sink, &report);
  report.prefill_seconds = SecondsFrom(start);
  if (!ready.ok() && ready.error().code == ErrorCode::kCancelled) {
    report.finish_reason = FinishReason::kCancelled;
    return report;
  }
  if (!ready.ok()) return ready.error();
  auto generation = options_.beams == 1 ? Generate(prompt, text) : Search(prompt, text);
  ++answers_;
  if (!generation.ok()) return generation.error();
  text.Finish();
  report.prefill_seconds += generation->prefill_seconds;
  Keep(std::move(prompt), std::move(*generation), text, &report);
  return report;
}

}  // namespace kvant
