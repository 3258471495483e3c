// Tests the border of the C API: structs of other versions, errors by handle and thread, callbacks
// that end texts, that free what they are called from, or that call what they may not.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kvant/kvant.h"
#include "kvant/runner.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

class CApiBorder : public testing::Test {
 public:
  void SetUp() override {
    const std::string path = TempPath("capi_border.gguf");
    TinyModelWriter(TinyShape()).Write(path);
    ASSERT_EQ(kvant_model_open(path.c_str(), nullptr, &model_), KVANT_OK) << Reason();
    std::filesystem::remove(path);  // the mapping stays valid
    kvant_runner_options options;
    kvant_runner_options_default(&options, sizeof(options));
    options.sequences = 2;
    options.threads = 1;
    ASSERT_EQ(kvant_runner_new(model_, &options, &runner_), KVANT_OK) << Reason();
    ASSERT_EQ(kvant_tokenizer_of_model(model_, &tokenizer_), KVANT_OK);
    ASSERT_EQ(kvant_batch_new(runner_, tokenizer_, nullptr, &batch_), KVANT_OK) << Reason();
    kvant_request_default(&request_, sizeof(request_));
    request_.prompt = prompt_.data();
    request_.prompt_count = prompt_.size();
    request_.max_tokens = 20;
    request_.ignore_end = 1;
    request_.user = this;
    request_.on_end = [](void* user, const kvant_text* text) {
      auto* test = static_cast<CApiBorder*>(user);
      test->reasons_.push_back(text->finish_reason);
      test->counts_.push_back(text->count);
      return 0;
    };
  }
  void TearDown() override {
    kvant_model_free(model_);  // before what was made from it
    kvant_runner_free(runner_);
    kvant_batch_free(batch_);
    kvant_tokenizer_free(tokenizer_);
  }

  static std::string Reason() { return kvant_last_error(nullptr); }

  std::vector<TokenId> prompt_ = RandomTokens(9, 1);
  kvant_model* model_ = nullptr;
  kvant_runner* runner_ = nullptr;
  kvant_tokenizer* tokenizer_ = nullptr;
  kvant_batch* batch_ = nullptr;
  kvant_request request_ = {};
  std::vector<int32_t> reasons_;
  std::vector<size_t> counts_;
};

TEST_F(CApiBorder, StructsOfOtherVersionsAreRead) {
  // An older caller ends after its first fields: the others keep their defaults.
  kvant_runner_options older;
  ASSERT_EQ(kvant_runner_options_default(&older, offsetof(kvant_runner_options, chunk)), KVANT_OK);
  older.context = 64;
  std::memset(&older.chunk, 0xFF, sizeof(older) - offsetof(kvant_runner_options, chunk));
  kvant_runner* runner = nullptr;
  ASSERT_EQ(kvant_runner_new(model_, &older, &runner), KVANT_OK) << Reason();
  kvant_runner_options found;
  found.struct_size = sizeof(found);
  ASSERT_EQ(kvant_runner_get_options(runner, &found), KVANT_OK);
  EXPECT_EQ(found.context, 64);
  EXPECT_EQ(found.chunk, 64);  // the default, in this context
  EXPECT_EQ(found.k_type, KVANT_F16);
  kvant_runner_free(runner);
  // A newer one has fields that this library does not know.
  struct Newer {
    kvant_runner_options known;
    int64_t more[4];
  } newer;
  ASSERT_EQ(kvant_runner_options_default(&newer.known, sizeof(newer)), KVANT_OK);
  EXPECT_EQ(newer.known.struct_size, sizeof(newer));
  EXPECT_EQ(newer.more[3], 0);
  ASSERT_EQ(kvant_runner_new(model_, &newer.known, &runner), KVANT_OK) << Reason();
  kvant_runner_free(runner);
  newer.more[3] = 1;
  EXPECT_EQ(kvant_runner_new(model_, &newer.known, &runner), KVANT_NOT_SUPPORTED);
  EXPECT_EQ(kvant_runner_options_default(&older, 3), KVANT_INVALID);
}

TEST_F(CApiBorder, ErrorsBelongToHandlesAndThreads) {
  ASSERT_EQ(kvant_sequence_free(runner_, 7), KVANT_INVALID);
  const std::string of_runner = kvant_last_error(runner_);
  ASSERT_EQ(kvant_model_metadata(model_, "no.such.key", nullptr, nullptr), KVANT_INVALID);
  EXPECT_EQ(kvant_last_error(runner_), of_runner);
  EXPECT_NE(kvant_last_error(model_), of_runner);
  EXPECT_STREQ(kvant_last_error(tokenizer_), "");
  std::thread([&] {
    EXPECT_STREQ(kvant_last_error(model_), "");
    char* json = nullptr;
    EXPECT_EQ(kvant_model_metadata(model_, "another.key", &json, nullptr), KVANT_INVALID);
    EXPECT_NE(std::string(kvant_last_error(model_)).find("another.key"), std::string::npos);
  }).join();
  EXPECT_EQ(std::string(kvant_last_error(model_)).find("another.key"), std::string::npos);
}

TEST_F(CApiBorder, EveryCallbackCanEndItsText) {
  request_.on_prompt = [](void*, int64_t, int32_t, int64_t) { return 1; };
  ASSERT_EQ(kvant_batch_add(batch_, &request_, nullptr), KVANT_OK) << Reason();
  request_.on_prompt = nullptr;
  request_.on_logits = [](void*, int64_t, int32_t, const kvant_token*, size_t count, float*,
                          size_t) { return count == 9 + 4 ? 1 : 0; };
  ASSERT_EQ(kvant_batch_add(batch_, &request_, nullptr), KVANT_OK) << Reason();
  request_.on_logits = nullptr;
  ASSERT_EQ(kvant_batch_add(batch_, &request_, nullptr), KVANT_OK) << Reason();
  ASSERT_EQ(kvant_batch_run(batch_), KVANT_OK) << Reason();
  EXPECT_EQ(reasons_, (std::vector<int32_t>{KVANT_FINISH_CANCELLED, KVANT_FINISH_CANCELLED,
                                            KVANT_FINISH_LENGTH}));
  EXPECT_EQ(counts_[0], 0u);
  EXPECT_EQ(counts_[1], 4u);
  EXPECT_EQ(counts_[2], 20u);
  kvant_runner_stats stats;
  stats.struct_size = sizeof(stats);
  ASSERT_EQ(kvant_runner_get_stats(runner_, &stats), KVANT_OK);
  EXPECT_EQ(stats.sequences, 0);
}

TEST_F(CApiBorder, CountersTellWhatABatchDoes) {
  kvant_batch_counters counters;
  counters.struct_size = sizeof(counters);
  ASSERT_EQ(kvant_batch_get_counters(batch_, &counters), KVANT_OK) << Reason();
  EXPECT_EQ(counters.submitted, 0u);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(kvant_batch_add(batch_, &request_, nullptr), KVANT_OK) << Reason();
  }
  int64_t number = -1;
  ASSERT_EQ(kvant_batch_add(batch_, &request_, &number), KVANT_OK) << Reason();
  ASSERT_EQ(kvant_batch_cancel(batch_, number), KVANT_OK) << Reason();
  ASSERT_EQ(kvant_batch_run(batch_), KVANT_OK) << Reason();
  ASSERT_EQ(kvant_batch_get_counters(batch_, &counters), KVANT_OK) << Reason();
  EXPECT_EQ(counters.submitted, 4u);
  EXPECT_EQ(counters.ended, 4u);
  EXPECT_EQ(counters.cancelled, 1u);
  EXPECT_EQ(counters.failed, 0u);
  EXPECT_EQ(counters.waiting + counters.running, 0);
  EXPECT_EQ(counters.tokens_prefilled, 3u * 9);
  EXPECT_EQ(counters.tokens_generated, 3u * 19);  // the last one is not processed
  EXPECT_EQ(counters.blocks_used, 0);
  EXPECT_GT(counters.blocks_free, 0);
  EXPECT_EQ(kvant_batch_get_counters(batch_, nullptr), KVANT_INVALID);
}

TEST_F(CApiBorder, LogProbabilitiesAndLimitsAreChecked) {
  request_.log_probs = -2;
  EXPECT_EQ(kvant_batch_add(batch_, &request_, nullptr), KVANT_INVALID);
  EXPECT_NE(Reason().find("log_probs: expected -1 to"), std::string::npos);
  request_.log_probs = -1;
  request_.seconds_max = -1;
  EXPECT_EQ(kvant_batch_add(batch_, &request_, nullptr), KVANT_INVALID);
  EXPECT_NE(Reason().find("seconds_max: expected 0 or more"), std::string::npos);
  request_.seconds_max = 1e-9;
  ASSERT_EQ(kvant_batch_add(batch_, &request_, nullptr), KVANT_OK) << Reason();
  ASSERT_EQ(kvant_batch_run(batch_), KVANT_OK) << Reason();
  EXPECT_EQ(reasons_, std::vector<int32_t>{KVANT_FINISH_ERROR});
}

TEST_F(CApiBorder, OwnersMayBeFreedInTheMiddleOfACall) {
  request_.on_end = [](void* user, const kvant_text*) {
    auto* test = static_cast<CApiBorder*>(user);
    kvant_batch_free(test->batch_);
    kvant_runner_free(test->runner_);
    kvant_tokenizer_free(test->tokenizer_);
    test->batch_ = nullptr;
    test->runner_ = nullptr;
    test->tokenizer_ = nullptr;
    return 0;
  };
  ASSERT_EQ(kvant_batch_add(batch_, &request_, nullptr), KVANT_OK) << Reason();
  EXPECT_EQ(kvant_batch_run(batch_), KVANT_OK);
  EXPECT_EQ(runner_, nullptr);
}

TEST_F(CApiBorder, ACancelledBatchGoesOnWithTheSameTokens) {
  kvant_sampling_options sampling;
  kvant_sampling_options_default(&sampling, sizeof(sampling));
  sampling.seed = 3;
  sampling.has_seed = 1;
  request_.sampling = &sampling;
  std::vector<TokenId> texts[2];
  for (int cancelled = 0; cancelled < 2; ++cancelled) {
    request_.user = &texts[cancelled];
    request_.on_end = [](void* user, const kvant_text* text) {
      static_cast<std::vector<TokenId>*>(user)->assign(text->tokens, text->tokens + text->count);
      return 0;
    };
    ASSERT_EQ(kvant_batch_add(batch_, &request_, nullptr), KVANT_OK) << Reason();
    for (size_t left = 1, round = 0; left > 0; ++round) {
      if (cancelled == 1 && round % 3 == 1) {
        kvant_runner_cancel(runner_);
        ASSERT_EQ(kvant_batch_poll(batch_, &left), KVANT_CANCELLED);
      }
      ASSERT_EQ(kvant_batch_poll(batch_, &left), KVANT_OK) << Reason();
    }
  }
  EXPECT_EQ(texts[0].size(), 20u);
  EXPECT_EQ(texts[0], texts[1]);
}

// The rows of an encoder of frames, and the logits behind them, are those of the C++ interface.
TEST(CApiFrames, SourcesAreMadeOfFrames) {
  SeededModel seeded(kSeededSpeech + SeededModelNames(kSeededSpeech).front());
  const auto path = seeded.Convert();
  ASSERT_TRUE(path.ok()) << path.error().message;
  const std::vector<float> frames = seeded.Frames();
  kvant_model* model = nullptr;
  kvant_runner* runner = nullptr;
  kvant_source source = -1;
  kvant_sequence sequence = -1;
  ASSERT_EQ(kvant_model_open(path->c_str(), nullptr, &model), KVANT_OK);
  kvant_model_info info = {};
  info.struct_size = sizeof(info);
  ASSERT_EQ(kvant_model_get_info(model, &info), KVANT_OK);
  EXPECT_EQ(static_cast<size_t>(info.frame_bins * info.frames), frames.size());
  ASSERT_EQ(kvant_runner_new(model, nullptr, &runner), KVANT_OK);
  std::vector<float> rows;
  const kvant_encoded_function take = [](void* user, const float* encoded, size_t count) {
    static_cast<std::vector<float>*>(user)->assign(encoded, encoded + count);
    return 0;
  };
  EXPECT_EQ(kvant_source_new_of_frames(runner, frames.data(), frames.size() - 1, nullptr, nullptr,
                                       &source),
            KVANT_INVALID);
  ASSERT_EQ(kvant_source_new_of_frames(runner, frames.data(), frames.size(), take, &rows, &source),
            KVANT_OK)
      << kvant_last_error(runner);
  ASSERT_EQ(kvant_sequence_new_of_source(runner, source, &sequence), KVANT_OK);
  const std::vector<kvant_token> tokens = seeded.Tokens();
  ASSERT_EQ(kvant_sequence_append(runner, sequence, tokens.data(), tokens.size()), KVANT_OK);
  size_t count = 0;
  const float* logits = kvant_sequence_logits(runner, sequence, &count);

  const auto opened = Model::Open(*path);
  ASSERT_TRUE(opened.ok());
  const auto other = Runner::Create(*opened, {});
  ASSERT_TRUE(other.ok());
  std::vector<float> expected;
  const auto made =
      (*other)->EncodeFrames(frames, {.rows = [&](std::span<const float> encoded) -> Status {
                               expected.assign(encoded.begin(), encoded.end());
                               return {};
                             }});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(rows, expected);
  const auto id = (*other)->NewSequence(*made);
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE((*other)->Append(*id, tokens).ok());
  const auto found = (*other)->logits(*id);
  EXPECT_EQ(std::vector<float>(logits, logits + count),
            std::vector<float>(found.begin(), found.end()));
  kvant_runner_free(runner);
  kvant_model_free(model);
}

}  // namespace
}  // namespace kvant::test
