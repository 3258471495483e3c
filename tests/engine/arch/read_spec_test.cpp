// Metadata of an architecture: what is read, and one clear error for everything that contradicts
// itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/float_gemm.h"
#include "engine/arch/build_plan.h"
#include "engine/arch/family.h"
#include "formats/gguf.h"
#include "tests/engine/arch/spec_of_metadata.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

TEST(ReadSpec, DefaultsFollowFromTheDimensions) {
  auto spec = ReadSpecOf([](GgufWriter&) {});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  ASSERT_EQ(spec->stacks.front().layers.size(), 2u);
  EXPECT_EQ(AttentionOf(*spec, 1).k_dim, 16);
  EXPECT_EQ(AttentionOf(*spec, 1).kv_heads, 2);
  EXPECT_EQ(AttentionOf(*spec, 1).scale, 0.25f);
  ASSERT_EQ(spec->ropes.size(), 1u);
  EXPECT_EQ(spec->ropes[0].n_rot, 16);
  EXPECT_EQ(spec->ropes[0].base, 10000.0f);
}

// Converters write an id that a model does not have, -1, as 32 bits.
TEST(ReadSpec, MinusOneIsNoFirstToken) {
  for (const uint32_t id : {7u, 0xFFFFFFFFu}) {
    auto spec = ReadSpecOf(
        [&](GgufWriter& writer) {
          writer.AddU32("t5.decoder_start_token_id", id);
          writer.AddU32("t5.attention.relative_buckets_count", 8);
          writer.AddU32("t5.vocab_size", 40);
          writer.AddU32("t5.attention.key_length", 16);
          writer.AddU32("t5.attention.value_length", 16);
        },
        "t5");
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(spec->encoder->first_token, id == 7 ? std::optional<int64_t>(7) : std::nullopt);
  }
}

TEST(ReadSpec, RotationsOfActivationsAreRefused) {
  EXPECT_EQ(SpecMessage([](GgufWriter&) {}), "accepted");
  EXPECT_THAT(SpecMessage([](GgufWriter& writer) { writer.AddU32("prism.hadamard.block", 128); }),
              testing::AllOf(HasSubstr("prism.hadamard.block"),
                             HasSubstr("a signed Walsh-Hadamard transform of activations, which "
                                       "is not computed here")));
}

TEST(ReadSpec, HeadsMayDifferPerLayer) {
  auto spec = ReadSpecOf([](GgufWriter& writer) {
    writer.Remove("llama.attention.head_count_kv");
    writer.AddI32s("llama.attention.head_count_kv", {4, 1});
  });
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(AttentionOf(*spec, 0).kv_heads, 4);
  EXPECT_EQ(AttentionOf(*spec, 1).kv_heads, 1);
}

// Without key_length, layers of different numbers of heads have heads of different sizes, and each
// size its own rotary table.
TEST(ReadSpec, HeadSizesMayDifferPerLayer) {
  auto spec = ReadSpecOf([](GgufWriter& writer) {
    writer.Remove("llama.attention.head_count");
    writer.AddI32s("llama.attention.head_count", {4, 2});
  });
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(AttentionOf(*spec, 0).k_dim, 16);
  EXPECT_EQ(AttentionOf(*spec, 1).k_dim, 32);
  EXPECT_EQ(AttentionOf(*spec, 1).v_dim, 32);
  ASSERT_EQ(spec->ropes.size(), 2u);
  EXPECT_EQ(spec->ropes[AttentionOf(*spec, 1).rope].n_rot, 32);
}

TEST(ReadSpec, WindowsMayBeGivenLayerByLayer) {
  const std::byte flags[] = {std::byte{0}, std::byte{1}};
  const auto change = [&flags](size_t count, formats::GgufType type) {
    return [=, &flags](GgufWriter& writer) {
      writer.AddU32("gemma3.attention.sliding_window", 32);
      writer.AddF32("gemma3.rope.freq_base", 1e6f);
      writer.AddValue("gemma3.attention.sliding_window_pattern",
                      {formats::GgufType::kArray, formats::GgufArray{type, count, flags, {}}});
    };
  };
  auto spec = ReadSpecOf(change(2, formats::GgufType::kBool), "gemma3");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(AttentionOf(*spec, 0).mask.kind, arch::MaskKind::kCausal);
  EXPECT_EQ(AttentionOf(*spec, 1).mask.kind, arch::MaskKind::kWindow);
  EXPECT_EQ(AttentionOf(*spec, 0).rope, 0u);
  EXPECT_EQ(AttentionOf(*spec, 1).rope, 1u);
  EXPECT_THAT(SpecMessage(change(1, formats::GgufType::kBool), "gemma3"),
              HasSubstr("sliding_window_pattern: expected 2 booleans, found 1"));
  EXPECT_THAT(SpecMessage(change(2, formats::GgufType::kInt8), "gemma3"),
              HasSubstr("sliding_window_pattern: expected 2 booleans"));
}

// Files of MiMo V2 that llama.cpp's converter wrote.
TEST(ReadSpec, WindowsMayBeGivenByNumbers) {
  const auto change = [](int32_t second) {
    return [=](GgufWriter& writer) {
      writer.AddU32("gemma3.attention.sliding_window", 32);
      writer.AddF32("gemma3.rope.freq_base", 1e6f);
      writer.AddI32s("gemma3.attention.sliding_window_pattern", std::vector<int32_t>{0, second});
    };
  };
  auto spec = ReadSpecOf(change(1), "gemma3");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(AttentionOf(*spec, 0).mask.kind, arch::MaskKind::kCausal);
  EXPECT_EQ(AttentionOf(*spec, 1).mask.kind, arch::MaskKind::kWindow);
  EXPECT_THAT(SpecMessage(change(2), "gemma3"),
              HasSubstr("sliding_window_pattern: expected 0 or 1 for each layer, found 2"));
}

// Old files, and files of other converters, have it so.
TEST(ReadSpec, AScalingFactorWithoutATypeIsLinear) {
  auto spec =
      ReadSpecOf([](GgufWriter& writer) { writer.AddF32("llama.rope.scaling.factor", 4.0f); });
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->ropes[0].linear_factor, 4.0f);
  spec = ReadSpecOf([](GgufWriter& writer) {
    writer.AddString("llama.rope.scaling.type", "none");
    writer.AddF32("llama.rope.scaling.factor", 4.0f);
  });
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->ropes[0].linear_factor, 1.0f);
}

TEST(ReadSpec, Gemma3AlternatesWindowsAndRotaryBases) {
  const auto change = [](GgufWriter& writer) {
    writer.Remove("gemma3.block_count");
    writer.AddU32("gemma3.block_count", 13);
    writer.AddU32("gemma3.attention.sliding_window", 32);
    writer.AddF32("gemma3.rope.freq_base", 1e6f);
  };
  auto spec = ReadSpecOf(change, "gemma3");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->stacks.front().input.scale, 8.0f);
  ASSERT_EQ(spec->ropes.size(), 2u);
  EXPECT_EQ(spec->ropes[0].base, 1e6f);
  EXPECT_EQ(spec->ropes[1].base, 1e4f);
  for (size_t i = 0; i < 13; ++i) {
    const bool is_global = i == 5 || i == 11;
    EXPECT_EQ(AttentionOf(*spec, i).mask.window, is_global ? 0 : 32) << i;
    EXPECT_EQ(AttentionOf(*spec, i).rope, is_global ? 0u : 1u) << i;
  }
  EXPECT_THAT(SpecMessage(
                  [&](GgufWriter& writer) {
                    change(writer);
                    writer.AddU32("gemma3.attention.sliding_window_pattern", 0);
                  },
                  "gemma3"),
              HasSubstr("sliding_window_pattern"));
  EXPECT_THAT(SpecMessage(
                  [&](GgufWriter& writer) {
                    change(writer);
                    writer.AddF32("gemma3.rope.freq_base_swa", -1.0f);
                  },
                  "gemma3"),
              HasSubstr("freq_base_swa"));
}

TEST(ReadSpec, Gemma2HasTheNumbersOfTheReleasedModelsWhereAKeyIsAbsent) {
  auto spec = ReadSpecOf([](GgufWriter&) {}, "gemma2");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->stacks.front().output.cap, 30.0f);
  EXPECT_EQ(AttentionOf(*spec, 0).score_cap, 50.0f);
  EXPECT_EQ(AttentionOf(*spec, 0).mask.window, 4096);
  EXPECT_EQ(AttentionOf(*spec, 1).mask.kind, arch::MaskKind::kCausal);
  EXPECT_EQ(AttentionOf(*spec, 1).scale, 0.25f);
  // The 27B model, of 46 layers, scales by dim / heads.
  spec = ReadSpecOf(
      [](GgufWriter& writer) {
        writer.Remove("gemma2.block_count");
        writer.AddU32("gemma2.block_count", 46);
        writer.AddU32("gemma2.attention.key_length", 36);
      },
      "gemma2");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(AttentionOf(*spec, 45).scale, 0.25f);
  EXPECT_THAT(
      SpecMessage([](GgufWriter& w) { w.AddF32("gemma2.attn_logit_softcapping", 0); }, "gemma2"),
      HasSubstr("gemma2.attn_logit_softcapping: expected a positive number"));
}

TEST(ReadSpec, Llama4HasTheNumbersOfTheReleasedModelsWhereAKeyIsAbsent) {
  const auto layers = [](GgufWriter& writer) {
    writer.Remove("llama4.block_count");
    writer.AddU32("llama4.block_count", 5);
  };
  auto spec = ReadSpecOf(layers, "llama4");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  for (size_t i = 0; i < 5; ++i) {
    const arch::Attention& attention = AttentionOf(*spec, i);
    const bool whole = i == 3;
    EXPECT_EQ(attention.mask.kind, whole ? arch::MaskKind::kCausal : arch::MaskKind::kSections);
    EXPECT_EQ(attention.mask.window, whole ? 0 : 8192);
    EXPECT_EQ(attention.rope, whole ? arch::Attention::kNoRope : 0u);
    EXPECT_EQ(attention.temperature.scale, whole ? 0.1f : 0.0f);
    EXPECT_EQ(attention.temperature.length, whole ? 8192.0f : 1.0f);
    EXPECT_EQ(attention.temperature.offset, whole ? 1.0f : 0.0f);
    EXPECT_EQ(attention.head_norms,
              whole ? arch::HeadNorms::kNone : arch::HeadNorms::kWithoutWeights);
  }
  // A window of 0 is a model whose layers all see everything and have a rotation.
  spec = ReadSpecOf(
      [&](GgufWriter& writer) {
        layers(writer);
        writer.AddU32("llama4.attention.sliding_window", 0);
      },
      "llama4");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(AttentionOf(*spec, i).mask.kind, arch::MaskKind::kCausal);
    EXPECT_EQ(AttentionOf(*spec, i).rope, 0u);
    EXPECT_EQ(AttentionOf(*spec, i).temperature.scale, 0.0f);
    EXPECT_EQ(AttentionOf(*spec, i).head_norms, arch::HeadNorms::kWithoutWeights);
  }
}

TEST(ReadSpec, Llama4NamesTheKeysThatMakeNoSense) {
  const auto f32 = [](const char* key, float value) {
    return SpecMessage([=](GgufWriter& writer) { writer.AddF32(key, value); }, "llama4");
  };
  const auto u32 = [](const char* key, uint32_t value) {
    return SpecMessage([=](GgufWriter& writer) { writer.AddU32(key, value); }, "llama4");
  };
  for (const float bad : {0.0f, -0.1f, HUGE_VALF}) {
    EXPECT_THAT(f32("llama4.attention.temperature_scale", bad),
                HasSubstr("key llama4.attention.temperature_scale: expected a positive number"));
  }
  EXPECT_THAT(u32("llama4.attention.temperature_length", 0),
              HasSubstr("key llama4.attention.temperature_length: expected 1 to"));
  EXPECT_THAT(u32("llama4.attention.sliding_window", 0xffffffffu),
              HasSubstr("key llama4.attention.sliding_window: expected 1 to"));
  EXPECT_THAT(u32("llama4.attention.sliding_window_pattern", 0),
              HasSubstr("key llama4.attention.sliding_window_pattern: expected at least 1"));
  EXPECT_THAT(u32("llama4.expert_count", 16), HasSubstr("no layer has a router"));
}

// Baichuan 13B is known by its layers in files of other engines; a key outranks them.
TEST(ReadSpec, BaichuanHasAlibiOrARotation) {
  const auto slopes = [](uint32_t layers, std::optional<float> max_bias) -> size_t {
    const auto spec = ReadSpecOf(
        [&](GgufWriter& writer) {
          writer.Remove("baichuan.block_count");
          writer.AddU32("baichuan.block_count", layers);
          if (max_bias) writer.AddF32("baichuan.attention.max_alibi_bias", *max_bias);
        },
        "baichuan");
    if (!spec.ok()) return 99;
    const arch::Attention& attention = AttentionOf(*spec, 1);
    EXPECT_EQ(attention.rope == arch::Attention::kNoRope, !attention.bias_slopes.empty());
    return attention.bias_slopes.size();
  };
  EXPECT_EQ(slopes(32, {}), 0u);
  EXPECT_EQ(slopes(40, {}), 4u);
  EXPECT_EQ(slopes(32, 8.0f), 4u);
  EXPECT_EQ(slopes(40, 0.0f), 0u);
  EXPECT_THAT(SpecMessage([](GgufWriter& w) { w.AddF32("baichuan.attention.max_alibi_bias", -1); },
                          "baichuan"),
              HasSubstr("key baichuan.attention.max_alibi_bias: expected a positive number"));
}

TEST(ReadSpec, UnknownArchitectureIsRefusedWithTheKnownOnes) {
  const std::string message = SpecMessage([](GgufWriter&) {}, "plamo2");
  EXPECT_THAT(message, HasSubstr("\"plamo2\""));
  EXPECT_THAT(message, HasSubstr("llama, phi3, gemma3"));
}

TEST(ReadSpec, ContradictionsNameTheKey) {
  const auto without = [](const char* key) {
    return [key](GgufWriter& writer) { writer.Remove(key); };
  };
  const auto u32 = [](const char* key, uint32_t value) {
    return [key, value](GgufWriter& writer) {
      writer.Remove(key);
      writer.AddU32(key, value);
    };
  };
  EXPECT_THAT(SpecMessage(without("general.architecture")), HasSubstr("general.architecture"));
  for (const char* key : {"llama.block_count", "llama.embedding_length",
                          "llama.attention.head_count", "llama.feed_forward_length",
                          "llama.context_length", "llama.attention.layer_norm_rms_epsilon"}) {
    EXPECT_THAT(SpecMessage(without(key)), HasSubstr(key));
  }
  EXPECT_THAT(SpecMessage(u32("llama.block_count", 0)), HasSubstr("llama.block_count"));
  EXPECT_THAT(SpecMessage(u32("llama.block_count", 4000000000u)), HasSubstr("llama.block_count"));
  EXPECT_THAT(SpecMessage(u32("llama.embedding_length", 0xffffffffu)),
              HasSubstr("llama.embedding_length"));
  EXPECT_THAT(SpecMessage(u32("llama.attention.head_count", 0)),
              HasSubstr("llama.attention.head_count"));
  EXPECT_THAT(SpecMessage(u32("llama.attention.head_count", 5)), HasSubstr("no multiple"));
  EXPECT_THAT(SpecMessage(u32("llama.attention.head_count_kv", 3)), HasSubstr("no multiple"));
  EXPECT_THAT(SpecMessage(u32("llama.rope.dimension_count", 15)),
              HasSubstr("rope.dimension_count"));
  EXPECT_THAT(SpecMessage(u32("llama.rope.dimension_count", 64)),
              HasSubstr("rope.dimension_count"));
  EXPECT_THAT(SpecMessage(u32("llama.expert_count", 8)), HasSubstr("experts"));
  EXPECT_THAT(SpecMessage([](GgufWriter& writer) {
                writer.Remove("llama.block_count");
                writer.AddString("llama.block_count", "two");
              }),
              HasSubstr("llama.block_count"));
  EXPECT_THAT(SpecMessage([](GgufWriter& writer) {
                writer.AddString("llama.rope.scaling.type", "dynamic");
              }),
              HasSubstr("\"dynamic\""));
  EXPECT_THAT(
      SpecMessage([](GgufWriter& writer) { writer.AddString("llama.rope.scaling.type", "yarn"); }),
      HasSubstr("key llama.rope.scaling.factor is missing"));
  EXPECT_THAT(SpecMessage([](GgufWriter& writer) {
                writer.Remove("llama.attention.head_count_kv");
                writer.AddI32s("llama.attention.head_count_kv", {2, 2, 2});
              }),
              HasSubstr("found 3"));
  for (const float bad : {0.0f, -1.0f, HUGE_VALF, std::nanf("")}) {
    EXPECT_THAT(SpecMessage([bad](GgufWriter& writer) {
                  writer.Remove("llama.attention.layer_norm_rms_epsilon");
                  writer.AddF32("llama.attention.layer_norm_rms_epsilon", bad);
                }),
                HasSubstr("layer_norm_rms_epsilon"));
  }
}

// Arrays may count the layers that are left out, but no others.
TEST(ReadSpec, ArraysHaveAnEntryForEachLayer) {
  const auto with = [](std::vector<int32_t> heads) {
    return SpecMessage([&heads](GgufWriter& writer) {
      writer.AddU32("llama.nextn_predict_layers", 1);
      writer.Remove("llama.attention.head_count_kv");
      writer.AddI32s("llama.attention.head_count_kv", heads);
    });
  };
  EXPECT_EQ(with({2}), "accepted");
  EXPECT_EQ(with({2, 1}), "accepted");
  EXPECT_THAT(with({2, 1, 1}), HasSubstr("expected 1 32-bit integers, found 3"));
  EXPECT_THAT(with({3}), HasSubstr("4 heads are no multiple of 3"));
  EXPECT_THAT(
      SpecMessage([](GgufWriter& writer) { writer.AddU32("llama.nextn_predict_layers", 2); }),
      HasSubstr("key llama.nextn_predict_layers: expected less than 2 layers, found 2"));
}

TEST(ReadSpec, ALinearScaleUnderItsOldNameCountsUnlessThereIsTheNewOne) {
  const auto factor = [](bool both) {
    const auto spec = ReadSpecOf([both](GgufWriter& writer) {
      writer.AddF32("llama.rope.scale_linear", 3.0f);
      if (both) writer.AddF32("llama.rope.scaling.factor", 5.0f);
    });
    return spec.ok() ? spec->ropes[0].linear_factor : 0.0f;
  };
  EXPECT_EQ(factor(false), 3.0f);
  EXPECT_EQ(factor(true), 5.0f);
  EXPECT_THAT(SpecMessage([](GgufWriter& writer) { writer.AddF32("llama.rope.scale_linear", 0); }),
              HasSubstr("rope.scale_linear: expected a positive number"));
}

TEST(ReadSpec, LinearScalingDividesFrequenciesAndFactorsMultiplyPeriods) {
  auto spec = ReadSpecOf([](GgufWriter& writer) {
    writer.AddString("llama.rope.scaling.type", "linear");
    writer.AddF32("llama.rope.scaling.factor", 4.0f);
  });
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  graph::RopeSpec& rope = spec->ropes.front();
  rope.factors = {1, 2, 1, 1, 1, 1, 1, 8};
  rope.factors_long = {1, 1, 1, 1, 1, 1, 1, 16};
  rope.original_context = 100;
  const std::vector<float> near = rope.Frequencies(100);
  const std::vector<float> far = rope.Frequencies(101);
  for (size_t i = 0; i < 8; ++i) {
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 8.0) / 4.0;
    EXPECT_FLOAT_EQ(near[i], static_cast<float>(plain / (i == 1 ? 2 : i == 7 ? 8 : 1)));
    EXPECT_FLOAT_EQ(far[i], static_cast<float>(plain / (i == 7 ? 16 : 1)));
  }
}

// The formulas of arXiv 2309.00071 in another order: a share of each frequency stays.
TEST(ReadSpec, YarnSlowsDownPairsThatTurnSeldom) {
  auto spec = ReadSpecOf([](GgufWriter& writer) {
    writer.AddString("llama.rope.scaling.type", "yarn");
    writer.AddF32("llama.rope.scaling.factor", 8.0f);
    writer.AddU32("llama.rope.scaling.original_context_length", 256);
    writer.AddF32("llama.rope.scaling.yarn_beta_fast", 16.0f);
    writer.AddF32("llama.rope.scaling.yarn_beta_slow", 2.0f);
  });
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const graph::RopeSpec& rope = spec->ropes.front();
  const std::vector<float> found = rope.Frequencies(2048);
  // 256 positions are 16 turns at 10000^(-0.101) and 2 turns at 10000^(-0.327): pairs 0.81 and 2.61
  // of 8, made whole numbers outwards.
  const double low = 0;
  const double high = 3;
  for (size_t i = 0; i < 8; ++i) {
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 8.0);
    const double slowed = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    EXPECT_FLOAT_EQ(found[i], static_cast<float>(plain / 8.0 * slowed + plain * (1.0 - slowed)));
  }
  EXPECT_FLOAT_EQ(rope.amplitude, static_cast<float>(1.0 + 0.1 * std::log(8.0)));
}

TEST(Model, MissingAndMisshapenTensorsAreNamed) {
  const std::string path = TempPath("model.gguf");
  TinyModelWriter(TinyShape{}).Write(path);
  auto file = formats::GgufFile::Open(path);
  ASSERT_TRUE(file.ok());
  auto kernels = cpu::ChooseKernels("scalar");
  auto gemm = cpu::ChooseFloatGemm("own");
  auto spec = arch::ReadSpec(*file);
  ASSERT_TRUE(spec.ok());
  const auto message = [&](const std::function<void(arch::ModelSpec&)>& change) {
    arch::ModelSpec changed = *spec;
    change(changed);
    auto plan = arch::BuildPlan(*file, **kernels, **gemm, changed);
    return plan.ok() ? std::string("accepted") : plan.error().message;
  };
  EXPECT_EQ(message([](arch::ModelSpec&) {}), "accepted");
  const auto block = []<class T>(arch::ModelSpec& s, size_t layer, size_t sublayer,
                                 const T&) -> T& {
    return std::get<T>(s.stacks.front().layers[layer].sublayers[sublayer].block);
  };
  EXPECT_THAT(message([](arch::ModelSpec& s) {
                auto& layers = s.stacks.front().layers;
                layers.push_back(layers.back());
              }),
              HasSubstr("tensor blk.2.attn_q.weight is missing"));
  EXPECT_THAT(message([&](arch::ModelSpec& s) { block(s, 1, 1, arch::GatedFfn()).width = 97; }),
              HasSubstr("blk.1.ffn_gate.weight"));
  EXPECT_THAT(message([&](arch::ModelSpec& s) { block(s, 0, 0, arch::Attention()).k_dim = 8; }),
              HasSubstr("expected [64 x 32], found [64 x 64]"));
  EXPECT_THAT(message([&](arch::ModelSpec& s) {
                block(s, 1, 0, arch::Attention()).head_norms = arch::HeadNorms::kRequired;
              }),
              HasSubstr("tensor blk.1.attn_q_norm.weight is missing"));
  EXPECT_THAT(
      message([](arch::ModelSpec& s) {
        s.stacks.front().layers[0].sublayers[1].norm_after = {arch::NormKind::kRms, "after", 1e-5f};
      }),
      HasSubstr("tensor blk.0.after.weight is missing"));
  EXPECT_THAT(message([](arch::ModelSpec& s) { s.stacks.front().dim = 32; }),
              HasSubstr("token_embd.weight"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace kvant::test
