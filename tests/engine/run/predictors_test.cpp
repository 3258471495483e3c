// Layers that predict further tokens: their logits are those of torch (make_predictors.py), guesses
// leave no trace, and texts with them are the texts without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "cpu/dispatch.h"
#include "engine/arch/spec.h"
#include "formats/npy.h"
#include "kvant/draft.h"
#include "kvant/generator.h"
#include "kvant/memory_plan.h"
#include "tests/engine/arch/predicting_model.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

constexpr double kTolerance = 1e-4;
constexpr int64_t kWritten = 60;  // tokens of a text

SessionOptions Exact(int64_t context) {
  SessionOptions options;
  options.k_type = options.v_type = KvType::kF32;
  options.context = context;
  options.threads = 2;
  options.kv_check = true;
  options.state_log = 8;
  return options;
}

std::unique_ptr<Runner> OpenPredicting(const std::shared_ptr<const Model>& model,
                                       const SessionOptions& options) {
  auto runner = Runner::Create(model, options);
  EXPECT_TRUE(runner.ok()) << runner.error().message;
  return runner.ok() ? std::move(*runner) : nullptr;
}

std::vector<float> Copy(std::span<const float> values) { return {values.begin(), values.end()}; }

class Predictors : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Reference, Predictors,
                         testing::ValuesIn(SeededModelNames(kSeededPredictors)),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(Predictors, LogitsAreThoseOfTheDefinitionOnEveryInstructionSet) {
  PredictingModel predicting(GetParam());
  const std::vector<TokenId> tokens = predicting.seeded().Tokens();
  const std::vector<float> expected = predicting.Expected();
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    const auto model = predicting.Open(isa.name);
    ASSERT_NE(model, nullptr);
    const auto vocab = static_cast<size_t>(model->vocab_size());
    ASSERT_EQ(expected.size(), tokens.size() * vocab);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{29}}) {
      const auto runner = OpenPredicting(model, Exact(predicting.seeded().context()));
      const SequenceId sequence = runner->NewSequence().value();
      for (size_t done = 0; done + piece < tokens.size(); done += piece) {
        ExpectOk(runner->Append(sequence, std::span(tokens).subspan(done, piece)));
        const size_t next = done + piece;
        const auto guess = runner->Predict(sequence, tokens[next], 1);
        ASSERT_TRUE(guess.ok() && guess->size() == 1);
        const auto logits = runner->predicted_logits();
        EXPECT_LE(MaxDifference(logits, std::span(expected).subspan(next * vocab, vocab)),
                  kTolerance)
            << isa.name << ", " << piece << ", " << next;
        EXPECT_EQ(guess->front(), std::max_element(logits.begin(), logits.end()) - logits.begin());
      }
    }
  }
}

// The model's logits have the same bits whether the layers are loaded or not, and whatever is
// guessed on the way.
TEST_P(Predictors, GuessesLeaveNoTrace) {
  PredictingModel predicting(GetParam());
  const auto plain_model = predicting.Open("", false);
  const auto model = predicting.Open();
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(plain_model->predictors(), 0);
  EXPECT_EQ(model->predictors(), 1);
  EXPECT_EQ(model->cache_layers().size(), plain_model->cache_layers().size() + 1);
  const std::vector<TokenId> tokens = predicting.seeded().Tokens();
  const auto plain = OpenPredicting(plain_model, Exact(128));
  const auto runner = OpenPredicting(model, Exact(128));
  const SequenceId one = plain->NewSequence().value();
  const SequenceId other = runner->NewSequence().value();
  EXPECT_TRUE(plain->Predict(one, tokens[0], 3)->empty());
  EXPECT_TRUE(runner->Predict(other, tokens[0], 3)->empty());  // no row before it
  for (size_t i = 0; i < tokens.size(); ++i) {
    ExpectOk(plain->Append(one, {&tokens[i], 1}));
    ExpectOk(runner->Append(other, {&tokens[i], 1}));
    ASSERT_EQ(Copy(runner->logits(other)), Copy(plain->logits(one))) << i;
    if (i + 1 == tokens.size()) break;
    const auto guess = runner->Predict(other, tokens[i + 1], 1 + static_cast<int64_t>(i) % 5);
    ASSERT_TRUE(guess.ok());
    EXPECT_EQ(guess->size(), 1 + i % 5);
    ExpectOk(runner->Check());
  }
}

// A fork, a rewind within the last step and a copy elsewhere guess as the sequence itself does.
TEST_P(Predictors, FollowForksAndRewinds) {
  PredictingModel predicting(GetParam());
  const auto model = predicting.Open();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> tokens = predicting.seeded().Tokens();
  const std::span<const TokenId> all(tokens);
  SessionOptions options = Exact(128);
  options.sequences = 3;
  const auto runner = OpenPredicting(model, options);
  const SequenceId first = runner->NewSequence().value();
  ExpectOk(runner->Append(first, all.first(40)));
  const auto guess_of = [&](SequenceId sequence) {
    const auto guess = runner->Predict(sequence, tokens[40], 4);
    EXPECT_TRUE(guess.ok());
    std::vector<TokenId> ids(guess->begin(), guess->end());
    const std::vector<float> logits = Copy(runner->predicted_logits());
    return std::pair(std::move(ids), logits);
  };
  const auto expected = guess_of(first);
  ASSERT_EQ(expected.first.size(), 4u);
  const SequenceId fork = runner->Fork(first).value();
  EXPECT_EQ(guess_of(fork), expected);
  const StepInput input{fork, all.subspan(40, 5), Logits::kAll};
  ExpectOk(runner->Step({&input, 1}, {}));
  ExpectOk(runner->Rewind(fork, 40));
  EXPECT_EQ(guess_of(fork), expected);
  // The last token once more, behind the row of the token before it.
  ExpectOk(runner->ComputeLogits(fork));
  EXPECT_EQ(guess_of(fork), expected);
  ExpectOk(runner->Append(fork, all.subspan(40, 1)));
  ExpectOk(runner->Append(first, all.subspan(40, 6)));
  ExpectOk(runner->Rewind(first, 41));
  EXPECT_EQ(guess_of(first), guess_of(fork));
  EXPECT_EQ(guess_of(first).first.size(), 4u);
  ExpectOk(runner->Check());
}

struct Text {
  std::vector<TokenId> ids;
  int64_t passes = 0;
  int64_t drafted = 0;
  int64_t accepted = 0;
};

struct Writing {
  int64_t guesses = 0;
  int64_t context = 256;
  bool shifts = false;
  bool measured = false;
};

Text Write(const std::shared_ptr<const Model>& model, const SamplingOptions& sampling,
           std::span<const TokenId> prompt, const Writing& writing) {
  const int64_t guesses = writing.guesses;
  SessionOptions options = Exact(writing.context);
  options.kv_check = false;
  const auto session = OpenSession(model, options);
  GenerateOptions generate;
  generate.max_tokens = kWritten;
  generate.ignore_eos = true;
  if (guesses > 0) generate.draft = std::make_shared<PredictedDraft>();
  if (writing.measured) generate.draft = std::make_shared<MeasuredDraft>(generate.draft);
  if (writing.shifts) generate.shift_keep = 2;
  generate.draft_tokens = guesses;
  auto sampler = Sampler::Create(sampling, model->vocab_size());
  const auto text = Generate(*session, model->tokenizer(), *sampler, prompt, generate, {});
  EXPECT_TRUE(text.ok()) << text.error().message;
  if (!text.ok()) return {};
  return {text->ids, text->decode_passes, text->drafted_tokens, text->accepted_tokens};
}

TEST_P(Predictors, TextsAreThoseWithoutGuessesOnEveryInstructionSet) {
  PredictingModel predicting(GetParam());
  const std::vector<TokenId> prompt = predicting.seeded().Tokens();
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (!isa.compiled || !isa.supported) continue;
    const auto plain = predicting.Open(isa.name, false);
    const auto model = predicting.Open(isa.name);
    ASSERT_NE(model, nullptr);
    for (const float temperature : {0.0f, 0.8f}) {
      SamplingOptions sampling;
      sampling.temperature = temperature;
      sampling.seed = 5;
      const Text expected = Write(plain, sampling, prompt, {});
      ASSERT_EQ(std::ssize(expected.ids), kWritten);
      EXPECT_EQ(expected.drafted, 0);
      for (const int64_t guesses : {1, 4}) {
        const Text found = Write(model, sampling, prompt, {.guesses = guesses});
        EXPECT_EQ(found.ids, expected.ids) << isa.name << ", " << guesses;
        EXPECT_GT(found.drafted, kWritten / 2);
        EXPECT_EQ(found.passes + found.accepted, kWritten - 1);
      }
    }
  }
}

TEST_P(Predictors, GuessAsLongAsThatSavesTime) {
  PredictingModel predicting(GetParam());
  const auto model = predicting.Open();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> prompt = predicting.seeded().Tokens();
  SamplingOptions greedy;
  greedy.temperature = 0;
  const Text expected = Write(model, greedy, prompt, {});
  const Text found = Write(model, greedy, prompt, {.guesses = 3, .measured = true});
  EXPECT_EQ(found.ids, expected.ids);
  EXPECT_GT(found.drafted, 0);
}

TEST(PredictorsOfFiles, GuessWhileAContextMovesOn) {
  PredictingModel predicting("glm4moe");
  const auto model = predicting.Open();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> prompt = RandomTokens(20, 3, model->vocab_size());
  SamplingOptions greedy;
  greedy.temperature = 0;
  const Text expected = Write(model, greedy, prompt, {.context = 48, .shifts = true});
  const Text found = Write(model, greedy, prompt, {.guesses = 3, .context = 48, .shifts = true});
  EXPECT_EQ(found.ids, expected.ids);
  EXPECT_EQ(std::ssize(found.ids), kWritten);
  EXPECT_GT(found.drafted, kWritten / 2);
}

TEST(PredictorsOfFiles, AreRefusedWhereThereAreNone) {
  SeededModel seeded("qwen35");
  const auto path = seeded.Convert();
  ASSERT_TRUE(path.ok());
  const auto model = Model::Open(*path, {.predictors = true});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kNotSupported);
  EXPECT_THAT(model.error().message, HasSubstr("no layers that predict further tokens"));
}

TEST(PredictorsOfFiles, NeedACacheAndTakeMemory) {
  PredictingModel predicting("glm4moe");
  const auto model = predicting.Open();
  const auto plain = predicting.Open("", false);
  const auto refused = Runner::Create(model, {.context = 64, .kv_cache = false});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("need a KV cache"));
  const auto with = PlanMemory(*model, Exact(128));
  const auto without = PlanMemory(*plain, Exact(128));
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_GT(with->kv, without->kv);
  EXPECT_GT(with->activations, without->activations);
}

// The converter names tensors as llama.cpp's does, and counts the layer among the others.
TEST(PredictorsOfFiles, HaveTheNamesOfLlamaCpp) {
  for (const char* name : {"qwen35", "deepseek2-v3"}) {
    PredictingModel predicting(name);
    const auto path = predicting.seeded().Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    const auto file = formats::GgufFile::Open(*path);
    ASSERT_TRUE(file.ok());
    const std::string arch(file->GetString("general.architecture")->value());
    const uint32_t layers = predicting.seeded().config["num_hidden_layers"].get<uint32_t>();
    EXPECT_EQ(file->GetU32(arch + ".nextn_predict_layers")->value(), 1u);
    EXPECT_EQ(file->GetU32(arch + ".block_count")->value(), layers + 1);
    for (const char* tensor : {"nextn.eh_proj", "nextn.enorm", "nextn.hnorm",
                               "nextn.shared_head_norm", "attn_norm", "attn_output"}) {
      EXPECT_NE(file->FindTensor("blk." + std::to_string(layers) + "." + tensor + ".weight"),
                nullptr)
          << tensor;
    }
  }
}

}  // namespace
}  // namespace kvant::test
