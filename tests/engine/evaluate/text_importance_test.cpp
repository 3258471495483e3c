// Importance matrices of embedding models and rerankers, against a forward pass in double
// precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/evaluate/importance.h"
#include "kvant/embed.h"
#include "tests/engine/embed/text_model.h"
#include "tests/engine/reference_forward.h"

namespace kvant::evaluate {
namespace {

TEST(TextImportance, MatchesTheDoublePrecisionForwardPass) {
  const std::vector<EmbedTokens> texts = {{test::RandomTokens(9, 1, 60), {}},
                                          {test::RandomTokens(33, 2, 60), {}},
                                          {test::RandomTokens(1, 3, 60), {}}};
  for (const Pooling pooling : {Pooling::kMean, Pooling::kRank}) {
    std::map<std::string, std::vector<double>> first;
    for (const int threads : {1, 3}) {
      ImportanceCollector collector(OutputMatrix::kSkipped);
      ModelOptions options;
      options.observer = &collector;
      const int64_t labels = pooling == Pooling::kRank ? 2 : 0;
      const auto model = test::OpenText({.pooling = pooling, .labels = labels}, options);
      const auto embedder = Embedder::Create(model, {.threads = threads});
      ASSERT_TRUE(embedder.ok()) << embedder.error().message;
      const Status status = collector.RunTexts(**embedder, texts, {});
      ASSERT_TRUE(status.ok()) << status.error().message;
      const auto imatrix = collector.Take();
      ASSERT_TRUE(imatrix.ok());
      EXPECT_EQ(imatrix->chunk_count, 1u);
      test::ReferenceForward reference(model->file());
      for (const EmbedTokens& text : texts) reference.Rows(text.ids, text.types);
      EXPECT_EQ(imatrix->entries.size(), 2u * 6);
      for (const auto& [name, entry] : imatrix->entries) {
        const auto& squares = reference.input_squares().at(name);
        EXPECT_THAT(entry.counts, testing::ElementsAre(9 + 33 + 1));
        ASSERT_EQ(entry.sums.size(), squares.size()) << name;
        for (size_t i = 0; i < squares.size(); ++i) {
          EXPECT_NEAR(entry.sums[i], squares[i], 1e-4 * squares[i] + 1e-6) << name;
        }
        const auto [known, added] = first.emplace(name, entry.sums);
        EXPECT_EQ(known->second, entry.sums) << name << " depends on the threads";
      }
    }
  }
}

}  // namespace
}  // namespace kvant::evaluate
