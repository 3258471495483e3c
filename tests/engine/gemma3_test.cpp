// Gemma 3 from Hugging Face folders to logits: folders of random models and what transformers
// computes from them, both written by tests/reference/make_gemma3.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "engine/arch/spec.h"
#include "engine/convert/convert.h"
#include "formats/npy.h"
#include "tests/engine/logit_comparison.h"
#include "tests/engine/tiny_model.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// A copy of a folder of tests/reference/gemma3, to be changed and converted.
class Gemma3Folder {
 public:
  explicit Gemma3Folder(const std::string& name)
      : source_(SourcePath("tests/reference/gemma3/" + name)) {
    fs::copy(source_, folder_.path(), fs::copy_options::recursive);
    config = nlohmann::json::parse(std::ifstream(source_ + "/config.json"));
  }

  std::string operator/(const std::string& name) const { return folder_ / name; }
  void Remove(const std::string& name) const { fs::remove(folder_ / name); }

  Result<std::string> Convert(const std::string& type = "") const {
    std::ofstream(folder_ / "config.json") << config;
    const std::string output = folder_ / "out.gguf";
    KVANT_TRY(
        convert::ConvertFolder(folder_.path().string(), output, {.type = type, .threads = 1}));
    return output;
  }

  std::shared_ptr<const Model> Open(const ModelOptions& options = {}) const {
    const auto path = Convert();
    EXPECT_TRUE(path.ok()) << path.error().message;
    if (!path.ok()) return nullptr;
    auto model = Model::Open(*path, options);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return model.ok() ? *model : nullptr;
  }

  std::vector<TokenId> Tokens() const { return ReadTokenList(source_ + "/tokens.txt"); }

  nlohmann::json config;

 private:
  std::string source_;
  TemporaryFolder folder_;
};

class Gemma3 : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Hf, Gemma3, testing::Values("usual", "varied"),
                         [](const auto& model) { return model.param; });

TEST_P(Gemma3, LogitsAreThoseOfTransformersOnEveryInstructionSet) {
  const Gemma3Folder folder(GetParam());
  const std::vector<TokenId> tokens = folder.Tokens();
  const auto expected =
      formats::NpyRead(SourcePath("tests/reference/gemma3/" + GetParam() + "/logits.npy"));
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    ModelOptions options;
    options.isa = isa.name;
    const auto model = folder.Open(options);
    ASSERT_NE(model, nullptr);
    // In pieces, so that queries see keys of earlier steps beyond and within their windows.
    for (const size_t piece : {size_t{1}, size_t{29}, tokens.size()}) {
      const auto session = OpenSession(
          model, {.k_type = cpu::KvElement::kF32, .v_type = cpu::KvElement::kF32, .threads = 2});
      const std::vector<float> logits = AllLogits(*session, tokens, piece);
      ASSERT_EQ(logits.size(), expected->values.size());
      EXPECT_LE(MaxDifference(logits, expected->values), 1e-4) << isa.name << ", " << piece;
    }
  }
}

// The context is many times the windows, and longer than what a ring of a window keeps.
TEST_P(Gemma3, RingsAgreeWithTheModelWithoutCacheOverManyWindows) {
  const Gemma3Folder folder(GetParam());
  const auto model = folder.Open();
  ASSERT_NE(model, nullptr);
  constexpr int64_t kContext = 640;
  const std::vector<TokenId> tokens = RandomTokens(kContext, 5, model->vocab_size());
  const auto cached = OpenSession(model, {.context = kContext,
                                          .k_type = cpu::KvElement::kF32,
                                          .v_type = cpu::KvElement::kF32,
                                          .chunk = 64});
  const auto oracle = OpenSession(model, {.context = kContext, .kv_cache = false});
  const std::vector<float> found = AllLogits(*cached, tokens, 7);
  const std::vector<float> expected = AllLogits(*oracle, tokens, tokens.size());
  EXPECT_LE(MaxDifference(found, expected), 1e-4);
}

TEST_P(Gemma3, TextsBecomeTheTokensOfTransformers) {
  const std::string base = SourcePath("tests/reference/gemma3/" + GetParam());
  const auto cases = nlohmann::json::parse(std::ifstream(base + "/texts.json"));
  ASSERT_GT(cases.size(), 4u);
  for (const char* removed : {"tokenizer.model", "tokenizer.json"}) {
    const Gemma3Folder folder(GetParam());
    folder.Remove(removed);
    const auto model = folder.Open();
    ASSERT_NE(model, nullptr);
    for (const auto& entry : cases) {
      const std::string text = entry["text"];
      const auto ids =
          model->tokenizer().Encode(text, {.add_special = true, .parse_special = true});
      ASSERT_TRUE(ids.ok()) << ids.error().message;
      EXPECT_EQ(*ids, entry["ids"].get<std::vector<TokenId>>()) << text << " without " << removed;
      EXPECT_EQ(model->tokenizer().Decode(std::span(*ids).subspan(1), {.special = true}), text);
    }
  }
}

TEST(Gemma3Convert, UsualModelsHaveTheUsualKeysOnly) {
  const auto usual = Gemma3Folder("usual").Open();
  ASSERT_NE(usual, nullptr);
  const auto u32 = [](const Model& model, const char* key) {
    return (*model.file().GetU32(key)).value_or(0);
  };
  EXPECT_EQ(u32(*usual, "gemma3.attention.sliding_window"), 8u);
  EXPECT_EQ(u32(*usual, "gemma3.attention.key_length"), 16u);
  EXPECT_EQ(u32(*usual, "gemma3.attention.value_length"), 16u);
  EXPECT_EQ(u32(*usual, "tokenizer.ggml.bos_token_id"), 2u);
  for (const char* key : {"gemma3.attention.sliding_window_pattern", "gemma3.attention.scale",
                          "gemma3.rope.freq_base_swa"}) {
    EXPECT_EQ(usual->file().Find(key), nullptr) << key;
  }
  const auto varied = Gemma3Folder("varied").Open();
  ASSERT_NE(varied, nullptr);
  EXPECT_EQ(u32(*varied, "gemma3.attention.sliding_window_pattern"), 3u);
  for (const arch::Attention* attention : arch::Attentions(varied->spec().stacks.front())) {
    EXPECT_FLOAT_EQ(attention->scale, 1.0f / std::sqrt(24.0f));
  }
  EXPECT_EQ(varied->spec().ropes[1].base, 500.0f);
  EXPECT_EQ(varied->spec().ropes[1].linear_factor, 1.0f);
  EXPECT_EQ(varied->spec().ropes[0].linear_factor, 4.0f);
}

// Newer versions of transformers write the bases by kind of layer.
TEST(Gemma3Convert, RotaryBasesMayBeGivenByKindOfLayer) {
  Gemma3Folder folder("usual");
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling"}) {
    folder.config.erase(key);
  }
  folder.config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 70000.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 900.0}}}};
  const auto model = folder.Open();
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->spec().ropes[0].base, 70000.0f);
  EXPECT_EQ(model->spec().ropes[0].linear_factor, 8.0f);
  EXPECT_EQ(model->spec().ropes[1].base, 900.0f);
}

TEST(Gemma3Convert, FoldersThatCannotBeConvertedAreRefusedWithTheReason) {
  const auto message = [](const std::function<void(nlohmann::json&)>& change) {
    Gemma3Folder folder("usual");
    change(folder.config);
    const auto path = folder.Convert();
    return path.ok() ? "accepted" : path.error().message;
  };
  const auto set = [](const char* key, const nlohmann::json& value) {
    return [=](nlohmann::json& config) { config[key] = value; };
  };
  EXPECT_EQ(message([](nlohmann::json&) {}), "accepted");
  EXPECT_THAT(message(set("final_logit_softcapping", 30.0)), HasSubstr("final_logit_softcapping"));
  EXPECT_THAT(message(set("use_bidirectional_attention", true)),
              HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(message(set("hidden_activation", "relu")),
              HasSubstr("hidden_activation \"relu\" is not supported"));
  EXPECT_THAT(message(set("layer_types", nlohmann::json::array({"full_attention"}))),
              HasSubstr("an array of 7 texts"));
  EXPECT_THAT(message([](nlohmann::json& config) { config["layer_types"][3] = "full_attention"; }),
              HasSubstr("every n-th layer"));
  EXPECT_THAT(message([](nlohmann::json& config) { config["layer_types"][3] = 5; }),
              HasSubstr("layer_types"));
  EXPECT_THAT(message(set("sliding_window", nullptr)), HasSubstr("sliding_window"));
  EXPECT_THAT(message(set("query_pre_attn_scalar", 0)), HasSubstr("query_pre_attn_scalar"));
  EXPECT_THAT(message(set("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}})),
              HasSubstr("\"yarn\""));
  EXPECT_THAT(message(set("rope_local_base_freq", -1)), HasSubstr("rope_local_base_freq"));
}

}  // namespace
}  // namespace kvant::test
