#include "tools/serve/answer/embed_queue.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <span>
#include <utility>

#include "base/result.h"

namespace kvant::tools {
namespace {

Error QueueStops() { return {ErrorCode::kCancelled, "the server is stopping"}; }

bool CanShareAPass(const VectorOptions& a, const VectorOptions& b) {
  return a.normalize == b.normalize && a.dimensions == b.dimensions;
}

}  // namespace

EmbedQueue::EmbedQueue(std::unique_ptr<Embedder> embedder, size_t jobs_max)
    : embedder_(std::move(embedder)), jobs_max_(jobs_max), thread_([this] { Work(); }) {}

EmbedQueue::~EmbedQueue() { Stop(); }

// ---- Requests -----------------------------------------------------------------------------------

Status EmbedQueue::Submit(std::shared_ptr<EmbedJob> job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return QueueStops();
    if (jobs_.size() >= jobs_max_) {
      ++counters_.refused;
      return MakeError(ErrorCode::kBusy, "{} requests wait already", jobs_.size());
    }
    ++counters_.submitted;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  return {};
}

void EmbedQueue::Cancel(EmbedJob& job) {
  std::shared_ptr<EmbedJob> held;  // is given up without the lock
  const std::lock_guard lock(mutex_);
  if (std::exchange(job.is_gone, true)) return;
  const auto found = std::ranges::find(jobs_, &job, &std::shared_ptr<EmbedJob>::get);
  if (found != jobs_.end()) {
    held = std::move(*found);
    jobs_.erase(found);
  }
  const bool in_pass =
      std::ranges::find(in_pass_, &job, &std::shared_ptr<EmbedJob>::get) != in_pass_.end();
  if (held != nullptr && !in_pass) {
    ++counters_.ended;
    ++counters_.cancelled;
  }
  if (in_pass && std::ranges::all_of(in_pass_, [](const auto& one) { return one->is_gone; })) {
    cancel_ = true;
  }
}

SchedulerCounters EmbedQueue::counters() const {
  const std::lock_guard lock(mutex_);
  SchedulerCounters out = counters_;
  // Between two passes a job that has begun is in no pass.
  out.waiting = std::ranges::count(jobs_, size_t{0}, [](const auto& job) { return job->next; });
  const auto left = std::ranges::count_if(
      in_pass_, [](const auto& job) { return job->next == job->texts.size() || job->is_gone; });
  out.running = std::ssize(jobs_) - out.waiting + left;
  return out;
}

void EmbedQueue::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    cancel_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// ---- The thread ---------------------------------------------------------------------------------

void EmbedQueue::Work() {
  while (true) {
    Pass pass;
    std::deque<std::shared_ptr<EmbedJob>> left;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) {
        left.swap(jobs_);
      } else {
        pass = Gather();
      }
    }
    if (pass.parts.empty()) {
      for (const auto& job : left) End(job, QueueStops());
      return;
    }
    Compute(pass);
  }
}

// Takes texts from the jobs in turn, beginning with the first job, which then is the last. Jobs
// without texts left leave the queue.
EmbedQueue::Pass EmbedQueue::Gather() {
  Pass pass;
  std::vector<size_t> taken(jobs_.size());
  const VectorOptions& options = jobs_.front()->options;
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < jobs_.size(); ++i) {
      const EmbedJob& job = *jobs_[i];
      const size_t next = job.next + taken[i];
      if (next == job.texts.size() || !CanShareAPass(job.options, options)) continue;
      const int64_t tokens = std::ssize(job.texts[next].ids);
      if (pass.tokens > 0 && pass.tokens + tokens > kDefaultEmbedRows) continue;
      pass.tokens += tokens;
      ++taken[i];
      more = true;
    }
  }
  for (size_t i = 0; i < taken.size(); ++i) {
    if (taken[i] == 0) continue;
    EmbedJob& job = *jobs_[i];
    pass.parts.push_back({jobs_[i], pass.texts.size(), taken[i]});
    const auto texts = std::span(job.texts).subspan(job.next, taken[i]);
    std::ranges::move(texts, std::back_inserter(pass.texts));
    job.next += taken[i];
    in_pass_.push_back(jobs_[i]);
  }
  std::ranges::rotate(jobs_, jobs_.begin() + 1);
  std::erase_if(jobs_, [](const auto& job) { return job->next == job->texts.size(); });
  cancel_ = stopping_;
  return pass;
}

// An error is that of one text, so that where a pass fails each job is computed alone.
void EmbedQueue::Compute(const Pass& pass) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Status> results(pass.parts.size(), ComputePart(pass, pass.parts));
  const bool failed = !results.front().ok();
  const bool is_cancelled = failed && results.front().error().code == ErrorCode::kCancelled;
  for (size_t i = 0; failed && !is_cancelled && pass.parts.size() > 1 && i < results.size(); ++i) {
    results[i] = ComputePart(pass, std::span(pass.parts).subspan(i, 1));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::vector<std::pair<std::shared_ptr<EmbedJob>, Status>> ended;
  {
    const std::lock_guard lock(mutex_);
    in_pass_.clear();
    ++counters_.rounds;
    counters_.tokens_prefilled += static_cast<uint64_t>(pass.tokens);
    counters_.prefill_seconds += seconds.count();
    for (size_t i = 0; i < results.size(); ++i) {
      const std::shared_ptr<EmbedJob>& job = pass.parts[i].job;
      const bool has_all = job->rows.size() == job->texts.size();
      if (!job->is_gone && results[i].ok() && !has_all) continue;
      std::erase(jobs_, job);
      ended.emplace_back(job, stopping_ && !results[i].ok() ? QueueStops() : results[i]);
    }
  }
  for (const auto& [job, status] : ended) End(job, status);
}

// Computes the texts of these parts, which lie side by side, and gives each job what is its own.
Status EmbedQueue::ComputePart(const Pass& pass, std::span<const Part> parts) {
  const size_t first = parts.front().first;
  const auto texts =
      std::span(pass.texts).subspan(first, parts.back().first + parts.back().count - first);
  std::vector<float> values;
  std::vector<int64_t> rows(texts.size(), 1);
  if (embedder_->pooling() == Pooling::kRank) {
    KVANT_ASSIGN(Ranking made, embedder_->Rank(texts, &cancel_));
    values = std::move(made.logits);
  } else {
    const VectorOptions& options = parts.front().job->options;
    KVANT_ASSIGN(Embeddings made, embedder_->Embed(texts, options, &cancel_));
    values = std::move(made.values);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = made.first_rows[i + 1] - made.first_rows[i];
    }
  }
  int64_t all_rows = 0;
  for (const int64_t count : rows) all_rows += count;
  const auto columns = values.size() / static_cast<size_t>(all_rows);
  size_t at = 0;
  for (const Part& part : parts) {
    const auto of_part = std::span(rows).subspan(part.first - first, part.count);
    size_t count = 0;
    for (const int64_t one : of_part) count += static_cast<size_t>(one) * columns;
    const auto begin = values.begin() + static_cast<int64_t>(at);
    EmbedJob& job = *part.job;
    job.values.insert(job.values.end(), begin, begin + static_cast<int64_t>(count));
    job.rows.insert(job.rows.end(), of_part.begin(), of_part.end());
    at += count;
  }
  return {};
}

void EmbedQueue::End(const std::shared_ptr<EmbedJob>& job, const Status& status) {
  bool is_gone = false;
  {
    const std::lock_guard lock(mutex_);
    is_gone = job->is_gone;
  }
  if (!is_gone) job->done(status, std::move(job->values), std::move(job->rows));
  const std::lock_guard lock(mutex_);
  ++counters_.ended;
  if (is_gone) ++counters_.cancelled;
  if (!is_gone && !status.ok() && status.error().code != ErrorCode::kCancelled) ++counters_.failed;
}

}  // namespace kvant::tools
