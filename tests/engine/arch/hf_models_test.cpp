// Models of all families from Hugging Face folders to logits: folders of random models and what
// transformers computes from them, written by the scripts of tests/reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "cpu/dispatch.h"
#include "cpu/kv_format_list.h"
#include "engine/arch/family.h"
#include "formats/npy.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/convert/hf_reference_folder.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

namespace fs = std::filesystem;

// "gemma3/usual" and so on: folders with the logits of a model.
std::vector<std::string> FolderNames() {
  std::vector<std::string> names;
  const fs::path root = SourcePath("tests/reference");
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!fs::exists(entry.path() / "config.json") || !fs::exists(entry.path() / "logits.npy")) {
      continue;
    }
    names.push_back(fs::relative(entry.path(), root).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class HfModels : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Reference, HfModels, testing::ValuesIn(FolderNames()),
                         [](const auto& folder) {
                           std::string name = folder.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

SessionOptions HfOptions() {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.threads = 2;
  return options;
}

// A family whose weights other programs compute otherwise would pass every other test.
TEST(HfModels, EveryFamilyThatIsNoVariantOfLlamaHasFolders) {
  std::vector<std::string> names = FolderNames();  // "qwen2/usual"
  for (const char* folder : {"", kSeededPairs, kSeededSpeech, kSeededEncoders, kSeededEmbedders}) {
    for (const std::string& name : SeededModelNames(folder)) names.push_back(name + ".json");
  }
  for (const arch::Family* family : arch::AllFamilies()) {
    // Files of other engines hold them to their reference (trained_models_test.cpp).
    if (family->name == "llama" || family->name == "phi3") continue;
    EXPECT_TRUE(std::ranges::any_of(names, [&](const std::string& name) {
      return name.find_first_of("/.-", family->name.size()) == family->name.size() &&
             name.starts_with(family->name);
    })) << family->name;
  }
}

// Roundings of 32-bit floats on logits of a few units.
constexpr double kHfTolerance = 1e-4;

TEST_P(HfModels, LogitsAreThoseOfTransformersOnEveryInstructionSet) {
  const HfReferenceFolder folder(GetParam());
  const std::vector<TokenId> tokens = folder.Tokens();
  const auto expected = formats::NpyRead(folder.LogitsPath());
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    ModelOptions options;
    options.isa = isa.name;
    const auto model = folder.Open(options);
    ASSERT_NE(model, nullptr);
    // In pieces, so that queries see keys of earlier steps beyond and within their windows.
    for (const size_t piece : {size_t{1}, size_t{29}, tokens.size()}) {
      const auto session = OpenSession(model, HfOptions());
      const std::vector<float> logits = AllLogits(*session, tokens, piece);
      ASSERT_EQ(logits.size(), expected->values.size());
      EXPECT_LE(MaxDifference(logits, expected->values), kHfTolerance) << isa.name << ", " << piece;
    }
  }
}

// The context is many times the windows, and longer than what a ring of a window keeps.
TEST_P(HfModels, CachesAgreeWithTheModelWithoutCacheOverManyWindows) {
  const HfReferenceFolder folder(GetParam());
  const auto model = folder.Open();
  ASSERT_NE(model, nullptr);
  constexpr int64_t kContext = 640;
  const std::vector<TokenId> tokens = RandomTokens(kContext, 5, model->vocab_size());
  SessionOptions options = HfOptions();
  options.context = kContext;
  options.chunk = 64;
  const auto cached = OpenSession(model, options);
  const auto oracle = OpenSession(model, {.context = kContext, .kv_cache = false});
  const std::vector<float> found = AllLogits(*cached, tokens, 7);
  const std::vector<float> expected = AllLogits(*oracle, tokens, tokens.size());
  EXPECT_LE(MaxDifference(found, expected), kHfTolerance);
}

TEST_P(HfModels, TextsBecomeTheTokensOfTransformers) {
  const nlohmann::json cases = HfReferenceFolder(GetParam()).Texts();
  ASSERT_GT(cases.size(), 4u);
  // Where the tokenizer is there in both of its forms, each is read without the other.
  for (const char* removed : {"tokenizer.model", "tokenizer.json"}) {
    const HfReferenceFolder folder(GetParam());
    if (fs::exists(folder / "tokenizer.model")) folder.Remove(removed);
    const auto model = folder.Open();
    ASSERT_NE(model, nullptr);
    const Tokenizer& tokenizer = model->tokenizer();
    for (const auto& entry : cases) {
      const std::string text = entry["text"];
      const auto ids = tokenizer.Encode(text, {.add_special = true, .parse_special = true});
      ASSERT_TRUE(ids.ok()) << ids.error().message;
      EXPECT_EQ(*ids, entry["ids"].get<std::vector<TokenId>>()) << text << " without " << removed;
      const size_t first = tokenizer.special().add_bos ? 1 : 0;
      EXPECT_EQ(tokenizer.Decode(std::span(*ids).subspan(first), {.special = true}),
                entry.value("decoded", text));
    }
  }
}

TEST_P(HfModels, VariantsThatCannotBeConvertedAreRefusedWithTheReason) {
  HfReferenceFolder folder(GetParam());
  EXPECT_EQ(folder.Message(), "accepted");
  folder.config["num_experts"] = 8;
  EXPECT_THAT(folder.Message(), testing::HasSubstr("mixture of experts (8 experts)"));
  folder.config.erase("num_experts");
  folder.config["rope_scaling"] = {{"rope_type", "stretched"}, {"factor", 2.0}};
  EXPECT_THAT(folder.Message(), testing::HasSubstr("\"stretched\" is not supported"));
}

// Settings of single classes: what is missing or wrong is named.
struct Setting {
  const char* folder;
  const char* key;
  nlohmann::json value;
  const char* expected;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.folder << setting.key; }

class HfSettings : public testing::TestWithParam<Setting> {};

TEST_P(HfSettings, AreNamedWhereTheyAreWrong) {
  HfReferenceFolder folder(GetParam().folder);
  folder.config[GetParam().key] = GetParam().value;
  EXPECT_THAT(folder.Message(), testing::HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, HfSettings,
    testing::Values(Setting{"gemma3/usual", "sliding_window", nullptr, "sliding_window is missing"},
                    Setting{"gemma3/usual", "hidden_activation", "gelu", "hidden_activation"},
                    Setting{"qwen2/usual", "use_sliding_window", true,
                            "use_sliding_window: true is not supported"},
                    Setting{"qwen3/usual", "head_dim", nullptr, "head_dim is missing"},
                    Setting{"gemma2/usual", "attn_logit_softcapping", nullptr,
                            "attn_logit_softcapping is missing"}));

}  // namespace
}  // namespace kvant::test
