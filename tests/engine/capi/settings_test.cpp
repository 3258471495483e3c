// Walks the rows of options: numbers at both ends of each range, and beside them, in C++ and in C;
// fields that travel to C and back; no field without a row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "engine/generate/samplers/stage.h"
#include "engine/option_field.h"
#include "engine/run/session_settings.h"
#include "kvant/kvant.h"
#include "kvant/memory_plan.h"
#include "tests/engine/tiny_model.h"

namespace kvant::test {
namespace {

using Kind = SessionSetting::Kind;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// A number to try, and whether a range lets it pass.
template <class Number>
struct Trial {
  Number number;
  bool fits;
};

// The ends of a range and their neighbours.
std::vector<Trial<int64_t>> EndsOf(int64_t min, int64_t max) {
  std::vector<Trial<int64_t>> out = {{min, true}, {max, true}};
  if (min > -kMost) out.push_back({min - 1, false});
  if (max < kMost) out.push_back({max + 1, false});
  return out;
}

class SessionSettings : public testing::Test {
 public:
  void SetUp() override {
    const std::string path = TempPath("settings.gguf");
    TinyModelWriter(TinyShape()).Write(path);
    auto opened = Model::Open(path);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    model_ = *opened;
    ASSERT_EQ(kvant_model_open(path.c_str(), nullptr, &in_c_), KVANT_OK);
    std::filesystem::remove(path);  // the mappings stay valid
    kvant_runner_options_default(&options_, sizeof(options_));
  }
  void TearDown() override { kvant_model_free(in_c_); }

  // The message of C about the options; "" if there is none.
  std::string MessageInC(const kvant_runner_options& options) {
    kvant_memory_plan plan;
    plan.struct_size = sizeof(plan);
    const kvant_status status = kvant_plan_memory(in_c_, &options, &plan);
    return status == KVANT_OK ? "" : kvant_last_error(in_c_);
  }

  std::shared_ptr<const Model> model_;
  kvant_model* in_c_ = nullptr;
  kvant_runner_options options_ = {};
};

TEST_F(SessionSettings, HoldInTheLibrary) {
  size_t tried = 0;
  for (const SessionSetting& setting : AllSessionSettings()) {
    if (setting.range.empty()) continue;
    ++tried;
    const std::string refusal = setting.words() + ": expected " + setting.expected() + ", found ";
    for (const auto& [number, fits] : EndsOf(setting.min, setting.max)) {
      SessionOptions options;
      setting.field.ours.set(options, number);
      const auto resolved = ResolveOptions(*model_, options);
      const std::string message = resolved.ok() ? "" : resolved.error().message;
      EXPECT_EQ(message.starts_with(refusal), !fits) << number << ": " << message;
      if (fits) continue;
      EXPECT_EQ(resolved.error().code, ErrorCode::kInvalid);
      if (setting.field.kind == Kind::kNumber) {
        EXPECT_EQ(message, refusal + std::to_string(number));
      }
    }
  }
  EXPECT_EQ(tried, 9u);
}

TEST_F(SessionSettings, HoldInC) {
  for (const SessionSetting& setting : AllSessionSettings()) {
    const SessionSetting::Field& field = setting.field;
    const bool is_choice = field.kind == Kind::kChoice;
    if (!is_choice && setting.range.empty()) continue;
    const int64_t last = std::ssize(field.choices) - 1;
    const auto trials =
        is_choice ? EndsOf(field.may_lack ? -1 : 0, last) : EndsOf(setting.min, setting.max);
    const std::string expected = is_choice ? "0 to " + std::to_string(last) : setting.expected();
    for (const auto& [number, fits] : trials) {
      kvant_runner_options options = options_;
      field.in_c.set(options, number);
      const std::string message = MessageInC(options);
      const std::string name = is_choice ? std::string(setting.name) : setting.words();
      const std::string refusal = name + ": expected " + expected + ", found ";
      EXPECT_EQ(message.starts_with(refusal), !fits) << number << ": " << message;
      if (!fits) {
        EXPECT_EQ(message, refusal + std::to_string(number));
      }
    }
  }
}

// Each field of C has a number of its own, and comes back from a runner's options.
TEST_F(SessionSettings, TravelToCAndBack) {
  kvant_runner_options numbered = {};
  int64_t number = 0;
  for (const SessionSetting& setting : AllSessionSettings()) {
    EXPECT_EQ(setting.field.in_c.get(options_), setting.field.ours.get(SessionOptions()))
        << setting.name;
    setting.field.in_c.set(numbered, ++number);
  }
  number = 0;
  for (const SessionSetting& setting : AllSessionSettings()) {
    EXPECT_EQ(setting.field.in_c.get(numbered), ++number) << setting.name;
  }
  for (const SessionSetting& setting : AllSessionSettings()) {
    const SessionSetting::Field& field = setting.field;
    if (field.kind == Kind::kFlag || field.kind == Kind::kBytes) {
      kvant_runner_options wanted = options_;
      kvant_runner_options found = {};
      found.struct_size = sizeof(found);
      field.in_c.set(wanted, field.kind == Kind::kBytes ? 123'456'789 : 1 - field.in_c.get(wanted));
      wanted.threads = 1;
      kvant_runner* runner = nullptr;
      ASSERT_EQ(kvant_runner_new(in_c_, &wanted, &runner), KVANT_OK) << kvant_last_error(nullptr);
      ASSERT_EQ(kvant_runner_get_options(runner, &found), KVANT_OK);
      EXPECT_EQ(field.in_c.get(found), field.in_c.get(wanted)) << setting.name;
      kvant_runner_free(runner);
    }
  }
}

TEST_F(SessionSettings, HaveNamesAndFlagsOfTheirOwn) {
  std::set<std::string_view> names;
  std::set<std::string_view> flags;
  for (const SessionSetting& setting : AllSessionSettings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_EQ(setting.flags.empty(), setting.topic == SessionTopic::kNone) << setting.name;
    if (setting.flags.empty()) continue;
    EXPECT_TRUE(flags.insert(setting.flags).second) << setting.flags;
    EXPECT_EQ(setting.help.empty(), setting.topic == SessionTopic::kRotation) << setting.name;
  }
}

// ---- Samplers -----------------------------------------------------------------------------------

std::vector<Trial<double>> EndsOf(const SamplerSetting& setting) {
  std::vector<Trial<double>> out = {{setting.min, true}, {setting.max, true}};
  if (!setting.is_whole()) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const auto min = static_cast<float>(setting.min);
    const auto max = static_cast<float>(setting.max);
    out.push_back({static_cast<double>(std::nextafter(min, -kInfinity)), false});
    out.push_back({static_cast<double>(std::nextafter(max, kInfinity)), false});
    out.push_back({std::numeric_limits<double>::quiet_NaN(), false});
    return out;
  }
  if (setting.min > -kSamplerIntMax) out.push_back({setting.min - 1, false});
  if (setting.max < kSamplerIntMax) out.push_back({setting.max + 1, false});
  return out;
}

TEST(SamplerSettings, HoldInTheLibraryAndInC) {
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) {
      for (const auto& [number, fits] : EndsOf(setting)) {
        SamplingOptions options;
        setting.Set(options, number);
        const auto made = Sampler::Create(options, 100);
        const std::string message = made.ok() ? "" : made.error().message;
        const std::string refusal =
            std::string(setting.name) + ": expected " + std::string(setting.range) + ", found ";
        EXPECT_EQ(message.starts_with(refusal), !fits) << number << ": " << message;

        kvant_sampling_options in_c;
        kvant_sampling_options_default(&in_c, sizeof(in_c));
        setting.CopyToC(options, in_c);
        kvant_sampler* sampler = nullptr;
        const kvant_status status = kvant_sampler_new(nullptr, 100, &in_c, &sampler);
        EXPECT_EQ(status == KVANT_OK, made.ok()) << setting.name;
        if (!made.ok()) {
          EXPECT_EQ(kvant_last_error(nullptr), message);
        }
        kvant_sampler_free(sampler);
      }
    }
  }
}

TEST(SamplerSettings, TravelToCAndBack) {
  SamplingOptions numbered;
  double number = 0;
  kvant_sampling_options in_c = {};
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) setting.Set(numbered, ++number);
  }
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) setting.CopyToC(numbered, in_c);
  }
  number = 0;
  for (const SamplerRow* row : AllSamplers()) {
    for (const SamplerSetting& setting : row->settings) {
      SamplingOptions back;
      setting.CopyFromC(in_c, back);
      SamplingOptions expected;
      setting.Set(expected, ++number);
      std::visit(
          [&](const auto& member) {
            EXPECT_EQ(back.*member.ours, expected.*member.ours) << setting.name;
          },
          setting.value);
    }
  }
  // Chain, breakers, biases, seed and min_keep have no row; in C eight fields and the size have
  // none.
  const auto rows = static_cast<size_t>(number);
  EXPECT_EQ(rows, CountFields<SamplingOptions>() - 5);
  EXPECT_EQ(rows, CountFields<kvant_sampling_options>() - 9);
}

// min_keep has no row: top-p keeps the likeliest token alone, or as many as C asks for.
TEST(SamplerSettings, MinKeepArrivesFromC) {
  kvant_sampling_options options;
  kvant_sampling_options_default(&options, sizeof(options));
  EXPECT_EQ(options.min_keep, SamplingOptions().min_keep);
  options.top_p = 0.01f;
  options.min_p = 0;
  options.temperature = 1;
  options.has_seed = 1;
  const std::vector<float> logits = {2, 1.9f, 1.8f, 1.7f};
  for (const int32_t kept : {0, 3}) {
    options.min_keep = kept;
    kvant_sampler* sampler = nullptr;
    ASSERT_EQ(kvant_sampler_new(nullptr, 4, &options, &sampler), KVANT_OK);
    std::set<kvant_token> drawn;
    for (int i = 0; i < 100; ++i) {
      kvant_token token = -1;
      ASSERT_EQ(kvant_sampler_sample(sampler, logits.data(), logits.size(), &token), KVANT_OK);
      drawn.insert(token);
    }
    EXPECT_EQ(drawn.size(), static_cast<size_t>(std::max(kept, 1)));
    kvant_sampler_free(sampler);
  }
}

}  // namespace
}  // namespace kvant::test
