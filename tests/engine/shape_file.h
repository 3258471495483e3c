// Files of models in the shapes of real ones, whose weights are holes of the file: they take no
// room on the disk, and read as zeros. For what follows from shapes alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "kvant/model.h"
#include "quant/format.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/temporary_folder.h"

namespace kvant::test {

struct ModelShape {
  int64_t dim;
  int64_t heads;
  int64_t kv_heads;
  int64_t ffn;
  int64_t layers;
  bool tied;
  std::string type = "Q4_0";
  std::string value_type = "Q4_0";  // of attn_v and ffn_down, as in mixes of types
  int64_t vocab = 128256;
  int64_t context = 131072;
};

// Llama 3.2 1B and Llama 3.1 8B.
inline ModelShape Shape1b() { return {2048, 32, 8, 8192, 16, true}; }
inline ModelShape Shape8b() { return {4096, 32, 8, 14336, 32, false}; }

class ShapeFile {
 public:
  explicit ShapeFile(const ModelShape& shape) : shape_(shape) {}

  void Write(const std::string& path) {
    AddMetadata();
    AddTensors();
    Bytes file = Header(tensor_count_, metadata_count_);
    file.Append(metadata_).Append(tensors_).PadTo(32);
    WriteFile(path, file.span());
    std::filesystem::resize_file(path, file.size() + data_bytes_);
  }

 private:
  Bytes& AddKey(std::string_view key, formats::GgufType type) {
    ++metadata_count_;
    return metadata_.Append(Key(key, type));
  }

  void AddMetadata() {
    using formats::GgufType;
    AddKey("general.architecture", GgufType::kString).String("llama");
    const auto number = [&](const std::string& key, int64_t value) {
      AddKey("llama." + key, GgufType::kUint32).U32(static_cast<uint32_t>(value));
    };
    number("context_length", shape_.context);
    number("embedding_length", shape_.dim);
    number("block_count", shape_.layers);
    number("feed_forward_length", shape_.ffn);
    number("attention.head_count", shape_.heads);
    number("attention.head_count_kv", shape_.kv_heads);
    AddKey("llama.attention.layer_norm_rms_epsilon", GgufType::kFloat32).Number(1e-5f);
    AddKey("tokenizer.ggml.model", GgufType::kString).String("llama");
    const auto count = static_cast<uint64_t>(shape_.vocab);
    const auto array = [&](std::string_view key, GgufType element) {
      ++metadata_count_;
      metadata_.Append(ArrayEntry(key, element, count));
    };
    array("tokenizer.ggml.tokens", GgufType::kString);
    for (uint64_t i = 0; i < count; ++i) metadata_.String(fmt::format("t{}", i));
    array("tokenizer.ggml.scores", GgufType::kFloat32);
    for (uint64_t i = 0; i < count; ++i) metadata_.Number(0.0f);
    array("tokenizer.ggml.token_type", GgufType::kInt32);
    for (uint64_t i = 0; i < count; ++i) metadata_.U32(1);
  }

  void AddTensors() {
    const int64_t dim = shape_.dim;
    const int64_t kv = dim / shape_.heads * shape_.kv_heads;
    Add("token_embd", shape_.type, {dim, shape_.vocab});
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      const std::string prefix = fmt::format("blk.{}.", layer);
      Add(prefix + "attn_norm", "F32", {dim});
      Add(prefix + "attn_q", shape_.type, {dim, dim});
      Add(prefix + "attn_k", shape_.type, {dim, kv});
      Add(prefix + "attn_v", shape_.value_type, {dim, kv});
      Add(prefix + "attn_output", shape_.type, {dim, dim});
      Add(prefix + "ffn_norm", "F32", {dim});
      Add(prefix + "ffn_gate", shape_.type, {dim, shape_.ffn});
      Add(prefix + "ffn_up", shape_.type, {dim, shape_.ffn});
      Add(prefix + "ffn_down", shape_.value_type, {shape_.ffn, dim});
    }
    Add("output_norm", "F32", {dim});
    if (!shape_.tied) Add("output", shape_.type, {dim, shape_.vocab});
  }

  void Add(const std::string& name, const std::string& type, const std::vector<int64_t>& dims) {
    const quant::FormatTraits* format = quant::FindFormat(type);
    ASSERT_NE(format, nullptr) << type;
    int64_t rows = 1;
    for (size_t i = 1; i < dims.size(); ++i) rows *= dims[i];
    tensors_.String(name + ".weight").U32(static_cast<uint32_t>(dims.size()));
    for (const int64_t size : dims) tensors_.U64(static_cast<uint64_t>(size));
    tensors_.Number(format->type).U64(data_bytes_);
    const auto bytes = static_cast<size_t>(rows * format->row_bytes(dims[0]));
    data_bytes_ += (bytes + 31) / 32 * 32;
    ++tensor_count_;
  }

  ModelShape shape_;
  Bytes metadata_;
  Bytes tensors_;
  uint64_t metadata_count_ = 0;
  uint64_t tensor_count_ = 0;
  size_t data_bytes_ = 0;
};

// Writes, opens and deletes the file of a shape.
inline std::shared_ptr<const Model> OpenShape(const ModelShape& shape) {
  const TemporaryFolder folder;
  ShapeFile(shape).Write(folder / "shape.gguf");
  auto model = Model::Open(folder / "shape.gguf", {});
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *model : nullptr;
}

}  // namespace kvant::test
