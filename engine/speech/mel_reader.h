// The features of a long sound, window by window, measured against its loudest moment as
// openai-whisper does: a first reading finds that, a second one makes the features again. Memory
// does not depend on the length of the sound.
//
// Thread-safety: one thread at a time per object.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/speech/log_mel.h"
#include "kvant/speech.h"

namespace kvant::speech {

class MelReader {
 public:
  // Reads all of the sound from its beginning, and goes back to it. kCancelled once the flag, which
  // may be null, is set. The source must outlive the object.
  static Result<MelReader> Open(SoundSource& source, int64_t bins, const std::atomic<bool>* cancel);

  int64_t samples() const { return samples_; }
  // Frames that the sound fills; an incomplete one at the end is left out.
  int64_t frames() const { return samples_ / kSamplesPerFrame; }
  double duration() const { return static_cast<double>(samples_) / kSoundRate; }

  // Fills [bins][width] with the features of the frames from `first` to first + count - 1, which
  // may lie behind the end, where silence is. The rest of the width is 0. `first` must be no less
  // than in the call before.
  Status Read(int64_t first, int64_t count, int64_t width, std::span<float> features);

 private:
  MelReader(SoundSource& source, int64_t bins)
      : source_(&source), bins_(bins), stream_(source, bins) {}
  Status Scan(const std::atomic<bool>* cancel);

  SoundSource* source_;
  int64_t bins_;
  LogMelStream stream_;
  int64_t samples_ = 0;
  float largest_ = kLogMelMin;
  std::vector<float> values_;  // [frame][bins], from frame first_ on to where the stream is
  int64_t first_ = 0;
};

}  // namespace kvant::speech
