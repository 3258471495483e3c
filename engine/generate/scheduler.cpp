#include "kvant/scheduler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/result.h"

namespace kvant {
namespace {

constexpr int64_t kUnlimited = INT64_MAX;

// How many of `left` tokens come next, at most `limit` where that is possible, so that none of them
// is in a piece of few rows unless there are only few.
int64_t LongPiece(const PromptCut& cut, int64_t left, int64_t limit) {
  const int64_t shortest = std::min(cut.few_rows + 1, cut.chunk);
  const int64_t piece =
      left < 2 * shortest ? left : std::min(std::max(limit, shortest), left - shortest);
  return std::min(piece, cut.chunk);
}

bool IsCancelled(const Status& status) {
  return !status.ok() && status.error().code == ErrorCode::kCancelled;
}

}  // namespace

Scheduler::Scheduler(SequenceHost& host, const SchedulerOptions& options)
    : host_(host), options_(options) {}

Scheduler::~Scheduler() {
  for (Request* request : running_) SendBack(*request);
}

// ---- Requests -----------------------------------------------------------------------------------

void Scheduler::Submit(Request& request, const Service& service) {
  request.state_ = Request::State::kWaiting;
  request.service_ = service;
  const auto place = std::find_if(waiting_.begin(), waiting_.end(), [&](const Request* other) {
    return other->service_.priority < service.priority;
  });
  waiting_.insert(place, &request);
}

Status Scheduler::Cancel(Request& request) {
  const auto waiting = std::find(waiting_.begin(), waiting_.end(), &request);
  if (waiting != waiting_.end()) {
    waiting_.erase(waiting);
    running_.push_back(&request);  // so that it ends like any other
  }
  if (std::find(running_.begin(), running_.end(), &request) == running_.end()) return {};
  return Remove(request, MakeError(ErrorCode::kCancelled, "cancelled"));
}

Status Scheduler::CancelAll() {
  std::erase_if(running_, [](Request* request) {
    const bool waits = request->state_ == Request::State::kPrompt &&
                       request->progress_.sequence < 0 && !request->has_begun_;
    if (waits) request->state_ = Request::State::kNew;
    return waits;
  });
  while (!running_.empty()) KVANT_TRY(Cancel(*running_.front()));
  while (!waiting_.empty()) {
    Request& request = *waiting_.front();
    if (request.has_begun_) {
      KVANT_TRY(Cancel(request));
    } else {
      waiting_.pop_front();
      request.state_ = Request::State::kNew;
    }
  }
  return {};
}

// Ends a request, whatever it was doing. Where others wait for its prompt, the next of them
// computes the prompt.
Status Scheduler::Remove(Request& request, Status status) {
  running_.erase(std::find(running_.begin(), running_.end(), &request));
  Request* next = nullptr;
  for (Request* other : running_) {
    if (other->progress_.leader != &request || other->progress_.sequence >= 0) continue;
    if (next == nullptr) next = other;
    other->progress_.leader = next;
  }
  SendBack(request);
  full_ = false;
  request.state_ = Request::State::kEnded;
  request.status_ = std::move(status);
  if (first_failure_.ok() && !IsCancelled(request.status_)) first_failure_ = request.status_;
  const Status end = request.End();
  if (!end.ok()) refused_ = true;
  return end;
}

// Frees the sequences of a request, which goes back to the queue or ends.
void Scheduler::SendBack(Request& request) {
  Request::Progress& progress = request.progress_;
  if (request.state_ == Request::State::kRunning) {
    request.Release(host_, request.service_.sequence);
  } else if (progress.sequence >= 0 && progress.sequence != request.service_.sequence) {
    (void)host_.FreeSequence(progress.sequence);  // it was made here, so it exists
  }
  progress = {};
  request.state_ = Request::State::kWaiting;
}

// ---- Rounds -------------------------------------------------------------------------------------

Status Scheduler::Poll() {
  KVANT_TRY(Admit());
  if (running_.empty()) return {};
  if (options_.cancel != nullptr && options_.cancel->load()) {
    return MakeError(ErrorCode::kCancelled, "cancelled");
  }
  KVANT_TRY(StepFrom(0));
  return AdvanceFrom(0);
}

// Lets waiting requests begin, in order, as long as there is room; requests of one family begin
// together.
Status Scheduler::Admit() {
  while (!waiting_.empty() && !full_) {
    const size_t family = FamilyAtFront();
    if (!HasRoom(family)) return {};
    const size_t first = running_.size();
    for (size_t i = 0; i < family; ++i) {
      Request& request = *waiting_.front();
      waiting_.pop_front();
      running_.push_back(&request);
      request.state_ = Request::State::kPrompt;
      request.progress_ = {.leader = running_[first]};
    }
    KVANT_TRY(Open(first));
    if (options_.prompt_slice > 0) continue;
    // Prompts go first: their steps run now, before the next request is admitted, because a request
    // that ends with its first token makes room for it.
    const auto in_prompt = [](const Request* request) {
      return request->state_ == Request::State::kPrompt;
    };
    while (first < running_.size() &&
           std::any_of(running_.begin() + static_cast<std::ptrdiff_t>(first), running_.end(),
                       in_prompt)) {
      KVANT_TRY(StepFrom(first));
      KVANT_TRY(AdvanceFrom(first));
    }
  }
  return {};
}

size_t Scheduler::FamilyAtFront() const {
  size_t count = 1;
  const void* const family = waiting_.front()->family();
  while (family != nullptr && count < waiting_.size() && waiting_[count]->family() == family) {
    ++count;
  }
  return count;
}

// Whether the requests at the front of the queue may begin. Where nothing is running they always
// may: if they ask for too much, the host's error ends them.
bool Scheduler::HasRoom(size_t family) const {
  if (running_.empty()) return true;
  int64_t sequences = 0;
  for (const Request* request : running_) sequences += request->sequences();
  for (size_t i = 0; i < family; ++i) sequences += waiting_[i]->sequences();
  return sequences <= host_.sequences_max() &&
         running_.size() + family <= std::max(options_.requests_max, family);
}

// Prepares the requests from number `first` of running_ on, and removes requests that cannot begin.
Status Scheduler::Open(size_t first) {
  for (size_t i = first; i < running_.size();) {
    Request& request = *running_[i];
    const Status status = request.Prepare();
    if (status.ok() && !request.done()) {
      ++i;
      continue;
    }
    KVANT_TRY(Remove(request, status));
  }
  return {};
}

Result<SequenceId> Scheduler::NewSequenceFor(const Request& request) {
  if (!request.frames().empty()) return host_.NewSequenceOfFrames(request.frames());
  const std::span<const TokenId> source = request.source();
  return source.empty() ? host_.NewSequence() : host_.NewSequenceOf(source);
}

// Gives a request that processes its own prompt a sequence for it.
Status Scheduler::StartPrompt(Request& request) {
  Request::Progress& progress = request.progress_;
  if (request.service_.sequence.has_value()) {
    progress.sequence = *request.service_.sequence;
    progress.done = request.service_.done;
    return {};
  }
  KVANT_ASSIGN(progress.sequence, NewSequenceFor(request));
  if (request.has_begun_) return FindPrefixAgain(request);
  KVANT_ASSIGN(request.reused_, host_.ReusePrefix(progress.sequence, request.prompt()));
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
    if (status.ok() || IsCancelled(status)) return status;
    KVANT_TRY(Retry(first, status));
  }
}

Status Scheduler::Gather(size_t first) {
  inputs_.clear();
  owners_.clear();
  int64_t budget = options_.prompt_slice > 0 ? options_.prompt_slice : kUnlimited;
  for (size_t i = first; i < running_.size();) {
    Request& request = *running_[i];
    request.took_part_ = false;
    const size_t before = inputs_.size();
    const Status status = request.state_ == Request::State::kPrompt
                              ? AddPromptPiece(request, budget)
                              : request.AddInputs(host_, inputs_);
    if (!status.ok()) {
      inputs_.resize(before, {});
      KVANT_TRY(Remove(request, status));
      continue;
    }
    owners_.resize(inputs_.size(), &request);
    request.took_part_ = inputs_.size() > before;
    ++i;
  }
  return {};
}

int64_t Scheduler::PromptTokens(const Request& request) const {
  return std::ssize(request.prompt()) + std::ssize(request.recompute());
}

Status Scheduler::AddPromptPiece(Request& request, int64_t& budget) {
  Request::Progress& progress = request.progress_;
  progress.piece = 0;
  if (progress.leader == &request && progress.sequence < 0) KVANT_TRY(StartPrompt(request));
  if (progress.sequence < 0 || budget <= 0) return {};
  const std::span<const TokenId> prompt = request.prompt();
  const int64_t left = std::ssize(prompt) - progress.done;
  const PromptCut cut = host_.prompt_cut();
  if (left > 0) {
    if (request.service_.prompt_piece > 0) {
      progress.piece = std::min(left, request.service_.prompt_piece);
    } else {
      // The tokens after a known prefix are cut in the same way whether it is still known or not.
      const int64_t prefix = request.reused_;
      const int64_t done = progress.done;
      if (done < prefix) {
        progress.piece = LongPiece(cut, prefix - done, budget);
      } else if (budget == kUnlimited) {
        progress.piece = left;
      } else {
        progress.piece = cut.Next(std::ssize(prompt) - prefix, done - prefix, budget);
      }
    }
    inputs_.push_back(
        {progress.sequence,
         prompt.subspan(static_cast<size_t>(progress.done), static_cast<size_t>(progress.piece)),
         progress.piece == left ? Logits::kLast : Logits::kNone});
  } else if (progress.done < PromptTokens(request)) {
    // Tokens that the request had chosen itself: the first time they were computed few at a time,
    // so they are again.
    const auto again = request.recompute().subspan(static_cast<size_t>(-left));
    progress.piece = std::min({std::ssize(again), cut.few_rows, budget});
    inputs_.push_back(
        {progress.sequence, again.first(static_cast<size_t>(progress.piece)), Logits::kNone});
  }
  if (budget != kUnlimited) budget -= progress.piece;
  return {};
}

Status Scheduler::RunStep(size_t first) {
  statuses_.assign(inputs_.size(), Status());
  StepOptions options;
  options.rows = [this](size_t input, int64_t token, std::span<const float> logits) {
    return owners_[input]->TakeRow(token, logits);
  };
  options.statuses = statuses_;
  const auto start = std::chrono::steady_clock::now();
  const Status status = host_.Step(inputs_, options);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (size_t i = first; i < running_.size(); ++i) {
    if (running_[i]->took_part_) running_[i]->Spend(seconds);
  }
  return status;
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
  for (size_t i = first; i < running_.size();) {
    Request& request = *running_[i];
    const Status status = AdvanceOne(request);
    if (IsCancelled(status)) return status;
    if (status.ok() && !request.done()) {
      ++i;
      continue;
    }
    KVANT_TRY(Remove(request, status));
  }
  return {};
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
