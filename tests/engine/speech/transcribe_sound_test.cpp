// The loop over windows with texts from a script: the segments, times, prompts and temperatures of
// openai-whisper's transcribe() with the same script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "engine/speech/transcribe_sound.h"
#include "tests/engine/speech/speech_noise.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using speech::WindowText;

class ScriptedDecoder final : public speech::WindowDecoder {
 public:
  explicit ScriptedDecoder(json script) : script_(std::move(script)) {
    tokens_.end = kSmallEnd;
    tokens_.start = kSmallStart;
    tokens_.first_time = kSmallTimes;
    tokens_.languages = {22, 23};
  }

  const speech::SpeechTokens& tokens() const override { return tokens_; }
  FrameShape shape() const override { return {1, 300}; }
  size_t context_max() const override { return 223; }
  Result<std::vector<TokenId>> Encode(std::string_view text) const override {
    std::vector<TokenId> out;
    for (const char c : text) {
      if (c != ' ') out.push_back(c % kSmallText);
    }
    return out;
  }
  std::string Decode(const std::vector<TokenId>& tokens) const override {
    std::string out;
    for (const TokenId token : tokens) {
      out += token == 3           ? std::string(" ")
             : token < kSmallText ? fmt::format(" w{}", token)
                                  : fmt::format("<{}>", token);
    }
    return out;
  }
  Result<std::string> DetectLanguage(std::span<const float>) override { return std::string("de"); }
  Status SetLanguage(std::string_view language) override {
    language_ = language;
    return {};
  }
  std::string language() const override { return language_; }
  Status Begin(std::span<const float> frames, std::span<const TokenId> context) override {
    EXPECT_EQ(frames.size(), 300u);
    context_ = context;
    return {};
  }
  Result<WindowText> Try(float temperature) override {
    if (calls.size() == calls_max) return MakeError(ErrorCode::kCancelled, "cancelled");
    const json& said = script_[calls.size() % script_.size()];
    calls.push_back({{"temperature", temperature},
                     {"prompt", std::vector<TokenId>(context_.begin(), context_.end())}});
    WindowText text;
    text.tokens = said["tokens"].get<std::vector<TokenId>>();
    text.temperature = temperature;
    text.avg_log_prob = said["avg_log_prob"];
    text.compression_ratio = said["compression_ratio"];
    text.no_speech_prob = said["no_speech_prob"];
    return text;
  }
  Status Reset() override {
    calls = json::array();
    return {};
  }

  json calls = json::array();
  size_t calls_max = SIZE_MAX;

 private:
  json script_;
  speech::SpeechTokens tokens_;
  std::span<const TokenId> context_;
  std::string language_ = "en";
};

TranscribeOptions OptionsOf(const json& row) {
  TranscribeOptions options;
  const auto threshold = [&](const char* name) {
    return row[name].is_null() ? std::optional<float>() : row[name].get<float>();
  };
  options.temperatures = row["temperature"].get<std::vector<float>>();
  options.compression_ratio_threshold = threshold("compression_ratio_threshold");
  options.log_prob_threshold = threshold("logprob_threshold");
  options.no_speech_threshold = threshold("no_speech_threshold");
  options.condition_on_previous_text = row["condition_on_previous_text"];
  if (!row["initial_prompt"].is_null()) options.prompt = row["initial_prompt"];
  if (!row["language"].is_null()) options.language = row["language"].get<std::string>();
  return options;
}

json JsonOf(const Transcript& transcript) {
  json segments = json::array();
  for (const SpeechSegment& segment : transcript.segments) {
    segments.push_back({{"id", segment.id},
                        {"seek", segment.seek},
                        {"start", segment.start},
                        {"end", segment.end},
                        {"text", segment.text},
                        {"tokens", segment.tokens},
                        {"temperature", segment.temperature},
                        {"avg_logprob", segment.avg_log_prob},
                        {"compression_ratio", segment.compression_ratio},
                        {"no_speech_prob", segment.no_speech_prob}});
  }
  return {{"text", transcript.text}, {"segments", segments}, {"language", transcript.language}};
}

TEST(TranscribeSound, SegmentsAndPromptsAreThoseOfOpenai) {
  size_t rows = 0;
  size_t segments = 0;
  for (const json& row : SpeechReference("transcripts.json")) {
    const TranscribeOptions options = OptionsOf(row["options"]);
    ScriptedDecoder decoder(row["script"]);
    if (options.language.has_value()) {
      ASSERT_TRUE(decoder.SetLanguage(*options.language).ok());
    }
    const std::vector<float> silence(row["samples"].get<size_t>());
    SamplesInMemory sound(silence);
    TranscribeEvents events;
    std::vector<SpeechSegment> told;
    events.on_segment = [&](const SpeechSegment& segment) {
      told.push_back(segment);
      return Status();
    };
    double done = 0;
    events.on_progress = [&](double now, double duration) {
      EXPECT_GT(now, done);
      EXPECT_LE(now, duration);
      done = now;
    };
    const auto found = TranscribeSound(decoder, sound, options, events);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(JsonOf(*found), row["result"]) << rows;
    EXPECT_EQ(decoder.calls, row["calls"]) << rows;
    EXPECT_EQ(told.size(), found->segments.size());
    segments += told.size();
    ++rows;
  }
  EXPECT_EQ(rows, 60u);
  EXPECT_GT(segments, 150u);
}

json OneText() {
  return json::array({{{"tokens", {30, 7, 40, 40, 8, 60}},
                       {"avg_log_prob", -0.25},
                       {"no_speech_prob", 0.125},
                       {"compression_ratio", 1.5}}});
}

// Segments that were told before are whole; the next sound begins as if nothing had been.
TEST(TranscribeSound, CancelledWorkLeavesItsSegments) {
  ScriptedDecoder decoder(OneText());
  const std::vector<float> silence(160 * 1000);
  SamplesInMemory sound(silence);
  size_t told = 0;
  TranscribeEvents events;
  events.on_segment = [&](const SpeechSegment& segment) {
    EXPECT_EQ(segment.id, static_cast<int64_t>(told++));
    return Status();
  };
  decoder.calls_max = 2;
  const auto cancelled = TranscribeSound(decoder, sound, {}, events);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(told, 4u);
  decoder.calls_max = SIZE_MAX;
  told = 0;
  const auto whole = TranscribeSound(decoder, sound, {}, events);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(told, whole->segments.size());
  EXPECT_EQ(whole->duration, 10);
  std::atomic<bool> cancel = true;
  TranscribeOptions options;
  options.cancel = &cancel;
  EXPECT_FALSE(TranscribeSound(decoder, sound, options, {}).ok());
}

TEST(TranscribeSound, AnErrorOfTheReceiverEndsTheWork) {
  ScriptedDecoder decoder(OneText());
  const std::vector<float> silence(160 * 1000);
  SamplesInMemory sound(silence);
  TranscribeEvents events;
  events.on_segment = [](const SpeechSegment&) -> Status {
    return MakeError(ErrorCode::kIo, "the disk is full");
  };
  const auto ended = TranscribeSound(decoder, sound, {}, events);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().message, "the disk is full");
}

}  // namespace
}  // namespace kvant::test
