// Features of sound: transforms against their definition, filters against triangles, features
// against a definition in doubles, openai-whisper and transformers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "engine/speech/fourier.h"
#include "engine/speech/mel_filters.h"
#include "engine/speech/mel_reader.h"
#include "tests/engine/speech/speech_noise.h"

namespace kvant::test {
namespace {

using speech::Fourier;
using speech::MelReader;

double PowerByDefinition(std::span<const double> signal, size_t k) {
  std::complex<double> sum = 0;
  const double size = static_cast<double>(signal.size());
  for (size_t i = 0; i < signal.size(); ++i) {
    const double turns = static_cast<double>(i * k % signal.size()) / size;
    sum += signal[i] * std::polar(1.0, -2 * std::numbers::pi * turns);
  }
  return std::norm(sum);
}

TEST(SpeechFeatures, TransformsAreTheirDefinition) {
  for (const size_t length : {1, 2, 3, 4, 5, 8, 60, 400, 480}) {
    std::vector<double> signals[2];
    for (size_t i = 0; i < 2; ++i) {
      for (const float value : SpeechNoise(length + i, length)) {
        signals[i].push_back(double{value} * (i == 0 ? 1 : 1e-3));
      }
    }
    Fourier fourier(length);
    std::vector<double> powers[2] = {std::vector<double>(length / 2 + 1),
                                     std::vector<double>(length / 2 + 1)};
    fourier.Powers(signals[0], signals[1], powers[0], powers[1]);
    for (size_t i = 0; i < 2; ++i) {
      for (size_t k = 0; k <= length / 2; ++k) {
        // The rounding of the louder signal reaches the other one.
        EXPECT_NEAR(powers[i][k], PowerByDefinition(signals[i], k), 1e-11) << length << " " << k;
      }
    }
  }
}

// Slaney's scale, by its two formulas.
double HzByDefinition(double mel) {
  return mel < 15 ? 200 * mel / 3 : 1000 * std::pow(6.4, (mel - 15) / 27);
}

TEST(SpeechFeatures, FiltersAreTrianglesOfOneHz) {
  const double top = 15 + 27 * std::log(8.0) / std::log(6.4);  // 8000 Hz
  for (const int64_t bands : {1, 20, 80, 128}) {
    const auto filters = speech::MelFilters(bands, 400);
    ASSERT_EQ(std::ssize(filters), bands);
    for (size_t band = 0; band < filters.size(); ++band) {
      const auto corner = [&](size_t i) {
        return HzByDefinition(top * static_cast<double>(band + i) / static_cast<double>(bands + 1));
      };
      const double left = corner(0), peak = corner(1), right = corner(2);
      for (size_t k = 0; k <= 200; ++k) {
        const double hz = 40 * static_cast<double>(k);
        double expected = hz < peak ? (hz - left) / (peak - left) : (right - hz) / (right - peak);
        expected = std::max(expected, 0.0) * 2 / (right - left);
        const auto& filter = filters[band];
        const bool inside = k >= filter.first && k < filter.first + filter.weights.size();
        EXPECT_NEAR(inside ? filter.weights[k - filter.first] : 0, expected, 1e-8) << band << k;
      }
    }
  }
}

// One feature before the largest value is known, by the definition, in doubles.
double ValueByDefinition(const std::vector<double>& padded, int64_t frame,
                         const speech::MelFilter& filter) {
  std::vector<double> signal(400);
  for (size_t i = 0; i < 400; ++i) {
    const size_t at = static_cast<size_t>(frame) * 160 + i;
    const double hann = 0.5 * (1 - std::cos(2 * std::numbers::pi * static_cast<double>(i) / 400));
    signal[i] = hann * (at < padded.size() ? padded[at] : 0);
  }
  double sum = 0;
  for (size_t i = 0; i < filter.weights.size(); ++i) {
    sum += double{filter.weights[i]} * PowerByDefinition(signal, filter.first + i);
  }
  return std::log10(std::max(sum, 1e-10));
}

TEST(SpeechFeatures, FeaturesAreTheirDefinition) {
  constexpr int64_t kBins = 5;
  const auto filters = speech::MelFilters(kBins, 400);
  for (const size_t count : {0, 1, 100, 200, 201, 399, 400, 1700, 3333}) {
    std::vector<float> samples = SpeechNoise(count, count);
    for (float& sample : samples) sample *= 0.25f;
    std::vector<double> padded;  // 200 mirrored samples in front, silence behind
    for (size_t i = 200; i >= 1; --i) padded.push_back(i < count ? double{samples[i]} : 0);
    padded.insert(padded.end(), samples.begin(), samples.end());
    const int64_t frames = static_cast<int64_t>(count) / 160 + 4;
    std::vector<double> values;
    for (int64_t frame = 0; frame < frames; ++frame) {
      for (const auto& filter : filters) values.push_back(ValueByDefinition(padded, frame, filter));
    }
    const double largest = *std::ranges::max_element(values);
    SamplesInMemory source(samples);
    auto reader = MelReader::Open(source, kBins, nullptr);
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ(reader->samples(), static_cast<int64_t>(count));
    EXPECT_EQ(reader->frames(), static_cast<int64_t>(count) / 160);
    std::vector<float> found(static_cast<size_t>(kBins * (frames + 2)), 7);
    ASSERT_TRUE(reader->Read(0, frames, frames + 2, found).ok());
    for (int64_t frame = 0; frame < frames + 2; ++frame) {
      for (int64_t bin = 0; bin < kBins; ++bin) {
        const float feature = found[static_cast<size_t>(bin * (frames + 2) + frame)];
        if (frame >= frames) {
          EXPECT_EQ(feature, 0);
        } else {
          const double value = values[static_cast<size_t>(frame * kBins + bin)];
          EXPECT_NEAR(feature, (std::max(value, largest - 8) + 4) / 4, 1e-6) << count;
        }
      }
    }
  }
}

// Counts what it is asked for.
class CountingSource final : public SoundSource {
 public:
  explicit CountingSource(std::vector<float> samples) : samples_(std::move(samples)) {}
  Result<size_t> Read(std::span<float> samples) override {
    const size_t count = std::min(samples.size(), samples_.size() - next_);
    std::copy_n(samples_.begin() + static_cast<ptrdiff_t>(next_), count, samples.begin());
    next_ += count;
    most_ = std::max(most_, samples.size());
    return count;
  }
  Status Rewind() override {
    next_ = 0;
    ++rewinds_;
    return {};
  }
  size_t most() const { return most_; }
  int rewinds() const { return rewinds_; }

 private:
  std::vector<float> samples_;
  size_t next_ = 0;
  size_t most_ = 0;
  int rewinds_ = 0;
};

// Windows that overlap, adjoin and leave something out have the bits of the whole.
TEST(SpeechFeatures, WindowsHaveTheBitsOfTheWhole) {
  constexpr int64_t kBins = 8;
  CountingSource source(SpeechNoise(5, 160 * 900 + 77));
  auto whole = MelReader::Open(source, kBins, nullptr);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(source.rewinds(), 2);
  std::vector<float> all(static_cast<size_t>(kBins * 960));
  ASSERT_TRUE(whole->Read(0, 960, 960, all).ok());
  auto reader = MelReader::Open(source, kBins, nullptr);
  ASSERT_TRUE(reader.ok());
  for (const auto& [first, count] : {std::pair{0, 50}, std::pair{0, 200}, std::pair{3, 200},
                                     std::pair{203, 1}, std::pair{700, 200}, std::pair{890, 70}}) {
    std::vector<float> window(static_cast<size_t>(kBins * 200));
    ASSERT_TRUE(reader->Read(first, count, 200, window).ok());
    for (int bin = 0; bin < kBins; ++bin) {
      for (int frame = 0; frame < 200; ++frame) {
        const float expected =
            frame < count ? all[static_cast<size_t>(bin * 960 + first + frame)] : 0;
        ASSERT_EQ(window[static_cast<size_t>(bin * 200 + frame)], expected)
            << first << " " << frame;
      }
    }
  }
  // However long the sound, little of it is asked for at once.
  EXPECT_LE(source.most(), 160u * 256);
}

std::vector<float> SoundOf(const nlohmann::json& row) {
  const auto count = row["samples"].get<size_t>();
  const auto kind = row["kind"].get<std::string>();
  std::vector<float> samples(count);
  if (kind == "noise") {
    const std::vector<float> noise = SpeechNoise(row["seed"], count);
    for (size_t i = 0; i < count; ++i) {
      const bool silent = i >= count / 3 && i < count / 2;
      samples[i] = silent ? 0 : noise[i] * row["gain"].get<float>();
    }
  } else if (kind == "impulse") {
    samples[count / 2] = 1;
  } else if (kind == "square") {
    for (size_t i = 0; i < count; ++i) {
      samples[i] = i / row["half"].get<size_t>() % 2 == 0 ? 0.25f : -0.25f;
    }
  }
  return samples;
}

// Their single precision is what is left of the difference, where little power is left of much.
constexpr double kLimit = 1e-4;

TEST(SpeechFeatures, FeaturesAreThoseOfOpenaiAndTransformers) {
  size_t rows = 0;
  for (const auto& row : SpeechReference("features.json")) {
    const std::vector<float> samples = SoundOf(row["sound"]);
    const auto bins = row["bins"].get<int64_t>();
    const auto frames = row["frames"].get<std::vector<int64_t>>();
    SamplesInMemory source(samples);
    auto reader = MelReader::Open(source, bins, nullptr);
    ASSERT_TRUE(reader.ok());
    std::vector<float> features(static_cast<size_t>(bins * 3000));
    ASSERT_TRUE(reader->Read(0, 3000, 3000, features).ok());
    const auto whole = SpeechFrames(samples, {bins, 3000});
    ASSERT_TRUE(whole.ok());
    for (size_t i = 0; i < frames.size(); ++i) {
      for (int64_t bin = 0; bin < bins; ++bin) {
        const auto at = static_cast<size_t>(bin * 3000 + frames[i]);
        const auto column = static_cast<size_t>(bin);
        ASSERT_NEAR(features[at], row["openai"][i][column].get<double>(), kLimit) << row["sound"];
        if (!row.contains("transformers")) continue;
        ASSERT_NEAR((*whole)[at], row["transformers"][i][column].get<double>(), kLimit)
            << row["sound"];
      }
    }
    ++rows;
  }
  EXPECT_EQ(rows, 22u);
}

TEST(SpeechFeatures, ARecordingThatIsTooLongIsCutOff) {
  const std::vector<float> samples = SpeechNoise(9, 160 * 40);
  const auto whole = SpeechFrames(std::span(samples).first(160 * 30), {4, 30});
  const auto cut = SpeechFrames(samples, {4, 30});
  ASSERT_TRUE(whole.ok() && cut.ok());
  EXPECT_EQ(*whole, *cut);
  for (const FrameShape shape : {FrameShape{0, 30}, FrameShape{4, 0}}) {
    const auto refused = SpeechFrames(samples, shape);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, testing::HasSubstr("expected frames"));
  }
}

class FailingSource final : public SoundSource {
 public:
  Result<size_t> Read(std::span<float>) override {
    return MakeError(ErrorCode::kIo, "the disk is gone");
  }
  Status Rewind() override { return {}; }
};

TEST(SpeechFeatures, ErrorsOfTheSourceAreReturned) {
  FailingSource source;
  const auto reader = MelReader::Open(source, 80, nullptr);
  ASSERT_FALSE(reader.ok());
  EXPECT_EQ(reader.error().message, "the disk is gone");
  const std::vector<float> samples(160000);
  SamplesInMemory silence(samples);
  std::atomic<bool> cancel = true;
  const auto cancelled = MelReader::Open(silence, 80, &cancel);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace kvant::test
