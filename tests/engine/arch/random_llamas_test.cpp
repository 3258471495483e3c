// Random models that no file of ours produced: written by the Python package gguf and evaluated by
// a float64 forward pass in NumPy (tests/reference/make_random_llamas.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cpu/dispatch.h"
#include "cpu/kv_format_list.h"
#include "formats/gguf.h"
#include "formats/npy.h"
#include "kvant/session.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

std::vector<std::string> FixtureNames() {
  std::vector<std::string> names;
  const std::filesystem::path folder = SourcePath("tests/reference/random_llamas");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsQuantized(const Model& model) {
  return std::ranges::any_of(model.file().tensors(), [](const formats::GgufTensor& tensor) {
    return tensor.format->quantized();
  });
}

class RandomLlamas : public testing::TestWithParam<std::string> {};

// The limits for float files and, where activations are rounded to 8 bits, for quantized ones.
constexpr double kFloatDifference = 1e-3;
constexpr double kQuantizedDivergence = 2e-3;

TEST_P(RandomLlamas, MatchTheFloat64ForwardPassOnEveryInstructionSet) {
  const std::string base = SourcePath("tests/reference/random_llamas/" + GetParam());
  const std::vector<TokenId> tokens = ReadTokenList(base + ".tokens");
  auto expected = formats::NpyRead(base + ".npy");
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    ModelOptions options;
    options.isa = isa.name;
    auto model = Model::Open(base + ".gguf", options);
    ASSERT_TRUE(model.ok()) << model.error().message;
    SessionOptions session_options;
    session_options.k_type = session_options.v_type = KvType::kF32;
    auto session = OpenSession(*model, session_options);
    const std::vector<float> logits = AllLogits(*session, tokens, 33);
    ASSERT_EQ(logits.size(), expected->values.size());
    if (IsQuantized(**model)) {
      EXPECT_LE(MeanDivergence(expected->values, logits, tokens.size()), kQuantizedDivergence)
          << isa.name;
    } else {
      EXPECT_LE(MaxDifference(logits, expected->values), kFloatDifference) << isa.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gguf, RandomLlamas, testing::ValuesIn(FixtureNames()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
                               '_');
                           return name;
                         });

}  // namespace
}  // namespace kvant::test
