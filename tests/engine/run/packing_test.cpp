// Layers of one file that differ in their heads, in their widths, and in what they hold as one
// matrix or as several: all families read this by the presence of tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/log.h"
#include "formats/gguf.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

class MixedModelWriter {
 public:
  // Layer 0: matrices apart, all biases, norms of heads; 4 heads of 16 for 2 kv heads.
  // Layer 1: fused matrices, biases of q and v apart from them; 2 heads of 32 for 1 kv head.
  // Layer 2: fused matrices with a fused bias; heads as in layer 0.
  // Layer 3: experts, gate and up fused. Matrices of all these layers have second scales.
  // Layer 4 predicts further tokens, and tensors behind it read images.
  void Write(const std::string& path) {
    AddMetadata();
    Add("token_embd.weight", {kDim, kTinyVocab}, 1.0f);
    AddLayer0();
    AddFusedLayer(1, 32, 1, 64);
    Add("blk.1.attn_q.bias", {64}, 0.5f);
    Add("blk.1.attn_v.bias", {32}, 0.5f);
    AddFusedLayer(2, 16, 2, 80);
    Add("blk.2.attn_qkv.bias", {64 + 2 * 32}, 0.5f);
    AddExpertLayer();
    for (const char* name :
         {"blk.0.attn_k", "blk.0.attn_output", "blk.0.ffn_gate", "blk.0.ffn_down", "blk.1.attn_qkv",
          "blk.2.ffn_up", "blk.3.ffn_gate_inp"}) {
      Add(std::string(name) + ".scale", {1}, 1.5f);
    }
    for (const char* name : {"blk.3.ffn_gate_up_exps", "blk.3.ffn_down_exps"}) {
      Add(std::string(name) + ".scale", {4}, 1.5f);
    }
    for (const char* name : kLeftOut) Add(name, {kDim}, 1.0f);
    AddNorm("output_norm.weight", kDim);
    ASSERT_TRUE(writer_.Begin(path).ok());
    for (const auto& values : data_) {
      ASSERT_TRUE(writer_.WriteTensor(std::as_bytes(std::span(values))).ok());
    }
    ASSERT_TRUE(writer_.Finish().ok());
  }

  static constexpr const char* kLeftOut[] = {"blk.4.nextn.enorm.weight", "blk.4.attn_norm.weight",
                                             "v.patch_embd.weight", "mm.0.weight", "a.conv.weight"};

 private:
  static constexpr int64_t kDim = 64;

  void AddMetadata() {
    writer_.AddString("general.architecture", "llama");
    writer_.AddU32("llama.context_length", 256);
    writer_.AddU32("llama.embedding_length", kDim);
    writer_.AddU32("llama.block_count", 5);
    writer_.AddU32("llama.nextn_predict_layers", 1);
    writer_.AddI32s("llama.feed_forward_length", {96, 64, 80, 80, 80});
    writer_.AddI32s("llama.attention.head_count", {4, 2, 4, 4});
    writer_.AddI32s("llama.attention.head_count_kv", {2, 1, 2, 2, 2});
    writer_.AddU32("llama.expert_count", 4);
    writer_.AddI32s("llama.expert_used_count", {1, 1, 1, 3, 1});
    writer_.AddI32s("llama.expert_feed_forward_length", {1, 1, 1, 48});
    writer_.AddF32("llama.rope.scale_linear", 2.0f);
    writer_.AddF32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    std::vector<int32_t> types = {2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back(fmt::format("<0x{:02X}>", byte));
      types.push_back(6);
    }
    writer_.AddString("tokenizer.ggml.model", "llama");
    writer_.AddStrings("tokenizer.ggml.tokens", tokens);
    writer_.AddF32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f));
    writer_.AddI32s("tokenizer.ggml.token_type", types);
  }

  void AddLayer0() {
    AddNorm("blk.0.attn_norm.weight", kDim);
    AddMatrix("blk.0.attn_q", kDim, 64);
    AddMatrix("blk.0.attn_k", kDim, 32);
    AddMatrix("blk.0.attn_v", kDim, 32);
    AddNorm("blk.0.attn_q_norm.weight", 16);
    AddNorm("blk.0.attn_k_norm.weight", 16);
    AddMatrix("blk.0.attn_output", 64, kDim);
    AddNorm("blk.0.ffn_norm.weight", kDim);
    AddMatrix("blk.0.ffn_gate", kDim, 96);
    AddMatrix("blk.0.ffn_up", kDim, 96);
    AddMatrix("blk.0.ffn_down", 96, kDim);
    for (const auto& [name, size] :
         {std::pair{"attn_q", 64}, std::pair{"attn_k", 32}, std::pair{"attn_v", 32},
          std::pair{"attn_output", 64}, std::pair{"ffn_gate", 96}, std::pair{"ffn_up", 96},
          std::pair{"ffn_down", 64}}) {
      Add(fmt::format("blk.0.{}.bias", name), {size}, 0.5f);
    }
  }

  void AddFusedLayer(int layer, int64_t head_dim, int64_t kv_heads, int64_t ffn) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    AddNorm(prefix + "attn_norm.weight", kDim);
    AddMatrix(prefix + "attn_qkv", kDim, kDim + 2 * kv_heads * head_dim);
    AddMatrix(prefix + "attn_output", kDim, kDim);
    AddNorm(prefix + "ffn_norm.weight", kDim);
    AddMatrix(prefix + "ffn_up", kDim, 2 * ffn);
    AddMatrix(prefix + "ffn_down", ffn, kDim);
  }

  void AddExpertLayer() {
    AddNorm("blk.3.attn_norm.weight", kDim);
    AddMatrix("blk.3.attn_qkv", kDim, 64 + 2 * 32);
    AddMatrix("blk.3.attn_output", 64, kDim);
    AddNorm("blk.3.ffn_norm.weight", kDim);
    AddMatrix("blk.3.ffn_gate_inp", kDim, 4);
    Add("blk.3.ffn_gate_up_exps.weight", {kDim, 2 * 48, 4}, 0.2f);
    Add("blk.3.ffn_down_exps.weight", {48, kDim, 4}, 0.2f);
  }

  void AddMatrix(const std::string& name, int64_t cols, int64_t rows) {
    Add(name + ".weight", {cols, rows}, 1.5f / std::sqrt(static_cast<float>(cols)));
  }

  void AddNorm(const std::string& name, int64_t size) {
    Add(name, {size}, 0.3f);
    for (float& value : data_.back()) value += 1.0f;
  }

  void Add(const std::string& name, const std::vector<int64_t>& dims, float scale) {
    ASSERT_TRUE(writer_.AddTensor(name, *quant::FindFormat("F32"), dims).ok());
    int64_t count = 1;
    for (const int64_t size : dims) count *= size;
    data_.push_back(RandomValues(count, scale, random_));
  }

  std::mt19937 random_{21};
  formats::GgufWriter writer_;
  std::vector<std::vector<float>> data_;
};

class Packing : public testing::Test {
 protected:
  void SetUp() override {
    path_ = TempPath("mixed.gguf");
    MixedModelWriter().Write(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(Packing, LayersThatDifferComputeWhatTheReferenceComputes) {
  const auto file = formats::GgufFile::Open(path_);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::vector<TokenId> tokens = RandomTokens(70, 6);
  ReferenceForward reference(*file);
  const Vector expected = reference.Logits(tokens);
  for (const formats::GgufTensor& tensor : file->tensors()) {
    const bool left_out = std::ranges::find(MixedModelWriter::kLeftOut, tensor.name) !=
                          std::end(MixedModelWriter::kLeftOut);
    EXPECT_NE(reference.weights().IsRead(std::string(tensor.name)), left_out) << tensor.name;
  }
  double magnitude = 0;
  for (const double value : expected) magnitude = std::max(magnitude, std::abs(value));
  const auto model = Model::Open(path_);
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const size_t piece : {size_t{1}, size_t{9}, size_t{70}}) {
    const auto session = OpenSession(*model, Options(KvType::kF32, 1));
    const std::vector<float> logits = AllLogits(*session, tokens, piece);
    ASSERT_EQ(logits.size(), expected.size());
    double largest = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(logits[i]) - expected[i]));
    }
    // Sums of floats, in whatever order, are off by 2e-6 to 4e-6 of the largest.
    EXPECT_LT(largest, 1e-5 * magnitude) << piece << ", logits up to " << magnitude;
  }
}

TEST_F(Packing, WhatIsLeftOutIsSaidOnce) {
  std::vector<std::string> lines;
  SetLogSink([&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto model = Model::Open(path_);
  SetLogSink({});
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0], path_ + ": 1 of 5 layers predict further tokens and are left out");
  EXPECT_EQ(lines[1], path_ +
                          ": left out: 3 tensors of parts that read images or sound, the first "
                          "v.patch_embd.weight");
}

}  // namespace
}  // namespace kvant::test
