// SoundSource of samples in memory, and the features of one recording.
#include <algorithm>
#include <cmath>

#include "base/result.h"
#include "engine/speech/log_mel.h"
#include "kvant/speech.h"

namespace kvant {

Result<size_t> SamplesInMemory::Read(std::span<float> samples) {
  const size_t count = std::min(samples.size(), samples_.size() - next_);
  std::copy_n(samples_.begin() + static_cast<ptrdiff_t>(next_), count, samples.begin());
  next_ += count;
  return count;
}

Status SamplesInMemory::Rewind() {
  next_ = 0;
  return {};
}

// As many samples as the frames have, with mirrored samples at both ends.
Result<std::vector<float>> SpeechFrames(std::span<const float> samples, const FrameShape& shape) {
  if (shape.bins < 1 || shape.frames < 2) {
    return MakeError(ErrorCode::kInvalid,
                     "features of speech: expected frames of at least one number, found {} of {}",
                     shape.frames, shape.bins);
  }
  constexpr size_t kEdge = speech::kFourierLength / 2;
  const auto frames = static_cast<size_t>(shape.frames);
  const auto bins = static_cast<size_t>(shape.bins);
  const size_t size = frames * kSamplesPerFrame;
  std::vector<float> padded(size + 2 * kEdge, 0.0f);
  std::copy_n(samples.begin(), std::min(size, samples.size()), padded.begin() + kEdge);
  for (size_t i = 1; i <= kEdge; ++i) {
    padded[kEdge - i] = padded[kEdge + i];
    padded[kEdge + size - 1 + i] = padded[kEdge + size - 1 - i];
  }
  std::vector<float> values(frames * bins);
  speech::LogMel(shape.bins).Make(padded, shape.frames, values);
  const float largest = *std::max_element(values.begin(), values.end());
  std::vector<float> features(values.size());
  for (size_t frame = 0; frame < frames; ++frame) {
    for (size_t bin = 0; bin < bins; ++bin) {
      features[bin * frames + frame] = speech::Feature(values[frame * bins + bin], largest);
    }
  }
  return features;
}

}  // namespace kvant
