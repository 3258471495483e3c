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
#include "engine/run/memory_plan.h"
#include "formats/npy.h"
#include "kvant/beam_generator.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/seeded_sources.h"

namespace kvant::test {
namespace {

class SourceChecks : public SeededSources {};

INSTANTIATE_TEST_SUITE_P(Seeded, SourceChecks, testing::Values("t5", "bart", "m2m100"));

// All beams write tokens of their own, so they share nothing but the source.
TEST_P(SourceChecks, BeamsTakeMemoryForTheirOwnTokensOnly) {
  const std::vector<TokenId> source = RandomTokens(33, 3, kSourceVocab);
  std::map<int64_t, uint64_t> peak;
  uint64_t of_beam = 0;
  for (const int64_t beams : {1, 5}) {
    const auto runner = OpenRunner(model_, Options(KvType::kF32, beams));
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

TEST_P(SourceChecks, NumbersBehindTheEndOfASourceChangeNothing) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
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
                      kv::WriteKeyRow(cache, at, entry, position, ones.data(), &nan);
                      kv::WriteValueRow(cache, at, entry, position, ones.data(), &nan);
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

// Without a cache the source and all tokens are computed again for every step, by attention of its
// own. A fork, a rewind and a sequence of another source in between change nothing there either.
TEST_P(SourceChecks, StepsAreWhatComputingAllTokensAgainGives) {
  const std::vector<TokenId> tokens = RandomTokens(40, 9, kSourceVocab);
  const std::span<const TokenId> all(tokens);
  SessionOptions without = Options(KvType::kF32, 3);
  without.kv_cache = false;
  for (const int64_t length : {1, 33, 40}) {
    const std::vector<TokenId> source = RandomTokens(length, 3, kSourceVocab);
    const auto cached = OpenRunner(model_, Options(KvType::kF32, 3));
    const auto uncached = OpenRunner(model_, without);
    for (Runner* runner : {cached.get(), uncached.get()}) {
      ASSERT_TRUE(runner->NewSequenceOf(source).ok());
      ASSERT_TRUE(runner->NewSequenceOf(RandomTokens(7, 4, kSourceVocab)).ok());
    }
    const auto step = [&](SequenceId sequence, std::span<const TokenId> more) {
      for (Runner* runner : {cached.get(), uncached.get()})
        ExpectOk(runner->Append(sequence, more));
    };
    const auto compare = [&](SequenceId sequence, size_t at) {
      const auto a = cached->logits(sequence);
      const auto b = uncached->logits(sequence);
      ASSERT_EQ(a.size(), b.size());
      for (size_t v = 0; v < a.size(); ++v) ASSERT_NEAR(a[v], b[v], 2e-5) << length << ": " << at;
    };
    for (size_t i = 0; i < tokens.size(); ++i) {
      step(0, all.subspan(i, 1));
      if (i % 4 == 0) step(1, all.subspan(i, 1));
      compare(0, i);
      compare(1, i);
    }
    for (Runner* runner : {cached.get(), uncached.get()}) {
      ASSERT_TRUE(runner->Fork(0).ok());
      ExpectOk(runner->Rewind(0, 21));
      ExpectOk(runner->ComputeLogits(0));
    }
    compare(0, 21);
    step(2, all.first(5));
    compare(2, 45);
    step(0, all.last(19));
    compare(0, 40);
    EXPECT_EQ(uncached->stats().kv_bytes_peak, 0u);
    EXPECT_GT(uncached->stats().encoder_passes, 40u);
    EXPECT_EQ(cached->stats().encoder_passes, 2u);
  }
}

// The pass reads the positions of a source once, for all rows together.
TEST_P(SourceChecks, FiveBeamsReadASourceOnce) {
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

TEST_P(SourceChecks, TheCacheOfASourceIsNeverWrittenAgain) {
  const auto engine = OpenEngine(4, KvType::kF16);
  run::SequenceState& first = Begin(*engine, RandomTokens(45, 3, kSourceVocab));
  const std::vector<std::byte> before = RowsOf(*engine, first.kv);
  ASSERT_FALSE(before.empty());
  std::vector<SequenceId> all = {0};
  for (int i = 1; i < 4; ++i) all.push_back(*engine->sequences->Fork(0));
  for (TokenId token = 5; token < 45; ++token) Step(*engine, all, token);
  EXPECT_EQ(RowsOf(*engine, first.kv), before);
}

TEST_P(SourceChecks, MemoryIsThatOfSourcesAndSequences) {
  constexpr int64_t kSequences = 3;
  SessionOptions options = Options(KvType::kF16, kSequences);
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

TEST_P(SourceChecks, BeamsReadTheirPromptAndSourceOnce) {
  const auto runner = OpenRunner(model_, Options(KvType::kF32, 5));
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
  // Weights are read once for all beams of a step; the last tokens need no pass.
  EXPECT_EQ(runner->stats().passes, 1u + 8 - 1);
}

// A sequence may be shorter than its source.
TEST_P(SourceChecks, CountersTellTheRowsOfSources) {
  const auto runner = OpenRunner(model_, Options(KvType::kF32, 1));
  const auto sequence = runner->NewSequenceOf(RandomTokens(70, 3, kSourceVocab));
  ASSERT_TRUE(sequence.ok());
  ExpectOk(runner->Append(*sequence, std::vector<TokenId>{5, 6}));
  std::vector<int64_t> rows;
  for (const KvGroupStats& group : runner->stats().groups) rows.push_back(group.rows);
  std::ranges::sort(rows);
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 2, 70}));  // encoder, own tokens, source
}

TEST(SourceDistances, BucketsAreThoseOfTransformers) {
  const auto tables =
      nlohmann::json::parse(std::ifstream(SourcePath("tests/reference/distance_buckets.json")));
  ASSERT_EQ(tables.size(), 9u);
  for (const auto& table : tables) {
    const arch::DistanceBuckets buckets = {.buckets = table["buckets"],
                                           .distance_max = table["distance_max"]};
    const int64_t first = table["first"];
    for (const bool both : {true, false}) {
      const auto expected = table[both ? "encoder" : "decoder"].get<std::vector<int64_t>>();
      ASSERT_EQ(expected.size(), 401u);
      for (size_t i = 0; i < expected.size(); ++i) {
        const int64_t distance = first + static_cast<int64_t>(i);
        const auto mask = both ? arch::MaskKind::kAll : arch::MaskKind::kCausal;
        EXPECT_EQ(arch::DistanceBucket(buckets, mask, distance), expected[i])
            << distance << " of " << buckets.buckets << ", " << buckets.distance_max;
      }
    }
  }
}

// The runner's logits behind each of the fixture's tokens, as log-probabilities.
std::vector<std::vector<double>> LogProbs(SeededModel& seeded, const Model& model) {
  std::vector<std::vector<double>> rows;
  const auto runner = OpenRunner(std::shared_ptr<const Model>(&model, [](const Model*) {}),
                                 Options(KvType::kF32, 1));
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
TEST(SourceOutputs, LogProbabilitiesAreThoseOfTransformers) {
  for (const auto& [name, scaled] :
       {std::pair("t5", true), std::pair("t5-silu", true), std::pair("t5-gated", false),
        std::pair("t5-mt5", false), std::pair("t5-umt5", false)}) {
    SeededModel seeded(std::string(kSeededPairs) + name);
    const auto model = seeded.Open(OwnGemm());
    ASSERT_NE(model, nullptr);
    const auto found = LogProbs(seeded, *model);
    const auto expected = Expected(seeded, found.size());
    // The logits are up to some tens.
    EXPECT_LT(Difference(Normalized(found, 1), Normalized(expected, 1)), 5e-4) << name;
    const double other = std::sqrt(static_cast<double>(model->spec().stacks.front().dim));
    EXPECT_GT(Difference(Normalized(found, scaled ? other : 1 / other), Normalized(expected, 1)),
              0.05)
        << name;
  }
}

// Folders of transformers 5 say by a setting of their own whether the output is scaled, and mT5 in
// that version never scales: the logits are those of the other rule times a root of the width.
TEST(SourceOutputs, AreScaledAsTransformers5Says) {
  struct Case {
    const char* name;
    const char* changes;  // of config.json
    double factor;        // how often the logits are multiplied by the width's root
  };
  const Case cases[] = {
      {"t5", R"({"scale_decoder_outputs": false})", 1},
      {"t5-silu", R"({"scale_decoder_outputs": false})", 1},
      {"t5", R"({"scale_decoder_outputs": true})", 0},
      {"t5-gated", R"({"scale_decoder_outputs": true})", -1},
      {"t5-umt5", R"({"scale_decoder_outputs": true, "tie_word_embeddings": true})", -1},
      {"t5-gated", R"({"scale_decoder_outputs": false, "tie_word_embeddings": true})", 0},
      {"t5-silu", R"({"architectures": ["MT5ForConditionalGeneration"],
                      "transformers_version": "4.57.1"})",
       0},
      {"t5-silu", R"({"architectures": ["MT5ForConditionalGeneration"],
                      "transformers_version": "5.24.0"})",
       1}};
  for (const Case& row : cases) {
    SeededModel seeded(std::string(kSeededPairs) + row.name);
    seeded.config.merge_patch(nlohmann::json::parse(row.changes));
    const auto model = seeded.Open(OwnGemm());
    ASSERT_NE(model, nullptr);
    const auto found = LogProbs(seeded, *model);
    const auto expected = Expected(seeded, found.size());
    const double root = std::sqrt(static_cast<double>(model->spec().stacks.front().dim));
    EXPECT_LT(Difference(Normalized(found, 1), Normalized(expected, std::pow(root, row.factor))),
              2e-3)
        << row.name << " " << row.changes;
  }
}

TEST(SourceOutputs, StacksHaveLayersAndHeadsOfTheirOwn) {
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

// A hole that is hidden or closed, and a rewind to where it begins, against transformers with a
// mask and with the other tokens alone. With one decoder layer what the cache keeps of a token
// depends on no other token.
TEST(SourceDistances, FollowPositionsBehindRewindsAndPrunes) {
  const auto expected =
      nlohmann::json::parse(std::ifstream(SourcePath("tests/reference/distance_hole.json")));
  const auto source = expected["source"].get<std::vector<TokenId>>();
  const auto tokens = expected["tokens"].get<std::vector<TokenId>>();
  const std::ptrdiff_t begin = expected["hole"][0];
  const std::ptrdiff_t end = expected["hole"][1];
  SeededModel seeded(std::string(kSeededPairs) + "t5-silu");
  const auto model = seeded.Open(OwnGemm());
  ASSERT_NE(model, nullptr);
  ASSERT_EQ(model->spec().stacks.front().layers.size(), 1u);
  const auto runner = OpenRunner(model, Options(KvType::kF32, 1));
  const auto logits_of = [&](SequenceId id) {
    const auto logits = runner->logits(id);
    std::vector<float> copy(logits.begin(), logits.end());
    ExpectOk(runner->FreeSequence(id));
    return copy;
  };
  // All tokens but the last one, less the hole, and then the last one.
  const auto pruned = [&](std::vector<TokenId> text, PrunePositions positions) {
    const SequenceId id = *runner->NewSequenceOf(source);
    text.pop_back();
    ExpectOk(runner->Append(id, text));
    ExpectOk(runner->Prune(id, begin, std::ssize(text) - end, positions));
    ExpectOk(runner->Append(id, std::span(tokens).last(1)));
    return logits_of(id);
  };
  const auto kept = pruned(tokens, PrunePositions::kKept);
  EXPECT_LE(MaxDifference(kept, expected["kept"].get<std::vector<float>>()), 2e-5);
  const auto of_moved = expected["moved"].get<std::vector<float>>();
  EXPECT_LE(MaxDifference(pruned(tokens, PrunePositions::kMoved), of_moved), 2e-5);
  EXPECT_GT(MaxDifference(kept, of_moved), 1e-2);
  std::vector<TokenId> others = tokens;
  std::ranges::reverse(others.begin() + begin, others.begin() + end);
  EXPECT_EQ(pruned(others, PrunePositions::kKept), kept);
  // Back to the hole's begin and on by what stands behind it.
  const SequenceId back = *runner->NewSequenceOf(source);
  ExpectOk(runner->Append(back, tokens));
  ExpectOk(runner->Rewind(back, begin));
  for (const TokenId& token : std::span(tokens).subspan(static_cast<size_t>(end))) {
    ExpectOk(runner->Append(back, {&token, 1}));
  }
  EXPECT_LE(MaxDifference(logits_of(back), of_moved), 2e-5);
}

}  // namespace
}  // namespace kvant::test
