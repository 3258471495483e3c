// Serves many requests with one host of sequences: each is a text, or a search with several beams,
// that says which tokens it wants processed next and chooses more from their logits.
//
// A round (Poll) lets waiting requests begin where there is room, makes one step of what all of
// them want, and hands each its logits. Requests come and go between rounds. Long prompts can be
// taken in slices beside the others' tokens; they are cut so that load never changes a bit of what
// a request gets (PromptCut). Where memory is full, guesses are dropped first; then the request
// that came last waits, and is computed again from its tokens when another has ended.
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
  // That many tokens of the prompt it holds already: all but the last at most.
  int64_t done = 0;
  // The prompt is processed in pieces of so many tokens, whatever the scheduler's options; 0: not.
  int64_t prompt_piece = 0;
};

// What the scheduler asks of a request. An error that a function returns ends the request with it;
// kCancelled ends the round.
class Request {
 public:
  enum class State : uint8_t {
    kNew,
    kWaiting,  // for room
    kPrompt,   // its tokens are being processed
    kRunning,
    kEnded,
  };
  virtual ~Request() = default;

  State state() const { return state_; }
  // Of a request that has ended: ok, or why it ended before it was done.
  const Status& status() const { return status_; }

 protected:
  // Sequences that it may hold at the same time.
  virtual int64_t sequences() const { return 1; }
  virtual std::span<const TokenId> prompt() const = 0;
  // Neighbours in the queue with the same family, not null, have the same prompt: it is processed
  // once, and forked.
  virtual const void* family() const { return nullptr; }
  // It is about to begin, or to begin again.
  virtual Status Prepare() { return {}; }
  // So many tokens of the prompt are processed.
  virtual void PromptDone(int64_t tokens) { (void)tokens; }
  // The sequence with its prompt, and what it gave up in Preempt, is the request's from now on.
  virtual void Begin(SequenceId sequence) = 0;
  // Adds what it wants processed, at least a token.
  virtual Status AddInputs(SequenceHost& host, std::vector<StepInput>& inputs) = 0;
  // The logits of a token of an input that wants all.
  virtual Status TakeRow(int64_t token, std::span<const float> logits) {
    (void)token, (void)logits;
    return {};
  }
  // The step is done: chooses what comes next from the logits of its sequences. Also after Begin,
  // but not when it begins again.
  virtual Status Advance(SequenceHost& host) = 0;
  virtual bool done() const = 0;
  // So much time was spent on a step that it took part in.
  virtual void Spend(double seconds) { (void)seconds; }

  // Memory is full. Whether the same step would take less now: the next AddInputs is that step.
  virtual bool SaveMemory() { return false; }
  // Whether it can wait: its sequences are released, and what recompute() returns is processed
  // after the prompt before it begins again.
  virtual bool Preempt() { return false; }
  virtual std::span<const TokenId> recompute() const { return {}; }
  // Memory is full, and nothing else can wait: the error, or ok where it ends well like that.
  virtual Status EndWithoutMemory(const Status& error) { return error; }

  // Frees the sequences that it holds, but for the one given as `kept`.
  virtual void Release(SequenceHost& host, std::optional<SequenceId> kept) = 0;
  // It has ended, and status() is set. kCancelled ends the round.
  virtual Status End() { return {}; }

 private:
  friend class Scheduler;

  // Its prompt's tokens and those to recompute, on the way to Begin.
  struct Progress {
    Request* leader = nullptr;  // whose prompt is forked; itself, if it processes its own
    SequenceId sequence = -1;   // -1: none yet
    int64_t done = 0;           // tokens processed
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
  // Tokens of prompts that a round may process beside those of running requests: what others wait
  // for at most, which is no less than a long piece of a prompt. 0: prompts go first, as a whole.
  int64_t prompt_slice = 0;
  size_t requests_max = SIZE_MAX;             // under way at the same time
  const std::atomic<bool>* cancel = nullptr;  // set: Poll returns kCancelled before its step
};

class Scheduler {
 public:
  // The host must outlive the scheduler.
  Scheduler(SequenceHost& host, const SchedulerOptions& options);
  // Frees what requests hold that have not ended.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // The request, a new one, must live until it has ended.
  void Submit(Request& request, const Service& service = {});
  // Ends a request that has not ended with kCancelled. Between rounds only.
  Status Cancel(Request& request);
  // Cancels all that have begun, in the order in which they did, and forgets the others.
  Status CancelAll();

  // One round. An error that is not a single request's: kCancelled, or what the host cannot do at
  // all. Requests are as they were before the step then.
  Status Poll();
  bool idle() const { return waiting_.empty() && running_.empty(); }

  // Whether the last round was ended by a request's End.
  bool refused() const { return refused_; }
  // How the first request ended that did not end well; ok while there is none.
  const Status& first_failure() const { return first_failure_; }

 private:
  Status Admit();
  size_t FamilyAtFront() const;
  bool HasRoom(size_t family) const;
  Status Open(size_t first);
  Status StepFrom(size_t first);
  Status Gather(size_t first);
  Status StartPrompt(Request& request);
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
  bool full_ = false;              // memory is, until a request ends
  bool refused_ = false;
  Status first_failure_;

  // Of the step under way.
  std::vector<StepInput> inputs_;
  std::vector<Request*> owners_;  // by input
  std::vector<Status> statuses_;  // by input
};

}  // namespace kvant
