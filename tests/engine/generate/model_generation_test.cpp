// Settings for generation in a model's file: every value is checked, and what is wrong is named.
#include "engine/generate/model_generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/engine/tiny_model.h"
#include "tests/formats/gguf_bytes.h"

namespace kvant::test {
namespace {

using formats::GgufType;
using testing::ElementsAre;

constexpr uint64_t kGenerationVocab = 40;

std::string Name(std::string_view name) { return "bart.generation." + std::string(name); }
Bytes U32(std::string_view name, uint32_t value) { return U32Entry(Name(name), value); }
Bytes IntEntry(std::string_view name, int32_t value) {
  return Key(Name(name), GgufType::kInt32).Number(value);
}
Bytes FloatEntry(std::string_view name, float value) {
  return Key(Name(name), GgufType::kFloat32).Number(value);
}
Bytes TextEntry(std::string_view name, std::string_view value) {
  return Key(Name(name), GgufType::kString).String(value);
}
Bytes IdsEntry(std::string_view name, const std::vector<int32_t>& ids,
               GgufType type = GgufType::kInt32) {
  Bytes entry = ArrayEntry(Name(name), type, ids.size());
  for (const int32_t id : ids) entry.Number(id);
  return entry;
}

Result<ModelGeneration> Read(std::vector<Bytes> metadata) {
  metadata.push_back(Key("general.architecture", GgufType::kString).String("bart"));
  metadata.push_back(ArrayEntry("tokenizer.ggml.tokens", GgufType::kString, kGenerationVocab));
  for (uint64_t i = 0; i < kGenerationVocab; ++i) metadata.back().String("a");
  const Bytes bytes = File(metadata, {}, 0);
  const auto file = formats::GgufFile::Parse(bytes.span(), "m.gguf");
  if (!file.ok()) return file.error();
  return ReadModelGeneration(*file);
}

std::string Wrong(const std::vector<Bytes>& metadata) {
  const auto read = Read(metadata);
  return read.ok() ? "" : read.error().message;
}

TEST(ModelGeneration, ReadsWhatATextBeginsWith) {
  const auto read = Read({IdsEntry("forced_decoder_ids", {3, 39})});
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_THAT(read->first_tokens, ElementsAre(3, 39));
  EXPECT_TRUE(read->Has("forced_decoder_ids"));
  EXPECT_THAT(Wrong({IdsEntry("forced_decoder_ids", {3, 40})}),
              testing::HasSubstr("bart.generation.forced_decoder_ids: expected a token below 40"));
  // A language may be open where there are some.
  const Bytes languages = ArrayEntry("bart.languages", GgufType::kInt32, 1).Number(int32_t{5});
  const auto open = Read({IdsEntry("forced_decoder_ids", {-1, 4}), languages});
  ASSERT_TRUE(open.ok()) << open.error().message;
  EXPECT_THAT(open->first_tokens, ElementsAre(kOpenLanguage, 4));
  EXPECT_THAT(Wrong({IdsEntry("forced_decoder_ids", {-1, 4})}), testing::HasSubstr("found -1"));
  EXPECT_THAT(Wrong({IdsEntry("forced_decoder_ids", {-2}), languages}),
              testing::HasSubstr("found -2"));
  EXPECT_THAT(Wrong({IdsEntry("forced_decoder_ids", {-1, -1}), languages}),
              testing::HasSubstr("one open language"));
}

TEST(ModelGeneration, ReadsEveryKey) {
  const auto read = Read({U32("num_beams", 4), FloatEntry("length_penalty", 2.0f),
                          TextEntry("early_stopping", "true"), U32("max_length", 142),
                          U32("min_length", 56), U32("no_repeat_ngram", 3), U32("forced_bos_id", 0),
                          IntEntry("forced_eos_id", 2), IdsEntry("suppress_ids", {5, 39}),
                          IdsEntry("begin_suppress_ids", {7}, GgufType::kUint32),
                          Key(Name("renormalize"), GgufType::kBool).Number(uint8_t{1})});
  ASSERT_TRUE(read.ok()) << read.error().message;
  const BeamOptions& options = read->options;
  EXPECT_EQ(options.beams, 4);
  EXPECT_EQ(options.length_penalty, 2.0f);
  EXPECT_EQ(options.early_stopping, EarlyStopping::kTrue);
  EXPECT_EQ(options.max_length, 142);
  EXPECT_EQ(options.min_length, 56);
  EXPECT_EQ(options.no_repeat_ngram, 3);
  EXPECT_EQ(options.forced_bos, 0);
  EXPECT_THAT(options.forced_eos, ElementsAre(2));
  EXPECT_THAT(options.suppress, ElementsAre(5, 39));
  EXPECT_THAT(options.begin_suppress, ElementsAre(7));
  EXPECT_TRUE(options.renormalize);
}

TEST(ModelGeneration, KnowsWhichKeysAreThere) {
  const Bytes bytes = File(
      {Key("general.architecture", GgufType::kString).String("bart"),
       ArrayEntry("tokenizer.ggml.tokens", GgufType::kString, 2).String("a").String("b"),
       U32("num_beams", 4), U32("alignment_heads", 4), U32Entry("t5.generation.min_length", 9)},
      {}, 0);
  const auto file = formats::GgufFile::Parse(bytes.span(), "m.gguf");
  ASSERT_TRUE(file.ok());
  const auto read = ReadModelGeneration(*file);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_THAT(read->names, ElementsAre("num_beams"));
  EXPECT_TRUE(read->Has("num_beams"));
  EXPECT_FALSE(read->Has("min_length"));
  EXPECT_EQ(read->options.min_length, 0);
}

TEST(ModelGeneration, SeveralTokensMayEndIt) {
  const auto read = Read({IdsEntry("forced_eos_id", {2, 3})});
  ASSERT_TRUE(read.ok());
  EXPECT_THAT(read->options.forced_eos, ElementsAre(2, 3));
}

TEST(ModelGeneration, WrongValuesAreNamed) {
  const std::string key = "m.gguf: key bart.generation.";
  EXPECT_EQ(Wrong({U32("num_beams", 0)}), key + "num_beams: expected 1 to 4096, found 0");
  EXPECT_EQ(Wrong({U32("max_length", 0)}), key + "max_length: expected 1 to 1073741824, found 0");
  EXPECT_EQ(Wrong({U32("min_length", 1u << 31)}),
            key + "min_length: expected 0 to 1073741824, found 2147483648");
  EXPECT_EQ(Wrong({FloatEntry("length_penalty", std::numeric_limits<float>::quiet_NaN())}),
            key + "length_penalty: expected -1000000 to 1000000, found nan");
  EXPECT_EQ(Wrong({U32("forced_bos_id", 40)}),
            key + "forced_bos_id: expected a token below 40, found 40");
  EXPECT_EQ(Wrong({U32("forced_eos_id", 99)}),
            key + "forced_eos_id: expected a token below 40, found 99");
  EXPECT_EQ(Wrong({IdsEntry("suppress_ids", {1, -1})}),
            key + "suppress_ids: expected a token below 40, found -1");
  EXPECT_EQ(Wrong({IdsEntry("begin_suppress_ids", {40}, GgufType::kUint32)}),
            key + "begin_suppress_ids: expected a token below 40, found 40");
  EXPECT_EQ(Wrong({TextEntry("early_stopping", "now")}),
            key + "early_stopping: expected true, false or never, found 'now'");
  // Values of other types.
  EXPECT_EQ(Wrong({ArrayEntry(Name("suppress_ids"), GgufType::kFloat32, 1).Number(1.0f)}),
            key + "suppress_ids: expected 32-bit integers, found float32");
  EXPECT_THAT(Wrong({TextEntry("num_beams", "4")}),
              testing::HasSubstr("bart.generation.num_beams"));
  EXPECT_THAT(Wrong({FloatEntry("forced_bos_id", 1)}),
              testing::HasSubstr("generation.forced_bos_id"));
  EXPECT_THAT(Wrong({U32("renormalize", 1)}), testing::HasSubstr("generation.renormalize"));
  EXPECT_THAT(Wrong({U32("early_stopping", 1)}), testing::HasSubstr("generation.early_stopping"));
  EXPECT_THAT(Wrong({U32("length_penalty", 1)}), testing::HasSubstr("generation.length_penalty"));
}

TEST(ModelGeneration, ValuesThatContradictEachOtherAreRefused) {
  EXPECT_EQ(Wrong({U32("max_length", 9), U32("min_length", 10)}),
            "m.gguf: keys bart.generation: min-length: expected 0 to 9, found 10");
  EXPECT_EQ(Wrong({U32("forced_bos_id", 3), IdsEntry("suppress_ids", {3})}),
            "m.gguf: keys bart.generation: suppress: expected tokens that are not forced, found 3, "
            "which forced-bos forces");
}

// A model is opened with what its file asks for, or with the reason why that makes no sense.
TEST(ModelGeneration, IsAmongTheDefaultsOfAModel) {
  TinyShape shape;
  shape.extra = {{"generation.num_beams", 3}, {"generation.max_length", 40}};
  const auto model = OpenTiny(shape);
  ASSERT_NE(model, nullptr);
  const ModelDefaults& defaults = model->defaults();
  ASSERT_TRUE(defaults.search.ok()) << defaults.search.error().message;
  EXPECT_EQ(defaults.search->options.beams, 3);
  EXPECT_EQ(defaults.search->options.max_length, 40);
  EXPECT_THAT(defaults.search->names, ElementsAre("num_beams", "max_length"));
  EXPECT_THAT(defaults.search->options.end_tokens, ElementsAre(2));
  EXPECT_THAT(defaults.end_tokens, ElementsAre(2));
  EXPECT_TRUE(defaults.sampling_numbers.empty());
  EXPECT_EQ(defaults.chat_template, std::nullopt);
  shape.extra = {{"generation.num_beams", 0}};
  const auto odd = OpenTiny(shape);
  ASSERT_NE(odd, nullptr);
  ASSERT_FALSE(odd->defaults().search.ok());
  EXPECT_EQ(odd->defaults().search.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(odd->defaults().search.error().message,
              testing::HasSubstr("key llama.generation.num_beams: expected 1 to"));
}

}  // namespace
}  // namespace kvant::test
