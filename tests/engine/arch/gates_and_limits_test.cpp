// Gates of attention's result and bounds of experts, as files have them: what is wrong is refused
// by name, and bounds change what they must. The models are those of tests/reference/seeded.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <variant>
#include <vector>

#include "engine/arch/spec.h"
#include "formats/gguf.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/formats/gguf_bytes.h"

namespace kvant::test {
namespace {

// The file of a seeded model, where a text of its bytes has become another one of the same length.
std::vector<std::byte> FileWith(const std::string& model, const std::string& text,
                                const std::string& other) {
  SeededModel seeded(model);
  const auto path = seeded.Convert();
  EXPECT_TRUE(path.ok()) << path.error().message;
  std::ifstream stream(*path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(stream), {}};
  EXPECT_EQ(text.size(), other.size());
  size_t at = bytes.find(text);
  EXPECT_NE(at, std::string::npos) << text;
  if (at != std::string::npos) bytes.replace(at, text.size(), other);
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  return {begin, begin + bytes.size()};
}

std::string MessageOf(const std::vector<std::byte>& bytes) {
  const auto file = formats::GgufFile::Parse(bytes, "model.gguf");
  if (!file.ok()) return file.error().message;
  const auto spec = arch::ReadSpec(*file);
  return spec.ok() ? "accepted" : spec.error().message;
}

TEST(GatesAndLimits, AGateThatIsMissingIsNamed) {
  const auto bytes = FileWith("laguna", "blk.1.attn_gate.weight", "blk.1.attn_gale.weight");
  EXPECT_EQ(MessageOf(bytes), "model.gguf: tensor blk.1.attn_gate.weight is missing");
}

// As many gates as half of the heads: the file says that there are twice as many heads.
TEST(GatesAndLimits, AGateOfAnotherWidthIsNamed) {
  const Bytes four = U32Entry("spark2_5.attention.head_count", 4);
  const Bytes two = U32Entry("spark2_5.attention.head_count", 2);
  const auto text = [](const Bytes& bytes) {
    const auto span = bytes.span();
    return std::string(reinterpret_cast<const char*>(span.data()), span.size());
  };
  EXPECT_EQ(MessageOf(FileWith("spark2_5", text(four), text(two))),
            "model.gguf: tensor blk.0.attn_gate.weight: expected 2 or 32 rows, found 4");
}

TEST(GatesAndLimits, WindowsThatHaveNoLengthAreNamed) {
  const auto bytes =
      FileWith("maple", "maple.attention.sliding_window", "maple.attention.sliding_wind0w");
  EXPECT_EQ(MessageOf(bytes), "model.gguf: key maple.attention.sliding_window is missing");
}

// The bounds of the gates: of Maple before the activation, of Step 3.5 behind it, where SiLU of the
// bound is the number of the file.
TEST(GatesAndLimits, BoundsStandBeforeOrBehindTheActivation) {
  const auto experts_of = [](const std::string& model, size_t layer) {
    SeededModel seeded(model);
    const auto path = seeded.Convert();
    EXPECT_TRUE(path.ok()) << path.error().message;
    const auto file = formats::GgufFile::Open(*path);
    const auto spec = arch::ReadSpec(*file).value();
    return std::get<arch::Experts>(spec.stacks.front().layers[layer].sublayers[1].block);
  };
  const arch::Experts maple = experts_of("maple", 0);
  EXPECT_EQ(maple.activation.gate_max, 7.0f);
  EXPECT_EQ(maple.activation.up_max, 7.0f);
  EXPECT_FALSE(maple.shared_activation.has_limits());
  const arch::Experts step = experts_of("step35", 2);
  const auto gate = static_cast<double>(step.activation.gate_max);
  EXPECT_NEAR(gate / (1 + std::exp(-gate)), 0.6, 1e-6);
  EXPECT_EQ(step.activation.up_max, 0.6f);
  EXPECT_EQ(step.shared_activation.up_max, 0.5f);
  EXPECT_FALSE(experts_of("step35", 1).activation.has_limits());
}

}  // namespace
}  // namespace kvant::test
