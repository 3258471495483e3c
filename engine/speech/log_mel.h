// Log-mel features of Whisper, one frame after the other: frame t is made of the 400 samples around
// sample 160 t. Samples before the first one mirror those behind it, and silence follows the last.
//
//   power(k)  = | sum over i of hann(i) x(160 t - 200 + i) exp(-2 pi i k / 400) |^2
//   value(b)  = log10(max(sum over k of filter(b, k) power(k), 1e-10))
//   feature   = (max(value, largest - 8) + 4) / 4
//
// Source: openai-whisper, audio.py; the window is the periodic one of Hann. Arithmetic is in
// doubles, values are floats. Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/speech/fourier.h"
#include "engine/speech/mel_filters.h"
#include "kvant/speech.h"

namespace kvant::speech {

inline constexpr int64_t kFourierLength = 400;  // samples of a frame
inline constexpr float kLogMelMin = -10;        // the value of silence

// Makes values of samples.
class LogMel {
 public:
  explicit LogMel(int64_t bins);

  int64_t bins() const { return static_cast<int64_t>(filters_.size()); }

  // The values of `count` frames, [count][bins], from (count - 1) * kSamplesPerFrame +
  // kFourierLength samples.
  void Make(std::span<const float> samples, int64_t count, std::span<float> values);

 private:
  void Window(std::span<const float> samples, std::vector<double>& out) const;
  void Filter(const std::vector<double>& powers, std::span<float> values) const;

  Fourier fourier_;
  std::vector<MelFilter> filters_;
  std::vector<double> window_;
  std::vector<double> signal_[2];
  std::vector<double> powers_[2];
};

// The feature of a value.
inline float Feature(float value, float largest) {
  const float limited = value < largest - 8.0f ? largest - 8.0f : value;
  return (limited + 4.0f) / 4.0f;
}

// The frames of a source from the first on.
class LogMelStream {
 public:
  LogMelStream(SoundSource& source, int64_t bins) : source_(&source), mel_(bins) {}

  // Appends the values of the next `count` frames, [count][bins].
  Status Make(int64_t count, std::vector<float>& values);

  int64_t frames() const { return frames_; }    // made so far
  int64_t samples() const { return samples_; }  // read so far
  // All samples have been read.
  bool ended() const { return ended_; }

 private:
  Status Fill(size_t size);
  Status Begin();
  Status ReadSamples(size_t count);

  SoundSource* source_;
  LogMel mel_;
  std::vector<float> buffer_;  // from the first sample of the next frame on
  int64_t frames_ = 0;
  int64_t samples_ = 0;
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace kvant::speech
