// Settings for sampling in a model's file: every number is checked, and what is not used is named.
#include "engine/generate/model_sampling.h"
#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/formats/gguf_bytes.h"

namespace kvant::test {
namespace {

using formats::GgufType;
using testing::ElementsAre;
using testing::IsEmpty;

Bytes F32(std::string_view name, float value) {
  return Key("general.sampling." + std::string(name), GgufType::kFloat32).Number(value);
}
Bytes I32(std::string_view name, int32_t value) {
  return Key("general.sampling." + std::string(name), GgufType::kInt32).Number(value);
}

ModelSampling Read(const std::vector<Bytes>& metadata) {
  const Bytes bytes = File(metadata, {}, 0);
  const auto file = formats::GgufFile::Parse(bytes.span(), "m.gguf");
  EXPECT_TRUE(file.ok());
  return ReadModelSampling(*file);
}

TEST(ModelSampling, ReadsWhatTheSamplerHas) {
  const ModelSampling read =
      Read({F32("temp", 0.6f), I32("top_k", 20), F32("top_p", 0.95f), F32("min_p", 0.0f),
            F32("penalty_repeat", 1.1f), I32("penalty_last_n", -1), I32("mirostat", 2),
            Key("general.sampling.sequence", GgufType::kString).String("k"),
            Key("general.name", GgufType::kString).String("m")});
  EXPECT_EQ(read.temperature, 0.6f);
  EXPECT_EQ(read.top_k, 20);
  EXPECT_EQ(read.top_p, 0.95f);
  EXPECT_EQ(read.min_p, 0.0f);
  EXPECT_EQ(read.repeat_penalty, 1.1f);
  EXPECT_EQ(read.repeat_last_n, -1);
  EXPECT_THAT(read.unused, ElementsAre("general.sampling.mirostat", "general.sampling.sequence"));
}

TEST(ModelSampling, AcceptsEveryTypeOfNumber) {
  const ModelSampling read =
      Read({I32("temp", 1), Key("general.sampling.top_k", GgufType::kUint64).U64(7),
            Key("general.sampling.top_p", GgufType::kFloat64).Number(0.5)});
  EXPECT_EQ(read.temperature, 1.0f);
  EXPECT_EQ(read.top_k, 7);
  EXPECT_EQ(read.top_p, 0.5f);
  EXPECT_THAT(read.unused, IsEmpty());
}

TEST(ModelSampling, LeavesOutWhatMakesNoSense) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Bytes& entry :
       {F32("temp", nan), F32("temp", infinity), F32("temp", -1.0f), F32("top_p", 1.5f),
        F32("top_p", -0.1f), F32("min_p", nan), F32("penalty_repeat", 0.0f),
        F32("penalty_repeat", -2.0f), F32("top_k", 3.0f), I32("penalty_last_n", -2),
        Key("general.sampling.top_k", GgufType::kUint64).U64(1ull << 40),
        Key("general.sampling.top_k", GgufType::kInt64).Number(int64_t{-1} << 40),
        Key("general.sampling.temp", GgufType::kString).String("0.5"),
        Key("general.sampling.temp", GgufType::kFloat64).Number(1e300),
        ArrayEntry("general.sampling.temp", GgufType::kFloat32, 1).Number(0.5f)}) {
    const ModelSampling read = Read({entry});
    EXPECT_EQ(read.unused.size(), 1u);
    EXPECT_FALSE(read.temperature || read.top_k || read.top_p || read.min_p ||
                 read.repeat_penalty || read.repeat_last_n);
  }
  EXPECT_THAT(Read({}).unused, IsEmpty());
}

}  // namespace
}  // namespace kvant::test
