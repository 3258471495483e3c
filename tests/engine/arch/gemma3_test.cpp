// The settings of Gemma 3's Hugging Face folders. What the models compute is in hf_models_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/arch/spec.h"
#include "tests/engine/arch/attentions.h"
#include "tests/engine/convert/hf_reference_folder.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

TEST(Gemma3Convert, UsualModelsHaveTheUsualKeysOnly) {
  const auto usual = HfReferenceFolder("gemma3/usual").Open();
  ASSERT_NE(usual, nullptr);
  const auto u32 = [](const Model& model, const char* key) {
    return (*model.file().GetU32(key)).value_or(0);
  };
  EXPECT_EQ(u32(*usual, "gemma3.attention.sliding_window"), 8u);
  EXPECT_EQ(u32(*usual, "gemma3.attention.key_length"), 16u);
  EXPECT_EQ(u32(*usual, "gemma3.attention.value_length"), 16u);
  EXPECT_EQ(u32(*usual, "tokenizer.ggml.bos_token_id"), 2u);
  for (const char* key : {"gemma3.attention.sliding_window_pattern", "gemma3.attention.scale",
                          "gemma3.rope.freq_base_swa"}) {
    EXPECT_EQ(usual->file().Find(key), nullptr) << key;
  }
  const auto varied = HfReferenceFolder("gemma3/varied").Open();
  ASSERT_NE(varied, nullptr);
  EXPECT_EQ(u32(*varied, "gemma3.attention.sliding_window_pattern"), 3u);
  for (const arch::Attention* attention : test::Attentions(varied->spec().stacks.front())) {
    EXPECT_FLOAT_EQ(attention->scale, 1.0f / std::sqrt(24.0f));
  }
  EXPECT_EQ(varied->spec().ropes[1].base, 500.0f);
  EXPECT_EQ(varied->spec().ropes[1].linear_factor, 1.0f);
  EXPECT_EQ(varied->spec().ropes[0].linear_factor, 4.0f);
}

// Newer versions of transformers write the bases by kind of layer.
TEST(Gemma3Convert, RotaryBasesMayBeGivenByKindOfLayer) {
  HfReferenceFolder folder("gemma3/usual");
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) {
    folder.config.erase(key);
  }
  folder.config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 70000.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 900.0}}}};
  const auto model = folder.Open();
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->spec().ropes[0].base, 70000.0f);
  EXPECT_EQ(model->spec().ropes[0].linear_factor, 8.0f);
  EXPECT_EQ(model->spec().ropes[1].base, 900.0f);
}

TEST(Gemma3Convert, FoldersThatCannotBeConvertedAreRefusedWithTheReason) {
  const auto message = [](const std::function<void(nlohmann::json&)>& change) {
    HfReferenceFolder folder("gemma3/usual");
    change(folder.config);
    return folder.Message();
  };
  const auto set = [](const char* key, const nlohmann::json& value) {
    return [=](nlohmann::json& config) { config[key] = value; };
  };
  EXPECT_EQ(message([](nlohmann::json&) {}), "accepted");
  EXPECT_THAT(message(set("final_logit_softcapping", 30.0)), HasSubstr("final_logit_softcapping"));
  EXPECT_THAT(message(set("use_bidirectional_attention", true)),
              HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(message(set("hidden_activation", "relu")),
              HasSubstr("hidden_activation \"relu\" is not supported"));
  EXPECT_THAT(message(set("layer_types", nlohmann::json::array({"full_attention"}))),
              HasSubstr("an array of 7 texts"));
  EXPECT_THAT(message([](nlohmann::json& config) { config["layer_types"][3] = "full_attention"; }),
              HasSubstr("every n-th layer"));
  EXPECT_THAT(message([](nlohmann::json& config) { config["layer_types"][3] = 5; }),
              HasSubstr("layer_types"));
  EXPECT_THAT(message(set("sliding_window", nullptr)), HasSubstr("sliding_window"));
  EXPECT_THAT(message(set("query_pre_attn_scalar", 0)), HasSubstr("query_pre_attn_scalar"));
  EXPECT_THAT(message(set("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}})),
              HasSubstr("\"yarn\""));
  EXPECT_THAT(message(set("rope_local_base_freq", -1)), HasSubstr("rope_local_base_freq"));
}

}  // namespace
}  // namespace kvant::test
