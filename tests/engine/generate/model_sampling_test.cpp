// Settings for sampling in a model's file: every number is checked, and what is not used is named.
#include "engine/generate/model_sampling.h"
#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>

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

ModelSampling ReadSampling(const std::vector<Bytes>& metadata) {
  const Bytes bytes = File(metadata, {}, 0);
  const auto file = formats::GgufFile::Parse(bytes.span(), "m.gguf");
  EXPECT_TRUE(file.ok());
  return ReadModelSampling(*file);
}

TEST(ModelSampling, ReadsWhatTheSamplersHave) {
  const ModelSampling read =
      ReadSampling({F32("temp", 0.6f), I32("top_k", 20), F32("top_p", 0.95f), F32("min_p", 0.0f),
                    F32("penalty_repeat", 1.1f), I32("penalty_last_n", -1), I32("mirostat", 2),
                    F32("mirostat_tau", 4.5f), F32("mirostat_eta", 0.2f),
                    F32("xtc_probability", 0.5f), F32("xtc_threshold", 0.25f), F32("typ_p", 0.5f),
                    Key("general.sampling.sequence", GgufType::kString).String("top_k;temperature"),
                    Key("general.name", GgufType::kString).String("m")});
  for (const auto& [key, value] : std::map<std::string, double>{{"temp", 0.6f},
                                                                {"top_k", 20},
                                                                {"top_p", 0.95f},
                                                                {"min_p", 0.0f},
                                                                {"penalty_repeat", 1.1f},
                                                                {"penalty_last_n", -1},
                                                                {"mirostat", 2},
                                                                {"mirostat_tau", 4.5f},
                                                                {"mirostat_eta", 0.2f},
                                                                {"xtc_probability", 0.5f},
                                                                {"xtc_threshold", 0.25f}}) {
    EXPECT_EQ(read.Find(key), value) << key;
  }
  EXPECT_EQ(read.settings.size(), 11u);
  ASSERT_TRUE(read.samplers.has_value());
  EXPECT_THAT(*read.samplers, ElementsAre("top_k", "temperature"));
  EXPECT_THAT(read.unused, ElementsAre("general.sampling.typ_p"));
}

TEST(ModelSampling, AcceptsEveryTypeOfNumber) {
  const ModelSampling read =
      ReadSampling({I32("temp", 1), Key("general.sampling.top_k", GgufType::kUint64).U64(7),
                    Key("general.sampling.top_p", GgufType::kFloat64).Number(0.5)});
  EXPECT_EQ(read.Find("temp"), 1);
  EXPECT_EQ(read.Find("top_k"), 7);
  EXPECT_EQ(read.Find("top_p"), 0.5);
  EXPECT_THAT(read.unused, IsEmpty());
}

TEST(ModelSampling, LeavesOutWhatMakesNoSense) {
  const float nan = std::nanf("");
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Bytes& entry :
       {F32("temp", nan),
        F32("temp", infinity),
        F32("temp", -1.0f),
        F32("top_p", 1.5f),
        F32("top_p", -0.1f),
        F32("min_p", nan),
        F32("penalty_repeat", 0.0f),
        F32("penalty_repeat", -2.0f),
        F32("top_k", 3.0f),
        I32("penalty_last_n", -2),
        Key("general.sampling.top_k", GgufType::kUint64).U64(1ull << 40),
        Key("general.sampling.top_k", GgufType::kInt64).Number(int64_t{-1} << 40),
        I32("mirostat", 3),
        F32("mirostat_eta", -1.0f),
        F32("xtc_threshold", 2.0f),
        Key("general.sampling.sequence", GgufType::kString).String("fill;top_k"),
        I32("sequence", 1),
        Key("general.sampling.temp", GgufType::kString).String("0.5"),
        Key("general.sampling.temp", GgufType::kFloat64).Number(1e300),
        ArrayEntry("general.sampling.temp", GgufType::kFloat32, 1).Number(0.5f)}) {
    const ModelSampling read = ReadSampling({entry});
    EXPECT_EQ(read.unused.size(), 1u);
    EXPECT_THAT(read.settings, IsEmpty());
    EXPECT_FALSE(read.samplers.has_value());
  }
  EXPECT_THAT(ReadSampling({}).unused, IsEmpty());
}

}  // namespace
}  // namespace kvant::test
