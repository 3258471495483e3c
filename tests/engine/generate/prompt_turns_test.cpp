// Turns, limits and deadlines of a scheduler, on a host with a clock of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "kvant/scheduler.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

constexpr double kTokenSeconds = 0.01;  // of a token of a prompt
constexpr double kRoundSeconds = 0.02;  // of the texts of a round

// Sequences of lengths alone. A step takes time for each token of a prompt, and once for texts.
class ClockedHost final : public SequenceHost {
 public:
  int64_t context() const override { return 1 << 20; }
  int64_t sequences_max() const override { return 64; }
  PromptCut prompt_cut() const override { return {.chunk = 512, .few_rows = 63}; }
  Result<SequenceId> NewSequence() override {
    lengths[next_] = 0;
    return next_++;
  }
  Status FreeSequence(SequenceId id) override {
    lengths.erase(id);
    return {};
  }
  Result<SequenceId> Fork(SequenceId id) override {
    lengths[next_] = lengths.at(id);
    return next_++;
  }
  Status Reorder(std::span<const SequenceId>, std::span<const int>) override { return {}; }
  Status Rewind(SequenceId, int64_t, Replay) override { return {}; }
  Status Prune(SequenceId, int64_t, int64_t, PrunePositions) override { return {}; }
  Result<int64_t> ReusePrefix(SequenceId, std::span<const TokenId>) override { return 0; }
  Status Step(std::span<const StepInput> inputs, const StepOptions&) override {
    int64_t prompts = 0;
    bool texts = false;
    for (const StepInput& input : inputs) {
      lengths.at(input.sequence) += std::ssize(input.tokens);
      const bool text = input.tokens.size() == 1;
      texts = texts || text;
      if (!text) prompts += std::ssize(input.tokens);
    }
    now += static_cast<double>(prompts) * kTokenSeconds + (texts ? kRoundSeconds : 0);
    return {};
  }
  int64_t length(SequenceId id) const override { return lengths.at(id); }
  std::span<const float> logits(SequenceId) const override { return {}; }

  SchedulerOptions Clocked(SchedulerOptions options) {
    options.clock = [this] { return now; };
    return options;
  }

  std::map<SequenceId, int64_t> lengths;
  double now = 1000;

 private:
  SequenceId next_ = 0;
};

// A prompt and then `count` tokens; it notes the times of all of them.
class TimedRequest final : public Request {
 public:
  TimedRequest(const ClockedHost& host, int64_t prompt, size_t count)
      : host_(host), prompt_(static_cast<size_t>(prompt), 7), count_(count) {}
  std::vector<double> times;
  double LongestWait() const {
    double longest = 0;
    for (size_t i = 1; i < times.size(); ++i) longest = std::max(longest, times[i] - times[i - 1]);
    return longest;
  }

 protected:
  std::span<const TokenId> prompt() const override { return prompt_; }
  void Begin(SequenceId id) override { sequence_ = id; }
  Status AddInputs(SequenceHost&, std::vector<StepInput>& inputs) override {
    inputs.push_back({sequence_, std::span(prompt_).first(1)});
    return {};
  }
  Status Advance(SequenceHost&) override {
    times.push_back(host_.now);
    return {};
  }
  bool done() const override { return times.size() >= count_; }
  void Release(SequenceHost& host, std::optional<SequenceId>) override {
    (void)host.FreeSequence(sequence_);
  }

 private:
  const ClockedHost& host_;
  std::vector<TokenId> prompt_;
  size_t count_;
  SequenceId sequence_ = -1;
};

TEST(Turns, TextsWaitNoLongerForPromptsThanAsked) {
  for (const double stall : {0.7, 1.5, 3.0}) {
    ClockedHost host;
    Scheduler scheduler(host, host.Clocked({.stall = stall}));
    TimedRequest text(host, 10, 400);
    scheduler.Submit(text);
    for (int i = 0; i < 5; ++i) ExpectOk(scheduler.Poll());
    std::deque<TimedRequest> prompts;
    for (int i = 0; i < 10; ++i) scheduler.Submit(prompts.emplace_back(host, 4000, 1));
    ExpectOk(scheduler.Drain());
    EXPECT_LE(text.LongestWait(), kRoundSeconds + 1.5 * std::max(stall, 64 * kTokenSeconds));
    // The time that may be used is used: 40000 tokens need not take many more rounds than that.
    const double prefill = scheduler.counters().prefill_seconds;
    EXPECT_NEAR(prefill, 40010 * kTokenSeconds, 5);  // with a share of the texts' time
    EXPECT_LE(static_cast<double>(scheduler.counters().rounds), 400 + prefill / (0.5 * stall));
  }
}

TEST(Turns, AShortPromptDoesNotWaitForALongOne) {
  ClockedHost host;
  constexpr double kStall = 1.0;
  std::deque<TimedRequest> texts;
  TimedRequest long_one(host, 8000, 1);
  TimedRequest short_one(host, 60, 1);
  Scheduler scheduler(host, host.Clocked({.stall = kStall}));
  for (int i = 0; i < 31; ++i) scheduler.Submit(texts.emplace_back(host, 5, 5000));
  for (int i = 0; i < 10; ++i) ExpectOk(scheduler.Poll());
  scheduler.Submit(long_one);
  for (int i = 0; i < 10; ++i) ExpectOk(scheduler.Poll());
  const double came = host.now;
  scheduler.Submit(short_one);
  while (short_one.times.empty()) ExpectOk(scheduler.Poll());
  EXPECT_TRUE(long_one.times.empty());
  EXPECT_LE(short_one.times[0] - came, 60 * kTokenSeconds + 3 * kStall);
}

// Nor does a long one wait for ever for short ones that come and come.
TEST(Turns, ShortPromptsDoNotStarveALongOne) {
  const auto seconds = [](int clients, double stall, size_t count) {
    ClockedHost host;
    std::deque<TimedRequest> requests;
    TimedRequest long_one(host, 8000, 1);
    Scheduler scheduler(host, host.Clocked({.stall = stall}));
    scheduler.Submit(long_one);
    const double came = host.now;
    std::vector<TimedRequest*> open(static_cast<size_t>(clients), nullptr);
    while (long_one.times.empty()) {
      for (TimedRequest*& one : open) {
        if (one != nullptr && one->state() != Request::State::kEnded) continue;
        one = &requests.emplace_back(host, 100, count);
        scheduler.Submit(*one);
      }
      ExpectOk(scheduler.Poll());
    }
    return long_one.times[0] - came;
  };
  // A stall below a tenth of a second is less than the smallest slice takes: rounds with texts
  // process 64 tokens then, and those without eight times as many.
  for (const double stall : {1.0, 0.1}) {
    for (const size_t count : {1, 2, 4}) {
      EXPECT_LE(seconds(31, stall, count), 3 * seconds(0, stall, count)) << stall << ' ' << count;
    }
  }
}

TEST(Turns, PrioritiesAge) {
  ClockedHost host;
  SchedulerOptions options = host.Clocked({.requests_max = 1, .ageing = 10});
  Scheduler scheduler(host, options);
  std::deque<TimedRequest> requests;
  const auto submit = [&](int priority) {
    scheduler.Submit(requests.emplace_back(host, 2, 1), {.priority = priority});
  };
  submit(0);
  host.now += 5;  // it has waited for half a priority
  submit(1);
  host.now += 20;  // and now for more than one
  submit(1);
  ExpectOk(scheduler.Drain());
  EXPECT_LT(requests[1].times[0], requests[0].times[0]);
  EXPECT_LT(requests[0].times[0], requests[2].times[0]);
}

TEST(Turns, AFullQueueRefuses) {
  ClockedHost host;
  Scheduler scheduler(host, host.Clocked({.requests_max = 1, .queue_max = 2}));
  const auto submit = [&] {
    auto request = std::make_shared<TimedRequest>(host, 2, 3);
    return std::pair(request, scheduler.Submit(request));
  };
  const auto [first, first_status] = submit();
  ExpectOk(first_status);
  ExpectOk(scheduler.Poll());  // it runs
  const auto [second, second_status] = submit();
  const auto [third, third_status] = submit();
  const auto [fourth, fourth_status] = submit();
  ExpectOk(second_status);
  ExpectOk(third_status);
  ASSERT_TRUE(fourth_status.Is(ErrorCode::kBusy));
  EXPECT_EQ(fourth_status.error().message, "the queue is full: 2 requests are waiting");
  EXPECT_EQ(fourth->state(), Request::State::kNew);
  ExpectOk(scheduler.Drain());
  ExpectOk(scheduler.Submit(fourth));
  ExpectOk(scheduler.Drain());
  EXPECT_EQ(fourth->times.size(), 3u);
  EXPECT_EQ(scheduler.counters().refused, 1u);
  EXPECT_EQ(scheduler.counters().ended, 4u);
}

}  // namespace
}  // namespace kvant::test
