// Importance matrices: both forms against bytes put together here from their descriptions, damaged
// files of every kind, merging.
#include "formats/imatrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "formats/gguf_writer.h"
#include "tests/temporary_folder.h"

namespace kvant::formats {
namespace {

using test::TemporaryFolder;
using testing::HasSubstr;

// A dat file, number by number.
class DatBytes {
 public:
  DatBytes& Int(int32_t number) {
    Raw(&number, sizeof(number));
    return *this;
  }
  DatBytes& Text(const std::string& text) {
    Int(static_cast<int32_t>(text.size()));
    Raw(text.data(), text.size());
    return *this;
  }
  DatBytes& Entry(const std::string& name, int32_t calls, const std::vector<float>& values) {
    Text(name).Int(calls).Int(static_cast<int32_t>(values.size()));
    Raw(values.data(), values.size() * sizeof(float));
    return *this;
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void Raw(const void* data, size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::vector<std::byte> bytes_;
};

// Two entries over four calls: means {1, 2} and {0.5, 0, 8}.
DatBytes TwoEntries() {
  return DatBytes()
      .Int(2)
      .Entry("blk.0.attn_q.weight", 4, {4, 8})
      .Entry("blk.0.ffn_down.weight", 4, {2, 0, 32})
      .Int(4)
      .Text("text.txt");
}

GgufTensor Tensor(std::string_view name, int64_t columns, int64_t rows, int64_t matrices = 1) {
  GgufTensor tensor;
  tensor.name = name;
  tensor.n_dims = matrices > 1 ? 3 : 2;
  tensor.dims[0] = columns;
  tensor.dims[1] = rows;
  tensor.dims[2] = matrices;
  return tensor;
}

void ExpectCorruptImatrix(std::span<const std::byte> bytes, const std::string& text) {
  const std::vector<std::byte> exact(bytes.begin(), bytes.end());
  const auto imatrix = ParseImatrix(exact, "x.imatrix");
  ASSERT_FALSE(imatrix.ok()) << "accepted, expected: " << text;
  EXPECT_EQ(imatrix.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(imatrix.error().message, testing::StartsWith("x.imatrix: "));
  EXPECT_THAT(imatrix.error().message, HasSubstr(text));
  EXPECT_EQ(imatrix.error().message.find('\n'), std::string::npos);
}

TEST(Imatrix, DatMeansAreValuesPerCall) {
  const auto imatrix = ParseImatrix(TwoEntries().bytes(), "x");
  ASSERT_TRUE(imatrix.ok()) << imatrix.error().message;
  EXPECT_EQ(imatrix->chunk_count, 4u);
  EXPECT_THAT(imatrix->datasets, testing::ElementsAre("text.txt"));
  ASSERT_EQ(imatrix->entries.size(), 2u);
  EXPECT_THAT(*imatrix->Importance(Tensor("blk.0.attn_q.weight", 2, 7)),
              testing::ElementsAre(1, 2));
  EXPECT_THAT(*imatrix->Importance(Tensor("blk.0.ffn_down.weight", 3, 7)),
              testing::ElementsAre(0.5f, 0, 8));
  EXPECT_TRUE(imatrix->Importance(Tensor("output.weight", 3, 7))->empty());
}

TEST(Imatrix, OldDatFilesEndAfterTheEntriesOrHaveNoCalls) {
  const auto imatrix =
      ParseImatrix(DatBytes().Int(1).Entry("blk.0.attn_q.weight", 0, {3, 5}).bytes(), "x");
  ASSERT_TRUE(imatrix.ok()) << imatrix.error().message;
  EXPECT_THAT(*imatrix->Importance(Tensor("blk.0.attn_q.weight", 2, 7)),
              testing::ElementsAre(3, 5));
}

TEST(Imatrix, DatRoundTripKeepsEveryByte) {
  const std::vector<std::byte> bytes = TwoEntries().bytes();
  const auto imatrix = ParseImatrix(bytes, "x");
  ASSERT_TRUE(imatrix.ok());
  TemporaryFolder folder;
  const Status status = WriteImatrix(*imatrix, folder / "copy", ImatrixForm::kDat);
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(test::ReadFile(folder / "copy"), bytes);
}

TEST(Imatrix, ExpertsHaveTheirOwnCounts) {
  Imatrix imatrix;
  imatrix.chunk_size = 4;
  imatrix.chunk_count = 3;
  imatrix.datasets = {"a.txt", "b.txt"};
  // Three experts of two columns; the second has seen nothing.
  imatrix.entries["blk.0.ffn_down_exps.weight"] = {{2, 4, 0, 0, 30, 60}, {2, 0, 10}};
  const GgufTensor tensor = Tensor("blk.0.ffn_down_exps.weight", 2, 5, 3);
  const auto expected = testing::ElementsAre(1, 2, 1, 1, 3, 6);
  EXPECT_THAT(*imatrix.Importance(tensor), expected);
  TemporaryFolder folder;
  for (const ImatrixForm form : {ImatrixForm::kDat, ImatrixForm::kGguf}) {
    ASSERT_TRUE(WriteImatrix(imatrix, folder / "x", form).ok());
    const auto read = ReadImatrix(folder / "x");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_THAT(*read->Importance(tensor), expected);
    EXPECT_EQ(read->chunk_count, 3u);
    if (form == ImatrixForm::kDat) continue;
    EXPECT_EQ(read->chunk_size, 4u);
    EXPECT_EQ(read->datasets, imatrix.datasets);
    EXPECT_EQ(read->entries.begin()->second.sums, imatrix.entries.begin()->second.sums);
    EXPECT_EQ(read->entries.begin()->second.counts, imatrix.entries.begin()->second.counts);
  }
}

TEST(Imatrix, AnotherModelsMatrixIsRefused) {
  const auto imatrix = ParseImatrix(TwoEntries().bytes(), "x");
  ASSERT_TRUE(imatrix.ok());
  for (const GgufTensor& tensor :
       {Tensor("blk.0.attn_q.weight", 4, 7), Tensor("blk.0.attn_q.weight", 2, 7, 2)}) {
    const auto importance = imatrix->Importance(tensor);
    ASSERT_FALSE(importance.ok());
    EXPECT_EQ(importance.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(importance.error().message, HasSubstr("\"blk.0.attn_q.weight\""));
    EXPECT_THAT(importance.error().message, HasSubstr("belongs to another model"));
  }
}

TEST(Imatrix, MergingWeighsByCalls) {
  auto imatrix = *ParseImatrix(TwoEntries().bytes(), "x");
  const auto other = *ParseImatrix(
      DatBytes().Int(1).Entry("blk.0.attn_q.weight", 12, {36, 0}).Int(12).Text("b").bytes(), "y");
  ASSERT_TRUE(imatrix.Merge(other).ok());
  // (4 * 1 + 12 * 3) / 16 and (4 * 2 + 12 * 0) / 16
  EXPECT_THAT(*imatrix.Importance(Tensor("blk.0.attn_q.weight", 2, 7)),
              testing::ElementsAre(2.5f, 0.5f));
  EXPECT_THAT(*imatrix.Importance(Tensor("blk.0.ffn_down.weight", 3, 7)),
              testing::ElementsAre(0.5f, 0, 8));
  EXPECT_EQ(imatrix.chunk_count, 16u);
  EXPECT_THAT(imatrix.datasets, testing::ElementsAre("text.txt", "b"));

  const Imatrix before = imatrix;
  const auto wrong =
      *ParseImatrix(DatBytes().Int(1).Entry("blk.0.attn_q.weight", 1, {1, 2, 3}).bytes(), "z");
  const Status status = imatrix.Merge(wrong);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("blk.0.attn_q.weight"));
  EXPECT_EQ(imatrix.entries.begin()->second.sums, before.entries.begin()->second.sums);
}

TEST(ImatrixCorrupt, EveryTruncation) {
  const std::vector<std::byte> whole = TwoEntries().bytes();
  const size_t entries_end = whole.size() - 4 - 4 - 8;  // the form without an origin
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<long>(size));
    const auto imatrix = ParseImatrix(part, "x");
    EXPECT_EQ(imatrix.ok(), size == entries_end) << size;
  }
  TemporaryFolder folder;
  const auto imatrix = ParseImatrix(whole, "x");
  ASSERT_TRUE(WriteImatrix(*imatrix, folder / "x.gguf", ImatrixForm::kGguf).ok());
  const std::vector<std::byte> gguf = test::ReadFile(folder / "x.gguf");
  size_t accepted = 0;
  for (size_t size = 0; size < gguf.size(); ++size) {
    const std::vector<std::byte> part(gguf.begin(), gguf.begin() + static_cast<long>(size));
    accepted += ParseImatrix(part, "x").ok() ? 1 : 0;
  }
  EXPECT_LT(accepted, 32u);  // only what pads the end may be missing
}

TEST(ImatrixCorrupt, Counts) {
  ExpectCorruptImatrix({}, "the file is empty");
  for (const int32_t count : {0, -1})
    ExpectCorruptImatrix(DatBytes().Int(count).bytes(), "expected from 1");
  ExpectCorruptImatrix(DatBytes().Int(1 << 30).Entry("a", 1, {1}).bytes(), "the 1 that fit");
  ExpectCorruptImatrix(DatBytes().Int(1).Int(1 << 30).Int(1).Int(1).Int(1).Int(1).bytes(),
                       "name of entry 0");
  ExpectCorruptImatrix(DatBytes().Int(1).Text("").Int(1).Int(1).Int(1).Int(1).bytes(), "0 bytes");
  ExpectCorruptImatrix(DatBytes().Int(1).Text("abcd").Int(1).Int(1 << 30).Int(1).bytes(),
                       "ends inside the values of entry \"abcd\"");
  ExpectCorruptImatrix(DatBytes().Int(1).Text("abcd").Int(1).Int(-1).Int(1).bytes(),
                       "1 value, found 1");
  ExpectCorruptImatrix(DatBytes().Int(1).Text("abcd").Int(-7).Int(1).Int(1).bytes(), "found -7");
  ExpectCorruptImatrix(DatBytes().Int(2).Entry("abcd", 1, {1}).Entry("abcd", 1, {1}).bytes(),
                       "more than once");
  ExpectCorruptImatrix(DatBytes().Int(1).Entry("a", 1, {1}).Int(1).Text("t").Int(0).bytes(),
                       "4 bytes follow");
  ExpectCorruptImatrix(DatBytes().Int(1).Entry("a", 1, {1}).Int(-1).Text("t").bytes(), "found -1");
}

TEST(ImatrixCorrupt, ValuesThatAreNoSquares) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {std::nanf(""), infinity, -infinity, -1.0f}) {
    ExpectCorruptImatrix(DatBytes().Int(1).Entry("abc", 1, {1, value}).bytes(),
                         "entry \"abc\": value 1 is");
    Imatrix imatrix;
    imatrix.entries["abc"] = {{1, static_cast<double>(value)}, {1}};
    TemporaryFolder folder;
    ASSERT_TRUE(WriteImatrix(imatrix, folder / "x", ImatrixForm::kGguf).ok());
    ExpectCorruptImatrix(test::ReadFile(folder / "x"), "entry \"abc\": value 1 is");
  }
}

// A GGUF file with these F32 tensors of one row.
std::vector<std::byte> GgufBytes(const std::string& type,
                                 const std::map<std::string, std::vector<float>>& tensors) {
  TemporaryFolder folder;
  GgufWriter writer;
  writer.AddString("general.type", type);
  for (const auto& [name, values] : tensors) {
    const int64_t dims[] = {static_cast<int64_t>(values.size())};
    EXPECT_TRUE(writer.AddTensor(name, *quant::FindFormat("F32"), dims).ok());
  }
  EXPECT_TRUE(writer.Begin(folder / "x").ok());
  for (const auto& [name, values] : tensors) {
    EXPECT_TRUE(writer.WriteTensor(std::as_bytes(std::span(values))).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  return test::ReadFile(folder / "x");
}

TEST(ImatrixCorrupt, GgufFilesThatAreNone) {
  ExpectCorruptImatrix(GgufBytes("model", {{"a.in_sum2", {1}}, {"a.counts", {1}}}),
                       "general.type is \"model\"");
  ExpectCorruptImatrix(GgufBytes("imatrix", {}), "no entries");
  ExpectCorruptImatrix(GgufBytes("imatrix", {{"a.in_sum2", {1, 2}}}), "no tensor a.counts");
  ExpectCorruptImatrix(GgufBytes("imatrix", {{"a.counts", {1, 2}}}), "no tensor a.in_sum2");
  ExpectCorruptImatrix(GgufBytes("imatrix", {{"a.in_sum2", {1, 2, 3}}, {"a.counts", {1, 2}}}),
                       "3 sums for 2 counts");
  for (const float count : {-1.0f, std::nanf(""), 1e30f}) {
    ExpectCorruptImatrix(GgufBytes("imatrix", {{"a.in_sum2", {1}}, {"a.counts", {count}}}),
                         "the count");
  }
  const auto imatrix = ParseImatrix(
      GgufBytes("imatrix", {{"a.in_sum2", {8, 2}}, {"a.counts", {2}}, {"a.in_sum", {-4, 1}}}), "x");
  ASSERT_TRUE(imatrix.ok()) << imatrix.error().message;  // sums of the values are left aside
  EXPECT_THAT(*imatrix->Importance(Tensor("a", 2, 7)), testing::ElementsAre(4, 1));
}

TEST(Imatrix, NothingToWriteIsAnError) {
  TemporaryFolder folder;
  Imatrix imatrix;
  imatrix.entries["a"] = {{0, 0}, {0}};
  for (const ImatrixForm form : {ImatrixForm::kDat, ImatrixForm::kGguf}) {
    EXPECT_FALSE(WriteImatrix(imatrix, folder / "x", form).ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  }
}

}  // namespace
}  // namespace kvant::formats
