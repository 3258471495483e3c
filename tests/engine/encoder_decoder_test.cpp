// Encoder-decoders: sources, their cache, and logits as transformers computes them. Names begin
// with the number of the check.
#include <gtest/gtest.h>

#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "cpu/kernels.h"
#include "formats/npy.h"
#include "tests/engine/logit_comparison.h"
#include "tests/engine/runner_kinds.h"

namespace kvant::test {
namespace {

class EncoderDecoders : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("KVANT_ED");
    if (folder == nullptr) GTEST_SKIP();
    folder_ = folder;
  }
  std::vector<float> Numbers(const std::string& what) const {
    const auto read = formats::NpyRead(folder_ + "/" + GetParam() + "." + what + ".npy");
    EXPECT_TRUE(read.ok()) << read.error().message;
    return read.ok() ? read->values : std::vector<float>();
  }
  std::vector<TokenId> Tokens(const std::string& what) const {
    std::vector<TokenId> tokens;
    for (const float number : Numbers(what)) tokens.push_back(static_cast<TokenId>(number));
    return tokens;
  }
  std::shared_ptr<const Model> Open(const ModelOptions& options) const {
    const auto model = Model::Open(folder_ + "/" + GetParam() + ".gguf", options);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *model : nullptr;
  }

 private:
  std::string folder_;
};

INSTANTIATE_TEST_SUITE_P(Reference, EncoderDecoders,
                         testing::Values("t5", "t5-gated", "umt5", "bart", "mbart", "marian",
                                         "m2m100"),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(EncoderDecoders, Ed09EncoderAndLogitsAreThoseOfTransformers) {
  const std::vector<TokenId> source = Tokens("src");
  const std::vector<TokenId> tokens = Tokens("dec");
  const std::vector<float> encoded = Numbers("enc");
  const std::vector<float> expected = Numbers("logits");
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    ModelOptions options;
    options.isa = isa.name;
    const auto model = Open(options);
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
      EXPECT_LE(MaxDifference(rows, encoded), 2e-5) << isa.name;
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
      EXPECT_LE(MaxDifference(logits, expected), 1e-4) << isa.name << ", " << piece;
    }
  }
}

}  // namespace
}  // namespace kvant::test
