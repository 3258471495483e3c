#include "tools/transcribe/transcript_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/speech/speech_tokens.h"

namespace kvant::tools {
namespace {

constexpr std::string_view kFormatNames[] = {"txt", "srt", "vtt", "json", "tsv", "lrc"};

enum class Hours : uint8_t { kWhereNeeded, kAlways };

// As Python rounds: halves to even.
int64_t Milliseconds(double seconds) { return std::llrint(seconds * 1000.0); }

std::string TimeText(double seconds, Hours hours, char point) {
  const int64_t all = Milliseconds(seconds);
  const int64_t hour = all / 3'600'000;
  std::string out;
  if (hours == Hours::kAlways || hour > 0) out = fmt::format("{:02}:", hour);
  return out +
         fmt::format("{:02}:{:02}{}{:03}", all / 60'000 % 60, all / 1000 % 60, point, all % 1000);
}

std::string Replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

// A subtitle's text has no arrow, which would be read as times.
std::string SubtitleText(const SpeechSegment& segment) {
  return Replaced(speech::Stripped(segment.text), "-->", "->");
}

// As Python writes a float: the shortest digits that mean it, and a point or an exponent.
template <class Float>
std::string NumberText(Float number) {
  if (std::isnan(number)) return "NaN";
  std::string text = fmt::format("{}", number);
  const bool is_whole = text.find_first_not_of("-0123456789") == std::string::npos;
  return is_whole ? text + ".0" : text;
}

std::string QuotedText(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string JsonOfSegment(const SpeechSegment& segment) {
  std::string out = fmt::format(
      "{{\"id\": {}, \"seek\": {}, \"start\": {}, \"end\": {}, \"text\": {}, \"tokens\": [{}], "
      "\"temperature\": {}, \"avg_logprob\": {}, \"compression_ratio\": {}, "
      "\"no_speech_prob\": {}",
      segment.id, segment.seek, NumberText(segment.start), NumberText(segment.end),
      QuotedText(segment.text), fmt::join(segment.tokens, ", "), NumberText(segment.temperature),
      NumberText(segment.avg_log_prob), NumberText(segment.compression_ratio),
      NumberText(segment.no_speech_prob));
  // A segment that was blanked has no words, and says so.
  const bool is_blank = segment.text.empty() && segment.tokens.empty();
  return out + (is_blank ? ", \"words\": []}" : "}");
}

std::string LyricsLine(const SpeechSegment& segment) {
  const int64_t all = std::llrint(segment.start * 100.0);
  return fmt::format("[{:02}:{:02}.{:02}]{}\n", all / 6000, all / 100 % 60, all % 100,
                     speech::Stripped(segment.text));
}

}  // namespace

std::optional<TranscriptFormat> TranscriptFormatNamed(std::string_view name) {
  const auto* found = std::ranges::find(kFormatNames, name);
  if (found == std::end(kFormatNames)) return std::nullopt;
  return static_cast<TranscriptFormat>(found - std::begin(kFormatNames));
}

std::string_view TranscriptFormatName(TranscriptFormat format) {
  return kFormatNames[static_cast<size_t>(format)];
}

std::vector<std::string> TranscriptFormatNames() {
  return {std::begin(kFormatNames), std::end(kFormatNames)};
}

std::string ClockText(double seconds) { return TimeText(seconds, Hours::kWhereNeeded, '.'); }

std::string TranscriptHead(TranscriptFormat format) {
  if (format == TranscriptFormat::kVtt) return "WEBVTT\n\n";
  if (format == TranscriptFormat::kTsv) return "start\tend\ttext\n";
  return "";
}

std::string TranscriptPart(TranscriptFormat format, const SpeechSegment& segment) {
  switch (format) {
    case TranscriptFormat::kTxt: return speech::Stripped(segment.text) + "\n";
    case TranscriptFormat::kSrt:
      return fmt::format("{}\n{} --> {}\n{}\n\n", segment.id + 1,
                         TimeText(segment.start, Hours::kAlways, ','),
                         TimeText(segment.end, Hours::kAlways, ','), SubtitleText(segment));
    case TranscriptFormat::kVtt:
      return fmt::format("{} --> {}\n{}\n\n", ClockText(segment.start), ClockText(segment.end),
                         SubtitleText(segment));
    case TranscriptFormat::kTsv:
      return fmt::format("{}\t{}\t{}\n", Milliseconds(segment.start), Milliseconds(segment.end),
                         Replaced(speech::Stripped(segment.text), "\t", " "));
    case TranscriptFormat::kLrc: return LyricsLine(segment);
    case TranscriptFormat::kJson: break;
  }
  return "";
}

std::string TranscriptTail(TranscriptFormat format, const Transcript& transcript) {
  if (format != TranscriptFormat::kJson) return "";
  std::vector<std::string> segments;
  for (const SpeechSegment& segment : transcript.segments) {
    segments.push_back(JsonOfSegment(segment));
  }
  return fmt::format("{{\"text\": {}, \"segments\": [{}], \"language\": {}}}",
                     QuotedText(transcript.text), fmt::join(segments, ", "),
                     QuotedText(transcript.language));
}

}  // namespace kvant::tools
