// Transcripts as files: text, subtitles, tables and JSON, byte for byte as openai-whisper writes
// them (whisper/utils.py); lrc, which it lacks, is the format of song texts.
//
// A file is its head, its segments in order, and its tail. Thread-safety: pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/speech.h"

namespace kvant::tools {

enum class TranscriptFormat : uint8_t { kTxt, kSrt, kVtt, kJson, kTsv, kLrc };

// "txt" and so on, which are the endings of file names, too.
std::optional<TranscriptFormat> TranscriptFormatNamed(std::string_view name);
std::string_view TranscriptFormatName(TranscriptFormat format);
std::vector<std::string> TranscriptFormatNames();

std::string TranscriptHead(TranscriptFormat format);
std::string TranscriptPart(TranscriptFormat format, const SpeechSegment& segment);
std::string TranscriptTail(TranscriptFormat format, const Transcript& transcript);

// "01:02.345", and "1:01:02.345" as "01:01:02.345".
std::string ClockText(double seconds);

}  // namespace kvant::tools
