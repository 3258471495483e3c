// Tests that texts which choose their tokens at the same time, on threads of their own, are the
// texts that each of them is alone.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <thread>

#include "base/result.h"
#include "kvant/grammar.h"
#include "kvant/random.h"
#include "kvant/scheduler.h"
#include "kvant/text_request.h"

namespace kvant::test {
namespace {

constexpr int32_t kWordVocab = 6000;
constexpr TokenId kWordEnd = 1;
constexpr int64_t kTextTokens = 40;

// Token 0 begins a text, token 1 ends it, ten are digits and the others words of three letters.
class WordTokenizer final : public Tokenizer {
 public:
  WordTokenizer() {
    storage_ = {"<s>", "</s>"};
    for (int32_t id = 2; id < kWordVocab; ++id) {
      std::string word = id < 12 ? std::string(1, static_cast<char>('0' + id - 2)) : "";
      for (int32_t left = id, i = 0; id >= 12 && i < 3; ++i, left /= 26) {
        word += static_cast<char>('a' + left % 26);
      }
      storage_.push_back(std::move(word));
    }
    for (const std::string& piece : storage_) pieces_.push_back(piece);
    types_.assign(pieces_.size(), PieceType::kNormal);
    types_[0] = types_[kWordEnd] = PieceType::kControl;
    special_.bos = 0;
    special_.eos = kWordEnd;
    special_.end_of_generation = {kWordEnd};
  }
  Result<std::vector<TokenId>> Encode(std::string_view, const EncodeOptions&) const override {
    return MakeError(ErrorCode::kNotSupported, "this vocabulary only decodes");
  }
  std::string TokenBytes(TokenId id, DecodeOptions options) const override {
    if (id < 2 && !options.special) return "";
    return storage_[static_cast<size_t>(id)];
  }
  const char* kind() const override { return "words"; }

 private:
  std::vector<std::string> storage_;
};

// The logits of a sequence are random numbers whose seed is made from all of its tokens.
class HashedHost final : public SequenceHost {
 public:
  enum class Threads : uint8_t { kOne, kMany };
  explicit HashedHost(Threads threads) : threads_(threads) {}

  int64_t context() const override { return 4096; }
  int64_t sequences_max() const override { return 64; }
  PromptCut prompt_cut() const override { return {.chunk = 512, .few_rows = 63}; }
  Result<SequenceId> NewSequence() override {
    sequences_[next_] = {};
    return next_++;
  }
  Status FreeSequence(SequenceId id) override {
    sequences_.erase(id);
    return {};
  }
  Result<SequenceId> Fork(SequenceId id) override {
    sequences_[next_] = sequences_.at(id);
    return next_++;
  }
  Status Reorder(std::span<const SequenceId>, std::span<const int>) override { return {}; }
  Status Rewind(SequenceId, int64_t, Replay) override { return {}; }
  Status Prune(SequenceId, int64_t, int64_t, PrunePositions) override { return {}; }
  Result<int64_t> ReusePrefix(SequenceId, std::span<const TokenId>) override { return int64_t{0}; }
  Status Step(std::span<const StepInput> inputs, const StepOptions&) override {
    for (const StepInput& input : inputs) {
      Sequence& sequence = sequences_.at(input.sequence);
      for (const TokenId token : input.tokens) {
        sequence.seed = sequence.seed * 6364136223846793005u + static_cast<uint64_t>(token) + 1;
        ++sequence.length;
      }
      Xoshiro256 random(sequence.seed);
      sequence.logits.resize(kWordVocab);
      for (float& logit : sequence.logits) {
        logit = static_cast<float>(random.Next() >> 40) * 0x1p-20f - 8;
      }
    }
    return {};
  }
  void RunApart(size_t count, const std::function<void(size_t i)>& task) override {
    ++apart_calls;
    most_apart = std::max(most_apart, count);
    if (threads_ == Threads::kOne) return SequenceHost::RunApart(count, task);
    std::atomic<size_t> next = 0;
    std::vector<std::thread> team;
    for (int i = 0; i < 4; ++i) {
      team.emplace_back([&] {
        for (size_t k = next++; k < count; k = next++) task(k);
      });
    }
    for (std::thread& thread : team) thread.join();
  }
  int64_t length(SequenceId id) const override { return sequences_.at(id).length; }
  std::span<const float> logits(SequenceId id) const override { return sequences_.at(id).logits; }

  int apart_calls = 0;
  size_t most_apart = 0;

 private:
  struct Sequence {
    uint64_t seed = 1;
    int64_t length = 0;
    std::vector<float> logits;
  };
  Threads threads_;
  std::map<SequenceId, Sequence> sequences_;
  SequenceId next_ = 0;
};

struct TextKind {
  std::string name;
  SamplingOptions sampling = {};
  GenerateOptions generate = {};
};

// One kind for each way of choosing a token, and two of the caller's code.
std::vector<TextKind> TextKinds(const Tokenizer& tokenizer) {
  std::vector<TextKind> kinds(9);
  kinds[0].name = "greedy";
  kinds[0].sampling.temperature = 0;
  kinds[1].name = "all tokens";
  kinds[1].sampling.top_k = 0;
  kinds[2].name = "likeliest";
  kinds[2].sampling.top_k = 20;
  kinds[3].name = "penalties";
  kinds[3].sampling.frequency_penalty = 0.7f;
  kinds[3].sampling.repeat_penalty = 1.2f;
  kinds[4].name = "log-probabilities";
  kinds[4].generate.log_probs = 5;
  kinds[5].name = "log-probabilities of the sampler";
  kinds[5].generate.log_probs = 3;
  kinds[5].generate.log_probs_from = GenerateOptions::LogProbSource::kSampler;
  kinds[6].name = "grammar";
  kinds[6].generate.logits.grammar =
      *Grammar::Create({GrammarText::Kind::kRegex, "([0-9]+ ?[a-z]{1,9})+"}, tokenizer);
  kinds[7].name = "processors";
  kinds[7].generate.processors = BeamOptions{};
  kinds[7].generate.processors->no_repeat_ngram = 2;
  kinds[8].name = "function";
  const auto own = std::this_thread::get_id();
  kinds[8].generate.logits.on_logits = [own](std::span<const TokenId> text,
                                             std::span<float> logits) {
    EXPECT_EQ(std::this_thread::get_id(), own);  // the caller's code may not expect another thread
    logits[text.size() % kWordVocab] += 3;
    return Status();
  };
  for (size_t i = 0; i < kinds.size(); ++i) {
    kinds[i].sampling.seed = 100 + i;
    kinds[i].generate.max_tokens = kTextTokens;
  }
  return kinds;
}

// Generates a text of each kind, `copies` times with other prompts, all at once.
std::vector<Generation> GenerateAll(HashedHost& host, const std::vector<TextKind>& kinds,
                                    int copies) {
  const auto tokenizer = std::make_shared<WordTokenizer>();
  Scheduler scheduler(host, SchedulerOptions{});
  std::deque<TextRequest> texts;
  for (int copy = 0; copy < copies; ++copy) {
    for (const TextKind& kind : kinds) {
      const std::vector<TokenId> prompt = {0, static_cast<TokenId>(20 + copy)};
      texts.emplace_back(TextRequest::Setup{.tokenizer = tokenizer,
                                            .input = std::make_shared<TextInput>(TextInput{prompt}),
                                            .options = kind.generate,
                                            .sampling = kind.sampling,
                                            .vocab_size = kWordVocab});
      scheduler.Submit(texts.back(), {});
    }
  }
  while (!scheduler.idle()) {
    const Status status = scheduler.Poll();
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    if (!status.ok()) break;
  }
  std::vector<Generation> out;
  for (TextRequest& text : texts) {
    EXPECT_TRUE(text.status().ok()) << (text.status().ok() ? "" : text.status().error().message);
    out.push_back(text.TakeGeneration());
  }
  return out;
}

TEST(ApartChoice, TextsAreThoseThatEachIsAlone) {
  const WordTokenizer tokenizer;
  const std::vector<TextKind> kinds = TextKinds(tokenizer);
  constexpr int kCopies = 3;
  HashedHost many(HashedHost::Threads::kMany);
  const std::vector<Generation> together = GenerateAll(many, kinds, kCopies);
  EXPECT_GE(many.apart_calls, kTextTokens - 2);
  EXPECT_EQ(many.most_apart, (kinds.size() - 1) * kCopies);  // all but the caller's function
  for (size_t i = 0; i < kinds.size(); ++i) {
    HashedHost one(HashedHost::Threads::kOne);
    const Generation alone = GenerateAll(one, {kinds[i]}, 1)[0];
    EXPECT_EQ(one.apart_calls, 0);
    const Generation& text = together[i];
    EXPECT_EQ(text.ids, alone.ids) << kinds[i].name;
    EXPECT_EQ(text.text, alone.text) << kinds[i].name;
    EXPECT_EQ(text.finish_reason, alone.finish_reason) << kinds[i].name;
    ASSERT_EQ(text.log_probs.size(), alone.log_probs.size()) << kinds[i].name;
    for (size_t k = 0; k < text.log_probs.size(); ++k) {
      EXPECT_EQ(text.log_probs[k].chosen.log_prob, alone.log_probs[k].chosen.log_prob);
      EXPECT_EQ(text.log_probs[k].top.size(), alone.log_probs[k].top.size());
    }
    EXPECT_GT(text.ids.size(), 1u) << kinds[i].name;
  }
}

// A text that was cancelled between two steps chooses nothing more.
TEST(ApartChoice, ACancelledTextEndsAsItIs) {
  const WordTokenizer tokenizer;
  const std::vector<TextKind> kinds = TextKinds(tokenizer);
  HashedHost host(HashedHost::Threads::kMany);
  Scheduler scheduler(host, SchedulerOptions{});
  std::deque<TextRequest> texts;
  for (size_t i = 0; i < 3; ++i) {
    texts.emplace_back(TextRequest::Setup{.tokenizer = std::make_shared<WordTokenizer>(),
                                          .input = std::make_shared<TextInput>(TextInput{{0, 30}}),
                                          .options = kinds[i].generate,
                                          .sampling = kinds[i].sampling,
                                          .vocab_size = kWordVocab,
                                          .on_token = [&texts, i](TokenId, const TokenLogProbs*) {
                                            // The token that the second text has chosen in this
                                            // step is not shown.
                                            if (i == 0 && texts[0].generation().ids.size() == 5)
                                              texts[1].Cancel();
                                          }});
    scheduler.Submit(texts.back(), {});
  }
  while (!scheduler.idle()) {
    const Status status = scheduler.Poll();
    ASSERT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  }
  EXPECT_EQ(texts[1].status().error().code, ErrorCode::kCancelled);
  EXPECT_EQ(texts[1].generation().ids.size(), 4u);
  EXPECT_EQ(texts[0].generation().ids.size(), static_cast<size_t>(kTextTokens));
  EXPECT_EQ(texts[2].generation().ids.size(), static_cast<size_t>(kTextTokens));
}

}  // namespace
}  // namespace kvant::test
