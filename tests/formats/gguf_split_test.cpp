// Split models: names of shards, and every way in which the shards on disk can fail to belong
// together.
#include "formats/gguf_split.h"
#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/gguf_bytes.h"
#include "tests/temporary_folder.h"

namespace kvant::formats {
namespace {

using test::Bytes;
using test::File;
using test::Key;
using test::kF32;
using test::TensorInfo;
using testing::HasSubstr;

TEST(SplitName, IsParsed) {
  const auto name = ParseSplitName("/models/a-b-00002-of-00010.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "/models/a-b");
  EXPECT_EQ(name->number, 1u);
  EXPECT_EQ(name->count, 10u);
  EXPECT_EQ(SplitPath(name->prefix, name->number, name->count), "/models/a-b-00002-of-00010.gguf");
  EXPECT_EQ(ParseSplitName("-00001-of-00001.gguf")->prefix, "");
}

TEST(SplitName, IsNotFoundInOtherNames) {
  for (const char* path :
       {"", ".gguf", "model.gguf", "a-00000-of-00003.gguf", "a-00004-of-00003.gguf",
        "a-0001-of-00003.gguf", "a-00001-of-0003.gguf", "a-00001-of-00003.bin", "a-00001_of_00003",
        "a00001-of-00003.gguf", "a-0000x-of-00003.gguf", "a--0001-of-00003.gguf",
        "00001-of-00003.gguf"}) {
    EXPECT_FALSE(ParseSplitName(path)) << path;
  }
}

Bytes Part(uint16_t number, uint16_t count, uint32_t tensor_count,
           const std::vector<std::string>& names) {
  std::vector<Bytes> infos;
  for (size_t i = 0; i < names.size(); ++i) {
    infos.push_back(TensorInfo(names[i], {8}, kF32, 32 * i));
  }
  return File({Key("split.no", GgufType::kUint16).Number(number),
               Key("split.count", GgufType::kUint16).Number(count),
               Key("split.tensors.count", GgufType::kInt32).U32(tensor_count)},
              infos, 32 * names.size());
}

class SplitModel : public testing::Test {
 protected:
  void SetUp() override {
    Write("m-00001-of-00003.gguf", Part(0, 3, 4, {"a", "b"}));
    Write("m-00002-of-00003.gguf", Part(1, 3, 4, {"c"}));
    Write("m-00003-of-00003.gguf", Part(2, 3, 4, {"d"}));
  }

  void Write(const std::string& name, const Bytes& bytes) {
    test::WriteFile(folder_ / name, bytes.span());
  }

  void ExpectError(ErrorCode code, std::string_view text,
                   const std::string& opened = "m-00001-of-00003.gguf") {
    const auto file = GgufFile::Open(folder_ / opened);
    ASSERT_FALSE(file.ok()) << "accepted, expected: " << text;
    EXPECT_EQ(ErrorCodeName(file.error().code), std::string(ErrorCodeName(code)));
    EXPECT_THAT(file.error().message, HasSubstr(text));
  }

  test::TemporaryFolder folder_;
};

TEST_F(SplitModel, OpensFromAnyPart) {
  for (const char* name :
       {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto file = GgufFile::Open(folder_ / name);
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->path(), folder_ / name);
    ASSERT_EQ(file->tensors().size(), 4u);
    EXPECT_EQ(file->tensors()[2].name, "c");
    EXPECT_EQ(file->tensors()[2].shard, 1);
    EXPECT_EQ(*file->GetU32("split.no"), 0u) << "the metadata are those of the first shard";
    uint64_t bytes = 0;
    for (const MappedFile& mapping : file->mappings()) bytes += mapping.bytes().size();
    EXPECT_EQ(file->file_bytes(), bytes);
  }
}

TEST_F(SplitModel, NamesTheMissingPart) {
  std::filesystem::remove(folder_ / "m-00002-of-00003.gguf");
  for (const char* opened : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    ExpectError(ErrorCode::kIo, "m-00002-of-00003.gguf: No such file or directory", opened);
    ExpectError(ErrorCode::kIo, "(shard 2 of 3 of a split model)", opened);
  }
}

TEST_F(SplitModel, NamesTheDamagedPart) {
  test::WriteFile(folder_ / "m-00003-of-00003.gguf", Part(2, 3, 4, {"d"}).span().first(100));
  ExpectError(ErrorCode::kCorrupt, "m-00003-of-00003.gguf: the file of 100 bytes ends inside");
}

TEST_F(SplitModel, RefusesAPartWithAnotherName) {
  std::filesystem::rename(folder_ / "m-00001-of-00003.gguf", folder_ / "model.gguf");
  ExpectError(ErrorCode::kInvalid,
              "shard 1 of 3 of a split model, but its name does not end in "
              "-00001-of-00003.gguf",
              "model.gguf");
  Write("m-00001-of-00003.gguf", Part(1, 3, 4, {"a", "b"}));
  ExpectError(ErrorCode::kInvalid, "does not end in -00002-of-00003.gguf");
}

TEST_F(SplitModel, RefusesPartsInTheWrongPlace) {
  Write("m-00002-of-00003.gguf", Part(2, 3, 4, {"c"}));
  ExpectError(ErrorCode::kCorrupt, "m-00002-of-00003.gguf: the file is shard 3 of 3");
  Write("m-00002-of-00003.gguf", Part(1, 4, 4, {"c"}));
  ExpectError(ErrorCode::kCorrupt, "the file is shard 2 of 4");
  Write("m-00002-of-00003.gguf", File({}, {TensorInfo("c", {8}, kF32, 0)}, 32));
  ExpectError(ErrorCode::kCorrupt, "the file is shard 1 of 1");
}

TEST_F(SplitModel, RefusesAWrongTensorCount) {
  Write("m-00002-of-00003.gguf", Part(1, 3, 5, {"c"}));
  ExpectError(ErrorCode::kCorrupt, "with 5 tensors, expected shard 2 of 3 with 4");
  Write("m-00002-of-00003.gguf", Part(1, 3, 4, {"c", "e"}));
  ExpectError(ErrorCode::kCorrupt, "the 3 shards hold 5 tensors, but split.tensors.count is 4");
}

TEST_F(SplitModel, RefusesATensorInTwoParts) {
  Write("m-00003-of-00003.gguf", Part(2, 3, 4, {"a"}));
  ExpectError(ErrorCode::kCorrupt, "tensor \"a\" appears more than once, in shards 1 and 3");
}

TEST_F(SplitModel, ASingleFileMayHaveAnyName) {
  Write("whole.gguf", Part(0, 1, 1, {"a"}));
  EXPECT_TRUE(GgufFile::Open(folder_ / "whole.gguf").ok());
  Write("m-00001-of-00009.gguf", File({}, {}, 0));
  EXPECT_TRUE(GgufFile::Open(folder_ / "m-00001-of-00009.gguf").ok());
}

}  // namespace
}  // namespace kvant::formats
