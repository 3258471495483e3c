// Hashed n-grams: the numbers of a folder's config.json beside those of the class of transformers,
// the rows that a hash finds, what files and folders are refused for, and a sequence that ends and
// begins again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/arch/hf/hf_ngrams.h"
#include "engine/arch/spec.h"
#include "engine/graph/recurrent/ngram_nodes.h"
#include "formats/gguf.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// By _find_nth_prime_after of transformers 5.24.0, with the base of the released model.
TEST(Ngrams, HeadsHaveThePrimesOfTransformers) {
  EXPECT_THAT(
      arch::PrimesFrom(20'000'000, 16),
      ElementsAre(20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
                  20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171));
  EXPECT_THAT(arch::PrimesFrom(0, 5), ElementsAre(2, 3, 5, 7, 11));
}

// By _build_layer_multipliers, with the vocabulary and the seed of the released model, and others.
TEST(Ngrams, MultipliersAreThoseOfTransformers) {
  EXPECT_THAT(arch::NgramMultipliers(248320, 3, 1234),
              ElementsAre(23703573157769, 20109073645365, 8052911324071));
  EXPECT_THAT(arch::NgramMultipliers(64, 4, 7), ElementsAre(42917992886488129, 85710236184368593,
                                                            33168833300419777, 118913062278022299));
}

TEST(Ngrams, AHashFindsARowOfEachHead) {
  graph::NgramHash hash = {.size = 3, .heads = 2};
  hash.multipliers = {5, 11, 19};
  hash.offsets = {0, 7, 20, 40};
  hash.counts = {7, 13, 17, 10};
  const int32_t tokens[] = {6, 3, 9};
  int64_t rows[4];
  hash.Find(tokens, rows);
  const int64_t pair = 30 ^ 33;
  const int64_t triple = pair ^ 171;
  EXPECT_THAT(rows, ElementsAre(pair % 7, 7 + pair % 13, 20 + triple % 17, 40 + triple % 10));
}

// The integers of folders are those that config.json makes, or the folder is refused.
TEST(Ngrams, IntegersOfAFolderHaveToBeTheKnownOnes) {
  SeededModel seeded("qwen4exp");
  const std::string prefix = "model.layers.1.ple.ple_embedding.";
  const std::vector<uint64_t> known = arch::NgramMultipliers(64, 3, 1234);
  const std::vector<int64_t> numbers(known.begin(), known.end());
  seeded.integers = {{prefix + "layer_multipliers", numbers},
                     {prefix + "ngram_heads_offsets", {0, 53, 112, 173}},
                     {prefix + "ngram_heads_vocab_sizes", {53, 59, 61, 67}}};
  EXPECT_EQ(seeded.Message(), "accepted");
  seeded.integers[prefix + "layer_multipliers"][2] += 2;
  EXPECT_THAT(seeded.Message(), HasSubstr("layer_multipliers\": number 2 is "));
  seeded.integers[prefix + "layer_multipliers"] = {1, 2};
  EXPECT_THAT(seeded.Message(), HasSubstr("has shape [2]"));
}

// Published folders are of the class that sees, too, and have a layer that guesses.
TEST(Ngrams, PublishedFoldersAreThoseOfTheTextAlone) {
  SeededModel seeded("qwen4exp");
  const auto logits = [](const std::shared_ptr<const Model>& model) {
    const std::vector<TokenId> tokens = {5, 9, 3, 43, 9, 3};
    return AllLogits(*OpenSession(model, {.context = 64}), tokens, tokens.size());
  };
  const auto alone = seeded.Open();
  nlohmann::json text = seeded.config;
  text.erase("architectures");
  for (auto& type : text["layer_types"]) {
    if (type == "indexed_attention") type = "full_attention";
  }
  seeded.config = {{"architectures", {"Qwen4ExpForConditionalGeneration"}},
                   {"text_config", text},
                   {"image_token_id", 17},
                   {"vision_config", {{"depth", 2}}}};
  seeded.rename = [](const std::string& name) {
    const std::string inner = "model.";
    return name.starts_with(inner) ? "model.language_model." + name.substr(inner.size()) : name;
  };
  seeded.integers = {
      {"model.language_model.layers.1.ple.ple_embedding.ngram_heads_offsets", {0, 53, 112, 173}}};
  seeded.extra = {{"model.visual.blocks.0.attn.qkv.weight", {{6, 2}, std::vector<float>(12)}},
                  {"mtp.fc_hidden.weight", {{2, 2}, std::vector<float>(4)}},
                  {"mtp.layers.0.self_attn.q_norm.weight", {{3}, std::vector<float>(3)}}};
  const auto published = seeded.Open();
  ASSERT_TRUE(alone != nullptr && published != nullptr);
  EXPECT_EQ(logits(alone), logits(published));
  const auto image = published->file().GetU32("qwen4exp.ple.image_token_id");
  EXPECT_TRUE(image.ok() && *image == 17u);
}

TEST(Ngrams, FoldersThatCannotBeConvertedAreRefusedByTheSetting) {
  struct Setting {
    const char* place;
    nlohmann::json value;
    const char* part;
  };
  const Setting settings[] = {
      {"/output_gate_type", "silu", "output_gate_type"},
      {"/output_gate_type", nullptr, "output_gate_type"},
      {"/hc_count", 1, "hc_count"},
      {"/hc_count", 2, "has shape [96]"},
      {"/hc_lowrank", 11, "input_mix_weight_down"},
      {"/indexer_kv_heads", 2, "indexer_kv_heads"},
      {"/indexer_budget", 9, "a multiple of 4"},
      {"/indexer_compress_ratio", 1, "indexer_compress_ratio"},
      {"/indexer_n_heads", nullptr, "indexer_n_heads is missing"},
      {"/ple_layer_ids", {1, 2}, "n-grams in 2 layers"},
      {"/ple_layer_ids", {4}, "a layer with linear attention"},
      {"/ple_layer_ids", {1}, "layers.0.ple"},
      {"/ple_embed_dim", 30, "a multiple of 4"},
      {"/ngram_size", 1, "ngram_size"},
      {"/ngram_vocab_size_base", 60, "the other shards have 240 rows"},
      {"/split_ngram_parts", 6, "shard_5.weight is missing"},
      {"/eos_token_id", nullptr, "eos_token_id"},
  };
  for (const Setting& setting : settings) {
    SeededModel seeded("qwen4exp");
    seeded.config[nlohmann::json::json_pointer(setting.place)] = setting.value;
    EXPECT_THAT(seeded.Message(), HasSubstr(setting.part)) << setting.place << setting.value;
  }
}

// A file of the model whose keys are changed.
std::string MessageOf(const std::function<void(formats::GgufWriter&)>& change) {
  SeededModel seeded("qwen4exp");
  const auto path = seeded.Convert();
  EXPECT_TRUE(path.ok()) << path.error().message;
  const auto file = formats::GgufFile::Open(*path);
  EXPECT_TRUE(file.ok());
  formats::GgufWriter writer;
  for (const auto& [key, value] : file->metadata()) writer.AddValue(std::string(key), value);
  change(writer);
  for (const formats::GgufTensor& tensor : file->tensors())
    EXPECT_TRUE(writer.AddTensor(tensor).ok());
  const std::string changed = *path + ".changed.gguf";
  EXPECT_TRUE(writer.Begin(changed).ok());
  for (const formats::GgufTensor& tensor : file->tensors()) {
    EXPECT_TRUE(writer.WriteTensor({tensor.data, tensor.size_bytes}).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  const auto model = Model::Open(changed);
  return model.ok() ? "accepted" : model.error().message;
}

TEST(Ngrams, FilesThatCannotBeComputedAreRefusedByTheKey) {
  using formats::GgufWriter;
  const auto message = [](const char* key, const auto& value) {
    return MessageOf([&](GgufWriter& writer) {
      const std::string name = std::string("qwen4exp.") + key;
      if constexpr (std::is_same_v<decltype(value), const std::vector<uint64_t>&>) {
        writer.AddU64s(name, value);
      } else if constexpr (std::is_same_v<decltype(value), const std::vector<int32_t>&>) {
        writer.AddI32s(name, value);
      } else {
        writer.AddU32(name, static_cast<uint32_t>(value));
      }
    });
  };
  EXPECT_EQ(message("ple.ngram_size", 3), "accepted");
  EXPECT_THAT(message("ple.ngram_size", 1), HasSubstr("ple.ngram_size: expected at least 2"));
  EXPECT_THAT(message("ple.layers", std::vector<int32_t>{0, 1}), HasSubstr("of 2 layers"));
  EXPECT_THAT(message("ple.layers", std::vector<int32_t>{7}), HasSubstr("a layer below 4"));
  EXPECT_THAT(message("ple.layers", std::vector<int32_t>{-1}), HasSubstr("from 0 on"));
  EXPECT_THAT(message("ple.layers", std::vector<int32_t>{0}), HasSubstr("blk.0.ple_key"));
  EXPECT_THAT(message("ple.head_offsets", std::vector<uint64_t>{0, 53}),
              HasSubstr("ple.head_offsets: expected 4 integers, found 2"));
  EXPECT_THAT(message("ple.head_vocab_sizes", std::vector<uint64_t>{53, 0, 61, 67}),
              HasSubstr("ple.head_vocab_sizes"));
  EXPECT_THAT(message("ple.head_vocab_sizes", std::vector<uint64_t>{53, 59, 61, 68}),
              HasSubstr("per_layer_token_embd.weight: expected [8 x 241], found [8 x 240]"));
  EXPECT_THAT(message("ple.heads_per_ngram", 3), HasSubstr("expected 6 integers, found 4"));
  EXPECT_THAT(message("hyper_connection.count", 1), HasSubstr("hyper_connection.count"));
  EXPECT_THAT(message("hyper_connection.low_rank", 13), HasSubstr("hc_attn_down.weight"));
  EXPECT_THAT(message("hyper_connection.sinkhorn_iterations", 2),
              HasSubstr("hyper_connection.sinkhorn_iterations"));
  EXPECT_THAT(message("attention.indexer.top_k", 10), HasSubstr("a multiple of 4, found 10"));
  EXPECT_THAT(message("attention.compress_ratios", std::vector<int32_t>{0, 0, 0, 1}),
              HasSubstr("blocks of 1 position"));
  EXPECT_EQ(message("attention.compress_ratios", std::vector<int32_t>{0, 0, 0, 0}), "accepted");
}

}  // namespace
}  // namespace kvant::test
