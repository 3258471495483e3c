// Sequences on disk: what continues after a load has the bits of what was never interrupted, and a
// file that is not whole and right is refused without a trace.
#include "engine/kv/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runner.h"
#include "tests/engine/reference_forward.h"
#include "tests/engine/tiny_model.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using cpu::KvElement;

SessionOptions Options(KvElement type) {
  SessionOptions options;
  options.k_type = options.v_type = type;
  options.sequences = 4;
  options.threads = 1;
  options.kv_check = true;
  return options;
}

std::unique_ptr<Runner> OpenRunner(std::shared_ptr<const Model> model,
                                   const SessionOptions& options) {
  auto runner = Runner::Create(std::move(model), options);
  EXPECT_TRUE(runner.ok()) << runner.error().message;
  return runner.ok() ? std::move(*runner) : nullptr;
}

void ExpectOk(const Status& status) { ASSERT_TRUE(status.ok()) << status.error().message; }

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

// Two forks past a window, one of them with a hole, and a short sequence.
Saved MakeSequences(KvElement type, int64_t window, int64_t length = 700) {
  Saved saved;
  saved.shape.window = window;
  saved.shape.context = 900;
  saved.model = OpenTiny(saved.shape);
  saved.runner = OpenRunner(saved.model, Options(type));
  const SequenceId first = *saved.runner->NewSequence();
  ExpectOk(saved.runner->Append(first, RandomTokens(length, 1)));
  const SequenceId second = *saved.runner->Fork(first);
  ExpectOk(saved.runner->Append(second, RandomTokens(30, 2)));
  if (window == 0) ExpectOk(saved.runner->Prune(second, 10, 50, PrunePositions::kKept));
  const SequenceId third = *saved.runner->NewSequence();
  ExpectOk(saved.runner->Append(third, RandomTokens(5, 3)));
  saved.ids = {first, second, third};
  return saved;
}

class SessionFile : public testing::TestWithParam<std::tuple<KvElement, int64_t>> {};

TEST_P(SessionFile, ContinuesWithTheSameBits) {
  const auto [type, window] = GetParam();
  Saved saved = MakeSequences(type, window);
  TemporaryFolder folder;
  const std::string path = folder / "session";
  ExpectOk(saved.runner->Save(path, saved.ids));
  auto later = OpenRunner(saved.model, Options(type));
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
                         testing::Combine(testing::Values(KvElement::kF32, KvElement::kF16,
                                                          KvElement::kQ8),
                                          testing::Values(0, 33)));

TEST(SessionFiles, TruncatedOrChangedFilesAreRefused) {  // kvcache.md 7.6
  TinyShape shape;
  shape.dim = 32, shape.heads = 2, shape.kv_heads = 1, shape.ffn = 32, shape.layers = 1;
  shape.head_dim = 4;
  const auto model = OpenTiny(shape);
  auto runner = OpenRunner(model, Options(KvElement::kQ8));
  const SequenceId id = *runner->NewSequence();
  ExpectOk(runner->Append(id, RandomTokens(40, 1)));
  TemporaryFolder folder;
  const std::string path = folder / "session";
  const std::string broken = folder / "broken";
  ExpectOk(runner->Save(path, std::vector<SequenceId>{id}));
  const std::string bytes = ReadBytes(path);
  auto later = OpenRunner(model, Options(KvElement::kQ8));
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

TEST(SessionFiles, ThoseOfOtherModelsOrCachesAreRefusedByName) {
  Saved saved = MakeSequences(KvElement::kF16, 0, 60);
  TemporaryFolder folder;
  const std::string path = folder / "session";
  ExpectOk(saved.runner->Save(path, saved.ids));
  TinyShape other = saved.shape;
  other.seed = 2;
  const auto refusal = [&](const std::shared_ptr<const Model>& model, SessionOptions options) {
    const auto loaded = OpenRunner(model, options)->Load(path);
    return loaded.ok() ? std::string("ok") : loaded.error().message;
  };
  EXPECT_THAT(refusal(OpenTiny(other), Options(KvElement::kF16)),
              testing::HasSubstr("another model"));
  EXPECT_THAT(refusal(saved.model, Options(KvElement::kQ8)), testing::HasSubstr("other types"));
  SessionOptions small = Options(KvElement::kF16);
  small.context = 64;
  EXPECT_THAT(refusal(saved.model, small), testing::HasSubstr("do not fit"));
  SessionOptions few = Options(KvElement::kF16);
  few.sequences = 2;
  EXPECT_THAT(refusal(saved.model, few), testing::HasSubstr("there is room for 2"));
  // A session is one sequence, and is what it was after a refusal.
  const auto session = OpenSession(saved.model, Options(KvElement::kF16));
  EXPECT_EQ(session->Load(path).error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(session->length(), 0);
  ExpectOk(session->Append(std::vector<TokenId>{5, 6}));
  EXPECT_THAT(refusal(saved.model, Options(KvElement::kF16)), testing::Eq("ok"));
}

TEST(SessionFiles, AFailedSaveKeepsTheOldFile) {
  Saved saved = MakeSequences(KvElement::kF16, 0, 60);
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
