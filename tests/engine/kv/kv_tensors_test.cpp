// Compares caches as tensors with what Hugging Face transformers holds after equal tokens
// (tests/reference/make_kv_fixtures.py), and converts them there and back in every layout.
#include "kvant/kv_tensors.h"

#include <gtest/gtest.h>

#include "tests/engine/run/runner_kinds.h"
#include "tests/shared_data.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

constexpr double kClose32 = 1e-3;  // sums of f32 in another order

class HfCaches : public testing::TestWithParam<const char*> {
 protected:
  KvTensors Expected() const {
    auto read =
        ReadKvTensors(SourcePath(std::string("tests/reference/kv/") + GetParam() + ".safetensors"));
    EXPECT_TRUE(read.ok()) << read.error().message;
    return std::move(*read);
  }
  std::unique_ptr<Runner> Open() const {
    auto model = Model::Open(
        SourcePath(std::string("tests/reference/beam_search/") + GetParam() + ".gguf"), OwnGemm());
    EXPECT_TRUE(model.ok()) << model.error().message;
    return OpenRunner(*model, Options(KvType::kF32, 4));
  }
};

TEST_P(HfCaches, HoldTheSameKeysAndValues) {
  const KvTensors expected = Expected();
  const auto runner = Open();
  std::vector<SequenceId> ids;
  for (const std::vector<TokenId>& tokens : expected.tokens) {
    ids.push_back(NewSequence(*runner));
    ExpectOk(runner->Append(ids.back(), tokens));
  }
  const auto found = runner->Export(ids, KvLayout::kBhsd);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->tokens, expected.tokens);
  ASSERT_EQ(found->tensors.size(), expected.tensors.size());
  for (const KvTensor& tensor : found->tensors) {
    const KvTensor* other = expected.Find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    ASSERT_EQ(tensor.shape, other->shape) << tensor.name;
    EXPECT_LE(MaxDifference(tensor.values, other->values), kClose32) << tensor.name;
  }
}

TEST_P(HfCaches, AreContinued) {
  const KvTensors hf = Expected();
  const auto runner = Open();
  const auto imported = runner->Import(hf, KvLayout::kBhsd);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  for (size_t b = 0; b < hf.tokens.size(); ++b) {
    const SequenceId computed = NewSequence(*runner);
    ExpectOk(runner->Append(computed, hf.tokens[b]));
    for (const TokenId token : {5, 9, 13}) {
      ExpectOk(runner->Append(computed, {&token, 1}));
      ExpectOk(runner->Append((*imported)[b], {&token, 1}));
      EXPECT_LE(MaxDifference(runner->logits(computed), runner->logits((*imported)[b])), kClose32);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, HfCaches, testing::Values("mha", "gqa-window"),
                         [](const auto& test) {
                           return std::string(test.param) == "mha" ? "mha" : "gqa_window";
                         });

// The shape of the keys of two sequences; the key of a latent row is its rotated part.
std::vector<int64_t> KeyShape(const Kind& kind, int64_t positions) {
  if (kind.arch.starts_with("deepseek")) return {2, 1, positions, LatentShape().latent.rope};
  return {2, 2, positions, 16};
}

// Indexers have a layer of keys alone behind each attention's.
bool HasIndexers(const Kind& kind) {
  return kind.arch == "deepseek32" || kind.arch == "minimax-m3";
}

// Rotated parts and latents do not fit one tensor, nor do keys without values.
std::vector<KvLayout> Layouts(const Kind& kind) {
  if (kind.arch == "deepseek2" || HasIndexers(kind)) return {KvLayout::kBhsd};
  return {KvLayout::kBhsd, KvLayout::kKbhsd, KvLayout::kBkhsd};
}

// Sequences that were exported and imported go on with equal bits; int8 is quantized again.
TEST_P(RunnerKinds, ExportAndImportInEveryLayout) {
  const TemporaryFolder folder;
  const auto runner = OpenRunner(OpenModel(), Options(GetParam().type, 6));
  std::vector<SequenceId> ids;
  for (const uint32_t seed : {1u, 2u}) {
    ids.push_back(NewSequence(*runner));
    ExpectOk(runner->Append(ids.back(), RandomTokens(150, seed)));
  }
  // The layer shown has no window in the mixed kinds; the one before it has.
  const int64_t behind = 150 - GetParam().FirstVisible(150);
  const int64_t held = GetParam().sees_all() ? 150 : behind;
  const auto bhsd = runner->Export(ids, KvLayout::kBhsd);
  ASSERT_TRUE(bhsd.ok()) << bhsd.error().message;
  const std::string shown = HasIndexers(GetParam()) ? "past_key_values.2." : "past_key_values.1.";
  const KvTensor* key = bhsd->Find(shown + "key");
  const KvTensor* value = bhsd->Find(shown + "value");
  ASSERT_TRUE(key != nullptr && value != nullptr);
  EXPECT_EQ(key->shape, KeyShape(GetParam(), held));
  const KvTensor* before = bhsd->Find("past_key_values.0.key");
  ASSERT_NE(before, nullptr);
  EXPECT_EQ(before->shape, KeyShape(GetParam(), behind));
  for (const KvLayout layout : Layouts(GetParam())) {
    const auto tensors = runner->Export(ids, layout);
    ASSERT_TRUE(tensors.ok());
    if (layout != KvLayout::kBhsd) {
      const bool keys_first = layout == KvLayout::kKbhsd;
      const KvTensor* past = tensors->Find("past_1");
      ASSERT_NE(past, nullptr);
      EXPECT_EQ(past->shape, (std::vector<int64_t>{2, 2, 2, held, 16}));
      // By sequence and by part, number by number.
      const size_t half = key->values.size() / 2;
      for (size_t b = 0; b < 2; ++b) {
        const size_t key_at = keys_first ? b * half : 2 * b * half;
        const size_t value_at = keys_first ? (2 + b) * half : (2 * b + 1) * half;
        for (size_t i = 0; i < half; ++i) {
          ASSERT_EQ(past->values[key_at + i], key->values[b * half + i]);
          ASSERT_EQ(past->values[value_at + i], value->values[b * half + i]);
        }
      }
    }
    const std::string path = folder / "cache.safetensors";
    ExpectOk(WriteKvTensors(path, *tensors));
    const auto read = ReadKvTensors(path);
    ASSERT_TRUE(read.ok()) << read.error().message;
    const auto imported = runner->Import(*read, layout);
    ASSERT_TRUE(imported.ok()) << imported.error().message;
    for (size_t b = 0; b < 2; ++b) {
      const SequenceId copy = (*imported)[b];
      EXPECT_EQ(runner->length(copy), 150);
      EXPECT_TRUE(runner->logits(copy).empty());
      const auto fork = runner->Fork(ids[b]);
      ASSERT_TRUE(fork.ok());
      for (const TokenId token : RandomTokens(40, 3)) {
        ExpectOk(runner->Append(*fork, {&token, 1}));
        ExpectOk(runner->Append(copy, {&token, 1}));
        const double difference = MaxDifference(runner->logits(*fork), runner->logits(copy));
        if (GetParam().type == KvType::kQ8) {
          EXPECT_LE(difference, 0.05);
        } else {
          ASSERT_EQ(difference, 0.0);
        }
      }
      ExpectOk(runner->FreeSequence(*fork));
      ExpectOk(runner->FreeSequence(copy));
    }
  }
}

TEST(KvTensors, LatentsFitOneLayoutOnly) {
  const auto runner = OpenRunner(OpenTiny(LatentShape(), OwnGemm()), Options(KvType::kF32, 1));
  const SequenceId id = NewSequence(*runner);
  ExpectOk(runner->Append(id, RandomTokens(10, 1)));
  EXPECT_TRUE(runner->Export(std::vector{id}, KvLayout::kBhsd).ok());
  for (const KvLayout layout : {KvLayout::kKbhsd, KvLayout::kBkhsd}) {
    EXPECT_EQ(runner->Export(std::vector{id}, layout).error().code, ErrorCode::kNotSupported);
  }
}

TEST(KvTensors, WhatDoesNotFitIsNamed) {
  TinyShape shape;
  const auto runner = OpenRunner(OpenTiny(shape, OwnGemm()), Options(KvType::kF32, 3));
  const SequenceId a = NewSequence(*runner);
  const SequenceId b = NewSequence(*runner);
  ExpectOk(runner->Append(a, RandomTokens(10, 1)));
  ExpectOk(runner->Append(b, RandomTokens(11, 1)));
  EXPECT_EQ(runner->Export(std::vector{a, b}, KvLayout::kBhsd).error().code, ErrorCode::kInvalid);
  const auto tensors = runner->Export(std::vector{a}, KvLayout::kBhsd);
  ASSERT_TRUE(tensors.ok());
  const auto refused = [&](const std::string& name, auto change) {
    KvTensors changed = *tensors;
    change(changed);
    const auto imported = runner->Import(changed, KvLayout::kBhsd);
    ASSERT_FALSE(imported.ok());
    EXPECT_EQ(imported.error().code, ErrorCode::kInvalid);
    EXPECT_NE(imported.error().message.find(name), std::string::npos) << imported.error().message;
    EXPECT_EQ(runner->stats().sequences, 2);
    ExpectOk(runner->Check());
  };
  refused("past_key_values.1.key", [](KvTensors& t) { t.tensors[2].name = "other"; });
  refused("past_key_values.0.value", [](KvTensors& t) { t.tensors[1].shape = {1, 2, 9, 16}; });
  refused("past_key_values.0.key", [](KvTensors& t) { t.tensors[0].shape = {1, 2, 16}; });
  refused("id", [](KvTensors& t) { t.tokens[0][3] = kTinyVocab; });
  ExpectOk(runner->Prune(a, 2, 2, PrunePositions::kKept));
  EXPECT_EQ(runner->Export(std::vector{a}, KvLayout::kBhsd).error().code, ErrorCode::kNotSupported);
}

}  // namespace
}  // namespace kvant::test
