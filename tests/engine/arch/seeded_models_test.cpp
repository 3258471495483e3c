// Models of many families from Hugging Face folders to logits: small random models and what
// transformers computes from them, by tests/reference/make_seeded_models.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "cpu/dispatch.h"
#include "cpu/kv_format_list.h"
#include "engine/arch/family.h"
#include "formats/gguf.h"
#include "formats/npy.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/run/runner_kinds.h"
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

SessionOptions SeededOptions(int64_t context) {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
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
      const auto session = OpenSession(model, SeededOptions(seeded.context()));
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
  SessionOptions options = SeededOptions(context);
  options.chunk = 64;
  const auto cached = OpenSession(model, options);
  const auto oracle = OpenSession(model, {.context = context, .kv_cache = false});
  const std::vector<float> found = AllLogits(*cached, tokens, 7);
  const std::vector<float> expected = AllLogits(*oracle, tokens, tokens.size());
  EXPECT_LE(MaxDifference(found, expected), kTolerance);
}

// Smaller caches lose little, though a router may then choose another expert, and an indexer other
// positions, where two are close; and sequences with a common beginning have the bits that they
// would have alone.
TEST_P(SeededModels, SmallerCachesAndForksAgree) {
  SeededModel seeded(GetParam());
  const auto model = seeded.Open();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> tokens = RandomTokens(40, 6, model->vocab_size());
  const std::span<const TokenId> all(tokens);
  const std::vector<float> exact =
      AllLogits(*OpenSession(model, SeededOptions(seeded.context())), tokens, tokens.size());
  const bool routed = model->file().FindTensor("blk.1.ffn_gate_inp.weight") != nullptr;
  const bool chooses = model->file().FindTensor("blk.2.indexer.k_norm.weight") != nullptr ||
                       model->file().FindTensor("blk.3.indexer.k_norm.weight") != nullptr;
  for (const bool q8 : {false, true}) {
    const KvType type = q8 ? KvType::kQ8 : KvType::kF16;
    const double limit = chooses  ? (q8 ? 0.3 : 2e-2)
                         : routed ? (q8 ? 0.3 : 2e-3)
                                  : (q8 ? 0.01 : 1e-5);
    SessionOptions options = SeededOptions(seeded.context());
    options.k_type = options.v_type = type;
    const std::vector<float> alone = AllLogits(*OpenSession(model, options), tokens, tokens.size());
    EXPECT_LT(MeanDivergence(exact, alone, tokens.size()), limit);
    options.sequences = 2;
    options.kv_check = options.kv_poison = true;
    const auto runner = OpenRunner(model, options);
    const SequenceId first = NewSequence(*runner);
    ExpectOk(runner->Append(first, all.first(30)));
    const auto second = runner->Fork(first);
    ASSERT_TRUE(second.ok()) << second.error().message;
    const std::vector<TokenId> other = RandomTokens(10, 7, model->vocab_size());
    for (size_t i = 0; i < 10; ++i) {
      const StepInput inputs[] = {{first, all.subspan(30 + i, 1)}, {*second, {&other[i], 1}}};
      ExpectOk(runner->Step(inputs));
      const size_t vocab = alone.size() / tokens.size();
      const std::span<const float> row = std::span(alone).subspan((30 + i) * vocab, vocab);
      EXPECT_EQ(MaxDifference(runner->logits(first), row), 0.0) << i;
    }
  }
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
      return AllLogits(*OpenSession(model, SeededOptions(64)), tokens, tokens.size());
    };
    EXPECT_EQ(logits(usual), logits(bare)) << name;
  }
}

// Folders of models that see, too, keep the settings of the text model apart, put a name before its
// tensors and have further ones.
TEST(SeededModel, TextModelsOfOtherModelsAreConvertedAlone) {
  SeededModel seeded("llama4");
  const auto alone = seeded.Open();
  nlohmann::json text = seeded.config;
  text["architectures"] = nullptr;
  seeded.config = {{"architectures", {"Llama4ForConditionalGeneration"}},
                   {"text_config", text},
                   {"vision_config", {{"hidden_size", 7}}}};
  for (const std::string before : {"language_model.", "model.language_model."}) {
    seeded.rename = [&before](const std::string& name) {
      const std::string inner = "model.";
      if (!before.starts_with(inner)) return before + name;
      return name.starts_with(inner) ? before + name.substr(inner.size()) : name;
    };
    for (const char* other : {"vision_model.layers.0.norm.weight", "model.vision_tower.x.weight"}) {
      seeded.extra = {{other, {{3}, {1, 2, 3}}}};
      const auto inside = seeded.Open();
      ASSERT_TRUE(alone != nullptr && inside != nullptr) << before;
      const std::vector<TokenId> tokens = {5, 9, 3};
      const auto logits = [&](const std::shared_ptr<const Model>& model) {
        return AllLogits(*OpenSession(model, SeededOptions(64)), tokens, tokens.size());
      };
      EXPECT_EQ(logits(alone), logits(inside)) << before;
    }
  }
  seeded.rename = [](const std::string& name) { return "language_model." + name; };
  seeded.extra = {{"model.layers.0.unknown.weight", {{3}, {1, 2, 3}}}};
  EXPECT_THAT(seeded.Message(), testing::HasSubstr("model.layers.0.unknown.weight"));
}

// Baichuan 2 is known by its vocabulary.
TEST(SeededModel, OutputRowsOfBaichuan2AreDividedByTheirLengths) {
  constexpr int64_t kVocab = 125696;
  constexpr int64_t kDim = 32;
  SeededModel seeded("baichuan");
  seeded.config["vocab_size"] = kVocab;
  HfWeights rows{{kVocab, kDim}, std::vector<float>(kVocab * kDim, 0.0f)};
  for (int64_t row = 0; row < kVocab; ++row) {
    rows.values[static_cast<size_t>(row * kDim + row % kDim)] = 3.0f;
    rows.values[static_cast<size_t>(row * kDim + (row + 1) % kDim)] = -4.0f;
  }
  std::fill_n(rows.values.begin(), kDim, 0.0f);  // nothing to divide
  seeded.extra = {{"model.embed_tokens.weight", rows}, {"lm_head.weight", rows}};
  const auto path = seeded.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const auto file = formats::GgufFile::Open(*path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto values = [&](const char* name, int64_t row) {
    std::vector<float> out(kDim);
    std::memcpy(out.data(), file->FindTensor(name)->data + row * kDim * 4, kDim * 4);
    return out;
  };
  EXPECT_EQ(values("output.weight", 0), std::vector<float>(kDim, 0.0f));
  for (const int64_t row : {int64_t{5}, kVocab - 1}) {
    const std::vector<float> found = values("output.weight", row);
    EXPECT_EQ(found[static_cast<size_t>(row % kDim)], 0.6f);
    EXPECT_EQ(found[static_cast<size_t>((row + 1) % kDim)], -0.8f);
    EXPECT_EQ(values("token_embd.weight", row)[static_cast<size_t>(row % kDim)], 3.0f);
  }
}

// A text model among other parts: its settings lie apart, its tensors have another beginning.
TEST(SeededModel, PartsThatReadImagesAreLeftOut) {
  SeededModel seeded("mistral3");
  const auto usual = seeded.Open();
  nlohmann::json text = seeded.config;
  text.erase("architectures");
  seeded.config = {{"architectures", {"Mistral3ForConditionalGeneration"}},
                   {"text_config", text},
                   {"vision_config", {{"hidden_size", 7}, {"num_hidden_layers", 1}}}};
  seeded.extra = {{"vision_tower.patch_conv.weight", {{2, 3}, std::vector<float>(6)}},
                  {"multi_modal_projector.norm.weight", {{3}, std::vector<float>(3)}}};
  const std::vector<TokenId> tokens = {5, 9, 3};
  const auto logits = [&](const std::shared_ptr<const Model>& model) {
    return AllLogits(*OpenSession(model, SeededOptions(64)), tokens, tokens.size());
  };
  for (const std::string text_model : {"language_model.model.", "model.language_model."}) {
    seeded.rename = [text_model](const std::string& name) {
      const std::string_view inner = "model.";
      if (name.starts_with(inner)) return text_model + name.substr(inner.size());
      return text_model.starts_with(inner) ? name : "language_model." + name;
    };
    const auto wrapped = seeded.Open();
    ASSERT_TRUE(usual != nullptr && wrapped != nullptr) << text_model;
    EXPECT_EQ(logits(usual), logits(wrapped)) << text_model;
  }
  seeded.extra["audio.weight"] = {{3}, std::vector<float>(3)};
  EXPECT_THAT(seeded.Message(), testing::HasSubstr("audio.weight\" has no place"));
}

// Published folders of Qwen 2 VL keep the settings of the text among the others.
TEST(SeededModel, PartsThatReadImagesAreLeftOutOfPublishedFoldersOfQwen2Vl) {
  SeededModel seeded("qwen2vl");
  const auto usual = seeded.Open();
  const nlohmann::json rope = seeded.config["rope_parameters"];
  seeded.config.erase("rope_parameters");
  seeded.config.erase("layer_types");
  seeded.config["rope_theta"] = rope["rope_theta"];
  seeded.config["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", rope["mrope_section"]}};
  seeded.config["sliding_window"] = 32768;
  seeded.config["vision_config"] = {{"depth", 32}, {"hidden_size", 1280}};
  seeded.extra = {{"visual.blocks.0.attn.qkv.weight", {{6, 2}, std::vector<float>(12)}}};
  const auto published = seeded.Open();
  ASSERT_TRUE(usual != nullptr && published != nullptr);
  const std::vector<TokenId> tokens = {5, 9, 3};
  const auto logits = [&](const std::shared_ptr<const Model>& model) {
    return AllLogits(*OpenSession(model, SeededOptions(64)), tokens, tokens.size());
  };
  EXPECT_EQ(logits(usual), logits(published));
  seeded.config.erase("vision_config");
  EXPECT_THAT(seeded.Message(), testing::HasSubstr("visual.blocks.0.attn.qkv.weight"));
}

TEST(SeededModel, RotatedDimensionsMayBeAShareOfAHead) {
  SeededModel seeded("minimax-m2");
  seeded.config.erase("rotary_dim");
  const auto model = seeded.Open();
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->spec().ropes.front().n_rot, 8);
  seeded.config["rope_parameters"]["partial_rotary_factor"] = 0.2;
  EXPECT_THAT(seeded.Message(), testing::HasSubstr("partial_rotary_factor"));
}

TEST(SeededModel, SessionsEndWhereLearnedPositionsEnd) {
  const auto model = SeededModel("gpt2").Open();
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(Session::Create(model, SeededOptions(96)).ok());
  const auto longer = Session::Create(model, SeededOptions(97));
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
        SeededSetting{"hunyuan-dense", "/rope_scaling/alpha", nullptr, "alpha is missing"},
        SeededSetting{"hunyuan-dense", "/rope_scaling/rope_type", "yarn", "\"yarn\""},
        SeededSetting{"nemotron", "/hidden_act", "silu", "hidden_act \"silu\""},
        SeededSetting{"gpt2", "/n_positions", nullptr, "n_positions is missing"},
        SeededSetting{"gpt2", "/n_positions", 95, "wpe.weight"},
        SeededSetting{"gpt2", "/n_inner", 64, "c_fc.weight"},
        SeededSetting{"gptneox", "/rotary_emb_base", 0, "rotary_emb_base"},
        SeededSetting{"minicpm-long", "/rope_scaling/long_factor", {1.0}, "long_factor"},
        SeededSetting{"minicpm-long", "/rope_scaling/short_factor", nullptr, "short_factor"},
        SeededSetting{"internlm2", "/num_key_value_heads", 4, "wqkv.weight"},
        SeededSetting{"internlm2", "/rope_scaling/type", "longrope", "\"longrope\""},
        SeededSetting{"baichuan", "/hidden_size", 64, "embed_tokens.weight"},
        SeededSetting{"baichuan-alibi", "/model_max_length", nullptr, "model_max_length"},
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
        SeededSetting{"gpt-oss", "/rope_scaling/truncate", nullptr, "truncate: true"},
        SeededSetting{"gpt-oss", "/swiglu_limit", 5.0, "swiglu_limit"},
        SeededSetting{"gpt-oss", "/sliding_window", nullptr, "sliding_window is missing"},
        SeededSetting{"gpt-oss", "/hidden_act", "gelu", "hidden_act \"gelu\""},
        SeededSetting{"gpt-oss", "/num_local_experts", 7, "has shape [8, "},
        SeededSetting{"gpt-oss", "/num_attention_heads", 8, "q_proj.weight"},
        SeededSetting{"gpt-oss", "/quantization_config", {{"quant_method", "awq"}}, "(awq)"},
        SeededSetting{"afmoe", "/mup_enabled", false, "mup_enabled is false"},
        SeededSetting{"afmoe", "/route_norm", false, "route_norm"},
        SeededSetting{"laguna", "/gating", "per-element", "self_attn.g_proj.weight"},
        SeededSetting{"laguna", "/gating", "per-layer", "per-element"},
        SeededSetting{"laguna", "/num_attention_heads_per_layer/1", 5, "multiples of 2"},
        SeededSetting{"laguna", "/moe_router_logit_softcapping", 3.0, "softcapping"},
        SeededSetting{"step35", "/num_sliding_attention_heads", 5, "5 heads and 2 kv heads"},
        SeededSetting{"step35", "/swiglu_limits/2", "wide", "swiglu_limits"},
        SeededSetting{"step35", "/query_pre_attn_scalar", 8, "query_pre_attn_scalar"},
        SeededSetting{"muse-glimmer", "/layer_rope_theta/0", 100.0, "layer_rope_theta"},
        SeededSetting{"muse-glimmer", "/qk_scale_factor", 0, "qk_scale_factor"},
        SeededSetting{"maple", "/nope_on_global_attention", false, "nope_on_global_attention"},
        SeededSetting{"spark2_5", "/gate_attn_act_mode", "tanh", "gate_attn_act_mode"},
        SeededSetting{"spark2_5", "/hidden_act", "gelu_new", "hidden_act"},
        SeededSetting{"exaone-moe", "/topk_group", 4, "topk_group"},
        SeededSetting{"cohere2moe", "/expert_selection_fn", "tanh", "softmax or sigmoid"},
        SeededSetting{"cohere2moe", "/shared_expert_combination_strategy", "sum", "average"},
        SeededSetting{"bailingmoe2", "/score_function", "softmax", "score_function"},
        SeededSetting{"bailingmoe3", "/kda_lower_bound", 0.5, "a number below 0"},
        SeededSetting{"bailingmoe3", "/kda_safe_gate", false, "kda_safe_gate"},
        SeededSetting{"bailingmoe3", "/linear_num_heads", 3, "linear attention has 3 heads"},
        SeededSetting{"bailingmoe3-published", "/no_kda_lora", false, "no_kda_lora"},
        SeededSetting{"bailingmoe3-published", "/layer_group_size", 0, "layer_group_size"},
        SeededSetting{"bailingmoe3-published", "/layer_group_size", 2,
                      "q_a_proj.weight is missing"},
        SeededSetting{"kimi-linear", "/layer_types/0", "full_attention", "q_proj.weight"},
        SeededSetting{"kimi-linear-published", "/mla_use_nope", false, "mla_use_nope"},
        SeededSetting{"kimi-linear-published", "/linear_attn_config/num_heads", 3, "3 heads"},
        SeededSetting{"kimi-linear-published",
                      "/linear_attn_config/full_attn_layers",
                      {0, 2},
                      "numbers from 1 to 5"},
        SeededSetting{"mistral4", "/rope_interleave", false, "rope_interleave"},
        SeededSetting{"qwen3vl", "/rope_parameters/mrope_section", {1, 2}, "mrope_section"},
        SeededSetting{"minimax-m2", "/rotary_dim", 7, "rotary_dim"},
        SeededSetting{"minimax-m2", "/rotary_dim", 18, "rotary_dim"},
        SeededSetting{"minimax-m2", "/num_local_experts", 9, "has shape [8, 32]"},
        SeededSetting{"mistral3", "/rope_parameters/llama_4_scaling_beta", -0.1, "llama_4"},
        SeededSetting{"mistral3", "/rope_parameters/mscale_all_dim", -1, "mscale_all_dim"},
        SeededSetting{"mistral3", "/rope_parameters/rope_type", "linear", "without yarn"},
        SeededSetting{"phimoe-long", "/router_jitter_noise", 0.02, "router_jitter_noise"},
        SeededSetting{"phimoe-long", "/num_experts_per_tok", 3, "num_experts_per_tok"},
        SeededSetting{"phimoe-long", "/rope_scaling/long_mscale", 1.3, "long_mscale"},
        SeededSetting{"phimoe-long", "/rope_scaling/long_factor", {1.0, 2.0}, "long_factor"},
        SeededSetting{"phimoe-long", "/rope_scaling/rope_type", "yarn", "\"yarn\""},
        SeededSetting{"olmoe", "/clip_qkv", 1.0, "clip_qkv"},
        SeededSetting{"hunyuan-moe", "/rope_scaling/alpha", 0, "alpha"},
        SeededSetting{"llama4", "/use_qk_norm", false, "use_qk_norm: expected true"},
        SeededSetting{"llama4-step", "/use_qk_norm", true, "128 experts"},
        SeededSetting{"llama4", "/attn_temperature_tuning", 0, "attn_temperature_tuning: false"},
        SeededSetting{"llama4", "/attn_scale", -1, "attn_scale"},
        SeededSetting{"llama4", "/floor_scale", 0, "floor_scale"},
        SeededSetting{"llama4", "/attention_chunk_size", 0, "attention_chunk_size"},
        SeededSetting{"llama4", "/no_rope_layers", {1, 0}, "no_rope_layers"},
        SeededSetting{"llama4", "/no_rope_layers", {1, 1, 1, 1, 1, 1}, "layer_types: expected"},
        SeededSetting{"llama4", "/layer_types", nlohmann::json::array(), "layer_types"},
        SeededSetting{"llama4", "/num_experts_per_tok", 5, "num_experts_per_tok"},
        SeededSetting{"llama4", "/intermediate_size", 23, "gate_up_proj"},
        SeededSetting{"llama4-step", "/rope_scaling/high_freq_factor", 0.5, "high_freq_factor"},
        SeededSetting{"deepseek", "/scoring_func", "sigmoid", "expected softmax, found sigmoid"},
        SeededSetting{"deepseek", "/n_routed_experts", 9, "has shape [8, 32]"},
        SeededSetting{"deepseek2-lite", "/kv_lora_rank", nullptr, "kv_lora_rank is missing"},
        SeededSetting{"deepseek2-lite", "/kv_lora_rank", 25, "kv_a_proj_with_mqa.weight"},
        SeededSetting{"deepseek2-lite", "/q_lora_rank", 20, "q_a_proj.weight is missing"},
        SeededSetting{"deepseek2-lite", "/norm_topk_prob", true, "norm_topk_prob"},
        SeededSetting{"deepseek2-lite", "/topk_method", "noaux_tc", "greedy"},
        SeededSetting{"deepseek2-lite", "/v_head_dim", 5000, "v_head_dim"},
        SeededSetting{"deepseek2-groups", "/topk_group", 5, "topk_group"},
        SeededSetting{"deepseek2-v3", "/qk_rope_head_dim", 0, "qk_rope_head_dim"},
        SeededSetting{"deepseek2-v3", "/rope_interleave", false, "rope_interleave"},
        SeededSetting{"deepseek2-v3", "/rope_scaling/mscale", 1.0, "mscale"},
        SeededSetting{"deepseek2-v3", "/rope_scaling/mscale_all_dim", nullptr, "mscale_all_dim"},
        SeededSetting{"deepseek2-v3", "/rope_scaling/rope_type", "linear", "\"linear\""},
        SeededSetting{"minicpm3-long", "/scale_depth", 0, "scale_depth"},
        SeededSetting{"minicpm3-long", "/rope_scaling/long_factor", {1.0}, "4 numbers"},
        SeededSetting{"lfm2", "/layer_types", {"conv", "full_attention"}, "layer_types"},
        SeededSetting{"lfm2", "/layer_types/0", "mamba", "full_attention or conv"},
        SeededSetting{"lfm2", "/layer_types/0", "full_attention", "q_proj.weight is missing"},
        SeededSetting{"lfm2", "/conv_L_cache", 1, "conv_L_cache"},
        SeededSetting{"lfm2", "/conv_L_cache", 4, "has shape [32, 1, 3]"},
        SeededSetting{"lfm2", "/block_multiple_of", 0, "block_multiple_of"},
        SeededSetting{"lfm2", "/block_ffn_dim_multiplier", -1, "block_ffn_dim_multiplier"},
        SeededSetting{"lfm2", "/norm_eps", 0, "norm_eps"},
        SeededSetting{"mamba2", "/time_step_limit", {0.0, 0.1}, "time_step_limit"},
        SeededSetting{"mamba2", "/n_groups", 3, "a divisor of 4"},
        SeededSetting{"mamba2", "/num_heads", 5, "has shape [180, 32]"},
        SeededSetting{"mamba2", "/conv_kernel", 1, "conv_kernel"},
        SeededSetting{"mamba2", "/state_size", nullptr, "state_size is missing"},
        SeededSetting{"rwkv6", "/head_size", 24, "head_size is 24, expected a divisor of 64"},
        SeededSetting{"rwkv6", "/head_size_divisor", 4, "head_size_divisor"},
        SeededSetting{"rwkv6", "/attention_hidden_size", 32, "attention_hidden_size"},
        SeededSetting{"rwkv6", "/intermediate_size", nullptr, "has shape [96, 64]"},
        SeededSetting{"rwkv7", "/norm_eps", 1e-4, "norm_eps"},
        SeededSetting{"rwkv7", "/norm_first", false, "norm_first"},
        SeededSetting{"rwkv7", "/hidden_act", "silu", "hidden_act \"silu\""},
        SeededSetting{"rwkv7", "/v_low_rank_dim", 7, "attn.v_lora.lora.0.weight"},
        SeededSetting{"rwkv7", "/decay_low_rank_dim", nullptr, "w_lora.lora"},
        SeededSetting{"granitehybrid", "/mamba_n_groups", 2, "mamba_n_groups"},
        SeededSetting{"falcon-h1", "/mamba_norm_before_gate", true, "norm_before_gate: expected"},
        SeededSetting{"falcon-h1", "/mamba_rms_norm", false, "mamba.norm.weight"},
        SeededSetting{"falcon-h1", "/mlp_multipliers", {1.0}, "2 numbers"},
        SeededSetting{"falcon-h1", "/ssm_multipliers", {1.0, 2.0}, "5 numbers"},
        SeededSetting{"falcon-h1", "/key_multiplier", "large", "key_multiplier"},
        SeededSetting{"falcon-h1", "/mamba_d_ssm", 47, "6 heads of 8"},
        SeededSetting{"falcon-h1", "/mamba_d_ssm", nullptr, "6 heads of 8"},
        SeededSetting{"falcon-h1", "/mamba_n_groups", 4, "a divisor of 6"},
        SeededSetting{"mamba", "/time_step_rank", 3, "has shape [34, 64]"},
        SeededSetting{"mamba", "/conv_kernel", 1, "conv_kernel"},
        SeededSetting{"mamba", "/state_size", nullptr, "state_size is missing"},
        SeededSetting{"mamba", "/intermediate_size", 63, "has shape [128, 32]"},
        SeededSetting{"mamba-falcon", "/mixer_rms_eps", 0, "mixer_rms_eps"},
        SeededSetting{"jamba", "/attn_layer_offset", 3, "attn_layer_offset"},
        SeededSetting{"jamba", "/attn_layer_period", nullptr, "attn_layer_period is missing"},
        SeededSetting{"jamba", "/attn_layer_offset", 0, "is missing"},
        SeededSetting{"jamba", "/sliding_window", 7, "sliding_window is not supported"},
        SeededSetting{"jamba", "/num_experts", 1, "has no place"},
        SeededSetting{"nemotron_h", "/layers_block_type/0", "conv", "layers_block_type"},
        SeededSetting{"nemotron_h", "/layers_block_type", {"mlp"}, "a layer with attention"},
        SeededSetting{"nemotron_h", "/layers_block_type/0", "mlp", "up_proj.weight is missing"},
        SeededSetting{"nemotron_h", "/sliding_window", 8, "sliding_window is not supported"},
        SeededSetting{"nemotron_h", "/hybrid_override_pattern", "M*X", "the letters M, *, - and E"},
        SeededSetting{"nemotron_h", "/mlp_hidden_act", "silu", "relu2"},
        SeededSetting{"nemotron_h_moe", "/moe_latent_size", 16, "fc1_latent_proj"},
        SeededSetting{"nemotron_h_moe-latent", "/moe_latent_size", nullptr, "has shape [24, 20]"},
        SeededSetting{"granitehybrid", "/layer_types/0", "conv", "linear_attention for"},
        SeededSetting{"granitehybrid", "/position_embedding_type", "alibi", "rope or nope"},
        SeededSetting{"qwen3next", "/linear_num_value_heads", 3, "a multiple of 2"},
        SeededSetting{"qwen3next", "/linear_num_value_heads", 6, "has shape"},
        SeededSetting{"qwen3next", "/linear_conv_kernel_dim", nullptr, "linear_conv_kernel_dim is"},
        SeededSetting{"qwen3next", "/attention_bias", true, "attention_bias: true"},
        SeededSetting{"qwen35", "/rope_parameters/partial_rotary_factor", 3, "partial_rotary"},
        SeededSetting{"qwen35", "/rope_parameters/mrope_section", {1, 2}, "mrope_section"},
        SeededSetting{"qwen35", "/layer_types/0", "full_attention", "every n-th layer"},
        SeededSetting{"hunyuan-moe", "/rope_scaling/alpha", 0, "alpha"},
        SeededSetting{"deepseek32", "/index_topk", nullptr, "index_topk is missing"},
        SeededSetting{"deepseek32", "/index_n_heads", nullptr, "index_n_heads is missing"},
        SeededSetting{"glm-dsa", "/indexer_types/0", "shared", "\"full\" for the first layer"},
        SeededSetting{"glm-dsa", "/indexer_types", {"full"}, "for each of 4 layers"},
        SeededSetting{"glm-dsa", "/indexer_rope_interleave", false, "indexer_rope_interleave"},
        SeededSetting{"minimax-m3", "/swiglu_limit", 5, "swiglu_limit"},
        SeededSetting{"minimax-m3", "/index_head_dim", 4, "index_head_dim"},
        SeededSetting{"minimax-m3", "/layer_types", {"full_attention"}, "layer_types"}));

}  // namespace
}  // namespace kvant::test
