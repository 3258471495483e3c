// Files of models with recurrent layers: what their layers take of the cache, and session files
// with states that somebody has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kvant/memory_plan.h"
#include "tests/engine/arch/seeded_model.h"
#include "tests/engine/kv/session_fields.h"
#include "tests/engine/run/runner_kinds.h"
#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

TEST(RecurrentFiles, LayersWithoutKvHeadsTakeNoRowsOfTheCache) {
  const auto model = SeededModel("lfm2").Open();
  ASSERT_NE(model, nullptr);
  SessionOptions options;
  options.context = 128;
  const auto plan = PlanMemory(*model, options);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->groups.size(), 2u);
  EXPECT_EQ(plan->groups[0].layers, 3);  // convolutions
  EXPECT_EQ(plan->groups[0].state_bytes, 3u * 2 * 32 * sizeof(float));
  EXPECT_EQ(plan->groups[1].layers, 2);
  EXPECT_EQ(plan->groups[1].bytes_per_token, 2u * 2 * 2 * 8 * sizeof(uint16_t));
}

// Numbers of a table of states that no cache ever had, in sections whose hashes are right: the file
// is refused and leaves nothing.
TEST(RecurrentFiles, TablesOfStatesAreChecked) {
  const TemporaryFolder folder;
  const auto model = SeededModel("lfm2").Open(OwnGemm());
  ASSERT_NE(model, nullptr);
  SessionOptions options = Options(KvType::kF16, 1);
  options.context = 256;
  {
    const auto runner = OpenRunner(model, options);
    const SequenceId id = NewSequence(*runner);
    for (const TokenId token : RandomTokens(70, 3, model->vocab_size())) {
      ExpectOk(runner->Append(id, {&token, 1}));
    }
    ExpectOk(runner->Save(folder / "saved", {&id, 1}));
  }
  const std::vector<std::byte> saved = ReadFile(folder / "saved");
  const std::string bytes(reinterpret_cast<const char*>(saved.data()), saved.size());
  const auto load = [&](const std::function<void(SessionFields&)>& change) -> std::string {
    SessionFields fields(bytes, model->vocab_size());
    change(fields);
    fields.Seal();
    WriteFile(folder / "changed", std::as_bytes(std::span(fields.bytes())));
    const auto runner = OpenRunner(model, options);
    const auto loaded = runner->Load(folder / "changed");
    EXPECT_EQ(runner->stats().kv_bytes_used == 0, !loaded.ok());
    ExpectOk(runner->Check());
    return loaded.ok() ? "accepted" : loaded.error().message;
  };
  const auto number = [&](int entry, int64_t value) {
    return load([=](SessionFields& fields) {
      fields.Set("sequence 0 group 0 entry " + std::to_string(entry) + " number", value);
    });
  };
  // Checkpoints of 32 and 64 tokens, then the present state.
  EXPECT_EQ(load([](SessionFields&) {}), "accepted");
  EXPECT_THAT(number(0, 0),
              testing::HasSubstr("state 0: expected that of 1 to 70 tokens, found 0"));
  EXPECT_THAT(number(0, -5), testing::HasSubstr("found -5"));
  EXPECT_THAT(number(1, 32), testing::HasSubstr("expected that of 33 to 70 tokens, found 32"));
  EXPECT_THAT(number(1, 71), testing::HasSubstr("found 71"));
  EXPECT_THAT(number(2, 69), testing::HasSubstr("expected that of 70 to 70 tokens, found 69"));
  EXPECT_THAT(
      load([](SessionFields& fields) { fields.Set<uint32_t>("sequence 0 group 0 entries", 0); }),
      testing::HasSubstr("states of 70 tokens: expected 1 to"));
  EXPECT_THAT(load([](SessionFields& fields) {
                fields.Set<uint32_t>("sequence 0 group 0 entry 1 index", 7);
              }),
              testing::HasSubstr("index of a block: expected at most 1, found 7"));
  EXPECT_THAT(load([](SessionFields& fields) {
                fields.Set<uint32_t>("sequence 0 group 0 entry 1 index", 0);
              }),
              testing::HasSubstr("expected block 32 as in another table"));
  EXPECT_THAT(load([](SessionFields& fields) {
                fields.Set<int64_t>("sequence 0 group 0 first position", 3);
              }),
              testing::HasSubstr("first position: expected 0, found 3"));
  EXPECT_THAT(load([](SessionFields& fields) { fields.Set<uint32_t>("group 0 block 0 rows", 0); }),
              testing::HasSubstr("rows of a block: expected 1, found 0"));
}

}  // namespace
}  // namespace kvant::test
