// Speech to text with Whisper: samples of sound in, segments of text with times out.
//
// The rules are those of openai-whisper (release 20250625): its spectrogram, its windows of 30
// seconds one behind the other, its choice of tokens and its fallbacks. Times are seconds from the
// beginning of the sound.
//
// Errors: kNotSupported for a model that reads no frames of sound or has no tokens for times,
// kInvalid for options that make no sense (the option is named), kCancelled, and those of a source
// and of Runner. Thread-safety: one thread at a time per object; the cancel flag may be set by
// others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/model.h"
#include "kvant/result.h"
#include "kvant/session_options.h"
#include "kvant/token_id.h"

namespace kvant {

inline constexpr int64_t kSoundRate = 16000;      // samples a second
inline constexpr int64_t kSamplesPerFrame = 160;  // of features
inline constexpr int64_t kFramesPerSecond = kSoundRate / kSamplesPerFrame;

// ---- Sound --------------------------------------------------------------------------------------

// One channel of samples between -1 and 1, kSoundRate of them a second, from the first to the last.
class SoundSource {
 public:
  virtual ~SoundSource() = default;
  // Fills the beginning of `samples` and returns how many there were: fewer than asked for only
  // where the sound ends.
  virtual Result<size_t> Read(std::span<float> samples) = 0;
  // Goes back to the first sample.
  virtual Status Rewind() = 0;
};

// Samples in memory, which must outlive the object.
class SamplesInMemory final : public SoundSource {
 public:
  explicit SamplesInMemory(std::span<const float> samples) : samples_(samples) {}
  Result<size_t> Read(std::span<float> samples) override;
  Status Rewind() override;

 private:
  std::span<const float> samples_;
  size_t next_ = 0;
};

// The features of one recording for Runner::EncodeFrames, [bins][frames]: log-mel values, with the
// largest value of this recording as their measure. Silence follows a recording that is shorter
// than the frames; a longer one is cut off. The values are those of transformers'
// WhisperFeatureExtractor. kInvalid for a shape without bins or frames.
Result<std::vector<float>> SpeechFrames(std::span<const float> samples, const FrameShape& shape);

// ---- Transcription ------------------------------------------------------------------------------

enum class SpeechTask : uint8_t {
  kTranscribe,  // text in the language that is spoken
  kTranslate,   // English text
};

struct TranscribeOptions {
  // A code ("de") or an English name ("german"); absent: the likeliest one for the first window.
  std::optional<std::string> language;
  SpeechTask task = SpeechTask::kTranscribe;
  // Text that counts as what was said before, for names and spelling.
  std::string prompt;
  // The text of earlier windows is a prompt for the next one.
  bool condition_on_previous_text = true;
  bool timestamps = true;  // false: a segment for each window

  // Each window is decoded with the first temperature; with the next ones as long as the text looks
  // wrong. At 0 beams are searched, above it texts are drawn.
  std::vector<float> temperatures = {0.0f, 0.2f, 0.4f, 0.6f, 0.8f, 1.0f};
  int32_t beams = 5;                    // at temperature 0; 1: the likeliest token each time
  float patience = 1.0f;                // beams end at round(beams * patience) texts
  int32_t best_of = 5;                  // texts drawn above temperature 0
  std::optional<float> length_penalty;  // ranks by sum / ((5 + length) / 6)^a, not sum / length
  uint64_t seed = 0;                    // of draws

  // A text looks wrong if it repeats itself more than that (bytes over zlib's bytes), or if the
  // mean log-probability of its tokens is lower than that. Absent: it never does for this reason.
  std::optional<float> compression_ratio_threshold = 2.4f;
  std::optional<float> log_prob_threshold = -1.0f;
  // A window whose probability of no speech is higher has no text, unless the mean log-probability
  // is above its threshold. Absent: every window has one.
  std::optional<float> no_speech_threshold = 0.6f;

  std::optional<float> max_initial_timestamp = 1.0f;  // seconds into a window; absent: any
  bool suppress_symbols = true;  // no tokens for what is not spoken, such as brackets and notes
  std::vector<TokenId> suppress_tokens = {};  // further tokens that are never chosen

  const std::atomic<bool>* cancel = nullptr;  // once set, transcription ends with kCancelled
};

struct SpeechSegment {
  int64_t id = 0;    // from 0
  int64_t seek = 0;  // the frame with which its window begins
  double start = 0;
  double end = 0;
  std::string text;  // as decoded: mostly with a space in front; "" for a segment that says nothing
  std::vector<TokenId> tokens;
  float temperature = 0;  // of its window, as the four numbers below
  double avg_log_prob = 0;
  double compression_ratio = 0;
  double no_speech_prob = std::numeric_limits<double>::quiet_NaN();
};

struct Transcript {
  std::string language;  // a code
  double duration = 0;   // seconds of sound
  std::string text;
  std::vector<SpeechSegment> segments;
};

// Called as the work proceeds. All may be empty.
struct TranscribeEvents {
  // The language, as a code, where it was found out.
  std::function<void(std::string_view language)> on_language = {};
  // An error ends the work and is returned.
  std::function<Status(const SpeechSegment& segment)> on_segment = {};
  // Seconds of sound that are done, and all.
  std::function<void(double done, double duration)> on_progress = {};
};

class Transcriber {
 public:
  // Opens a runner for windows of the model. `session` says threads and types of the cache; what
  // the options need of sequences is added.
  static Result<std::unique_ptr<Transcriber>> Create(std::shared_ptr<const Model> model,
                                                     const TranscribeOptions& options,
                                                     const SessionOptions& session = {});
  virtual ~Transcriber() = default;

  // Reads the sound twice: for its loudest moment, against which all features are measured, then
  // window by window, in memory that does not depend on its length. Each call begins anew.
  virtual Result<Transcript> Transcribe(SoundSource& sound,
                                        const TranscribeEvents& events = {}) = 0;
};

}  // namespace kvant
