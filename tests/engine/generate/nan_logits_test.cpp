// A model whose logits are not numbers ends whatever asked for them with kCorrupt and its file, the
// position and the token.
#include <gtest/gtest.h>

#include "kvant/batch_generator.h"
#include "kvant/generator.h"
#include "kvant/kvant.h"
#include "tests/engine/generate/beam_requests.h"
#include "tests/engine/nan_model.h"

namespace kvant::test {
namespace {

constexpr TokenId kDamaged = 77;

class NanLogits : public testing::Test {
 protected:
  void SetUp() override {
    path_ = TempPath("nan.gguf");
    TinyModelWriter(TinyShape()).Write(path_);
    DamageToken(path_, kDamaged);
    auto model = Model::Open(path_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *model;
    sampling_.temperature = 0;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void ExpectNan(const Status& status, int64_t position) const {
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(status.Is(ErrorCode::kCorrupt));
    EXPECT_EQ(status.error().message, path_ + ": logits after token 77 at position " +
                                          std::to_string(position) +
                                          ": expected numbers, found NaN for token 0");
  }

  std::string path_;
  std::shared_ptr<const Model> model_;
  SamplingOptions sampling_;
  std::vector<TokenId> good_ = {1, 40, 50};
  std::vector<TokenId> bad_ = {1, 40, kDamaged, 50};
};

TEST_F(NanLogits, EndATextInItsPromptOrLater) {
  auto session = OpenSession(model_, OneThread(KvType::kF32, 1));
  for (const bool drafts : {false, true}) {
    GenerateOptions options;
    options.max_tokens = 9;
    if (drafts) options.draft = std::make_shared<NgramDraft>();
    auto sampler = *Sampler::Create(sampling_, model_->vocab_size());
    const auto whole = Generate(*session, model_->tokenizer(), sampler, good_, options, {});
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    ExpectOk(session->Rewind(0));
    sampling_.logit_bias = {{kDamaged, 1e30f}};
    sampler = *Sampler::Create(sampling_, model_->vocab_size());
    const auto later = Generate(*session, model_->tokenizer(), sampler, good_, options, {});
    ExpectNan(later.ok() ? Status() : Status(later.error()), 3);
    ExpectOk(session->Rewind(0));
    sampling_.logit_bias.clear();
    const std::vector<TokenId> prompt = {1, kDamaged};
    const auto first = Generate(*session, model_->tokenizer(), sampler, prompt, options, {});
    ExpectNan(first.ok() ? Status() : Status(first.error()), 1);
    ExpectOk(session->Rewind(0));
  }
}

TEST_F(NanLogits, EndSearchesAndBatches) {
  auto runner = OpenRunner(model_, OneThread(KvType::kF32, 4));
  const std::vector<std::vector<TokenId>> prompts = {{1, 40, kDamaged}};
  const auto found = GenerateBeams(*runner, prompts, {.search = Beams(3, 5)});
  ExpectNan(found.ok() ? Status() : Status(found.error()), 2);
  const auto fine =
      GenerateBeams(*runner, std::vector<std::vector<TokenId>>{good_}, {.search = Beams(3, 5)});
  EXPECT_TRUE(fine.ok());
  BatchOptions options;
  options.max_tokens = 4;
  options.sampling = sampling_;
  const std::vector<BatchRequest> requests = {{good_}, {{1, kDamaged}}};
  ExpectNan(GenerateBatch(*runner, model_->tokenizer(), requests, options,
                          [](const BatchText&) { return true; }),
            1);
  EXPECT_EQ(runner->stats().sequences, 0);
}

TEST_F(NanLogits, AreCorruptInC) {
  kvant_model* model = nullptr;
  kvant_runner* runner = nullptr;
  kvant_sampler* sampler = nullptr;
  ASSERT_EQ(kvant_model_open(path_.c_str(), nullptr, &model), KVANT_OK);
  ASSERT_EQ(kvant_runner_new(model, nullptr, &runner), KVANT_OK);
  ASSERT_EQ(kvant_sampler_new(nullptr, kTinyVocab, nullptr, &sampler), KVANT_OK);
  kvant_sequence sequence = -1;
  const std::vector<TokenId> tokens = {1, kDamaged};
  ASSERT_EQ(kvant_sequence_new(runner, &sequence), KVANT_OK);
  ASSERT_EQ(kvant_sequence_append(runner, sequence, tokens.data(), tokens.size()), KVANT_OK);
  kvant_token token = -1;
  EXPECT_EQ(kvant_sequence_generate(runner, sequence, sampler, &token), KVANT_CORRUPT);
  ASSERT_EQ(kvant_sequence_free(runner, sequence), KVANT_OK);

  kvant_batch* batch = nullptr;
  kvant_tokenizer* tokenizer = nullptr;
  ASSERT_EQ(kvant_tokenizer_of_model(model, &tokenizer), KVANT_OK);
  ASSERT_EQ(kvant_batch_new(runner, tokenizer, nullptr, &batch), KVANT_OK);
  kvant_request request;
  kvant_request_default(&request, sizeof(request));
  request.prompt = tokens.data();
  request.prompt_count = tokens.size();
  request.max_tokens = 3;
  std::pair<int32_t, int32_t> ended;
  request.user = &ended;
  request.on_end = [](void* user, const kvant_text* text) {
    *static_cast<std::pair<int32_t, int32_t>*>(user) = {text->finish_reason, text->status};
    return 0;
  };
  ASSERT_EQ(kvant_batch_add(batch, &request, nullptr), KVANT_OK);
  kvant_batch_run(batch);
  EXPECT_EQ(ended, std::pair(int32_t{KVANT_FINISH_ERROR}, int32_t{KVANT_CORRUPT}));
  // Here the caller leaves nothing of logits that are numbers.
  request.prompt = good_.data();
  request.on_logits = [](void*, int64_t, int32_t, const kvant_token*, size_t, float* logits,
                         size_t vocab) {
    std::fill(logits, logits + vocab, -std::numeric_limits<float>::infinity());
    return 0;
  };
  ASSERT_EQ(kvant_batch_add(batch, &request, nullptr), KVANT_OK);
  ASSERT_EQ(kvant_batch_run(batch), KVANT_OK);
  EXPECT_EQ(ended, std::pair(int32_t{KVANT_FINISH_NO_TOKEN}, int32_t{KVANT_OK}));
  kvant_batch_free(batch);
  kvant_tokenizer_free(tokenizer);
  kvant_sampler_free(sampler);
  kvant_runner_free(runner);
  kvant_model_free(model);
}

}  // namespace
}  // namespace kvant::test
