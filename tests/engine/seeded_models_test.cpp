// Models of many families from Hugging Face folders to logits: small random models and what
// transformers computes from them, by tests/reference/make_seeded_models.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/kernels.h"
#include "engine/arch/family.h"
#include "formats/npy.h"
#include "tests/engine/seeded_model.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

class SeededModels : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Reference, SeededModels, testing::ValuesIn(SeededModelNames()),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Roundings of 32-bit floats on logits of a few units.
constexpr double kTolerance = 1e-4;

SessionOptions F32Cache(int64_t context) {
  SessionOptions options;
  options.k_type = options.v_type = cpu::KvElement::kF32;
  options.context = context;
  options.threads = 2;
  return options;
}

TEST_P(SeededModels, LogitsAreThoseOfTransformersOnEveryInstructionSet) {
  SeededModel seeded(GetParam());
  const std::vector<TokenId> tokens = seeded.Tokens();
  const auto expected = formats::NpyRead(seeded.LogitsPath());
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    ModelOptions options;
    options.isa = isa.name;
    const auto model = seeded.Open(options);
    ASSERT_NE(model, nullptr);
    // In pieces, so that queries see keys of earlier steps beyond and within their windows.
    for (const size_t piece : {size_t{1}, size_t{29}, tokens.size()}) {
      const auto session = OpenSession(model, F32Cache(seeded.context()));
      const std::vector<float> logits = AllLogits(*session, tokens, piece);
      ASSERT_EQ(logits.size(), expected->values.size());
      EXPECT_LE(MaxDifference(logits, expected->values), kTolerance) << isa.name << ", " << piece;
    }
  }
}

// The context is many times the windows, and longer than what a ring of a window keeps, where the
// model has so many positions.
TEST_P(SeededModels, CachesAgreeWithTheModelWithoutCacheOverManyWindows) {
  const auto model = SeededModel(GetParam()).Open();
  ASSERT_NE(model, nullptr);
  const int64_t learned = model->spec().context_max;
  const int64_t context = learned > 0 ? learned : 640;
  const std::vector<TokenId> tokens = RandomTokens(context, 5, model->vocab_size());
  SessionOptions options = F32Cache(context);
  options.chunk = 64;
  const auto cached = OpenSession(model, options);
  const auto oracle = OpenSession(model, {.context = context, .kv_cache = false});
  const std::vector<float> found = AllLogits(*cached, tokens, 7);
  const std::vector<float> expected = AllLogits(*oracle, tokens, tokens.size());
  EXPECT_LE(MaxDifference(found, expected), kTolerance);
}

// Folders written by the class of the inner model leave out the beginning of names, and old ones
// hold buffers without weights.
TEST(SeededModel, NamesWithoutTheirBeginningAreFound) {
  for (const char* name : {"gpt2", "falcon-two-norms", "bloom", "mpt"}) {
    SeededModel seeded(name);
    const auto usual = seeded.Open();
    seeded.rename = [](const std::string& hf_name) {
      const std::string_view beginning = "transformer.";
      return hf_name.starts_with(beginning) ? hf_name.substr(beginning.size()) : hf_name;
    };
    const auto bare = seeded.Open();
    ASSERT_TRUE(usual != nullptr && bare != nullptr);
    const std::vector<TokenId> tokens = {5, 9, 3};
    const auto logits = [&](const std::shared_ptr<const Model>& model) {
      return AllLogits(*OpenSession(model, F32Cache(64)), tokens, tokens.size());
    };
    EXPECT_EQ(logits(usual), logits(bare)) << name;
  }
}

TEST(SeededModel, SessionsEndWhereLearnedPositionsEnd) {
  const auto model = SeededModel("gpt2").Open();
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(Session::Create(model, F32Cache(96)).ok());
  const auto longer = Session::Create(model, F32Cache(97));
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().message,
            "context: the model has learned 96 positions and can have no more, found 97");
}

// Settings of single classes that cannot be converted, or make no sense, are named.
struct SeededSetting {
  const char* model;
  const char* pointer;  // into config.json
  nlohmann::json value;
  const char* expected;
};

void PrintTo(const SeededSetting& setting, std::ostream* out) {
  *out << setting.model << setting.pointer;
}

class SeededSettings : public testing::TestWithParam<SeededSetting> {};

TEST_P(SeededSettings, AreNamedWhereTheyAreWrong) {
  SeededModel seeded(GetParam().model);
  seeded.config[nlohmann::json::json_pointer(GetParam().pointer)] = GetParam().value;
  EXPECT_THAT(seeded.Message(), testing::HasSubstr(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    Wrong, SeededSettings,
    testing::Values(
        SeededSetting{"llama-yarn", "/rope_scaling/factor", nullptr, "factor is missing"},
        SeededSetting{"llama-yarn", "/rope_scaling/factor", -1.0, "factor"},
        SeededSetting{"llama-yarn", "/rope_scaling/truncate", false, "truncate: false"},
        SeededSetting{"llama-yarn-betas", "/rope_scaling/beta_fast", 0, "beta_fast"},
        SeededSetting{"llama-yarn-betas", "/rope_scaling/attention_factor", -2, "attention_factor"},
        SeededSetting{"gemma", "/head_dim", nullptr, "head_dim is missing"},
        SeededSetting{"gemma", "/hidden_act", "relu", "hidden_act \"relu\""},
        SeededSetting{"phi2", "/qk_layernorm", true, "qk_layernorm: true"},
        SeededSetting{"phi2", "/partial_rotary_factor", 1.5, "partial_rotary_factor"},
        SeededSetting{"phi2", "/partial_rotary_factor", 0.4, "partial_rotary_factor"},
        SeededSetting{"olmo", "/clip_qkv", -1, "clip_qkv"},
        SeededSetting{"olmo3", "/layer_types", {"full_attention"}, "layer_types"},
        SeededSetting{"smollm3", "/no_rope_layers", {0, 1, 1, 1, 1}, "no_rope_layers"},
        SeededSetting{"smollm3", "/use_sliding_window", true, "use_sliding_window: true"},
        SeededSetting{"granite", "/residual_multiplier", nullptr, "residual_multiplier is missing"},
        SeededSetting{"granite", "/logits_scaling", 0, "logits_scaling"},
        SeededSetting{"command-r", "/logit_scale", nullptr, "logit_scale is missing"},
        SeededSetting{"command-r", "/layer_norm_eps", 0, "layer_norm_eps"},
        SeededSetting{"cohere2", "/sliding_window", nullptr, "sliding_window is missing"},
        SeededSetting{"starcoder2", "/norm_epsilon", nullptr, "norm_epsilon is missing"},
        SeededSetting{"stablelm", "/qk_layernorm", true, "qk_layernorm: true"},
        SeededSetting{"hunyuan-dense", "/rope_scaling/alpha", nullptr, "alpha is missing"},
        SeededSetting{"hunyuan-dense", "/rope_scaling/rope_type", "yarn", "\"yarn\""},
        SeededSetting{"nemotron", "/hidden_act", "silu", "hidden_act \"silu\""},
        SeededSetting{"gpt2", "/n_positions", nullptr, "n_positions is missing"},
        SeededSetting{"gpt2", "/n_positions", 95, "wpe.weight"},
        SeededSetting{"gpt2", "/n_inner", 64, "c_fc.weight"},
        SeededSetting{"gptneox", "/rotary_emb_base", 0, "rotary_emb_base"},
        SeededSetting{"falcon-multi-query", "/alibi", true, "alibi: true"},
        SeededSetting{"falcon-multi-query", "/parallel_attn", false, "parallel_attn: false"},
        SeededSetting{"falcon-two-norms", "/num_kv_heads", 3, "divisor of 4"},
        SeededSetting{"bloom", "/apply_residual_connection_post_layernorm", true, "true is not"},
        SeededSetting{"mpt", "/attn_config/alibi", false, "alibi: false"},
        SeededSetting{"mpt", "/attn_config/clip_qkv", -2, "clip_qkv"},
        SeededSetting{"mpt", "/attn_config/softmax_scale", 0.5, "softmax_scale"},
        SeededSetting{"mpt", "/expansion_ratio", nullptr, "expansion_ratio is missing"},
        SeededSetting{"mixtral", "/num_local_experts", nullptr, "num_local_experts is missing"},
        SeededSetting{"mixtral", "/num_local_experts", 9, "has shape [8, 32]"},
        SeededSetting{"qwen3moe", "/num_experts_per_tok", 13, "num_experts_per_tok"},
        SeededSetting{"qwen3moe", "/num_experts", 1 << 30, "num_experts"},
        SeededSetting{"qwen3moe", "/rope_scaling/rope_type", "longrope", "\"longrope\""},
        SeededSetting{"qwen2moe", "/shared_expert_intermediate_size", 41, "shared_expert"},
        SeededSetting{"dots1", "/n_group", 2, "n_group"},
        SeededSetting{"glm4moe", "/routed_scaling_factor", -1, "routed_scaling_factor"},
        SeededSetting{"glm4moe", "/partial_rotary_factor", 2.0, "partial_rotary_factor"},
        SeededSetting{"olmoe", "/clip_qkv", 1.0, "clip_qkv"},
        SeededSetting{"hunyuan-moe", "/rope_scaling/alpha", 0, "alpha"}));

}  // namespace
}  // namespace kvant::test
