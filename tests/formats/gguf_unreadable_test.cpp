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

// Groups of 128 values in 34 bytes under the type that has 64 in 18, as a fork wrote them.
TEST(GgufUnreadable, OldGroupsAreToldByTheirExtent) {
  constexpr uint32_t kQ2_0 = 42;
  // A tensor has 544 bytes in old groups and 576 in groups.
  const auto parse = [](uint64_t second, size_t data_bytes) {
    const Bytes bytes =
        File({}, {TensorInfo("a", {256, 8}, kQ2_0, 0), TensorInfo("b", {256, 8}, kQ2_0, second)},
             data_bytes);
    const auto file = GgufFile::Parse(bytes.span(), "model.gguf");
    return file.ok() ? std::string("accepted") : file.error().message;
  };
  EXPECT_EQ(parse(576, 1152), "accepted");
  EXPECT_EQ(
      parse(544, 1088),
      "model.gguf: tensor \"a\" has type Q2_0 (42) and the extent of groups of 128 values, as "
      "a fork wrote them, 544 bytes; groups have 64 values, which makes 576 bytes: convert "
      "the original model");
  // The last tensor alone, with and without padding behind it.
  EXPECT_THAT(parse(576, 576 + 544), HasSubstr("tensor \"b\" has type Q2_0 (42) and the extent"));
  // Files that are cut off or overlap are none of these.
  EXPECT_THAT(parse(576, 576 + 570), HasSubstr("is it complete?"));
  EXPECT_THAT(parse(512, 1088), HasSubstr("overlap"));
}

TEST(GgufUnreadable, TypesOfPrismAreRefusedByName) {
  for (const auto& [type, name, block_bytes] :
       {std::tuple(142U, "PQ2_0", 34U), {143U, "PTQ1_0", 28U}}) {
    const Bytes bytes = File({}, {TensorInfo("a", {256, 4}, type, 0)}, 8 * block_bytes);
    const auto refused = GgufFile::Parse(bytes.span(), "model.gguf");
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message,
                HasSubstr("tensor \"a\" has type " + std::string(name) +
                          " (of Prism; its codes go with a rotation of activations) (" +
                          std::to_string(type) + "), which this build cannot read"));
    const auto file = ParseToList(bytes);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->tensors()[0].size_bytes, 8 * block_bytes);
  }
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
  expect(one({~0ull}, kNobodys, 0), "dimension 0 of tensor \"t\" is -1");
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
