// gpt-oss from folders whose experts are in MXFP4: the file has the values that the definition of
// the folder's blocks gives, and gives the logits of a file with these values as floats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "base/result.h"
#include "cpu/kv_format_list.h"
#include "engine/convert/convert.h"
#include "formats/gguf.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kLayers = 2, kExperts = 3, kDim = 64, kWidth = 96, kHeads = 4, kHeadDim = 16,
                  kVocab = 40;

// OCP Microscaling Formats 1.0: E2M1 by its code.
constexpr float kE2M1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// A stack of matrices as the folder has it: [experts, rows, columns / 32, 16] bytes, of which each
// holds two values, the first one in its lower half; and an exponent for each 32 values.
struct Mxfp4Stack {
  std::vector<int64_t> shape;  // [experts, rows, columns]
  std::string blocks;
  std::string scales;

  float Value(int64_t expert, int64_t row, int64_t column) const {
    const int64_t place = (expert * shape[1] + row) * shape[2] + column;
    const auto byte = static_cast<uint8_t>(blocks[static_cast<size_t>(place / 2)]);
    const int code = place % 2 == 0 ? byte & 15 : byte >> 4;
    const auto scale = static_cast<uint8_t>(scales[static_cast<size_t>(place / 32)]);
    return std::ldexp(code < 8 ? kE2M1[code] : -kE2M1[code - 8], scale - 127);
  }
};

Mxfp4Stack RandomStack(int64_t rows, int64_t columns, std::mt19937& random) {
  Mxfp4Stack stack{{kExperts, rows, columns}, {}, {}};
  const int64_t blocks = kExperts * rows * columns / 32;
  for (int64_t i = 0; i < blocks * 16; ++i) stack.blocks += static_cast<char>(random() % 256);
  for (int64_t i = 0; i < blocks; ++i) stack.scales += static_cast<char>(122 + random() % 3);
  return stack;
}

class Mxfp4Folder {
 public:
  Mxfp4Folder() {
    folder_.config = {{"architectures", {"GptOssForCausalLM"}},
                      {"hidden_size", kDim},
                      {"intermediate_size", kWidth},
                      {"num_hidden_layers", kLayers},
                      {"num_attention_heads", kHeads},
                      {"num_key_value_heads", 2},
                      {"head_dim", kHeadDim},
                      {"num_local_experts", kExperts},
                      {"num_experts_per_tok", 2},
                      {"vocab_size", kVocab},
                      {"max_position_embeddings", 128},
                      {"rms_norm_eps", 1e-5},
                      {"sliding_window", 9},
                      {"quantization_config", {{"quant_method", "mxfp4"}}}};
    folder_.weights.clear();
    Add("model.embed_tokens.weight", {kVocab, kDim});
    Add("model.norm.weight", {kDim});
    Add("lm_head.weight", {kVocab, kDim});
    for (int64_t layer = 0; layer < kLayers; ++layer) AddLayer(layer);
  }

  std::string Path() const { return folder_.Path(); }
  nlohmann::json& config() { return folder_.config; }

  // The stacks as blocks, or as floats with rows and columns exchanged.
  enum class Experts { kMxfp4, kFloats };
  void Write(Experts form) {
    if (form == Experts::kFloats) config().erase("quantization_config");
    folder_.Write();
    SafetensorsBuilder builder;
    for (const auto& [name, tensor] : folder_.weights) {
      builder.AddF32(name, tensor.shape, tensor.values);
    }
    for (const auto& [name, stack] : stacks) {
      const auto& [experts, rows, columns] = Sizes(stack);
      if (form == Experts::kMxfp4) {
        builder.Add(name + "_blocks", type, {experts, rows, columns / 32, 16}, stack.blocks);
        if (with_scales)
          builder.Add(name + "_scales", type, {experts, rows, columns / 32}, stack.scales);
        continue;
      }
      std::vector<float> values;
      for (int64_t i = 0; i < experts * columns * rows; ++i) {
        values.push_back(stack.Value(i / (columns * rows), i % rows, i / rows % columns));
      }
      builder.AddF32(name, {experts, columns, rows}, values);
    }
    builder.Write(folder_ / "model.safetensors");
  }

  Result<std::string> Convert(Experts form) {
    Write(form);
    const std::string output = folder_ / (form == Experts::kMxfp4 ? "mxfp4.gguf" : "floats.gguf");
    KVANT_TRY(convert::ConvertFolder(Path(), output, {.type = "f32", .threads = 2}));
    return output;
  }

  std::string Message() {
    const auto path = Convert(Experts::kMxfp4);
    return path.ok() ? "accepted" : path.error().message;
  }

  std::map<std::string, Mxfp4Stack> stacks;
  std::string type = "U8";
  bool with_scales = true;

 private:
  static std::tuple<int64_t, int64_t, int64_t> Sizes(const Mxfp4Stack& stack) {
    return {stack.shape[0], stack.shape[1], stack.shape[2]};
  }

  void Add(const std::string& name, const std::vector<int64_t>& shape) { folder_.Add(name, shape); }

  void AddLayer(int64_t layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (const auto& [name, rows] :
         {std::pair("q", kHeads * kHeadDim), {"k", 2 * kHeadDim}, {"v", 2 * kHeadDim}}) {
      Add(prefix + "self_attn." + name + "_proj.weight", {rows, kDim});
      Add(prefix + "self_attn." + name + "_proj.bias", {rows});
    }
    Add(prefix + "self_attn.o_proj.weight", {kDim, kHeads * kHeadDim});
    Add(prefix + "self_attn.o_proj.bias", {kDim});
    Add(prefix + "self_attn.sinks", {kHeads});
    Add(prefix + "input_layernorm.weight", {kDim});
    Add(prefix + "post_attention_layernorm.weight", {kDim});
    Add(prefix + "mlp.router.weight", {kExperts, kDim});
    Add(prefix + "mlp.router.bias", {kExperts});
    Add(prefix + "mlp.experts.gate_up_proj_bias", {kExperts, 2 * kWidth});
    Add(prefix + "mlp.experts.down_proj_bias", {kExperts, kDim});
    stacks[prefix + "mlp.experts.gate_up_proj"] = RandomStack(2 * kWidth, kDim, random_);
    stacks[prefix + "mlp.experts.down_proj"] = RandomStack(kDim, kWidth, random_);
  }

  HfFolder folder_;
  std::mt19937 random_{3};
};

using Form = Mxfp4Folder::Experts;

void ExpectRows(const formats::GgufFile& file, const std::string& name, const Mxfp4Stack& stack,
                int64_t first_row, int64_t step) {
  const formats::GgufTensor* tensor = file.FindTensor(name);
  ASSERT_NE(tensor, nullptr) << name;
  ASSERT_EQ(tensor->format->name, std::string_view("MXFP4")) << name;
  const int64_t columns = tensor->dims[0];
  const int64_t rows = tensor->dims[1];
  ASSERT_EQ(columns, stack.shape[2]) << name;
  ASSERT_EQ(rows * step, stack.shape[1]) << name;
  ASSERT_EQ(tensor->dims[2], kExperts) << name;
  std::vector<float> values(static_cast<size_t>(tensor->n_values()));
  tensor->format->decode(tensor->data, values.data(), tensor->n_values());
  for (int64_t i = 0; i < tensor->n_values(); ++i) {
    const int64_t row = i / columns % rows;
    ASSERT_EQ(values[static_cast<size_t>(i)],
              stack.Value(i / columns / rows, first_row + row * step, i % columns))
        << name << " " << i;
  }
}

TEST(ConvertMxfp4, NumbersAreThoseOfTheBlocks) {
  Mxfp4Folder folder;
  const auto path = folder.Convert(Form::kMxfp4);
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto file = formats::GgufFile::Open(*path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Mxfp4Stack& gate_up = folder.stacks["model.layers.1.mlp.experts.gate_up_proj"];
  ExpectRows(*file, "blk.1.ffn_gate_exps.weight", gate_up, 0, 2);
  ExpectRows(*file, "blk.1.ffn_up_exps.weight", gate_up, 1, 2);
  ExpectRows(*file, "blk.0.ffn_down_exps.weight",
             folder.stacks["model.layers.0.mlp.experts.down_proj"], 0, 1);
}

TEST(ConvertMxfp4, ComputesWhatFloatsCompute) {
  Mxfp4Folder folder;
  const auto packed = folder.Convert(Form::kMxfp4);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  const auto floats = folder.Convert(Form::kFloats);
  ASSERT_TRUE(floats.ok()) << floats.error().message;
  const std::vector<TokenId> tokens = RandomTokens(40, 5, kVocab);
  const auto logits = [&](const std::string& path) {
    const auto model = Model::Open(path);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return AllLogits(*OpenSession(*model, {.k_type = KvType::kF32, .v_type = KvType::kF32}), tokens,
                     7);
  };
  // Only the inputs of the experts are quantized to 8 bits.
  EXPECT_LT(MeanDivergence(logits(*floats), logits(*packed), 40), 1e-3);
}

TEST(ConvertMxfp4, WhatDoesNotFitIsNamed) {
  const std::string name = "model.layers.0.mlp.experts.down_proj";
  EXPECT_EQ(Mxfp4Folder().Message(), "accepted");
  Mxfp4Folder other_method;
  other_method.config()["quantization_config"]["quant_method"] = "gptq";
  EXPECT_THAT(other_method.Message(), HasSubstr("quantized already (gptq)"));
  Mxfp4Folder without_scales;
  without_scales.with_scales = false;
  EXPECT_THAT(without_scales.Message(), HasSubstr("_scales is missing"));
  Mxfp4Folder signed_bytes;
  signed_bytes.type = "I8";
  EXPECT_THAT(signed_bytes.Message(), HasSubstr("holds I8 values, expected U8"));
  Mxfp4Folder missing;
  missing.stacks.erase(name);
  EXPECT_THAT(missing.Message(), HasSubstr("tensor " + name + " is missing"));
  Mxfp4Folder narrow;
  std::mt19937 random(4);
  narrow.stacks[name] = RandomStack(kDim, kWidth - 32, random);
  EXPECT_THAT(narrow.Message(), HasSubstr("has shape [3, 64, 2, 16], but"));
  Mxfp4Folder odd;
  odd.config()["intermediate_size"] = kWidth - 1;
  EXPECT_THAT(odd.Message(), HasSubstr("make"));
}

}  // namespace
}  // namespace kvant::test
