// The engine end to end on models that the tests make: against a double-precision forward pass,
// against itself without a cache, in pieces of any size, on any number of threads, with windows,
// rewinds, cancels and full contexts.
#include "kvant/session.h"
#include "cpu/kv_format_list.h"
#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/engine/reference_forward.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

SessionOptions F32Cache(int64_t chunk = kDefaultChunk, int threads = 2) {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.chunk = chunk;
  options.threads = threads;
  return options;
}

struct ShapeCase {
  const char* name;
  TinyShape shape;
};

void PrintTo(const ShapeCase& value, std::ostream* out) { *out << value.name; }

std::vector<ShapeCase> ShapeCases() {
  std::vector<ShapeCase> cases;
  cases.push_back({"llama", {}});
  TinyShape odd;
  odd.dim = 144, odd.heads = 3, odd.kv_heads = 3, odd.head_dim = 48, odd.ffn = 344, odd.tied = true;
  cases.push_back({"odd_sizes", odd});
  TinyShape ungrouped = odd;
  ungrouped.heads = 6, ungrouped.dim = 100, ungrouped.ffn = 172, ungrouped.tied = false;
  cases.push_back({"heads_wider_than_dim", ungrouped});
  TinyShape windowed;
  windowed.window = 9;
  cases.push_back({"window_9", windowed});
  TinyShape phi3;
  phi3.arch = "phi3", phi3.window = 20;
  cases.push_back({"phi3", phi3});
  TinyShape f16;
  f16.type = "F16";
  cases.push_back({"f16", f16});
  TinyShape bf16;
  bf16.type = "BF16";
  cases.push_back({"bf16", bf16});
  return cases;
}

class Shapes : public testing::TestWithParam<ShapeCase> {};

// An error of the float pass: a few hundred roundings of relative size 2^-24 on logits of a few
// units.
constexpr double kFloatTolerance = 1e-4;

TEST_P(Shapes, MatchesDoublePrecisionForwardPass) {
  const std::string path = TempPath("model.gguf");
  TinyModelWriter(GetParam().shape).Write(path);
  const std::vector<TokenId> tokens = RandomTokens(80, 5);
  auto file = formats::GgufFile::Open(path);
  ASSERT_TRUE(file.ok());
  const std::vector<double> expected = ReferenceForward(*file).Logits(tokens);
  auto opened = Model::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  auto session = OpenSession(*opened, F32Cache());
  const std::vector<float> logits = AllLogits(*session, tokens, tokens.size());
  std::filesystem::remove(path);
  ASSERT_EQ(logits.size(), expected.size());
  double largest = 0;
  double spread = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(logits[i]) - expected[i]));
    spread = std::max(spread, std::abs(expected[i]));
  }
  EXPECT_LT(largest, kFloatTolerance);
  EXPECT_GT(spread, 1.0) << "the model is degenerate and the test says nothing";
}

TEST_P(Shapes, CachedEqualsUncachedInPiecesOfAnySize) {
  ModelOptions own;
  own.float_gemm = "own";
  const auto model = OpenTiny(GetParam().shape, own);
  const std::vector<TokenId> tokens = RandomTokens(200, 9);
  SessionOptions uncached = F32Cache();
  uncached.kv_cache = false;
  auto oracle = OpenSession(model, uncached);
  const std::vector<float> expected = AllLogits(*oracle, tokens, tokens.size());
  EXPECT_EQ(oracle->kv_bytes_used(), 0u);
  std::vector<float> whole;
  for (const size_t piece :
       {size_t{200}, size_t{1}, size_t{7}, size_t{32}, size_t{33}, size_t{64}}) {
    auto session = OpenSession(model, F32Cache());
    const std::vector<float> logits = AllLogits(*session, tokens, piece);
    EXPECT_LT(MaxDifference(logits, expected), 1e-3) << "pieces of " << piece;
    if (whole.empty()) whole = logits;
    // Our own kernels give the same bits however the tokens are cut.
    EXPECT_EQ(logits, whole) << "pieces of " << piece;
  }
}

TEST_P(Shapes, TheNumberOfThreadsChangesNoBit) {
  const auto model = OpenTiny(GetParam().shape);
  const std::vector<TokenId> tokens = RandomTokens(150, 10);
  auto one = OpenSession(model, F32Cache(kDefaultChunk, 1));
  const std::vector<float> expected = AllLogits(*one, tokens, 100);
  for (const int threads : {0, 2, 3, 7}) {
    auto session = OpenSession(model, F32Cache(kDefaultChunk, threads));
    EXPECT_EQ(AllLogits(*session, tokens, 100), expected) << threads;
  }
}

// Behind a long text a row's positions are cut into parts for threads that have no head of their
// own.
TEST_P(Shapes, TheNumberOfThreadsChangesNoBitBehindALongText) {
  TinyShape shape = GetParam().shape;
  shape.context = 2048;
  const auto model = OpenTiny(shape);
  const std::vector<TokenId> tokens = RandomTokens(1600, 11);
  for (const KvType element : {KvType::kF32, KvType::kQ8}) {
    std::vector<float> expected;
    for (const int threads : {1, 4, 16}) {
      SessionOptions options = F32Cache(kDefaultChunk, threads);
      options.k_type = options.v_type = element;
      auto session = OpenSession(model, options);
      ASSERT_TRUE(session->Append(std::span(tokens).first(1597)).ok());
      const std::vector<float> logits = AllLogits(*session, std::span(tokens).last(3), 1);
      if (threads == 1) expected = logits;
      EXPECT_EQ(logits, expected) << threads;
    }
  }
}

// Parts that were done when a step was cancelled do not count for the next one.
TEST(Session, StepsOfManyThreadsThatAreCancelledLeaveNothingBehind) {
  TinyShape shape;
  shape.context = 2048;
  const auto model = OpenTiny(shape);
  const std::vector<TokenId> tokens = RandomTokens(1401, 51);
  std::atomic<bool> cancel{false};
  SessionOptions options = F32Cache(kDefaultChunk, 8);
  options.cancel = &cancel;
  auto session = OpenSession(model, options);
  ASSERT_TRUE(session->Append(std::span(tokens).first(1400)).ok());
  ASSERT_TRUE(session->Append(std::span(tokens).last(1)).ok());
  const std::vector<float> expected(session->logits().begin(), session->logits().end());
  std::atomic<bool> done{false};
  std::thread other([&cancel, &done] {
    for (int i = 0; !done; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(i % 17 * 30));
      cancel = true;
    }
  });
  int cancelled = 0;
  int passed = 0;
  for (int i = 0; i < 20'000 && (cancelled < 60 || passed < 5); ++i) {
    ASSERT_TRUE(session->Rewind(1400).ok());
    cancel = false;
    if (!session->Append(std::span(tokens).last(1)).ok()) {
      ++cancelled;
      continue;
    }
    ++passed;
    EXPECT_EQ(MaxDifference(session->logits(), expected), 0.0) << "after " << cancelled;
  }
  done = true;
  other.join();
  EXPECT_GE(cancelled, 60);
  EXPECT_GE(passed, 5);
}

TEST_P(Shapes, ChangingATokenChangesNoEarlierLogits) {
  const auto model = OpenTiny(GetParam().shape);
  const size_t vocab = static_cast<size_t>(model->vocab_size());
  std::vector<TokenId> tokens = RandomTokens(70, 12);
  auto first = OpenSession(model, F32Cache(33));
  const std::vector<float> before = AllLogits(*first, tokens, tokens.size());
  for (const size_t changed : {size_t{1}, size_t{16}, size_t{32}, size_t{33}, size_t{69}}) {
    std::vector<TokenId> other = tokens;
    other[changed] = (other[changed] + 1) % kTinyVocab;
    auto second = OpenSession(model, F32Cache(33));
    const std::vector<float> after = AllLogits(*second, other, other.size());
    EXPECT_TRUE(std::equal(before.begin(),
                           before.begin() + static_cast<std::ptrdiff_t>(changed * vocab),
                           after.begin()));
    EXPECT_NE(before, after);
  }
}

INSTANTIATE_TEST_SUITE_P(Engine, Shapes, testing::ValuesIn(ShapeCases()),
                         [](const auto& shape) { return std::string(shape.param.name); });

TEST(Session, AWindowOfOneLayerSeesExactlyItsPositions) {
  TinyShape shape;
  shape.layers = 1;
  for (const int64_t window : {1, 7, 32, 33, 100}) {
    shape.window = window;
    const auto model = OpenTiny(shape);
    const std::vector<TokenId> tokens = RandomTokens(220, 20);
    auto first = OpenSession(model, F32Cache(50));
    ASSERT_TRUE(first->Append(tokens).ok());
    const std::vector<float> expected(first->logits().begin(), first->logits().end());
    const size_t last = tokens.size() - 1;
    for (const int64_t distance : {window - 1, window}) {
      std::vector<TokenId> other = tokens;
      const size_t changed = last - static_cast<size_t>(distance);
      other[changed] = (other[changed] + 1) % kTinyVocab;
      auto second = OpenSession(model, F32Cache(50));
      ASSERT_TRUE(second->Append(other).ok());
      const std::vector<float> logits(second->logits().begin(), second->logits().end());
      EXPECT_EQ(logits == expected, distance == window)
          << "window " << window << " distance " << distance;
    }
  }
}

TEST(Session, RingsEqualTheUncachedPassOverManyWindows) {
  TinyShape shape;
  shape.window = 33;
  shape.context = 1200;
  const auto model = OpenTiny(shape);
  const std::vector<TokenId> tokens = RandomTokens(1200, 21);
  SessionOptions uncached = F32Cache();
  uncached.kv_cache = false;
  auto oracle = OpenSession(model, uncached);
  ASSERT_TRUE(oracle->Append(tokens).ok());
  auto session = OpenSession(model, F32Cache(64));
  for (const TokenId token : tokens) ASSERT_TRUE(session->Append({&token, 1}).ok());
  EXPECT_LT(MaxDifference(session->logits(), oracle->logits()), 1e-3);
  // Both layers: window, slack and chunk, rounded up to blocks.
  const uint64_t row_bytes = 2u * 2u * 16u * 4u * 2u;
  EXPECT_LE(session->kv_bytes_used(), row_bytes * (33 + 256 + 64 + 64));
}

TEST(Session, RewindIsExactAndEqualsAFreshSequence) {
  // Our own kernels, because the library's round differently for 40 rows and for 190.
  ModelOptions own;
  own.float_gemm = "own";
  for (const int64_t window : {0, 20}) {
    TinyShape shape;
    shape.window = window;
    const auto model = OpenTiny(shape, own);
    const std::vector<TokenId> tokens = RandomTokens(150, 30);
    const std::vector<TokenId> other = RandomTokens(40, 31);
    for (const int64_t length : {150, 149, 128, 127, 97, 96, 64, 33, 32, 31, 1, 0}) {
      auto session = OpenSession(model, F32Cache());
      ASSERT_TRUE(session->Append(tokens).ok());
      ASSERT_TRUE(session->Rewind(length).ok());
      EXPECT_EQ(session->length(), length);
      EXPECT_EQ(session->logits().empty(), length < 150);
      ASSERT_TRUE(session->Append(other).ok());
      std::vector<TokenId> straight(tokens.begin(), tokens.begin() + length);
      straight.insert(straight.end(), other.begin(), other.end());
      auto fresh = OpenSession(model, F32Cache());
      ASSERT_TRUE(fresh->Append(straight).ok());
      EXPECT_EQ(MaxDifference(session->logits(), fresh->logits()), 0.0) << "length " << length;
      EXPECT_TRUE(std::ranges::equal(session->tokens(), straight));
    }
  }
}

TEST(Session, RefusesWithoutChangingAnything) {
  const auto model = OpenTiny({});
  SessionOptions options = F32Cache();
  options.context = 10;
  auto session = OpenSession(model, options);
  const std::vector<TokenId> tokens = RandomTokens(11, 40);
  EXPECT_EQ(session->Append(tokens).error().code, ErrorCode::kContextFull);
  EXPECT_EQ(session->Append({}).error().code, ErrorCode::kInvalid);
  for (const TokenId bad : {-1, static_cast<TokenId>(kTinyVocab)}) {
    const std::vector<TokenId> ids = {1, bad};
    EXPECT_EQ(session->Append(ids).error().code, ErrorCode::kInvalid);
  }
  EXPECT_EQ(session->length(), 0);
  EXPECT_TRUE(session->logits().empty());
  EXPECT_TRUE(session->Append(std::span(tokens).first(10)).ok());
  const std::vector<float> logits(session->logits().begin(), session->logits().end());
  EXPECT_EQ(logits.size(), static_cast<size_t>(kTinyVocab));
  EXPECT_EQ(session->Append(std::span(tokens).last(1)).error().code, ErrorCode::kContextFull);
  EXPECT_EQ(session->Rewind(11).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(session->Rewind(-1).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(session->length(), 10);
  EXPECT_TRUE(std::ranges::equal(session->tokens(), std::span(tokens).first(10)));
  EXPECT_TRUE(std::ranges::equal(session->logits(), logits));
}

TEST(Session, ImpossibleOptionsAreNamed) {
  const auto model = OpenTiny({});
  const auto code = [&](auto change) {
    SessionOptions options;
    change(options);
    auto session = Session::Create(model, options);
    return session.ok() ? std::string("ok") : session.error().message;
  };
  EXPECT_THAT(code([](auto& o) { o.threads = -1; }), testing::HasSubstr("threads"));
  EXPECT_THAT(code([](auto& o) { o.threads = 5000; }), testing::HasSubstr("threads"));
  EXPECT_THAT(code([](auto& o) { o.context = -3; }), testing::HasSubstr("context"));
  EXPECT_THAT(code([](auto& o) { o.chunk = 0; }), testing::HasSubstr("chunk"));
}

TEST(Session, ACancelledStepLeavesTheSequenceAsItWas) {
  const auto model = OpenTiny({});
  const std::vector<TokenId> tokens = RandomTokens(60, 50);
  std::atomic<bool> cancel{false};
  SessionOptions options = F32Cache();
  options.cancel = &cancel;
  auto session = OpenSession(model, options);
  ASSERT_TRUE(session->Append(std::span(tokens).first(40)).ok());
  cancel = true;
  EXPECT_EQ(session->Append(std::span(tokens).last(20)).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(session->length(), 40);
  EXPECT_EQ(session->tokens().size(), 40u);
  cancel = false;
  ASSERT_TRUE(session->Append(std::span(tokens).last(20)).ok());
  auto fresh = OpenSession(model, F32Cache());
  ASSERT_TRUE(fresh->Append(std::span(tokens).first(40)).ok());
  ASSERT_TRUE(fresh->Append(std::span(tokens).last(20)).ok());
  EXPECT_EQ(MaxDifference(session->logits(), fresh->logits()), 0.0);
}

TEST(Session, TwoSessionsOnOneModelDoNotTouchEachOther) {
  const auto model = OpenTiny({});
  const std::vector<TokenId> a = RandomTokens(50, 60);
  const std::vector<TokenId> b = RandomTokens(50, 61);
  auto alone_a = OpenSession(model);
  auto alone_b = OpenSession(model);
  ASSERT_TRUE(alone_a->Append(a).ok());
  ASSERT_TRUE(alone_b->Append(b).ok());
  auto first = OpenSession(model);
  auto second = OpenSession(model);
  for (size_t i = 0; i < 50; i += 10) {
    ASSERT_TRUE(first->Append(std::span(a).subspan(i, 10)).ok());
    ASSERT_TRUE(second->Append(std::span(b).subspan(i, 10)).ok());
  }
  EXPECT_EQ(MaxDifference(first->logits(), alone_a->logits()), 0.0);
  EXPECT_EQ(MaxDifference(second->logits(), alone_b->logits()), 0.0);
}

TEST(Session, HalfPrecisionCacheIsCloseAndHalfTheSize) {
  const auto model = OpenTiny({});
  const std::vector<TokenId> tokens = RandomTokens(120, 70);
  auto exact = OpenSession(model, F32Cache());
  SessionOptions half_options = F32Cache();
  half_options.k_type = half_options.v_type = KvType::kF16;
  auto half = OpenSession(model, half_options);
  const std::vector<float> a = AllLogits(*exact, tokens, 64);
  const std::vector<float> b = AllLogits(*half, tokens, 64);
  EXPECT_EQ(exact->kv_bytes_used(), 2 * half->kv_bytes_used());
  // Keys and values are rounded to 11 bits; logits of a few units move by about 2^-11 of
  // themselves.
  EXPECT_LT(MaxDifference(a, b), 2e-2);
  EXPECT_GT(MaxDifference(a, b), 0.0);
}

TEST(Session, MemoryPlanMatchesWhatASessionUses) {
  TinyShape shape;
  shape.window = 40;
  const auto model = OpenTiny(shape);
  SessionOptions options = F32Cache(16);
  options.context = 512;
  auto plan = PlanMemory(*model, options);
  ASSERT_TRUE(plan.ok());
  auto session = OpenSession(model, options);
  const std::vector<TokenId> tokens = RandomTokens(512, 80);
  ASSERT_TRUE(session->Append(tokens).ok());
  EXPECT_LE(session->kv_bytes_used(), plan->kv);
  EXPECT_GE(session->kv_bytes_used() * 2, plan->kv);
  uint64_t groups = 0;
  for (const auto& group : plan->groups) groups += group.bytes;
  EXPECT_EQ(groups, plan->kv);
  options.kv_cache = false;
  EXPECT_EQ(PlanMemory(*model, options)->kv, 0u);
}

}  // namespace
}  // namespace kvant::test
