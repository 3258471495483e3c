// Models of many families from Hugging Face folders to logits: small random models and what
// transformers computes from them, by tests/reference/make_seeded_models.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/kernels.h"
#include "engine/arch/family.h"
#include "formats/npy.h"
#include "tests/engine/seeded_model.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

class SeededModels : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Reference, SeededModels, testing::ValuesIn(SeededModelNames()),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Roundings of 32-bit floats on logits of a few units.
constexpr double kTolerance = 1e-4;

SessionOptions F32Cache(int64_t context) {
  SessionOptions options;
  options.k_type = options.v_type = cpu::KvElement::kF32;
  options.context = context;
  options.threads = 2;
  return options;
}

TEST_P(SeededModels, LogitsAreThoseOfTransformersOnEveryInstructionSet) {
  SeededModel seeded(GetParam());
  const std::vector<TokenId> tokens = seeded.Tokens();
  const auto expected = formats::NpyRead(seeded.LogitsPath());
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    ModelOptions options;
    options.isa = isa.name;
    const auto model = seeded.Open(options);
    ASSERT_NE(model, nullptr);
    // In pieces, so that queries see keys of earlier steps beyond and within their windows.
    for (const size_t piece : {size_t{1}, size_t{29}, tokens.size()}) {
      const auto session = OpenSession(model, F32Cache(seeded.context()));
      const std::vector<float> logits = AllLogits(*session, tokens, piece);
      ASSERT_EQ(logits.size(), expected->values.size());
      EXPECT_LE(MaxDifference(logits, expected->values), kTolerance) << isa.name << ", " << piece;
    }
  }
}

// The context is many times the windows, and longer than what a ring of a window keeps, where the
// model has so many positions.
TEST_P(SeededModels, CachesAgreeWithTheModelWithoutCacheOverManyWindows) {
  const auto model = SeededModel(GetParam()).Open();
  ASSERT_NE(model, nullptr);
  const int64_t learned = model->spec().context_max;
  const int64_t context = learned > 0 ? learned : 640;
  const std::vector<TokenId> tokens = RandomTokens(context, 5, model->vocab_size());
  SessionOptions options = F32Cache(context);
  options.chunk = 64;
  const auto cached = OpenSession(model, options);
  const auto oracle = OpenSession(model, {.context = context, .kv_cache = false});
  const std::vector<float> found = AllLogits(*cached, tokens, 7);
  const std::vector<float> expected = AllLogits(*oracle, tokens, tokens.size());
  EXPECT_LE(MaxDifference(found, expected), kTolerance);
}

}  // namespace
}  // namespace kvant::test
