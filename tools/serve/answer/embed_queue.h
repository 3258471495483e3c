// The texts of all clients on their way to vectors or scores, and the thread that computes them.
//
// A pass takes one text after the other from every request in turn, until it is full: a request of
// many texts keeps no other one waiting, and short ones are computed together. The company of a
// text changes none of its bits. A request whose client has gone is forgotten.
//
// Thread-safety: any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "kvant/embed.h"
#include "kvant/result.h"
#include "kvant/scheduler.h"

namespace kvant::tools {

// A request on its way. It is not changed by others once it is submitted.
struct EmbedJob {
  std::vector<EmbedTokens> texts;
  VectorOptions options = {};  // without effect where the model ranks
  // Called once by the queue's thread, unless the job is cancelled before. `values` are the vectors
  // or logits of the texts in their order, and `rows` how many of them each text has.
  std::function<void(const Status& status, std::vector<float> values, std::vector<int64_t> rows)>
      done;

  // The queue's own:
  size_t next = 0;  // the first text that is not computed yet
  std::vector<float> values = {};
  std::vector<int64_t> rows = {};
  bool is_gone = false;
};

class EmbedQueue {
 public:
  // The thread begins at once. At most `jobs_max` requests wait.
  EmbedQueue(std::unique_ptr<Embedder> embedder, size_t jobs_max);
  ~EmbedQueue();
  EmbedQueue(const EmbedQueue&) = delete;
  EmbedQueue& operator=(const EmbedQueue&) = delete;

  const Embedder& embedder() const { return *embedder_; }

  // kBusy where too many wait; kCancelled once the queue has stopped.
  Status Submit(std::shared_ptr<EmbedJob> job);
  // Forgets a job, in the middle of a pass if that is its alone.
  void Cancel(EmbedJob& job);
  SchedulerCounters counters() const;
  // Ends all jobs with kCancelled, and the thread.
  void Stop();

 private:
  // Texts of a job that are in the pass.
  struct Part {
    std::shared_ptr<EmbedJob> job;
    size_t first = 0;  // in the pass
    size_t count = 0;
  };
  struct Pass {
    std::vector<EmbedTokens> texts;
    std::vector<Part> parts;
    int64_t tokens = 0;
  };

  void Work();
  Pass Gather();
  void Compute(const Pass& pass);
  Status ComputePart(const Pass& pass, std::span<const Part> parts);
  void End(const std::shared_ptr<EmbedJob>& job, const Status& status);

  const std::unique_ptr<Embedder> embedder_;
  const size_t jobs_max_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<EmbedJob>> jobs_;  // that have texts left, whose turn it is first
  std::vector<std::shared_ptr<EmbedJob>> in_pass_;
  SchedulerCounters counters_;
  bool stopping_ = false;
  std::atomic<bool> cancel_ = false;  // nobody waits for the pass any more
  std::thread thread_;
};

}  // namespace kvant::tools
