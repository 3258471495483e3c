// Tests the GGUF reader on valid files, and the values that its typed getters accept. The larger
// files were written by the Python `gguf` package (tests/reference/make_gguf_fixtures.py), with
// JSON that says what is in them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/gguf.h"
#include "tests/formats/gguf_bytes.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::formats {
namespace {

using nlohmann::json;
using test::ArrayEntry;
using test::Bytes;
using test::File;
using test::Key;
using test::kF32;
using test::TensorInfo;
using test::U32Entry;
using testing::HasSubstr;

std::string Fixture(const std::string& name) {
  return test::SourcePath("tests/reference/gguf/" + name);
}

json ReadJson(const std::string& name) { return json::parse(std::ifstream(Fixture(name))); }

GgufFile Parse(const Bytes& bytes) {
  auto file = GgufFile::Parse(bytes.span(), "test");
  EXPECT_TRUE(file.ok()) << file.error().message;
  return std::move(file).value();
}
/// The file keeps pointing into the bytes: they must outlive it.
GgufFile Parse(Bytes&& bytes) = delete;

template <class T>
T Element(const GgufArray& array, size_t index) {
  T value;
  std::memcpy(&value, array.data + index * sizeof(T), sizeof(T));
  return value;
}

json ArrayElement(const GgufArray& array, size_t i) {
  switch (array.type) {
    case GgufType::kUint8: return Element<uint8_t>(array, i);
    case GgufType::kInt8: return Element<int8_t>(array, i);
    case GgufType::kUint16: return Element<uint16_t>(array, i);
    case GgufType::kInt16: return Element<int16_t>(array, i);
    case GgufType::kUint32: return Element<uint32_t>(array, i);
    case GgufType::kInt32: return Element<int32_t>(array, i);
    case GgufType::kUint64: return std::to_string(Element<uint64_t>(array, i));
    case GgufType::kInt64: return std::to_string(Element<int64_t>(array, i));
    case GgufType::kFloat32: return Element<float>(array, i);
    case GgufType::kFloat64: return Element<double>(array, i);
    case GgufType::kBool: return Element<uint8_t>(array, i) == 1;
    case GgufType::kString: return std::string(array.strings[i]);
    case GgufType::kArray: break;
  }
  return nullptr;
}

// Metadata in the form of the JSON fixtures.
json Describe(std::string_view key, const GgufValue& value) {
  json entry = {{"key", std::string(key)}, {"type", GgufTypeName(value.type)}};
  json& content = entry["value"];
  if (const auto* array = std::get_if<GgufArray>(&value.value)) {
    entry["element"] = GgufTypeName(array->type);
    content = json::array();
    for (size_t i = 0; i < array->count; ++i) content.push_back(ArrayElement(*array, i));
  } else if (const auto* text = std::get_if<std::string_view>(&value.value)) {
    content = std::string(*text);
  } else if (const auto* truth = std::get_if<bool>(&value.value)) {
    content = *truth;
  } else if (const auto* number = std::get_if<double>(&value.value)) {
    content = *number;
  } else if (const auto* natural = std::get_if<uint64_t>(&value.value)) {
    if (value.type == GgufType::kUint64) {
      content = std::to_string(*natural);
    } else {
      content = *natural;
    }
  } else if (const auto* integer = std::get_if<int64_t>(&value.value)) {
    if (value.type == GgufType::kInt64) {
      content = std::to_string(*integer);
    } else {
      content = *integer;
    }
  }
  return entry;
}

json Describe(const GgufTensor& tensor) {
  std::string hex;
  for (uint64_t i = 0; i < tensor.size_bytes; ++i) {
    hex += fmt::format("{:02x}", static_cast<uint8_t>(tensor.data[i]));
  }
  return {{"name", std::string(tensor.name)},
          {"type", tensor.format->name},
          {"dims", std::vector<int64_t>(tensor.dims, tensor.dims + tensor.n_dims)},
          {"data", hex}};
}

json Describe(const GgufFile& file) {
  json content = {{"metadata", json::array()}, {"tensors", json::array()}};
  for (const auto& [key, value] : file.metadata()) {
    content["metadata"].push_back(Describe(key, value));
  }
  for (const GgufTensor& tensor : file.tensors()) content["tensors"].push_back(Describe(tensor));
  return content;
}

void ExpectSame(const json& found, const json& expected) {
  for (const char* list : {"metadata", "tensors"}) {
    ASSERT_EQ(found[list].size(), expected[list].size());
    for (size_t i = 0; i < expected[list].size(); ++i) {
      EXPECT_EQ(found[list][i], expected[list][i]) << list << " " << i;
    }
  }
}

TEST(GgufReader, AgreesWithPythonAboutEveryType) {
  auto file = GgufFile::Open(Fixture("every-type.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->alignment(), 32u);
  EXPECT_EQ(file->shards(), 1);
  EXPECT_EQ(file->file_bytes(), std::filesystem::file_size(Fixture("every-type.gguf")));
  ExpectSame(Describe(*file), ReadJson("every-type.json"));
}

TEST(GgufReader, AgreesWithPythonAboutAlignment64) {
  auto file = GgufFile::Open(Fixture("alignment-64.gguf"), FileAccess::kRead);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->alignment(), 64u);
  for (const GgufTensor& tensor : file->tensors()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 64, 0u) << tensor.name;
  }
  ExpectSame(Describe(*file), ReadJson("alignment-64.json"));
}

TEST(GgufReader, AgreesWithPythonAboutSplitFiles) {
  for (const char* shard : {"00001", "00002", "00003"}) {
    auto file = GgufFile::Open(Fixture(fmt::format("split-{}-of-00003.gguf", shard)));
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->shards(), 3);
    EXPECT_EQ(file->mappings().size(), 3u);
    ExpectSame(Describe(*file), ReadJson("split.json"));
    EXPECT_EQ(file->FindTensor("blk.2.weight")->shard, 0);
    EXPECT_EQ(file->FindTensor("blk.3.weight")->shard, 1);
    EXPECT_EQ(file->FindTensor("blk.6.weight")->shard, 2);
  }
}

TEST(GgufReader, RefusesBigEndianByName) {
  auto file = GgufFile::Open(Fixture("big-endian.gguf"));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.error().code, ErrorCode::kNotSupported);
  EXPECT_THAT(file.error().message, HasSubstr("big-endian GGUF (version 3)"));
}

TEST(GgufReader, ReadsVersion2) {
  Bytes bytes = test::Header(0, 1, 2).Append(U32Entry("a", 7));
  EXPECT_EQ(Parse(bytes).version(), 2u);
}

TEST(GgufReader, RefusesOtherVersionsByName) {
  for (const uint32_t version : {0u, 1u, 4u, 255u}) {
    const Bytes bytes = test::Header(0, 0, version);
    auto file = GgufFile::Parse(bytes.span(), "test");
    ASSERT_FALSE(file.ok());
    EXPECT_EQ(file.error().code, ErrorCode::kNotSupported);
    EXPECT_THAT(file.error().message, HasSubstr(fmt::format("GGUF version {} is", version)));
  }
}

TEST(GgufReader, ReadsAFileWithoutAnything) {
  const Bytes bytes = test::Header(0, 0);
  const GgufFile file = Parse(bytes);
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(file.Find("general.architecture"), nullptr);
  EXPECT_EQ(file.FindTensor("x"), nullptr);
}

// Nothing may be read through a misaligned pointer; the sanitizers watch.
TEST(GgufReader, ReadsFromAnyAddress) {
  const std::vector<std::byte> bytes = test::ReadFile(Fixture("every-type.gguf"));
  const json expected = ReadJson("every-type.json");
  for (size_t shift = 0; shift < 8; ++shift) {
    std::vector<std::byte> shifted(shift);
    shifted.insert(shifted.end(), bytes.begin(), bytes.end());
    auto file = GgufFile::Parse(std::span(shifted).subspan(shift), "test");
    ASSERT_TRUE(file.ok()) << file.error().message;
    ExpectSame(Describe(*file), expected);
  }
}

TEST(GgufReader, ReadsTensorsInAnyOrderAndWithGaps) {
  const Bytes bytes =
      File({}, {TensorInfo("b", {8}, kF32, 128), TensorInfo("a", {2, 4}, kF32, 0)}, 160);
  const GgufFile file = Parse(bytes);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.tensors()[0].data[0], std::byte{128});
  const GgufTensor* tensor = file.FindTensor("a");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->rows(), 4);
  EXPECT_EQ(tensor->n_values(), 8);
  EXPECT_EQ(tensor->row_bytes(), 8);
  EXPECT_EQ(tensor->size_bytes, 32u);
}

TEST(GgufReader, ReadsAScalarTensor) {
  const Bytes bytes = File({}, {TensorInfo("x", {}, kF32, 0)}, 4);
  const GgufFile file = Parse(bytes);
  EXPECT_EQ(file.tensors()[0].n_dims, 0);
  EXPECT_EQ(file.tensors()[0].n_values(), 1);
  EXPECT_EQ(file.tensors()[0].size_bytes, 4u);
}

TEST(GgufReader, ReadsEmptyArraysAndStrings) {
  const Bytes bytes =
      File({ArrayEntry("n", GgufType::kInt32, 0), ArrayEntry("s", GgufType::kString, 0),
            Key("t", GgufType::kString).String("")},
           {}, 0);
  const GgufFile file = Parse(bytes);
  EXPECT_EQ((*file.GetArray("n", GgufType::kInt32))->count, 0u);
  EXPECT_EQ((*file.GetArray("s", GgufType::kString))->strings.size(), 0u);
  EXPECT_EQ(*file.GetString("t"), "");
}

TEST(GgufReader, AcceptsTheLimits) {
  const std::string key(65535, 'k');
  const std::string name(255, 't');
  Bytes bytes = test::Header(1, 2)
                    .Append(U32Entry(key, 1))
                    .Append(U32Entry("general.alignment", 65536))
                    .Append(TensorInfo(name, {1, 1, 1, 1}, kF32, 65536))
                    .PadTo(65536)
                    .Fill(65536 + 4);
  const GgufFile file = Parse(bytes);
  EXPECT_NE(file.Find(key), nullptr);
  EXPECT_NE(file.FindTensor(name), nullptr);
}

// The specification wants multiples of 8; other readers take any power of two. Texts of several
// lengths move the data.
TEST(GgufReader, TensorsOfSmallAlignmentsAreAlignedInMemory) {
  for (const uint32_t alignment : {1u, 2u, 4u, 8u}) {
    for (size_t length = 0; length < 8; ++length) {
      const Bytes text = Key("k", GgufType::kString).String(std::string(length, 'x'));
      const Bytes bytes =
          File({U32Entry("general.alignment", alignment), text},
               {TensorInfo("a", {3}, kF32, alignment), TensorInfo("b", {0, 3}, kF32, alignment)},
               alignment + 12, alignment);
      const GgufFile file = Parse(bytes);
      EXPECT_EQ(file.alignment(), alignment);
      const GgufTensor& tensor = *file.FindTensor("a");
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % kGgufElementAlignment, 0u);
      ASSERT_EQ(tensor.size_bytes, 12u);
      for (size_t i = 0; i < 12; ++i) {
        EXPECT_EQ(tensor.data[i], static_cast<std::byte>(alignment + i)) << alignment << " " << i;
      }
      EXPECT_EQ(file.FindTensor("b")->size_bytes, 0u);
    }
  }
}

TEST(GgufReader, TakesBooleansOtherThanZeroAsTrue) {
  const Bytes bytes =
      File({Key("one", GgufType::kBool).Fill(1, 2),
            ArrayEntry("all", GgufType::kBool, 3).Fill(1, 0).Fill(1, 1).Fill(1, 255)},
           {}, 0);
  const GgufFile file = Parse(bytes);
  EXPECT_EQ(*file.GetBool("one"), true);
  EXPECT_EQ((*file.GetArray("all", GgufType::kBool))->count, 3u);
}

TEST(GgufReader, TensorsMayBeEmpty) {
  const Bytes bytes = File({},
                           {TensorInfo("full", {8}, kF32, 0), TensorInfo("none", {0}, kF32, 0),
                            TensorInfo("rows", {32, 0}, test::kQ40, 32)},
                           32);
  const GgufFile file = Parse(bytes);
  EXPECT_EQ(file.FindTensor("none")->n_values(), 0);
  EXPECT_EQ(file.FindTensor("none")->size_bytes, 0u);
  EXPECT_EQ(file.FindTensor("rows")->rows(), 0);
  EXPECT_EQ(file.FindTensor("full")->size_bytes, 32u);
  // Nothing has to follow the last one, not even what aligns data.
  const Bytes alone = test::Header(1, 0).Append(TensorInfo("none", {0}, kF32, 0));
  const GgufFile short_file = Parse(alone);
  EXPECT_LE(short_file.FindTensor("none")->data, alone.span().data() + alone.size());
  // The bytes of a row are counted where there is none.
  const Bytes huge = File({}, {TensorInfo("huge", {uint64_t{1} << 62, 0}, kF32, 0)}, 0);
  EXPECT_FALSE(GgufFile::Parse(huge.span(), "test").ok());
}

TEST(GgufGetters, GiveNothingForAbsentKeys) {
  const Bytes bytes = test::Header(0, 0);
  const GgufFile file = Parse(bytes);
  EXPECT_EQ(*file.GetU32("x"), std::nullopt);
  EXPECT_EQ(*file.GetF32("x"), std::nullopt);
  EXPECT_EQ(*file.GetBool("x"), std::nullopt);
  EXPECT_EQ(*file.GetString("x"), std::nullopt);
  EXPECT_EQ(*file.GetArray("x", GgufType::kInt32), nullptr);
}

TEST(GgufGetters, CheckTheTypeOfEveryValue) {
  auto opened = GgufFile::Open(Fixture("every-type.gguf"));
  ASSERT_TRUE(opened.ok());
  const GgufFile& file = *opened;
  const std::map<std::string_view, std::string_view> kinds = {
      {"test.uint8", "integer"},   {"test.uint16", "integer"},  {"test.uint32", "integer"},
      {"test.float32", "float"},   {"test.true", "bool"},       {"test.false", "bool"},
      {"test.string", "string"},   {"test.int32s", "int32s"},   {"test.float32s", "float32s"},
      {"test.strings", "strings"}, {"test.uint32s", "uint32s"}, {"test.bools", "bools"}};
  for (const auto& [key, kind] : kinds) {
    ASSERT_NE(file.Find(key), nullptr) << key;
    EXPECT_EQ(file.GetU32(key).ok(), kind == "integer") << key;
    EXPECT_EQ(file.GetF32(key).ok(), kind == "float") << key;
    EXPECT_EQ(file.GetBool(key).ok(), kind == "bool") << key;
    EXPECT_EQ(file.GetString(key).ok(), kind == "string") << key;
    EXPECT_EQ(file.GetArray(key, GgufType::kInt32).ok(), kind == "int32s") << key;
    EXPECT_EQ(file.GetArray(key, GgufType::kUint32).ok(), kind == "uint32s") << key;
    EXPECT_EQ(file.GetArray(key, GgufType::kFloat32).ok(), kind == "float32s") << key;
    EXPECT_EQ(file.GetArray(key, GgufType::kString).ok(), kind == "strings") << key;
    EXPECT_EQ(file.GetArray(key, GgufType::kBool).ok(), kind == "bools") << key;
  }
  const auto wrong = file.GetU32("test.int32s");
  EXPECT_EQ(wrong.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(wrong.error().message,
              HasSubstr("key \"test.int32s\" is an array of 2 int32 values, expected an integer"));
}

TEST(GgufGetters, NarrowOnlyWhatFits) {
  const double huge = 1e39;
  const double infinity = std::numeric_limits<double>::infinity();
  const Bytes bytes = File(
      {Key("u64", GgufType::kUint64).U64(0xffffffffu),
       Key("u64+", GgufType::kUint64).U64(1ull << 32), Key("i8", GgufType::kInt8).Number(int8_t{5}),
       Key("i8-", GgufType::kInt8).Number(int8_t{-1}),
       Key("i64", GgufType::kInt64).Number(int64_t{0xffffffff}),
       Key("i64+", GgufType::kInt64).Number(int64_t{1} << 32),
       Key("i64-", GgufType::kInt64).Number(std::numeric_limits<int64_t>::min()),
       Key("f64", GgufType::kFloat64).Number(0.1), Key("f64+", GgufType::kFloat64).Number(huge),
       Key("inf", GgufType::kFloat64).Number(infinity),
       Key("nan", GgufType::kFloat32).Number(std::numeric_limits<float>::quiet_NaN())},
      {}, 0);
  const GgufFile file = Parse(bytes);
  EXPECT_EQ(*file.GetU32("u64"), 0xffffffffu);
  EXPECT_EQ(*file.GetU32("i8"), 5u);
  EXPECT_EQ(*file.GetU32("i64"), 0xffffffffu);
  EXPECT_EQ(*file.GetF32("f64"), 0.1f);
  EXPECT_EQ(*file.GetF32("inf"), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(file.GetF32("nan").value().value()));
  for (const char* key : {"u64+", "i8-", "i64+", "i64-"}) {
    const auto value = file.GetU32(key);
    ASSERT_FALSE(value.ok()) << key;
    EXPECT_EQ(value.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(value.error().message, HasSubstr("expected 0 to 4294967295"));
  }
  EXPECT_FALSE(file.GetF32("f64+").ok());
}

TEST(GgufReader, SurvivesMoves) {
  auto opened = GgufFile::Open(Fixture("every-type.gguf"));
  ASSERT_TRUE(opened.ok());
  GgufFile first = std::move(opened).value();
  const Bytes empty = test::Header(0, 0);
  GgufFile second = Parse(empty);
  second = std::move(first);
  ExpectSame(Describe(second), ReadJson("every-type.json"));
}

TEST(GgufReader, OpensEveryRealModelAndVocabulary) {
  for (const char* folder : {"models", "tokenizers"}) {
    KVANT_SKIP_WITHOUT(test::SharedPath(folder));
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(test::SharedPath(folder))) {
      const std::string path = entry.path().string();
      if (!path.ends_with(".gguf")) continue;
      auto file = GgufFile::Open(path);
      if (path.ends_with(".v1.gguf")) {
        ASSERT_FALSE(file.ok());
        EXPECT_THAT(file.error().message, HasSubstr("GGUF version 1 is not supported"));
        continue;
      }
      ASSERT_TRUE(file.ok()) << file.error().message;
      const auto tokens = file->GetArray("tokenizer.ggml.tokens", GgufType::kString);
      ASSERT_TRUE(tokens.ok()) << tokens.error().message;
      ASSERT_NE(*tokens, nullptr) << path;
      EXPECT_GE((*tokens)->strings.size(), 512u) << path;
      EXPECT_EQ(file->tensors().empty(), std::string_view(folder) == "tokenizers") << path;
    }
  }
}

}  // namespace
}  // namespace kvant::formats
