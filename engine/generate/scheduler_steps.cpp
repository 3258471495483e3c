// The steps of a scheduler: what they process, and what requests make of their logits.
#include <algorithm>
#include <utility>

#include "base/result.h"
#include "engine/generate/prompt_turns.h"
#include "kvant/scheduler.h"

namespace kvant {
namespace {

constexpr int64_t kUnlimited = PromptTurns::kUnlimited;

// How many of `left` tokens come next, at most `limit` where that is possible, so that none of them
// is in a piece of few rows unless there are only few.
int64_t LongPiece(const PromptCut& cut, int64_t left, int64_t limit) {
  const int64_t shortest = std::min(cut.few_rows + 1, cut.chunk);
  const int64_t piece =
      left < 2 * shortest ? left : std::min(std::max(limit, shortest), left - shortest);
  return std::min(piece, cut.chunk);
}

}  // namespace

// ---- Prompts ------------------------------------------------------------------------------------

Result<SequenceId> Scheduler::NewSequenceFor(const Request& request) {
  const std::span<const TokenId> source = request.source();
  auto sequence = !request.frames().empty() ? host_.NewSequenceOfFrames(request.frames())
                  : source.empty()          ? host_.NewSequence()
                                            : host_.NewSequenceOf(source);
  if (!sequence.ok() || request.adapters().empty()) return sequence;
  const Status status = host_.SetAdapters(*sequence, request.adapters());
  if (status.ok()) return sequence;
  KVANT_TRY(host_.FreeSequence(*sequence));
  return status.error();
}

// Gives a request that processes its own prompt a sequence for it.
Status Scheduler::StartPrompt(Request& request) {
  Request::Progress& progress = request.progress_;
  if (request.service_.sequence.has_value()) {
    if (!request.adapters().empty()) {
      return MakeError(ErrorCode::kInvalid,
                       "adapters: expected none of a request in sequence {}, which has its own",
                       *request.service_.sequence);
    }
    progress.sequence = *request.service_.sequence;
    progress.done = request.service_.done;
    return {};
  }
  KVANT_ASSIGN(progress.sequence, NewSequenceFor(request));
  if (request.has_begun_) return FindPrefixAgain(request);
  if (!request.service_.reuses_prefix || request.wants_prompt_rows()) return {};
  KVANT_ASSIGN(request.reused_, host_.ReusePrefix(progress.sequence, request.prompt()));
  counted_.tokens_reused += static_cast<uint64_t>(request.reused_);
  progress.done = progress.kept = request.reused_;
  return {};
}

// Beginning again a request takes no more of a known prefix than the first time. What has been
// given up of it meanwhile is computed in long pieces; where that is too little for one, more of
// the prefix is computed with it.
Status Scheduler::FindPrefixAgain(Request& request) {
  Request::Progress& progress = request.progress_;
  const PromptCut cut = host_.prompt_cut();
  for (int64_t most = request.reused_;; most = progress.kept - 1) {
    const auto prefix = request.prompt().first(static_cast<size_t>(most) + 1);
    KVANT_ASSIGN(progress.kept, host_.ReusePrefix(progress.sequence, prefix));
    const int64_t missing = request.reused_ - progress.kept;
    const bool is_short = cut.chunk > cut.few_rows && missing > 0 && missing <= cut.few_rows;
    if (!is_short || progress.kept == 0) break;
    KVANT_TRY(host_.FreeSequence(std::exchange(progress.sequence, -1)));
    KVANT_ASSIGN(progress.sequence, NewSequenceFor(request));
  }
  progress.done = progress.kept;
  return {};
}

// ---- Steps --------------------------------------------------------------------------------------

// Makes a step of the requests from number `first` on. If it fails, they are as before it.
Status Scheduler::StepFrom(size_t first) {
  while (true) {
    KVANT_TRY(Gather(first));
    if (inputs_.empty()) return {};
    const Status status = RunStep(first);
    if (status.ok() || status.Is(ErrorCode::kCancelled)) return status;
    KVANT_TRY(Retry(first, status));
  }
}

// The inputs of the step: the tokens of texts, then those of prompts, in the order of their turns.
Status Scheduler::Gather(size_t first) {
  inputs_.clear();
  owners_.clear();
  const auto from_first = [&] { return std::span<Request* const>(running_).subspan(first); };
  int64_t texts = 0;
  for (Request* const request : from_first()) {
    request->took_part_ = false;
    if (request->state_ != Request::State::kPrompt) ++texts;
  }
  round_budget_ = has_slices() ? turns_->Budget(host_.prompt_cut(), texts) : kUnlimited;
  int64_t budget = round_budget_;
  for (size_t i = first; i < running_.size();) {
    Request& request = *running_[i];
    if (request.state_ == Request::State::kPrompt || request.took_part_) {
      ++i;
      continue;
    }
    KVANT_ASSIGN(const bool stays, AddInputs(request, nullptr));
    if (stays) ++i;
  }
  for (Request* const request : turns_->InTurn(from_first())) {
    KVANT_TRY(AddInputs(*request, &budget));
  }
  return {};
}

// Adds the inputs of a request: of its prompt, where there is a budget. False: it has failed, and
// is no longer there.
Result<bool> Scheduler::AddInputs(Request& request, int64_t* budget) {
  const size_t before = inputs_.size();
  const Status status =
      budget != nullptr ? AddPromptPiece(request, *budget) : request.AddInputs(host_, inputs_);
  if (!status.ok()) {
    inputs_.resize(before, {});
    KVANT_TRY(Remove(request, status));
    return false;
  }
  owners_.resize(inputs_.size(), &request);
  request.took_part_ = inputs_.size() > before;
  return true;
}

int64_t Scheduler::PromptTokens(const Request& request) const {
  return std::ssize(request.prompt()) + std::ssize(request.recompute());
}

// How many of the prompt's tokens come next, of at least one that is left. The tokens after a known
// prefix are cut in the same way whether it is still known or not.
int64_t Scheduler::PromptPiece(const Request& request, int64_t budget) const {
  const int64_t total = std::ssize(request.prompt());
  const int64_t done = request.progress_.done;
  const int64_t prefix = request.reused_;
  if (request.service_.prompt_piece > 0) {
    return std::min(total - done, request.service_.prompt_piece);
  }
  const PromptCut cut = host_.prompt_cut();
  if (done < prefix) return LongPiece(cut, prefix - done, budget);
  return budget == kUnlimited ? total - done : cut.Next(total - prefix, done - prefix, budget);
}

// Adds a piece of a prompt, or of the tokens to recompute, of about `budget` tokens at most. The
// first prompt of a round may take more than that, where it has to; the others wait.
Status Scheduler::AddPromptPiece(Request& request, int64_t& budget) {
  Request::Progress& progress = request.progress_;
  progress.piece = 0;
  if (budget <= 0) return {};
  if (progress.leader == &request && progress.sequence < 0) {
    if (PromptTurns::Waits(request, running_, host_.prefix_block())) return {};
    KVANT_TRY(StartPrompt(request));
  }
  if (progress.sequence < 0) return {};
  const std::span<const TokenId> prompt = request.prompt();
  const int64_t left = std::ssize(prompt) - progress.done;
  // StartPrompt has looked for a known prefix, and the cut depends on what it found; a sequence of
  // the caller's has not been looked at.
  const bool reuses = request.service_.reuses_prefix && request.service_.sequence.has_value();
  StepInput input = {progress.sequence, {}, Logits::kNone, reuses};
  if (left > 0) {
    progress.piece = PromptPiece(request, budget);
    input.tokens =
        prompt.subspan(static_cast<size_t>(progress.done), static_cast<size_t>(progress.piece));
    if (progress.piece == left) input.logits = Logits::kLast;
    if (request.wants_prompt_rows()) input.logits = Logits::kAll;
  } else if (progress.done < PromptTokens(request)) {
    // Tokens that the request had chosen itself: the first time they were computed few at a time,
    // so they are again.
    const auto again = request.recompute().subspan(static_cast<size_t>(-left));
    progress.piece = std::min({std::ssize(again), host_.prompt_cut().few_rows, budget});
    input.tokens = again.first(static_cast<size_t>(progress.piece));
  }
  const bool is_first = budget == round_budget_;
  if (!is_first && progress.piece > budget) progress.piece = 0;
  if (progress.piece == 0) return {};
  inputs_.push_back(input);
  if (budget != kUnlimited) budget -= progress.piece;
  return {};
}

Status Scheduler::RunStep(size_t first) {
  statuses_.assign(inputs_.size(), Status());
  StepOptions options;
  options.rows = [this](size_t input, int64_t token, std::span<const float> logits) {
    Request& owner = *owners_[input];
    if (owner.state_ == Request::State::kRunning) return owner.TakeRow(token, logits);
    return owner.TakePromptRow(owner.progress_.done + token, logits);
  };
  options.statuses = statuses_;
  const double start = Now();
  Status status = host_.Step(inputs_, options);
  stepped_at_ = Now();
  const double seconds = stepped_at_ - start;
  for (size_t i = first; i < running_.size(); ++i) {
    if (running_[i]->took_part_) running_[i]->Spend(seconds);
  }
  if (status.ok()) CountStep(seconds);
  return status;
}

void Scheduler::CountStep(double seconds) {
  int64_t prompts = 0;
  int64_t all = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const int64_t tokens = std::ssize(inputs_[i].tokens);
    all += tokens;
    if (owners_[i]->state_ == Request::State::kPrompt) prompts += tokens;
  }
  turns_->Learn(prompts, all - prompts, seconds);
  const double share = static_cast<double>(prompts) / static_cast<double>(all);
  ++counted_.rounds;
  counted_.parts += inputs_.size();
  counted_.tokens_prefilled += static_cast<uint64_t>(prompts);
  counted_.tokens_generated += static_cast<uint64_t>(all - prompts);
  counted_.prefill_seconds += seconds * share;
  counted_.decode_seconds += seconds * (1 - share);
}

// Follows a step that was refused: removes the requests that were the reason, or makes room.
Status Scheduler::Retry(size_t first, const Status& status) {
  bool found = false;
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (statuses_[i].ok()) continue;
    found = true;
    Request* const owner = owners_[i];
    if (std::find(running_.begin(), running_.end(), owner) == running_.end()) continue;
    KVANT_TRY(Remove(*owner, statuses_[i]));
  }
  if (found) return {};
  if (status.error().code != ErrorCode::kOutOfMemory) {
    // The error belongs to no single input, such as one that TakeRow returned: all requests end.
    while (first < running_.size()) KVANT_TRY(Remove(*running_[first], status));
    return {};
  }
  bool smaller = false;
  for (size_t i = first; i < running_.size(); ++i) {
    if (running_[i]->took_part_ && running_[i]->SaveMemory()) smaller = true;
  }
  return smaller ? Status() : MakeRoom(status);
}

// Sends the request that came last back to the queue until another has ended, together with the
// requests that wait for its prompt.
Status Scheduler::MakeRoom(const Status& status) {
  size_t begin = running_.size() - 1;
  Request& last = *running_[begin];
  if (last.state_ == Request::State::kPrompt) {
    while (begin > 0 && running_[begin - 1]->state_ == Request::State::kPrompt &&
           running_[begin - 1]->progress_.leader == last.progress_.leader) {
      --begin;
    }
  }
  const bool can_wait = begin > 0 && (last.state_ == Request::State::kPrompt || last.Preempt());
  if (!can_wait) return Remove(last, last.EndWithoutMemory(status));
  while (running_.size() > begin) {
    Request& request = *running_.back();
    counted_.preemptions += request.has_begun_ ? 1 : 0;
    SendBack(request);
    running_.pop_back();
    waiting_.push_front(&request);
  }
  full_ = true;
  return {};
}

// ---- Results ------------------------------------------------------------------------------------

// Lets every request, in order, go on with the logits of the step.
Status Scheduler::AdvanceFrom(size_t first) {
  for (size_t i = first; i < running_.size(); ++i) {
    if (running_[i]->state_ == Request::State::kPrompt) AfterPrompt(*running_[i]);
  }
  ChooseApart(first);
  for (size_t i = first; i < running_.size();) {
    Request& request = *running_[i];
    if (request.cancel_asked_.load(std::memory_order_relaxed)) {
      KVANT_TRY(Remove(request, MakeError(ErrorCode::kCancelled, "cancelled")));
      continue;
    }
    const Status status = AdvanceOne(request);
    if (status.Is(ErrorCode::kCancelled)) return status;
    if (status.ok() && !request.done()) {
      ++i;
      continue;
    }
    KVANT_TRY(Remove(request, status));
  }
  return {};
}

// Lets texts that can choose their next tokens at the same time, each on a thread of its own.
void Scheduler::ChooseApart(size_t first) {
  apart_.clear();
  for (size_t i = first; i < running_.size(); ++i) {
    Request& request = *running_[i];
    const bool advances = request.state_ == Request::State::kRunning && request.took_part_ &&
                          !request.cancel_asked_.load(std::memory_order_relaxed);
    if (advances && request.chooses_apart()) apart_.push_back(&request);
  }
  if (apart_.size() < 2) return;  // a single one chooses as it advances
  host_.RunApart(apart_.size(), [this](size_t i) { apart_[i]->ChooseApart(host_); });
}

// Counts a piece of a prompt as processed. After the last piece the requests that wait for the same
// prompt get forks of its sequence.
void Scheduler::AfterPrompt(Request& request) {
  Request::Progress& progress = request.progress_;
  if (!request.took_part_ || progress.piece == 0) return;
  const int64_t prompt = std::ssize(request.prompt());
  progress.done += progress.piece;
  progress.piece = 0;
  if (progress.done <= prompt) request.PromptDone(progress.done);
  if (progress.done != prompt) return;
  for (Request* member : running_) {
    if (member->progress_.leader != &request || member->progress_.sequence >= 0) continue;
    const auto fork = host_.Fork(progress.sequence);
    if (!fork.ok()) continue;  // waits on, and computes the prompt itself when this one ends
    member->progress_.sequence = *fork;
    member->progress_.done = prompt;
    member->reused_ = request.reused_;
    member->PromptDone(prompt);
  }
}

Status Scheduler::AdvanceOne(Request& request) {
  Request::Progress& progress = request.progress_;
  if (request.state_ == Request::State::kPrompt) {
    if (progress.sequence < 0 || progress.done < PromptTokens(request)) return {};
    const bool again = request.has_begun_;
    request.state_ = Request::State::kRunning;
    request.has_begun_ = true;
    request.Begin(progress.sequence);
    return again ? Status() : request.Advance(host_);
  }
  if (!request.took_part_) return {};
  request.took_part_ = false;
  return request.Advance(host_);
}

}  // namespace kvant
