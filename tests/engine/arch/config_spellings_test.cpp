// config.json as versions of transformers write it: settings of rotary embeddings, numbers of
// experts and kinds of layers stand elsewhere or have other names in version 5, and the file that
// kvant makes of them is the same. The models are those of tests/reference/seeded, whose logits
// seeded_models_test.cpp holds to transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf.h"
#include "tests/engine/arch/seeded_model.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kRope = "rope_parameters";
constexpr const char* kScaling = "rope_scaling";

std::string BytesOf(SeededModel& seeded) {
  const auto path = seeded.Convert();
  EXPECT_TRUE(path.ok()) << path.error().message;
  if (!path.ok()) return path.error().message;
  std::ifstream file(*path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Moves a value, where there is one.
void Move(json& from, const char* key, json& to, const char* name) {
  if (!from.contains(key)) return;
  if (!from[key].is_null()) to[name] = from[key];
  from.erase(key);
}

// A config.json of version 4 as version 5 writes it.
json AsVersion5(json config) {
  // A base for each layer is what only published folders have.
  if (config.contains("rope_theta") && config["rope_theta"].is_array()) return config;
  json rope = config.contains(kScaling) && config[kScaling].is_object() ? config[kScaling] : json();
  config.erase(kScaling);
  for (const char* key : {"rope_theta", "rotary_emb_base"}) Move(config, key, rope, "rope_theta");
  for (const char* key : {"partial_rotary_factor", "rotary_pct"}) {
    Move(config, key, rope, "partial_rotary_factor");
  }
  const std::string name = config["architectures"][0];
  if (name == "Olmo3ForCausalLM") {
    json other = {{"rope_type", "default"}};
    if (rope.contains("rope_theta")) other["rope_theta"] = rope["rope_theta"];
    rope = {{"full_attention", rope}, {"sliding_attention", other}};
  }
  if (!rope.is_null() && !config.contains(kRope)) config[kRope] = rope;
  if (name == "Qwen3MoeForCausalLM") Move(config, "num_experts", config, "num_local_experts");
  if (name == "GraniteMoeHybridForCausalLM") {
    for (json& type : config["layer_types"]) {
      type = type == "attention" ? "full_attention" : "linear_attention";
    }
  }
  return config;
}

class ConfigSpellings : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Reference, ConfigSpellings, testing::ValuesIn(SeededModelNames()),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(ConfigSpellings, OfBothVersionsGiveTheSameFile) {
  SeededModel seeded(GetParam());
  const std::string expected = BytesOf(seeded);
  const json older = seeded.config;
  seeded.config = AsVersion5(older);
  EXPECT_EQ(BytesOf(seeded) == expected, true) << seeded.config;
  // Both at once, as a folder has them that both versions have written.
  if (older.contains(kRope)) return;
  for (const char* key : {"rope_theta", "partial_rotary_factor", "rotary_pct", kScaling}) {
    if (older.contains(key)) seeded.config[key] = older[key];
  }
  EXPECT_EQ(BytesOf(seeded) == expected, true) << seeded.config;
}

// The message for a model whose config.json is changed by JSON pointers.
std::string MessageWith(const std::string& name,
                        const std::vector<std::pair<const char*, json>>& changes) {
  SeededModel seeded(name);
  for (const auto& [path, value] : changes) seeded.config[json::json_pointer(path)] = value;
  return seeded.Message();
}

TEST(RopeSettings, PlacesThatDisagreeAreNamed) {
  EXPECT_THAT(
      MessageWith("qwen2moe", {{"/rope_theta", 500}, {"/rope_parameters/rope_theta", 1e4}}),
      AllOf(HasSubstr("config.json: rope_theta is 500"),
            HasSubstr("config.json: rope_parameters: rope_theta is 10000.0; expected one")));
  EXPECT_THAT(MessageWith("gptneox", {{"/rope_theta", 500}}),
              AllOf(HasSubstr("rope_theta is 500"), HasSubstr("rotary_emb_base is 10000")));
  EXPECT_THAT(MessageWith("phi2", {{"/rope_parameters/partial_rotary_factor", 0.25}}),
              AllOf(HasSubstr("partial_rotary_factor is 0.5"),
                    HasSubstr("rope_parameters: partial_rotary_factor is 0.25")));
  EXPECT_THAT(
      MessageWith("llama-yarn", {{"/rope_parameters/factor", 2.0}}),
      AllOf(HasSubstr("rope_scaling: factor is 4.0"), HasSubstr("rope_parameters: factor is 2.0")));
  EXPECT_THAT(MessageWith("llama-yarn", {{"/rope_parameters/rope_type", "linear"}}),
              AllOf(HasSubstr("rope_scaling: rope_type is \"yarn\""), HasSubstr("\"linear\"")));
  EXPECT_THAT(MessageWith("phi3-long", {{"/rope_scaling/original_max_position_embeddings", 47}}),
              AllOf(HasSubstr("original_max_position_embeddings is 48"), HasSubstr("is 47")));
  EXPECT_THAT(MessageWith("minimax-m2", {{"/rope_parameters/partial_rotary_factor", 0.25}}),
              HasSubstr("rotary_dim is 8, expected 4, as partial_rotary_factor makes it"));
  EXPECT_THAT(MessageWith("qwen3moe", {{"/num_local_experts", 8}}),
              HasSubstr("num_experts is 12, expected 8, as in num_local_experts"));
  // Names of one and the same way of stretching.
  EXPECT_EQ(MessageWith("phi3-long", {{"/rope_parameters/rope_type", "SU"}}), "accepted");
  EXPECT_EQ(MessageWith("qwen2moe", {{"/rope_parameters/rope_theta", 10000}}), "accepted");
}

TEST(RopeSettings, UnreadOnesAreRefused) {
  EXPECT_THAT(
      MessageWith("qwen2moe", {{"/rope_parameters/stretch", 2}}),
      HasSubstr("rope_parameters: stretch is 2, but models of this class are not known to"));
  EXPECT_THAT(MessageWith("llama-yarn", {{"/rope_scaling/llama_4_scaling_beta", 0.1}}),
              HasSubstr("rope_scaling: llama_4_scaling_beta is 0.1"));
  EXPECT_THAT(MessageWith("llama-yarn", {{"/rope_scaling/alpha", 2}}), HasSubstr("alpha is 2"));
  EXPECT_THAT(MessageWith("phi3-long", {{"/rope_scaling/long_mscale", 2}}),
              HasSubstr("long_mscale is 2"));
  EXPECT_THAT(MessageWith("qwen2moe", {{"/rope_parameters/partial_rotary_factor", 0.5}}),
              HasSubstr("partial_rotary_factor is 0.5, expected 1 for models of this class"));
  EXPECT_THAT(MessageWith("deepseek2-v3", {{"/rope_scaling/attention_factor", 1.5}}),
              HasSubstr("attention_factor is 1.5, expected 1"));
  EXPECT_THAT(MessageWith("phi3-long", {{"/rope_scaling/factor", 4}}),
              HasSubstr("factor is 4, expected 2.66"));
  EXPECT_EQ(MessageWith("llama-yarn", {{"/rope_scaling/finetuned", true}}), "accepted");
}

TEST(RopeSettings, KindsOfLayersMayDifferOnlyWhereTheClassHasThat) {
  const json usual = {{"rope_type", "default"}, {"rope_theta", 1e4}};
  const json other = {{"rope_type", "default"}, {"rope_theta", 1e3}};
  const json linear = {{"rope_type", "linear"}, {"factor", 2}, {"rope_theta", 1e4}};
  const auto with = [](const char* name, const json& full, const json& sliding) {
    return MessageWith(
        name, {{"/rope_parameters", {{"full_attention", full}, {"sliding_attention", sliding}}}});
  };
  EXPECT_EQ(with("cohere2", usual, usual), "accepted");
  EXPECT_THAT(with("cohere2", usual, other),
              AllOf(HasSubstr("full_attention is {"), HasSubstr("sliding_attention is {"),
                    HasSubstr("expected one rotary embedding for all layers")));
  EXPECT_THAT(with("gemma3n", usual, linear), HasSubstr("type \"linear\" is not supported"));
  EXPECT_THAT(with("olmo3-bases", usual, linear),
              HasSubstr("rope_parameters: sliding_attention: type"));
  EXPECT_THAT(
      MessageWith("cohere2", {{"/rope_parameters",
                               {{"sliding_attention", usual}, {"partial_rotary_factor", 1}}}}),
      HasSubstr("expected it in the settings of each layer type"));
  EXPECT_THAT(MessageWith("gemma3n", {{"/rope_parameters", {{"sliding_attention", usual}}}}),
              HasSubstr("expected full_attention and sliding_attention"));
  // Settings of one kind alone hold for all layers.
  EXPECT_THAT(MessageWith("cohere2", {{"/rope_parameters", {{"sliding_attention", linear}}},
                                      {"/rope_theta", 500}}),
              HasSubstr("sliding_attention: rope_theta is 10000.0; expected one value"));
}

// Layers with a window do without the stretching, and have a base of their own where version 5 has
// written one.
TEST(RopeSettings, WindowsHaveTheirOwnBase) {
  SeededModel seeded("olmo3");
  const auto base_of = [&]() {
    const auto path = seeded.Convert();
    EXPECT_TRUE(path.ok()) << path.error().message;
    const auto file = formats::GgufFile::Open(path.ok() ? *path : "");
    const auto* value = file.ok() ? file->Find("olmo2.rope.freq_base_swa") : nullptr;
    return value == nullptr ? 0.0 : std::get<double>(value->value);
  };
  EXPECT_EQ(base_of(), 0);
  seeded.config = AsVersion5(seeded.config);
  seeded.config["rope_parameters"]["sliding_attention"]["rope_theta"] = 500;
  EXPECT_EQ(base_of(), 500);
}

// All spellings of a limit that limits nothing, of which version 4 writes the bare word.
TEST(ConfigSpelling, StepsWithoutALimit) {
  SeededModel seeded("mamba2");
  const std::string expected = BytesOf(seeded);
  json config = seeded.config;
  config["time_step_limit"] = {0.0, "here"};
  const std::string text = config.dump();
  for (const char* limit : {"Infinity", R"({"__float__": "Infinity"})", "3.4028235e38", "1e300"}) {
    seeded.config_text = text;
    seeded.config_text.replace(text.find("\"here\""), 6, limit);
    EXPECT_EQ(BytesOf(seeded) == expected, true) << limit;
  }
  for (const char* limit : {"0.1", "-Infinity", "NaN", R"({"__float__": "-Infinity"})"}) {
    seeded.config_text = text;
    seeded.config_text.replace(text.find("\"here\""), 6, limit);
    EXPECT_THAT(seeded.Message(), HasSubstr("time_step_limit: expected 0 and Infinity")) << limit;
  }
}

// One matrix of `rows` rows of each expert, of a tensor of all experts.
void Unstack(std::map<std::string, HfWeights>& weights, const std::string& name, int64_t first_row,
             int64_t rows, const std::string& part) {
  const HfWeights& all = weights.at(name);
  const int64_t columns = all.shape[2];
  for (int64_t expert = 0; expert < all.shape[0]; ++expert) {
    HfWeights one{{rows, columns}, {}};
    const auto begin = all.values.begin() + (expert * all.shape[1] + first_row) * columns;
    one.values.assign(begin, begin + rows * columns);
    const std::string prefix = name.substr(0, name.rfind('.'));
    weights[prefix + "." + std::to_string(expert) + "." + part + ".weight"] = one;
  }
}

TEST(ConfigSpelling, ExpertsInATensorEach) {
  SeededModel seeded("qwen35moe");
  const std::string expected = BytesOf(seeded);
  seeded.change_weights = [](std::map<std::string, HfWeights>& weights) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : weights) {
      if (name.ends_with("experts.gate_up_proj") || name.ends_with("experts.down_proj")) {
        names.push_back(name);
      }
    }
    for (const std::string& name : names) {
      const int64_t rows = weights.at(name).shape[1];
      if (name.ends_with("down_proj")) {
        Unstack(weights, name, 0, rows, "down_proj");
      } else {
        Unstack(weights, name, 0, rows / 2, "gate_proj");
        Unstack(weights, name, rows / 2, rows / 2, "up_proj");
      }
      weights.erase(name);
    }
  };
  EXPECT_EQ(BytesOf(seeded) == expected, true);
}

// transformers 4 saves the text model of Gemma 3n under the names of the whole, and puts what it
// adds behind every "model" in a name.
TEST(ConfigSpelling, TextModelsUnderTheNamesOfTheWhole) {
  SeededModel seeded("gemma3n");
  const std::string expected = BytesOf(seeded);
  seeded.rename = [](const std::string& name) {
    return std::regex_replace(name, std::regex("^model"), "model.language_model");
  };
  EXPECT_EQ(BytesOf(seeded) == expected, true);
  seeded.rename = [](const std::string& name) {
    return std::regex_replace(name, std::regex("model"), "model.language_model");
  };
  EXPECT_EQ(BytesOf(seeded) == expected, true);
}

// The whole model says that its output is the embedding, and its text model that it is not.
TEST(ConfigSpelling, OutputsAreTiedAsTheWholeModelSays) {
  SeededModel seeded("mistral3");
  const json text = seeded.config;
  seeded.config = {{"architectures", {"Mistral3ForConditionalGeneration"}}, {"text_config", text}};
  seeded.config["text_config"]["tie_word_embeddings"] = false;
  seeded.config["tie_word_embeddings"] = true;
  seeded.change_weights = [](auto& weights) { weights.erase("lm_head.weight"); };
  EXPECT_EQ(seeded.Message(), "accepted");
  seeded.config["tie_word_embeddings"] = false;
  EXPECT_THAT(seeded.Message(), HasSubstr("lm_head.weight is missing, and config.json says"));
}

}  // namespace
}  // namespace kvant::test
