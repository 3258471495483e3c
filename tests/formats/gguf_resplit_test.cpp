// Splitting and merging: back to the same bytes, and nothing left behind where it fails.
#include "formats/gguf_resplit.h"
#include "base/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "formats/gguf_writer.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using formats::GgufFile;
using formats::SplitLimits;
using testing::HasSubstr;

std::string FileBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Ten tensors of 1 to 10 rows of 40 bytes.
void WriteModel(const std::string& path, uint32_t alignment) {
  formats::GgufWriter writer(alignment);
  writer.AddString("general.name", "shards");
  writer.AddStrings("words", {"a", "", "c"});
  writer.AddF32("number", 0.1f);
  const auto* f32 = quant::FindFormat("F32");
  for (int64_t rows = 1; rows <= 10; ++rows) {
    const int64_t dims[] = {10, rows};
    ASSERT_TRUE(writer.AddTensor("t" + std::to_string(rows), *f32, dims).ok());
  }
  ASSERT_TRUE(writer.Begin(path).ok());
  for (int64_t rows = 1; rows <= 10; ++rows) {
    const std::vector<float> values(static_cast<size_t>(10 * rows), static_cast<float>(rows));
    ASSERT_TRUE(writer.WriteTensor(std::as_bytes(std::span(values))).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
}

Status Split(const std::string& input, const std::string& prefix, const SplitLimits& limits,
             const formats::OnTensor& on_tensor = nullptr) {
  KVANT_ASSIGN(const auto file, GgufFile::Open(input));
  KVANT_ASSIGN(const auto shards, formats::PlanSplit(file, prefix, limits));
  return formats::WriteSplit(file, shards, on_tensor);
}

Status Merge(const std::string& shard, const std::string& output) {
  KVANT_ASSIGN(const auto file, GgufFile::Open(shard));
  return formats::WriteMerged(file, output, nullptr);
}

class Resplit : public testing::TestWithParam<uint32_t> {};

TEST_P(Resplit, MergedPartsAreTheFileAgain) {
  TemporaryFolder folder;
  WriteModel(folder / "m.gguf", GetParam());
  const SplitLimits all_limits[] = {{.tensors_max = 1},
                                    {.tensors_max = 3},
                                    {.tensors_max = 99},
                                    {.bytes_max = 700},
                                    {.bytes_max = 1}};
  const int shards_expected[] = {10, 4, 1, -1, 10};
  for (size_t i = 0; i < std::size(all_limits); ++i) {
    const std::string prefix = folder / ("p" + std::to_string(i));
    ASSERT_TRUE(Split(folder / "m.gguf", prefix, all_limits[i]).ok());
    int shards = 0;
    std::string last;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (!entry.path().string().starts_with(prefix)) continue;
      last = entry.path().string();
      ++shards;
    }
    if (shards_expected[i] > 0) {
      EXPECT_EQ(shards, shards_expected[i]) << i;
    }
    ASSERT_TRUE(Merge(last, folder / "merged.gguf").ok());
    EXPECT_EQ(FileBytes(folder / "merged.gguf"), FileBytes(folder / "m.gguf")) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Alignments, Resplit, testing::Values(32u, 8u, 256u));

TEST(ResplitFiles, PartsKeepToTheirSize) {
  TemporaryFolder folder;
  WriteModel(folder / "m.gguf", 32);
  const auto file = GgufFile::Open(folder / "m.gguf");
  ASSERT_TRUE(file.ok());
  const auto shards = formats::PlanSplit(*file, "x", {.bytes_max = 700});
  ASSERT_TRUE(shards.ok());
  size_t tensors = 0;
  for (const auto& shard : *shards) {
    EXPECT_LE(shard.tensor_bytes, 700u);
    EXPECT_EQ(shard.first_tensor, tensors);
    tensors += shard.tensors;
  }
  EXPECT_EQ(tensors, 10u);
  EXPECT_EQ(shards->front().path, fmt::format("x-00001-of-{:05}.gguf", shards->size()));
}

TEST(ResplitFiles, AFailureLeavesNothing) {
  TemporaryFolder folder;
  WriteModel(folder / "m.gguf", 32);
  const auto stop = [](const formats::GgufTensor& tensor) -> Status {
    if (tensor.name != "t7") return {};
    return MakeError(ErrorCode::kCancelled, "stop");
  };
  const Status status = Split(folder / "m.gguf", folder / "p", {.tensors_max = 2}, stop);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
  const std::filesystem::directory_iterator files(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST(ResplitFiles, NeverReplacesAFileItReadsOrAPart) {
  TemporaryFolder folder;
  WriteModel(folder / "m.gguf", 32);
  ASSERT_TRUE(Split(folder / "m.gguf", folder / "p", {.tensors_max = 5}).ok());
  const Status again = Split(folder / "m.gguf", folder / "p", {.tensors_max = 5});
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("exists already"));
  const std::string shard = folder / "p-00002-of-00002.gguf";
  const std::string before = FileBytes(shard);
  const Status onto_itself = Merge(folder / "p-00001-of-00002.gguf", shard);
  ASSERT_FALSE(onto_itself.ok());
  EXPECT_THAT(onto_itself.error().message, HasSubstr("the output is also an input"));
  EXPECT_EQ(FileBytes(shard), before);
  std::filesystem::remove(shard);
  EXPECT_FALSE(Merge(folder / "p-00001-of-00002.gguf", folder / "x.gguf").ok());
}

TEST(ResplitFiles, NoSpaceIsAnError) {
  TemporaryFolder folder;
  WriteModel(folder / "m.gguf", 32);
  const Status status = Merge(folder / "m.gguf", "/dev/full");
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("/dev/full: cannot write"));
}

}  // namespace
}  // namespace kvant::test
