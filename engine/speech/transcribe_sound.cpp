#include "engine/speech/transcribe_sound.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "engine/speech/mel_reader.h"
#include "engine/speech/window_cut.h"

namespace kvant::speech {
namespace {

// After a text of a higher temperature its window is no prompt for the next one.
constexpr float kTrustedTemperature = 0.5f;

class SoundTranscription {
 public:
  SoundTranscription(WindowDecoder& decoder, MelReader& mel, const TranscribeOptions& options,
                     const TranscribeEvents& events)
      : decoder_(decoder), mel_(mel), options_(options), events_(events) {}

  Result<Transcript> Run();

 private:
  Status FindLanguage();
  Status ReadContext();
  Result<WindowText> DecodeWindow(int64_t frames);
  bool LooksWrong(const WindowText& text) const;
  bool IsSilent(const WindowText& text) const;
  Status AddSegments(const WindowText& text, const WindowCut& cut);
  std::string TextOfTokens(std::span<const TokenId> tokens, TokenId below) const;

  WindowDecoder& decoder_;
  MelReader& mel_;
  const TranscribeOptions& options_;
  const TranscribeEvents& events_;
  Transcript out_;
  std::vector<float> features_;  // of a window
  std::vector<TokenId> all_;     // of the prompt and of all segments
  size_t prompt_ = 0;            // how many of them are the prompt's
  size_t context_ = 0;           // where the context of the next window begins
  int64_t seek_ = 0;
};

// The tokens below an id as a text.
std::string SoundTranscription::TextOfTokens(std::span<const TokenId> tokens, TokenId below) const {
  std::vector<TokenId> text;
  std::ranges::copy_if(tokens, std::back_inserter(text),
                       [below](TokenId token) { return token < below; });
  return decoder_.Decode(text);
}

// By the first window, silence behind the end included.
Status SoundTranscription::FindLanguage() {
  if (!options_.language.has_value() && !decoder_.tokens().languages.empty()) {
    const int64_t width = decoder_.shape().frames;
    KVANT_TRY(mel_.Read(0, width, width, features_));
    KVANT_ASSIGN(const std::string language, decoder_.DetectLanguage(features_));
    KVANT_TRY(decoder_.SetLanguage(language));
    if (events_.on_language) events_.on_language(decoder_.language());
  }
  out_.language = decoder_.language();
  return {};
}

Status SoundTranscription::ReadContext() {
  const std::string prompt = Stripped(options_.prompt);
  if (prompt.empty()) return {};
  KVANT_ASSIGN(all_, decoder_.Encode(" " + prompt));
  prompt_ = all_.size();
  return {};
}

bool SoundTranscription::LooksWrong(const WindowText& text) const {
  const auto& [ratio_max, log_prob_min, no_speech_max] =
      std::tie(options_.compression_ratio_threshold, options_.log_prob_threshold,
               options_.no_speech_threshold);
  const bool repeats = ratio_max.has_value() && text.compression_ratio > double{*ratio_max};
  const bool unlikely = log_prob_min.has_value() && text.avg_log_prob < double{*log_prob_min};
  const bool silent =
      unlikely && no_speech_max.has_value() && text.no_speech_prob > double{*no_speech_max};
  return (repeats || unlikely) && !silent;
}

bool SoundTranscription::IsSilent(const WindowText& text) const {
  if (!options_.no_speech_threshold.has_value()) return false;
  const bool likely = options_.log_prob_threshold.has_value() &&
                      text.avg_log_prob > double{*options_.log_prob_threshold};
  return text.no_speech_prob > double{*options_.no_speech_threshold} && !likely;
}

// The text of the first temperature that does not look wrong, or of the last one.
Result<WindowText> SoundTranscription::DecodeWindow(int64_t frames) {
  KVANT_TRY(mel_.Read(seek_, frames, decoder_.shape().frames, features_));
  KVANT_TRY(decoder_.Begin(features_, std::span(all_).subspan(context_)));
  WindowText text;
  for (const float temperature : options_.temperatures) {
    KVANT_ASSIGN(text, decoder_.Try(temperature));
    if (!LooksWrong(text)) break;
  }
  return text;
}

// A segment that takes no time or has no text keeps its place alone.
Status SoundTranscription::AddSegments(const WindowText& text, const WindowCut& cut) {
  for (const WindowCut::Part& part : cut.parts) {
    const auto tokens = std::span(text.tokens).subspan(part.first, part.last - part.first);
    SpeechSegment segment;
    segment.id = std::ssize(out_.segments);
    segment.seek = seek_;
    segment.start = part.start;
    segment.end = part.end;
    segment.text = TextOfTokens(tokens, decoder_.tokens().end);
    segment.tokens.assign(tokens.begin(), tokens.end());
    segment.temperature = text.temperature;
    segment.avg_log_prob = text.avg_log_prob;
    segment.compression_ratio = text.compression_ratio;
    segment.no_speech_prob = text.no_speech_prob;
    if (segment.start == segment.end || Stripped(segment.text).empty()) {
      segment.text.clear();
      segment.tokens.clear();
    }
    all_.insert(all_.end(), segment.tokens.begin(), segment.tokens.end());
    out_.segments.push_back(std::move(segment));
    if (events_.on_segment) KVANT_TRY(events_.on_segment(out_.segments.back()));
  }
  return {};
}

Result<Transcript> SoundTranscription::Run() {
  const FrameShape shape = decoder_.shape();
  features_.resize(static_cast<size_t>(shape.bins * shape.frames));
  out_.duration = mel_.duration();
  KVANT_TRY(FindLanguage());
  KVANT_TRY(ReadContext());
  while (seek_ < mel_.frames()) {
    if (options_.cancel != nullptr && options_.cancel->load()) {
      return MakeError(ErrorCode::kCancelled, "cancelled");
    }
    const int64_t frames = std::min(shape.frames, mel_.frames() - seek_);
    KVANT_ASSIGN(const WindowText text, DecodeWindow(frames));
    int64_t advance = frames;
    if (!IsSilent(text)) {
      const WindowCut cut = CutWindow(decoder_.tokens(), text.tokens, seek_, frames);
      advance = cut.advance;
      KVANT_TRY(AddSegments(text, cut));
      const bool trusted = text.temperature <= kTrustedTemperature;
      if (!options_.condition_on_previous_text || !trusted) context_ = all_.size();
    }
    seek_ += std::max<int64_t>(advance, 1);  // the rules leave no pair of times at 0
    if (events_.on_progress) {
      const int64_t done = std::min(seek_, mel_.frames());
      events_.on_progress(static_cast<double>(done) / kFramesPerSecond, out_.duration);
    }
  }
  out_.text = TextOfTokens(std::span(all_).subspan(prompt_), decoder_.tokens().first_time);
  return std::move(out_);
}

}  // namespace

Result<Transcript> TranscribeSound(WindowDecoder& decoder, SoundSource& sound,
                                   const TranscribeOptions& options,
                                   const TranscribeEvents& events) {
  KVANT_TRY(decoder.Reset());
  KVANT_ASSIGN(MelReader mel, MelReader::Open(sound, decoder.shape().bins, options.cancel));
  return SoundTranscription(decoder, mel, options, events).Run();
}

}  // namespace kvant::speech
