// Decoders of all families, recurrent ones among them, whose rows are asked for: the rows of a
// text, times the matrix of the output, are the logits that transformers computes
// (tests/reference/make_seeded_models.py), and vectors are made of these rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "formats/npy.h"
#include "kvant/embed.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/reference/weights.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

class PooledDecoders : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Reference, PooledDecoders, testing::ValuesIn(SeededModelNames()),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

constexpr double kPooledTolerance = 1e-4;  // roundings of 32-bit floats

// Null where the layers cannot make rows.
std::unique_ptr<Embedder> OpenPooled(const std::shared_ptr<const Model>& model, Pooling pooling,
                                     int64_t context = 0) {
  auto embedder = Embedder::Create(model, {.threads = 2, .context = context, .pooling = pooling});
  if (embedder.ok()) return std::move(*embedder);
  const arch::Stack& stack = model->spec().stacks.front();
  EXPECT_TRUE(stack.streams.has_value() || stack.hyper.has_value()) << embedder.error().message;
  EXPECT_THAT(embedder.error().message, HasSubstr("several streams make no vectors"));
  return nullptr;
}

std::vector<float> RowsOfText(Embedder& embedder, const std::vector<TokenId>& tokens) {
  const EmbedTokens text = {tokens, {}};
  const auto found = embedder.Embed({&text, 1}, {.normalize = -1});
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() ? found->values : std::vector<float>();
}

// Multiplies a row by the matrix of the decoder's output, in double precision.
Vector LogitsOfRow(const Model& model, ReferenceWeights& weights, std::span<const float> row) {
  const arch::Stack& stack = model.spec().stacks.front();
  const std::string output(stack.output.tensor);
  const bool tied = !weights.Has(output + ".weight");
  Vector logits =
      weights.Multiply(tied ? std::string(stack.input.tensor) : output, {row.begin(), row.end()});
  const double cap = static_cast<double>(stack.output.cap);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (tied && weights.Has(output + ".bias")) logits[i] += weights.Get(output + ".bias")[i];
    logits[i] *= static_cast<double>(stack.output.scale);
    if (cap > 0) logits[i] = cap * std::tanh(logits[i] / cap);
  }
  return logits;
}

TEST_P(PooledDecoders, RowsAreThoseOfTheLogitsOfTransformers) {
  SeededModel seeded(GetParam());
  const auto expected = formats::NpyRead(seeded.LogitsPath());
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  const auto model = seeded.Open();
  ASSERT_NE(model, nullptr);
  const auto embedder = OpenPooled(model, Pooling::kNone, seeded.context());
  if (embedder == nullptr) return;
  const std::vector<TokenId> tokens = seeded.Tokens();
  const std::vector<float> rows = RowsOfText(*embedder, tokens);
  const size_t dim = rows.size() / tokens.size();
  ReferenceWeights weights(model->file());
  std::vector<float> logits;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const Vector of_row = LogitsOfRow(*model, weights, std::span(rows).subspan(i * dim, dim));
    logits.insert(logits.end(), of_row.begin(), of_row.end());
  }
  ASSERT_EQ(logits.size(), expected->values.size());
  EXPECT_LE(MaxDifference(logits, expected->values), kPooledTolerance);
}

// Texts do not see each other.
TEST_P(PooledDecoders, VectorsAreMadeOfTheRowsInAnyCompany) {
  const auto plain = SeededModel(GetParam()).Open();
  ASSERT_NE(plain, nullptr);
  const auto by_row = OpenPooled(plain, Pooling::kNone);
  if (by_row == nullptr) return;
  const auto embedder = OpenPooled(plain, Pooling::kMean);
  ASSERT_NE(embedder, nullptr);
  std::vector<EmbedTokens> texts;
  for (const int count : {5, 23, 1, 40}) {
    texts.push_back({RandomTokens(count, static_cast<uint32_t>(count), plain->vocab_size()), {}});
  }
  const auto together = embedder->Embed(texts, {.normalize = -1});
  ASSERT_TRUE(together.ok()) << together.error().message;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::vector<float> rows = RowsOfText(*by_row, texts[i].ids);
    const auto found = together->RowsOf(static_cast<int64_t>(i));
    const size_t count = texts[i].ids.size();
    for (size_t column = 0; column < found.size(); ++column) {
      double sum = 0;
      for (size_t row = 0; row < count; ++row) {
        sum += static_cast<double>(rows[row * found.size() + column]);
      }
      ASSERT_NEAR(static_cast<double>(found[column]), sum / static_cast<double>(count), 1e-5) << i;
    }
    EXPECT_TRUE(std::ranges::equal(RowsOfText(*embedder, texts[i].ids), found)) << i;
  }
}

// A folder may say the pooling, and its file then makes vectors and no texts.
TEST(PooledRecurrent, FoldersSayThePooling) {
  for (const char* name : {"mamba", "mamba2", "qwen3next", "jamba", "nemotron_h", "rwkv7"}) {
    const auto plain = SeededModel(name).Open();
    ASSERT_NE(plain, nullptr);
    const auto by_row = OpenPooled(plain, Pooling::kNone);
    ASSERT_NE(by_row, nullptr);
    const std::vector<TokenId> tokens = RandomTokens(20, 3, plain->vocab_size());
    const std::vector<float> rows = RowsOfText(*by_row, tokens);
    const size_t dim = rows.size() / tokens.size();
    SeededModel pooled(name);
    pooled.files = SeededModel(std::string(kSeededEmbedders) + "lfm2-causal").files;
    pooled.files["1_Pooling/config.json"]["word_embedding_dimension"] = dim;
    const auto model = pooled.Open();
    ASSERT_NE(model, nullptr) << name;
    EXPECT_TRUE(model->is_embedder()) << name;
    auto embedder = Embedder::Create(model, {.threads = 2});
    ASSERT_TRUE(embedder.ok()) << embedder.error().message;
    EXPECT_EQ((*embedder)->pooling(), Pooling::kLast);
    EXPECT_EQ(RowsOfText(**embedder, tokens),
              std::vector<float>(rows.end() - static_cast<int64_t>(dim), rows.end()))
        << name;
  }
}

}  // namespace
}  // namespace kvant::test
