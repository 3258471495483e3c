// Serves many requests on one host of sequences.
//
// A round (Poll) lets waiting requests begin where there is room, makes one step of what all of
// them want, and hands each its logits. Requests come and go between rounds. Drain makes rounds
// until no request is left; Serve makes rounds until Stop and sleeps while there is nothing to do.
// Every other loop over requests in kvant is one of the two.
//
// Long prompts can be taken in slices beside the others' tokens, of so many tokens or of so much
// time. Slices are cut so that load never changes a bit of what a request gets (PromptCut). Slices
// go in turn to the prompt that came first and to the one that has the least left, so that a long
// prompt does not keep a short one waiting, nor short ones a long one. A prompt whose beginning
// another one is just computing waits for it, where the host keeps prefixes.
//
// Where memory is full, guesses are dropped first; then the request that came last waits, and is
// computed again from its tokens when another has ended.
//
// A request that is computed again has the bits of the first time, in the same cut. With known
// prefixes (SessionOptions::prefix_cache) there is one exception, which SessionOptions::strict
// excludes. Where blocks of the request's prefix were given up while it waited, or the sequence
// that it shared the last of them with has ended, they are computed in long pieces, or in a short
// one if the prefix is shorter. The bits are those of before if the sequence that made the blocks
// known computed them in such pieces; a prefix from a short prompt or from generated tokens may
// differ in its last bits.
//
// Thread-safety: one thread serves: it makes the rounds, and only it may call what stands under
// "The serving thread". Any thread may call what stands under "Any thread", and Request::Cancel.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kvant/request.h"
#include "kvant/result.h"
#include "kvant/sequence_host.h"

namespace kvant {

struct SchedulerOptions {
  // How many tokens of prompts a round may process beside those of running requests. A piece of a
  // long chunk cannot be shorter than kSharedRowsMax + 1 tokens. 0: prompts go first, as a whole,
  // unless `stall` limits them.
  int64_t prompt_slice = 0;
  // How many seconds the prompts of a round may keep running requests waiting. The scheduler learns
  // how long a token of a prompt takes; a round processes at least kSharedRowsMax + 1 of them. 0:
  // no limit.
  double stall = 0;
  size_t requests_max = SIZE_MAX;  // under way at the same time
  size_t queue_max = SIZE_MAX;     // waiting at the same time; of shared requests
  // For so many seconds that a request has waited, it goes before requests of one more priority. 0:
  // it never does.
  double ageing = 0;
  const std::atomic<bool>* cancel = nullptr;  // set: Poll returns kCancelled before its step
  // The time in seconds, which never goes back. Empty: a steady clock.
  std::function<double()> clock = {};
};

struct DrainOptions {
  // Drain returns the status of the first request that fails, at once. false: the others go on.
  bool ends_on_failure = true;
  // Where the cancel flag ends a round, CancelAll is called, so that texts that have begun hand
  // over what they have. false: they stay as they are, and may go on later.
  bool cancels = true;
  // Called after each round; an error ends Drain. May be empty.
  std::function<Status()> after_round = {};
};

// The work that a scheduler has done and is doing. Counts are since its creation unless they say
// "now".
struct SchedulerCounters {
  int64_t waiting = 0;    // now: in the queue, those included that wait again for memory
  int64_t preempted = 0;  // now: of those, the ones that had begun
  int64_t running = 0;    // now: begun, in their prompts or texts
  uint64_t submitted = 0;
  uint64_t ended = 0;      // all that have ended; of these
  uint64_t failed = 0;     //   with an error other than kCancelled,
  uint64_t cancelled = 0;  //   and cancelled
  uint64_t refused = 0;    // by queue_max
  uint64_t preemptions = 0;
  uint64_t tokens_prefilled = 0;  // of prompts, those computed again included
  uint64_t tokens_reused = 0;     // of prompts, from known prefixes
  uint64_t tokens_generated = 0;  // rows of steps of running requests, guesses included
  uint64_t rounds = 0;            // with a step
  uint64_t parts = 0;             // requests in these steps, summed over all rounds
  // Seconds of steps. A step of prompts and texts counts for both, by their numbers of tokens.
  double prefill_seconds = 0;
  double decode_seconds = 0;
  BlockCounts blocks = {};  // now; at most 50 ms old
};

class PromptTurns;

class Scheduler {
 public:
  // The host must outlive the scheduler.
  Scheduler(SequenceHost& host, const SchedulerOptions& options);
  // Frees the sequences of requests that have not ended.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // ---- Any thread ----

  // Adds a new request to the inbox, which the next round reads; the scheduler shares it until it
  // has ended. kBusy where queue_max requests are waiting; the request is as it was then.
  Status Submit(std::shared_ptr<Request> request, const Service& service = {});
  // Adds several at once, all or none, as neighbours in the queue. The last of them may be more
  // than queue_max.
  Status Submit(std::span<const std::shared_ptr<Request>> requests, const Service& service);
  // Ends Serve after the round under way. Requests that have not ended are cancelled; their End is
  // called. The scheduler takes no requests from other threads any more.
  void Stop();
  // As of the last round.
  SchedulerCounters counters() const;

  // ---- The serving thread ----

  // Adds a request to the queue. It must be new, and live until it has ended.
  void Submit(Request& request, const Service& service = {});
  // Ends a request with kCancelled, if it has not ended yet. Only between rounds.
  Status Cancel(Request& request);
  // Cancels the requests that have begun, in that order, and forgets those that have not.
  Status CancelAll();

  // Makes one round. Returns kCancelled, or an error of the host that concerns no single request;
  // the requests are then as they were before the step.
  Status Poll();
  bool idle() const;

  // Makes rounds until no request is left, see DrainOptions. Returns an error of Poll as well.
  Status Drain(const DrainOptions& options = {});

  // Makes rounds as long as there are requests, and sleeps while there are none, until Stop. Single
  // requests may fail. An error of the host ends all requests with it and is returned.
  Status Serve();

  // Whether the last round was ended by a request's End.
  bool refused() const { return refused_; }
  // The status of the first request that ended with an error other than kCancelled; ok if none did.
  const Status& first_failure() const { return first_failure_; }

 private:
  struct Arrival {
    std::shared_ptr<Request> request;
    Service service;
  };

  double Now() const;
  void Enqueue(Request& request, const Service& service);
  void ReadInbox();
  Status EndAsAsked();
  Status EndAll(const Status& status);
  Status Withdraw(Request& request, Status status);
  Status Admit();
  size_t FamilyAtFront() const;
  bool HasRoom(size_t family) const;
  Status Open(size_t first);
  Status StepFrom(size_t first);
  Status Gather(size_t first);
  Result<bool> AddInputs(Request& request, int64_t* budget);
  Result<SequenceId> NewSequenceFor(const Request& request);
  Status StartPrompt(Request& request);
  Status FindPrefixAgain(Request& request);
  int64_t PromptPiece(const Request& request, int64_t budget) const;
  Status AddPromptPiece(Request& request, int64_t& budget);
  Status RunStep(size_t first);
  Status Retry(size_t first, const Status& status);
  Status MakeRoom(const Status& status);
  void SendBack(Request& request);
  void AfterPrompt(Request& request);
  Status AdvanceFrom(size_t first);
  void ChooseApart(size_t first);
  Status AdvanceOne(Request& request);
  Status Remove(Request& request, Status status);
  int64_t PromptTokens(const Request& request) const;
  bool has_slices() const { return options_.prompt_slice > 0 || options_.stall > 0; }
  void CountStep(double seconds);
  void Publish();

  SequenceHost& host_;
  SchedulerOptions options_;
  std::deque<Request*> waiting_;
  std::vector<Request*> running_;  // in the order in which they began
  std::unique_ptr<PromptTurns> turns_;
  bool full_ = false;  // memory is full, so that nothing begins until a request ends
  bool refused_ = false;
  Status first_failure_;

  // The step under way:
  std::vector<StepInput> inputs_;
  std::vector<Request*> owners_;  // by input
  std::vector<Request*> apart_;   // in ChooseApart
  std::vector<Status> statuses_;  // by input
  int64_t round_budget_ = 0;      // tokens of prompts

  SchedulerCounters counted_;     // by the serving thread
  double stepped_at_ = 0;         // when the last step ended
  double blocks_counted_at_ = 0;  // when `counted_.blocks` were counted

  // Shared by threads, under the mutex:
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Arrival> inbox_;
  bool stopping_ = false;
  SchedulerCounters published_;
  std::atomic<size_t> inbox_size_ = 0;
};

}  // namespace kvant
