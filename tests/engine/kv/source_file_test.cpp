// Sequences of encoder-decoders in session files, and samples of one source. Names begin with the
// number of the check.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kvant/batch_generator.h"
#include "kvant/runner.h"
#include "tests/engine/kv/sealed_sections.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/seeded_sources.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

class SourceFile : public testing::TestWithParam<std::tuple<const char*, KvType>> {
 protected:
  void SetUp() override {
    model_ = seeded_.Open(OwnGemm());
    ASSERT_NE(model_, nullptr);
  }

  std::unique_ptr<Runner> Open(int64_t sequences = 6) const {
    SessionOptions options = Options(std::get<KvType>(GetParam()), sequences);
    options.context = 96;
    return OpenRunner(model_, options);
  }

  // Two forks behind one source, one with another source, one that has only read.
  std::vector<SequenceId> Write(Runner& runner) const {
    std::vector<SequenceId> ids;
    for (const unsigned seed : {3u, 4u}) {
      const auto id = runner.NewSequenceOf(Source(seed == 3 ? 70 : 33, seed));
      EXPECT_TRUE(id.ok()) << id.error().message;
      ids.push_back(*id);
      ExpectOk(runner.Append(*id, RandomTokens(40 + seed, seed + 10, kSourceVocab)));
    }
    const auto fork = runner.Fork(ids[0]);
    EXPECT_TRUE(fork.ok());
    ids.push_back(*fork);
    ExpectOk(runner.Append(*fork, RandomTokens(9, 30, kSourceVocab)));
    const auto empty = runner.NewSequenceOf(Source(33, 4));
    EXPECT_TRUE(empty.ok());
    ids.push_back(*empty);
    return ids;
  }

  void ExpectSameBits(Runner& a, std::span<const SequenceId> of_a, Runner& b,
                      std::span<const SequenceId> of_b) const {
    for (int step = 0; step < 20; ++step) {
      for (size_t i = 0; i < of_a.size(); ++i) {
        const TokenId token =
            static_cast<TokenId>((5 + step * 13 + static_cast<int>(i)) % kSourceVocab);
        ExpectOk(a.Append(of_a[i], {&token, 1}));
        ExpectOk(b.Append(of_b[i], {&token, 1}));
        ASSERT_TRUE(std::ranges::equal(a.logits(of_a[i]), b.logits(of_b[i]))) << step << " " << i;
      }
    }
  }

  SeededModel seeded_{std::string(kSeededPairs) + std::get<0>(GetParam())};
  std::shared_ptr<const Model> model_;
  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Seeded, SourceFile,
                         testing::Combine(testing::Values("t5", "bart"),
                                          testing::Values(KvType::kF32, KvType::kF16,
                                                          KvType::kQ8)));

class HostileSourceFile : public SourceFile {};

INSTANTIATE_TEST_SUITE_P(Seeded, HostileSourceFile, testing::Values(std::tuple("t5", KvType::kQ8)));

// With the rows of sources no encoder runs, without them each source is encoded once; the bits are
// those of sequences that were never saved.
TEST_P(SourceFile, ContinuesWithTheSameBits) {
  for (const SourceRows rows : {SourceRows::kSaved, SourceRows::kLeftOut}) {
    const auto runner = Open();
    const std::vector<SequenceId> ids = Write(*runner);
    const std::string path = folder_ / "session";
    ExpectOk(runner->Save(path, ids, {.source_rows = rows}));
    const auto later = Open();
    const auto loaded = later->Load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    ASSERT_EQ(loaded->size(), ids.size());
    ExpectOk(later->Check());
    EXPECT_EQ(later->stats().encoder_passes, rows == SourceRows::kSaved ? 0u : 2u);
    // Blocks that sequences and their sources share are shared again.
    EXPECT_EQ(later->stats().kv_bytes_used, runner->stats().kv_bytes_used);
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(later->tokens((*loaded)[i]), runner->tokens(ids[i])));
      EXPECT_TRUE(std::ranges::equal(later->logits((*loaded)[i]), runner->logits(ids[i])));
    }
    ExpectSameBits(*runner, ids, *later, *loaded);
    // Back to the source alone, and on.
    for (const auto& [one, all] : {std::pair(runner.get(), ids), std::pair(later.get(), *loaded)}) {
      for (const SequenceId id : all) ExpectOk(one->Rewind(id, 0));
    }
    ExpectSameBits(*runner, ids, *later, *loaded);
    for (const SequenceId id : *loaded) ExpectOk(later->FreeSequence(id));
    ExpectOk(later->Check());
  }
}

// A source of a file becomes the runner's source with equal input, and is found by its input
// afterwards; its rows are in the file once.
TEST_P(SourceFile, SourcesAreSharedWithThoseThatAreThere) {
  const auto runner = Open();
  const std::vector<SequenceId> ids = Write(*runner);
  const std::string both = folder_ / "both";
  const std::string one = folder_ / "one";
  ExpectOk(runner->Save(one, std::span(ids).first(1)));
  ExpectOk(runner->Save(both, std::vector<SequenceId>{ids[0], ids[2]}));
  const auto size = [](const std::string& path) { return std::ssize(ReadFile(path)); };
  const uint64_t source_bytes = [&] {
    const auto alone = Open();
    EXPECT_TRUE(alone->Encode(Source(70)).ok());
    return alone->stats().kv_bytes_used;
  }();
  EXPECT_LT(size(both) - size(one), static_cast<int64_t>(source_bytes));

  const auto later = Open();
  const auto known = later->Encode(Source(70));
  ASSERT_TRUE(known.ok());
  const uint64_t used = later->stats().kv_bytes_used;
  const auto loaded = later->Load(one);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_LT(later->stats().kv_bytes_used - used, source_bytes);
  ExpectOk(later->FreeSource(*known));
  ExpectOk(later->FreeSequence(loaded->front()));

  const auto fresh = Open();
  ASSERT_TRUE(fresh->Load(one).ok());
  EXPECT_TRUE(fresh->Encode(Source(70)).ok());
  EXPECT_EQ(fresh->stats().encoder_passes, 0u);
  EXPECT_TRUE(fresh->Encode(Source(70, 9)).ok());
  EXPECT_EQ(fresh->stats().encoder_passes, 1u);
  ExpectOk(fresh->Check());
}

TEST_P(SourceFile, RefusesWhatIsNotItsOwn) {
  const auto runner = Open();
  const std::vector<SequenceId> ids = Write(*runner);
  const std::string path = folder_ / "session";
  ExpectOk(runner->Save(path, ids));
  const auto error_of = [&](Runner& reader, const std::string& file) {
    const auto loaded = reader.Load(file);
    ExpectOk(reader.Check());
    EXPECT_EQ(reader.stats().sequences, 0);
    return loaded.ok() ? std::pair(ErrorCode::kInvalid, std::string("accepted"))
                       : std::pair(loaded.error().code, loaded.error().message);
  };
  SeededModel other(std::string(kSeededPairs) + "m2m100");
  const auto other_model = other.Open(OwnGemm());
  ASSERT_NE(other_model, nullptr);
  SessionOptions options = Options(std::get<KvType>(GetParam()), 6);
  options.context = 96;
  const auto stranger = error_of(*OpenRunner(other_model, options), path);
  EXPECT_EQ(stranger.first, ErrorCode::kNotSupported);
  EXPECT_THAT(stranger.second, HasSubstr("another model"));
  options.source_k_type = options.source_v_type =
      std::get<KvType>(GetParam()) == KvType::kQ8 ? KvType::kF16 : KvType::kQ8;
  EXPECT_EQ(error_of(*OpenRunner(model_, options), path).first, ErrorCode::kNotSupported);
  // One bit anywhere, or an end that is missing.
  const SectionBytes file = ReadFile(path);
  const auto reader = Open();
  for (size_t at = 8; at < file.size(); at += 1 + file.size() / 60) {
    SectionBytes changed = file;
    changed[at] ^= std::byte{4};
    WriteFile(folder_ / "changed", changed);
    EXPECT_NE(error_of(*reader, folder_ / "changed").second, "accepted") << at;
    changed.assign(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(at));
    WriteFile(folder_ / "changed", changed);
    EXPECT_EQ(error_of(*reader, folder_ / "changed").first, ErrorCode::kCorrupt) << at;
  }
}

// Every number of the header, the sources and the beginnings of sequences, sealed again.
TEST_P(HostileSourceFile, AnyNumberMayBeAnything) {
  const auto runner = Open();
  const std::vector<SequenceId> ids = Write(*runner);
  ExpectOk(runner->Save(folder_ / "session", ids));
  const std::vector<SectionBytes> sections = Sections(ReadFile(folder_ / "session"));
  const auto reader = Open();
  int accepted = 0;
  int refused = 0;
  const auto try_with = [&](size_t s, const SectionBytes& section) {
    std::vector<SectionBytes> all = sections;
    all[s] = section;
    WriteFile(folder_ / "hostile", Join(all));
    const auto loaded = reader->Load(folder_ / "hostile");
    ++(loaded.ok() ? accepted : refused);
    if (loaded.ok()) {
      for (const SequenceId id : *loaded) {
        const TokenId token = 1;
        static_cast<void>(reader->Append(id, {&token, 1}));
        static_cast<void>(reader->Rewind(id, 0));
        ExpectOk(reader->FreeSequence(id));
      }
    }
    ExpectOk(reader->Check());
    ASSERT_EQ(reader->stats().sequences, 0);
  };
  try_with(0, sections[0]);
  ASSERT_EQ(accepted, 1);
  // The header, two sources, four sequences; of these the hash of an input is made right again.
  for (size_t s = 0; s < 7; ++s) {
    const bool source = s == 1 || s == 2;
    const size_t most = s == 0 ? sections[s].size() : 48;
    for (size_t at = 0; at < std::min(most, sections[s].size()); ++at) {
      for (const auto& [width, value] :
           {std::pair(size_t{1}, int64_t{2}), {4, 3}, {4, -1}, {8, int64_t{1} << 62}, {8, 69}}) {
        if (at + width > sections[s].size()) continue;
        SectionBytes changed = sections[s];
        std::memcpy(changed.data() + at, &value, width);
        if (changed == sections[s]) continue;
        if (source && changed.size() > 25) {
          const size_t input = changed.size() - 25;
          const uint64_t hash = XXH64(changed.data() + 17, input, 0);
          std::memcpy(changed.data() + changed.size() - sizeof hash, &hash, sizeof hash);
        }
        try_with(s, changed);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_GT(refused, 700);
}

// n samples behind one source are those of n runs, each with its seed; the encoder runs once.
TEST_P(SourceFile, SamplesAreThoseOfSeparateRuns) {
  constexpr int32_t kSamples = 5;
  BatchOptions options;
  options.sampling.temperature = 1.3f;
  options.sampling.top_k = 20;
  options.sampling.seed = 77;
  options.max_tokens = 24;
  options.ignore_eos = true;
  BeamOptions processors;
  processors.forced_bos = TokenId{9};
  processors.no_repeat_ngram = 2;
  processors.suppress = {3, 4, 5};
  for (const bool processed : {false, true}) {
    options.processors = processed ? std::optional(processors) : std::nullopt;
    const auto run = [&](Runner& runner, int32_t samples, uint64_t seed) {
      BatchOptions own = options;
      own.sampling.seed = seed;
      const BatchRequest request = {.prompt = {1}, .samples = samples, .source = Source(50)};
      std::map<int32_t, std::vector<TokenId>> found;
      ExpectOk(GenerateBatch(runner, model_->tokenizer(), {&request, 1}, own,
                             [&](const BatchText& text) {
                               found[text.sample] = text.ids;
                               return true;
                             }));
      return found;
    };
    const auto together = Open(kSamples);
    const auto samples = run(*together, kSamples, 77);
    EXPECT_EQ(together->stats().encoder_passes, 1u);
    ASSERT_EQ(std::ssize(samples), kSamples);
    for (const auto& [sample, ids] : samples) {
      const auto alone = Open(1);
      EXPECT_EQ(run(*alone, 1, 77 + static_cast<uint64_t>(sample)).at(0), ids) << sample;
      ASSERT_EQ(ids.size(), 24u);
      if (!processed) continue;
      EXPECT_EQ(ids[0], 9);
      std::vector<std::pair<TokenId, TokenId>> pairs;
      for (size_t i = 0; i + 1 < ids.size(); ++i) pairs.emplace_back(ids[i], ids[i + 1]);
      std::ranges::sort(pairs);
      EXPECT_EQ(std::ranges::adjacent_find(pairs), pairs.end());
      for (const TokenId id : ids) EXPECT_FALSE(id >= 3 && id <= 5) << id;
    }
    EXPECT_NE(samples.at(0), samples.at(1));
  }
}

}  // namespace
}  // namespace kvant::test
