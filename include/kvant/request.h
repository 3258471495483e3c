// A request to a scheduler (include/kvant/scheduler.h): a text, or a search with several beams. It
// says which tokens it wants processed next and chooses more from their logits.
//
// Thread-safety: the scheduler calls a request from one thread, the one that serves. Other threads
// may call Cancel at any time. They may read what a request has made after it told them that it
// ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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
  // Whether the beginning of the prompt is taken from known prefixes, where the host keeps some.
  bool reuses_prefix = true;
  // The request ends so many seconds after it was submitted at the latest: with kDeadline if it has
  // not begun, and with what it has made if it has (Request::EndAtDeadline). 0: there is no limit.
  double seconds_max = 0;
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
  Request() = default;
  virtual ~Request() = default;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  State state() const { return state_; }
  // After the end: ok, or why the request ended before it was done.
  const Status& status() const { return status_; }
  // Tokens of the prompt that the host knew when the request first began.
  int64_t reused_tokens() const { return reused_; }

  // Ends the request with kCancelled before the next step. Any thread may call this.
  void Cancel() { cancel_asked_.store(true, std::memory_order_relaxed); }

 protected:
  // The most sequences that it holds at the same time.
  virtual int64_t sequences() const { return 1; }
  virtual std::span<const TokenId> prompt() const = 0;
  // The text that an encoder reads before the prompt. Empty: there is none.
  virtual std::span<const TokenId> source() const { return {}; }
  // The frames of features that an encoder reads before the prompt. Empty: there are none.
  virtual std::span<const float> frames() const { return {}; }
  // The adapters that its sequences use. kInvalid together with Service::sequence, which has
  // adapters of its own.
  virtual std::span<const AdapterUse> adapters() const { return {}; }
  // Requests that are neighbours in the queue and return the same family, not null, have the same
  // source and prompt: it is processed once, and its sequence forked for each.
  virtual const void* family() const { return nullptr; }
  // Called before the request begins, or begins again.
  virtual Status Prepare() { return {}; }
  // Whether TakePromptRow wants the logits of all tokens of the prompt. No prefix is reused then.
  virtual bool wants_prompt_rows() const { return false; }
  // Called with the logits of a token of the prompt, by its number, as it is processed. A step that
  // is undone calls it again with the same.
  virtual Status TakePromptRow(int64_t token, std::span<const float> logits) {
    (void)token, (void)logits;
    return {};
  }
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
  // Whether ChooseApart may run after this step; not where it would call code of the caller's.
  virtual bool chooses_apart() const { return false; }
  // Called before Advance where chooses_apart(), on any thread and beside those of other requests.
  // Does what Advance would do first with the logits, and changes nothing but the request.
  virtual void ChooseApart(const SequenceHost& host) { (void)host; }
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
  // Called when the deadline has passed. Returns what EndWithoutMemory does.
  virtual Status EndAtDeadline(const Status& error) { return error; }

  // Frees the sequences that it holds, except `kept`.
  virtual void Release(SequenceHost& host, std::optional<SequenceId> kept) = 0;
  // Called when the request has ended and status() is set. Returning kCancelled ends the round.
  virtual Status End() { return {}; }

 private:
  friend class Scheduler;
  friend class PromptTurns;

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
  double place_ = 0;        // in the queue: higher ones begin first
  double deadline_ = 0;     // by the scheduler's clock; 0: none
  int64_t reused_ = 0;      // tokens that the prefix index knew when it first began
  bool has_begun_ = false;  // at some time
  bool took_part_ = false;  // in the last step
  std::atomic<bool> cancel_asked_ = false;
  std::shared_ptr<Request> owner_;  // itself while a scheduler has it, if it was given shared
};

}  // namespace kvant
