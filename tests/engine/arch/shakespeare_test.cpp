// The trained model that comes with kvant: logits against transformers, rings of windows against
// the model without cache.
#include <gtest/gtest.h>

#include "cpu/dispatch.h"
#include "cpu/kv_format_list.h"
#include "formats/npy.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

std::string ModelFile(const std::string& name) { return SourcePath("models/shakespeare/" + name); }

std::shared_ptr<const Model> Open(const std::string& name, const std::string& isa = "") {
  ModelOptions options;
  options.isa = isa;
  auto model = Model::Open(ModelFile(name), options);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *model : nullptr;
}

// The rows of `all` that the reference holds.
std::vector<float> SelectRows(const std::vector<float>& all, size_t vocab) {
  std::vector<float> rows;
  for (const TokenId row : ReadTokenList(ModelFile("reference/rows.txt"))) {
    const auto begin = all.begin() + static_cast<int64_t>(static_cast<size_t>(row) * vocab);
    rows.insert(rows.end(), begin, begin + static_cast<int64_t>(vocab));
  }
  return rows;
}

struct Agreement {
  double difference;
  double divergence;
};

SessionOptions ShakespeareOptions() {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  return options;
}

Agreement CompareWithTorch(const std::shared_ptr<const Model>& model) {
  const auto expected = formats::NpyRead(ModelFile("reference/logits.npy"));
  EXPECT_TRUE(expected.ok());
  const auto session = OpenSession(model, ShakespeareOptions());
  const std::vector<TokenId> tokens = ReadTokenList(ModelFile("reference/tokens.txt"));
  const auto vocab = static_cast<size_t>(model->vocab_size());
  const std::vector<float> rows = SelectRows(AllLogits(*session, tokens, 100), vocab);
  return {MaxDifference(rows, expected->values),
          MeanDivergence(expected->values, rows, rows.size() / vocab)};
}

TEST(Shakespeare, LogitsAreThoseOfTransformersOnEveryInstructionSet) {
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    const auto master = Open("shakespeare-bf16.gguf", isa.name);
    ASSERT_NE(master, nullptr);
    EXPECT_LE(CompareWithTorch(master).difference, 1e-4) << isa.name;
    const auto small = Open("shakespeare.gguf", isa.name);
    ASSERT_NE(small, nullptr);
    EXPECT_LE(CompareWithTorch(small).divergence, 4e-4) << isa.name;
  }
}

TEST(Shakespeare, RingsAgreeWithTheModelWithoutCacheOverManyWindows) {
  const auto model = Open("shakespeare-bf16.gguf");
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> tokens = ReadTokenList(ModelFile("reference/tokens.txt"));
  SessionOptions rings = ShakespeareOptions();
  rings.chunk = 64;
  SessionOptions uncached;
  uncached.kv_cache = false;
  const auto cached = OpenSession(model, rings);
  const auto oracle = OpenSession(model, uncached);
  const std::vector<float> found = AllLogits(*cached, tokens, 50);
  const std::vector<float> expected = AllLogits(*oracle, tokens, tokens.size());
  EXPECT_LE(MaxDifference(expected, found), 1e-3);
}

}  // namespace
}  // namespace kvant::test
