// Sources of encoder-decoders against computations of another kind: in double precision over all
// tokens again, over distances beyond those that small fixtures have, with stacks of very different
// depth; and what becomes of their blocks. Names begin with the number of the check.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cpu/dispatch.h"
#include "cpu/kernels/attention.h"
#include "cpu/kv_format_list.h"
#include "engine/kv/pass_view.h"
#include "engine/run/memory_plan.h"
#include "formats/gguf.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/seeded_sources.h"

namespace kvant::test {
namespace {

class SourceNumbers : public SeededSources {};

INSTANTIATE_TEST_SUITE_P(Seeded, SourceNumbers, testing::Values("t5", "bart", "m2m100"));

std::unique_ptr<formats::GgufFile> ConvertedFile(SeededModel& seeded) {
  const auto path = seeded.Convert();
  EXPECT_TRUE(path.ok()) << path.error().message;
  auto file = formats::GgufFile::Open(path.ok() ? *path : "");
  EXPECT_TRUE(file.ok()) << file.error().message;
  return file.ok() ? std::make_unique<formats::GgufFile>(std::move(*file)) : nullptr;
}

// The largest difference between `found` and the reference, divided by the reference's largest
// magnitude if that is more than 1.
double PartOff(std::span<const float> found, std::span<const double> expected) {
  EXPECT_EQ(found.size(), expected.size());
  double largest = 1;
  double off = 0;
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double difference = std::abs(double{found[i]} - expected[i]);
    if (!(difference <= off)) off = difference;  // NaN counts as different
  }
  return off / largest;
}

// Freed blocks are full of NaN here. A source is read from them and beside them, while a sequence
// still refers to a source that nobody else knows any more.
TEST_P(SourceNumbers, NumbersInFreedBlocksChangeNothing) {
  const std::vector<TokenId> kept = RandomTokens(40, 4, kSourceVocab);
  const std::vector<TokenId> later = RandomTokens(33, 5, kSourceVocab);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    const auto alone = [&](std::span<const TokenId> source) {
      const auto engine = OpenEngine(1, type);
      Begin(*engine, source);
      for (const TokenId token : {5, 6, 7}) Step(*engine, std::vector<SequenceId>{0}, token);
      return LogitsOf(*engine, 0);
    };
    const auto engine = OpenEngine(3, type);
    Begin(*engine, RandomTokens(90, 3, kSourceVocab));
    Begin(*engine, kept);
    Step(*engine, std::vector<SequenceId>{0, 1}, 5);
    engine->sequences->Free(0);
    for (const SourceId source : {0, 1}) ExpectOk(engine->sources->Free(source));
    while (engine->sources->GiveUp()) {
    }
    ASSERT_EQ(engine->sources->count(), 0);
    Begin(*engine, later);  // sequence 0 again
    ExpectOk(engine->sequences->Check());
    Step(*engine, std::vector<SequenceId>{0}, 5);
    for (const TokenId token : {6, 7}) Step(*engine, std::vector<SequenceId>{0, 1}, token);
    EXPECT_EQ(LogitsOf(*engine, 0), alone(later));
    EXPECT_EQ(LogitsOf(*engine, 1), alone(kept));
  }
}

TEST_P(SourceNumbers, StepsAreWhatTheReferenceComputesFromAllTokens) {
  const auto file = ConvertedFile(seeded_);
  ASSERT_NE(file, nullptr);
  const std::vector<TokenId> tokens = RandomTokens(60, 9, kSourceVocab);
  for (const int64_t length : {1, 32, 75}) {
    const std::vector<TokenId> source = RandomTokens(length, 3, kSourceVocab);
    ReferenceForward reference(*file);
    reference.Encode(source);
    const Vector expected = reference.Logits(tokens);
    const auto runner = OpenRunner(model_, Options(KvType::kF32, 1));
    const auto sequence = runner->NewSequenceOf(source);
    ASSERT_TRUE(sequence.ok()) << sequence.error().message;
    for (size_t i = 0; i < tokens.size(); ++i) {
      ExpectOk(runner->Append(*sequence, std::span(tokens).subspan(i, 1)));
      const std::span<const float> logits = runner->logits(*sequence);
      ASSERT_LE(PartOff(logits, std::span(expected).subspan(i * logits.size(), logits.size())),
                5e-5)
          << "source of " << length << ", token " << i;
    }
  }
}

// Both stacks, on every instruction set, over more positions than there are distances that differ:
// 128 and 50 of these.
TEST(SourceDistanceNumbers, AreThoseOfTheReferenceOverTwoHundredPositions) {
  for (const char* name : {"t5", "t5-gated"}) {
    SeededModel seeded(std::string(kSeededPairs) + name);
    seeded.config["n_positions"] = 256;
    const auto file = ConvertedFile(seeded);
    ASSERT_NE(file, nullptr);
    const std::vector<TokenId> source = RandomTokens(230, 3, kSourceVocab);
    const std::vector<TokenId> tokens = RandomTokens(230, 9, kSourceVocab);
    ReferenceForward reference(*file);
    Vector encoded;
    for (const Vector& row : reference.Encode(source)) {
      encoded.insert(encoded.end(), row.begin(), row.end());
    }
    const Vector expected = reference.Logits(tokens);
    for (const cpu::IsaReport& isa : cpu::ReportIsas()) {
      if (!isa.compiled || !isa.supported) continue;
      ModelOptions options;
      options.isa = isa.name;
      const auto model = seeded.Open(options);
      ASSERT_NE(model, nullptr);
      const auto runner = OpenRunner(model, Options(KvType::kF32, 2));
      std::vector<float> rows;
      const auto id = runner->Encode(source, {.rows = [&](std::span<const float> found) -> Status {
                                       rows.assign(found.begin(), found.end());
                                       return {};
                                     }});
      ASSERT_TRUE(id.ok()) << id.error().message;
      EXPECT_LE(PartOff(rows, encoded), 5e-5) << name << ", " << isa.name;
      for (const size_t piece : {size_t{1}, tokens.size()}) {
        const SequenceId sequence = *runner->NewSequence(*id);
        const std::vector<float> logits = LogitsOfAll(*runner, sequence, tokens, piece);
        EXPECT_LE(PartOff(logits, expected), 5e-5) << name << ", " << isa.name << ", " << piece;
        ExpectOk(runner->FreeSequence(sequence));
      }
    }
  }
}

// 32 layers over 4, as Whisper's turbo model has; 4 heads and 2.
TEST(SourceStackNumbers, ThirtyTwoLayersStandOverFour) {
  SeededModel seeded(std::string(kSeededPairs) + "bart");
  const auto described = nlohmann::json::parse(std::ifstream(
      SourcePath(std::string("tests/reference/seeded/") + kSeededPairs + "bart.json")));
  const auto add_layers = [&](const std::string& stack, int first, int end) {
    const std::string beginning = "model." + stack + ".layers.";
    for (nlohmann::json row : described["tensors"]) {
      const std::string name = row["name"];
      if (!name.starts_with(beginning + "0.")) continue;
      for (int layer = first; layer < end; ++layer) {
        row["name"] = beginning + std::to_string(layer) + name.substr(beginning.size() + 1);
        seeded.extra[row["name"]] = SeededWeights(row);
      }
    }
  };
  add_layers("encoder", seeded.config["encoder_layers"], 32);
  add_layers("decoder", seeded.config["decoder_layers"], 4);
  seeded.config["encoder_layers"] = 32;
  seeded.config["decoder_layers"] = 4;
  const auto file = ConvertedFile(seeded);
  ASSERT_NE(file, nullptr);
  const auto model = seeded.Open(OwnGemm());
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->spec().encoder->stack.layers.size(), 32u);
  EXPECT_EQ(model->spec().stacks.front().layers.size(), 4u);
  const std::vector<TokenId> source = RandomTokens(35, 3, kSourceVocab);
  const std::vector<TokenId> tokens = RandomTokens(10, 9, kSourceVocab);
  ReferenceForward reference(*file);
  reference.Encode(source);
  const Vector expected = reference.Logits(tokens);
  const auto runner = OpenRunner(model, Options(KvType::kF32, 1));
  const auto sequence = runner->NewSequenceOf(source);
  ASSERT_TRUE(sequence.ok()) << sequence.error().message;
  // Each layer rounds some numbers again.
  EXPECT_LE(PartOff(LogitsOfAll(*runner, *sequence, tokens, 1), expected), 2e-4);
  // A layer of the encoder has no room of its own, one of the decoder has its own and its source's.
  std::vector<int> layers;
  for (const KvGroupStats& group : runner->stats().groups) layers.push_back(group.layers);
  std::ranges::sort(layers);
  EXPECT_EQ(layers, (std::vector<int>{1, 4, 4}));
}

// The fewest bytes in which a longest source and four beams of the longest text have room; with one
// byte less they have not.
TEST_P(SourceNumbers, BeamsOfALongestSourceFitToTheByte) {
  constexpr int64_t kBeams = 4;
  SessionOptions options = Options(KvType::kF16, kBeams);
  options.context = 64;
  const int64_t longest = model_->source_length();
  uint64_t of_source = 0;
  uint64_t of_encoder = 0;
  uint64_t of_beams = 0;
  const auto resolved = ResolveOptions(*model_, options);
  ASSERT_TRUE(resolved.ok());
  for (const kv::GroupShape& shape : CacheOptionsFor(*model_, *resolved).groups) {
    const int64_t positions = shape.source > 0 ? longest : options.context;
    const uint64_t bytes = shape.block_bytes() * static_cast<uint64_t>(kv::BlocksFor(positions));
    if (shape.source == 0) {
      of_beams += kBeams * bytes;
    } else {
      (shape.policy == "encoder" ? of_encoder : of_source) += bytes;
    }
  }
  ASSERT_GT(of_beams, of_encoder);
  const uint64_t needed = of_source + of_beams;
  for (const uint64_t bytes : {needed, needed - 1}) {
    options.kv_bytes_max = bytes;
    const auto runner = OpenRunner(model_, options);
    const auto id = runner->Encode(RandomTokens(static_cast<size_t>(longest), 3, kSourceVocab));
    ASSERT_TRUE(id.ok()) << id.error().message;
    Status status;
    for (unsigned i = 0; i < kBeams; ++i) {
      const auto sequence = runner->NewSequence(*id);
      ASSERT_TRUE(sequence.ok()) << sequence.error().message;
      ASSERT_TRUE(status.ok()) << status.error().message;
      status = runner->Append(*sequence, RandomTokens(64, i, kSourceVocab));
    }
    EXPECT_EQ(status.ok(), bytes == needed);
    if (bytes == needed) {
      EXPECT_EQ(runner->stats().kv_bytes_used, needed);
      EXPECT_EQ(runner->stats().kv_bytes_peak, needed);
    } else if (!status.ok()) {
      EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
    }
    ExpectOk(runner->Check());
  }
}

// Bytes of blocks that sources, and nothing else, hold.
uint64_t SourceBytes(const kv::Cache& cache) {
  uint64_t bytes = 0;
  const kv::CacheStats stats = cache.stats();
  for (const kv::GroupId group : cache.group_ids()) {
    if (cache.policy(group).holds() != kv::Holds::kSource) continue;
    bytes += static_cast<uint64_t>(stats.groups[group].used) * stats.groups[group].block_bytes;
  }
  return bytes;
}

// All that can happen to texts of a source: 200 steps of five beams that change places, go back,
// forget, end and begin again.
TEST_P(SourceNumbers, NothingThatHappensToTextsTouchesTheirSource) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    const auto engine = OpenEngine(5, type);
    kv::Cache& cache = *engine->core->cache;
    run::Sequences& sequences = *engine->sequences;
    const kv::Sequence& first = Begin(*engine, RandomTokens(45, 3, kSourceVocab)).kv;
    const std::vector<std::byte> before = RowsOf(*engine, first);
    const uint64_t bytes = SourceBytes(cache);
    ASSERT_GT(bytes, 0u);
    std::vector<SequenceId> all = {0};
    while (all.size() < 5) all.push_back(*sequences.Fork(0));
    for (int step = 0; step < 200; ++step) {
      Step(*engine, all, static_cast<TokenId>(5 + step % 50));
      ExpectOk(sequences.Reorder(all, std::vector<int>{1, 0, 0, 4, 3}));
      run::SequenceState& state = *sequences.Find(all[static_cast<size_t>(step % 5)]);
      if (step % 10 == 9 && state.kv.length > 20) {
        ExpectOk(cache.Prune(state.kv, 5, state.kv.length - 5));
      }
      for (size_t i = 0; i < all.size() && step % 40 == 39; ++i) {
        run::SequenceState& back = *sequences.Find(all[i]);
        ExpectOk(cache.Rewind(back.kv, static_cast<int64_t>(i)));  // to 0, too
        back.tokens.resize(i);
        sequences.SetLogits(back, run::LogitRows::kNone);
      }
      if (step % 25 == 24) {
        sequences.Free(all.back());
        all.back() = *sequences.Fork(all.front());
      }
      ASSERT_EQ(SourceBytes(cache), bytes) << step;
    }
    for (const SequenceId id : all) EXPECT_EQ(RowsOf(*engine, sequences.Find(id)->kv), before);
    EXPECT_EQ(engine->core->counters.encoder_passes, 1u);
    ExpectOk(sequences.Check());
  }
}

// Counts the positions that passes read of a prompt of 64 tokens and of a source, for one beam and
// for four.
TEST_P(SourceNumbers, BeamsReadTheirPromptOnce) {
  const auto engine = OpenEngine(4);
  Begin(*engine, RandomTokens(70, 3, kSourceVocab));
  const std::vector<TokenId> prompt = RandomTokens(64, 4, kSourceVocab);
  const StepInput input = {0, prompt};
  ExpectOk(engine->stepper->Step({&input, 1}, {}));
  EXPECT_EQ(engine->core->counters.passes, 1u);
  for (int i = 1; i < 4; ++i) ASSERT_TRUE(engine->sequences->Fork(0).ok());
  kv::Cache& cache = *engine->core->cache;
  std::vector<kv::PartRows> parts;
  for (SequenceId id = 0; id < 4; ++id) {
    kv::Sequence& sequence = engine->sequences->Find(id)->kv;
    ExpectOk(cache.Reserve(sequence, 1));
    parts.push_back({&sequence, id, 1});
  }
  const auto layers = static_cast<int64_t>(model_->spec().stacks.front().layers.size());
  kv::PassView view(cache, 4, 4);
  for (const int64_t beams : {1, 4}) {
    view.Set(std::span(parts).first(static_cast<size_t>(beams)));
    int64_t own = 0;
    int64_t of_source = 0;
    std::vector<cpu::KvRun> runs(static_cast<size_t>(kv::PassView::RunsMax(cache.positions(), 4)));
    for (int layer = 0; layer < std::ssize(model_->cache_layers()); ++layer) {
      for (const kv::PassView::Work& work : view.work(layer)) {
        for (const cpu::KvRun& run : view.Runs(layer, 1, work, runs)) {
          (OfSource(cache, layer) ? of_source : own) += run.count;
        }
      }
    }
    EXPECT_EQ(of_source, layers * 70);
    EXPECT_EQ(own, layers * (64 + beams));
  }
  for (SequenceId id = 0; id < 4; ++id) cache.Rollback(engine->sequences->Find(id)->kv);
}

}  // namespace
}  // namespace kvant::test
