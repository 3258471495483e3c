// Metadata of architectures with recurrent layers: which layers these are, and sizes that
// contradict each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/gguf.h"
#include "tests/engine/arch/spec_of_metadata.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

// A layer without kv heads is a recurrent one in families that have such layers (RS-19), and an
// error in others.
TEST(ReadSpec, LayersWithoutKvHeadsAreRecurrent) {
  const auto with = [](const std::vector<int32_t>& kv_heads, uint32_t taps) {
    return [=](GgufWriter& writer) {
      writer.Remove("lfm2.attention.head_count_kv");
      if (!kv_heads.empty()) writer.AddI32s("lfm2.attention.head_count_kv", kv_heads);
      if (taps > 0) writer.AddU32("lfm2.shortconv.l_cache", taps);
    };
  };
  const auto spec = ReadSpecOf(with({0, 2}, 3), "lfm2");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto& layers = spec->stacks.front().layers;
  EXPECT_EQ(std::get<arch::ShortConv>(layers[0].sublayers[0].block).taps, 3);
  EXPECT_EQ(std::get<arch::Attention>(layers[1].sublayers[0].block).kv_heads, 2);
  EXPECT_THAT(SpecMessage(with({0, 0}, 3), "lfm2"), HasSubstr("expected kv heads in some layer"));
  EXPECT_THAT(SpecMessage(with({0, 3}, 3), "lfm2"), HasSubstr("4 heads are no multiple of 3"));
  EXPECT_THAT(SpecMessage(with({0, -1}, 3), "lfm2"), HasSubstr("head_count_kv: expected 1 to"));
  EXPECT_THAT(SpecMessage(with({0}, 3), "lfm2"), HasSubstr("expected 2 32-bit integers, found 1"));
  EXPECT_THAT(SpecMessage(with({}, 3), "lfm2"), HasSubstr("head_count_kv is missing"));
  EXPECT_THAT(SpecMessage(with({0, 2}, 0), "lfm2"), HasSubstr("shortconv.l_cache is missing"));
  EXPECT_THAT(SpecMessage(with({0, 2}, 1), "lfm2"),
              HasSubstr("l_cache: expected 2 to 64, found 1"));
  EXPECT_THAT(SpecMessage(with({0, 2}, 65), "lfm2"), HasSubstr("expected 1 to 64, found 65"));
  EXPECT_THAT(SpecMessage([](GgufWriter& writer) {
                writer.Remove("llama.attention.head_count_kv");
                writer.AddI32s("llama.attention.head_count_kv", {2, 0});
              }),
              HasSubstr("expected 1 to"));
}

// Which layers are recurrent follows from an interval or from flags, which must not contradict each
// other (RS-19); heads must divide what they are heads of.
TEST(ReadSpec, DeltaNetsAreCheckedAgainstTheirSizes) {
  using Change = std::function<void(GgufWriter&)>;
  const auto with = [](const Change& change) {
    return [change](GgufWriter& writer) {
      const auto add = [&](const std::string& key, uint32_t value) {
        writer.AddU32("qwen35." + key, value);
      };
      add("ssm.conv_kernel", 4);
      add("ssm.group_count", 2);
      add("ssm.time_step_rank", 4);
      add("ssm.state_size", 8);
      add("ssm.inner_size", 48);
      add("full_attention_interval", 2);
      change(writer);
    };
  };
  const auto replaced = [&](const std::string& key, uint32_t value) {
    return SpecMessage(with([=](GgufWriter& writer) {
                         writer.Remove("qwen35." + key);
                         if (value > 0) writer.AddU32("qwen35." + key, value);
                       }),
                       "qwen35");
  };
  const auto spec = ReadSpecOf(with([](GgufWriter&) {}), "qwen35");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto& layers = spec->stacks.front().layers;
  const auto& net = std::get<arch::DeltaNet>(layers[0].sublayers[0].block);
  EXPECT_EQ(net.value_dim, 12);
  EXPECT_EQ(net.KeyHead(3), 1);  // key heads take turns
  EXPECT_TRUE(std::get<arch::Attention>(layers[1].sublayers[0].block).gated);
  EXPECT_THAT(replaced("ssm.time_step_rank", 3), HasSubstr("a multiple of 2 key heads, found 3"));
  EXPECT_THAT(replaced("ssm.inner_size", 50), HasSubstr("a multiple of 4 value heads, found 50"));
  EXPECT_THAT(replaced("ssm.inner_size", 0), HasSubstr("ssm.inner_size is missing"));
  EXPECT_THAT(replaced("ssm.state_size", 1u << 20), HasSubstr("expected 1 to 4096"));
  EXPECT_THAT(replaced("ssm.conv_kernel", 1), HasSubstr("expected 2 to 64, found 1"));
  EXPECT_THAT(replaced("full_attention_interval", 3), HasSubstr("expected kv heads in some layer"));
  const auto flags = [&](const std::vector<bool>& recurrent) {
    return with([=](GgufWriter& writer) {
      formats::GgufArray array;
      array.type = formats::GgufType::kBool;
      array.count = recurrent.size();
      static const std::byte bytes[] = {std::byte{1}, std::byte{0}, std::byte{1}};
      array.data = recurrent[0] ? bytes : bytes + 1;
      writer.AddValue("qwen35.attention.recurrent_layers", {formats::GgufType::kArray, array});
    });
  };
  EXPECT_TRUE(ReadSpecOf(flags({true, false}), "qwen35").ok());
  EXPECT_THAT(
      SpecMessage(flags({false, true}), "qwen35"),
      HasSubstr("layer 0: expected what full_attention_interval 2 makes it, found attention"));
}

TEST(ReadSpec, HeadsOfMamba2AreCheckedAgainstTheirSizes) {
  const auto message = [](const std::string& key, uint32_t value) {
    return SpecMessage(
        [=](GgufWriter& writer) {
          const std::pair<const char*, uint32_t> sizes[] = {{"ssm.conv_kernel", 4},
                                                            {"ssm.group_count", 2},
                                                            {"ssm.time_step_rank", 4},
                                                            {"ssm.state_size", 8},
                                                            {"ssm.inner_size", 48}};
          for (const auto& [name, size] : sizes) {
            const uint32_t number = name == key ? value : size;
            if (number > 0) writer.AddU32(std::string("mamba2.") + name, number);
          }
        },
        "mamba2");
  };
  EXPECT_EQ(message("", 0), "accepted");
  EXPECT_THAT(message("ssm.group_count", 3), HasSubstr("a divisor of 4 heads, found 3"));
  EXPECT_THAT(message("ssm.inner_size", 50), HasSubstr("a multiple of 4 heads, found 50"));
  EXPECT_THAT(message("ssm.time_step_rank", 0), HasSubstr("ssm.time_step_rank is missing"));
  EXPECT_THAT(message("ssm.state_size", 1u << 20), HasSubstr("expected 1 to 4096"));
}

TEST(ReadSpec, HeadsAndShiftsOfRwkvAreChecked) {
  const auto message = [](const std::string& family, const std::string& key, uint32_t value) {
    return SpecMessage(
        [=](GgufWriter& writer) {
          using Sizes = std::vector<std::pair<const char*, uint32_t>>;
          Sizes sizes = {{"wkv.head_size", 16}, {"token_shift_count", 2}};
          const Sizes own = family == "rwkv6" ? Sizes{{"time_mix_extra_dim", 8},
                                                      {"time_decay_extra_dim", 8},
                                                      {"rescale_every_n_layers", 1}}
                                              : Sizes{{"attention.decay_lora_rank", 8},
                                                      {"attention.iclr_lora_rank", 8},
                                                      {"attention.value_residual_mix_lora_rank", 8},
                                                      {"attention.gate_lora_rank", 8}};
          sizes.insert(sizes.end(), own.begin(), own.end());
          writer.AddF32(family + ".attention.layer_norm_epsilon", 1e-5f);
          for (const auto& [name, size] : sizes) {
            const uint32_t number = name == key ? value : size;
            if (number > 0) writer.AddU32(family + "." + name, number);
          }
        },
        family);
  };
  for (const char* family : {"rwkv6", "rwkv7"}) {
    EXPECT_EQ(message(family, "", 0), "accepted");
    EXPECT_EQ(message(family, "token_shift_count", 0), "accepted");
    EXPECT_THAT(message(family, "wkv.head_size", 0), HasSubstr("wkv.head_size is missing"));
    EXPECT_THAT(message(family, "wkv.head_size", 24), HasSubstr("a divisor of 64, found 24"));
    EXPECT_THAT(message(family, "wkv.head_size", 1u << 20), HasSubstr("expected 1 to 4096"));
    EXPECT_THAT(message(family, "token_shift_count", 1), HasSubstr("expected 2, found 1"));
  }
  EXPECT_THAT(message("rwkv6", "time_mix_extra_dim", 0), HasSubstr("extra_dim is missing"));
  EXPECT_THAT(message("rwkv7", "attention.gate_lora_rank", 0), HasSubstr("rank is missing"));
}

// Layers without kv heads have delta attention, the others latent attention.
TEST(ReadSpec, KimiDeltaAttentionIsReadFromItsSizes) {
  using Change = std::function<void(GgufWriter&)>;
  const auto with = [](const std::string& family, const Change& change) {
    return [=](GgufWriter& writer) {
      writer.Remove(family + ".attention.head_count_kv");
      writer.AddI32s(family + ".attention.head_count_kv", {0, 1});
      const std::pair<const char*, uint32_t> sizes[] = {{"ssm.conv_kernel", 4},
                                                        {"kda.head_dim", 8},
                                                        {"attention.kv_lora_rank", 12},
                                                        {"attention.key_length_mla", 24},
                                                        {"attention.value_length_mla", 10},
                                                        {"rope.dimension_count", 8}};
      for (const auto& [name, size] : sizes) {
        writer.AddU32(fmt::format("{}.{}", family, name), size);
      }
      if (family == "bailingmoe3") writer.AddF32("bailingmoe3.kda.gate_lower_bound", -5.0f);
      change(writer);
    };
  };
  const auto spec = ReadSpecOf(with("bailingmoe3", [](GgufWriter&) {}), "bailingmoe3");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto& layers = spec->stacks.front().layers;
  const auto& kda = std::get<arch::Kda>(layers[0].sublayers[0].block);
  EXPECT_EQ(kda.heads, 4);
  EXPECT_EQ(kda.head_dim, 8);
  EXPECT_EQ(kda.bound, -5.0f);
  const auto& latent = std::get<arch::LatentAttention>(layers[1].sublayers[0].block);
  EXPECT_TRUE(latent.gated);
  EXPECT_EQ(latent.rope, size_t{0});
  const auto kimi = ReadSpecOf(with("kimi-linear", [](GgufWriter&) {}), "kimi-linear");
  ASSERT_TRUE(kimi.ok()) << kimi.error().message;
  const auto& others = kimi->stacks.front().layers;
  EXPECT_EQ(std::get<arch::Kda>(others[0].sublayers[0].block).bound, 0.0f);
  EXPECT_EQ(std::get<arch::LatentAttention>(others[1].sublayers[0].block).rope, std::nullopt);
  EXPECT_TRUE(kimi->ropes.empty());

  const auto message = [&](const Change& change) {
    return SpecMessage(with("bailingmoe3", change), "bailingmoe3");
  };
  const auto without = [&](const std::string& key) {
    return message([=](GgufWriter& writer) { writer.Remove("bailingmoe3." + key); });
  };
  EXPECT_THAT(without("kda.gate_lower_bound"), HasSubstr("gate_lower_bound is missing"));
  EXPECT_THAT(without("kda.head_dim"), HasSubstr("kda.head_dim is missing"));
  EXPECT_THAT(without("ssm.conv_kernel"), HasSubstr("ssm.conv_kernel is missing"));
  EXPECT_THAT(
      message([](GgufWriter& writer) { writer.AddBool("bailingmoe3.kda.safe_gate", false); }),
      HasSubstr("safe_gate: false is not supported"));
  EXPECT_THAT(message([](GgufWriter& writer) {
                writer.Remove("bailingmoe3.kda.gate_lower_bound");
                writer.AddF32("bailingmoe3.kda.gate_lower_bound", 0.5f);
              }),
              HasSubstr("expected a number below 0, found 0.5"));
  EXPECT_THAT(message([](GgufWriter& writer) {
                writer.Remove("bailingmoe3.attention.head_count_kv");
                writer.AddI32s("bailingmoe3.attention.head_count_kv", {0, 0});
              }),
              HasSubstr("expected kv heads in some layer, found none"));
}

TEST(ReadSpec, SizesOfMamba1AreChecked) {
  const auto message = [](const std::string& key, uint32_t value) {
    return SpecMessage(
        [=](GgufWriter& writer) {
          const std::pair<const char*, uint32_t> sizes[] = {{"ssm.conv_kernel", 4},
                                                            {"ssm.time_step_rank", 4},
                                                            {"ssm.state_size", 8},
                                                            {"ssm.inner_size", 48}};
          for (const auto& [name, size] : sizes) {
            const uint32_t number = name == key ? value : size;
            if (number > 0) writer.AddU32(std::string("mamba.") + name, number);
          }
        },
        "mamba");
  };
  EXPECT_EQ(message("", 0), "accepted");
  EXPECT_THAT(message("ssm.conv_kernel", 1), HasSubstr("found 1"));
  EXPECT_THAT(message("ssm.inner_size", 0), HasSubstr("ssm.inner_size is missing"));
  EXPECT_THAT(message("ssm.time_step_rank", 1u << 30), HasSubstr("time_step_rank: expected 1 to"));
  EXPECT_THAT(message("ssm.state_size", 1u << 20), HasSubstr("expected 1 to 4096"));
}

TEST(ReadSpec, ALayerOfNemotronHIsOneSublayer) {
  const auto message = [](const std::vector<int32_t>& kv_heads,
                          const std::vector<int32_t>& widths) {
    return SpecMessage(
        [=](GgufWriter& writer) {
          writer.AddU32("nemotron_h.ssm.conv_kernel", 4);
          writer.AddU32("nemotron_h.ssm.group_count", 2);
          writer.AddU32("nemotron_h.ssm.time_step_rank", 4);
          writer.AddU32("nemotron_h.ssm.state_size", 8);
          writer.AddU32("nemotron_h.ssm.inner_size", 48);
          writer.Remove("nemotron_h.attention.head_count_kv");
          writer.Remove("nemotron_h.feed_forward_length");
          writer.AddI32s("nemotron_h.attention.head_count_kv", kv_heads);
          writer.AddI32s("nemotron_h.feed_forward_length", widths);
        },
        "nemotron_h");
  };
  EXPECT_EQ(message({0, 2}, {16, 0}), "accepted");
  EXPECT_THAT(message({0, 2}, {16, 16}), HasSubstr("layer 1: expected kv heads or a feed-forward"));
  EXPECT_THAT(message({0, 0}, {16, 0}), HasSubstr("expected kv heads in some layer"));
  EXPECT_THAT(message({0, 2}, {-1, 0}), HasSubstr("feed_forward_length"));
}

}  // namespace
}  // namespace kvant::test
