// Small random embedding models that the tests write themselves, through the project's own GGUF
// writer: of the architecture bert, with any head, and of decoders whose keys are changed.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "kvant/model.h"
#include "kvant/pooling.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {

struct TextShape {
  int64_t dim = 64;
  int64_t heads = 4;
  int64_t ffn = 160;
  int64_t layers = 2;
  int64_t context = 96;
  int64_t segments = 2;  // 0: the file has no rows for them
  std::string type = "F32";
  Pooling pooling = Pooling::kMean;
  int64_t labels = 0;      // of a classifier with a hidden layer and a norm; 0: there is none
  bool dense = false;      // dense_2 to 96 features, with tanh, and dense_3 to 40
  bool separator = false;  // two between texts of a pair, as RoBERTa has them
  std::string pairs = "";  // the template of pairs
  uint32_t seed = 3;
};

// Words of the vocabulary behind the special tokens: "w0" to "w59", whole words.
inline constexpr int64_t kTextWords = 60;
inline constexpr TokenId kFirstWord = 5;

class TextModelWriter : TensorFileWriter {
 public:
  explicit TextModelWriter(const TextShape& shape) : shape_(shape), random_(shape.seed) {}

  void Write(const std::string& path) {
    AddMetadata();
    const int64_t vocab = kFirstWord + kTextWords;
    Matrix("token_embd", shape_.dim, vocab, 1.0f);
    Matrix("position_embd", shape_.dim, shape_.context, 0.5f, "F32");
    if (shape_.segments > 0) Matrix("token_types", shape_.dim, shape_.segments, 0.7f, "F32");
    Norm("token_embd_norm", shape_.dim);
    for (int64_t i = 0; i < shape_.layers; ++i) {
      const std::string prefix = "blk." + std::to_string(i) + ".";
      for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
        Linear(prefix + name, shape_.dim, shape_.dim);
      }
      Norm(prefix + "attn_output_norm", shape_.dim);
      Linear(prefix + "ffn_up", shape_.dim, shape_.ffn);
      Linear(prefix + "ffn_down", shape_.ffn, shape_.dim);
      Norm(prefix + "layer_output_norm", shape_.dim);
    }
    if (shape_.dense) {
      Linear("dense_2", shape_.dim, 96);
      Matrix("dense_3", 96, 40, 1.5f / std::sqrt(96.0f));
    }
    if (shape_.labels > 0) {
      Linear("cls", shape_.dim, shape_.dim);
      Norm("cls.norm", shape_.dim);
      Linear("cls.output", shape_.dim, shape_.labels);
    }
    WriteFile(path);
  }

 private:
  void AddMetadata() {
    const auto u32 = [this](const char* name, int64_t value) {
      writer_.AddU32(std::string("bert.") + name, static_cast<uint32_t>(value));
    };
    writer_.AddString("general.architecture", "bert");
    u32("context_length", shape_.context);
    u32("embedding_length", shape_.dim);
    u32("block_count", shape_.layers);
    u32("feed_forward_length", shape_.ffn);
    u32("attention.head_count", shape_.heads);
    u32("pooling_type", static_cast<int64_t>(shape_.pooling));
    writer_.AddF32("bert.attention.layer_norm_epsilon", 1e-6f);
    writer_.AddBool("bert.attention.causal", false);
    if (shape_.dense) writer_.AddString("bert.dense_2_activation", "tanh");
    if (shape_.dense) u32("dense_2_feat_out", 96);
    std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    std::vector<int32_t> types(tokens.size(), 3);
    for (int64_t i = 0; i < kTextWords; ++i) {
      tokens.push_back("\xE2\x96\x81w" + std::to_string(i));
      types.push_back(1);
    }
    writer_.AddString("tokenizer.ggml.model", "bert");
    writer_.AddStrings("tokenizer.ggml.tokens", tokens);
    writer_.AddI32s("tokenizer.ggml.token_type", types);
    const std::pair<const char*, uint32_t> ids[] = {{"padding", 0},   {"unknown", 1}, {"bos", 2},
                                                    {"seperator", 3}, {"eos", 3},     {"mask", 4}};
    for (const auto& [name, id] : ids) {
      writer_.AddU32(std::string("tokenizer.ggml.") + name + "_token_id", id);
    }
    if (!shape_.pairs.empty()) {
      writer_.AddString("tokenizer.chat_template.rerank", shape_.pairs);
    }
  }

  void Norm(const std::string& name, int64_t size) {
    std::vector<float> values = RandomValues(size, 0.1f, random_);
    for (float& value : values) value += 1.0f;
    Add(name + ".weight", "F32", {size}, values);
    Add(name + ".bias", "F32", {size}, RandomValues(size, 0.1f, random_));
  }

  void Linear(const std::string& name, int64_t cols, int64_t rows) {
    Matrix(name, cols, rows, 1.5f / std::sqrt(static_cast<float>(cols)));
    Add(name + ".bias", "F32", {rows}, RandomValues(rows, 0.2f, random_));
  }

  void Matrix(const std::string& name, int64_t cols, int64_t rows, float scale,
              const std::string& type = "") {
    Add(name + ".weight", type.empty() ? shape_.type : type, {cols, rows},
        RandomValues(cols * rows, scale, random_));
  }

  TextShape shape_;
  std::mt19937 random_;
};

inline std::shared_ptr<const Model> OpenText(const TextShape& shape,
                                             const ModelOptions& options = {}) {
  const std::string path = TempPath("text.gguf");
  TextModelWriter(shape).Write(path);
  auto model = Model::Open(path, options);
  std::filesystem::remove(path);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *model : nullptr;
}

// Writes a tiny decoder's file with other keys beside or instead of its own.
inline std::string WriteChanged(const TinyShape& shape,
                                const std::function<void(formats::GgufWriter&)>& change) {
  const std::string first = TempPath("first.gguf");
  const std::string second = TempPath("second.gguf");
  TinyModelWriter(shape).Write(first);
  {
    const auto file = formats::GgufFile::Open(first);
    EXPECT_TRUE(file.ok()) << file.error().message;
    formats::GgufWriter writer;
    for (const auto& [key, value] : file->metadata()) writer.AddValue(std::string(key), value);
    change(writer);
    for (const formats::GgufTensor& tensor : file->tensors()) {
      EXPECT_TRUE(writer.AddTensor(tensor).ok());
    }
    EXPECT_TRUE(writer.Begin(second).ok());
    for (const formats::GgufTensor& tensor : file->tensors()) {
      EXPECT_TRUE(writer.WriteTensor({tensor.data, tensor.size_bytes}).ok());
    }
    EXPECT_TRUE(writer.Finish().ok());
  }
  std::filesystem::remove(first);
  return second;
}

}  // namespace kvant::test
