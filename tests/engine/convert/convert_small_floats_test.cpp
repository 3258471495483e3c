// Folders whose weights are FP8 and FP4 with scales: the file has the numbers that torch's own
// small types give (tests/reference/make_small_float_cases.py), in every order of rows that
// families have, and one clear error names what cannot be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "base/result.h"
#include "engine/convert/convert.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "kvant/model.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/convert/hf_folder.h"
#include "tests/shared_data.h"

namespace kvant::test {
namespace {

using formats::GgufFile;
using formats::GgufTensor;
using formats::SafetensorsModel;
using formats::SafetensorsTensor;
using nlohmann::json;
using testing::HasSubstr;

// Folders of FP8 and plain folders as tests change them, tensor by tensor.
struct RawTensor {
  std::string type;
  std::vector<int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

std::string BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

void WriteFolder(const HfFolder& folder, const RawTensors& tensors) {
  folder.Write();
  SafetensorsBuilder builder;
  for (const auto& [name, tensor] : tensors) {
    builder.Add(name, tensor.type, tensor.shape, tensor.bytes);
  }
  builder.Write(folder / "model.safetensors");
}

Result<std::string> ConvertTo(const HfFolder& folder, const std::string& type) {
  const std::string output = folder / "out.gguf";
  KVANT_TRY(convert::ConvertFolder(folder.Path(), output, {.type = type, .threads = 2}));
  return output;
}

RawTensors PlainTensors(const HfFolder& folder) {
  RawTensors tensors;
  for (const auto& [name, weights] : folder.weights) {
    tensors[name] = {"F32", weights.shape, BytesOf(weights.values)};
  }
  return tensors;
}

// A case of the reference: a small model, one matrix of which is quantized.
class SmallFloatCase {
 public:
  explicit SmallFloatCase(const json& row)
      : name_(row["name"]),
        model_(
            SafetensorsModel::OpenFile(SourcePath("tests/reference/small_floats/cases.safetensors"))
                .value()) {
    const int64_t ffn = row["ffn"];
    folder.config["intermediate_size"] = ffn;
    for (int layer = 0; layer < 2; ++layer) {
      const std::string mlp = "model.layers." + std::to_string(layer) + ".mlp.";
      folder.Add(mlp + "gate_proj.weight", {ffn, HfFolder::kDim});
      folder.Add(mlp + "up_proj.weight", {ffn, HfFolder::kDim});
      folder.Add(mlp + "down_proj.weight", {HfFolder::kDim, ffn});
    }
    matrix_ = row["matrix"];
    if (!row["config"].is_null()) folder.config["quantization_config"] = row["config"];
    if (!row["file"].is_null()) folder.WriteJson("hf_quant_config.json", row["file"]);
    tensors = PlainTensors(folder);
    tensors.erase("model.layers.0.mlp." + matrix_ + ".weight");
    for (const SafetensorsTensor& tensor : model_.tensors()) {
      if (!tensor.name.starts_with(name_ + "/model.")) continue;
      tensors[tensor.name.substr(name_.size() + 1)] = {
          std::string(tensor.type->name), tensor.shape,
          std::string(reinterpret_cast<const char*>(tensor.data), tensor.size_bytes)};
    }
  }

  std::vector<float> Expected() const {
    const SafetensorsTensor* tensor = model_.Find(name_ + "/expected");
    std::vector<float> values(static_cast<size_t>(tensor->n_values()));
    std::memcpy(values.data(), tensor->data, tensor->size_bytes);
    return values;
  }

  // The name of the matrix in the file, up to its last point.
  std::string GgufName() const {
    return matrix_ == "down_proj" ? "blk.0.ffn_down" : "blk.0.ffn_up";
  }

  Result<std::string> Convert(const std::string& type) const {
    WriteFolder(folder, tensors);
    return ConvertTo(folder, type);
  }

  std::string Message() const {
    const auto path = Convert("f32");
    return path.ok() ? "accepted" : path.error().message;
  }

  HfFolder folder;
  RawTensors tensors;

 private:
  std::string name_;
  std::string matrix_;
  SafetensorsModel model_;
};

json Cases() {
  return json::parse(std::ifstream(SourcePath("tests/reference/small_floats/cases.json")));
}

SmallFloatCase CaseOf(const std::string& name) {
  for (const json& row : Cases()) {
    if (row["name"] == name) return SmallFloatCase(row);
  }
  ADD_FAILURE() << name;
  return SmallFloatCase(Cases().front());
}

std::vector<float> Decoded(const GgufTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.n_values()));
  tensor.format->decode(tensor.data, values.data(), tensor.n_values());
  return values;
}

TEST(ConvertSmallFloats, NumbersAreThoseOfTorch) {
  const std::map<std::string, std::string> kept = {
      {"packed_nvfp4", "NVFP4"}, {"modelopt_nvfp4", "NVFP4"}, {"packed_mxfp4", "MXFP4"}};
  for (const json& row : Cases()) {
    const std::string name = row["name"];
    const SmallFloatCase one(row);
    const auto path = one.Convert("f32");
    ASSERT_TRUE(path.ok()) << name << ": " << path.error().message;
    const GgufFile file = GgufFile::Open(*path).value();
    const GgufTensor* tensor = file.FindTensor(one.GgufName() + ".weight");
    ASSERT_NE(tensor, nullptr) << name;
    const auto format = kept.find(name);
    EXPECT_EQ(tensor->format->name, format == kept.end() ? "F32" : format->second) << name;
    const GgufTensor* second = file.FindTensor(one.GgufName() + ".scale");
    EXPECT_EQ(second != nullptr, tensor->format->name == std::string("NVFP4")) << name;
    const float factor = second == nullptr ? 1.0f : Decoded(*second).front();
    const std::vector<float> found = Decoded(*tensor);
    const std::vector<float> expected = one.Expected();
    ASSERT_EQ(found.size(), expected.size()) << name;
    for (size_t i = 0; i < found.size(); ++i) {
      // 1 / divisor and the product are rounded once each, and so are quotient and product there.
      const float tolerance = name == "packed_nvfp4" ? 3e-7f * std::abs(expected[i]) : 0.0f;
      ASSERT_NEAR(found[i] * factor, expected[i], tolerance) << name << " " << i;
      // Blocks of FP4 have one zero.
      if (format != kept.end()) continue;
      ASSERT_EQ(std::signbit(found[i]), std::signbit(expected[i])) << name << " " << i;
    }
    EXPECT_TRUE(Model::Open(*path).ok()) << name;
  }
}

TEST(ConvertSmallFloats, TheNaturalTypeIsThatOfAPlainMatrix) {
  SmallFloatCase one = CaseOf("fp8_down");
  for (auto& [name, tensor] : one.tensors) {
    if (tensor.type != "F32" || name.ends_with("_scale_inv")) continue;
    tensor.type = "BF16";
    tensor.bytes.resize(tensor.bytes.size() / 2);
  }
  WriteFolder(one.folder, one.tensors);
  const auto summary = convert::ConvertFolder(one.folder.Path(), one.folder / "out.gguf", {});
  ASSERT_TRUE(summary.ok()) << summary.error().message;
  EXPECT_EQ(summary->type, "bf16");
}

// The matrices of a folder as codes of E4M3 in blocks of 12 x 16, and as the floats that these are.
struct TwoForms {
  RawTensors codes;
  RawTensors floats;
};

TwoForms QuantizedForms(const json& rows, std::mt19937& random) {
  constexpr int64_t kBlockRows = 12;
  constexpr int64_t kBlockColumns = 16;
  TwoForms out;
  for (const json& row : rows) {
    const std::string name = row["name"];
    const HfWeights weights = SeededWeights(row);
    out.floats[name] = {"F32", weights.shape, BytesOf(weights.values)};
    const size_t rank = weights.shape.size();
    // Convolutions are the matrices [rows, 1, taps].
    const bool is_matrix = rank >= 2 && weights.shape[rank - 2] > 1 && weights.shape.back() > 4;
    if (!is_matrix) {
      out.codes[name] = out.floats[name];
      continue;
    }
    const int64_t n = weights.shape[rank - 2];
    const int64_t m = weights.shape.back();
    std::vector<int64_t> scale_shape = weights.shape;
    scale_shape[rank - 2] = (n + kBlockRows - 1) / kBlockRows;
    scale_shape[rank - 1] = (m + kBlockColumns - 1) / kBlockColumns;
    const int64_t of_matrix = scale_shape[rank - 2] * scale_shape[rank - 1];
    const auto count = static_cast<int64_t>(weights.values.size());
    std::vector<float> scales;
    for (int64_t i = 0; i < count / (n * m) * of_matrix; ++i) {
      scales.push_back(static_cast<float>(1 + random() % 1000) / 4096.0f);
    }
    std::string codes;
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i) {
      // The codes 0x30 to 0x3f of E4M3 are 0.5 to 1.875.
      const int code = static_cast<int>(random() % 16);
      codes += static_cast<char>(0x30 + code);
      const float value = (code < 8 ? 0.5f : 1.0f) * (1.0f + static_cast<float>(code % 8) / 8.0f);
      const int64_t scale = i / (n * m) * of_matrix +
                            i / m % n / kBlockRows * scale_shape[rank - 1] + i % m / kBlockColumns;
      values.push_back(value * scales[static_cast<size_t>(scale)]);
    }
    out.codes[name] = {"F8_E4M3", weights.shape, codes};
    out.codes[name + "_scale_inv"] = {"F32", scale_shape, BytesOf(scales)};
    out.floats[name].bytes = BytesOf(values);
  }
  return out;
}

// Fused rows, halves, pairs, transposed stacks of experts, keys of latents and tiled columns.
TEST(ConvertSmallFloats, EveryOrderOfRowsIsThatOfFloats) {
  for (const char* name : {"llama-yarn", "phi3-long", "deepseek2-v3", "deepseek2-lite",
                           "qwen3next-four", "qwen35moe", "gpt-oss", "llama4", "internlm2",
                           "falcon-two-norms", "gpt2", "mixtral", "bloom", "rwkv7"}) {
    const json seeded = json::parse(
        std::ifstream(SourcePath("tests/reference/seeded/" + std::string(name) + ".json")));
    std::mt19937 random(5);
    const TwoForms forms = QuantizedForms(seeded["tensors"], random);
    HfFolder folder;
    folder.config = seeded["config"];
    WriteFolder(folder, forms.floats);
    const auto floats = ConvertTo(folder, "f32");
    ASSERT_TRUE(floats.ok()) << name << ": " << floats.error().message;
    const std::string kept = folder / "floats.gguf";
    std::filesystem::rename(*floats, kept);
    folder.config["quantization_config"] = {{"quant_method", "fp8"},
                                            {"weight_block_size", {12, 16}}};
    WriteFolder(folder, forms.codes);
    const auto codes = ConvertTo(folder, "f32");
    ASSERT_TRUE(codes.ok()) << name << ": " << codes.error().message;
    const GgufFile expected = GgufFile::Open(kept).value();
    const GgufFile found = GgufFile::Open(*codes).value();
    ASSERT_EQ(found.tensors().size(), expected.tensors().size()) << name;
    for (const GgufTensor& tensor : expected.tensors()) {
      const GgufTensor* other = found.FindTensor(tensor.name);
      ASSERT_NE(other, nullptr) << name << " " << tensor.name;
      ASSERT_EQ(other->size_bytes, tensor.size_bytes) << name << " " << tensor.name;
      EXPECT_EQ(std::memcmp(other->data, tensor.data, tensor.size_bytes), 0)
          << name << " " << tensor.name;
    }
  }
}

// Each expert has a second scale of its own.
TEST(ConvertSmallFloats, ExpertsOfNvFp4KeepTheirSecondScales) {
  const json seeded = json::parse(std::ifstream(SourcePath("tests/reference/seeded/mixtral.json")));
  HfFolder folder;
  folder.config = seeded["config"];
  folder.config["intermediate_size"] = 64;
  folder.config["quantization_config"] = {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}};
  const int64_t dim = folder.config["hidden_size"];
  RawTensors tensors;
  std::mt19937 random(6);
  std::vector<float> seconds;
  for (const json& row : seeded["tensors"]) {
    const std::string name = row["name"];
    HfWeights weights = SeededWeights(row);
    if (name.find(".experts.") == std::string::npos) {
      tensors[name] = {"F32", weights.shape, BytesOf(weights.values)};
      continue;
    }
    const bool down = name.ends_with("w2.weight");
    const int64_t rows = down ? dim : 64;
    const int64_t columns = down ? 64 : dim;
    std::string codes;
    std::string scales;
    for (int64_t i = 0; i < rows * columns / 2; ++i) codes += static_cast<char>(random() % 256);
    for (int64_t i = 0; i < rows * columns / 16; ++i) scales += static_cast<char>(random() % 127);
    const auto second = static_cast<float>(1 + random() % 100) / 1e4f;
    if (name.starts_with("model.layers.1.") && down) seconds.push_back(second);
    tensors[name] = {"U8", {rows, columns / 2}, codes};
    tensors[name + "_scale"] = {"F8_E4M3", {rows, columns / 16}, scales};
    tensors[name + "_scale_2"] = {"F32", {}, BytesOf({second})};
  }
  WriteFolder(folder, tensors);
  const auto path = ConvertTo(folder, "f32");
  ASSERT_TRUE(path.ok()) << path.error().message;
  const GgufFile file = GgufFile::Open(*path).value();
  const GgufTensor* down = file.FindTensor("blk.1.ffn_down_exps.weight");
  const GgufTensor* scales = file.FindTensor("blk.1.ffn_down_exps.scale");
  ASSERT_TRUE(down != nullptr && scales != nullptr);
  EXPECT_EQ(down->format->name, std::string("NVFP4"));
  EXPECT_EQ(Decoded(*scales), seconds);
  EXPECT_EQ(file.FindTensor("blk.1.ffn_up_exps.weight")->format->name, std::string("F32"));
  EXPECT_EQ(file.FindTensor("blk.1.ffn_up_exps.scale"), nullptr);
  EXPECT_TRUE(Model::Open(*path).ok());
}

// A block of GGUF has no sign in its scales, so such matrices are multiplied out.
TEST(ConvertSmallFloats, SignedScalesOfNvFp4AreMultipliedOut) {
  SmallFloatCase one = CaseOf("modelopt_nvfp4");
  std::string& scales = one.tensors["model.layers.0.mlp.down_proj.weight_scale"].bytes;
  scales[0] = static_cast<char>(scales[0] | 0x80);
  const auto path = one.Convert("f32");
  ASSERT_TRUE(path.ok()) << path.error().message;
  const GgufFile file = GgufFile::Open(*path).value();
  const GgufTensor* tensor = file.FindTensor("blk.0.ffn_down.weight");
  EXPECT_EQ(tensor->format->name, std::string("F32"));
  EXPECT_EQ(file.FindTensor("blk.0.ffn_down.scale"), nullptr);
  const std::vector<float> found = Decoded(*tensor);
  const std::vector<float> expected = one.Expected();
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i], i < 16 ? -expected[i] : expected[i]) << i;
  }
}

TEST(ConvertSmallFloats, BytesOfEightBitsWithoutScalesAreTheirNumbers) {
  HfFolder folder;
  RawTensors tensors = PlainTensors(folder);
  RawTensor& norm = tensors["model.norm.weight"];
  norm.type = "F8_E4M3";
  norm.bytes.assign(HfFolder::kDim, '\x3c');  // 1.5
  RawTensor& up = tensors["model.layers.0.mlp.up_proj.weight"];
  up.type = "F8_E5M2";
  up.bytes.assign(up.bytes.size() / 4, '\xbd');  // -1.25
  WriteFolder(folder, tensors);
  const auto path = ConvertTo(folder, "f32");
  ASSERT_TRUE(path.ok()) << path.error().message;
  const GgufFile file = GgufFile::Open(*path).value();
  EXPECT_THAT(Decoded(*file.FindTensor("output_norm.weight")), testing::Each(1.5f));
  EXPECT_THAT(Decoded(*file.FindTensor("blk.0.ffn_up.weight")), testing::Each(-1.25f));
}

TEST(ConvertSmallFloats, WhatDoesNotFitIsNamed) {
  const std::string matrix = "model.layers.0.mlp.down_proj.weight";
  const auto message = [&](const std::string& name,
                           const std::function<void(SmallFloatCase&)>& change) {
    SmallFloatCase one = CaseOf(name);
    change(one);
    return one.Message();
  };
  EXPECT_THAT(message("fp8_down", [&](auto& one) { one.tensors.erase(matrix + "_scale_inv"); }),
              HasSubstr("\"" + matrix +
                        "\" holds F8_E4M3 values, but their scales are missing: "
                        "expected a tensor " +
                        matrix + "_scale_inv or "));
  EXPECT_THAT(message("fp8_down",
                      [&](auto& one) {
                        one.tensors[matrix + "_scale_inv"].shape = {2, 1};
                      }),
              HasSubstr("has 2 scales in a shape that fits no part of a matrix of 32 x 136 (known: "
                        "one for all, one for each row, 1 x 2 for blocks of 128 x 128)"));
  EXPECT_THAT(message("fp8_down",
                      [&](auto& one) {
                        RawTensor& scales = one.tensors[matrix + "_scale_inv"];
                        scales.type = "I32";
                      }),
              HasSubstr("holds I32 values, expected scales of type F32, F16, BF16, F8_E8M0, U8"));
  EXPECT_THAT(
      message("fp8_down", [&](auto& one) { one.folder.config.erase("quantization_config"); }),
      HasSubstr("_scale_inv\" has no place"));
  EXPECT_THAT(
      message("packed_nvfp4", [&](auto& one) { one.tensors[matrix + "_packed"].type = "I8"; }),
      HasSubstr("holds I8 values, expected U8"));
  EXPECT_THAT(message("packed_nvfp4",
                      [&](auto& one) {
                        RawTensor& second = one.tensors[matrix + "_global_scale"];
                        second = {"F32", {2}, BytesOf({1, 2})};
                      }),
              HasSubstr("has 2 values, expected 1"));
  EXPECT_THAT(message("packed_nvfp4",
                      [&](auto& one) {
                        one.tensors[matrix + "_packed"].shape = {64, 16};
                      }),
              HasSubstr("has shape [64, 16], but the sizes in config.json make [32, 32]"));
  EXPECT_THAT(message("modelopt_nvfp4",
                      [&](auto& one) {
                        one.tensors["model.layers.0.mlp.down_proj.pre_quant_scale"] = {
                            "F32", {64}, std::string(256, '\0')};
                      }),
              HasSubstr("pre_quant_scale\" has no place"));
}

TEST(ConvertSmallFloats, OtherQuantizationsAreRefusedByName) {
  const auto with = [](json config) {
    HfFolder folder;
    folder.config["quantization_config"] = std::move(config);
    folder.Write();
    const auto path = ConvertTo(folder, "f32");
    return path.ok() ? "accepted" : path.error().message;
  };
  for (const char* method : {"gptq", "awq", "bitsandbytes", "quark", "nvfp4", "mxfp4"}) {
    EXPECT_THAT(with({{"quant_method", method}}),
                HasSubstr("config.json: quantization_config: the weights are quantized already (" +
                          std::string(method) + "), which cannot be read (known: fp8, "));
  }
  EXPECT_THAT(with({{"bits", 4}}), HasSubstr("(without quant_method)"));
  EXPECT_THAT(with({{"quant_method", "compressed-tensors"}, {"format", "pack-quantized"}}),
              HasSubstr("(compressed-tensors, format \"pack-quantized\")"));
  EXPECT_THAT(with({{"quant_method", "compressed-tensors"},
                    {"format", "float-quantized"},
                    {"transform_config", {{"config_groups", {{"u", {{"type", "hadamard"}}}}}}}}),
              HasSubstr("(compressed-tensors with transform_config)"));
  EXPECT_THAT(with({{"quant_method", "compressed-tensors"},
                    {"format", "float-quantized"},
                    {"sparsity_config", {{"format", "sparse-24-bitmask"}}}}),
              HasSubstr("format \"sparse-24-bitmask\""));
  EXPECT_THAT(with({{"quant_method", "modelopt"}, {"quant_algo", "W4A8_AWQ"}}),
              HasSubstr("(modelopt, quant_algo \"W4A8_AWQ\")"));
  EXPECT_THAT(with({{"quant_method", "modelopt"}}), HasSubstr("(modelopt without quant_algo)"));
  EXPECT_THAT(with({{"quant_method", "fp8"}, {"weight_block_size", {128}}}),
              HasSubstr("weight_block_size is [128], expected the rows and columns of a block"));
  for (const auto& [file, method] :
       {std::pair("quantize_config.json", "gptq"), {"quant_config.json", "awq"}}) {
    HfFolder folder;
    folder.Write();
    folder.WriteJson(file, {{"bits", 4}});
    const auto path = ConvertTo(folder, "f32");
    ASSERT_FALSE(path.ok());
    EXPECT_THAT(path.error().message,
                HasSubstr(std::string(file) + ": the weights are quantized already (" + method));
  }
}

}  // namespace
}  // namespace kvant::test
