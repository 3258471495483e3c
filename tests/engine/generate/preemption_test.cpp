// Tests requests that wait for memory and are computed again: each row is computed in the kind of
// pass, few rows or many, that it had the first time, also where known blocks were given up
// meanwhile.
#include <gtest/gtest.h>

#include <map>

#include "kvant/scheduler.h"
#include "kvant/text_request.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

constexpr int64_t kChunk = 512;
constexpr int64_t kFewRows = 63;

// How a row was computed.
enum class RowCount : uint8_t { kFew, kMany };

// Sequences that only know how each of their rows was computed.
class RowHost final : public SequenceHost {
 public:
  int64_t context() const override { return 4096; }
  int64_t sequences_max() const override { return 4; }
  PromptCut prompt_cut() const override { return {.chunk = kChunk, .few_rows = kFewRows}; }

  Result<SequenceId> NewSequence() override {
    rows[next_] = {};
    return next_++;
  }
  Status FreeSequence(SequenceId id) override {
    rows.erase(id);
    return {};
  }
  Result<SequenceId> Fork(SequenceId id) override {
    rows[next_] = rows.at(id);
    return next_++;
  }
  Status Reorder(std::span<const SequenceId>, std::span<const int>) override { return {}; }
  Status Rewind(SequenceId, int64_t, Replay) override { return {}; }
  Status Prune(SequenceId, int64_t, int64_t, PrunePositions) override { return {}; }

  // Only prompts that begin with token 1 have a known prefix: whole blocks of many rows.
  Result<int64_t> ReusePrefix(SequenceId id, std::span<const TokenId> prompt) override {
    if (prompt[0] != 1) return 0;
    const int64_t reused = std::min(known, (std::ssize(prompt) - 1) / 32 * 32);
    rows.at(id).assign(static_cast<size_t>(reused), RowCount::kMany);
    return reused;
  }
  // Cuts an input into passes as Runner does.
  Status Step(std::span<const StepInput> inputs, const StepOptions&) override {
    if (inputs.size() > 1 && std::exchange(full, false)) {
      return Error{ErrorCode::kOutOfMemory, "full"};
    }
    for (const StepInput& input : inputs) {
      for (int64_t left = std::ssize(input.tokens); left > 0; left -= kChunk) {
        const int64_t count = std::min(left, kChunk);
        std::vector<RowCount>& all = rows.at(input.sequence);
        all.insert(all.end(), static_cast<size_t>(count),
                   count > kFewRows ? RowCount::kMany : RowCount::kFew);
      }
    }
    return {};
  }

  int64_t length(SequenceId id) const override { return std::ssize(rows.at(id)); }
  std::span<const float> logits(SequenceId) const override { return {}; }

  std::map<SequenceId, std::vector<RowCount>> rows;
  int64_t known = 0;
  bool full = false;  // the next step of several requests is refused

 private:
  SequenceId next_ = 0;
};

// A prompt, then `count` tokens.
class TokenRequest final : public Request {
 public:
  TokenRequest(int64_t prompt, TokenId first, size_t count)
      : prompt_(static_cast<size_t>(prompt), 7), count_(count) {
    prompt_[0] = first;
  }
  SequenceId sequence = -1;
  const void* group = nullptr;

 protected:
  const void* family() const override { return group; }
  std::span<const TokenId> prompt() const override { return prompt_; }
  void Begin(SequenceId id) override { sequence = id; }
  Status AddInputs(SequenceHost&, std::vector<StepInput>& inputs) override {
    inputs.push_back({sequence, std::span(ids_).last(1)});
    return {};
  }
  Status Advance(SequenceHost&) override {
    ids_.push_back(3);
    return {};
  }
  bool done() const override { return ids_.size() >= count_; }
  bool Preempt() override { return true; }
  std::span<const TokenId> recompute() const override {
    return std::span(ids_).first(ids_.empty() ? 0 : ids_.size() - 1);
  }
  void Release(SequenceHost& host, std::optional<SequenceId>) override {
    (void)host.FreeSequence(std::exchange(sequence, -1));
  }

 private:
  std::vector<TokenId> prompt_;
  std::vector<TokenId> ids_;
  size_t count_;
};

// Polls until the request has a sequence of at least `least` rows, and returns the kinds of pass of
// its rows.
std::vector<RowCount> RowsOf(Scheduler& scheduler, const RowHost& host, const TokenRequest& request,
                             int64_t least) {
  for (int rounds = 0; rounds < 1000; ++rounds) {
    EXPECT_TRUE(scheduler.Poll().ok());
    if (request.sequence >= 0 && host.length(request.sequence) >= least) break;
  }
  EXPECT_GE(request.sequence, 0);
  return request.sequence < 0 ? std::vector<RowCount>() : host.rows.at(request.sequence);
}

TEST(Preemption, EveryRowIsComputedAsTheFirstTime) {
  for (const int64_t length : {33, 97, 140, 300, 545, 607, 640, 1100}) {
    for (int64_t known = 0; known < length; known += known < 192 ? 32 : 96) {
      if (known == 32) continue;  // too short for a piece of many rows
      for (int64_t still_known = 0; still_known <= known; still_known += 32) {
        std::vector<RowCount> whole;
        for (const int64_t slice : {0, 1, 100, 512}) {
          RowHost host;
          host.known = known;
          TokenRequest first(5, 2, 100);
          TokenRequest request(length, 1, 150);
          Scheduler scheduler(host, {.prompt_slice = slice});
          scheduler.Submit(first);
          scheduler.Submit(request);
          const std::vector<RowCount> before = RowsOf(scheduler, host, request, length + 6);
          // The slice does not matter for the prompt's rows.
          const std::vector<RowCount> prompt(before.begin(), before.begin() + length);
          if (slice == 0) whole = prompt;
          ASSERT_EQ(prompt, whole) << length << ", known " << known << ", slice " << slice;
          host.full = true;
          ASSERT_TRUE(scheduler.Poll().ok());
          ASSERT_EQ(request.state(), Request::State::kWaiting);
          host.known = still_known;
          const std::vector<RowCount> again =
              RowsOf(scheduler, host, request, std::ssize(before) + 2);
          ASSERT_GE(again.size(), before.size());
          for (size_t i = 0; i < before.size(); ++i) {
            ASSERT_EQ(again[i], before[i]) << "row " << i << " of " << length << ", known " << known
                                           << ", then " << still_known << ", slice " << slice;
          }
          ASSERT_TRUE(scheduler.CancelAll().ok());
        }
      }
    }
  }
}

// Texts that share a prompt look up its prefix once.
TEST(Preemption, AForkedPromptIsComputedAsTheFirstTime) {
  for (const int64_t slice : {0, 64}) {
    RowHost host;
    host.known = 64;
    TokenRequest first(97, 1, 100), request(97, 1, 150);
    first.group = request.group = &host;
    Scheduler scheduler(host, {.prompt_slice = slice});
    scheduler.Submit(first);
    scheduler.Submit(request);
    const std::vector<RowCount> before = RowsOf(scheduler, host, request, 100);
    host.full = true;
    ASSERT_TRUE(scheduler.Poll().ok());
    ASSERT_EQ(request.state(), Request::State::kWaiting);
    std::vector<RowCount> again = RowsOf(scheduler, host, request, std::ssize(before) + 2);
    again.resize(before.size());
    EXPECT_EQ(again, before);
    ASSERT_TRUE(scheduler.CancelAll().ok());
  }
}

// Logits of the sequences that hold at least `least` tokens, by their number of tokens.
void Collect(const Runner& runner, int64_t least, std::map<int64_t, std::vector<float>>& found) {
  for (SequenceId id = 0; id < 4; ++id) {
    if (runner.length(id) < least || runner.logits(id).empty()) continue;
    found[runner.length(id)].assign(runner.logits(id).begin(), runner.logits(id).end());
  }
}

// Logits stay on a model whose weights have two arithmetics: the blocks of a long prompt are known,
// reused, given up for another request's text, and made anew.
TEST(Preemption, LogitsStayWhenKnownBlocksWereGivenUpMeanwhile) {
  TinyShape shape;
  shape.type = "Q8_0";
  shape.ffn = 128;
  shape.context = 900;
  const auto model = OpenTiny(shape, OwnGemm());
  const std::vector<TokenId> known = RandomTokens(600, 1);
  std::vector<TokenId> prompt(known.begin(), known.begin() + 560);
  for (const TokenId token : RandomTokens(20, 2)) prompt.push_back(token);
  const std::vector<TokenId> other = RandomTokens(20, 3);
  for (const int64_t slice : {0, 64}) {
    std::map<int64_t, std::vector<float>> found[2];
    uint64_t processed[2] = {};
    for (const bool tight : {false, true}) {
      SessionOptions session = Options(KvType::kF16, 3);
      session.threads = 1;
      session.prefix_cache = true;
      const uint64_t block = OpenRunner(model, session)->stats().groups[0].block_bytes;
      session.kv_bytes_max = tight ? 26 * block : 0;
      const auto runner = OpenRunner(model, session);
      const SequenceId maker = NewSequence(*runner);
      ExpectOk(runner->Append(maker, known));
      ExpectOk(runner->FreeSequence(maker));
      GenerateOptions generate;
      generate.ignore_eos = true;
      generate.max_tokens = 200;
      SamplingOptions sampling;
      sampling.seed = 5;
      const auto setup = [&](const std::vector<TokenId>& tokens) {
        return TextRequest::Setup{.tokenizer = SharedTokenizer(model),
                                  .input = std::make_shared<TextInput>(TextInput{tokens}),
                                  .options = generate,
                                  .sampling = sampling,
                                  .vocab_size = model->vocab_size()};
      };
      TextRequest first(setup(other)), second(setup(prompt));
      Scheduler scheduler(*runner, {.prompt_slice = slice});
      scheduler.Submit(first);
      scheduler.Submit(second);
      const uint64_t before = runner->stats().tokens_processed;
      while (!scheduler.idle()) {
        ExpectOk(scheduler.Poll());
        ASSERT_FALSE(HasFailure());
        Collect(*runner, std::ssize(prompt), found[tight]);
      }
      ExpectOk(second.status());
      EXPECT_EQ(second.generation().ids.size(), 200u);
      processed[tight] = runner->stats().tokens_processed - before;
    }
    EXPECT_GT(processed[1], processed[0] + 500);  // the known blocks were made anew
    ASSERT_GT(found[1].size(), 50u);
    for (const auto& [length, logits] : found[1]) {
      ASSERT_TRUE(found[0].contains(length));
      ASSERT_EQ(MaxDifference(logits, found[0].at(length)), 0.0) << length << " slice " << slice;
    }
  }
}

}  // namespace
}  // namespace kvant::test
