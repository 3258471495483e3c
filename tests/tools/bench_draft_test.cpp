// Decode tests of kvant bench with guesses by layers of the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;

ProgramRun BenchDraft(std::vector<std::string> more) {
  more.insert(more.begin(), {"bench", "--synthetic", "qwen35-tiny-mtp:Q8_0", "-p", "0", "-r", "1"});
  return RunProgram(more);
}

TEST(BenchDraft, CountsPassesAndGuesses) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const ProgramRun run =
      BenchDraft({"-n", "9", "-d", "0,5", "-t", "1", "--draft", "mtp:1,mtp:3", "-o", "json"});
  ASSERT_EQ(run.code, 0) << run.error;
  const auto rows = nlohmann::json::parse(run.out);
  ASSERT_EQ(rows.size(), 6u);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i].dump());
    const int64_t guesses = std::vector<int64_t>{0, 1, 3}[i % 3];
    const int64_t passes = rows[i]["n_passes"];
    const int64_t guessed = rows[i]["n_guessed"];
    const int64_t right = rows[i]["n_right"];
    EXPECT_EQ(rows[i]["n_depth"], i < 3 ? 0 : 5);
    EXPECT_EQ(rows[i]["n_guesses"], guesses);
    // Each pass gives the token of the model and the guesses that were right; the first has none.
    EXPECT_LE(passes, 9);
    EXPECT_GE(passes + right, 9);
    EXPECT_LE(right, guessed);
    EXPECT_LE(guessed, guesses * (passes - 1));
    EXPECT_EQ(guessed > 0, guesses > 0);
    const double seconds = rows[i]["median_ns"].get<double>() * 1e-9;
    const double plain = rows[i - i % 3]["median_ns"].get<double>() * 1e-9 / 9;
    EXPECT_NEAR(rows[i]["pass_ratio"].get<double>(), seconds / static_cast<double>(passes) / plain,
                1e-3);
    EXPECT_FALSE(rows[i].contains("bound_ts"));
  }
}

TEST(BenchDraft, ShowsWhatGuessesAreWorthInTheTable) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  const ProgramRun run = BenchDraft({"-n", "4", "-t", "1,2", "--kv-type", "q8", "--draft", "mtp"});
  ASSERT_EQ(run.code, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr(" |  right |   pass |"));
  EXPECT_THAT(run.out,
              testing::ContainsRegex("tg4 mtp:3 .* [0-9]+ % \\| +[0-9]+\\.[0-9][0-9] x \\|"));
  EXPECT_THAT(run.out, HasSubstr("\nright: the share of guesses that were right; pass: "));
}

TEST(BenchDraft, RefusesWhatIsNoSuchTest) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const auto& [options, message] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--draft", "ngram"},
            "--draft: expected mtp or mtp:N, the drafts that can be "
            "measured, found 'ngram'"},
           {{"--draft", "mtp:0"}, "found 'mtp:0'"},
           {{"--draft", "mtp", "--no-kv-cache"}, "--draft: expected a KV cache"},
           {{"--draft", "mtp", "--kv-ops"}, "--draft: expected decode tests"}}) {
    const ProgramRun run = BenchDraft(options);
    EXPECT_EQ(run.code, 2) << message;
    EXPECT_THAT(run.error, HasSubstr(message));
  }
  const ProgramRun none =
      RunProgram({"bench", "--synthetic", "tiny:Q8_0", "-p", "0", "-n", "1", "--draft", "mtp"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.error, HasSubstr("the file has no layers that predict further tokens"));
}

}  // namespace
}  // namespace kvant::test
