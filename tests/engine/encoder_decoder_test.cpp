// Encoder-decoders: sources, their cache, and logits as transformers computes them. Names begin
// with the number of the check.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "formats/npy.h"
#include "tests/engine/logit_comparison.h"
#include "tests/engine/runner_kinds.h"
#include "tests/engine/seeded_model.h"

namespace kvant::test {
namespace {

class EncoderDecoders : public testing::TestWithParam<std::string> {
 protected:
  EncoderDecoders() : seeded_(kSeededPairs + GetParam()) {}

  static std::vector<float> Numbers(const std::string& path) {
    const auto read = formats::NpyRead(path);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? read->values : std::vector<float>();
  }

  SeededModel seeded_;
};

INSTANTIATE_TEST_SUITE_P(Reference, EncoderDecoders,
                         testing::ValuesIn(SeededModelNames(kSeededPairs)), [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Of the largest number, where that is more than one.
double Limit(double part, std::span<const float> expected) {
  double largest = 1;
  for (const float number : expected) largest = std::max(largest, std::abs(double{number}));
  return part * largest;
}

TEST_P(EncoderDecoders, Ed09EncoderAndLogitsAreThoseOfTransformers) {
  const std::vector<TokenId> source = seeded_.Source();
  const std::vector<TokenId> tokens = seeded_.Tokens();
  const std::vector<float> encoded = Numbers(seeded_.EncodedPath());
  const std::vector<float> expected = Numbers(seeded_.LogitsPath());
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    ModelOptions options;
    options.isa = isa.name;
    const auto model = seeded_.Open(options);
    ASSERT_NE(model, nullptr);
    for (const size_t piece : {size_t{1}, size_t{7}, tokens.size()}) {
      SessionOptions session = Options(KvElement::kF32, 2);
      const auto runner = OpenRunner(model, session);
      ASSERT_NE(runner, nullptr);
      std::vector<float> rows;
      const auto id = runner->Encode(source, {.rows = [&](std::span<const float> found) -> Status {
                                       rows.assign(found.begin(), found.end());
                                       return {};
                                     }});
      ASSERT_TRUE(id.ok()) << id.error().message;
      EXPECT_LE(MaxDifference(rows, encoded), Limit(1e-5, encoded)) << isa.name;
      const auto sequence = runner->NewSequence(*id);
      ASSERT_TRUE(sequence.ok()) << sequence.error().message;
      std::vector<float> logits;
      for (size_t at = 0; at < tokens.size(); at += piece) {
        const auto part = std::span(tokens).subspan(at, std::min(piece, tokens.size() - at));
        ExpectOk(runner->AppendScoring(*sequence, part, 0, [&](int64_t, int64_t count) -> Status {
          for (int64_t i = 0; i < count; ++i) {
            const auto row = runner->row(i);
            logits.insert(logits.end(), row.begin(), row.end());
          }
          return {};
        }));
      }
      ASSERT_EQ(logits.size(), expected.size());
      EXPECT_LE(MaxDifference(logits, expected), Limit(2e-5, expected))
          << isa.name << ", " << piece;
    }
  }
}

}  // namespace
}  // namespace kvant::test
