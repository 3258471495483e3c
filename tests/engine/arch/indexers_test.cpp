// Folders and files of models with indexers that say the same in other words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "engine/arch/spec.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

std::vector<float> LogitsOf(SeededModel& seeded) {
  const auto model = seeded.Open();
  if (model == nullptr) return {};
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.context = 128;
  options.threads = 2;
  const std::vector<TokenId> tokens = seeded.Tokens();
  return AllLogits(*OpenSession(model, options), tokens, tokens.size());
}

// Which layers of a model have an indexer of their own.
std::string OwnIndexers(const Model& model) {
  std::string letters;
  for (const arch::LayerSpec& layer : model.spec().stacks.front().layers) {
    const auto& attention = std::get<arch::LatentAttention>(layer.sublayers.front().block);
    letters += !attention.indexer.has_value() ? '-' : attention.indexer->reuses ? 'S' : 'F';
  }
  return letters;
}

TEST(Indexers, OfGlmAreSaidByTypesAPatternOrAnInterval) {
  SeededModel seeded("glm-dsa");
  const std::vector<float> expected = LogitsOf(seeded);
  ASSERT_FALSE(expected.empty());
  seeded.config.erase("indexer_types");
  seeded.config["index_topk_pattern"] = "FSFS";
  EXPECT_EQ(LogitsOf(seeded), expected);
  seeded.config.erase("index_topk_pattern");
  seeded.config["index_topk_freq"] = 2;
  seeded.config["index_skip_topk_offset"] = 1;
  EXPECT_EQ(LogitsOf(seeded), expected);
  seeded.config["index_topk_pattern"] = "FSF";
  EXPECT_THAT(seeded.Message(), testing::HasSubstr("index_topk_pattern"));
  seeded.config["index_topk_pattern"] = "FSFSF";  // the last letter is of no layer
  EXPECT_EQ(LogitsOf(seeded), expected);
  seeded.config.erase("index_topk_pattern");
  seeded.config["indexer_types"] = {"full", "shared", "full", "shared", "full"};
  EXPECT_EQ(LogitsOf(seeded), expected);
}

TEST(Indexers, OfMiniMaxM3SeeNoMoreLastBlocksThanTheyChoose) {
  SeededModel seeded("minimax-m3");
  const int64_t blocks = seeded.config["index_topk_blocks"];
  seeded.config["index_local_blocks"] = blocks + 1;
  const auto path = seeded.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto model = Model::Open(*path);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.error().message, testing::HasSubstr("attention.indexer.local_blocks"));
}

// Files of GLM 5.2 that do not say which layers have an indexer are known by their context.
TEST(Indexers, OfGlm52AreKnownByTheContext) {
  TinyShape shape = IndexedShape(8);
  shape.arch = "glm-dsa";
  shape.layers = 8;
  EXPECT_EQ(OwnIndexers(*OpenTiny(shape)), "FFFFFFFF");
  shape.context = 1 << 20;
  EXPECT_EQ(OwnIndexers(*OpenTiny(shape)), "FFFSSSFS");
}

// As the published folder has it, around which there are parts that read images.
TEST(Indexers, OfPublishedFoldersOfMiniMaxM3AreThose) {
  SeededModel seeded("minimax-m3");
  const std::vector<float> expected = LogitsOf(seeded);
  ASSERT_FALSE(expected.empty());
  nlohmann::json text = seeded.config;
  for (const char* key :
       {"architectures", "index_n_heads", "index_head_dim", "index_block_size", "index_topk_blocks",
        "index_local_blocks", "layer_types", "mlp_layer_types", "rope_parameters"}) {
    text.erase(key);
  }
  text["hidden_act"] = "swigluoai";
  text["rope_theta"] = 500.0;
  text["rotary_dim"] = 8;
  text["moe_layer_freq"] = {0, 1, 1};
  text["sparse_attention_config"] = {
      {"sparse_num_index_heads", 2}, {"sparse_index_dim", 24},
      {"sparse_block_size", 16},     {"sparse_topk_blocks", 2},
      {"sparse_local_block", 1},     {"sparse_attention_freq", {0, 1, 1}}};
  seeded.config = {{"architectures", {"MiniMaxM3SparseForConditionalGeneration"}},
                   {"text_config", text},
                   {"vision_config", {{"hidden_size", 7}}}};
  seeded.rename = [](const std::string& name) { return "language_model." + name; };
  seeded.extra = {{"vision_tower.vision_model.pre_layrnorm.weight", {{3}, {1, 2, 3}}},
                  {"multi_modal_projector.linear_1.weight", {{1, 2}, {1, 2}}},
                  {"patch_merge_mlp.linear_1.weight", {{1, 2}, {1, 2}}}};
  EXPECT_EQ(LogitsOf(seeded), expected);
}

}  // namespace
}  // namespace kvant::test
