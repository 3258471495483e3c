#include "kvant/text_request.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/result.h"
#include "engine/evaluate/distribution.h"
#include "engine/generate/logit_check.h"
#include "engine/generate/logit_stages/stage_row.h"
#include "kvant/logit_chain.h"
#include "kvant/session_options.h"

namespace kvant {
namespace {

// With so many inputs before it in a step, a row that turns out to be wrong costs as much as a
// token.
constexpr size_t kCompanyMax = 4;

// Choosing a token of fewer takes no longer than waking a thread for it.
constexpr int32_t kApartVocabMin = 4096;

// Measures the time from its construction to its destruction, and adds it to a sum of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The bytes as complete UTF-8: what is invalid becomes U+FFFD.
std::string Complete(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Push(bytes);
  return text + stream.Finish();
}

}  // namespace

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop: return "stop";
    case FinishReason::kStopText: return "stop_text";
    case FinishReason::kLength: return "length";
    case FinishReason::kContext: return "context";
    case FinishReason::kMemory: return "memory";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kDeadline: return "deadline";
    case FinishReason::kNoToken: return "no_token";
  }
  return "unknown";
}

// ---- Beginning ----------------------------------------------------------------------------------

Status TextRequest::Prepare() {
  if (text_.has_value()) return {};  // begins again
  const Tokenizer& tokenizer = *setup_.tokenizer;
  if (!setup_.sampler.has_value()) {
    KVANT_ASSIGN(setup_.sampler, Sampler::Create(setup_.sampling, setup_.vocab_size, &tokenizer));
  }
  if (options().ignore_eos) {
    for (const TokenId id : tokenizer.special().end_of_generation) setup_.sampler->Forbid(id);
  }
  KVANT_TRY(AddStages());
  text_.emplace(
      tokenizer, options().stop_texts,
      TokenText::Options{.special = options().special, .ignore_end = options().ignore_eos});
  all_ = setup_.input->prompt;
  AcceptPrompt(setup_.held);
  if (options().echo && !Show(Complete(tokenizer.Decode(all_, {.special = options().special})))) {
    Finish(FinishReason::kCancelled);
  }
  return {};
}

// Gives the sampler the stages that the options ask for.
Status TextRequest::AddStages() {
  const auto vocab = setup_.sampler->vocab_size();
  std::optional<BeamOptions> processors = options().processors;
  if (processors.has_value()) {
    processors->beams = processors->num_return = processors->groups = 1;
    processors->scoring = BeamScoring::kHf;
    processors->sample = false;
    KVANT_TRY(CheckBeamOptions(*processors, vocab));
  }
  LogitChain& stages = setup_.sampler->logits();
  KVANT_TRY(stages.Add({.vocab = static_cast<size_t>(vocab),
                        .tokenizer = setup_.tokenizer.get(),
                        .processors = processors.has_value() ? &*processors : nullptr,
                        .logits = &options().logits}));
  reads_tokens_ = stages.reads_tokens();
  return {};
}

Sampler TextRequest::TakeSampler() {
  setup_.sampler->logits().DropRequest();
  return *std::move(setup_.sampler);
}

// How many tokens of the prompt were not generated, by others or before.
int64_t TextRequest::given() const {
  const int64_t all = std::ssize(prompt());
  return options().processors_prompt < 0 ? all : std::min(all, options().processors_prompt);
}

// The logits of a token of the prompt tell how likely the next one is.
Status TextRequest::TakePromptRow(int64_t token, std::span<const float> logits) {
  const auto next = static_cast<size_t>(token) + 1;
  if (next >= prompt().size() || !chosen_status_.ok()) return {};
  // An error here would be one of the whole step.
  chosen_status_ = CheckLogitsAreNumbers(logits, {host_, token, prompt()[next - 1]});
  out_.prompt_log_probs.resize(next);
  out_.prompt_log_probs[next - 1] = LogProbsOf(prompt()[next], logits, *options().prompt_log_probs);
  return {};
}

void TextRequest::PromptDone(int64_t tokens) {
  if (begun_) return;
  AcceptPrompt(tokens);
  out_.prefill_tokens = tokens - setup_.held;
  if (options().on_prefill) options().on_prefill(tokens);
}

void TextRequest::AcceptPrompt(int64_t tokens) {
  for (; accepted_ < tokens; ++accepted_) {
    setup_.sampler->Accept(setup_.input->prompt[static_cast<size_t>(accepted_)],
                           accepted_ < given() ? TokenFrom::kPrompt : TokenFrom::kText);
  }
}

void TextRequest::Begin(SequenceId sequence) {
  sequence_ = sequence;
  if (options().draft != nullptr) options().draft->Begin();
}

// ---- Steps --------------------------------------------------------------------------------------

Status TextRequest::AddInputs(SequenceHost& host, std::vector<StepInput>& inputs) {
  before_ = host.length(sequence_);
  host_ = host.name();
  if (!std::exchange(guess_again_, false)) {
    Stopwatch watch(&out_.decode_seconds);
    KVANT_TRY(Guess(host, inputs.size() < kCompanyMax ? Guesses::kAll : Guesses::kSure));
  }
  chosen_.clear();
  chosen_log_probs_.clear();
  right_ = true;
  chose_apart_ = false;
  in_step_ = true;
  inputs.push_back({sequence_, guess_, guess_.size() == 1 ? Logits::kLast : Logits::kAll});
  return {};
}

// Fills guess_ with the last token and the tokens that a stage or else the draft expects after it,
// as many as there is room for.
Status TextRequest::Guess(SequenceHost& host, Guesses which) {
  guess_.assign(1, out_.ids.back());
  // More rows would not have the bits of single rows.
  int64_t count = std::min(kSharedRowsMax - 1, host.context() - before_ - 1);
  if (options().max_tokens >= 0) {
    count = std::min(count, options().max_tokens - std::ssize(out_.ids) - 1);
  }
  const int64_t forced = std::min(count, host.free_rewind());
  if (forced > 0) setup_.sampler->logits().Guess(static_cast<size_t>(forced), which, guess_);
  guess_is_forced_ = guess_.size() > 1;
  if (guess_is_forced_ || options().draft == nullptr) return {};
  count = std::min(count, options().draft_tokens);
  if (count <= 0) return {};
  KVANT_ASSIGN(const auto proposal, options().draft->ProposeIn(host, sequence_, all_, count));
  // A token that followed in the prompt may be a row, which is never chosen.
  const auto vocab = static_cast<TokenId>(setup_.sampler->vocab_size());
  const auto end = std::ranges::find_if(proposal, [vocab](TokenId id) { return id >= vocab; });
  guess_.insert(guess_.end(), proposal.begin(), end);
  out_.drafted_tokens += end - proposal.begin();
  if (end != proposal.begin()) ++out_.drafts;
  return {};
}

// Chooses the token after each token of the guess that was right.
Status TextRequest::TakeRow(int64_t token, std::span<const float> logits) {
  if (!right_ || !chosen_status_.ok()) return {};
  chosen_status_ = Choose(logits, before_ + token, guess_[static_cast<size_t>(token)]);
  const size_t next = static_cast<size_t>(token) + 1;
  const bool goes_on = chosen_status_.ok() && !no_token_;
  right_ = goes_on && next < guess_.size() && chosen_.back() == guess_[next];
  return {};
}

TokenLogProbs TextRequest::LogProbsOf(TokenId id, std::span<const float> logits, int32_t top) {
  const evaluate::Distribution distribution = evaluate::Normalize(logits);
  TokenLogProbs out;
  out.chosen = {id, distribution.LogProb(id)};
  for (const auto& one : evaluate::TopTokens(distribution, static_cast<size_t>(top))) {
    out.top.push_back({one.id, one.log_prob});
  }
  return out;
}

// Log-probabilities of the sampler's last draw, which has chosen `id`.
TokenLogProbs TextRequest::LogProbsOfDraw(TokenId id, int32_t top) {
  Sampler& sampler = *setup_.sampler;
  TokenLogProbs out;
  out.chosen = {id, std::log(sampler.ChanceOf(id))};
  for (const TokenChance& one : sampler.Chances(static_cast<size_t>(top))) {
    out.top.push_back({one.id, std::log(one.probability)});
  }
  return out;
}

// The text with the tokens that this step has chosen so far. They stand behind all_ until the next
// token is chosen.
LogitText TextRequest::Text() {
  const int64_t before = std::ssize(prompt()) - given();  // tokens that were generated by others
  LogitText text;
  text.prompt = given();
  text.generated = before + std::ssize(out_.ids) + std::ssize(chosen_);
  if (options().max_tokens >= 0) text.generated_max = before + options().max_tokens;
  if (reads_tokens_) {
    all_.insert(all_.end(), chosen_.begin(), chosen_.end());
    text.tokens = all_;
  }
  return text;
}

// Chooses the token after `token`, which is at `position`.
Status TextRequest::Choose(std::span<const float> logits, int64_t position, TokenId token) {
  KVANT_TRY(CheckLogitsAreNumbers(logits, {host_, position, token}));
  const size_t before = all_.size();
  const auto chosen = setup_.sampler->Next(logits, Text());
  all_.resize(before);
  KVANT_ASSIGN(const std::optional<TokenId> id, chosen);
  no_token_ = !id.has_value();
  if (no_token_) return {};
  setup_.sampler->Accept(*id);
  chosen_.push_back(*id);
  if (const auto top = options().log_probs; top.has_value()) {
    const bool of_model = options().log_probs_from == GenerateOptions::LogProbSource::kModel;
    chosen_log_probs_.push_back(of_model ? LogProbsOf(*id, logits, *top)
                                         : LogProbsOfDraw(*id, *top));
  }
  return {};
}

bool TextRequest::chooses_apart() const {
  return in_step_ && guess_.size() == 1 && setup_.sampler->vocab_size() >= kApartVocabMin &&
         !setup_.sampler->logits().has_callers_code();
}

void TextRequest::ChooseApart(const SequenceHost& host) {
  Stopwatch watch(&out_.decode_seconds);
  chosen_status_ = Choose(host.logits(sequence_), before_, guess_[0]);
  chose_apart_ = true;
}

Status TextRequest::Advance(SequenceHost& host) {
  if (!begun_) {
    begun_ = true;
    if (options().max_tokens == 0) {
      Finish(FinishReason::kLength);
      return {};
    }
    KVANT_TRY(chosen_status_);
    Stopwatch watch(&out_.decode_seconds);
    host_ = host.name();
    KVANT_TRY(Choose(host.logits(sequence_), host.length(sequence_) - 1, prompt().back()));
  } else {
    Stopwatch watch(&out_.decode_seconds);
    KVANT_TRY(TakeStep(host));
  }
  for (size_t i = 0; i < chosen_.size(); ++i) {
    if (Take(i)) return {};
  }
  if (no_token_) {
    Finish(FinishReason::kNoToken);
    return {};
  }
  // An end token would be the next one, and no part of the text.
  if (!options().ignore_eos && setup_.sampler->logits().IsOver()) {
    Finish(FinishReason::kStop);
    return {};
  }
  return GoOn(host);
}

// Adds the tokens that the step has chosen to the text, and takes wrong guesses off the sequence.
Status TextRequest::TakeStep(SequenceHost& host) {
  in_step_ = false;
  if (guess_.size() == 1 && !chose_apart_) {
    KVANT_TRY(Choose(host.logits(sequence_), before_, guess_[0]));
  }
  KVANT_TRY(chosen_status_);
  ++out_.decode_passes;
  const int64_t right = std::ssize(chosen_) + (no_token_ ? 1 : 0);
  out_.decode_tokens += right;
  (guess_is_forced_ ? out_.forced_tokens : out_.accepted_tokens) += right - 1;
  const int64_t kept = before_ + right;
  return host.length(sequence_) > kept ? host.Rewind(sequence_, kept) : Status();
}

// Ends the text where there is no room for another token, or nobody wants one.
Status TextRequest::GoOn(SequenceHost& host) {
  if (std::ssize(out_.ids) == options().max_tokens) {
    Finish(FinishReason::kLength);
    return {};
  }
  const int64_t length = host.length(sequence_);
  if (length >= host.context()) {
    // A sequence of a single token has nothing to drop.
    if (!options().shift_keep.has_value() || length < 2) {
      Finish(FinishReason::kContext);
      return {};
    }
    const int64_t keep = std::min(*options().shift_keep, length - 2);
    shifted_ = true;
    KVANT_TRY(host.Prune(sequence_, keep, (length - keep) / 2, PrunePositions::kMoved));
  }
  if (options().cancel != nullptr && options().cancel->load()) Finish(FinishReason::kCancelled);
  return {};
}

// Adds number `i` of the tokens that were chosen to the text; true if that ends it.
bool TextRequest::Take(size_t i) {
  const TokenId id = chosen_[i];
  std::string piece;
  const TokenText::State state = text_->Push(id, piece);
  if (state == TokenText::State::kEndToken) {
    if (options().log_probs.has_value()) out_.end_log_probs = std::move(chosen_log_probs_[i]);
    return Finish(FinishReason::kStop);
  }
  out_.ids.push_back(id);
  all_.push_back(id);
  const TokenLogProbs* log_probs = nullptr;
  if (options().log_probs.has_value()) {
    log_probs = &out_.log_probs.emplace_back(std::move(chosen_log_probs_[i]));
  }
  if (setup_.on_token) setup_.on_token(id, log_probs);
  if (!Show(piece)) return Finish(FinishReason::kCancelled);
  return state == TokenText::State::kStopText && Finish(FinishReason::kStopText);
}

bool TextRequest::Finish(FinishReason reason) {
  out_.finish_reason = reason;
  return done_ = true;
}

bool TextRequest::Show(std::string_view piece) {
  if (piece.empty()) return true;
  out_.text += piece;
  return setup_.on_text == nullptr || setup_.on_text(piece);
}

void TextRequest::Spend(double seconds) {
  (begun_ ? out_.decode_seconds : out_.prefill_seconds) += seconds;
}

// ---- Memory -------------------------------------------------------------------------------------

bool TextRequest::SaveMemory() {
  if (guess_.size() < 2) return false;
  guess_.erase(guess_.begin() + 1, guess_.end());
  return guess_again_ = true;
}

bool TextRequest::Preempt() { return !shifted_; }

// Everything but the last token, which has not been processed yet.
std::span<const TokenId> TextRequest::recompute() const {
  if (out_.ids.empty()) return {};
  return std::span(out_.ids).first(out_.ids.size() - 1);
}

// A text that has begun ends here; a prompt that does not fit is an error.
Status TextRequest::EndWithoutMemory(const Status& error) {
  if (!begun_) return error;
  Finish(FinishReason::kMemory);
  return {};
}

Status TextRequest::EndAtDeadline(const Status& error) {
  if (!begun_) return error;
  Finish(FinishReason::kDeadline);
  return {};
}

// ---- The end ------------------------------------------------------------------------------------

void TextRequest::Release(SequenceHost& host, std::optional<SequenceId> kept) {
  // A step that was cancelled between its passes leaves guesses behind that nobody has checked.
  const bool guesses = in_step_ && host.length(sequence_) > before_ + 1;
  if (sequence_ != kept) {
    (void)host.FreeSequence(sequence_);  // it exists
  } else if (guesses) {
    (void)host.Rewind(sequence_, before_ + 1);  // as far as the slack of a window allows
  }
  in_step_ = false;
  sequence_ = -1;
}

Status TextRequest::End() {
  if (!status().ok() && !status().Is(ErrorCode::kCancelled)) {
    if (setup_.on_failure) setup_.on_failure(status().error());
    return {};
  }
  if (text_.has_value()) Show(text_->Finish());  // cancelled or not
  if (!setup_.on_end || setup_.on_end(*this)) return {};
  return MakeError(ErrorCode::kCancelled, "cancelled");
}

}  // namespace kvant
