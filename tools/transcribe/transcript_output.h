// Where transcripts go: to standard output as they come, or to files that appear when they are
// complete, or when Ctrl+C has ended the work.
//
// Thread-safety: one thread at a time.
#pragma once

#include <optional>
#include <string>

#include "base/output_file.h"
#include "base/result.h"
#include "kvant/speech.h"
#include "tools/terminal/console.h"
#include "tools/transcribe/transcript_format.h"

namespace kvant::tools {

class TranscriptOutput {
 public:
  // Writes to `path`; to `stream` where there is none. kIo for a path that cannot be written.
  static Result<TranscriptOutput> Create(TranscriptFormat format,
                                         const std::optional<std::string>& path,
                                         ResultStream& stream);

  // kCancelled once nobody reads the stream any more.
  Status Add(const SpeechSegment& segment);
  // Completes the transcript and gives the file its name.
  Status Finish(const Transcript& transcript);

 private:
  TranscriptOutput(TranscriptFormat format, ResultStream& stream)
      : format_(format), stream_(&stream) {}
  Status Write(const std::string& text);

  TranscriptFormat format_;
  ResultStream* stream_;
  std::optional<OutputFile> file_;
};

}  // namespace kvant::tools
