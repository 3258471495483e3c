// Reading model.bin of CTranslate2: what is in it, in all versions, and files that lie.
#include "formats/ctranslate2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "tests/formats/ctranslate2_bytes.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using formats::CTranslate2Model;
using testing::ElementsAre;
using testing::HasSubstr;
using Builder = CTranslate2Builder;

Result<CTranslate2Model> Parse(const std::string& bytes) {
  return CTranslate2Model::Parse(std::as_bytes(std::span(bytes)), "model.bin");
}

std::string Message(const std::string& bytes) {
  const auto model = Parse(bytes);
  return model.ok() ? "accepted" : model.error().message;
}

Builder Small() {
  Builder builder;
  builder.AddF32("a/weight", {2, 3}, {1, 2, 3, 4, 5, 6});
  builder.AddI8("b", {}, {-3});
  builder.aliases = {{"c/weight", "a/weight"}};
  return builder;
}

TEST(CTranslate2File, HasVariablesScalarsAndAliases) {
  const std::string bytes = Small().Bytes();
  const auto model = Parse(bytes);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->spec(), "TransformerSpec");
  EXPECT_EQ(model->version(), 6u);
  EXPECT_EQ(model->revision(), 7u);
  ASSERT_EQ(model->variables().size(), 2u);
  const auto* weight = model->Find("a/weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_THAT(weight->shape, ElementsAre(2, 3));
  EXPECT_EQ(weight->type->name, "F32");
  EXPECT_EQ(weight->size_bytes, 24u);
  float last = 0;
  std::memcpy(&last, weight->data + 20, sizeof(last));
  EXPECT_EQ(last, 6.0f);
  EXPECT_EQ(model->Find("c/weight"), weight);
  EXPECT_EQ(model->Find("d"), nullptr);
  EXPECT_EQ(*model->Number("b"), -3.0);
  EXPECT_EQ(*model->Number("d"), std::nullopt);
  EXPECT_THAT(model->Number("a/weight").error().message, HasSubstr("has 6 values, expected one"));
}

TEST(CTranslate2File, NumbersOfAllTypes) {
  Builder builder;
  builder.variables = {{"i8", {}, 1, Builder::RawNumber(int8_t{-1})},
                       {"i16", {}, 2, Builder::RawNumber(int16_t{-300})},
                       {"i32", {1}, 3, Builder::RawNumber(int32_t{70000})},
                       {"f32", {}, 0, Builder::RawNumber(0.25f)},
                       {"f16", {}, 4, Builder::RawNumber(uint16_t{0x3C00})},
                       {"bf16", {}, 5, Builder::RawNumber(uint16_t{0x4000})},
                       {"inf", {}, 4, Builder::RawNumber(uint16_t{0x7C00})},
                       {"text", {3}, 1, "<s>"}};
  const std::string bytes = builder.Bytes();
  const auto model = Parse(bytes);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(*model->Number("i8"), -1.0);
  EXPECT_EQ(*model->Number("i16"), -300.0);
  EXPECT_EQ(*model->Number("i32"), 70000.0);
  EXPECT_EQ(*model->Number("f32"), 0.25);
  EXPECT_EQ(*model->Number("f16"), 1.0);
  EXPECT_EQ(*model->Number("bf16"), 2.0);
  EXPECT_THAT(model->Number("inf").error().message, HasSubstr("expected a finite number"));
  EXPECT_EQ(*model->Text("text"), "<s>");
  EXPECT_EQ(*model->Text("other"), std::nullopt);
  EXPECT_THAT(model->Text("i16").error().message, HasSubstr("expected a text"));
}

// Before version 4 a variable has the bytes of a value in place of a type, before version 3 there
// are no aliases.
TEST(CTranslate2File, OlderVersions) {
  for (const uint32_t version : {2u, 3u}) {
    Builder builder;
    builder.version = version;
    builder.AddF32("a", {2}, {1, 2});
    builder.variables.push_back({"b", {1}, 2, Builder::RawNumber(int16_t{9})});
    if (version == 3) builder.aliases = {{"c", "a"}};
    const std::string bytes = builder.Bytes();
    const auto model = Parse(bytes);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_EQ(model->Find("a")->type->name, "F32");
    EXPECT_EQ(*model->Number("b"), 9.0);
    EXPECT_EQ(model->Find("c") != nullptr, version == 3);
  }
  for (const uint32_t version : {0u, 1u, 7u}) {
    Builder builder;
    builder.version = version;
    EXPECT_THAT(Message(builder.Bytes()),
                HasSubstr("versions 2 to 6: the version is " + std::to_string(version)));
  }
}

TEST(CTranslate2File, EveryCutIsFound) {
  const std::string bytes = Small().Bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string message = Message(bytes.substr(0, size));
    EXPECT_THAT(message, HasSubstr("model.bin: ")) << size;
    EXPECT_NE(message, "accepted") << size;
  }
  EXPECT_THAT(Message(bytes + "x"), HasSubstr("1 bytes behind the last variable or alias"));
}

TEST(CTranslate2File, LiesAreFound) {
  const auto with = [](const CTranslate2Variable& variable) {
    Builder builder;
    builder.variables = {variable};
    return Message(builder.Bytes());
  };
  EXPECT_THAT(with({"a", {2, 3}, 0, std::string(20, 'x')}),
              HasSubstr("variable \"a\" has 20 bytes, but its shape and type F32 make 6 values"));
  EXPECT_THAT(with({"a", {1u << 31, 1u << 31, 4}, 1, ""}), HasSubstr("more than 2^64 values"));
  EXPECT_THAT(with({"a", {1u << 31, 1u << 31}, 0, ""}), HasSubstr("values of 4"));
  EXPECT_THAT(with({"a", {1}, 6, "x"}), HasSubstr("variable \"a\": type 6, expected 0 to 5"));
  EXPECT_THAT(with({"a", std::vector<uint32_t>(9, 1), 1, "x"}), HasSubstr("has 9 dimensions"));
  EXPECT_THAT(with({"", {}, 1, "x"}), HasSubstr("variable 1 of 1 has no name"));
  Builder builder = Small();
  builder.variables.push_back(builder.variables.front());
  EXPECT_THAT(Message(builder.Bytes()), HasSubstr("variable \"a/weight\" occurs twice"));
  builder = Small();
  builder.aliases.emplace_back("d", "nothing");
  EXPECT_THAT(Message(builder.Bytes()), HasSubstr("stands for the variable \"nothing\""));
  builder.aliases.back() = {"b", "a/weight"};
  EXPECT_THAT(Message(builder.Bytes()), HasSubstr("alias \"b\" is the name of a variable, too"));
  builder.aliases.back() = builder.aliases.front();
  EXPECT_THAT(Message(builder.Bytes()), HasSubstr("alias \"c/weight\" occurs twice"));
  builder = Small();
  builder.version = 3;
  builder.variables = {{"a", {1}, 3, "xyz"}};
  EXPECT_THAT(Message(builder.Bytes()), HasSubstr("values of bytes 3, expected 1, 2 or 4"));
}

TEST(CTranslate2File, AnotherFileIsNamed) {
  EXPECT_THAT(Message("PK\x03\x04 and more"), HasSubstr("zip archive"));
  TemporaryFolder folder;
  const std::string path = folder / "model.bin";
  Small().Write(path);
  const auto model = CTranslate2Model::Open(path);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->path(), path);
  EXPECT_FALSE(CTranslate2Model::Open(folder / "other.bin").ok());
}

}  // namespace
}  // namespace kvant::test
