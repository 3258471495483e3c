// Encoders that read frames of sound, and encoders alone: rows, logits and texts as transformers
// computes them, and what is refused. Names begin with the number of the check.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kv_format_list.h"
#include "engine/arch/spec.h"
#include "formats/npy.h"
#include "kvant/beam_generator.h"
#include "kvant/memory_plan.h"
#include "kvant/session.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/evaluate/logit_comparison.h"
#include "tests/engine/run/runner_kinds.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

std::vector<float> NumbersOf(const std::string& path) {
  const auto read = formats::NpyRead(path);
  EXPECT_TRUE(read.ok()) << read.error().message;
  return read.ok() ? read->values : std::vector<float>();
}

// `part` of the largest expected magnitude, or of 1 where that is larger.
double LimitOf(double part, std::span<const float> expected) {
  double largest = 1;
  for (const float number : expected) largest = std::max(largest, std::abs(double{number}));
  return part * largest;
}

std::vector<const char*> PresentIsas() {
  std::vector<const char*> names;
  for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
    if (isa.compiled && isa.supported) names.push_back(isa.name);
  }
  return names;
}

std::string MessageOf(const auto& result) { return result.ok() ? "" : result.error().message; }

struct EncodedSource {
  SourceId id = -1;
  std::vector<float> rows;
};

SourceOptions KeepRows(std::vector<float>& rows) {
  return {.rows = [&rows](std::span<const float> found) -> Status {
    rows.assign(found.begin(), found.end());
    return {};
  }};
}

class Speech : public testing::TestWithParam<std::string> {
 protected:
  EncodedSource Encode(Runner& runner, std::span<const float> frames) const {
    EncodedSource source;
    const auto id = runner.EncodeFrames(frames, KeepRows(source.rows));
    EXPECT_TRUE(id.ok()) << id.error().message;
    source.id = id.ok() ? *id : -1;
    return source;
  }

  SequenceId NewOf(Runner& runner, SourceId source) const {
    const auto sequence = runner.NewSequence(source);
    EXPECT_TRUE(sequence.ok()) << sequence.error().message;
    return sequence.ok() ? *sequence : -1;
  }

  SeededModel seeded_{kSeededSpeech + GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Reference, Speech, testing::ValuesIn(SeededModelNames(kSeededSpeech)),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(Speech, EncoderAndLogitsAreThoseOfTransformers) {
  const std::vector<float> frames = seeded_.Frames();
  const std::vector<TokenId> tokens = seeded_.Tokens();
  const std::vector<float> encoded = NumbersOf(seeded_.EncodedPath());
  const std::vector<float> expected = NumbersOf(seeded_.LogitsPath());
  for (const char* isa : PresentIsas()) {
    ModelOptions options;
    options.isa = isa;
    const auto model = seeded_.Open(options);
    ASSERT_NE(model, nullptr);
    const auto runner = OpenRunner(model, Options(KvType::kF32, 3));
    const EncodedSource source = Encode(*runner, frames);
    const auto dim = static_cast<size_t>(model->spec().encoder->stack.dim);
    ASSERT_EQ(source.rows.size(), static_cast<size_t>(model->source_length()) * dim);
    std::vector<float> kept;
    for (size_t row = 0; row * dim < source.rows.size(); row += seeded_.EncodedStep()) {
      const auto begin = source.rows.begin() + static_cast<std::ptrdiff_t>(row * dim);
      kept.insert(kept.end(), begin, begin + static_cast<std::ptrdiff_t>(dim));
    }
    EXPECT_LE(MaxDifference(kept, encoded), LimitOf(1e-5, encoded)) << isa;
    for (const size_t piece : {size_t{1}, size_t{7}, tokens.size()}) {
      const SequenceId sequence = NewOf(*runner, source.id);
      const std::vector<float> logits = LogitsOfAll(*runner, sequence, tokens, piece);
      ASSERT_EQ(logits.size(), expected.size());
      EXPECT_LE(MaxDifference(logits, expected), LimitOf(1e-4, expected)) << isa << ", " << piece;
    }
    EXPECT_EQ(runner->stats().encoder_passes, 1u);
  }
}

TEST_P(Speech, WithoutACacheLogitsAreThoseOfTransformers) {
  const auto model = seeded_.Open();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> tokens = seeded_.Tokens();
  const std::vector<float> expected = NumbersOf(seeded_.LogitsPath());
  SessionOptions options = Options(KvType::kF32, 1);
  options.kv_cache = false;
  const auto runner = OpenRunner(model, options);
  const EncodedSource source = Encode(*runner, seeded_.Frames());
  const std::vector<float> encoded = NumbersOf(seeded_.EncodedPath());
  const auto dim = static_cast<std::ptrdiff_t>(model->spec().encoder->stack.dim);
  EXPECT_LE(MaxDifference({source.rows.begin(), source.rows.begin() + dim},
                          {encoded.begin(), encoded.begin() + dim}),
            LimitOf(1e-5, encoded));
  const std::vector<float> logits =
      LogitsOfAll(*runner, NewOf(*runner, source.id), tokens, tokens.size() / 2);
  ASSERT_EQ(logits.size(), expected.size());
  EXPECT_LE(MaxDifference(logits, expected), LimitOf(1e-4, expected));
}

BeamOptions SearchOfCase(const nlohmann::json& line) {
  const nlohmann::json& settings = line["settings"];
  BeamOptions search;
  search.beams = settings["num_beams"];
  search.max_length = line["max_length"];
  search.end_tokens = {line["eos"].get<TokenId>()};
  search.num_return = settings.value("num_return_sequences", 1);
  search.no_repeat_ngram = settings.value("no_repeat_ngram_size", 0);
  search.length_penalty = settings.value("length_penalty", 1.0f);
  search.suppress = settings.value("suppress_tokens", std::vector<TokenId>());
  search.begin_suppress = settings.value("begin_suppress_tokens", std::vector<TokenId>());
  if (settings.contains("early_stopping")) search.early_stopping = EarlyStopping::kTrue;
  return search;
}

// The texts come from the general `generate` and from Whisper's own, which leaves out the end
// token.
TEST_P(Speech, SearchesFindTheTextsOfTransformers) {
  const auto model = seeded_.Open();
  ASSERT_NE(model, nullptr);
  const auto runner = OpenRunner(model, Options(KvType::kF32, 5));
  const std::vector<std::vector<float>> frames = {seeded_.Frames()};
  std::ifstream file(seeded_.SearchesPath());
  size_t count = 0;
  for (std::string text; std::getline(file, text); ++count) {
    const auto line = nlohmann::json::parse(text);
    const std::vector<std::vector<TokenId>> prompts = {line["start"].get<std::vector<TokenId>>()};
    BeamGenerateOptions options;
    options.search = SearchOfCase(line);
    options.frames = frames;
    const auto found = GenerateBeams(*runner, prompts, options);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const auto& hypotheses = found->front().hypotheses;
    ASSERT_EQ(hypotheses.size(), line["texts"].size()) << text;
    for (size_t i = 0; i < hypotheses.size(); ++i) {
      std::vector<TokenId> ids = hypotheses[i].ids;
      if (line.value("own", false) && hypotheses[i].ended) ids.pop_back();
      EXPECT_EQ(ids, line["texts"][i].get<std::vector<TokenId>>()) << text;
      if (line["scores"].empty()) continue;
      const double score = line["scores"][i];
      EXPECT_NEAR(hypotheses[i].score, score, 1e-4 * std::max(1.0, std::abs(score) / 10)) << text;
    }
  }
  EXPECT_EQ(count, 14u);
  EXPECT_EQ(runner->stats().encoder_passes, 1u);
}

// A part of WH-18: int8 keys and values of the source, with those of the text as they were.
TEST_P(Speech, Int8KeysAndValuesOfSourcesAreClose) {
  const auto model = seeded_.Open();
  ASSERT_NE(model, nullptr);
  const std::vector<TokenId> tokens = seeded_.Tokens();
  std::vector<std::vector<float>> found;
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    SessionOptions options = Options(KvType::kF32, 1);
    options.source_k_type = options.source_v_type = type;
    const auto runner = OpenRunner(model, options);
    const EncodedSource source = Encode(*runner, seeded_.Frames());
    found.push_back(LogitsOfAll(*runner, NewOf(*runner, source.id), tokens, tokens.size()));
  }
  EXPECT_NE(found[0], found[2]);
  EXPECT_LT(MeanDivergence(found[0], found[1], tokens.size()), 1e-5);
  EXPECT_LT(MeanDivergence(found[0], found[2], tokens.size()), 0.01);
}

TEST_P(Speech, ThreadsChangeNoBit) {
  const auto model = seeded_.Open(OwnGemm());
  ASSERT_NE(model, nullptr);
  std::vector<float> expected;
  for (const int threads : {1, 2, 3, 8}) {
    SessionOptions options = Options(KvType::kF32, 1);
    options.threads = threads;
    const auto runner = OpenRunner(model, options);
    const EncodedSource source = Encode(*runner, seeded_.Frames());
    if (expected.empty()) expected = source.rows;
    EXPECT_EQ(source.rows, expected) << threads;
  }
}

class Frames : public testing::Test {
 protected:
  void SetUp() override {
    model_ = seeded_.Open();
    ASSERT_NE(model_, nullptr);
    runner_ = OpenRunner(model_, Options(KvType::kF32, 3));
    frames_ = seeded_.Frames();
  }

  SeededModel seeded_{std::string(kSeededSpeech) + "whisper-stacks"};
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Runner> runner_;
  std::vector<float> frames_;
};

TEST_F(Frames, AreFoundAgainByTheirNumbers) {
  const auto first = runner_->EncodeFrames(frames_);
  const auto again = runner_->EncodeFrames(frames_);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_EQ(runner_->stats().encoder_passes, 1u);
  frames_.back() += 0.5f;
  const auto other = runner_->EncodeFrames(frames_);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(*first, *other);
  EXPECT_EQ(runner_->stats().encoder_passes, 2u);
  for (const SourceId id : {*first, *again, *other}) ExpectOk(runner_->FreeSource(id));
  ExpectOk(runner_->Check());
}

// The last frame reaches the first position's row, and the first one the last position's.
TEST_F(Frames, AreAllRead) {
  const auto shape = *model_->frame_shape();
  std::vector<float> before;
  ASSERT_TRUE(runner_->EncodeFrames(frames_, KeepRows(before)).ok());
  for (const int64_t frame : {int64_t{0}, shape.frames - 1}) {
    for (const int64_t bin : {int64_t{0}, shape.bins - 1}) {
      std::vector<float> changed = frames_;
      changed[static_cast<size_t>(bin * shape.frames + frame)] += 1;
      std::vector<float> rows;
      const auto id = runner_->EncodeFrames(changed, KeepRows(rows));
      ASSERT_TRUE(id.ok());
      ExpectOk(runner_->FreeSource(*id));
      EXPECT_NE(rows.front(), before.front()) << frame << ", " << bin;
      EXPECT_NE(rows.back(), before.back()) << frame << ", " << bin;
    }
  }
}

TEST_F(Frames, OfAnotherNumberOrWithoutNumbersAreRefused) {
  EXPECT_EQ(model_->frame_shape(), (FrameShape{20, 66}));
  for (const size_t size : {size_t{0}, frames_.size() - 1, frames_.size() - 20}) {
    const auto refused = runner_->EncodeFrames(std::span(frames_).first(size));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(refused.error().message, HasSubstr("expected 20 numbers of each of 66 frames"));
  }
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> broken = frames_;
    broken[3 * 66 + 17] = wrong;
    const auto refused = runner_->EncodeFrames(broken);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(refused.error().message, HasSubstr("number 3 of frame 17"));
  }
  EXPECT_EQ(runner_->stats().kv_bytes_used, 0u);
  EXPECT_EQ(runner_->stats().encoder_passes, 0u);
}

TEST_F(Frames, AreTheOnlySourcesOfASearchWithThem) {
  const std::vector<std::vector<TokenId>> prompts = {{2}, {2}};
  const std::vector<std::vector<TokenId>> tokens = {{3}};
  const std::vector<std::vector<float>> frames = {frames_, frames_};
  BeamGenerateOptions options;
  options.search.max_new_tokens = 3;
  options.search.end_tokens = {1};
  options.frames = std::span(frames).first(1);
  EXPECT_FALSE(GenerateBeams(*runner_, prompts, options).ok());
  options.sources = tokens;
  EXPECT_FALSE(GenerateBeams(*runner_, prompts, options).ok());
  options.sources = {};
  options.frames = frames;
  const auto found = GenerateBeams(*runner_, prompts, options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ((*found)[0].hypotheses[0].ids, (*found)[1].hypotheses[0].ids);
  EXPECT_EQ(runner_->stats().encoder_passes, 1u);
}

TEST_F(Frames, AreCountedAsMemoryOfEachSequence) {
  std::vector<uint64_t> activations;
  for (const int64_t sequences : {1, 2, 3}) {
    SessionOptions options = Options(KvType::kF32, sequences);
    options.chunk = 1;  // the rest does not depend on how many sequences there are
    const auto plan = PlanMemory(*model_, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    activations.push_back(plan->activations);
  }
  EXPECT_EQ(activations[1] - activations[0], frames_.size() * sizeof(float));
  EXPECT_EQ(activations[2] - activations[1], frames_.size() * sizeof(float));
}

TEST_F(Frames, AreReadWhereTokensAreNotAndTheOtherWayRound) {
  const std::vector<TokenId> tokens = {3, 4};
  EXPECT_THAT(MessageOf(runner_->Encode(tokens)), HasSubstr("frames of 20 numbers, found tokens"));
  const auto text = SeededModel(std::string(kSeededPairs) + "bart").Open();
  const auto other = OpenRunner(text, Options(KvType::kF32, 1));
  EXPECT_EQ(text->frame_shape(), std::nullopt);
  EXPECT_THAT(MessageOf(other->EncodeFrames(frames_)), HasSubstr("reads tokens, found frames"));
  const auto decoder = SeededModel("gpt2").Open();
  const auto third = OpenRunner(decoder, Options(KvType::kF32, 1));
  EXPECT_THAT(MessageOf(third->EncodeFrames(frames_)), HasSubstr("no encoder"));
}

// Encoders alone, by the number of the check of encoders' rows.
class EncodersAlone : public testing::TestWithParam<std::string> {
 protected:
  SeededModel seeded_{kSeededEncoders + GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Reference, EncodersAlone,
                         testing::ValuesIn(SeededModelNames(kSeededEncoders)),
                         [](const auto& model) {
                           std::string name = model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(EncodersAlone, RowsAreThoseOfTransformers) {
  const std::vector<float> encoded = NumbersOf(seeded_.EncodedPath());
  for (const char* isa : PresentIsas()) {
    ModelOptions options;
    options.isa = isa;
    const auto model = seeded_.Open(options);
    ASSERT_NE(model, nullptr);
    const auto runner = OpenRunner(model, Options(KvType::kF32, 1));
    std::vector<float> rows;
    const auto id = runner->Encode(seeded_.Source(), KeepRows(rows));
    ASSERT_TRUE(id.ok()) << id.error().message;
    EXPECT_LE(MaxDifference(rows, encoded), LimitOf(1e-5, encoded)) << isa;
    ExpectOk(runner->FreeSource(*id));
    ExpectOk(runner->Check());
  }
}

TEST_P(EncodersAlone, WriteNothing) {
  const auto model = seeded_.Open();
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(model->has_encoder());
  EXPECT_FALSE(model->has_decoder());
  EXPECT_EQ(model->vocab_size(), 64);
  const auto runner = OpenRunner(model, Options(KvType::kF32, 1));
  const auto id = runner->Encode(seeded_.Source());
  ASSERT_TRUE(id.ok());
  for (const auto& refused : {runner->NewSequence(), runner->NewSequence(*id)}) {
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kNotSupported);
    EXPECT_THAT(refused.error().message, HasSubstr("an encoder alone (t5encoder)"));
  }
  EXPECT_FALSE(Session::Create(model, {}).ok());
}

}  // namespace
}  // namespace kvant::test
