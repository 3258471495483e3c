// Folders of Gemma 3n and 4: their tokenizer, text models among other parts, settings that folders
// of different age say in different ways, and those that make no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/arch/spec.h"
#include "engine/convert/special_tokens.h"
#include "engine/convert/vocabulary.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "kvant/tokenizer.h"
#include "tests/engine/arch/attentions.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/convert/hf_folder.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using nlohmann::json;

std::vector<float> LogitsOf(const std::shared_ptr<const Model>& model) {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.context = 64;
  const std::vector<TokenId> tokens = {5, 9, 3, 30, 7};
  return AllLogits(*OpenSession(model, options), tokens, tokens.size());
}

// The vocabulary of tests/reference/character_tokenizers.json as a tokenizer.json.
json Gemma4Json(const json& cases) {
  json vocab = json::object();
  json added = json::array();
  for (const auto& token : cases["tokens"]) {
    const auto text = token.get<std::string>();
    const auto id = vocab.size();
    vocab[text] = id;
    const bool special = text == "<pad>" || text == "<eos>" || text == "<bos>" || text == "<unk>";
    if (special) added.push_back({{"id", id}, {"content", text}, {"special", true}});
  }
  json merges = json::array();
  for (const auto& merge : cases["merges"]) {
    const auto text = merge.get<std::string>();
    const size_t space = text.find(' ');
    merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return {
      {"added_tokens", added},
      {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}},
      {"pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", merges}}}};
}

TEST(ConvertGemma4, TheTokenizerEncodesAsHuggingFaceDoes) {
  std::ifstream stream(SourcePath("tests/reference/character_tokenizers.json"));
  const json cases = json::parse(stream);
  HfFolder folder;
  folder.tokenizer = Gemma4Json(cases["gemma4"]);
  const auto count = static_cast<int64_t>(folder.tokenizer["model"]["vocab"].size());
  folder.tokenizer["model"]["vocab"]["<|channel>"] = count;
  folder.tokenizer["added_tokens"].push_back(
      {{"id", count}, {"content", "<|channel>"}, {"special", true}});
  folder.Write();
  const auto config = convert::FolderConfig::Read(folder.Path());
  ASSERT_TRUE(config.ok()) << config.error().message;
  const auto vocabulary =
      convert::ReadVocabulary(folder.Path(), config->tokenizer, count + 1, {.kind = "gemma4"});
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
  // A chat's reader wants to see it.
  EXPECT_EQ(vocabulary->types.back(), convert::Vocabulary::Type::kUserDefined);
  formats::GgufWriter writer;
  vocabulary->AddTo(writer);
  writer.AddU32("tokenizer.ggml.bos_token_id", 2);
  ASSERT_TRUE(writer.Begin(folder / "v.gguf").ok() && writer.Finish().ok());
  const auto file = formats::GgufFile::Open(folder / "v.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto tokenizer = Tokenizer::Create(*file, {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const auto texts = cases["texts"].get<std::vector<std::string>>();
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto expected = cases["gemma4"]["ids"][i].get<std::vector<TokenId>>();
    const auto ids = (*tokenizer)->Encode(texts[i], {.add_special = false});
    ASSERT_TRUE(ids.ok()) << ids.error().message;
    EXPECT_EQ(*ids, expected) << texts[i];
  }
}

TEST(ConvertGemma4, TextModelsAmongOtherPartsAreConvertedAlone) {
  SeededModel seeded("gemma4-inputs");
  const auto alone = seeded.Open();
  json text = seeded.config;
  text.erase("architectures");
  seeded.config = {{"architectures", {"Gemma4ForConditionalGeneration"}},
                   {"text_config", text},
                   {"vision_config", {{"hidden_size", 7}}},
                   {"audio_config", {{"hidden_size", 5}, {"num_hidden_layers", 1}}}};
  seeded.rename = [](const std::string& name) {
    const std::string_view inner = "model.";
    return name.starts_with(inner) ? "model.language_model." + name.substr(inner.size()) : name;
  };
  const HfWeights other = {{3}, {1, 2, 3}};
  seeded.extra = {{"model.vision_tower.x.weight", other},
                  {"model.embed_vision.embedding_projection.weight", other},
                  {"model.audio_tower.y.weight", other},
                  {"model.embed_audio.embedding_projection.weight", other}};
  const auto inside = seeded.Open();
  ASSERT_TRUE(alone != nullptr && inside != nullptr);
  EXPECT_EQ(LogitsOf(alone), LogitsOf(inside));
  seeded.extra["model.other.weight"] = other;
  EXPECT_THAT(seeded.Message(), testing::HasSubstr("model.other.weight"));
}

// Older folders give the heads of layers that see everything once.
TEST(ConvertGemma4, HeadsOfLayersThatSeeEverythingMayBeSaidOnce) {
  SeededModel seeded("gemma4");
  const auto by_layer = seeded.Open();
  seeded.config.erase("per_layer_config");
  seeded.config["global_head_dim"] = 24;
  seeded.config["num_global_key_value_heads"] = 1;
  const auto once = seeded.Open();
  ASSERT_TRUE(by_layer != nullptr && once != nullptr);
  EXPECT_EQ(LogitsOf(by_layer), LogitsOf(once));
  // Without keys as values that number does not count.
  seeded.config["attention_k_eq_v"] = false;
  EXPECT_THAT(seeded.Message(), testing::HasSubstr("k_proj.weight"));
}

// Some folders hold keys and values of layers that read those of others.
TEST(ConvertGemma4, KeysThatNothingReadsAreLeftOut) {
  SeededModel seeded("gemma4-inputs");
  const auto usual = seeded.Open();
  const HfWeights unread = {{16, 32}, std::vector<float>(512, 0.5f)};
  seeded.extra = {{"model.layers.4.self_attn.k_proj.weight", unread},
                  {"model.layers.4.self_attn.v_proj.weight", unread},
                  {"model.layers.4.self_attn.k_norm.weight", {{16}, std::vector<float>(16)}}};
  const auto more = seeded.Open();
  ASSERT_TRUE(usual != nullptr && more != nullptr);
  EXPECT_EQ(LogitsOf(usual), LogitsOf(more));
  EXPECT_EQ(more->file().FindTensor("blk.4.attn_k.weight"), nullptr);
}

TEST(ConvertGemma4, SharedKeysAreThoseOfTheLastLayerOfTheSameKind) {
  const auto model = SeededModel("gemma4-shared").Open();
  ASSERT_NE(model, nullptr);
  const auto attentions = test::Attentions(model->spec().stacks.front());
  EXPECT_EQ(attentions[3]->keys_of, std::nullopt);
  EXPECT_EQ(attentions[4]->keys_of, 3u);
  EXPECT_EQ(attentions[5]->keys_of, 1u);
}

// Older folders have one number for all layers, and bases under keys of their own.
TEST(ConvertGemma3n, OlderFoldersSayTheSame) {
  SeededModel seeded("gemma3n");
  const auto usual = seeded.Open();
  seeded.config["intermediate_size"] = 48;
  seeded.config.erase("rope_parameters");
  seeded.config["rope_theta"] = 500.0;
  seeded.config["rope_local_base_freq"] = 100.0;
  json text = seeded.config;
  text.erase("architectures");
  seeded.config = {{"architectures", {"Gemma3nForConditionalGeneration"}}, {"text_config", text}};
  seeded.rename = [](const std::string& name) {
    const std::string_view inner = "model.";
    return name.starts_with(inner) ? "model.language_model." + name.substr(inner.size()) : name;
  };
  seeded.extra = {{"model.vision_tower.x.weight", {{3}, {1, 2, 3}}}};
  const auto older = seeded.Open();
  ASSERT_TRUE(usual != nullptr && older != nullptr);
  EXPECT_EQ(LogitsOf(usual), LogitsOf(older));
}

// Shares of a normal distribution in deviations from the mean, from tables of it.
TEST(ConvertGemma3n, SharesOfGatesBecomeDeviations) {
  const auto model = SeededModel("gemma3n").Open();
  ASSERT_NE(model, nullptr);
  const auto& layers = model->spec().stacks.front().layers;
  const auto deviations = [&](size_t layer) {
    return std::get<arch::GatedFfn>(layers[layer].sublayers[3].block).deviations;
  };
  EXPECT_NEAR(deviations(0).value_or(0), 1.2815516f, 1e-6f);
  EXPECT_NEAR(deviations(1).value_or(0), 0.2533471f, 1e-6f);
  EXPECT_NEAR(deviations(2).value_or(0), -0.5244005f, 1e-6f);
  EXPECT_EQ(deviations(3), std::nullopt);
}

struct GemmaSetting {
  const char* model;
  const char* pointer;  // into config.json
  json value;
  const char* expected;
};

void PrintTo(const GemmaSetting& setting, std::ostream* out) {
  *out << setting.model << setting.pointer;
}

class GemmaSettings : public testing::TestWithParam<GemmaSetting> {};

TEST_P(GemmaSettings, AreNamedWhereTheyAreWrong) {
  SeededModel seeded(GetParam().model);
  seeded.config[json::json_pointer(GetParam().pointer)] = GetParam().value;
  EXPECT_THAT(seeded.Message(), testing::HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, GemmaSettings,
    testing::Values(
        GemmaSetting{"gemma4", "/head_dim", nullptr, "head_dim is missing"},
        GemmaSetting{"gemma4", "/sliding_window", nullptr, "sliding_window is missing"},
        GemmaSetting{"gemma4", "/layer_types", {"full_attention"}, "layer_types"},
        GemmaSetting{"gemma4", "/per_layer_config/2/head_dim", 20, "layer 5: heads of 24"},
        GemmaSetting{"gemma4", "/per_layer_config/2/head_dim", 23, "an even number"},
        GemmaSetting{"gemma4", "/per_layer_config/2/num_key_value_heads", 3, "a divisor of 4"},
        GemmaSetting{"gemma4", "/final_logit_softcapping", -1, "final_logit_softcapping"},
        GemmaSetting{"gemma4", "/use_bidirectional_attention", "all", "\"all\""},
        GemmaSetting{"gemma4", "/rope_parameters/full_attention/rope_type", "yarn", "\"yarn\""},
        GemmaSetting{"gemma4", "/rope_parameters/sliding_attention/rope_type", "linear", "linear"},
        GemmaSetting{"gemma4", "/rope_parameters/full_attention/partial_rotary_factor", 2,
                     "partial_rotary_factor"},
        GemmaSetting{"gemma3n", "/head_dim", nullptr, "head_dim is missing"},
        GemmaSetting{"gemma3n", "/intermediate_size", {48, 48}, "intermediate_size"},
        GemmaSetting{"gemma3n", "/intermediate_size/1", 0, "numbers from 1 to"},
        GemmaSetting{"gemma3n", "/intermediate_size/1", 47, "gate_proj.weight"},
        GemmaSetting{"gemma3n", "/activation_sparsity_pattern", {0.5}, "7 numbers"},
        GemmaSetting{"gemma3n", "/activation_sparsity_pattern/0", 1.0, "to less than 1"},
        GemmaSetting{"gemma3n", "/altup_active_idx", 1, "altup_active_idx: 1 is not supported"},
        GemmaSetting{"gemma3n", "/altup_num_inputs", 1, "altup_num_inputs"},
        GemmaSetting{"gemma3n", "/altup_num_inputs", 17, "altup_num_inputs"},
        GemmaSetting{"gemma3n", "/altup_num_inputs", 3, "modality_router"},
        GemmaSetting{"gemma3n", "/laurel_rank", 5, "laurel.linear_left"},
        GemmaSetting{"gemma3n", "/num_kv_shared_layers", 7, "num_kv_shared_layers"},
        GemmaSetting{"gemma3n", "/vocab_size_per_layer_input", 65, "vocab_size_per_layer_input"},
        GemmaSetting{"gemma3n", "/vocab_size_per_layer_input", 49, "has shape [50, 84]"},
        GemmaSetting{"gemma4-inputs", "/num_kv_shared_layers", 8, "num_kv_shared_layers"},
        GemmaSetting{"gemma4-inputs", "/use_double_wide_mlp", false, "gate_proj.weight"},
        GemmaSetting{"gemma4-inputs", "/hidden_size_per_layer_input", 0, "embed_tokens_per_layer"},
        GemmaSetting{"gemma4-inputs", "/hidden_size_per_layer_input", 13, "has shape [64, 96]"},
        GemmaSetting{"gemma4-moe", "/enable_moe_block", false, "enable_moe_block: expected true"},
        GemmaSetting{"gemma4-moe", "/top_k_experts", 9, "top_k_experts"},
        GemmaSetting{"gemma4-moe", "/moe_intermediate_size", 23, "gate_up_proj"}));

}  // namespace
}  // namespace kvant::test
