// Damaged and hostile GGUF files: one test or more for every family of vulnerability that GGUF
// readers are known for. Each must end in one clear error that names what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <limits>
#include <random>

#include "formats/gguf.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::formats {
namespace {

using test::ArrayEntry;
using test::Bytes;
using test::File;
using test::Header;
using test::Key;
using test::kF32;
using test::kQ40;
using test::TensorInfo;
using test::U32Entry;
using testing::HasSubstr;

constexpr uint64_t kHuge[] = {1ull << 31,       (1ull << 32) - 1, 1ull << 32,
                              (1ull << 61) + 1, (1ull << 62) + 4, (1ull << 63) - 1,
                              1ull << 63,       ~0ull - 8,        ~0ull};

// The file is refused with this code and a single-line message that contains `text`.
void ExpectError(const Bytes& bytes, ErrorCode code, std::string_view text) {
  // An exact copy on the heap: the sanitizers see a read of a single byte too much.
  const std::vector<std::byte> exact(bytes.span().begin(), bytes.span().end());
  const auto file = GgufFile::Parse(exact, "model.gguf");
  ASSERT_FALSE(file.ok()) << "accepted, expected: " << text;
  EXPECT_EQ(ErrorCodeName(file.error().code), std::string(ErrorCodeName(code)));
  EXPECT_THAT(file.error().message, testing::StartsWith("model.gguf: "));
  EXPECT_THAT(file.error().message, HasSubstr(text));
  EXPECT_EQ(file.error().message.find_first_of("\n\r\x1b"), std::string::npos);
}

void ExpectCorrupt(const Bytes& bytes, std::string_view text) {
  ExpectError(bytes, ErrorCode::kCorrupt, text);
}

TEST(GgufCorrupt, WhatIsNoGguf) {
  ExpectCorrupt(Bytes(), "the file is empty");
  ExpectCorrupt(Bytes().Raw("GG", 2), "ends inside the magic number");
  ExpectCorrupt(Bytes().Raw("#!/bin/sh\n", 10), "not a GGUF file: it starts with \"#!/b\"");
  ExpectCorrupt(Bytes().Raw("\x1b[2J", 4).Fill(100), "it starts with \"\\x1b[2J\"");
  ExpectCorrupt(Bytes().Raw("FUGG", 4).Fill(100), "it starts with \"FUGG\"");
  const auto expect_hint = [](std::string_view text, const std::string& hint) {
    ExpectCorrupt(Bytes().Raw(text.data(), text.size()).Fill(100),
                  "expected \"GGUF\"; it is " + hint);
  };
  expect_hint("version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS");
  expect_hint("<!DOCTYPE html>\n", "a web page");
  expect_hint("PK\x03\x04", "a zip archive");
  expect_hint(std::string_view("\x40\0\0\0\0\0\0\0{\"", 10), "a safetensors file");
}

TEST(GgufCorrupt, HeaderCounts) {
  for (const uint64_t count : kHuge) {
    ExpectCorrupt(Header(count, 0).Fill(64), fmt::format("promises {} tensors", count));
    ExpectCorrupt(Header(0, count).Fill(64), fmt::format("promises {} metadata entries", count));
  }
  ExpectCorrupt(Header(1, 0), "promises 1 tensors");
  ExpectCorrupt(Header(0, 1), "promises 1 metadata entries");
  // Enough bytes for the count until the metadata have taken theirs.
  ExpectCorrupt(Header(10, 1).Append(Key("k", GgufType::kString).String(std::string(300, 'x'))),
                "promises 10 tensors, more than fit into the 0 bytes after the metadata");
}

TEST(GgufCorrupt, StringLengths) {
  for (const uint64_t size : kHuge) {
    ExpectCorrupt(Header(0, 1).U64(size).Fill(64), "ends inside the key of metadata entry 0");
    ExpectCorrupt(Header(0, 1).Append(Key("k", GgufType::kString)).U64(size).Fill(64),
                  "ends inside the string of key \"k\"");
    ExpectCorrupt(Header(1, 0).U64(size).Fill(64), "ends inside the name of tensor 0");
    ExpectCorrupt(Header(0, 1)
                      .Append(ArrayEntry("k", GgufType::kString, 2))
                      .String("first")
                      .U64(size)
                      .Fill(64),
                  "ends inside the strings of key \"k\"");
  }
  ExpectCorrupt(Header(0, 1).U64(0).Fill(64), "metadata entry 0 has an empty key");
  ExpectCorrupt(Header(1, 0).U64(0).Fill(64), "tensor 0 has an empty name");
  ExpectCorrupt(File({U32Entry(std::string(65536, 'k'), 1)}, {}, 0), "has 65536 bytes");
  ExpectCorrupt(File({}, {TensorInfo(std::string(256, 't'), {1}, kF32, 0)}, 4), "has 256 bytes");
}

TEST(GgufCorrupt, ArrayLengths) {
  for (const GgufType type : {GgufType::kUint8, GgufType::kInt16, GgufType::kFloat32,
                              GgufType::kBool, GgufType::kFloat64, GgufType::kString}) {
    for (const uint64_t count : kHuge) {
      ExpectCorrupt(Header(0, 1).Append(ArrayEntry("k", type, count)).Fill(64),
                    fmt::format("key \"k\" is an array of {} {} values, more than fit", count,
                                GgufTypeName(type)));
    }
  }
  // One more element than there are bytes.
  ExpectCorrupt(Header(0, 1).Append(ArrayEntry("k", GgufType::kUint32, 4)).Fill(15), "4 uint32");
}

TEST(GgufCorrupt, CumulativeStringSizes) {
  // Each string would fit alone; together they exceed the file.
  Bytes bytes = Header(0, 1).Append(ArrayEntry("k", GgufType::kString, 3));
  bytes.String(std::string(40, 'a')).U64(40).Fill(20);
  ExpectCorrupt(bytes, "ends inside the strings of key \"k\"");
}

TEST(GgufCorrupt, CumulativeTensorSizes) {
  // Each tensor fits into the data, the second only where the first already is.
  ExpectCorrupt(File({}, {TensorInfo("a", {16}, kF32, 0), TensorInfo("b", {16}, kF32, 32)}, 96),
                "tensors \"a\" and \"b\" overlap");
  ExpectCorrupt(File({}, {TensorInfo("a", {8}, kF32, 0), TensorInfo("b", {8}, kF32, 0)}, 64),
                "overlap");
  ExpectCorrupt(File({}, {TensorInfo("a", {1}, kF32, 64), TensorInfo("b", {24}, kF32, 0)}, 96),
                "tensors \"b\" and \"a\" overlap");
}

TEST(GgufCorrupt, DimensionCounts) {
  for (const uint32_t n_dims : {5u, 64u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    ExpectCorrupt(Header(1, 0).String("t").U32(n_dims).Fill(200),
                  fmt::format("tensor \"t\" has {} dimensions, expected at most 4", n_dims));
  }
}

TEST(GgufCorrupt, DimensionProducts) {
  const auto expect = [](std::initializer_list<uint64_t> dims, uint32_t type,
                         std::string_view text) {
    ExpectCorrupt(File({}, {TensorInfo("t", dims, type, 0)}, 64), text);
  };
  expect({1ull << 32, 1ull << 32}, kF32, "multiply to more than 2^63 - 1 values");
  expect({1ull << 32, 1ull << 32, 1ull << 32, 1ull << 32}, kF32, "multiply to more");
  expect({(1ull << 63) - 1, 2}, kF32, "multiply to more");
  expect({3, 0x5555555555555556ull}, kF32, "multiply to more");  // wraps to 2
  expect({1ull << 61, 2}, kF32, "has more than 2^63 - 1 bytes");
  expect({1ull << 60}, kF32, "beyond the 64 bytes of tensor data");
  expect({1ull << 63}, kF32, "dimension 0 of tensor \"t\" is -9223372036854775808");
  expect({8, ~0ull}, kF32, "dimension 1 of tensor \"t\" is -1, expected at least 0");
  expect({0, 1ull << 32, 1ull << 32}, kF32, "multiply to more");
  expect({~0ull, 0}, kF32, "is -1");
}

TEST(GgufCorrupt, RowsThatAreNotWholeBlocks) {
  for (const uint64_t columns : {1ull, 31ull, 33ull, (1ull << 62) + 1}) {
    ExpectCorrupt(
        File({}, {TensorInfo("t", {columns}, kQ40, 0)}, 64),
        fmt::format("rows of {} values, expected a multiple of 32 for type Q4_0", columns));
  }
  // The product is a multiple of a block, the row is not.
  ExpectCorrupt(File({}, {TensorInfo("t", {16, 2}, kQ40, 0)}, 64), "rows of 16 values");
}

TEST(GgufCorrupt, TensorTypes) {
  ExpectError(File({}, {TensorInfo("t", {256}, 26, 0)}, 64), ErrorCode::kNotSupported,
              "tensor \"t\" has type I32 (26), which this build cannot read");
  for (const uint32_t type : {1000u, 0x7fffffffu, 0xffffffffu}) {
    ExpectError(File({}, {TensorInfo("t", {256}, type, 0)}, 64), ErrorCode::kNotSupported,
                fmt::format("tensor \"t\" has the unknown type {}", type));
  }
  for (const uint32_t removed : {4u, 5u, 31u}) {  // Q4_2, Q4_3, Q4_0_4_4
    ExpectError(File({}, {TensorInfo("t", {256}, removed, 0)}, 64), ErrorCode::kNotSupported,
                fmt::format("({}), which this build cannot read", removed));
  }
}

TEST(GgufCorrupt, TensorOffsets) {
  const auto expect = [](uint64_t offset, std::string_view text) {
    ExpectCorrupt(File({}, {TensorInfo("t", {8}, kF32, offset)}, 64), text);
  };
  expect(1, "tensor \"t\" begins at offset 1, expected a multiple of the alignment 32");
  expect(16, "expected a multiple of the alignment 32");
  expect(64, "tensor \"t\" has 32 bytes at offset 64, beyond the 64 bytes of tensor data");
  expect(1ull << 40, "beyond the 64 bytes");
  expect(~0ull - 31, "beyond the 64 bytes");  // offset + size wraps around to 0
  expect(~0ull, "expected a multiple");
  ExpectCorrupt(File({}, {TensorInfo("t", {17}, kF32, 0)}, 64), "has 68 bytes at offset 0");
}

// Rows of IQ4_KS are a factor of 4 bytes and blocks of 136, those of Q8_KV 8 bytes and codes.
TEST(GgufCorrupt, RowsWithHeads) {
  constexpr uint32_t kIq4Ks = 144;
  constexpr uint32_t kQ8Kv = 151;
  ExpectCorrupt(File({}, {TensorInfo("t", {512, 3}, kIq4Ks, 0)}, 3 * (4 + 2 * 136) - 1),
                "has 828 bytes at offset 0");
  ExpectCorrupt(File({}, {TensorInfo("t", {64, 2}, kQ8Kv, 0)}, 2 * (8 + 64) - 1),
                "has 144 bytes at offset 0");
  ExpectCorrupt(File({}, {TensorInfo("t", {128}, kIq4Ks, 0)}, 1024), "rows of 128 values");
  // The blocks alone are just few enough; with the heads there are more bytes than 2^63 - 1.
  ExpectCorrupt(File({}, {TensorInfo("t", {32, (1ull << 63) / 36}, kQ8Kv, 0)}, 64),
                "more than 2^63 - 1 bytes");
}

TEST(GgufCorrupt, Alignments) {
  const auto entry = [](uint32_t alignment) { return U32Entry("general.alignment", alignment); };
  for (const uint32_t alignment :
       {0u, 3u, 12u, 33u, 48u, 65537u, 131072u, 0x80000000u, 0xffffffffu}) {
    ExpectCorrupt(
        File({entry(alignment)}, {TensorInfo("t", {8}, kF32, 0)}, 64),
        fmt::format("general.alignment is {}, expected a power of two from 1 to 65536", alignment));
  }
  // The alignment moves the data section past the end of a small file.
  ExpectCorrupt(File({entry(65536)}, {TensorInfo("t", {8}, kF32, 0)}, 64), "beyond the 0 bytes");
}

TEST(GgufCorrupt, AlignmentOfAnotherType) {
  const auto expect = [](const Bytes& entry, std::string_view found) {
    ExpectCorrupt(File({entry}, {}, 0),
                  fmt::format("general.alignment is {}, expected uint32", found));
  };
  const char* key = "general.alignment";
  expect(Key(key, GgufType::kUint8).Fill(1, 32), "uint8");
  expect(Key(key, GgufType::kInt32).U32(32), "int32");
  expect(Key(key, GgufType::kUint64).U64(32), "uint64");
  expect(Key(key, GgufType::kFloat32).Number(32.0f), "float32");
  expect(Key(key, GgufType::kString).String("32"), "string");
  expect(Key(key, GgufType::kBool).Fill(1, 1), "bool");
  expect(ArrayEntry(key, GgufType::kUint32, 1).U32(32), "array");
}

TEST(GgufCorrupt, UnknownValueTypes) {
  for (const uint32_t type : {13u, 255u, 0x80000000u, 0xffffffffu}) {
    ExpectCorrupt(File({Bytes().String("k").U32(type).U64(0)}, {}, 0),
                  fmt::format("key \"k\" has the unknown value type {}", type));
    ExpectCorrupt(File({Key("k", GgufType::kArray).U32(type).U64(0)}, {}, 0),
                  fmt::format("key \"k\" is an array of the unknown value type {}", type));
  }
}

TEST(GgufCorrupt, NestedArrays) {
  Bytes bytes = Header(0, 1).Append(ArrayEntry("k", GgufType::kArray, 1));
  for (int depth = 0; depth < 10000; ++depth) bytes.Type(GgufType::kArray).U64(1);
  ExpectError(bytes, ErrorCode::kNotSupported, "key \"k\" is an array of arrays");
}

TEST(GgufCorrupt, Duplicates) {
  ExpectCorrupt(File({U32Entry("a", 1), U32Entry("b", 2), U32Entry("a", 1)}, {}, 0),
                "key \"a\" appears more than once");
  ExpectCorrupt(File({},
                     {TensorInfo("t", {8}, kF32, 0), TensorInfo("u", {8}, kF32, 32),
                      TensorInfo("t", {8}, kF32, 64)},
                     96),
                "tensor \"t\" appears more than once");
  // Which of two alignments holds must never be a question.
  ExpectCorrupt(File({U32Entry("general.alignment", 32), U32Entry("general.alignment", 64)}, {}, 0),
                "key \"general.alignment\" appears more than once");
}

// 200,000 names: a comparison of all pairs would take minutes.
TEST(GgufCorrupt, ManyEntriesAreNotComparedPairwise) {
  constexpr uint64_t kCount = 200000;
  Bytes bytes = Header(0, kCount);
  for (uint64_t i = 0; i + 1 < kCount; ++i) bytes.Append(U32Entry(fmt::format("key.{}", i), 0));
  bytes.Append(U32Entry("key.7", 0));
  ExpectCorrupt(bytes, "key \"key.7\" appears more than once");
}

TEST(GgufCorrupt, MessagesStayOneHarmlessLine) {
  const std::string name = "\x1b]0;owned\a\nsecond line\xff";
  ExpectCorrupt(File({U32Entry(name, 1), U32Entry(name, 1)}, {}, 0), "\\n");
  ExpectCorrupt(File({}, {TensorInfo(name, {~0ull}, kF32, 0)}, 64), "\\n");
  const Bytes bytes = File({Bytes().String(std::string(60000, 'k')).U32(99)}, {}, 0);
  const auto file = GgufFile::Parse(bytes.span(), "model.gguf");
  EXPECT_LT(file.error().message.size(), 200u);
}

TEST(GgufCorrupt, PartsOfSplitModels) {
  const Bytes count = Key("split.count", GgufType::kUint16).Number(uint16_t{3});
  const Bytes number = Key("split.no", GgufType::kUint16).Number(uint16_t{0});
  const Bytes tensors = Key("split.tensors.count", GgufType::kInt32).U32(2);
  ExpectError(File({count, number, tensors}, {}, 0), ErrorCode::kNotSupported, "shard 1 of 3");
  ExpectCorrupt(File({count, tensors}, {}, 0), "split.count is 3, but split.no is missing");
  ExpectCorrupt(File({count, number}, {}, 0), "but split.tensors.count is missing");
  ExpectCorrupt(
      File({count, tensors, Key("split.no", GgufType::kUint16).Number(uint16_t{3})}, {}, 0),
      "split.no is 3, expected less than split.count = 3");
  ExpectCorrupt(
      File({count, number, Key("split.tensors.count", GgufType::kInt32).Number(-1)}, {}, 0),
      "key \"split.tensors.count\" is -1");
  ExpectCorrupt(File({Key("split.count", GgufType::kString).String("3")}, {}, 0),
                "key \"split.count\" is string, expected an integer");
}

size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

// The files with the most records per byte: what the reader keeps is a small multiple of the file.
// (Sanitizers replace the allocator and report no sizes; the test then holds trivially.)
TEST(GgufCorrupt, MemoryIsBoundedByTheFile) {
  constexpr uint64_t kCount = 100000;
  Bytes strings = Header(0, 1).Append(ArrayEntry("k", GgufType::kString, kCount));
  strings.Fill(8 * kCount);
  Bytes entries = Header(0, kCount);
  Bytes tensors = Header(kCount, 0);
  for (uint64_t i = 0; i < kCount; ++i) {
    entries.Append(Key(fmt::format("{:x}", i), GgufType::kUint8).Fill(1));
    tensors.Append(TensorInfo(fmt::format("{:x}", i), {}, kF32, 8 * i));
  }
  tensors.Fill(8 * kCount + 64);
  Bytes aligned = Header(kCount, 1).Append(U32Entry("general.alignment", 8));
  aligned.Raw(tensors.span().data() + 24, tensors.size() - 24);
  for (const Bytes* bytes : {&strings, &entries, &aligned}) {
    const size_t before = HeapBytes();
    const auto file = GgufFile::Parse(bytes->span(), "test");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_LT(HeapBytes(), before + 10 * bytes->size());
  }
}

// A small file with something of everything.
std::vector<std::byte> SmallFile() {
  return test::ReadFile(test::SourcePath("tests/reference/gguf/every-type.gguf"));
}

// Cut anywhere, the file is refused, except in the padding after the last tensor.
TEST(GgufCorrupt, TruncationAtEveryByte) {
  const std::vector<std::byte> whole = SmallFile();
  const auto file = GgufFile::Parse(whole, "whole");
  ASSERT_TRUE(file.ok());
  const GgufTensor& last = file->tensors().back();
  const size_t needed = static_cast<size_t>(last.data - whole.data()) + last.size_bytes;
  ASSERT_LT(needed, whole.size());
  for (size_t size = 0; size <= whole.size(); ++size) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    const auto parsed = GgufFile::Parse(cut, "cut");
    EXPECT_EQ(parsed.ok(), size >= needed) << "cut to " << size << " bytes";
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt) << size;
    }
  }
}

// A vocabulary without tensors needs no padding.
TEST(GgufCorrupt, TruncationOfPaddingWithoutTensors) {
  const Bytes bytes = Header(0, 1).Append(U32Entry("key", 1));
  ASSERT_NE(bytes.size() % 32, 0u);
  EXPECT_TRUE(GgufFile::Parse(bytes.span(), "test").ok());
}

// Reads everything that a parsed file hands out.
uint64_t Touch(const GgufFile& file) {
  uint64_t sum = 0;
  const auto add = [&sum](const void* data, size_t size) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < size; ++i) sum += bytes[i];
  };
  for (const auto& [key, value] : file.metadata()) {
    add(key.data(), key.size());
    if (const auto* text = std::get_if<std::string_view>(&value.value)) {
      add(text->data(), text->size());
    } else if (const auto* array = std::get_if<GgufArray>(&value.value)) {
      for (const std::string_view item : array->strings) add(item.data(), item.size());
    }
  }
  for (const GgufTensor& tensor : file.tensors()) add(tensor.data, tensor.size_bytes);
  return sum;
}

// Every byte of the small file set to each of a few values, and pairs of random bytes: no crash and
// no read outside, whether the file is still valid or not.
TEST(GgufCorrupt, FlippedBytes) {
  const std::vector<std::byte> whole = SmallFile();
  size_t refused = 0;
  uint64_t sum = 0;
  const auto try_file = [&](const std::vector<std::byte>& bytes) {
    const auto file = GgufFile::Parse(bytes, "flipped");
    if (file.ok()) sum += Touch(*file);
    refused += !file.ok();
  };
  std::vector<std::byte> bytes = whole;
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const uint8_t value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      bytes[i] = std::byte{value};
      try_file(bytes);
    }
    bytes[i] = whole[i];
  }
  std::mt19937 random(7);
  for (int round = 0; round < 5000; ++round) {
    bytes = whole;
    for (int flip = 0; flip < 2; ++flip) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    try_file(bytes);
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(sum, 0u);
}

}  // namespace
}  // namespace kvant::formats
