// The settings of tests/reference/seeded for models with rows of 256 values, which every block
// format can hold.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/arch/hf/hf_family.h"
#include "formats/json_object.h"
#include "tests/engine/arch/seeded_model.h"

namespace kvant::test {

// Keys of MiMo as large as values, half of which are rotated.
inline void GiveEvenShares(nlohmann::json& config) {
  config["v_head_dim"] = 64;
  if (!config.contains("rope_parameters")) {
    config["swa_head_dim"] = config["swa_v_head_dim"] = 64;
    config["partial_rotary_factor"] = 0.5;
    return;
  }
  for (auto& rope : config["rope_parameters"]) rope["partial_rotary_factor"] = 0.5;
}

// The settings of a small model of the class, if there is one among those of
// tests/reference/seeded: with rows of 256 values.
inline std::optional<nlohmann::json> SeededConfig(const arch::HfFamily& family) {
  std::vector<std::string> names = SeededModelNames();
  for (const std::string& name : SeededModelNames(kSeededEmbedders)) {
    names.push_back(kSeededEmbedders + name);
  }
  for (const std::string& name : names) {
    nlohmann::json config = SeededModel(name).config;
    const auto parsed = formats::JsonObject::Parse(config.dump(), "config.json").value();
    const auto found = arch::FindHfFamily(parsed);
    if (!found.ok() || *found != &family) continue;
    config[std::string(family.keys.dim)] = 256;
    if (!family.keys.ffn.empty()) config[std::string(family.keys.ffn)] = 512;
    if (config.contains("head_dim")) config["head_dim"] = 64;
    if (config.contains("rotary_dim")) config["rotary_dim"] = 32;  // a share of 0.5
    if (!family.keys.heads.empty()) {
      auto& heads = config[std::string(family.keys.heads)];
      if (256 % heads.get<int>() != 0) heads = 4;
    }
    if (config.contains("index_head_dim"))
      config["index_head_dim"] = 64;  // no less than is rotated
    if (family.arch == "qwen4exp") {
      config["indexer_head_dim"] = 64;
      config["hc_lowrank"] = config["moe_intermediate_size"] = 256;
      config["shared_expert_intermediate_size"] = 256;
      config["ple_embed_dim"] = 1024;  // four rows
      config["eos_token_id"] = 3;
    }
    if (family.arch == "step35") config.erase("query_pre_attn_scalar");  // the head size
    if (config.contains("kv_channels")) config["kv_channels"] = 64;
    if (family.arch == "mimo2") GiveEvenShares(config);
    if (family.arch == "gemma3n") {
      config["intermediate_size"] = 512;
      config["hidden_size_per_layer_input"] = 256;
      config["vocab_size_per_layer_input"] = 37;
    }
    // All that the models of the class have between them.
    if (family.arch == "gemma4") {
      config["enable_moe_block"] = config["attention_k_eq_v"] = true;
      config["num_experts"] = 6;
      config["top_k_experts"] = 2;
      config["moe_intermediate_size"] = config["hidden_size_per_layer_input"] = 256;
      config["num_kv_shared_layers"] = 2;
    }
    // Scaling may have two lists of factors; the reference knows one. A list has a factor for each
    // pair of a head's dimensions.
    const auto scaling = config.find("rope_scaling");
    const bool by_lists = scaling != config.end() && scaling->contains("long_factor");
    if (by_lists) config.erase("rope_scaling");
    config["vocab_size"] = 40;
    config["tie_word_embeddings"] = false;
    // A third of three times as many.
    if (family.arch == "neo-bert") config["intermediate_size"] = 768;
    return config;
  }
  return std::nullopt;
}

}  // namespace kvant::test
