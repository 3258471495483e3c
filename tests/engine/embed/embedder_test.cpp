// Vectors and scores of texts: against a forward pass in double precision, in any company, on any
// number of threads; errors; the plan of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "cpu/dispatch.h"
#include "formats/gguf.h"
#include "kvant/embed.h"
#include "kvant/runner.h"
#include "tests/engine/embed/text_model.h"
#include "tests/engine/reference_forward.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

std::unique_ptr<Embedder> OpenEmbedder(const std::shared_ptr<const Model>& model,
                                       const EmbedOptions& options = {}) {
  auto embedder = Embedder::Create(model, options);
  EXPECT_TRUE(embedder.ok()) << embedder.error().message;
  return embedder.ok() ? std::move(*embedder) : nullptr;
}

std::vector<EmbedTokens> RandomTexts(const std::vector<size_t>& lengths, int64_t vocab,
                                     int64_t segments, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<EmbedTokens> texts;
  for (const size_t length : lengths) {
    EmbedTokens& text = texts.emplace_back();
    for (size_t i = 0; i < length; ++i) {
      text.ids.push_back(static_cast<TokenId>(random() % static_cast<uint32_t>(vocab)));
      if (segments > 1) text.types.push_back(static_cast<int32_t>(i >= length / 2));
    }
  }
  return texts;
}

// ---- The reference ------------------------------------------------------------------------------

Vector Pooled(Pooling pooling, const std::vector<Vector>& rows) {
  if (pooling == Pooling::kCls) return rows.front();
  if (pooling == Pooling::kLast) return rows.back();
  Vector mean(rows.front().size());
  for (const Vector& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) mean[i] += row[i] / static_cast<double>(rows.size());
  }
  return mean;
}

Vector Normalized(Vector vector, double power) {
  double sum = 0;
  for (const double value : vector) sum += std::pow(std::abs(value), power);
  for (double& value : vector) value /= std::pow(sum, 1 / power);
  return vector;
}

Vector Tanh(Vector vector) {
  for (double& value : vector) value = std::tanh(value);
  return vector;
}

// The vector, or the logits, of a text.
Vector Expected(ReferenceForward& reference, Pooling pooling, const EmbedTokens& text) {
  const std::vector<Vector> rows = reference.Rows(text.ids, text.types);
  ReferenceWeights& weights = reference.weights();
  if (pooling == Pooling::kRank) {
    const Vector hidden =
        Tanh(weights.Multiply("cls", Pooled(reference.spec().embedding.classifier_pooling, rows)));
    const arch::Norm norm = {arch::NormKind::kLayer, "cls.norm", 1e-6f};
    return weights.Multiply("cls.output", weights.Norm("", norm, hidden));
  }
  Vector vector = Pooled(pooling, rows);
  if (weights.Has("dense_2.weight")) {
    vector = weights.Multiply("dense_3", Tanh(weights.Multiply("dense_2", vector)));
  }
  return Normalized(std::move(vector), 2);
}

void ExpectNear(std::span<const float> found, const Vector& expected, double limit,
                const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(found[i]), expected[i], limit) << what << ", number " << i;
  }
}

const std::vector<size_t> kLengths = {1, 2, 17, 33, 64, 65, 96, 5};

void ExpectReference(const std::shared_ptr<const Model>& model, Pooling pooling,
                     const std::string& what) {
  ReferenceForward reference(model->file());
  const auto embedder = OpenEmbedder(model, {.threads = 2, .pooling = pooling});
  ASSERT_NE(embedder, nullptr);
  const int64_t segments = model->file().FindTensor("token_types.weight") != nullptr ? 2 : 0;
  const auto texts = RandomTexts(kLengths, model->vocab_size(), segments, 11);
  if (pooling == Pooling::kRank) {
    const auto ranking = embedder->Rank(texts);
    ASSERT_TRUE(ranking.ok()) << ranking.error().message;
    for (size_t i = 0; i < texts.size(); ++i) {
      ExpectNear(ranking->LogitsOf(static_cast<int64_t>(i)), Expected(reference, pooling, texts[i]),
                 1e-4, what);
    }
    return;
  }
  const auto made = embedder->Embed(texts);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->texts(), std::ssize(texts));
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto found = made->RowsOf(static_cast<int64_t>(i));
    if (pooling == Pooling::kNone) {
      Vector rows;
      for (const Vector& row : reference.Rows(texts[i].ids, texts[i].types)) {
        rows.insert(rows.end(), row.begin(), row.end());
      }
      ExpectNear(found, rows, 1e-4, what);
    } else {
      ExpectNear(found, Expected(reference, pooling, texts[i]), 2e-5, what);
    }
  }
}

ModelOptions With(const std::string& isa) {
  ModelOptions options;
  options.isa = isa;
  return options;
}

std::vector<std::string> Isas() {
  std::vector<std::string> names;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (isa.compiled && isa.supported) names.emplace_back(isa.name);
  }
  return names;
}

TEST(Embedder, HasTheVectorsOfTheReferenceOnEveryInstructionSet) {
  for (const std::string& isa : Isas()) {
    for (const Pooling pooling : {Pooling::kNone, Pooling::kMean, Pooling::kCls, Pooling::kLast}) {
      const auto model = OpenText({.pooling = pooling}, With(isa));
      ASSERT_NE(model, nullptr);
      ExpectReference(model, pooling, isa + " " + std::string(PoolingName(pooling)));
    }
  }
}

TEST(Embedder, HasHeadsOfEveryKind) {
  ExpectReference(OpenText({.dense = true}), Pooling::kMean, "dense layers");
  ExpectReference(OpenText({.pooling = Pooling::kRank, .labels = 1}), Pooling::kRank, "one label");
  ExpectReference(OpenText({.pooling = Pooling::kRank, .labels = 3}), Pooling::kRank, "labels");
  ExpectReference(OpenText({.segments = 0}), Pooling::kCls, "no segments");
}

// Decoders: causal ones, pooled or asked to be, and those that see both sides, with windows, too.
TEST(Embedder, TakesDecoders) {
  const auto opened = [](const TinyShape& shape, bool causal, std::optional<Pooling> pooling) {
    const std::string path = WriteChanged(shape, [&](formats::GgufWriter& writer) {
      if (!causal) writer.AddBool(shape.arch + ".attention.causal", false);
      if (pooling.has_value()) {
        writer.AddU32(shape.arch + ".pooling_type", static_cast<uint32_t>(*pooling));
      }
    });
    auto model = Model::Open(path);
    std::filesystem::remove(path);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *model : nullptr;
  };
  ExpectReference(opened({}, true, std::nullopt), Pooling::kLast, "asked for");
  ExpectReference(opened({}, true, Pooling::kLast), Pooling::kLast, "causal");
  ExpectReference(opened({}, false, Pooling::kMean), Pooling::kMean, "both sides");
  ExpectReference(opened(MixedShape(12), true, Pooling::kMean), Pooling::kMean, "windows");
  const auto symmetric = opened(MixedShape(12), false, Pooling::kMean);
  ExpectReference(symmetric, Pooling::kMean, "windows of both sides");
  EXPECT_TRUE(symmetric->is_embedder());
  EXPECT_FALSE(symmetric->has_decoder());
}

TEST(Embedder, TakesOneTextAtATimeWhereLayersHaveNoOtherWay) {
  ExpectReference(OpenTiny(LatentShape()), Pooling::kMean, "latents");
}

// ---- Company and threads ------------------------------------------------------------------------

TEST(Embedder, BitsDependOnNeitherCompanyNorThreads) {
  const std::vector<size_t> lengths = {3, 96, 1, 40, 64, 7, 90, 12, 33, 2, 80, 5};
  for (const std::string& isa : Isas()) {
    for (const char* type : {"F32", "F16", "Q8_0", "Q4_0"}) {
      const auto model = OpenText({.type = type}, With(isa));
      ASSERT_NE(model, nullptr);
      const auto texts = RandomTexts(lengths, model->vocab_size(), 2, 5);
      const auto first = OpenEmbedder(model, {.threads = 1});
      std::vector<std::vector<float>> alone;
      for (const EmbedTokens& text : texts) {
        const auto made = first->Embed({&text, 1});
        ASSERT_TRUE(made.ok()) << made.error().message;
        alone.push_back(made->values);
      }
      std::mt19937 random(17);
      for (int threads = 1; threads <= 4; ++threads) {
        const auto embedder =
            OpenEmbedder(model, {.threads = threads, .batch_tokens = 50 * threads + 20});
        std::vector<size_t> order(texts.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), random);
        std::vector<EmbedTokens> shuffled;
        for (const size_t i : order) shuffled.push_back(texts[i]);
        const auto made = embedder->Embed(shuffled);
        ASSERT_TRUE(made.ok()) << made.error().message;
        for (size_t i = 0; i < order.size(); ++i) {
          const auto found = made->RowsOf(static_cast<int64_t>(i));
          EXPECT_TRUE(std::ranges::equal(found, alone[order[i]]))
              << isa << " " << type << ", " << threads << " threads, text " << order[i];
        }
      }
    }
  }
}

// ---- Vectors ------------------------------------------------------------------------------------

TEST(Embedder, CutsAndNormalizesVectors) {
  const auto model = OpenText({});
  const auto embedder = OpenEmbedder(model);
  const auto texts = RandomTexts({9}, model->vocab_size(), 0, 1);
  const auto raw = embedder->Embed(texts, {.normalize = -1});
  ASSERT_TRUE(raw.ok());
  const Vector values(raw->values.begin(), raw->values.end());
  for (const double power : {1.0, 2.0, 3.5}) {
    const auto made = embedder->Embed(texts, {.normalize = power});
    ExpectNear(made->values, Normalized(values, power), 1e-6, std::to_string(power));
  }
  const auto largest = embedder->Embed(texts, {.normalize = 0});
  float most = 0;
  for (const float value : largest->values) most = std::max(most, std::abs(value));
  EXPECT_NEAR(static_cast<double>(most), 32760, 0.01);
  const auto cut = embedder->Embed(texts, {.dimensions = 24});
  EXPECT_EQ(cut->dim, 24);
  ExpectNear(cut->values, Normalized({values.begin(), values.begin() + 24}, 2), 1e-6, "cut");
}

TEST(Embedder, ScoresAreLogitsOrProbabilities) {
  const Ranking one = {.labels = 1, .logits = {0.0f, -2.0f}};
  EXPECT_EQ(one.Score(1, ScoreKind::kRaw), -2.0f);
  EXPECT_EQ(one.Score(0, ScoreKind::kProbability), 0.5f);
  const Ranking two = {.labels = 2, .logits = {3.0f, 1.0f}};
  EXPECT_EQ(two.Score(0, ScoreKind::kRaw), 2.0f);
  EXPECT_NEAR(static_cast<double>(two.Score(0, ScoreKind::kProbability)),
              std::exp(3.0) / (std::exp(3.0) + std::exp(1.0)), 1e-6);
}

// ---- Errors -------------------------------------------------------------------------------------

template <class T>
std::string MessageOf(const Result<T>& result) {
  return result.ok() ? "accepted" : result.error().message;
}

TEST(Embedder, RefusesWhatItCannotRead) {
  const auto model = OpenText({});
  const auto embedder = OpenEmbedder(model);
  const auto message = [&](const EmbedTokens& text) {
    const std::vector<EmbedTokens> texts = {{{5, 6}}, text};
    return MessageOf(embedder->Embed(texts));
  };
  EXPECT_EQ(message({}), "text 1: expected at least one token, found none");
  EXPECT_EQ(message({{65}}), "text 1: expected ids from 0 to 64, found 65");
  EXPECT_EQ(message({{-1}}), "text 1: expected ids from 0 to 64, found -1");
  EXPECT_EQ(message({{5}, {2}}), "text 1: expected segments from 0 to 1, found 2");
  EXPECT_EQ(message({{5}, {0, 1}}), "text 1: expected 1 segments, one a token, found 2");
  EXPECT_EQ(message({std::vector<TokenId>(97, 5)}), "text 1 has 97 tokens, but the context has 96");
  EXPECT_EQ(message({std::vector<TokenId>(96, 5)}), "accepted");
  const std::vector<EmbedTokens> texts = {{{5}}};
  EXPECT_THAT(MessageOf(embedder->Embed(texts, {.dimensions = 65})),
              HasSubstr("dimensions: expected 1 to 64, or 0 for all, found 65"));
  EXPECT_THAT(MessageOf(embedder->Embed(texts, {.normalize = -2})), HasSubstr("found -2"));
  EXPECT_THAT(MessageOf(embedder->Rank(texts)), HasSubstr("found pooling mean"));
}

TEST(Embedder, RefusesOptionsThatTheModelCannotHave) {
  const auto model = OpenText({});
  EXPECT_THAT(MessageOf(Embedder::Create(model, {.context = 97})),
              HasSubstr("has learned 96 positions and can have no more, found 97"));
  EXPECT_THAT(MessageOf(Embedder::Create(model, {.pooling = Pooling::kRank})),
              HasSubstr("expected a classifier"));
  EXPECT_THAT(MessageOf(Embedder::Create(OpenTiny({}), {})), HasSubstr("--pooling"));
  const auto runner = Runner::Create(model, {});
  ASSERT_TRUE(runner.ok()) << runner.error().message;
  EXPECT_THAT(MessageOf((*runner)->NewSequence()), HasSubstr("'kvant embed'"));
}

TEST(Embedder, EndsWhereACallerAsks) {
  const auto model = OpenText({});
  const auto embedder = OpenEmbedder(model);
  const std::atomic<bool> cancel = true;
  const std::vector<EmbedTokens> texts = {{{5, 6}}};
  const auto cancelled = embedder->Embed(texts, {}, &cancel);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  EXPECT_TRUE(embedder->Embed(texts).ok());
}

TEST(Embedder, TellsItsMemory) {
  const auto model = OpenText({});
  const auto small = OpenEmbedder(model, {.threads = 1, .batch_tokens = 96});
  const auto large = OpenEmbedder(model, {.threads = 1, .batch_tokens = 960});
  // Rows of floats that live at the same time: the stream, queries to values, what is attended.
  const uint64_t row = (64 + 3 * 64) * sizeof(float);
  EXPECT_GE(small->memory().activations, 96 * row);
  EXPECT_GE(large->memory().activations, small->memory().activations + 864 * row);
  EXPECT_EQ(small->memory().weights, large->memory().weights);
}

}  // namespace
}  // namespace kvant::test
