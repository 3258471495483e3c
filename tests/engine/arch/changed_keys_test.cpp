// Models whose files say something in another way, or something more: what they compute then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

using formats::GgufFile;
using formats::GgufWriter;
using testing::HasSubstr;

// The converted model with other metadata.
Result<std::shared_ptr<const Model>> OpenChanged(
    SeededModel& seeded, const std::function<void(GgufWriter&)>& change,
    uint32_t alignment = formats::kGgufAlignmentDefault) {
  KVANT_ASSIGN(const std::string path, seeded.Convert());
  KVANT_ASSIGN(const GgufFile file, GgufFile::Open(path));
  GgufWriter writer(alignment);
  for (const auto& [key, value] : file.metadata()) writer.AddValue(std::string(key), value);
  change(writer);
  for (const formats::GgufTensor& tensor : file.tensors()) KVANT_TRY(writer.AddTensor(tensor));
  const std::string copy = TempPath("changed.gguf");
  KVANT_TRY(writer.Begin(copy));
  for (const formats::GgufTensor& tensor : file.tensors()) {
    KVANT_TRY(writer.WriteTensor({tensor.data, tensor.size_bytes}));
  }
  KVANT_TRY(writer.Finish());
  auto model = Model::Open(copy);
  std::filesystem::remove(copy);
  return model;
}

std::vector<float> ExactLogits(const std::shared_ptr<const Model>& model,
                               const std::vector<TokenId>& tokens, size_t piece) {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.context = std::ssize(tokens);
  return AllLogits(*OpenSession(model, options), tokens, piece);
}

// Nemotron 3 Puzzle gives each layer its number of experts and their width, and zeros to the layers
// that have none.
TEST(ChangedKeys, ArraysOfExpertsHaveZerosForLayersWithoutExperts) {
  SeededModel seeded("nemotron_h_moe-mixed");
  const auto plain = seeded.Open();
  ASSERT_NE(plain, nullptr);
  const GgufFile& file = plain->file();
  const auto layers = static_cast<size_t>(**file.GetU32("nemotron_h_moe.block_count"));
  const auto width = **file.GetU32("nemotron_h_moe.expert_feed_forward_length");
  std::vector<int32_t> used(layers);
  std::vector<int32_t> widths(layers);
  for (size_t i = 0; i < layers; ++i) {
    if (file.FindTensor(fmt::format("blk.{}.ffn_gate_inp.weight", i)) == nullptr) continue;
    used[i] = 2;
    widths[i] = static_cast<int32_t>(width);
  }
  ASSERT_EQ(std::ranges::count(used, 0), std::ssize(used) - 1);
  const auto with = [&](const std::vector<int32_t>& counts, const std::vector<int32_t>& sizes) {
    return OpenChanged(seeded, [&](GgufWriter& writer) {
      writer.AddI32s("nemotron_h_moe.expert_used_count", counts);
      writer.AddI32s("nemotron_h_moe.expert_feed_forward_length", sizes);
    });
  };
  const auto changed = with(used, widths);
  ASSERT_TRUE(changed.ok()) << changed.error().message;
  const std::vector<TokenId> tokens = seeded.Tokens();
  EXPECT_EQ(ExactLogits(*changed, tokens, 7), ExactLogits(plain, tokens, 7));

  const std::vector<int32_t> none(layers);
  EXPECT_THAT(with(none, widths).error().message,
              HasSubstr("key nemotron_h_moe.expert_used_count: layer 3, which has experts"));
  EXPECT_THAT(with(used, none).error().message,
              HasSubstr("key nemotron_h_moe.expert_feed_forward_length: layer 3, which has"));
}

// A text of another length moves the weights.
TEST(ChangedKeys, WeightsMayLieAtAnyByte) {
  SeededModel seeded("qwen2moe");
  const std::vector<TokenId> tokens = seeded.Tokens();
  const std::vector<float> expected = ExactLogits(seeded.Open(), tokens, tokens.size());
  for (size_t length = 0; length < 4; ++length) {
    const auto changed = OpenChanged(
        seeded,
        [&](GgufWriter& writer) {
          writer.AddString("general.description", std::string(length, 'x'));
        },
        1);
    ASSERT_TRUE(changed.ok()) << changed.error().message;
    EXPECT_EQ(ExactLogits(*changed, tokens, tokens.size()), expected) << length;
  }
}

// llama.cpp's converter writes true for folders of StableLM that say nothing; tensors tell.
TEST(ChangedKeys, NormsTellTheFlowOfStableLm) {
  SeededModel seeded("stablelm");
  const auto plain = seeded.Open();
  ASSERT_NE(plain, nullptr);
  const auto changed = OpenChanged(
      seeded, [](GgufWriter& writer) { writer.AddBool("stablelm.use_parallel_residual", true); });
  ASSERT_TRUE(changed.ok()) << changed.error().message;
  const std::vector<TokenId> tokens = seeded.Tokens();
  EXPECT_EQ(ExactLogits(*changed, tokens, 7), ExactLogits(plain, tokens, 7));
}

class LatentTemperature : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Models, LatentTemperature,
                         testing::Values("deepseek2-v3", "deepseek2-lite"), [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Mistral Large 3 heats queries from `length` positions on.
TEST_P(LatentTemperature, IsThatOfTheReference) {
  SeededModel seeded(GetParam());
  const std::vector<TokenId> tokens = seeded.Tokens();
  const auto plain = seeded.Open();
  ASSERT_NE(plain, nullptr);
  const auto hot = OpenChanged(seeded, [](GgufWriter& writer) {
    writer.AddF32("deepseek2.attention.temperature_scale", 0.5f);
    writer.AddU32("deepseek2.attention.temperature_length", 4);
  });
  ASSERT_TRUE(hot.ok()) << hot.error().message;
  const Vector reference = ReferenceForward((*hot)->file()).Logits(tokens);
  const std::vector<float> expected(reference.begin(), reference.end());
  const std::vector<float> cold = ExactLogits(plain, tokens, 1);
  // Token by token the form is the absorbed one, all at once it is the expanded one.
  for (const size_t piece : {size_t{1}, size_t{7}, tokens.size()}) {
    const std::vector<float> logits = ExactLogits(*hot, tokens, piece);
    EXPECT_LE(MaxDifference(logits, expected), 1e-4) << piece;  // as in seeded_models_test.cpp
    const size_t before = 4 * logits.size() / tokens.size();
    EXPECT_LE(MaxDifference(std::span(logits).first(before), std::span(cold).first(before)), 1e-5);
    EXPECT_GT(MaxDifference(logits, cold), 1e-2) << piece;
  }
}

TEST(ChangedKeys, ATemperatureOfZeroIsNoneAndOneNeedsItsLength) {
  SeededModel seeded("deepseek2-v3");
  const auto with = [&](float scale) {
    return OpenChanged(seeded, [&](GgufWriter& writer) {
      writer.AddF32("deepseek2.attention.temperature_scale", scale);
    });
  };
  EXPECT_TRUE(with(0).ok());
  EXPECT_THAT(with(0.1f).error().message,
              HasSubstr("key deepseek2.attention.temperature_length is missing"));
  EXPECT_THAT(with(-1).error().message, HasSubstr("temperature_scale: expected a positive number"));
}

}  // namespace
}  // namespace kvant::test
