// Families that differ from others by little, as files and folders have them: names of several
// versions of a class give one model, and what is wrong is refused by name. The models are those of
// tests/reference/seeded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "engine/arch/spec.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

// The model's spec; of the file that Convert makes, which the next one replaces.
arch::ModelSpec SpecOf(SeededModel& seeded) {
  const auto path = seeded.Convert();
  EXPECT_TRUE(path.ok()) << path.error().message;
  return arch::ReadSpec(*formats::GgufFile::Open(*path)).value();
}

std::vector<float> LogitsOfTwelve(const std::shared_ptr<const Model>& model) {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.context = 64;
  options.threads = 1;
  const std::vector<TokenId> tokens = {5, 9, 3, 40, 41, 7, 9, 8, 11, 12, 13, 14};
  return AllLogits(*OpenSession(model, options), tokens, tokens.size());
}

std::vector<float> LogitsOfTwelve(SeededModel& seeded) {
  const auto model = seeded.Open();
  return model == nullptr ? std::vector<float>() : LogitsOfTwelve(model);
}

HfWeights OneNumber(float value) { return {{1}, {value}}; }

const arch::PlainFfn& PlainFfnOf(const arch::ModelSpec& spec, size_t layer) {
  return std::get<arch::PlainFfn>(spec.stacks.front().layers[layer].sublayers[1].block);
}

double ExactSoftplus(double x) { return std::log1p(std::exp(x)); }

// The numbers of a layer's activation, from the tensors of the folder.
TEST(SmallDifferences, NumbersOfAnActivationAreThoseOfTheFolder) {
  SeededModel seeded("apertus");
  for (const char* layer : {"0", "1", "2"}) {
    const std::string act = std::string("model.layers.") + layer + ".mlp.act_fn.";
    seeded.extra[act + "beta"] = OneNumber(layer[0] == '1' ? 0.75f : 0.5f);
    seeded.extra[act + "eps"] = OneNumber(-1e-6f);
  }
  seeded.extra["model.layers.1.mlp.act_fn.alpha_n"] = OneNumber(0.3f);
  seeded.extra["model.layers.1.mlp.act_fn.alpha_p"] = OneNumber(-0.2f);
  const arch::ModelSpec spec = SpecOf(seeded);
  const arch::PlainFfn& ffn = PlainFfnOf(spec, 1);
  ASSERT_TRUE(ffn.xielu.has_value());
  EXPECT_EQ(ffn.xielu->beta, 0.75f);
  EXPECT_NEAR(ffn.xielu->negative, 0.75 + ExactSoftplus(0.3), 1e-6);
  EXPECT_NEAR(ffn.xielu->positive, ExactSoftplus(-0.2), 1e-6);
  EXPECT_EQ(PlainFfnOf(spec, 0).xielu->beta, 0.5f);
}

TEST(SmallDifferences, WrongNumbersOfAnActivationAreNamed) {
  const std::string act = "model.layers.1.mlp.act_fn.";
  SeededModel seeded("apertus");
  seeded.extra[act + "alpha_n"] = {{2}, {1, 2}};
  EXPECT_THAT(seeded.Message(), HasSubstr("tensor \"" + act + "alpha_n\": expected one float"));
  seeded.extra[act + "alpha_n"] = OneNumber(std::numeric_limits<float>::infinity());
  EXPECT_THAT(seeded.Message(), HasSubstr("expected a finite number"));
  seeded.extra.clear();
  seeded.change_weights = [&](std::map<std::string, HfWeights>& weights) {
    weights.erase(act + "alpha_p");
  };
  EXPECT_THAT(seeded.Message(), HasSubstr("tensor \"" + act + "alpha_p\" is missing"));
  SeededModel other("apertus");
  other.extra[act + "eps"] = OneNumber(-0.5f);
  const auto path = other.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto file = formats::GgufFile::Open(*path);
  const auto spec = arch::ReadSpec(*file);
  ASSERT_FALSE(spec.ok());
  EXPECT_THAT(spec.error().message, HasSubstr("key xielu.eps: expected at most 1e-05, found -0.5"));
  for (const char* name : {"alpha_n", "alpha_p", "beta"}) {
    SeededModel large("apertus");
    large.extra[act + name] = OneNumber(3e38f);
    const auto refused = arch::ReadSpec(*formats::GgufFile::Open(*large.Convert()));
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_THAT(refused.error().message, HasSubstr("key xielu." + std::string(name) +
                                                   ": expected numbers from -10000 to 10000"));
  }
  const std::string ignored[] = {"xielu.beta"};
  const auto read =
      arch::ReadSpec(*formats::GgufFile::Open(*SeededModel("apertus").Convert()), ignored);
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(read.error().message, HasSubstr("expected a key that is not read"));
}

// A file of CodeShell may have its embedding under the name of the output.
TEST(SmallDifferences, AnEmbeddingUnderTheNameOfTheOutputIsFound) {
  SeededModel seeded("codeshell");
  seeded.config["tie_word_embeddings"] = true;
  seeded.change_weights = [](std::map<std::string, HfWeights>& weights) {
    weights.erase("lm_head.weight");
  };
  const auto path = seeded.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto usual = Model::Open(*path);
  ASSERT_TRUE(usual.ok()) << usual.error().message;
  const auto file = formats::GgufFile::Open(*path);
  formats::GgufWriter writer;
  for (const auto& [key, value] : file->metadata()) writer.AddValue(std::string(key), value);
  for (formats::GgufTensor tensor : file->tensors()) {
    if (tensor.name == "token_embd.weight") tensor.name = "output.weight";
    ASSERT_TRUE(writer.AddTensor(tensor).ok());
  }
  const std::string other = TempPath("codeshell.gguf");
  ASSERT_TRUE(writer.Begin(other).ok());
  for (const formats::GgufTensor& tensor : file->tensors()) {
    ASSERT_TRUE(writer.WriteTensor({tensor.data, tensor.size_bytes}).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
  const auto renamed = Model::Open(other);
  ASSERT_TRUE(renamed.ok()) << renamed.error().message;
  EXPECT_EQ(LogitsOfTwelve(*usual), LogitsOfTwelve(*renamed));
}

// The older folders of Hunyuan VL have other names in the settings of the rope.
TEST(SmallDifferences, OlderNamesOfARopeMeanTheSame) {
  SeededModel seeded("hunyuan_vl");
  const std::vector<float> usual = LogitsOfTwelve(seeded);
  const nlohmann::json rope = seeded.config["rope_parameters"];
  seeded.config.erase("rope_parameters");
  seeded.config["rope_theta"] = rope["rope_theta"];
  seeded.config["rope_scaling"] = {{"type", "xdrope"},
                                   {"alpha", rope["alpha"]},
                                   {"factor", 1.0},
                                   {"xdrope_section", rope["mrope_section"]}};
  seeded.config["vision_config"] = {{"hidden_size", 7}};
  seeded.extra = {{"vit.embeddings.patch_embedding.bias", {{3}, {1, 2, 3}}}};
  EXPECT_EQ(usual, LogitsOfTwelve(seeded));
  seeded.config["rope_scaling"]["alpha"] = nullptr;
  EXPECT_THAT(seeded.Message(), HasSubstr("alpha"));
}

// Bases of layers: 0 stands for no rope, and all others must be one.
TEST(SmallDifferences, LayersOfGranite45AreRotatedAsTheirBasesSay) {
  SeededModel seeded("granite_swa");
  const arch::ModelSpec spec = SpecOf(seeded);
  const auto attention_of = [&](size_t layer) {
    return std::get<arch::Attention>(spec.stacks.front().layers[layer].sublayers[0].block);
  };
  EXPECT_EQ(attention_of(0).rope, arch::Attention::kNoRope);
  EXPECT_EQ(attention_of(0).mask.window, 0);
  EXPECT_EQ(attention_of(1).rope, 0u);
  EXPECT_EQ(attention_of(1).mask.window, 9);
  EXPECT_EQ(spec.ropes.front().base, 500.0f);
  seeded.config["layer_rope_theta"][2] = 100.0;
  EXPECT_THAT(seeded.Message(), HasSubstr("layer_rope_theta"));
  seeded.config["layer_rope_theta"] = {500.0};
  EXPECT_THAT(seeded.Message(), HasSubstr("layer_rope_theta"));
}

// Folders of before layer_rope_theta say of each layer whether it is rotated.
TEST(SmallDifferences, OlderFoldersOfGranite45SayWhichLayersAreRotated) {
  SeededModel seeded("granite_swa");
  const std::vector<float> usual = LogitsOfTwelve(seeded);
  nlohmann::json turned = nlohmann::json::array();
  for (const nlohmann::json& base : seeded.config["layer_rope_theta"]) {
    turned.push_back(base.is_null() || base == 0 ? 0 : 1);
  }
  ASSERT_EQ(turned, nlohmann::json({0, 1, 1, 1, 0, 1}));
  seeded.config.erase("layer_rope_theta");
  seeded.config["no_rope_layers"] = turned;
  EXPECT_EQ(usual, LogitsOfTwelve(seeded));
  seeded.config["no_rope_layers"] = {1, 0};
  EXPECT_THAT(seeded.Message(), HasSubstr("no_rope_layers"));
}

// transformers 5.24 saves them with the class of Llama and their own type.
TEST(SmallDifferences, FoldersOfInternLm3MayHaveTheClassOfLlama) {
  SeededModel seeded("internlm3");
  const std::vector<float> usual = LogitsOfTwelve(seeded);
  seeded.config["architectures"] = {"LlamaForCausalLM"};
  EXPECT_EQ(usual, LogitsOfTwelve(seeded));
}

// The vocabulary of Llama 3 tells the activation where a file does not say it.
TEST(SmallDifferences, BitNetHasTheActivationThatItsFileNames) {
  const auto activation_of = [](const char* name) {
    SeededModel seeded(name);
    const arch::ModelSpec spec = SpecOf(seeded);
    return std::get<arch::GatedFfn>(spec.stacks.front().layers[0].sublayers[1].block)
        .activation.activation;
  };
  EXPECT_EQ(activation_of("bitnet"), cpu::Activation::kReluSquared);
  EXPECT_EQ(activation_of("bitnet-silu"), cpu::Activation::kSilu);
}

// A layer that predicts further tokens is left out, and heads of layers with a window differ in
// number only.
TEST(SmallDifferences, FoldersOfMimoAreReadAsPublished) {
  SeededModel seeded("mimo2-published");
  const std::vector<float> usual = LogitsOfTwelve(seeded);
  seeded.extra = {{"model.mtp.layers.0.eh_proj.weight", {{3}, {1, 2, 3}}}};
  EXPECT_EQ(usual, LogitsOfTwelve(seeded));
  const arch::ModelSpec spec = SpecOf(seeded);
  const auto& attention =
      std::get<arch::Attention>(spec.stacks.front().layers[1].sublayers[0].block);
  EXPECT_EQ(attention.mask.window, 10);
  EXPECT_EQ(attention.kv_heads, 4);
  EXPECT_EQ(attention.v_dim, 16);
  EXPECT_EQ(spec.ropes[attention.rope].base, 100.0f);
  EXPECT_EQ(spec.ropes[attention.rope].n_rot, 8);
  for (const char* key : {"swa_head_dim", "swa_v_head_dim", "swa_num_attention_heads"}) {
    SeededModel wrong("mimo2-published");
    wrong.config[key] = 32;
    EXPECT_THAT(wrong.Message(), HasSubstr(key));
  }
}

// Settings that would change what a class computes.
TEST(SmallDifferences, SettingsThatAreNotComputedAreNamed) {
  const struct {
    const char* model;
    const char* key;
    nlohmann::json value;
  } cases[] = {
      {"qwen", "scale_attn_weights", false},
      {"qwen", "intermediate_size", 95},
      {"codeshell", "position_embedding_type", "learned"},
      {"codeshell", "group_query_attention", false},
      {"refact", "multi_query", false},
      {"starcoder", "scale_attn_weights", false},
      {"gptj", "rotary_dim", nullptr},
      {"bailingmoe", "norm_head", true},
      {"bailingmoe", "use_qkv_bias", true},
      {"iquestcoder", "use_sliding_window", true},
      {"iquestcoder", "clip_qkv", 8.0},
      {"orion", "max_sequence_length", 0},
      {"mimo2", "topk_method", "greedy"},
      {"jais2", "hidden_act", "gelu"},
      {"bitnet", "hidden_act", "gelu"},
  };
  for (const auto& one : cases) {
    SeededModel seeded(one.model);
    seeded.config[one.key] = one.value;
    EXPECT_THAT(seeded.Message(), HasSubstr(one.key)) << one.model;
  }
}

}  // namespace
}  // namespace kvant::test
