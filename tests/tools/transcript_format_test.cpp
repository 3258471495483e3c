// Transcripts as files, byte for byte as openai-whisper writes them.
#include "tools/transcribe/transcript_format.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "tests/engine/speech/speech_noise.h"

namespace kvant::test {
namespace {

using tools::TranscriptFormat;

Transcript HardTranscript() {
  const nlohmann::json made = SpeechReference("result.json");
  Transcript out;
  out.text = made["text"];
  out.language = made["language"];
  for (const auto& row : made["segments"]) {
    SpeechSegment segment;
    segment.id = row["id"];
    segment.seek = row["seek"];
    segment.start = row["start"];
    segment.end = row["end"];
    segment.text = row["text"];
    segment.tokens = row["tokens"].get<std::vector<TokenId>>();
    segment.temperature = row["temperature"];
    segment.avg_log_prob = row["avg_logprob"];
    segment.compression_ratio = row["compression_ratio"];
    if (!row["no_speech_prob"].is_null()) segment.no_speech_prob = row["no_speech_prob"];
    out.segments.push_back(std::move(segment));
  }
  return out;
}

std::string Written(TranscriptFormat format, const Transcript& transcript) {
  std::string out = TranscriptHead(format);
  for (const SpeechSegment& segment : transcript.segments) out += TranscriptPart(format, segment);
  return out + TranscriptTail(format, transcript);
}

std::string FileText(const std::string& name) {
  std::ifstream file(SpeechReferencePath(name), std::ios::binary);
  EXPECT_TRUE(file) << name;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(TranscriptFormats, BytesAreThoseOfOpenai) {
  const Transcript transcript = HardTranscript();
  for (const char* name : {"txt", "srt", "vtt", "tsv"}) {
    const auto format = tools::TranscriptFormatNamed(name);
    ASSERT_TRUE(format.has_value());
    EXPECT_EQ(Written(*format, transcript), FileText(std::string("result.") + name));
  }
  EXPECT_EQ(Written(TranscriptFormat::kJson, transcript), FileText("result.written.json"));
}

TEST(TranscriptFormats, SongTextsHaveHundredths) {
  Transcript transcript;
  for (const auto& [start, text] :
       {std::pair(0.0, " one"), std::pair(61.279, "two "), std::pair(6000.5, "three")}) {
    SpeechSegment& segment = transcript.segments.emplace_back();
    segment.start = start;
    segment.text = text;
  }
  EXPECT_EQ(Written(TranscriptFormat::kLrc, transcript),
            "[00:00.00]one\n[01:01.28]two\n[100:00.50]three\n");
}

TEST(TranscriptFormats, NamesAreKnown) {
  for (const std::string& name : tools::TranscriptFormatNames()) {
    const auto format = tools::TranscriptFormatNamed(name);
    ASSERT_TRUE(format.has_value());
    EXPECT_EQ(tools::TranscriptFormatName(*format), name);
  }
  EXPECT_FALSE(tools::TranscriptFormatNamed("doc").has_value());
}

}  // namespace
}  // namespace kvant::test
