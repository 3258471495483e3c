// Sources of encoder-decoders, seen from inside: what passes read and leave of the blocks that hold
// them, memory to the byte, distances and samples. Names begin with the number of the check.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/arch/sublayers/attention.h"
#include "engine/kv/kv_rows.h"
#include "engine/kv/pass_view.h"
#include "engine/memory_plan.h"
#include "engine/run/engine.h"
#include "formats/npy.h"
#include "kvant/beam_generator.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/runner_kinds.h"
#include "tests/engine/seeded_model.h"

namespace kvant::test {
namespace {

constexpr int kSourceVocab = 64;

class SourceChecks : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = seeded_.Open(OwnGemm());
    ASSERT_NE(model_, nullptr);
  }

  std::unique_ptr<run::Engine> OpenEngine(int64_t sequences,
                                          KvElement type = KvElement::kF32) const {
    auto engine = run::Engine::Create(model_, Options(type, sequences));
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return engine.ok() ? std::move(*engine) : nullptr;
  }

  // A sequence of this source, which nobody else holds then.
  static run::SequenceState& Begin(run::Engine& engine, std::span<const TokenId> source) {
    const SourceId id = *engine.sources->Encode(source, {});
    run::SequenceState& state = *engine.sequences->Find(*engine.sequences->New());
    run::SourceState& held = **engine.sources->Get(id);
    ExpectOk(engine.core->cache->SetSource(state.kv, held.kv));
    state.source = held.identity;
    return state;
  }

  static void Step(run::Engine& engine, std::span<const SequenceId> all, TokenId token) {
    std::vector<StepInput> inputs;
    for (const SequenceId id : all) inputs.push_back({id, {&token, 1}});
    ExpectOk(engine.stepper->Step(inputs, {}));
  }

  static std::vector<float> LogitsOf(const run::Engine& engine, SequenceId id) {
    const auto logits = engine.sequences->logits(*engine.sequences->Find(id));
    return {logits.begin(), logits.end()};
  }

  static bool OfSource(const kv::Cache& cache, int layer) {
    return cache.policy(cache.group_of_layer(layer)).name() == "fixed";
  }

  // Calls `visit` with the block and the place of every row of a source that a sequence reads, its
  // blocks' rows behind the source's end included.
  template <class Visit>
  static void VisitRows(const run::Engine& engine, const kv::Sequence& sequence,
                        const Visit& visit) {
    const kv::Cache& cache = *engine.core->cache;
    for (int layer = 0; layer < std::ssize(engine.core->model->cache_layers()); ++layer) {
      if (!OfSource(cache, layer)) continue;
      const kv::GroupShape& shape = cache.shape(cache.group_of_layer(layer));
      for (const auto& entry : sequence.tables[cache.group_of_layer(layer)].entries) {
        for (int head = 0; head < shape.kv_heads; ++head) {
          for (int64_t i = 0; i < kv::kBlockTokens; ++i) {
            visit(kv::CacheHead{layer, head}, shape, entry, entry.number * kv::kBlockTokens + i);
          }
        }
      }
    }
  }

  SeededModel seeded_{std::string(kSeededPairs) + GetParam()};
  std::shared_ptr<const Model> model_;
};

INSTANTIATE_TEST_SUITE_P(Seeded, SourceChecks, testing::Values("t5", "bart", "m2m100"));

// All beams write tokens of their own, so they share nothing but the source.
TEST_P(SourceChecks, Ed02BeamsTakeMemoryForTheirOwnTokensOnly) {
  const std::vector<TokenId> source = RandomTokens(33, 3, kSourceVocab);
  std::map<int64_t, uint64_t> peak;
  uint64_t of_beam = 0;
  for (const int64_t beams : {1, 5}) {
    const auto runner = OpenRunner(model_, Options(KvElement::kF32, beams));
    const auto id = runner->Encode(source);
    ASSERT_TRUE(id.ok());
    for (int64_t beam = 0; beam < beams; ++beam) {
      const auto sequence = runner->NewSequence(*id);
      ASSERT_TRUE(sequence.ok());
      ExpectOk(runner->Append(*sequence, RandomTokens(64, 9, kSourceVocab)));
    }
    peak[beams] = runner->stats().kv_bytes_peak;
    EXPECT_EQ(runner->stats().kv_bytes_used, peak[beams]);
    const kv::CacheOptions cache = CacheOptionsFor(*model_, runner->options());
    of_beam = 0;
    for (const kv::GroupShape& shape : cache.groups) {
      if (shape.source == 0) of_beam += 2 * shape.block_bytes();
    }
  }
  EXPECT_EQ(peak[5] - peak[1], 4 * of_beam);
}

TEST_P(SourceChecks, Ed08NumbersBehindTheEndOfASourceChangeNothing) {
  for (const KvElement type : {KvElement::kF32, KvElement::kF16, KvElement::kQ8}) {
    for (const int64_t length : {1, 31, 33, 90}) {
      std::vector<std::vector<float>> found;
      for (const bool poisoned : {false, true}) {
        const auto engine = OpenEngine(1, type);
        const run::SequenceState& state = Begin(*engine, RandomTokens(length, 3, kSourceVocab));
        const kv::Cache& cache = *engine->core->cache;
        if (poisoned) {
          VisitRows(*engine, state.kv,
                    [&](kv::CacheHead at, const kv::GroupShape& shape, const kv::TableEntry& entry,
                        int64_t position) {
                      if (position < length) return;
                      const float nan = std::numeric_limits<float>::quiet_NaN();
                      // All bits set is a NaN of any float type.
                      const std::vector<std::byte> ones(1024, std::byte{0xff});
                      kv::WriteKeyRow(cache, at, entry, position, ones.data(), nan);
                      kv::WriteValueRow(cache, at, entry, position, ones.data(), nan);
                      ASSERT_LE(std::max(shape.k_dim, shape.v_dim), 256);
                    });
        }
        for (const TokenId token : {5, 6, 7}) Step(*engine, std::vector<SequenceId>{0}, token);
        found.push_back(LogitsOf(*engine, 0));
      }
      EXPECT_EQ(found[0], found[1]) << length;
    }
  }
}

// A step for each token gives what one pass over all of them gives (a model with an encoder has no
// other way without a cache).
TEST_P(SourceChecks, Ed11StepsAreWhatComputingAllTokensAgainGives) {
  const std::vector<TokenId> source = RandomTokens(40, 3, kSourceVocab);
  const std::vector<TokenId> tokens = RandomTokens(40, 9, kSourceVocab);
  const auto runner = OpenRunner(model_, Options(KvElement::kF32, 2));
  const auto id = runner->Encode(source);
  ASSERT_TRUE(id.ok());
  const SequenceId stepped = *runner->NewSequence(*id);
  for (size_t i = 0; i < tokens.size(); ++i) {
    ExpectOk(runner->Append(stepped, std::span(tokens).subspan(i, 1)));
    const SequenceId again = *runner->NewSequence(*id);
    ExpectOk(runner->Append(again, std::span(tokens).first(i + 1)));
    const auto a = runner->logits(stepped);
    const auto b = runner->logits(again);
    for (size_t v = 0; v < a.size(); ++v) ASSERT_NEAR(a[v], b[v], 1e-3) << i;
    ExpectOk(runner->FreeSequence(again));
  }
}

// What the pass is shown of a source: the positions that are read for all rows together.
TEST_P(SourceChecks, Ed22FiveBeamsReadASourceOnce) {
  const auto engine = OpenEngine(5);
  run::SequenceState& first = Begin(*engine, RandomTokens(70, 3, kSourceVocab));
  for (int i = 1; i < 5; ++i) ASSERT_TRUE(engine->sequences->Fork(0).ok());
  kv::Cache& cache = *engine->core->cache;
  std::vector<kv::PartRows> parts;
  for (SequenceId id = 0; id < 5; ++id) {
    kv::Sequence& sequence = engine->sequences->Find(id)->kv;
    ExpectOk(cache.Reserve(sequence, 1));
    parts.push_back({&sequence, id, 1});
  }
  EXPECT_EQ(&first, engine->sequences->Find(0));
  kv::PassView view(cache, 5, 5);
  const auto positions_read = [&](size_t beams) {
    view.Set(std::span(parts).first(beams));
    int64_t sum = 0;
    for (int layer = 0; layer < std::ssize(model_->cache_layers()); ++layer) {
      if (!OfSource(cache, layer)) continue;
      std::vector<cpu::KvRun> runs(
          static_cast<size_t>(kv::PassView::RunsMax(cache.positions(), 5)));
      for (const kv::PassView::Work& work : view.work(layer)) {
        for (const cpu::KvRun& run : view.Runs(layer, 0, work, runs)) sum += run.count;
      }
    }
    return sum;
  };
  EXPECT_EQ(positions_read(1), 3 * 70);  // of three layers
  EXPECT_EQ(positions_read(5), positions_read(1));
  for (const kv::PartRows& part : parts) cache.Rollback(*const_cast<kv::Sequence*>(part.sequence));
}

TEST_P(SourceChecks, Kv80TheCacheOfASourceIsNeverWrittenAgain) {
  const auto engine = OpenEngine(4, KvElement::kF16);
  run::SequenceState& first = Begin(*engine, RandomTokens(45, 3, kSourceVocab));
  const auto snapshot = [&] {
    std::vector<std::byte> bytes;
    VisitRows(*engine, first.kv,
              [&](kv::CacheHead at, const kv::GroupShape& shape, const kv::TableEntry& entry,
                  int64_t position) {
                std::vector<std::byte> row(2 * static_cast<size_t>(shape.k_dim + shape.v_dim));
                float scale = 0;
                kv::ReadKeyRow(*engine->core->cache, at, entry, position, row.data(), &scale);
                kv::ReadValueRow(*engine->core->cache, at, entry, position,
                                 row.data() + 2 * static_cast<size_t>(shape.k_dim), &scale);
                bytes.insert(bytes.end(), row.begin(), row.end());
              });
    return bytes;
  };
  const std::vector<std::byte> before = snapshot();
  ASSERT_FALSE(before.empty());
  std::vector<SequenceId> all = {0};
  for (int i = 1; i < 4; ++i) all.push_back(*engine->sequences->Fork(0));
  for (TokenId token = 5; token < 45; ++token) Step(*engine, all, token);
  EXPECT_EQ(snapshot(), before);
}

TEST_P(SourceChecks, Ed23MemoryIsThatOfSourcesAndSequences) {
  constexpr int64_t kSequences = 3;
  SessionOptions options = Options(KvElement::kF16, kSequences);
  options.context = 64;
  options.kv_poison = false;
  const int64_t longest = model_->source_length();
  uint64_t needed = 0;
  const auto resolved = ResolveOptions(*model_, options);
  ASSERT_TRUE(resolved.ok());
  const kv::CacheOptions cache = CacheOptionsFor(*model_, *resolved);
  for (const kv::GroupShape& shape : cache.groups) {
    const int64_t tables = shape.policy == "encoder" ? 1 : kSequences;
    const int64_t positions = shape.source > 0 ? longest : options.context;
    needed += shape.block_bytes() * static_cast<uint64_t>(tables * kv::BlocksFor(positions));
  }
  EXPECT_EQ(kv::Cache::BytesNeeded(cache), needed);
  options.kv_bytes_max = needed;
  const auto runner = OpenRunner(model_, options);
  for (unsigned i = 0; i < kSequences; ++i) {
    const auto id = runner->Encode(RandomTokens(static_cast<size_t>(longest), i, kSourceVocab));
    ASSERT_TRUE(id.ok()) << id.error().message;
    const auto sequence = runner->NewSequence(*id);
    ASSERT_TRUE(sequence.ok()) << sequence.error().message;
    ExpectOk(runner->Append(*sequence, RandomTokens(64, i, kSourceVocab)));
  }
}

TEST_P(SourceChecks, B8BeamsReadTheirPromptAndSourceOnce) {
  const auto runner = OpenRunner(model_, Options(KvElement::kF32, 5));
  const std::vector<std::vector<TokenId>> sources = {RandomTokens(40, 3, kSourceVocab)};
  const std::vector<std::vector<TokenId>> prompts = {RandomTokens(20, 4, kSourceVocab)};
  BeamGenerateOptions options;
  options.search.beams = 5;
  options.search.max_new_tokens = 8;
  options.sources = sources;
  uint64_t rows = 0;
  options.on_step = [&rows](size_t, const BeamSearch& search) {
    rows += static_cast<uint64_t>(search.rows());
    return BeamStep::kGoOn;
  };
  ASSERT_TRUE(GenerateBeams(*runner, prompts, options).ok());
  EXPECT_EQ(runner->stats().encoder_passes, 1u);
  EXPECT_EQ(runner->stats().tokens_processed, 20 + rows);
}

// A sequence may be shorter than its source.
TEST_P(SourceChecks, CountersTellTheRowsOfSources) {
  const auto runner = OpenRunner(model_, Options(KvElement::kF32, 1));
  const auto sequence = runner->NewSequenceOf(RandomTokens(70, 3, kSourceVocab));
  ASSERT_TRUE(sequence.ok());
  ExpectOk(runner->Append(*sequence, std::vector<TokenId>{5, 6}));
  std::vector<int64_t> rows;
  for (const KvGroupStats& group : runner->stats().groups) rows.push_back(group.rows);
  std::ranges::sort(rows);
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 2, 70}));  // encoder, own tokens, source
}

TEST(SourceDistances, Ed17BucketsAreThoseOfTransformers) {
  const auto table =
      nlohmann::json::parse(std::ifstream(SourcePath("tests/reference/distance_buckets.json")));
  const arch::DistanceBuckets buckets = {.buckets = 32, .distance_max = 128};
  const int64_t first = table["first"];
  for (const bool both : {true, false}) {
    const auto expected = table[both ? "encoder" : "decoder"].get<std::vector<int64_t>>();
    ASSERT_EQ(expected.size(), 401u);
    for (size_t i = 0; i < expected.size(); ++i) {
      const int64_t distance = first + static_cast<int64_t>(i);
      EXPECT_EQ(arch::DistanceBucket(buckets, both ? arch::MaskKind::kAll : arch::MaskKind::kCausal,
                                     distance),
                expected[i])
          << distance;
    }
  }
}

// The runner's logits behind each of the fixture's tokens, as log-probabilities.
std::vector<std::vector<double>> LogProbs(SeededModel& seeded, const Model& model) {
  std::vector<std::vector<double>> rows;
  const auto runner = OpenRunner(std::shared_ptr<const Model>(&model, [](const Model*) {}),
                                 Options(KvElement::kF32, 1));
  const auto sequence = runner->NewSequenceOf(seeded.Source());
  EXPECT_TRUE(sequence.ok());
  for (const TokenId& token : seeded.Tokens()) {
    ExpectOk(runner->Append(*sequence, {&token, 1}));
    const auto logits = runner->logits(*sequence);
    rows.emplace_back(logits.begin(), logits.end());
  }
  return rows;
}

// Scales rows of logits and subtracts the logarithm of the sum of their exponentials.
std::vector<std::vector<double>> Normalized(std::vector<std::vector<double>> rows, double scale) {
  for (std::vector<double>& row : rows) {
    double sum = 0;
    for (double& value : row) value *= scale;
    const double most = *std::ranges::max_element(row);
    for (const double value : row) sum += std::exp(value - most);
    for (double& value : row) value -= most + std::log(sum);
  }
  return rows;
}

double Difference(const std::vector<std::vector<double>>& a,
                  const std::vector<std::vector<double>>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t v = 0; v < a[i].size(); ++v) most = std::max(most, std::abs(a[i][v] - b[i][v]));
  }
  return most;
}

std::vector<std::vector<double>> Expected(const SeededModel& seeded, size_t rows) {
  const auto file = formats::NpyRead(seeded.LogitsPath());
  EXPECT_TRUE(file.ok()) << file.error().message;
  const size_t vocab = file->values.size() / rows;
  std::vector<std::vector<double>> out(rows);
  for (size_t i = 0; i < file->values.size(); ++i) out[i / vocab].push_back(file->values[i]);
  return out;
}

// T5 scales what its tied output reads by dim^-0.5, versions with an output of their own do not:
// log-probabilities are those of transformers, and with the other rule they are not.
TEST(SourceOutputs, Ed18LogProbabilitiesAreThoseOfTransformers) {
  for (const auto& [name, scaled] : {std::pair("t5", true), std::pair("t5-gated", false)}) {
    SeededModel seeded(std::string(kSeededPairs) + name);
    const auto model = seeded.Open(OwnGemm());
    ASSERT_NE(model, nullptr);
    const auto found = LogProbs(seeded, *model);
    const auto expected = Expected(seeded, found.size());
    // Of logits up to some tens.
    EXPECT_LT(Difference(Normalized(found, 1), Normalized(expected, 1)), 5e-4) << name;
    const double other = std::sqrt(static_cast<double>(model->spec().stacks.front().dim));
    EXPECT_GT(Difference(Normalized(found, scaled ? other : 1 / other), Normalized(expected, 1)),
              0.05)
        << name;
  }
}

TEST(SourceOutputs, Ed19StacksHaveLayersAndHeadsOfTheirOwn) {
  for (const char* name : {"bart", "mbart", "marian", "m2m100"}) {
    SeededModel seeded(std::string(kSeededPairs) + name);
    const auto model = seeded.Open(OwnGemm());
    ASSERT_NE(model, nullptr);
    const arch::Stack& encoder = model->spec().encoder->stack;
    const arch::Stack& decoder = model->spec().stacks.front();
    EXPECT_EQ(std::ssize(encoder.layers), seeded.config["encoder_layers"]);
    EXPECT_EQ(std::ssize(decoder.layers), seeded.config["decoder_layers"]);
    EXPECT_NE(encoder.layers.size(), decoder.layers.size());
    const auto heads = [](const arch::Stack& stack) {
      return std::get<arch::Attention>(stack.layers[0].sublayers[0].block).heads;
    };
    EXPECT_EQ(heads(encoder), seeded.config["encoder_attention_heads"]);
    EXPECT_EQ(heads(decoder), seeded.config["decoder_attention_heads"]);
    EXPECT_NE(heads(encoder), heads(decoder));
    const auto found = LogProbs(seeded, *model);
    EXPECT_LT(Difference(found, Expected(seeded, found.size())), 1e-4) << name;
  }
}

// With one decoder layer a cached row depends on nothing but its own token, so a cache without some
// tokens is that of a text without them wherever distances are those of this text.
TEST(SourceDistances, Ed17FollowPositionsBehindRewindsAndPrunes) {
  SeededModel seeded(std::string(kSeededPairs) + "t5-silu");
  const auto model = seeded.Open(OwnGemm());
  ASSERT_NE(model, nullptr);
  ASSERT_EQ(model->spec().stacks.front().layers.size(), 1u);
  const std::vector<TokenId> source = RandomTokens(20, 3, kSourceVocab);
  const std::vector<TokenId> tokens = RandomTokens(60, 9, kSourceVocab);
  const std::vector<TokenId> other = RandomTokens(60, 10, kSourceVocab);
  const auto runner = OpenRunner(model, Options(KvElement::kF32, 4));
  const auto logits_of = [&](SequenceId id) {
    const auto logits = runner->logits(id);
    return std::vector<float>(logits.begin(), logits.end());
  };
  // Tokens [10, 50) of 59 are dropped, then the last one is read.
  const auto pruned = [&](std::span<const TokenId> middle, PrunePositions positions) {
    std::vector<TokenId> text(tokens.begin(), tokens.end() - 1);
    std::ranges::copy(middle.subspan(10, 40), text.begin() + 10);
    const SequenceId id = *runner->NewSequenceOf(source);
    ExpectOk(runner->Append(id, text));
    ExpectOk(runner->Prune(id, 10, 9, positions));
    ExpectOk(runner->Append(id, std::span(tokens).last(1)));
    auto found = logits_of(id);
    ExpectOk(runner->FreeSequence(id));
    return found;
  };
  std::vector<TokenId> without(tokens.begin(), tokens.begin() + 10);
  without.insert(without.end(), tokens.begin() + 50, tokens.end());
  const SequenceId fresh = *runner->NewSequenceOf(source);
  for (const TokenId& token : without) ExpectOk(runner->Append(fresh, {&token, 1}));
  const auto moved = pruned(tokens, PrunePositions::kMoved);
  const auto kept = pruned(tokens, PrunePositions::kKept);
  const auto expected = logits_of(fresh);
  double most = 0;
  for (size_t v = 0; v < expected.size(); ++v) {
    EXPECT_NEAR(moved[v], expected[v], 1e-4) << v;
    most = std::max(most, std::abs(double{kept[v]} - double{expected[v]}));
  }
  EXPECT_GT(most, 1e-3);  // distances across the gap are longer
  EXPECT_EQ(pruned(other, PrunePositions::kKept), kept);
  // Back by some tokens and on by others, as if these had been the first.
  const SequenceId back = *runner->NewSequenceOf(source);
  ExpectOk(runner->Append(back, tokens));
  ExpectOk(runner->Rewind(back, 10));
  for (const TokenId& token : std::span(without).subspan(10)) {
    ExpectOk(runner->Append(back, {&token, 1}));
  }
  const auto again = logits_of(back);
  for (size_t v = 0; v < expected.size(); ++v) EXPECT_NEAR(again[v], expected[v], 1e-4) << v;
}

}  // namespace
}  // namespace kvant::test
