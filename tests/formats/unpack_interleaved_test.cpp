// Files with interleaved rows: unpacked for whoever computes with them, left alone for whoever
// lists or copies them, and refused where their shape cannot be interleaved.
#include "formats/unpack_interleaved.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <optional>

#include "base/log.h"
#include "formats/gguf_writer.h"
#include "kvant/model.h"
#include "quant/interleaved/interleaved.h"
#include "tests/quant/fixtures.h"
#include "tests/temporary_folder.h"

namespace kvant::formats {
namespace {

using testing::HasSubstr;

// A file with one tensor of a type that the writer cannot make, and one in F32 behind it.
void WriteFile(const std::string& path, uint32_t type, std::vector<int64_t> dims,
               std::span<const std::byte> bytes) {
  GgufWriter writer;
  writer.AddString("general.architecture", "llama");
  GgufTensor tensor;
  tensor.name = "blk.0.attn_q.weight";
  tensor.type = quant::TensorType{type};
  tensor.n_dims = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.dims);
  tensor.size_bytes = bytes.size();
  ASSERT_TRUE(writer.AddTensor(tensor).ok());
  const float value = 1.5f;
  ASSERT_TRUE(
      writer.AddTensor("one.weight", *quant::FindFormat("F32"), std::vector<int64_t>{1}).ok());
  ASSERT_TRUE(writer.Begin(path).ok());
  ASSERT_TRUE(writer.WriteTensor(bytes).ok());
  ASSERT_TRUE(writer.WriteTensor(std::as_bytes(std::span(&value, 1))).ok());
  ASSERT_TRUE(writer.Finish().ok());
}

TEST(UnpackInterleaved, GivesPlainRows) {
  const test::TemporaryFolder folder;
  const auto fixture = test::ReadQuantFixture("interleaved.json")["IQ4_KS_R4"];
  const std::vector<std::byte> bytes = test::ParseBytes(fixture["bytes"]);
  const std::vector<std::byte> plain = test::ParseBytes(fixture["plain"]);
  // Two matrices of experts.
  std::vector<std::byte> twice = bytes;
  twice.insert(twice.end(), bytes.begin(), bytes.end());
  WriteFile(folder / "m.gguf", fixture["id"], {512, 4, 2}, twice);
  const auto file = GgufFile::Open(folder / "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->unpacked().tensors, 1u);
  EXPECT_EQ(file->unpacked().bytes, 2 * plain.size());
  EXPECT_EQ(file->unpacked().types, "IQ4_KS_R4");
  const GgufTensor& tensor = *file->FindTensor("blk.0.attn_q.weight");
  EXPECT_EQ(TensorTypeName(tensor), "IQ4_KS");
  ASSERT_EQ(tensor.size_bytes, 2 * plain.size());
  EXPECT_EQ(std::memcmp(tensor.data, plain.data(), plain.size()), 0);
  EXPECT_EQ(std::memcmp(tensor.data + plain.size(), plain.data(), plain.size()), 0);
  float value = 0;
  std::memcpy(&value, file->FindTensor("one.weight")->data, sizeof(value));
  EXPECT_EQ(value, 1.5f);
}

TEST(GgufShare, ReplacesTensorsOfOneOnly) {
  const test::TemporaryFolder folder;
  const auto fixture = test::ReadQuantFixture("interleaved.json")["IQ4_KS_R4"];
  const std::vector<std::byte> plain = test::ParseBytes(fixture["plain"]);
  WriteFile(folder / "m.gguf", fixture["id"], {512, 4}, test::ParseBytes(fixture["bytes"]));
  std::optional<GgufFile> shared;
  {
    auto file = GgufFile::Open(folder / "m.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    shared = file->Share();
    EXPECT_EQ(shared->tensors()[0].data, file->tensors()[0].data);
    EXPECT_EQ(shared->mappings().data(), file->mappings().data());
    auto bytes = AlignedBuffer::Allocate(4, "a test");
    ASSERT_TRUE(bytes.ok());
    const float two = 2;
    std::memcpy(bytes->data(), &two, sizeof(two));
    file->ReplaceTensor("one.weight", *quant::FindFormat("F32"), std::move(*bytes));
    float value = 0;
    std::memcpy(&value, file->FindTensor("one.weight")->data, sizeof(value));
    EXPECT_EQ(value, 2);
  }
  // The other one keeps its own, and outlives the first.
  float value = 0;
  std::memcpy(&value, shared->FindTensor("one.weight")->data, sizeof(value));
  EXPECT_EQ(value, 1.5f);
  const GgufTensor& tensor = *shared->FindTensor("blk.0.attn_q.weight");
  EXPECT_EQ(std::memcmp(tensor.data, plain.data(), plain.size()), 0);
  EXPECT_EQ(*shared->GetString("general.architecture"), "llama");
}

// Whoever runs a model is told; it is told once, and before what else may be wrong with the file.
TEST(UnpackInterleaved, IsToldWhenAModelIsOpened) {
  const test::TemporaryFolder folder;
  const auto fixture = test::ReadQuantFixture("interleaved.json")["IQ4_KS_R4"];
  WriteFile(folder / "m.gguf", fixture["id"], {512, 4}, test::ParseBytes(fixture["bytes"]));
  std::vector<std::string> said;
  SetLogSink([&](LogLevel, std::string_view line) { said.emplace_back(line); });
  EXPECT_FALSE(Model::Open(folder / "m.gguf").ok());
  SetLogSink({});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("1 tensor with interleaved rows (IQ4_KS_R4) was unpacked into 2 "
                                 "KiB of memory; `kvant quantize IN OUT COPY` makes a file"));
}

TEST(UnpackInterleaved, LeavesTensorsThatAreListedAlone) {
  const test::TemporaryFolder folder;
  const auto fixture = test::ReadQuantFixture("interleaved.json")["Q8_0_R8"];
  const std::vector<std::byte> bytes = test::ParseBytes(fixture["bytes"]);
  WriteFile(folder / "m.gguf", fixture["id"], {512, 8}, bytes);
  const auto file = GgufFile::Open(folder / "m.gguf", FileAccess::kMap, UnreadableTensors::kListed);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const GgufTensor& tensor = file->tensors()[0];
  EXPECT_EQ(tensor.format, nullptr);
  EXPECT_EQ(TensorTypeName(tensor), "Q8_0_R8");
  ASSERT_EQ(tensor.size_bytes, bytes.size());
  EXPECT_EQ(std::memcmp(tensor.data, bytes.data(), bytes.size()), 0);
}

TEST(UnpackInterleaved, RefusesShapesThatCannotBeInterleaved) {
  const test::TemporaryFolder folder;
  const auto message = [&](uint32_t type, std::vector<int64_t> dims, size_t bytes) {
    WriteFile(folder / "m.gguf", type, dims, std::vector<std::byte>(bytes));
    const auto file = GgufFile::Open(folder / "m.gguf");
    return file.ok() ? std::string("was opened") : file.error().message;
  };
  EXPECT_THAT(message(212, {256, 6}, 6 * 144),
              HasSubstr("tensor \"blk.0.attn_q.weight\" of type Q4_K_R4 has 6 rows, expected a "
                        "multiple of 4"));
  EXPECT_THAT(message(212, {288, 4}, 4 * 162), HasSubstr("288"));
  // Rows of IQ1_S_R4 may have any multiple of 32 values there, those of IQ1_S may not.
  EXPECT_THAT(message(219, {288, 4}, 4 * 56), HasSubstr("288"));
  EXPECT_THAT(message(229, {256, 4}, 4 * 60), HasSubstr("IQ1_M_R4"));
  EXPECT_THAT(message(212, {256, 400}, 4 * 144), HasSubstr("beyond"));
}

}  // namespace
}  // namespace kvant::formats
