// The queue, the rounds and the loops of a scheduler; its steps are in scheduler_steps.cpp.
#include "kvant/scheduler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/result.h"
#include "engine/generate/prompt_turns.h"

namespace kvant {
namespace {

// Counting blocks takes longer than a step of a small model, so it is not done in every round.
constexpr double kBlocksEvery = 0.05;  // seconds

Error Cancelled() { return MakeError(ErrorCode::kCancelled, "cancelled"); }

}  // namespace

Scheduler::Scheduler(SequenceHost& host, const SchedulerOptions& options)
    : host_(host),
      options_(options),
      turns_(std::make_unique<PromptTurns>(options.prompt_slice, options.stall)) {}

Scheduler::~Scheduler() {
  for (Request* request : running_) SendBack(*request);
  for (Request* request : running_) request->owner_.reset();
  for (Request* request : waiting_) request->owner_.reset();
}

double Scheduler::Now() const {
  if (options_.clock) return options_.clock();
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

// ---- Any thread ---------------------------------------------------------------------------------

Status Scheduler::Submit(std::shared_ptr<Request> request, const Service& service) {
  return Submit(std::span(&request, 1), service);
}

Status Scheduler::Submit(std::span<const std::shared_ptr<Request>> requests,
                         const Service& service) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return MakeError(ErrorCode::kCancelled, "the scheduler has stopped");
    const size_t waiting = static_cast<size_t>(published_.waiting) + inbox_.size();
    if (waiting >= options_.queue_max) {
      ++published_.refused;
      return MakeError(ErrorCode::kBusy, "the queue is full: {} requests are waiting", waiting);
    }
    // The place in the queue and the deadline count from now on, not from the next round.
    const double place = options_.ageing > 0 || service.seconds_max > 0 ? Now() : 0;
    for (const std::shared_ptr<Request>& request : requests) {
      request->place_ = place;
      inbox_.push_back({request, service});
    }
    inbox_size_.store(inbox_.size());
  }
  arrived_.notify_one();
  return {};
}

void Scheduler::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_all();
}

SchedulerCounters Scheduler::counters() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

// ---- Requests -----------------------------------------------------------------------------------

void Scheduler::Submit(Request& request, const Service& service) {
  request.place_ = options_.ageing > 0 || service.seconds_max > 0 ? Now() : 0;
  Enqueue(request, service);
}

// `place_` is the time at which the request came, where a time is needed.
void Scheduler::Enqueue(Request& request, const Service& service) {
  ++counted_.submitted;
  request.state_ = Request::State::kWaiting;
  request.service_ = service;
  const double came = request.place_;
  if (service.seconds_max > 0) request.deadline_ = came + service.seconds_max;
  // A second of waiting is worth 1 / ageing of a priority; all requests age alike, so the order of
  // two never changes.
  request.place_ = options_.ageing > 0 ? service.priority * options_.ageing - came
                                       : static_cast<double>(service.priority);
  const auto place = std::find_if(waiting_.begin(), waiting_.end(), [&](const Request* other) {
    return other->place_ < request.place_;
  });
  waiting_.insert(place, &request);
}

void Scheduler::ReadInbox() {
  if (inbox_size_.load() == 0) return;
  std::vector<Arrival> arrivals;
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(inbox_);
    inbox_size_.store(0);
    published_.waiting += std::ssize(arrivals);
  }
  for (Arrival& arrival : arrivals) {
    Request& request = *arrival.request;
    request.owner_ = std::move(arrival.request);
    Enqueue(request, arrival.service);
  }
}

// Ends a request that is waiting or running; others are left alone.
Status Scheduler::Withdraw(Request& request, Status status) {
  const auto waiting = std::find(waiting_.begin(), waiting_.end(), &request);
  if (waiting != waiting_.end()) {
    waiting_.erase(waiting);
    running_.push_back(&request);  // so that it ends like any other
  }
  if (std::find(running_.begin(), running_.end(), &request) == running_.end()) return {};
  return Remove(request, std::move(status));
}

Status Scheduler::Cancel(Request& request) { return Withdraw(request, Cancelled()); }

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

// Ends the requests whose cancellation was asked for by any thread, and those whose time is over.
Status Scheduler::EndAsAsked() {
  double now = 0;
  const auto is_over = [&](const Request& request) {
    if (request.deadline_ == 0) return false;
    if (now == 0) now = Now();
    return now >= request.deadline_;
  };
  const auto next = [&](const auto& requests) -> Request* {
    const auto found = std::find_if(requests.begin(), requests.end(), [&](Request* request) {
      return request->cancel_asked_.load(std::memory_order_relaxed) || is_over(*request);
    });
    return found == requests.end() ? nullptr : *found;
  };
  while (true) {
    Request* request = next(running_);
    if (request == nullptr) request = next(waiting_);
    if (request == nullptr) return {};
    if (request->cancel_asked_.load(std::memory_order_relaxed)) {
      KVANT_TRY(Cancel(*request));
      continue;
    }
    const double allowed = request->service_.seconds_max;
    KVANT_TRY(Withdraw(*request,
                       request->EndAtDeadline(MakeError(
                           ErrorCode::kDeadline, "the {} s that were allowed are over", allowed))));
  }
}

// Ends all requests with a status, those in the inbox as well.
Status Scheduler::EndAll(const Status& status) {
  ReadInbox();
  while (!running_.empty()) (void)Withdraw(*running_.front(), status);
  while (!waiting_.empty()) (void)Withdraw(*waiting_.front(), status);
  return status;
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
  ++counted_.ended;
  if (request.status_.Is(ErrorCode::kCancelled)) {
    ++counted_.cancelled;
  } else if (!request.status_.ok()) {
    ++counted_.failed;
    if (first_failure_.ok()) first_failure_ = request.status_;
  }
  const std::shared_ptr<Request> owner = std::move(request.owner_);  // until the end of this call
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

bool Scheduler::idle() const {
  return waiting_.empty() && running_.empty() && inbox_size_.load() == 0;
}

Status Scheduler::Poll() {
  ReadInbox();
  const auto round = [this]() -> Status {
    KVANT_TRY(EndAsAsked());
    KVANT_TRY(Admit());
    if (running_.empty()) return {};
    if (options_.cancel != nullptr && options_.cancel->load()) return Cancelled();
    KVANT_TRY(StepFrom(0));
    return AdvanceFrom(0);
  };
  Status status = round();
  Publish();
  return status;
}

void Scheduler::Publish() {
  counted_.waiting = std::ssize(waiting_);
  counted_.running = std::ssize(running_);
  counted_.preempted = std::count_if(waiting_.begin(), waiting_.end(),
                                     [](const Request* request) { return request->has_begun_; });
  if (stepped_at_ - blocks_counted_at_ >= kBlocksEvery || running_.empty()) {
    counted_.blocks = host_.block_counts();
    blocks_counted_at_ = stepped_at_;
  }
  const std::lock_guard lock(mutex_);
  counted_.refused = published_.refused;
  published_ = counted_;
}

Status Scheduler::Drain(const DrainOptions& options) {
  while (!idle()) {
    const Status status = Poll();
    if (options.after_round) KVANT_TRY(options.after_round());
    if (options.ends_on_failure && !first_failure_.ok()) return first_failure_;
    if (status.ok()) continue;
    if (options.cancels && status.Is(ErrorCode::kCancelled) && !refused_) KVANT_TRY(CancelAll());
    return status;
  }
  return {};
}

Status Scheduler::Serve() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      arrived_.wait(lock, [this] {
        return stopping_ || !inbox_.empty() || !waiting_.empty() || !running_.empty();
      });
      if (stopping_) break;
    }
    const Status status = Poll();
    if (!status.ok() && !std::exchange(refused_, false)) {
      Stop();
      (void)EndAll(status);
      Publish();
      return status;
    }
  }
  (void)EndAll(Cancelled());
  Publish();
  return {};
}

// ---- The queue ----------------------------------------------------------------------------------

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
    if (has_slices()) continue;
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

}  // namespace kvant
