// Small Hugging Face folders that the tests write themselves: a model of random weights with a
// vocabulary of a few tokens, changed by each test as it needs.
#pragma once

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/formats/safetensors_bytes.h"
#include "tests/temporary_folder.h"

namespace kvant::test {

struct HfWeights {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

class HfFolder {
 public:
  // Sizes of the model; dim = heads * head_dim unless config["head_dim"] says otherwise.
  static constexpr int64_t kDim = 32, kHeads = 4, kKvHeads = 2, kHeadDim = 8, kFfn = 64,
                           kVocab = 10;

  explicit HfFolder(const std::string& hf_class = "LlamaForCausalLM") {
    config = {{"architectures", {hf_class}},
              {"hidden_size", kDim},
              {"intermediate_size", kFfn},
              {"num_attention_heads", kHeads},
              {"num_key_value_heads", kKvHeads},
              {"num_hidden_layers", 2},
              {"vocab_size", kVocab},
              {"max_position_embeddings", 128},
              {"rms_norm_eps", 1e-5},
              {"hidden_act", "silu"},
              {"tie_word_embeddings", false},
              {"bos_token_id", 1},
              {"eos_token_id", 2}};
    AddWeights(hf_class == "Phi3ForCausalLM");
    SetTokenizer();
  }

  std::string Path() const { return folder_.path(); }
  std::string operator/(const std::string& name) const { return folder_ / name; }

  void WriteText(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void WriteJson(const std::string& name, const nlohmann::json& content) const {
    WriteText(name, content.dump(1));
  }

  // Everything, the weights as F32 in one file.
  void Write() const {
    WriteJson("config.json", config);
    WriteJson("tokenizer.json", tokenizer);
    SafetensorsBuilder builder;
    for (const auto& [name, tensor] : weights) builder.AddF32(name, tensor.shape, tensor.values);
    for (const auto& [name, values] : integers) {
      builder.Add(name, "I64", {static_cast<int64_t>(values.size())},
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t)});
    }
    builder.Write(folder_ / "model.safetensors");
  }

  nlohmann::json config;
  nlohmann::json tokenizer;
  std::map<std::string, HfWeights> weights;
  std::map<std::string, std::vector<int64_t>> integers;  // vectors

  void Add(const std::string& name, std::vector<int64_t> shape) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    std::normal_distribution<float> normal(0.0f, 0.3f);
    HfWeights tensor{std::move(shape), {}};
    for (int64_t i = 0; i < count; ++i) tensor.values.push_back(normal(random_));
    weights[name] = std::move(tensor);
  }

 private:
  void AddWeights(bool fused) {
    const int64_t q_rows = kHeads * kHeadDim;
    const int64_t kv_rows = kKvHeads * kHeadDim;
    Add("model.embed_tokens.weight", {kVocab, kDim});
    Add("model.norm.weight", {kDim});
    Add("lm_head.weight", {kVocab, kDim});
    for (int layer = 0; layer < 2; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      if (fused) {
        Add(prefix + "self_attn.qkv_proj.weight", {q_rows + 2 * kv_rows, kDim});
        Add(prefix + "mlp.gate_up_proj.weight", {2 * kFfn, kDim});
      } else {
        Add(prefix + "self_attn.q_proj.weight", {q_rows, kDim});
        Add(prefix + "self_attn.k_proj.weight", {kv_rows, kDim});
        Add(prefix + "self_attn.v_proj.weight", {kv_rows, kDim});
        Add(prefix + "mlp.gate_proj.weight", {kFfn, kDim});
        Add(prefix + "mlp.up_proj.weight", {kFfn, kDim});
      }
      Add(prefix + "self_attn.o_proj.weight", {kDim, q_rows});
      Add(prefix + "mlp.down_proj.weight", {kDim, kFfn});
      Add(prefix + "input_layernorm.weight", {kDim});
      Add(prefix + "post_attention_layernorm.weight", {kDim});
    }
  }

  void SetTokenizer() {
    const auto added = [](int id, const char* text) {
      return nlohmann::json{{"id", id}, {"content", text}, {"special", true}};
    };
    tokenizer = {{"added_tokens", {added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")}},
                 {"normalizer", nullptr},
                 {"pre_tokenizer",
                  {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}}},
                 {"model",
                  {{"type", "BPE"},
                   {"unk_token", "<unk>"},
                   {"byte_fallback", true},
                   {"vocab",
                    {{"<unk>", 0},
                     {"<s>", 1},
                     {"</s>", 2},
                     {"<0x41>", 3},
                     {"a", 4},
                     {"b", 5},
                     {"▁", 6},
                     {"ab", 7},
                     {"▁ab", 8}}},
                   {"merges", {"a b", "▁ ab"}}}}};
  }

  TemporaryFolder folder_;
  std::mt19937 random_{7};
};

}  // namespace kvant::test
