// The GGUF writer: what it writes is read back equal, byte by byte where the Python `gguf` package
// wrote the same content, and what it must refuse leaves no file behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/result.h"
#include "formats/gguf_writer.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::formats {
namespace {

using testing::HasSubstr;

const quant::FormatTraits& Format(std::string_view name) { return *quant::FindFormat(name); }

std::span<const int64_t> Dims(const GgufTensor& tensor) {
  return {tensor.dims, static_cast<size_t>(tensor.n_dims)};
}

enum class Order : uint8_t { kWhole, kPieces, kRests };

// In two pieces, the second one first.
Status WritePieces(const GgufWriter& writer, size_t index, std::span<const std::byte> bytes) {
  const size_t half = bytes.size() / 2;
  KVANT_TRY(writer.WritePiece(index, half, bytes.subspan(half)));
  return half == 0 ? Status() : writer.WritePiece(index, 0, bytes.first(half));
}

// In two pieces, one after the other.
Status WriteRests(GgufWriter& writer, std::span<const std::byte> bytes) {
  const size_t third = bytes.size() / 3;
  if (third > 0) KVANT_TRY(writer.WriteRest(bytes.first(third)));
  return writer.WriteRest(bytes.subspan(third));
}

// Copies all metadata and tensors.
Status Copy(const GgufFile& file, const std::string& path, uint32_t alignment,
            Order order = Order::kWhole) {
  GgufWriter writer(alignment);
  for (const auto& [key, value] : file.metadata()) writer.AddValue(std::string(key), value);
  for (const GgufTensor& tensor : file.tensors()) {
    KVANT_TRY(writer.AddTensor(std::string(tensor.name), *tensor.format, Dims(tensor)));
  }
  KVANT_TRY(writer.Begin(path));
  if (order == Order::kPieces) KVANT_TRY(writer.Reserve());
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const std::span bytes(file.tensors()[i].data, file.tensors()[i].size_bytes);
    KVANT_TRY(order == Order::kPieces  ? WritePieces(writer, i, bytes)
              : order == Order::kRests ? WriteRests(writer, bytes)
                                       : writer.WriteTensor(bytes));
  }
  return writer.Finish();
}

TEST(GgufWriter, WritesTheBytesThatPythonWrites) {
  test::TemporaryFolder folder;
  const std::string source = test::SourcePath("tests/reference/gguf/every-type.gguf");
  auto file = GgufFile::Open(source);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Status status = Copy(*file, folder / "copy.gguf", 32);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(test::ReadFile(folder / "copy.gguf"), test::ReadFile(source));
}

TEST(GgufWriter, WritesTheSameBytesInPieces) {
  test::TemporaryFolder folder;
  const std::string source = test::SourcePath("tests/reference/gguf/every-type.gguf");
  auto file = GgufFile::Open(source);
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (const uint32_t alignment : {32u, 65536u}) {
    ASSERT_TRUE(Copy(*file, folder / "whole.gguf", alignment).ok());
    ASSERT_TRUE(Copy(*file, folder / "pieces.gguf", alignment, Order::kPieces).ok());
    EXPECT_EQ(test::ReadFile(folder / "pieces.gguf"), test::ReadFile(folder / "whole.gguf"));
    ASSERT_TRUE(Copy(*file, folder / "rests.gguf", alignment, Order::kRests).ok());
    EXPECT_EQ(test::ReadFile(folder / "rests.gguf"), test::ReadFile(folder / "whole.gguf"));
  }
}

TEST(GgufWriter, WritesAnyAlignment) {
  test::TemporaryFolder folder;
  auto file = GgufFile::Open(test::SourcePath("tests/reference/gguf/alignment-64.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (uint32_t alignment = 8; alignment <= 65536; alignment *= 2) {
    const std::string path = folder / fmt::format("{}.gguf", alignment);
    const Status status = Copy(*file, path, alignment);
    ASSERT_TRUE(status.ok()) << status.error().message;
    auto copy = GgufFile::Open(path);
    ASSERT_TRUE(copy.ok()) << copy.error().message;
    EXPECT_EQ(copy->alignment(), alignment);
    EXPECT_EQ(copy->Find("general.alignment") != nullptr, alignment != 32);
    EXPECT_EQ(copy->file_bytes() % alignment, 0u);
    ASSERT_EQ(copy->tensors().size(), file->tensors().size());
    for (size_t i = 0; i < file->tensors().size(); ++i) {
      const GgufTensor& expected = file->tensors()[i];
      const GgufTensor& found = copy->tensors()[i];
      EXPECT_EQ(found.name, expected.name);
      EXPECT_EQ(found.format, expected.format);
      EXPECT_EQ(std::vector(found.dims, found.dims + 4),
                std::vector(expected.dims, expected.dims + 4));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(found.data) % std::min(alignment, 4096u), 0u);
      ASSERT_EQ(found.size_bytes, expected.size_bytes);
      EXPECT_EQ(std::memcmp(found.data, expected.data, found.size_bytes), 0);
    }
  }
}

TEST(GgufWriter, WritesEveryKindOfMetadata) {
  test::TemporaryFolder folder;
  const std::string path = folder / "metadata.gguf";
  GgufWriter writer;
  writer.AddU32("u32", 0xffffffffu);
  writer.AddI32("i32", -5);
  writer.AddU64("u64", ~0ull);
  writer.AddF32("f32", 0.1f);
  writer.AddBool("true", true);
  writer.AddBool("false", false);
  writer.AddString("string", std::string_view("a\0b", 3));
  writer.AddStrings("strings", {"", "two", "\xff"});
  writer.AddF32s("f32s", {1.5f, -2.5f});
  writer.AddI32s("i32s", {-1, 2});
  writer.AddU8s("u8s", {0, 255});
  writer.AddI32s("empty", {});
  writer.AddStrings("no strings", {});
  ASSERT_TRUE(writer.Begin(path).ok());
  ASSERT_TRUE(writer.Finish().ok());

  auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(*file->GetU32("u32"), 0xffffffffu);
  EXPECT_EQ(std::get<int64_t>(file->Find("i32")->value), -5);
  EXPECT_EQ(file->Find("i32")->type, GgufType::kInt32);
  EXPECT_EQ(std::get<uint64_t>(file->Find("u64")->value), ~0ull);
  EXPECT_EQ(*file->GetF32("f32"), 0.1f);
  EXPECT_EQ(*file->GetBool("true"), true);
  EXPECT_EQ(*file->GetBool("false"), false);
  EXPECT_EQ(*file->GetString("string"), std::string_view("a\0b", 3));
  EXPECT_THAT((*file->GetArray("strings", GgufType::kString))->strings,
              testing::ElementsAre("", "two", "\xff"));
  const float floats[] = {1.5f, -2.5f};
  EXPECT_EQ(std::memcmp((*file->GetArray("f32s", GgufType::kFloat32))->data, floats, 8), 0);
  const int32_t integers[] = {-1, 2};
  EXPECT_EQ(std::memcmp((*file->GetArray("i32s", GgufType::kInt32))->data, integers, 8), 0);
  EXPECT_EQ((*file->GetArray("u8s", GgufType::kUint8))->data[1], std::byte{255});
  EXPECT_EQ((*file->GetArray("empty", GgufType::kInt32))->count, 0u);
  EXPECT_EQ((*file->GetArray("no strings", GgufType::kString))->count, 0u);
  EXPECT_EQ(file->metadata()[2].first, "u64") << "file order is the order of adding";
}

TEST(GgufWriter, ReplacesAndRemovesKeys) {
  test::TemporaryFolder folder;
  GgufWriter writer(64);
  writer.AddU32("a", 1);
  writer.AddU32("b", 2);
  writer.AddU32("c", 3);
  writer.AddString("a", "new");
  writer.Remove("b");
  writer.Remove("absent");
  writer.AddU32("b", 4);
  writer.AddU32("general.alignment", 16);
  writer.Remove("general.alignment");
  ASSERT_TRUE(writer.Begin(folder / "a.gguf").ok());
  ASSERT_TRUE(writer.Finish().ok());
  auto file = GgufFile::Open(folder / "a.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::vector<std::string_view> keys;
  for (const auto& entry : file->metadata()) keys.push_back(entry.first);
  EXPECT_THAT(keys, testing::ElementsAre("general.alignment", "a", "c", "b"));
  EXPECT_EQ(*file->GetString("a"), "new");
  EXPECT_EQ(*file->GetU32("b"), 4u);
  EXPECT_EQ(file->alignment(), 64u);
}

TEST(GgufWriter, WritesAScalarTensor) {
  test::TemporaryFolder folder;
  GgufWriter writer;
  ASSERT_TRUE(writer.AddTensor("scalar", Format("F32"), {}).ok());
  ASSERT_TRUE(writer.Begin(folder / "a.gguf").ok());
  const float value = 2.5f;
  ASSERT_TRUE(writer.WriteTensor(std::as_bytes(std::span(&value, 1))).ok());
  ASSERT_TRUE(writer.Finish().ok());
  auto file = GgufFile::Open(folder / "a.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(std::memcmp(file->tensors()[0].data, &value, sizeof(value)), 0);
}

TEST(GgufWriter, WritesTensorsWithoutElements) {
  test::TemporaryFolder folder;
  GgufWriter writer;
  ASSERT_TRUE(writer.AddTensor("none", Format("Q4_0"), std::vector<int64_t>{32, 0}).ok());
  ASSERT_TRUE(writer.AddTensor("one", Format("F32"), std::vector<int64_t>{1}).ok());
  ASSERT_TRUE(writer.Begin(folder / "a.gguf").ok());
  const float value = 2.5f;
  ASSERT_TRUE(writer.WriteTensor({}).ok());
  ASSERT_TRUE(writer.WriteTensor(std::as_bytes(std::span(&value, 1))).ok());
  ASSERT_TRUE(writer.Finish().ok());
  auto file = GgufFile::Open(folder / "a.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->FindTensor("none")->n_values(), 0);
  EXPECT_EQ(std::memcmp(file->FindTensor("one")->data, &value, sizeof(value)), 0);
}

void ExpectInvalid(const Status& status, std::string_view text) {
  ASSERT_FALSE(status.ok()) << "accepted, expected: " << text;
  EXPECT_EQ(status.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(status.error().message, HasSubstr(text));
}

TEST(GgufWriter, RefusesTensorsThatNoFileCanHold) {
  GgufWriter writer;
  const auto add = [&](std::string name, std::string_view format, std::vector<int64_t> dims) {
    return writer.AddTensor(std::move(name), Format(format), dims);
  };
  EXPECT_TRUE(add("t", "F32", {4}).ok());
  ExpectInvalid(add("t", "F32", {4}), "tensor \"t\" is added twice");
  ExpectInvalid(add("u", "F32", {-4}), "dimension 0 of tensor \"u\" is -4");
  ExpectInvalid(add("u", "F32", {1, 1, 1, 1, 1}), "has 5 dimensions");
  ExpectInvalid(add("u", "F32", {int64_t{1} << 32, int64_t{1} << 32}), "multiply to more");
  ExpectInvalid(add("u", "F32", {int64_t{1} << 62}), "more than 2^63 - 1 bytes");
  ExpectInvalid(add("u", "Q4_0", {48}), "expected a multiple of 32 for type Q4_0");
  ExpectInvalid(add("", "F32", {4}), "has 0 bytes");
  ExpectInvalid(add(std::string(256, 'n'), "F32", {4}), "has 256 bytes");
  EXPECT_TRUE(add("u", "Q4_0", {64}).ok()) << "a refused tensor leaves its name free";
}

TEST(GgufWriter, RefusesWhatMakesNoValidFile) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a.gguf";
  for (const uint32_t alignment : {0u, 3u, 24u, 65537u, 131072u, 0x80000000u}) {
    GgufWriter writer(alignment);
    ExpectInvalid(writer.Begin(path), fmt::format("the alignment is {}", alignment));
  }
  GgufWriter empty_key;
  empty_key.AddU32("", 1);
  ExpectInvalid(empty_key.Begin(path), "key \"\" has 0 bytes");
  GgufWriter long_key;
  long_key.AddU32(std::string(65536, 'k'), 1);
  ExpectInvalid(long_key.Begin(path), "has 65536 bytes");
  GgufWriter huge;
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(huge.AddTensor(name, Format("F32"), std::vector{int64_t{1} << 59}).ok());
  }
  ExpectInvalid(huge.Begin(path), "the tensors up to \"c\" exceed");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(GgufWriter, RefusesWrongDataAndLeavesNoFile) {
  test::TemporaryFolder folder;
  {
    GgufWriter writer;
    ASSERT_TRUE(writer.AddTensor("t", Format("F32"), std::vector<int64_t>{4}).ok());
    ASSERT_TRUE(writer.Begin(folder / "a.gguf").ok());
    const std::vector<std::byte> data(17);
    ExpectInvalid(writer.WriteTensor(data), "tensor \"t\" has 16 bytes, but 17 were given");
    ExpectInvalid(writer.Finish(), "only 0 of 1 tensors are written");
    EXPECT_TRUE(writer.WriteTensor(std::span(data).first(16)).ok());
    ExpectInvalid(writer.WriteTensor(std::span(data).first(16)), "all 1 tensors are written");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(GgufWriter, ReportsAFolderThatDoesNotExist) {
  test::TemporaryFolder folder;
  GgufWriter writer;
  const Status status = writer.Begin(folder / "absent/a.gguf");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
}

TEST(GgufWriter, ReportsAFullDisk) {
  KVANT_SKIP_WITHOUT("/dev/full");
  GgufWriter writer;
  writer.AddString("key", std::string(1 << 21, 'x'));
  Status status = writer.Begin("/dev/full");
  if (status.ok()) status = writer.Finish();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("No space left on device"));
}

}  // namespace
}  // namespace kvant::formats
