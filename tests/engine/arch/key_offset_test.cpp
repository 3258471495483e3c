// Keys with a large bias in an int8 cache: what the cache leaves out, beside the sum over all
// positions, and logits beside those of an f32 cache, also after keys have moved and gone through
// files.
#include "engine/arch/sublayers/key_offset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <vector>

#include "formats/gguf_writer.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

TEST(KeyOffset, IsTheMeanOverPositions) {
  for (const cpu::RopeStyle style : {cpu::RopeStyle::kHalves, cpu::RopeStyle::kInterleaved}) {
    graph::RopeSpec rope;
    rope.style = style;
    rope.n_rot = 6;
    rope.base = 100'000;
    rope.amplitude = 1.25f;
    const std::vector<float> bias = {3, -2, 0.5f, 7, -90, 40, 11, -5,  // of two heads, two of
                                     1, 1,  2,    4, 60,  -8, 9,  6};  // whose values do not turn
    const std::vector<float> offset = arch::MeanOfRotated(bias, 8, &rope);
    ASSERT_EQ(offset.size(), bias.size());
    std::vector<double> sums(bias.size());
    for (int64_t position = 0; position < arch::kOffsetPositions; ++position) {
      for (size_t head = 0; head < 16; head += 8) {
        for (size_t pair = 0; pair < 3; ++pair) {
          const double angle = static_cast<double>(position) *
                               std::pow(100'000.0, -2.0 * static_cast<double>(pair) / 6);
          const bool halves = style == cpu::RopeStyle::kHalves;
          const size_t a = head + (halves ? pair : 2 * pair);
          const size_t b = head + (halves ? pair + 3 : 2 * pair + 1);
          const double x = double{bias[a]};
          const double y = double{bias[b]};
          sums[a] += 1.25 * (x * std::cos(angle) - y * std::sin(angle));
          sums[b] += 1.25 * (x * std::sin(angle) + y * std::cos(angle));
        }
      }
    }
    for (size_t i = 0; i < bias.size(); ++i) {
      const bool turns = i % 8 < 6;
      const double mean = sums[i] / static_cast<double>(arch::kOffsetPositions);
      EXPECT_NEAR(double{offset[i]}, turns ? mean : double{bias[i]}, 1e-3) << i;
    }
    EXPECT_EQ(arch::MeanOfRotated(bias, 8, nullptr), bias);
  }
}

// ---- Whole models -------------------------------------------------------------------------------

// A tiny Llama whose keys have a large bias where they rotate slowly, as those of Qwen 2.5 have;
// factor 0: none.
std::shared_ptr<const Model> OpenBiased(float factor) {
  TinyShape shape;
  shape.head_dim = 32;
  shape.dim = 128;
  const std::string plain = TempPath("plain.gguf");
  const std::string biased = TempPath("biased.gguf");
  TinyModelWriter(shape).Write(plain);
  const auto file = formats::GgufFile::Open(plain);
  EXPECT_TRUE(file.ok());
  formats::GgufWriter writer;
  for (const auto& [key, value] : file->metadata()) writer.AddValue(std::string(key), value);
  writer.AddF32("llama.rope.freq_base", 1e7f);
  for (const formats::GgufTensor& tensor : file->tensors()) {
    const auto dims = std::span(tensor.dims, static_cast<size_t>(tensor.n_dims));
    EXPECT_TRUE(writer.AddTensor(std::string(tensor.name), *tensor.format, dims).ok());
  }
  std::vector<float> bias(static_cast<size_t>(shape.kv_heads * shape.head_dim));
  for (size_t head = 0; head < 2; ++head) {
    bias[head * 32 + 31] = factor * 200;  // the last pair, which turns by 3e-7 a position
    bias[head * 32 + 28] = factor * -90;
  }
  const std::vector<int64_t> dims = {std::ssize(bias)};
  for (const char* name : {"blk.0.attn_k.bias", "blk.1.attn_k.bias"}) {
    EXPECT_TRUE(writer.AddTensor(name, *quant::FindFormat("F32"), dims).ok());
  }
  EXPECT_TRUE(writer.Begin(biased).ok());
  for (const formats::GgufTensor& tensor : file->tensors()) {
    EXPECT_TRUE(writer.WriteTensor({tensor.data, tensor.size_bytes}).ok());
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(writer.WriteTensor(std::as_bytes(std::span(bias))).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  const auto model = Model::Open(biased);
  EXPECT_TRUE(model.ok());
  std::filesystem::remove(plain);
  std::filesystem::remove(biased);
  return model.ok() ? *model : nullptr;
}

std::unique_ptr<Session> OpenWithKeys(const std::shared_ptr<const Model>& model, KvType type) {
  SessionOptions options;
  options.k_type = type;
  options.v_type = KvType::kF32;
  options.threads = 2;
  return OpenSession(model, options);
}

// How far the logits of int8 keys are from those of f32 keys.
double ErrorOfCodes(const std::shared_ptr<const Model>& model, size_t piece) {
  const std::vector<TokenId> tokens = RandomTokens(200, 4);
  auto exact = OpenWithKeys(model, KvType::kF32);
  auto coded = OpenWithKeys(model, KvType::kQ8);
  return MaxDifference(AllLogits(*coded, tokens, piece), AllLogits(*exact, tokens, piece));
}

// Without the offset a bias of 220 makes the steps of codes some 20 times as large.
constexpr double kTimesPlain = 5;

TEST(KeyOffset, LeavesCodesForWhatTellsPositionsApart) {
  const auto plain = OpenBiased(0);
  const auto biased = OpenBiased(1);
  for (const size_t piece : {size_t{1}, size_t{64}, size_t{200}}) {
    EXPECT_LT(ErrorOfCodes(biased, piece), kTimesPlain * ErrorOfCodes(plain, piece)) << piece;
  }
}

TEST(KeyOffset, StaysWithKeysThatMoveAndGoThroughFiles) {
  const std::vector<TokenId> tokens = RandomTokens(120, 5);
  const std::vector<TokenId> more = RandomTokens(20, 6);
  std::vector<double> errors;
  for (const float factor : {0.0f, 1.0f}) {
    const auto model = OpenBiased(factor);
    auto exact = OpenWithKeys(model, KvType::kF32);
    auto coded = OpenWithKeys(model, KvType::kQ8);
    for (Session* session : {exact.get(), coded.get()}) {
      ASSERT_TRUE(session->Append(tokens).ok());
      ASSERT_TRUE(session->Prune(4, 60, PrunePositions::kMoved).ok());
    }
    const std::string path = TempPath("session.kvs");
    ASSERT_TRUE(coded->Save(path).ok());
    auto loaded = OpenWithKeys(model, KvType::kQ8);
    ASSERT_TRUE(loaded->Load(path).ok());
    std::filesystem::remove(path);
    const std::vector<float> expected = AllLogits(*exact, more, 20);
    const std::vector<float> found = AllLogits(*coded, more, 20);
    errors.push_back(MaxDifference(found, expected));
    EXPECT_EQ(AllLogits(*loaded, more, 20), found);
  }
  EXPECT_LT(errors[1], kTimesPlain * errors[0]);
}

}  // namespace
}  // namespace kvant::test
