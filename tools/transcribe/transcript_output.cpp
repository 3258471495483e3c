#include "tools/transcribe/transcript_output.h"

namespace kvant::tools {

Result<TranscriptOutput> TranscriptOutput::Create(TranscriptFormat format,
                                                  const std::optional<std::string>& path,
                                                  ResultStream& stream) {
  TranscriptOutput out(format, stream);
  if (path.has_value()) {
    KVANT_ASSIGN(out.file_, OutputFile::Create(*path));
  }
  KVANT_TRY(out.Write(TranscriptHead(format)));
  return out;
}

Status TranscriptOutput::Write(const std::string& text) {
  if (text.empty()) return {};
  if (file_.has_value()) return file_->Write(text.data(), text.size());
  if (stream_->Write(text)) return {};
  return MakeError(ErrorCode::kCancelled, "nobody reads standard output");
}

Status TranscriptOutput::Add(const SpeechSegment& segment) {
  return Write(TranscriptPart(format_, segment));
}

// On standard output JSON is a line; openai-whisper's files end without one.
Status TranscriptOutput::Finish(const Transcript& transcript) {
  std::string tail = TranscriptTail(format_, transcript);
  if (!tail.empty() && !file_.has_value()) tail += '\n';
  KVANT_TRY(Write(tail));
  return file_.has_value() ? file_->Commit() : Status();
}

}  // namespace kvant::tools
