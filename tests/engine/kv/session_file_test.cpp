// Sequences on disk: what continues after a load has the bits of what was never interrupted, and a
// file that is not whole and right is refused without a trace.
#include "engine/kv/session_file.h"
#include "cpu/activations.h"
#include "cpu/kv_format_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvant/runner.h"
#include "tests/engine/kv/session_fields.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/engine/tiny_model.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

SessionOptions FileOptions(KvType type) {
  SessionOptions options;
  options.k_type = options.v_type = type;
  options.sequences = 4;
  options.threads = 1;
  options.kv_check = true;
  return options;
}

std::string ReadBytes(const std::string& path) {
  const std::vector<std::byte> bytes = ReadFile(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Saved {
  TinyShape shape;
  std::shared_ptr<const Model> model;
  std::unique_ptr<Runner> runner;
  std::vector<SequenceId> ids;
};

// Layers without a window, layers with one, and both kinds alternately.
enum class Layers : uint8_t { kFull, kWindow, kMixed };

TinyShape ShapeOf(Layers layers) {
  TinyShape shape = layers == Layers::kMixed ? MixedShape(33) : TinyShape();
  if (layers == Layers::kWindow) shape.window = 33;
  shape.context = 900;
  return shape;
}

// Two forks past a window, one of them with a hole, and a short sequence.
Saved MakeSequences(KvType type, Layers layers, int64_t length = 700) {
  Saved saved;
  saved.shape = ShapeOf(layers);
  saved.model = OpenTiny(saved.shape);
  saved.runner = OpenRunner(saved.model, FileOptions(type));
  const SequenceId first = *saved.runner->NewSequence();
  ExpectOk(saved.runner->Append(first, RandomTokens(length, 1)));
  const SequenceId second = *saved.runner->Fork(first);
  ExpectOk(saved.runner->Append(second, RandomTokens(30, 2)));
  if (layers != Layers::kWindow) {
    ExpectOk(saved.runner->Prune(second, 10, 50, PrunePositions::kKept));
  }
  const SequenceId third = *saved.runner->NewSequence();
  ExpectOk(saved.runner->Append(third, RandomTokens(5, 3)));
  saved.ids = {first, second, third};
  return saved;
}

class SessionFile : public testing::TestWithParam<std::tuple<KvType, Layers>> {};

TEST_P(SessionFile, ContinuesWithTheSameBits) {
  const auto [type, layers] = GetParam();
  Saved saved = MakeSequences(type, layers);
  TemporaryFolder folder;
  const std::string path = folder / "session";
  ExpectOk(saved.runner->Save(path, saved.ids));
  auto later = OpenRunner(saved.model, FileOptions(type));
  auto loaded = later->Load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_EQ(loaded->size(), saved.ids.size());
  // Shared blocks are shared again.
  EXPECT_EQ(later->stats().kv_bytes_used, saved.runner->stats().kv_bytes_used);
  for (size_t i = 0; i < saved.ids.size(); ++i) {
    EXPECT_TRUE(
        std::ranges::equal(later->tokens((*loaded)[i]), saved.runner->tokens(saved.ids[i])));
    EXPECT_TRUE(
        std::ranges::equal(later->logits((*loaded)[i]), saved.runner->logits(saved.ids[i])));
  }
  for (int step = 0; step < 40; ++step) {
    for (size_t i = 0; i < saved.ids.size(); ++i) {
      const TokenId token = static_cast<TokenId>(5 + (step * 13 + static_cast<int>(i)) % 200);
      ExpectOk(saved.runner->Append(saved.ids[i], {&token, 1}));
      ExpectOk(later->Append((*loaded)[i], {&token, 1}));
      ASSERT_TRUE(
          std::ranges::equal(later->logits((*loaded)[i]), saved.runner->logits(saved.ids[i])))
          << step << " " << i;
    }
  }
  // A part of what was saved: back to a common beginning, also before the window.
  ExpectOk(later->Rewind((*loaded)[0], 100));
  EXPECT_EQ(later->length((*loaded)[0]), 100);
}

INSTANTIATE_TEST_SUITE_P(Types, SessionFile,
                         testing::Combine(testing::Values(KvType::kF32, KvType::kF16, KvType::kQ8),
                                          testing::Values(Layers::kFull, Layers::kWindow,
                                                          Layers::kMixed)));

TEST(SessionFiles, TruncatedOrChangedFilesAreRefused) {
  TinyShape shape;
  shape.dim = 32, shape.heads = 2, shape.kv_heads = 1, shape.ffn = 32, shape.layers = 1;
  shape.head_dim = 4;
  const auto model = OpenTiny(shape);
  auto runner = OpenRunner(model, FileOptions(KvType::kQ8));
  const SequenceId id = *runner->NewSequence();
  ExpectOk(runner->Append(id, RandomTokens(40, 1)));
  TemporaryFolder folder;
  const std::string path = folder / "session";
  const std::string broken = folder / "broken";
  ExpectOk(runner->Save(path, std::vector<SequenceId>{id}));
  const std::string bytes = ReadBytes(path);
  auto later = OpenRunner(model, FileOptions(KvType::kQ8));
  const auto refused = [&](const std::string& content, const std::string& what) {
    WriteFile(broken, std::as_bytes(std::span(content)));
    const auto loaded = later->Load(broken);
    ASSERT_FALSE(loaded.ok()) << what;
    ASSERT_EQ(later->stats().kv_bytes_used, 0u) << what;
    ASSERT_EQ(later->stats().sequences, 0) << what;
  };
  for (size_t size = 0; size < bytes.size(); ++size) {
    if (size > 300 && size % 7 != 0) continue;
    refused(bytes.substr(0, size), "size " + std::to_string(size));
    std::string flipped = bytes;
    flipped[size] = static_cast<char>(flipped[size] ^ (1 << size % 8));
    refused(flipped, "byte " + std::to_string(size));
  }
  refused(bytes + "x", "longer");
  EXPECT_TRUE(later->Load(path).ok());
}

// A file that a careful enemy wrote: one number is wrong and all hashes are right.
class CraftedSessionFile : public testing::Test {
 protected:
  // Two forks past a window, a short sequence, and an empty one.
  void Save(KvType type, Layers layers) {
    saved_ = MakeSequences(type, layers);
    saved_.ids.push_back(*saved_.runner->NewSequence());
    type_ = type;
    ExpectOk(saved_.runner->Save(path_, saved_.ids));
    bytes_ = ReadBytes(path_);
  }

  SessionFields Fields() const { return {bytes_, kTinyVocab}; }

  // Loads what was changed and returns the refusal, which names the file and leaves no trace. A
  // file that is accepted against expectation is used, so that a sanitizer or the system sees where
  // it leads.
  std::string Refusal(SessionFields fields) {
    fields.Seal();
    WriteFile(path_, std::as_bytes(std::span(fields.bytes())));
    auto runner = OpenRunner(saved_.model, FileOptions(type_));
    const auto loaded = runner->Load(path_);
    if (loaded.ok()) {
      const TokenId token = 5;
      for (const SequenceId id : *loaded) ExpectOk(runner->Append(id, {&token, 1}));
      return "accepted";
    }
    EXPECT_EQ(runner->stats().kv_bytes_used, 0u);
    EXPECT_EQ(runner->stats().sequences, 0);
    EXPECT_THAT(loaded.error().message, testing::StartsWith(path_ + ": session file: "));
    return loaded.error().message;
  }
  template <class T>
  std::string Refusal(const std::string& field, T value) {
    SessionFields fields = Fields();
    EXPECT_TRUE(fields.Has(field)) << field;
    if (!fields.Has(field)) return "";
    fields.Set<T>(field, value);
    return Refusal(fields);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "session";
  Saved saved_;
  KvType type_ = KvType::kF16;
  std::string bytes_;
};

TEST_F(CraftedSessionFile, IsReadAsItWasWrittenWhenNothingIsChanged) {
  Save(KvType::kQ8, Layers::kWindow);
  EXPECT_EQ(Refusal(Fields()), "accepted");
  SessionFields fields = Fields();
  fields.Seal();
  EXPECT_EQ(fields.bytes(), bytes_);
  EXPECT_EQ(fields.Get<int64_t>("sequence 2 length"), 5);
}

TEST_F(CraftedSessionFile, TablesBeginWhereTheirPolicyHasThem) {
  using testing::HasSubstr;
  Save(KvType::kF16, Layers::kFull);
  const std::string full = "sequence 0 group 0 first position";
  EXPECT_THAT(Refusal<int64_t>(full, 1), HasSubstr("first position: expected 0, found 1"));
  for (const int64_t position : {int64_t{32}, int64_t{700}, int64_t{704}, int64_t{100000},
                                 INT64_MAX, INT64_MIN, int64_t{-1}}) {
    EXPECT_THAT(Refusal(full, position), HasSubstr("expected 0, found")) << position;
  }
  Save(KvType::kF16, Layers::kWindow);
  const std::string window = "sequence 0 group 0 first position";
  const SessionFields fields = Fields();
  EXPECT_EQ(fields.Get<int64_t>(window), 384);  // (700 - 33 + 1 - 256) / 32 * 32
  for (const int64_t position : {int64_t{669}, int64_t{700}, int64_t{732}, int64_t{100000},
                                 INT64_MAX, INT64_MIN, int64_t{-1}}) {
    EXPECT_THAT(Refusal(window, position), HasSubstr("expected 0 to 668, found")) << position;
  }
  // Tables without a block, for whose next tokens no block would be taken.
  for (const int sequence : {2, 3}) {
    EXPECT_THAT(Refusal<int64_t>(fmt::format("sequence {} group 0 first position", sequence), 6400),
                HasSubstr("expected 0, found 6400"));
  }
}

TEST_F(CraftedSessionFile, TablesHoldBlocksOfTheirSequence) {
  using testing::HasSubstr;
  Save(KvType::kF16, Layers::kFull);
  const std::string entry = "sequence 0 group 0 entry 21 ";
  EXPECT_THAT(Refusal<int64_t>(entry + "number", 22), HasSubstr("expected 21 to 21, found 22"));
  EXPECT_THAT(Refusal<int64_t>(entry + "number", 20), HasSubstr("expected 21 to 21, found 20"));
  for (const int64_t number : {INT64_MAX, INT64_MAX / 32 + 1, INT64_MIN, int64_t{-1}}) {
    EXPECT_THAT(Refusal(entry + "number", number), HasSubstr("found " + std::to_string(number)));
  }
  EXPECT_THAT(Refusal<int64_t>("sequence 0 group 0 entry 4 number", 5),
              HasSubstr("expected 6 to 21, found 5"));
  for (const uint32_t index : {1000u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
    EXPECT_THAT(Refusal(entry + "index", index), HasSubstr("found " + std::to_string(index)));
  }
  // A block that is given out at two places.
  EXPECT_THAT(Refusal<uint32_t>(entry + "index", 3), HasSubstr("block 3"));
  EXPECT_THAT(Refusal<uint32_t>("sequence 0 group 0 entries", 21), HasSubstr("session file"));
  EXPECT_THAT(Refusal<uint32_t>("sequence 0 group 0 entries", 0xffffffffu),
              HasSubstr("4294967295"));
}

TEST_F(CraftedSessionFile, BlocksAreThoseOfTheTables) {
  using testing::HasSubstr;
  Save(KvType::kF16, Layers::kFull);
  const auto blocks = Fields().Get<uint32_t>("group 0 blocks");
  for (const uint32_t count : {0u, blocks - 1, blocks + 1, 0xffffffffu}) {
    EXPECT_THAT(Refusal("group 0 blocks", count),
                HasSubstr(fmt::format("expected {}, found {}", blocks, count)));
  }
  EXPECT_THAT(Refusal<uint32_t>("group 0 block 3 rows", 31), HasSubstr("expected 32, found 31"));
  EXPECT_THAT(Refusal<uint32_t>("group 0 block 3 rows", 33), HasSubstr("expected 32, found 33"));
  EXPECT_THAT(Refusal<uint32_t>("group 0 block 3 rows", 0xffffffffu),
              HasSubstr("found 4294967295"));
}

TEST_F(CraftedSessionFile, LengthsFlagsAndPrunedRangesHold) {
  using testing::HasSubstr;
  Save(KvType::kF16, Layers::kFull);
  EXPECT_THAT(Refusal<int64_t>("sequence 0 length", -1), HasSubstr("found -1"));
  EXPECT_THAT(Refusal<int64_t>("sequence 0 length", INT64_MIN), HasSubstr("found -9223"));
  EXPECT_THAT(Refusal<int64_t>("sequence 0 length", 901), HasSubstr("context of 900"));
  EXPECT_THAT(Refusal<int64_t>("sequence 0 length", INT64_MAX), HasSubstr("context of 900"));
  for (const uint8_t flags : {4, 7, 128, 255}) {
    EXPECT_THAT(Refusal<uint8_t>("sequence 0 flags", flags), HasSubstr("flags")) << int{flags};
  }
  // The second sequence has a hole, so its cache is not what its tokens alone give.
  EXPECT_EQ(Fields().Get<uint8_t>("sequence 1 flags"), 0);
  EXPECT_THAT(Refusal<uint8_t>("sequence 1 flags", 2), HasSubstr("pruned"));
  EXPECT_EQ(Fields().Get<int64_t>("sequence 1 range 0 begin"), 10);
  EXPECT_THAT(Refusal<int64_t>("sequence 1 range 0 begin", -1), HasSubstr("[-1, "));
  EXPECT_THAT(Refusal<int64_t>("sequence 1 range 0 begin", INT64_MIN), HasSubstr("pruned"));
  EXPECT_THAT(Refusal<int64_t>("sequence 1 range 0 end", 10), HasSubstr("[10, 10)"));
  EXPECT_THAT(Refusal<int64_t>("sequence 1 range 0 end", 731), HasSubstr("[10, 731)"));
  // A smaller hole, whose blocks are missing.
  EXPECT_THAT(Refusal<int64_t>("sequence 1 range 0 end", 40), HasSubstr("missing"));
  EXPECT_THAT(Refusal<uint32_t>("sequence 1 pruned ranges", 0xffffffffu), HasSubstr("4294967295"));
  EXPECT_THAT(Refusal<int32_t>("sequence 0 tokens", kTinyVocab), HasSubstr("found 259"));
  EXPECT_THAT(Refusal<int32_t>("sequence 0 tokens", -1), HasSubstr("found -1"));
  EXPECT_THAT(Refusal<uint32_t>("sequences", 5), HasSubstr("found 5"));
  EXPECT_THAT(Refusal<uint32_t>("sequences", 0xffffffffu), HasSubstr("found 4294967295"));
  EXPECT_THAT(Refusal<uint32_t>("groups", 0), HasSubstr("found 0"));
  EXPECT_THAT(Refusal<uint32_t>("version", 2),
              HasSubstr("version: expected 1 or 3 for this model, found 2"));
}

// Scales that no vector of numbers gives. A code of -128 is what a key that was never written
// holds.
TEST_F(CraftedSessionFile, Int8RowsHaveScalesOfTheQuantizer) {
  using testing::HasSubstr;
  Save(KvType::kQ8, Layers::kFull);
  const std::string keys = "group 0 block 1 lane 1 keys";
  EXPECT_EQ(Refusal<int8_t>(keys, -128), "accepted");
  EXPECT_THAT(Refusal<float>(keys + " scales", -0.5f), HasSubstr("found -0.5"));
  const std::string values = "group 0 block 1 lane 1 values";
  EXPECT_THAT(Refusal<float>(values + " scales", std::numeric_limits<float>::infinity()),
              HasSubstr("found inf"));
}

TEST(SessionFiles, ThoseOfOtherModelsOrCachesAreRefusedByName) {
  Saved saved = MakeSequences(KvType::kF16, Layers::kFull, 60);
  TemporaryFolder folder;
  const std::string path = folder / "session";
  ExpectOk(saved.runner->Save(path, saved.ids));
  TinyShape other = saved.shape;
  other.seed = 2;
  const auto refusal = [&](const std::shared_ptr<const Model>& model, SessionOptions options) {
    const auto loaded = OpenRunner(model, options)->Load(path);
    return loaded.ok() ? std::string("ok") : loaded.error().message;
  };
  EXPECT_THAT(refusal(OpenTiny(other), FileOptions(KvType::kF16)),
              testing::HasSubstr("another model"));
  EXPECT_THAT(refusal(saved.model, FileOptions(KvType::kQ8)), testing::HasSubstr("other types"));
  SessionOptions small = FileOptions(KvType::kF16);
  small.context = 64;
  EXPECT_THAT(refusal(saved.model, small), testing::HasSubstr("do not fit"));
  SessionOptions few = FileOptions(KvType::kF16);
  few.sequences = 2;
  EXPECT_THAT(refusal(saved.model, few), testing::HasSubstr("there is room for 2"));
  // A session is one sequence, and is what it was after a refusal.
  const auto session = OpenSession(saved.model, FileOptions(KvType::kF16));
  EXPECT_EQ(session->Load(path).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(session->length(), 0);
  ExpectOk(session->Append(std::vector<TokenId>{5, 6}));
  EXPECT_THAT(refusal(saved.model, FileOptions(KvType::kF16)), testing::Eq("ok"));
}

TEST(SessionFiles, AFailedSaveKeepsTheOldFile) {
  Saved saved = MakeSequences(KvType::kF16, Layers::kFull, 60);
  TemporaryFolder folder;
  const std::string path = folder / "session";
  ExpectOk(saved.runner->Save(path, saved.ids));
  const std::string bytes = ReadBytes(path);
  EXPECT_FALSE(saved.runner->Save(path, std::vector<SequenceId>{saved.ids[0], 99}).ok());
  EXPECT_EQ(ReadBytes(path), bytes);
  EXPECT_FALSE(saved.runner->Save(folder / "no/such/folder", saved.ids).ok());
}

}  // namespace
}  // namespace kvant::test
