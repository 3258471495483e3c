// Layers of one file that differ in their heads, in their widths, and in what they hold as one
// matrix or as several: all families read this by the presence of tensors.
#include <gtest/gtest.h>

#include <filesystem>

#include "formats/gguf.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/runner_kinds.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

class MixedModelWriter {
 public:
  // Layer 0: matrices apart, all biases, norms of heads; 4 heads of 16 for 2 kv heads.
  // Layer 1: fused matrices, biases of q and v apart from them; 2 heads of 32 for 1 kv head.
  // Layer 2: fused matrices with a fused bias; heads as in layer 0.
  void Write(const std::string& path) {
    AddMetadata();
    Add("token_embd.weight", {kDim, kTinyVocab}, 1.0f);
    AddLayer0();
    AddFusedLayer(1, 32, 1, 64);
    Add("blk.1.attn_q.bias", {64}, 0.5f);
    Add("blk.1.attn_v.bias", {32}, 0.5f);
    AddFusedLayer(2, 16, 2, 80);
    Add("blk.2.attn_qkv.bias", {64 + 2 * 32}, 0.5f);
    AddNorm("output_norm.weight", kDim);
    ASSERT_TRUE(writer_.Begin(path).ok());
    for (const auto& values : data_) {
      ASSERT_TRUE(writer_.WriteTensor(std::as_bytes(std::span(values))).ok());
    }
    ASSERT_TRUE(writer_.Finish().ok());
  }

 private:
  static constexpr int64_t kDim = 64;

  void AddMetadata() {
    writer_.AddString("general.architecture", "llama");
    writer_.AddU32("llama.context_length", 256);
    writer_.AddU32("llama.embedding_length", kDim);
    writer_.AddU32("llama.block_count", 3);
    writer_.AddI32s("llama.feed_forward_length", {96, 64, 80});
    writer_.AddI32s("llama.attention.head_count", {4, 2, 4});
    writer_.AddI32s("llama.attention.head_count_kv", {2, 1, 2});
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

  void AddMatrix(const std::string& name, int64_t cols, int64_t rows) {
    Add(name + ".weight", {cols, rows}, 1.5f / std::sqrt(static_cast<float>(cols)));
  }

  void AddNorm(const std::string& name, int64_t size) {
    Add(name, {size}, 0.3f);
    for (float& value : data_.back()) value += 1.0f;
  }

  void Add(const std::string& name, const std::vector<int64_t>& dims, float scale) {
    ASSERT_TRUE(writer_.AddTensor(name, *quant::FindFormat("F32"), dims).ok());
    data_.push_back(RandomValues(dims[0] * (dims.size() > 1 ? dims[1] : 1), scale, random_));
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
    EXPECT_TRUE(reference.weights().IsRead(std::string(tensor.name))) << tensor.name;
  }
  const auto model = Model::Open(path_);
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const size_t piece : {size_t{1}, size_t{9}, size_t{70}}) {
    const auto session = OpenSession(*model, Options(KvElement::kF32, 1));
    const std::vector<float> logits = AllLogits(*session, tokens, piece);
    ASSERT_EQ(logits.size(), expected.size());
    double largest = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(logits[i]) - expected[i]));
    }
    EXPECT_LT(largest, 1e-4) << piece;  // as in session_test.cpp
  }
}

}  // namespace
}  // namespace kvant::test
