#include "engine/speech/log_mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace kvant::speech {
namespace {

constexpr size_t kHalfLength = kFourierLength / 2;
constexpr size_t kHop = kSamplesPerFrame;
constexpr double kPowerMin = 1e-10;
constexpr int64_t kFramesAtOnce = 128;

}  // namespace

LogMel::LogMel(int64_t bins)
    : fourier_(kFourierLength), filters_(MelFilters(bins, kFourierLength)) {
  for (size_t i = 0; i < kFourierLength; ++i) {
    const double angle =
        2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(kFourierLength);
    window_.push_back(0.5 - 0.5 * std::cos(angle));
  }
  for (std::vector<double>& signal : signal_) signal.resize(kFourierLength);
  for (std::vector<double>& powers : powers_) powers.resize(kHalfLength + 1);
}

void LogMel::Window(std::span<const float> samples, std::vector<double>& out) const {
  for (size_t i = 0; i < kFourierLength; ++i) out[i] = window_[i] * double{samples[i]};
}

void LogMel::Filter(const std::vector<double>& powers, std::span<float> values) const {
  for (size_t band = 0; band < filters_.size(); ++band) {
    const MelFilter& filter = filters_[band];
    double sum = 0;
    for (size_t i = 0; i < filter.weights.size(); ++i) {
      sum += double{filter.weights[i]} * powers[filter.first + i];
    }
    values[band] = static_cast<float>(std::log10(std::max(sum, kPowerMin)));
  }
}

void LogMel::Make(std::span<const float> samples, int64_t count, std::span<float> values) {
  const size_t bands = filters_.size();
  const auto frames = static_cast<size_t>(count);
  for (size_t frame = 0; frame < frames; frame += 2) {
    const size_t both = std::min<size_t>(2, frames - frame);
    // A frame without a partner is its own.
    for (size_t i = 0; i < 2; ++i) {
      const size_t at = frame + std::min(i, both - 1);
      Window(samples.subspan(at * kHop, kFourierLength), signal_[i]);
    }
    fourier_.Powers(signal_[0], signal_[1], powers_[0], powers_[1]);
    for (size_t i = 0; i < both; ++i) {
      Filter(powers_[i], values.subspan((frame + i) * bands, bands));
    }
  }
}

// Reads so many samples, or silence where the source has ended.
Status LogMelStream::ReadSamples(size_t count) {
  const size_t before = buffer_.size();
  buffer_.resize(before + count, 0.0f);
  if (ended_) return {};
  KVANT_ASSIGN(const size_t read, source_->Read(std::span(buffer_).subspan(before)));
  ended_ = read < count;
  samples_ += static_cast<int64_t>(read);
  std::fill(buffer_.begin() + static_cast<ptrdiff_t>(before + read), buffer_.end(), 0.0f);
  return {};
}

// The samples 1 to 200 stand in front of sample 0, the last of them first.
Status LogMelStream::Begin() {
  begun_ = true;
  KVANT_TRY(ReadSamples(kHalfLength + 1));
  const std::vector<float> mirrored(buffer_.rbegin(), buffer_.rend() - 1);
  buffer_.insert(buffer_.begin(), mirrored.begin(), mirrored.end());
  return {};
}

Status LogMelStream::Fill(size_t size) {
  if (!begun_) KVANT_TRY(Begin());
  if (buffer_.size() < size) KVANT_TRY(ReadSamples(size - buffer_.size()));
  return {};
}

Status LogMelStream::Make(int64_t count, std::vector<float>& values) {
  const auto bins = static_cast<size_t>(mel_.bins());
  while (count > 0) {
    const int64_t now = std::min(count, kFramesAtOnce);
    const auto hops = static_cast<size_t>(now) * kHop;
    KVANT_TRY(Fill(hops - kHop + kFourierLength));
    const size_t before = values.size();
    values.resize(before + static_cast<size_t>(now) * bins);
    mel_.Make(buffer_, now, std::span(values).subspan(before));
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(hops));
    frames_ += now;
    count -= now;
  }
  return {};
}

}  // namespace kvant::speech
