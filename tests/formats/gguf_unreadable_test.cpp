// Tensors of types that kvant cannot read: refused where someone wants to compute with them, listed
// and copied byte for byte where nobody does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/check_tensors.h"
#include "formats/gguf_resplit.h"
#include "formats/model_hash.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::formats {
namespace {

using test::Bytes;
using test::File;
using test::kF32;
using test::TensorInfo;
using testing::HasSubstr;

constexpr uint32_t kI32 = 26;
constexpr uint32_t kF64 = 28;
constexpr uint32_t kNobodys = 1000;

Result<GgufFile> ParseToList(const Bytes& bytes) {
  return GgufFile::Parse(bytes.span(), "model.gguf", UnreadableTensors::kListed);
}

// F32 [4], type 1000 [40] in 64 bytes, I32 [3, 2], F64 [2], type 1000 [7] in the last 32 bytes; not
// in the order of their data.
Bytes Mixed() {
  return File({},
              {TensorInfo("float", {4}, kF32, 0), TensorInfo("last", {7}, kNobodys, 160),
               TensorInfo("unknown", {40}, kNobodys, 32), TensorInfo("ints", {3, 2}, kI32, 96),
               TensorInfo("doubles", {2}, kF64, 128)},
              192);
}

TEST(GgufUnreadable, IsRefusedUnlessItIsOnlyListed) {
  const Bytes bytes = Mixed();
  const auto refused = GgufFile::Parse(bytes.span(), "model.gguf");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kNotSupported);
  EXPECT_EQ(refused.error().message, "model.gguf: tensor \"last\" has the unknown type 1000");

  const auto file = ParseToList(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  struct Expected {
    const char* name;
    const char* type;
    uint64_t begin;
    uint64_t bytes;
  };
  const Expected expected[] = {{"float", "F32", 0, 16},
                               {"last", "type 1000", 160, 32},
                               {"unknown", "type 1000", 32, 64},
                               {"ints", "I32", 96, 24},
                               {"doubles", "F64", 128, 16}};
  const std::byte* data = file->tensors()[0].data;
  for (const Expected& row : expected) {
    const GgufTensor* tensor = file->FindTensor(row.name);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(TensorTypeName(*tensor), row.type);
    EXPECT_EQ(tensor->data - data, static_cast<ptrdiff_t>(row.begin)) << row.name;
    EXPECT_EQ(tensor->size_bytes, row.bytes) << row.name;
    EXPECT_EQ(tensor->format != nullptr, std::string_view(row.name) == "float");
  }
}

TEST(GgufUnreadable, SizesAreChecked) {
  const auto expect = [](const Bytes& bytes, std::string_view text) {
    const auto file = ParseToList(bytes);
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_EQ(file.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(file.error().message, HasSubstr(text));
  };
  const auto one = [](std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset) {
    return File({}, {TensorInfo("t", dims, type, offset)}, 64);
  };
  expect(one({17}, kI32, 0), "tensor \"t\" has 68 bytes at offset 0, beyond the 64 bytes");
  expect(one({1ull << 62}, kF64, 0), "tensor \"t\" has more than 2^63 - 1 bytes");
  expect(one({31}, 31, 0), "rows of 31 values, expected a multiple of 32");
  expect(one({0}, kNobodys, 0), "dimension 0 of tensor \"t\" is 0");
  expect(one({1ull << 40, 1ull << 40}, kNobodys, 0), "more than 2^63 - 1 values");
  expect(one({1ull << 40}, kNobodys, 0), "has 1099511627776 values, more than fit into its 64");
  expect(one({4}, kNobodys, 64), "has no bytes at offset 64");
  expect(one({4}, kNobodys, ~0ull), "has no bytes at offset");
  expect(one({4}, kNobodys, 33), "expected a multiple of the alignment");
  // Two at one place, in either order, and one within another.
  for (const uint32_t other : {kNobodys, kF32}) {
    expect(File({}, {TensorInfo("t", {4}, kNobodys, 0), TensorInfo("u", {4}, other, 0)}, 64),
           "tensor \"t\" of the unknown type 1000 has no bytes at offset 0");
    expect(File({}, {TensorInfo("u", {4}, other, 0), TensorInfo("t", {4}, kNobodys, 0)}, 64),
           "of the unknown type 1000 has no bytes at offset 0");
  }
  expect(File({}, {TensorInfo("u", {16}, kF32, 0), TensorInfo("t", {4}, kNobodys, 32)}, 64),
         "tensors \"u\" and \"t\" overlap");
}

// Many tensors of unknown size take no more than sorting them does.
TEST(GgufUnreadable, ManyOfThemAreMeasuredQuickly) {
  constexpr uint64_t kCount = 100'000;
  std::vector<Bytes> infos;
  for (uint64_t i = 0; i < kCount; ++i) {
    infos.push_back(TensorInfo("t" + std::to_string(i), {4}, kNobodys, i * 32));
  }
  const Bytes bytes = File({}, infos, kCount * 32);
  const auto file = ParseToList(bytes);
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (const GgufTensor& tensor : file->tensors()) EXPECT_EQ(tensor.size_bytes, 32u);
}

// Everything that a reader of the file could compare.
void ExpectSame(const GgufFile& file, const GgufFile& expected) {
  ASSERT_EQ(file.tensors().size(), expected.tensors().size());
  for (size_t i = 0; i < expected.tensors().size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    const GgufTensor& other = expected.tensors()[i];
    EXPECT_EQ(tensor.name, other.name);
    EXPECT_EQ(tensor.type, other.type);
    EXPECT_EQ(std::vector(tensor.dims, tensor.dims + kGgufDimsMax),
              std::vector(other.dims, other.dims + kGgufDimsMax));
    ASSERT_GE(tensor.size_bytes, other.size_bytes);
    EXPECT_TRUE(std::equal(other.data, other.data + other.size_bytes, tensor.data)) << other.name;
  }
}

TEST(GgufUnreadable, IsSplitAndMergedByteForByte) {
  test::TemporaryFolder folder;
  test::WriteFile(folder / "m.gguf", Mixed().span());
  const auto open = [](const std::string& path) {
    return GgufFile::Open(path, FileAccess::kMap, UnreadableTensors::kListed);
  };
  const auto file = open(folder / "m.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto shards = PlanSplit(*file, folder / "s", {.tensors_max = 2});
  ASSERT_TRUE(shards.ok() && shards->size() == 3);
  ASSERT_TRUE(WriteSplit(*file, *shards, nullptr).ok());
  const auto split = open(folder / "s-00002-of-00003.gguf");
  ASSERT_TRUE(split.ok()) << split.error().message;
  ExpectSame(*split, *file);
  ASSERT_TRUE(WriteMerged(*split, folder / "again.gguf", nullptr).ok());
  const auto merged = open(folder / "again.gguf");
  ASSERT_TRUE(merged.ok()) << merged.error().message;
  ExpectSame(*merged, *file);
  EXPECT_EQ(TensorTypeName(*merged->FindTensor("doubles")), "F64");
  EXPECT_FALSE(GgufFile::Open(folder / "again.gguf").ok());
}

TEST(GgufUnreadable, IsHashedAndNotDecoded) {
  const Bytes bytes = Mixed();
  const auto file = ParseToList(bytes);
  ASSERT_TRUE(file.ok());
  size_t hashed = 0;
  const auto hash = HashModel(*file, [&](const GgufTensor&, uint64_t) -> Status {
    ++hashed;
    return {};
  });
  ASSERT_TRUE(hash.ok());
  EXPECT_EQ(hashed, 5u);
  ThreadPool pool(1);
  size_t seen = 0;
  const auto findings = CheckTensors(*file, pool, [&](const GgufTensor&, uint64_t) -> Status {
    ++seen;
    return {};
  });
  ASSERT_TRUE(findings.ok());
  EXPECT_EQ(seen, 5u);
}

}  // namespace
}  // namespace kvant::formats
