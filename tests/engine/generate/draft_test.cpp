// Speculative decoding: the text with a draft is the text without one, whatever the draft guesses,
// over every kind of cache and window; and what is reported of it is exact.
#include "kvant/draft.h"

#include <gtest/gtest.h>

#include <functional>

#include "kvant/generator.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

constexpr int64_t kTokens = 500;
constexpr int64_t kGuesses = 4;

// Guesses by a function of the number of tokens so far and the number of guesses wanted.
class ScriptedDraft final : public Draft {
 public:
  using Script = std::function<std::vector<TokenId>(size_t length, size_t count)>;
  explicit ScriptedDraft(Script script) : script_(std::move(script)) {}

  Result<std::span<const TokenId>> Propose(std::span<const TokenId> text, int64_t count) override {
    proposal_ = script_(text.size(), static_cast<size_t>(count));
    return std::span<const TokenId>(proposal_);
  }

 private:
  Script script_;
  std::vector<TokenId> proposal_;
};

// Guesses the tokens of `known`, which begins with the prompt, each changed by `change`.
ScriptedDraft GuessFrom(const std::vector<TokenId>& known,
                        std::function<TokenId(size_t position, TokenId token)> change) {
  return ScriptedDraft([&known, change = std::move(change)](size_t length, size_t count) {
    std::vector<TokenId> guess;
    for (size_t i = length; i < std::min(length + count, known.size()); ++i) {
      guess.push_back(change(i, known[i]));
    }
    return guess;
  });
}

SessionOptions Plain(KvType type) {
  SessionOptions options = Options(type, 1);
  options.threads = 1;
  options.kv_check = options.kv_poison = false;
  return options;
}

SamplingOptions Temperature(float temperature, uint64_t seed = 1) {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = 0;
  options.top_p = 1;
  options.min_p = 0;
  options.seed = seed;
  return options;
}

struct DraftedRequest {
  std::shared_ptr<const Model> model;
  SessionOptions session;
  SamplingOptions sampling;
  GenerateOptions generate;
  std::vector<TokenId> prompt = RandomTokens(40, 5);
};

struct Outcome {
  Generation generation;
  std::vector<TokenId> processed;  // by the model, as far as they were kept
};

Outcome RunWith(DraftedRequest request, Draft* draft, const TextFunction& on_text = {}) {
  request.generate.draft = std::shared_ptr<Draft>(std::shared_ptr<void>(), draft);
  auto session = OpenSession(request.model, request.session);
  auto sampler = Sampler::Create(request.sampling, request.model->vocab_size());
  EXPECT_TRUE(sampler.ok());
  auto generation = Generate(*session, request.model->tokenizer(), *sampler, request.prompt,
                             request.generate, on_text);
  EXPECT_TRUE(generation.ok()) << generation.error().message;
  if (!generation.ok()) return {};
  return {*generation, {session->tokens().begin(), session->tokens().end()}};
}

void ExpectSameText(const Outcome& found, const Outcome& expected, const char* draft) {
  EXPECT_EQ(found.generation.ids, expected.generation.ids) << draft;
  EXPECT_EQ(found.generation.text, expected.generation.text) << draft;
  EXPECT_EQ(found.generation.finish_reason, expected.generation.finish_reason) << draft;
}

std::unique_ptr<ModelDraft> DraftOf(const std::shared_ptr<const Model>& model, KvType type,
                                    int64_t context = 0) {
  SessionOptions options = Plain(type);
  options.context = context;
  auto draft = ModelDraft::Create(OpenSession(model, options), model->vocab_size());
  EXPECT_TRUE(draft.ok());
  return draft.ok() ? std::move(*draft) : nullptr;
}

class Drafts : public RunnerKinds {
 protected:
  // A prompt whose text no end token cuts short: a draft cannot know that one is forbidden.
  void SetUp() override {
    request_.model = OpenModel();
    request_.session = Plain(GetParam().type);
    request_.generate.max_tokens = kTokens;
    request_.generate.draft_tokens = kGuesses;
    for (uint32_t seed = 1; plain_.generation.finish_reason != FinishReason::kLength; ++seed) {
      ASSERT_LT(seed, 50u);
      request_.prompt = RandomTokens(40, seed);
      plain_ = RunWith(request_, nullptr);
    }
    known_ = request_.prompt;
    known_.insert(known_.end(), plain_.generation.ids.begin(), plain_.generation.ids.end());
  }

  DraftedRequest request_{{}, {}, Temperature(0), {}};
  Outcome plain_;
  std::vector<TokenId> known_;  // prompt and text
};

INSTANTIATE_TEST_SUITE_P(Kinds, Drafts, testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_P(Drafts, GiveTheTextOfPlainGreedy) {
  const DraftedRequest& request = request_;
  const Outcome& plain = plain_;
  ASSERT_EQ(plain.generation.ids.size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(plain.generation.drafted_tokens, 0);
  EXPECT_EQ(plain.generation.decode_passes, kTokens - 1);

  // The model itself is always right: five tokens a pass, and in the end only as many guesses as
  // there are tokens left: 499 = 99 * 5 + 4.
  const auto same = DraftOf(request.model, GetParam().type);
  const Outcome good = RunWith(request, same.get());
  ExpectSameText(good, plain, "the same model");
  EXPECT_EQ(good.generation.decode_tokens, kTokens - 1);
  EXPECT_EQ(good.generation.decode_passes, 99 + 1);
  EXPECT_EQ(good.generation.drafted_tokens, 99 * kGuesses + 3);
  EXPECT_EQ(good.generation.accepted_tokens, good.generation.drafted_tokens);

  TinyShape shape;
  shape.seed = 77;
  shape.layers = 1;
  const auto other = DraftOf(OpenTiny(shape), KvType::kF16, 900);
  const Outcome bad = RunWith(request, other.get());
  ExpectSameText(bad, plain, "another model");
  EXPECT_LT(bad.generation.accepted_tokens, bad.generation.drafted_tokens / 2);

  NgramDraft ngram;
  const Outcome copied = RunWith(request, &ngram);
  ExpectSameText(copied, plain, "ngram");
  for (const Outcome* outcome : {&good, &bad, &copied}) {
    const Generation& generation = outcome->generation;
    EXPECT_EQ(generation.decode_tokens, kTokens - 1);
    EXPECT_EQ(generation.decode_passes + generation.accepted_tokens, generation.decode_tokens);
    EXPECT_EQ(outcome->processed, plain.processed);
  }
}

TEST_P(Drafts, ThatAreNeverOrPartlyRightChangeNothing) {
  DraftedRequest request = request_;
  const Outcome& plain = plain_;
  const auto wrong = [](size_t, TokenId token) { return (token + 1) % kTinyVocab; };

  ScriptedDraft never = GuessFrom(known_, wrong);
  const Outcome none = RunWith(request, &never);
  ExpectSameText(none, plain, "never right");
  EXPECT_EQ(none.generation.accepted_tokens, 0);
  EXPECT_EQ(none.generation.decode_passes, kTokens - 1);
  // Four guesses at each of 499 tokens, fewer at the last four.
  EXPECT_EQ(none.generation.drafted_tokens, kGuesses * (kTokens - 1) - (1 + 2 + 3 + 4));
  EXPECT_EQ(none.processed, plain.processed);

  // Wrong at every seventh position; the right ones behind a wrong one do not count.
  ScriptedDraft partly = GuessFrom(
      known_, [&](size_t i, TokenId token) { return i % 7 == 0 ? wrong(i, token) : token; });
  request.session.chunk = 3;  // a check in several passes of the model
  request.session.kv_check = request.session.kv_poison = true;
  const Outcome some = RunWith(request, &partly);
  ExpectSameText(some, plain, "partly right");
  EXPECT_GT(some.generation.accepted_tokens, kTokens / 2);
  EXPECT_LT(some.generation.accepted_tokens, some.generation.drafted_tokens);
  EXPECT_EQ(some.processed, plain.processed);
}

TEST(Draft, GivesTheTextOfTheSeed) {
  for (const Kind& kind : {Kinds()[1], Kinds()[5]}) {
    TinyShape shape;
    shape.window = kind.window;
    DraftedRequest request{OpenTiny(shape), Plain(kind.type), Temperature(1.0f, 3), {}};
    request.generate.max_tokens = 150;
    request.generate.ignore_eos = true;
    request.sampling.repeat_penalty = 1.1f;
    const Outcome plain = RunWith(request, nullptr);
    std::vector<TokenId> known = request.prompt;
    known.insert(known.end(), plain.generation.ids.begin(), plain.generation.ids.end());
    ScriptedDraft right = GuessFrom(known, [](size_t, TokenId token) { return token; });
    const Outcome all = RunWith(request, &right);
    ExpectSameText(all, plain, "always right");
    EXPECT_EQ(all.generation.accepted_tokens, all.generation.drafted_tokens);
    const auto same = DraftOf(request.model, kind.type);
    ExpectSameText(RunWith(request, same.get()), plain, "the same model");
    NgramDraft ngram;
    ExpectSameText(RunWith(request, &ngram), plain, "ngram");
  }
}

DraftedRequest TinyRequest() {
  DraftedRequest request{OpenTiny({}), Plain(KvType::kF16), Temperature(0), {}};
  request.generate.max_tokens = 200;
  request.generate.ignore_eos = true;
  return request;
}

TEST(Draft, AFullContextEndsTheTextAtTheSameToken) {
  DraftedRequest request = TinyRequest();
  request.generate.max_tokens = -1;
  for (const int64_t room : {0, 1, 2, 9, 10, 60}) {
    request.session.context = 40 + room;
    const Outcome plain = RunWith(request, nullptr);
    EXPECT_EQ(plain.generation.finish_reason, FinishReason::kContext);
    EXPECT_EQ(std::ssize(plain.generation.ids), room + 1);
    const auto same = DraftOf(request.model, KvType::kF16, 40 + room);
    ExpectSameText(RunWith(request, same.get()), plain, "the same model");
    // A draft whose own context ends earlier has nothing more to say then.
    const auto early = DraftOf(request.model, KvType::kF16, 45);
    ExpectSameText(RunWith(request, early.get()), plain, "a short context");
  }
}

TEST(Draft, AShiftedContextShiftsAtTheSameTokens) {
  DraftedRequest request = TinyRequest();
  request.session.context = 64;
  request.generate.shift_keep = 4;
  const Outcome plain = RunWith(request, nullptr);
  ASSERT_EQ(plain.generation.ids.size(), 200u);
  const auto same = DraftOf(request.model, KvType::kF16, 64);
  NgramDraft ngram;
  for (Draft* draft : {static_cast<Draft*>(same.get()), static_cast<Draft*>(&ngram)}) {
    const Outcome found = RunWith(request, draft);
    ExpectSameText(found, plain, "shifted");
    EXPECT_GT(found.generation.accepted_tokens, 0);
    EXPECT_EQ(found.processed, plain.processed);
  }
}

TEST(Draft, AContextOfOneTokenIsNeverShifted) {
  DraftedRequest request = TinyRequest();
  request.prompt = {1};
  request.session.context = 1;
  request.generate.shift_keep = 0;
  const Outcome found = RunWith(request, nullptr);
  EXPECT_EQ(found.generation.finish_reason, FinishReason::kContext);
  EXPECT_EQ(found.generation.ids.size(), 1u);
}

TEST(Draft, EndTokensAndStopTextsAmongRightGuessesEndTheText) {
  DraftedRequest request = TinyRequest();
  request.generate.ignore_eos = false;
  int ended = 0;
  for (uint64_t seed = 1; seed <= 20 && ended < 3; ++seed) {
    request.sampling = Temperature(1.0f, seed);
    request.generate.stop_texts.clear();
    const Outcome plain = RunWith(request, nullptr);
    const std::vector<TokenId>& ids = plain.generation.ids;
    if (plain.generation.finish_reason != FinishReason::kStop || ids.size() < 12) continue;
    ++ended;
    // Guesses that are right up to the end token and go on behind it.
    std::vector<TokenId> known = request.prompt;
    known.insert(known.end(), ids.begin(), ids.end());
    known.insert(known.end(), {2, 50, 51, 52, 53, 54, 55, 56, 57, 58});
    ScriptedDraft right = GuessFrom(known, [](size_t, TokenId token) { return token; });
    for (const int64_t guesses : {1, 2, 5, 8}) {
      request.generate.draft_tokens = guesses;
      const Outcome found = RunWith(request, &right);
      ExpectSameText(found, plain, "to the end token");
      EXPECT_GE(found.generation.accepted_tokens, std::ssize(ids) / 2 - 1);
    }
    const Tokenizer& tokenizer = request.model->tokenizer();
    request.generate.stop_texts = {tokenizer.TokenBytes(ids[9], {.special = false}) +
                                   tokenizer.TokenBytes(ids[10], {.special = false})};
    const Outcome stopped = RunWith(request, nullptr);
    ASSERT_EQ(stopped.generation.finish_reason, FinishReason::kStopText);
    ExpectSameText(RunWith(request, &right), stopped, "to the stop text");
  }
  EXPECT_EQ(ended, 3);
}

TEST(Draft, CancelledInTheMiddleKeepsTheBeginning) {
  DraftedRequest request = TinyRequest();
  const Outcome plain = RunWith(request, nullptr);
  std::atomic<bool> cancel{false};
  const auto same = DraftOf(request.model, KvType::kF16);
  for (const size_t shown_max : {1, 4, 30}) {
    // Cancels by the flag, which a token of the text sets, then by the text function itself.
    for (const bool by_flag : {true, false}) {
      cancel = false;
      request.generate.cancel = &cancel;
      size_t shown = 0;
      const auto on_text = [&](std::string_view) {
        if (++shown < shown_max) return true;
        cancel = by_flag;
        return by_flag;
      };
      const Outcome found = RunWith(request, same.get(), on_text);
      EXPECT_EQ(found.generation.finish_reason, FinishReason::kCancelled);
      const std::vector<TokenId>& ids = found.generation.ids;
      ASSERT_LT(ids.size(), plain.generation.ids.size());
      ASSERT_GE(ids.size(), shown_max);
      EXPECT_TRUE(std::equal(ids.begin(), ids.end(), plain.generation.ids.begin()));
      // No wrong guess stays behind.
      EXPECT_TRUE(
          std::equal(found.processed.begin(), found.processed.end(), plain.processed.begin()));
    }
  }
}

TEST(Draft, GuessesBeyondTheRowsOfOneArithmeticAreNotAskedFor) {
  DraftedRequest request = TinyRequest();
  request.generate.draft_tokens = 1000;
  const Outcome plain = RunWith(request, nullptr);
  std::vector<TokenId> known = request.prompt;
  known.insert(known.end(), plain.generation.ids.begin(), plain.generation.ids.end());
  ScriptedDraft right = GuessFrom(known, [](size_t, TokenId token) { return token; });
  const Outcome found = RunWith(request, &right);
  ExpectSameText(found, plain, "always right");
  EXPECT_EQ(found.generation.decode_passes, (199 + kSharedRowsMax - 1) / kSharedRowsMax);
}

TEST(Draft, NgramsContinueTheLastOccurrenceOfTheLongestEnd) {
  NgramDraft draft;
  const auto propose = [&](std::vector<TokenId> text, int64_t count) {
    const auto proposal = draft.Propose(text, count);
    EXPECT_TRUE(proposal.ok());
    return std::vector<TokenId>(proposal->begin(), proposal->end());
  };
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(propose({1, 2, 3, 9, 8, 1, 2, 3}, 2), (Ids{9, 8}));
  EXPECT_EQ(propose({1, 2, 3, 9, 8, 1, 2, 3}, 100), (Ids{9, 8, 1, 2, 3}));
  EXPECT_EQ(propose({2, 3, 7, 2, 3, 8, 2, 3}, 1), (Ids{8}));           // the last occurrence
  EXPECT_EQ(propose({1, 2, 3, 7, 5, 2, 3, 8, 1, 2, 3}, 1), (Ids{7}));  // the longest end
  EXPECT_EQ(propose({4, 1, 2, 3, 6, 1, 2, 3, 7, 4, 1, 2, 3}, 1), (Ids{6}));
  EXPECT_EQ(propose({5, 5, 5}, 3), (Ids{5}));  // may overlap
  EXPECT_EQ(propose({3, 9, 3}, 3), Ids());     // one token is too little
  EXPECT_EQ(propose({1, 2}, 3), Ids());
  EXPECT_EQ(propose({1}, 3), Ids());
}

TEST(Draft, AModelOfAnotherVocabularyIsRefused) {
  const auto draft = ModelDraft::Create(OpenSession(OpenTiny({})), kTinyVocab + 1);
  ASSERT_FALSE(draft.ok());
  EXPECT_EQ(draft.error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace kvant::test
