// NumPy files: the reader against files that NumPy wrote, the writer against the reader and the
// layout, and malformed headers.
#include "formats/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file with this header text, version and data.
std::vector<std::byte> NpyFile(const std::string& header, size_t data_bytes, uint8_t major = 1) {
  std::string file("\x93NUMPY");
  file += static_cast<char>(major);
  file += '\0';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file.append(data_bytes, '\0');
  const auto* begin = reinterpret_cast<const std::byte*>(file.data());
  return {begin, begin + file.size()};
}

std::string HeaderText(const std::string& shape) {
  return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }\n";
}

TEST(Npy, WritesWhatNumpyWrites) {
  test::TemporaryFolder folder;
  const std::string path = folder / "a.npy";
  auto writer = NpyWriter::Create(path, 3, 2);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  const std::vector<float> values = {1, 2, 3, 4, 5, -6.5f};
  ASSERT_TRUE(writer->WriteRows(std::span(values).first(2)).ok());
  ASSERT_TRUE(writer->WriteRows(std::span(values).subspan(2)).ok());
  ASSERT_TRUE(writer->Finish().ok());

  // numpy.save of the same array gives these bytes.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }";
  header.append(117 - header.size(), ' ').append("\n");
  std::vector<std::byte> expected = NpyFile(header, 24);
  std::memcpy(expected.data() + 128, values.data(), 24);
  EXPECT_EQ(test::ReadFile(path), expected);

  const auto array = NpyRead(path);
  ASSERT_TRUE(array.ok()) << array.error().message;
  EXPECT_THAT(array->shape, ElementsAre(3, 2));
  EXPECT_EQ(array->values, values);
}

// numpy.save of np.array([[1, -2.5, 65504], [6e-8, 0.1, inf]], np.float16).
TEST(Npy, ReadsHalves) {
  const std::string header = "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }\n";
  std::vector<std::byte> file = NpyFile(header, 12);
  const uint16_t halves[] = {0x3c00, 0xc100, 0x7bff, 0x0001, 0x2e66, 0x7c00};
  std::memcpy(file.data() + file.size() - 12, halves, 12);
  const auto array = NpyParse(file, "a.npy");
  ASSERT_TRUE(array.ok()) << array.error().message;
  EXPECT_THAT(array->shape, ElementsAre(2, 3));
  EXPECT_THAT(array->values, ElementsAre(1.0f, -2.5f, 65504.0f, 0x1p-24f, 0.0999755859375f,
                                         std::numeric_limits<float>::infinity()));
  const auto odd = NpyParse(NpyFile(header, 13), "a.npy");
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().code, ErrorCode::kCorrupt);
}

// numpy.save of np.array([1.5, 0.1, 1e300]).
TEST(Npy, ReadsDoublesAsTheNearestFloats) {
  std::vector<std::byte> file =
      NpyFile("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }\n", 24);
  const double doubles[] = {1.5, 0.1, 1e300};
  std::memcpy(file.data() + file.size() - 24, doubles, 24);
  const auto array = NpyParse(file, "a.npy");
  ASSERT_TRUE(array.ok()) << array.error().message;
  EXPECT_THAT(array->values, ElementsAre(1.5f, 0.1f, std::numeric_limits<float>::infinity()));
}

TEST(Npy, WritesNoRows) {
  test::TemporaryFolder folder;
  auto writer = NpyWriter::Create(folder / "a.npy", 0, 5);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_THAT(NpyRead(folder / "a.npy")->shape, ElementsAre(0, 5));
}

TEST(Npy, AppearsOnlyWhenComplete) {
  test::TemporaryFolder folder;
  {
    auto writer = NpyWriter::Create(folder / "a.npy", 2, 3);
    ASSERT_TRUE(writer.ok());
    const std::vector<float> values(9);
    EXPECT_FALSE(writer->WriteRows(std::span(values).first(2)).ok()) << "no whole row";
    EXPECT_FALSE(writer->WriteRows(values).ok()) << "too many rows";
    EXPECT_TRUE(writer->WriteRows(std::span(values).first(3)).ok());
    const Status status = writer->Finish();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("only 1 of 2 rows"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Npy, RefusesImpossibleShapes) {
  test::TemporaryFolder folder;
  for (const auto& [rows, columns] :
       {std::pair<int64_t, int64_t>{-1, 2}, {2, 0}, {int64_t{1} << 40, int64_t{1} << 40}}) {
    const auto writer = NpyWriter::Create(folder / "a.npy", rows, columns);
    ASSERT_FALSE(writer.ok());
    EXPECT_EQ(writer.error().code, ErrorCode::kInvalid);
  }
}

TEST(Npy, ReadsEveryShape) {
  const auto shape = [](const std::string& text, size_t bytes) {
    const auto array = NpyParse(NpyFile(HeaderText(text), bytes), "test");
    EXPECT_TRUE(array.ok()) << array.error().message;
    return array->shape;
  };
  EXPECT_THAT(shape("()", 4), ElementsAre());
  EXPECT_THAT(shape("(2,)", 8), ElementsAre(2));
  EXPECT_THAT(shape("(2, 3)", 24), ElementsAre(2, 3));
  EXPECT_THAT(shape("(2, 3, 1)", 24), ElementsAre(2, 3, 1));
  EXPECT_THAT(shape("(0,)", 0), ElementsAre(0));
}

TEST(Npy, RefusesMalformedHeaders) {
  const auto expect = [](const std::string& header, size_t bytes, ErrorCode code) {
    const auto array = NpyParse(NpyFile(header, bytes), "test");
    ASSERT_FALSE(array.ok()) << header;
    EXPECT_EQ(array.error().code, code) << array.error().message;
  };
  for (const char* shape : {"(2)", "(-1,)", "(2", "2,", "(2,,)", "(,)", "(a,)", "[2]", "(2, 3",
                            "(99999999999999999999,)", "('2',)", "(2.0,)"}) {
    expect(HeaderText(shape), 8, ErrorCode::kCorrupt);
  }
  for (const char* header :
       {"", "{", "{}\n", "{'descr': '<f4'}\n", "'descr'\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x\n",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}\n",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}\n"}) {
    expect(header, 8, ErrorCode::kCorrupt);
  }
  expect("{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}\n", 8, ErrorCode::kNotSupported);
  expect("{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}\n", 8, ErrorCode::kNotSupported);
  expect("{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}\n", 8, ErrorCode::kNotSupported);
  expect(HeaderText("(2,)"), 7, ErrorCode::kCorrupt);
  expect(HeaderText("(2,)"), 9, ErrorCode::kCorrupt);
  expect(HeaderText("(4611686018427387904,)"), 0, ErrorCode::kCorrupt);  // 2^62 * 4 wraps to 0
  expect(HeaderText("(4294967296, 4294967296)"), 0, ErrorCode::kCorrupt);
  EXPECT_EQ(NpyParse(NpyFile(HeaderText("(2,)"), 8, 2), "test").error().code,
            ErrorCode::kNotSupported);
}

TEST(Npy, RefusesTruncationAtEveryByte) {
  const std::vector<std::byte> whole = NpyFile(HeaderText("(2, 3)"), 24);
  ASSERT_TRUE(NpyParse(whole, "test").ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(NpyParse(cut, "test").ok()) << size;
  }
}

// Logits that numpy wrote.
TEST(Npy, ReadsNumpysFiles) {
  const std::string path = test::SourcePath("tests/reference/random_llamas/mha-3x48-f32.npy");
  const auto array = NpyRead(path);
  ASSERT_TRUE(array.ok()) << array.error().message;
  EXPECT_THAT(array->shape, ElementsAre(70, 101));
  const std::string golden = test::SharedPath("models/golden/TinyStories-656K-f32.npy");
  KVANT_SKIP_WITHOUT(golden);
  const auto logits = NpyRead(golden);
  ASSERT_TRUE(logits.ok()) << logits.error().message;
  EXPECT_THAT(logits->shape, ElementsAre(96, 2048));
}

}  // namespace
}  // namespace kvant::formats
