// kvant transcribe, run as a program on a small model: files, formats, folders, standard input,
// and what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/engine/speech/small_whisper.h"
#include "tests/engine/speech/speech_noise.h"
#include "tests/temporary_folder.h"
#include "tests/tools/program.h"

namespace kvant::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class TranscribeProgram : public testing::Test {
 protected:
  void SetUp() override {
    KVANT_SKIP_WITHOUT_PROGRAM();
    MakeSmallWhisper(seeded_);
    const auto path = seeded_.Convert();
    ASSERT_TRUE(path.ok()) << path.error().message;
    model_ = *path;
    sound_ = WriteSound("talk.wav", 16000);
    const ProgramRun run = RunProgram({"transcribe", model_, sound_, "-q"});
    if (run.error.find("is not there") != std::string::npos) GTEST_SKIP() << run.error;
  }

  // Noise as a WAV file of 16 bits at 16 kHz.
  std::string WriteSound(const std::string& name, size_t samples) {
    const auto put = [](std::string& out, uint32_t number, int bytes) {
      for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> (8 * i));
    };
    std::string data;
    for (const float value : SpeechNoise(samples, samples)) {
      put(data, static_cast<uint32_t>(static_cast<int32_t>(value * 8000)), 2);
    }
    std::string bytes = "RIFF";
    put(bytes, static_cast<uint32_t>(36 + data.size()), 4);
    bytes += "WAVEfmt ";
    for (const auto& [number, width] :
         {std::pair(16, 4), std::pair(1, 2), std::pair(1, 2), std::pair(16000, 4),
          std::pair(32000, 4), std::pair(2, 2), std::pair(16, 2)}) {
      put(bytes, static_cast<uint32_t>(number), width);
    }
    bytes += "data";
    put(bytes, static_cast<uint32_t>(data.size()), 4);
    std::ofstream(folder_ / name, std::ios::binary) << bytes << data;
    return folder_ / name;
  }

  ProgramRun Transcribe(std::vector<std::string> more, const ProgramInput& input = {}) {
    more.insert(more.begin(), {"transcribe", model_});
    return RunProgram(more, input);
  }
  json JsonOf(const std::vector<std::string>& more) {
    std::vector<std::string> all = {sound_, "--format", "json", "-q"};
    all.insert(all.end(), more.begin(), more.end());
    const ProgramRun run = Transcribe(all);
    EXPECT_EQ(run.code, 0) << run.error;
    EXPECT_EQ(run.error, "");
    return json::parse(run.out, nullptr, false);
  }
  static std::string TextIn(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

  SeededModel seeded_{std::string(kSeededSpeech) + "whisper-stacks"};
  TemporaryFolder folder_;
  std::string model_;
  std::string sound_;
};

// The windows of this model have 66 frames.
TEST_F(TranscribeProgram, JsonTellsAllOfTheSegments) {
  const json found = JsonOf({"--language", "de"});
  EXPECT_EQ(found["language"], "de");
  ASSERT_FALSE(found["segments"].empty());
  std::string text;
  int64_t id = 0;
  for (const json& segment : found["segments"]) {
    EXPECT_EQ(segment["id"], id++);
    EXPECT_GE(segment["seek"].get<int64_t>(), 0);
    EXPECT_LT(segment["seek"].get<int64_t>(), 100);
    EXPECT_LE(segment["start"].get<double>(), segment["end"].get<double>());
    text += segment["text"].get<std::string>();
  }
  EXPECT_EQ(found["text"], text);
  const auto language = JsonOf({})["language"].get<std::string>();
  EXPECT_TRUE(language == "en" || language == "de") << language;
}

TEST_F(TranscribeProgram, OptionsReachTheModel) {
  const json usual = JsonOf({"--language", "de", "--temperature", "0"});
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--translate"},
                                               {"--beams", "1"},
                                               {"--no-timestamps"},
                                               {"--prompt", "ab ab a"}}) {
    std::vector<std::string> all = {"--language", "de", "--temperature", "0"};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_NE(JsonOf(all)["segments"], usual["segments"]) << more[0];
  }
  EXPECT_EQ(JsonOf({"--language", "german", "--temperature", "0"}), usual);
  const json drawn = JsonOf({"--temp", "1", "--best-of", "2", "--seed", "3"});
  EXPECT_EQ(drawn["segments"][0]["temperature"], 1.0);
  EXPECT_EQ(JsonOf({"--temp", "1", "--best-of", "2", "--seed", "3"}), drawn);
  EXPECT_NE(JsonOf({"--temp", "1", "--best-of", "2", "--seed", "40"}), drawn);
  // No window speaks where silence is all that may be.
  EXPECT_TRUE(
      JsonOf({"--no-speech-threshold", "0", "--log-prob-threshold", "none"})["segments"].empty());
  EXPECT_FALSE(JsonOf({"--no-speech-threshold", "none"})["segments"].empty());
  const json banned = JsonOf({"--language", "de", "--temperature", "0", "--suppress-ids", "0-19"});
  for (const json& segment : banned["segments"]) {
    for (const json& token : segment["tokens"]) EXPECT_GE(token.get<int>(), 20);
  }
}

TEST_F(TranscribeProgram, FormatsHaveTheSameSegments) {
  const size_t count = JsonOf({})["segments"].size();
  for (const auto& [format, sign] : {std::pair("srt", " --> "), std::pair("vtt", " --> "),
                                     std::pair("tsv", "\t"), std::pair("lrc", "[00:0")}) {
    const ProgramRun run = Transcribe({sound_, "--format", format, "-q"});
    EXPECT_EQ(run.code, 0) << run.error;
    size_t signs = 0;
    for (size_t at = 0; (at = run.out.find(sign, at)) != std::string::npos; ++at) ++signs;
    const bool table = std::string(format) == "tsv";
    EXPECT_EQ(signs, table ? 2 * (count + 1) : count) << run.out;
  }
  const ProgramRun text = Transcribe({sound_, "-q"});
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), static_cast<ptrdiff_t>(count));
}

TEST_F(TranscribeProgram, FilesGetTheFormatOfTheirNames) {
  const std::string expected = Transcribe({sound_, "--format", "srt", "-q"}).out;
  const std::string out = folder_ / "out.srt";
  const ProgramRun run = Transcribe({sound_, "-o", out});
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(TextIn(out), expected);
  ASSERT_EQ(Transcribe({sound_, "-o", out, "--format", "txt", "-q"}).code, 0);
  EXPECT_EQ(TextIn(out), Transcribe({sound_, "-q"}).out);
}

// A file that cannot be read costs no other its transcript.
TEST_F(TranscribeProgram, SeveralFilesGoToAFolder) {
  const std::string other = WriteSound("other.wav", 20000);
  std::ofstream(folder_ / "broken.wav") << "no sound";
  const std::string out = folder_ / "texts/here";
  const ProgramRun run =
      Transcribe({sound_, folder_ / "broken.wav", other, "--format", "vtt", "-o", out + "/", "-q"});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.error_lines(), 1u) << run.error;
  EXPECT_THAT(run.error, HasSubstr("broken.wav: libsndfile cannot read it"));
  EXPECT_THAT(run.error, HasSubstr("ffmpeg -i"));
  EXPECT_EQ(TextIn(out + "/talk.vtt"), Transcribe({sound_, "--format", "vtt", "-q"}).out);
  EXPECT_EQ(TextIn(out + "/other.vtt"), Transcribe({other, "--format", "vtt", "-q"}).out);
  EXPECT_FALSE(std::filesystem::exists(out + "/broken.vtt"));
  const ProgramRun lines = Transcribe({sound_, other, "--format", "json", "-q"});
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 2);
}

TEST_F(TranscribeProgram, StandardInputIsASound) {
  const ProgramRun piped = Transcribe({"-", "-q"}, {.text = TextIn(sound_)});
  EXPECT_EQ(piped.code, 0) << piped.error;
  EXPECT_EQ(piped.out, Transcribe({sound_, "-q"}).out);
  const ProgramRun wrong = Transcribe({"-", "-q"}, {.text = "no sound"});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.error, HasSubstr("standard input: libsndfile cannot read it"));
}

TEST_F(TranscribeProgram, SoundsWithoutSamplesHaveNoText) {
  const ProgramRun run = Transcribe({WriteSound("empty.wav", 0), "--format", "json", "-q"});
  EXPECT_EQ(run.code, 0) << run.error;
  EXPECT_EQ(json::parse(run.out)["segments"], json::array());
}

// Segments that are done when the interruption comes are written, and the file appears.
TEST_F(TranscribeProgram, InterruptedWorkKeepsItsSegments) {
  const std::string loud = WriteSound("long.wav", 16000 * 600);
  const std::string out = folder_ / "long.json";
  const ProgramRun run =
      Transcribe({loud, "-o", out, "--best-of", "5"}, {.interrupt_after_ms = 4000});
  if (run.code == 0) GTEST_SKIP() << "it was done before it was interrupted";
  EXPECT_EQ(run.code, 130) << run.error;
  if (!std::filesystem::exists(out)) GTEST_SKIP() << "no segment was done";
  const json found = json::parse(TextIn(out));
  EXPECT_FALSE(found["segments"].empty());
  EXPECT_EQ(found["segments"].back()["id"], found["segments"].size() - 1);
}

TEST_F(TranscribeProgram, WrongUsageIsNamed) {
  const auto usage = [&](const std::vector<std::string>& words) {
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.code, 2) << run.error;
    EXPECT_EQ(run.out, "");
    return run.error;
  };
  EXPECT_THAT(usage({"transcribe"}), HasSubstr("no model given"));
  EXPECT_THAT(usage({"transcribe", model_}), HasSubstr("no sound file given"));
  EXPECT_THAT(usage({"transcribe", model_, "-", "-"}), HasSubstr("given twice"));
  EXPECT_THAT(usage({"transcribe", model_, sound_, "--format", "doc"}),
              HasSubstr("expected txt, srt, vtt, json, tsv or lrc, found 'doc'"));
  EXPECT_THAT(usage({"transcribe", model_, sound_, sound_, "-o", "one.srt"}),
              HasSubstr("expected -o with a folder"));
  EXPECT_THAT(usage({"transcribe", model_, sound_, sound_, "--format", "srt"}),
              HasSubstr("expected -o with a folder"));
  EXPECT_THAT(usage({"transcribe", model_, sound_, sound_, "-o", folder_.path().string()}),
              HasSubstr("would both become"));
  EXPECT_THAT(usage({"transcribe", model_, sound_, "--temperature", "0,x"}),
              HasSubstr("expected a number from 0 to 10, found 'x'"));
  EXPECT_THAT(usage({"transcribe", model_, sound_, "--log-prob-threshold", "1"}),
              HasSubstr("--log-prob-threshold"));
  EXPECT_THAT(usage({"transcribe", model_, sound_, "--language", "klingon"}),
              HasSubstr("expected a language of the model (en, de)"));
  EXPECT_THAT(
      usage({"transcribe", model_, sound_, "--no-timestamps", "--max-initial-timestamp", "2"}),
      HasSubstr("--no-timestamps"));
  const ProgramRun other = RunProgram({"transcribe", "shakespeare", sound_});
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.error, HasSubstr("expected a model that reads frames of sound"));
}

}  // namespace
}  // namespace kvant::test
