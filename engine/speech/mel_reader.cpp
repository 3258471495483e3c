#include "engine/speech/mel_reader.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

namespace kvant::speech {
namespace {

constexpr int64_t kFramesOfScan = 1024;

}  // namespace

Result<MelReader> MelReader::Open(SoundSource& source, int64_t bins,
                                  const std::atomic<bool>* cancel) {
  MelReader reader(source, bins);
  KVANT_TRY(reader.Scan(cancel));
  return reader;
}

Status MelReader::Scan(const std::atomic<bool>* cancel) {
  KVANT_TRY(source_->Rewind());
  std::vector<float> values;
  // Frames that reach into the sound; those behind it are silent.
  const auto in_sound = [this] {
    return !stream_.ended() ||
           stream_.frames() * kSamplesPerFrame < stream_.samples() + kFourierLength / 2;
  };
  while (in_sound()) {
    if (cancel != nullptr && cancel->load()) return MakeError(ErrorCode::kCancelled, "cancelled");
    values.clear();
    KVANT_TRY(stream_.Make(kFramesOfScan, values));
    largest_ = std::max(largest_, *std::max_element(values.begin(), values.end()));
  }
  samples_ = stream_.samples();
  KVANT_TRY(source_->Rewind());
  stream_ = LogMelStream(*source_, bins_);
  return {};
}

Status MelReader::Read(int64_t first, int64_t count, int64_t width, std::span<float> features) {
  KVANT_CHECK(first >= first_ && count <= width && std::ssize(features) == bins_ * width);
  const auto bins = static_cast<size_t>(bins_);
  // Frames before `first` are not needed any more; those that a long step leaves out are made and
  // dropped.
  while (first_ < first) {
    const int64_t there = std::ssize(values_) / bins_;
    if (there == 0) KVANT_TRY(stream_.Make(std::min(first - first_, kFramesOfScan), values_));
    const int64_t dropped = std::min(first - first_, std::ssize(values_) / bins_);
    values_.erase(values_.begin(), values_.begin() + static_cast<ptrdiff_t>(dropped * bins_));
    first_ += dropped;
  }
  const int64_t there = std::ssize(values_) / bins_;
  if (there < count) KVANT_TRY(stream_.Make(count - there, values_));
  std::fill(features.begin(), features.end(), 0.0f);
  for (size_t frame = 0; frame < static_cast<size_t>(count); ++frame) {
    for (size_t bin = 0; bin < bins; ++bin) {
      features[bin * static_cast<size_t>(width) + frame] =
          Feature(values_[frame * bins + bin], largest_);
    }
  }
  return {};
}

}  // namespace kvant::speech
