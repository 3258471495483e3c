// Serves many requests on one host of sequences. A request is a text, or a search with several
// beams: it says which tokens it wants processed next and chooses more from their logits.
//
// A round (Poll) lets waiting requests begin where there is room, makes one step of what all of
// them want, and hands each its logits. Requests come and go between rounds. Long prompts can be
// taken in slices beside the others' tokens; they are cut so that load never changes a bit of what
// a request gets (PromptCut). Where memory is full, guesses are dropped first; then the request
// that came last waits, and is computed again from its tokens when another has ended.
//
// A request that is computed again has the bits of the first time, in the same cut. With known
// prefixes (SessionOptions::prefix_cache) there is one exception, which SessionOptions::strict
// excludes. Where blocks of the request's prefix were given up while it waited, they are computed
// in long pieces, or in a short one if the prefix is shorter. The bits are those of before if the
// sequence that made the blocks known computed them in such pieces; a prefix from a short prompt or
// from generated tokens may differ in its last bits.
//
// Thread-safety: one thread; only the cancel flag may be set by others.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "kvant/result.h"
#include "kvant/sequence_host.h"

namespace kvant {

// How a request is served.
struct Service {
  int priority = 0;  // higher ones begin first, equal ones in the order in which they came
  // A sequence that is there before and after the request, instead of one of its own.
  std::optional<SequenceId> sequence = {};
  // How many tokens of the prompt that sequence holds already; never the last one.
  int64_t done = 0;
  // If not 0, the prompt is processed in pieces of this many tokens, whatever the scheduler's
  // options.
  int64_t prompt_piece = 0;
};

// The interface between the scheduler and a request. An error that a function returns ends the
// request with it; kCancelled ends the round.
class Request {
 public:
  enum class State : uint8_t {
    kNew,
    kWaiting,  // in the queue, until there is room
    kPrompt,   // its prompt is being processed
    kRunning,
    kEnded,
  };
  virtual ~Request() = default;

  State state() const { return state_; }
  // After the end: ok, or why the request ended before it was done.
  const Status& status() const { return status_; }

 protected:
  // The most sequences that it holds at the same time.
  virtual int64_t sequences() const { return 1; }
  virtual std::span<const TokenId> prompt() const = 0;
  // The text that an encoder reads before the prompt. Empty: there is none.
  virtual std::span<const TokenId> source() const { return {}; }
  // The frames of features that an encoder reads before the prompt. Empty: there are none.
  virtual std::span<const float> frames() const { return {}; }
  // Requests that are neighbours in the queue and return the same family, not null, have the same
  // source and prompt: it is processed once, and its sequence forked for each.
  virtual const void* family() const { return nullptr; }
  // Called before the request begins, or begins again.
  virtual Status Prepare() { return {}; }
  // Called when the first `tokens` tokens of the prompt are processed.
  virtual void PromptDone(int64_t tokens) { (void)tokens; }
  // Gives the request its sequence, which holds the prompt and what recompute() returned.
  virtual void Begin(SequenceId sequence) = 0;
  // Adds the inputs that it wants processed in the next step, of at least one token together.
  virtual Status AddInputs(SequenceHost& host, std::vector<StepInput>& inputs) = 0;
  // Called with the logits of each token of an input that asks for all.
  virtual Status TakeRow(int64_t token, std::span<const float> logits) {
    (void)token, (void)logits;
    return {};
  }
  // Called after each step, to choose what comes next from the logits of its sequences, and after
  // Begin, unless the request begins again.
  virtual Status Advance(SequenceHost& host) = 0;
  virtual bool done() const = 0;
  // Called with the time that a step took that had inputs of this request.
  virtual void Spend(double seconds) { (void)seconds; }

  // Called when memory is full. Returns true if the request now wants less for the same step, such
  // as no guesses; AddInputs is called again.
  virtual bool SaveMemory() { return false; }
  // Called when memory is full. Returns true if the request can wait: then its sequences are
  // released, and before it begins again its prompt and the tokens of recompute() are processed.
  virtual bool Preempt() { return false; }
  virtual std::span<const TokenId> recompute() const { return {}; }
  // Called when memory is full and nothing else can wait. Returns the error that the request ends
  // with, or ok where what it has counts as a result.
  virtual Status EndWithoutMemory(const Status& error) { return error; }

  // Frees the sequences that it holds, except `kept`.
  virtual void Release(SequenceHost& host, std::optional<SequenceId> kept) = 0;
  // Called when the request has ended and status() is set. Returning kCancelled ends the round.
  virtual Status End() { return {}; }

 private:
  friend class Scheduler;

  // How far the prompt and the tokens to recompute are processed, until Begin.
  struct Progress {
    Request* leader = nullptr;  // the request whose prompt is forked for it; itself if none
    SequenceId sequence = -1;   // -1: none yet
    int64_t kept = 0;           // tokens of a known prefix that it did not have to process
    int64_t done = 0;           // tokens processed, those included
    int64_t piece = 0;          // in the step under way
  };

  State state_ = State::kNew;
  Status status_;
  Service service_;
  Progress progress_;
  int64_t reused_ = 0;      // tokens that the prefix index knew when it first began
  bool has_begun_ = false;  // at some time
  bool took_part_ = false;  // in the last step
};

struct SchedulerOptions {
  // How many tokens of prompts a round may process beside those of running requests. A piece of a
  // long chunk cannot be shorter than kSharedRowsMax + 1 tokens. 0: prompts go first, as a whole.
  int64_t prompt_slice = 0;
  size_t requests_max = SIZE_MAX;             // under way at the same time
  const std::atomic<bool>* cancel = nullptr;  // set: Poll returns kCancelled before its step
};

class Scheduler {
 public:
  // The host must outlive the scheduler.
  Scheduler(SequenceHost& host, const SchedulerOptions& options);
  // Frees the sequences of requests that have not ended.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Adds a request to the queue. It must be new, and live until it has ended.
  void Submit(Request& request, const Service& service = {});
  // Ends a request with kCancelled, if it has not ended yet. Only between rounds.
  Status Cancel(Request& request);
  // Cancels the requests that have begun, in that order, and forgets those that have not.
  Status CancelAll();

  // Makes one round. Returns kCancelled, or an error of the host that concerns no single request;
  // the requests are then as they were before the step.
  Status Poll();
  bool idle() const { return waiting_.empty() && running_.empty(); }

  // Whether the last round was ended by a request's End.
  bool refused() const { return refused_; }
  // The status of the first request that ended with an error other than kCancelled; ok if none did.
  const Status& first_failure() const { return first_failure_; }

 private:
  Status Admit();
  size_t FamilyAtFront() const;
  bool HasRoom(size_t family) const;
  Status Open(size_t first);
  Status StepFrom(size_t first);
  Status Gather(size_t first);
  Result<SequenceId> NewSequenceFor(const Request& request);
  Status StartPrompt(Request& request);
  Status FindPrefixAgain(Request& request);
  Status AddPromptPiece(Request& request, int64_t& budget);
  Status RunStep(size_t first);
  Status Retry(size_t first, const Status& status);
  Status MakeRoom(const Status& status);
  void SendBack(Request& request);
  void AfterPrompt(Request& request);
  Status AdvanceFrom(size_t first);
  Status AdvanceOne(Request& request);
  Status Remove(Request& request, Status status);
  int64_t PromptTokens(const Request& request) const;

  SequenceHost& host_;
  SchedulerOptions options_;
  std::deque<Request*> waiting_;
  std::vector<Request*> running_;  // in the order in which they began
  bool full_ = false;              // memory is full, so that nothing begins until a request ends
  bool refused_ = false;
  Status first_failure_;

  // The step under way:
  std::vector<StepInput> inputs_;
  std::vector<Request*> owners_;  // by input
  std::vector<Status> statuses_;  // by input
};

}  // namespace kvant
