// Walks the rows of options as a user types them: numbers at both ends of each range, and beside
// them, and the names of choices.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/generate/samplers/stage.h"
#include "engine/run/session_settings.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kNoModel = "no-such-model.gguf";
constexpr int64_t kWholeMax = int64_t{1} << 30;  // numbers that may be typed, where there is no
constexpr double kRealMax = 1e6;                 // narrower range

// A command that has the options of sessions, and one that has those of prefixes, too.
const char* CommandWith(std::string_view flags) {
  return flags.starts_with("--prefix-") ? "seq" : "run";
}

// The program's answers to each spelling of an option with this value.
std::vector<std::string> Answers(std::string_view flags, const std::string& value) {
  const char* command = CommandWith(flags);
  std::vector<std::string> out;
  while (!flags.empty()) {
    const size_t end = std::min(flags.find(','), flags.size());
    std::vector<std::string> words = {command, kNoModel, std::string(flags.substr(0, end))};
    if (!value.empty()) words.push_back(value);
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.code, 0);
    out.push_back(run.error);
    flags.remove_prefix(std::min(end + 1, flags.size()));
  }
  return out;
}

void ExpectBounds(std::string_view flags, const std::string& min, const std::string& max,
                  const std::string& below, const std::string& above, const char* kind) {
  const std::string refusal = fmt::format("expected {} from {} to {}, found '", kind, min, max);
  for (const std::string& number : {min, max}) {
    for (const std::string& answer : Answers(flags, number)) {
      EXPECT_THAT(answer, Not(HasSubstr(refusal)));
    }
  }
  for (const std::string& number : {below, above}) {
    for (const std::string& answer : Answers(flags, number)) {
      EXPECT_THAT(answer, HasSubstr(refusal + number + "'"));
      EXPECT_THAT(answer, Not(HasSubstr(kNoModel)));
    }
  }
}

TEST(TypedSettings, HoldForSessions) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  using Kind = SessionSetting::Kind;
  for (const SessionSetting& setting : AllSessionSettings()) {
    if (setting.flags.empty()) continue;
    SCOPED_TRACE(setting.name);
    if (setting.field.kind == Kind::kFlag) {
      for (const std::string& answer : Answers(setting.flags, "")) {
        EXPECT_THAT(answer, Not(HasSubstr("unknown option")));
      }
    } else if (setting.field.kind == Kind::kNumber) {
      const int64_t min = setting.typed_min;
      const int64_t max = std::min(setting.max, kWholeMax);
      ExpectBounds(setting.flags, std::to_string(min), std::to_string(max), std::to_string(min - 1),
                   std::to_string(max + 1), "a whole number");
    } else if (setting.field.kind == Kind::kBytes) {
      for (const std::string& answer : Answers(setting.flags, "0")) {
        EXPECT_THAT(answer, HasSubstr("expected a size such as 500M or 2GiB, found '0'"));
      }
      for (const std::string& answer : Answers(setting.flags, "1")) {
        EXPECT_THAT(answer, HasSubstr(kNoModel));
      }
    } else {
      for (const std::string& answer : Answers(setting.flags, "xyzzy")) {
        EXPECT_THAT(answer, HasSubstr(": "));
        EXPECT_THAT(answer, HasSubstr("expected "));
        EXPECT_THAT(answer, HasSubstr("xyzzy"));
        EXPECT_THAT(answer, Not(HasSubstr(kNoModel)));
      }
      const int64_t last = std::min<int64_t>(setting.max, std::ssize(setting.field.choices) - 1);
      for (int64_t number = std::max<int64_t>(setting.min, 0); number <= last; ++number) {
        const std::string choice(setting.field.choices[static_cast<size_t>(number)]);
        if (choice == "list") continue;  // CPUs are typed in its place
        for (const std::string& answer : Answers(setting.flags, choice)) {
          EXPECT_THAT(answer, Not(HasSubstr("found '" + choice)));
        }
      }
    }
  }
}

TEST(TypedSettings, HoldForSamplers) {
  KVANT_SKIP_WITHOUT_PROGRAM();
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) {
      SCOPED_TRACE(setting.name);
      if (setting.is_whole()) {
        const double most = static_cast<double>(kWholeMax);
        const auto min = static_cast<int64_t>(setting.min);
        const auto max = static_cast<int64_t>(min < -1 ? setting.max : std::min(setting.max, most));
        ExpectBounds(setting.flags, std::to_string(min), std::to_string(max),
                     std::to_string(min - 1), std::to_string(max + 1), "a whole number");
        continue;
      }
      // A factor that must be above 0 is typed from a millionth on.
      const double least = setting.min > 0 && setting.min < 1e-6 ? 1e-6 : setting.min;
      const auto min = static_cast<float>(std::max(least, -kRealMax));
      const auto max = static_cast<float>(std::min(setting.max, kRealMax));
      const auto text = [](float number) {
        const bool is_whole = number == static_cast<float>(static_cast<int64_t>(number));
        return is_whole ? fmt::format("{:.0f}", number) : fmt::format("{}", number);
      };
      ExpectBounds(setting.flags, text(min), text(max), text(min - 0.5f), text(max + 0.5f),
                   "a number");
    }
  }
}

}  // namespace
}  // namespace kvant::test
