// Sound files as samples: every width of WAV, FLAC and Ogg, channels, rates, broken and empty
// files, pipes. Files are written byte by byte here, or by libsndfile.
#include "tools/transcribe/sound_file.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numbers>
#include <thread>

#include "tests/temporary_folder.h"

namespace kvant::test {
namespace {

using testing::HasSubstr;
using tools::SoundFile;

// The bytes of a number, the lowest first.
template <class T>
void Put(std::string& out, T number, size_t bytes = sizeof(T)) {
  char raw[sizeof(T)];
  std::memcpy(raw, &number, sizeof(T));
  out.append(raw, bytes);
}

struct WavShape {
  uint16_t format = 1;  // 1: integers, 3: floats
  uint16_t bits = 16;
  uint16_t channels = 1;
  uint32_t rate = 16000;
};

std::string WavOf(const WavShape& shape, const std::string& data) {
  std::string out = "RIFF";
  Put(out, static_cast<uint32_t>(36 + data.size()));
  out += "WAVEfmt ";
  Put(out, uint32_t{16});
  Put(out, shape.format);
  Put(out, shape.channels);
  Put(out, shape.rate);
  const auto frame = static_cast<uint16_t>(shape.channels * shape.bits / 8);
  Put(out, shape.rate * frame);
  Put(out, frame);
  Put(out, shape.bits);
  out += "data";
  Put(out, static_cast<uint32_t>(data.size()));
  return out + data;
}

std::string Shorts(const std::vector<int16_t>& values) {
  std::string out;
  for (const int16_t value : values) Put(out, value);
  return out;
}

class SoundFiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!tools::OpenSndfile().ok() || !tools::OpenSoxr().ok()) {
      GTEST_SKIP() << "libsndfile and libsoxr are not there";
    }
  }

  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  // All samples, read in pieces.
  static std::vector<float> SamplesOf(const std::string& path, size_t piece = 1000) {
    const auto file = SoundFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.error().message;
    return file.ok() ? ReadAll(**file, piece) : std::vector<float>();
  }
  static std::vector<float> ReadAll(SoundFile& file, size_t piece) {
    std::vector<float> out;
    for (size_t read = piece; read == piece;) {
      out.resize(out.size() + piece);
      const auto count = file.Read(std::span(out).last(piece));
      EXPECT_TRUE(count.ok());
      read = count.ok() ? *count : 0;
      out.resize(out.size() - piece + read);
    }
    return out;
  }
  static std::string ErrorOf(const std::string& path) {
    const auto file = SoundFile::Open(path);
    return file.ok() ? "accepted" : file.error().message;
  }

  TemporaryFolder folder_;
};

TEST_F(SoundFiles, WidthsOfWav) {
  const std::vector<float> expected = {0, 0.5f, -0.5f, -1, 0.25f};
  std::string eight, sixteen, wide, wider, single, both;
  for (const float value : expected) {
    Put(eight, static_cast<uint8_t>(value * 128 + 128));
    Put(sixteen, static_cast<int16_t>(value * 32768));
    Put(wide, static_cast<int32_t>(value * 8388608), 3);
    Put(wider, static_cast<int32_t>(double{value} * 2147483648.0));
    Put(single, value);
    Put(both, double{value});
  }
  EXPECT_EQ(SamplesOf(Write("8", WavOf({1, 8}, eight))), expected);
  EXPECT_EQ(SamplesOf(Write("16", WavOf({1, 16}, sixteen))), expected);
  EXPECT_EQ(SamplesOf(Write("24", WavOf({1, 24}, wide))), expected);
  EXPECT_EQ(SamplesOf(Write("32", WavOf({1, 32}, wider))), expected);
  EXPECT_EQ(SamplesOf(Write("f32", WavOf({3, 32}, single))), expected);
  EXPECT_EQ(SamplesOf(Write("f64", WavOf({3, 64}, both))), expected);
}

// The 16 bits of a file at 16 kHz arrive as they are, whatever the pieces.
TEST_F(SoundFiles, EveryShortArrivesExactly) {
  std::vector<int16_t> values;
  for (int value = -32768; value < 32768; ++value) values.push_back(static_cast<int16_t>(value));
  const std::string path = Write("all.wav", WavOf({}, Shorts(values)));
  for (const size_t piece : {1u, 77u, 16384u, 100000u}) {
    const std::vector<float> found = SamplesOf(path, piece);
    ASSERT_EQ(found.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(found[i], static_cast<float>(values[i]) / 32768);
    }
  }
}

TEST_F(SoundFiles, ChannelsAreMixedToTheirMean) {
  const std::string data = Shorts({8192, 16384, -8192, 8192, 32767, -32768});
  EXPECT_THAT(SamplesOf(Write("2", WavOf({1, 16, 2}, data))),
              testing::ElementsAre(0.375f, 0, -0.5f / 32768));
  EXPECT_THAT(SamplesOf(Write("3", WavOf({1, 16, 3}, data))),
              testing::ElementsAre(testing::FloatNear(1.0f / 6, 1e-6f),
                                   testing::FloatNear(8191.0f / 32768 / 3, 1e-6f)));
}

TEST_F(SoundFiles, NumbersThatAreNoneAreSilent) {
  std::string data;
  for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::infinity(), -7.0f, 0.5f}) {
    Put(data, value);
  }
  EXPECT_THAT(SamplesOf(Write("odd", WavOf({3, 32}, data))), testing::ElementsAre(0, 1, -1, 0.5f));
}

std::vector<double> Sine(double hz, double rate, double seconds) {
  std::vector<double> out;
  for (int64_t i = 0; static_cast<double>(i) < rate * seconds; ++i) {
    out.push_back(0.5 * std::sin(2 * std::numbers::pi * hz * static_cast<double>(i) / rate));
  }
  return out;
}

// Decibels of what differs from a sine below it, away from the ends, where a filter begins and
// ends.
double NoiseOf(const std::vector<float>& found, double hz) {
  const std::vector<double> expected = Sine(hz, 16000, static_cast<double>(found.size()) / 16000);
  double signal = 0, noise = 0;
  for (size_t i = 1600; i + 1600 < found.size(); ++i) {
    signal += expected[i] * expected[i];
    noise += (double{found[i]} - expected[i]) * (double{found[i]} - expected[i]);
  }
  return 10 * std::log10(signal / noise);
}

TEST_F(SoundFiles, RatesAreChangedCleanly) {
  for (const uint32_t rate : {8000u, 11025u, 22050u, 32000u, 44100u, 48000u, 96000u}) {
    for (const double hz : {100.0, 1000.0, 3400.0, 6900.0}) {
      if (hz > 0.45 * rate) continue;
      std::string data;
      const std::vector<double> sine = Sine(hz, rate, 1.0);
      for (const double value : sine) Put(data, static_cast<float>(value));
      const std::vector<float> found = SamplesOf(Write("sine", WavOf({3, 32, 1, rate}, data)));
      const double length = std::round(static_cast<double>(sine.size()) * 16000 / rate);
      EXPECT_NEAR(static_cast<double>(found.size()), length, 1) << rate;
      EXPECT_GE(NoiseOf(found, hz), 90) << rate << " " << hz;
    }
  }
}

// Tones above the half of the rate do not come back as others.
TEST_F(SoundFiles, TonesThatNoModelHearsAreGone) {
  for (const double hz : {9000.0, 12000.0, 20000.0}) {
    std::string data;
    for (const double value : Sine(hz, 48000, 1.0)) Put(data, static_cast<float>(value));
    const std::vector<float> found = SamplesOf(Write("high", WavOf({3, 32, 1, 48000}, data)));
    double power = 0;
    for (size_t i = 1600; i + 1600 < found.size(); ++i)
      power += double{found[i]} * double{found[i]};
    const double mean = power / static_cast<double>(found.size() - 3200);
    EXPECT_LE(10 * std::log10(mean / 0.125 + 1e-30), -80) << hz;
  }
}

TEST_F(SoundFiles, TheSecondReadingIsTheFirst) {
  std::string data;
  for (const double value : Sine(440, 44100, 0.7)) Put(data, static_cast<float>(value));
  const auto file = SoundFile::Open(Write("twice", WavOf({3, 32, 1, 44100}, data)));
  ASSERT_TRUE(file.ok());
  const std::vector<float> first = ReadAll(**file, 999);
  ASSERT_TRUE((*file)->Rewind().ok());
  EXPECT_EQ(ReadAll(**file, 1234), first);
  ASSERT_TRUE((*file)->Rewind().ok());
  std::vector<float> part(100);
  ASSERT_TRUE((*file)->Read(part).ok());
  ASSERT_TRUE((*file)->Rewind().ok());
  EXPECT_EQ(ReadAll(**file, 500), first);
}

TEST_F(SoundFiles, PipesAreReadTwice) {
  const std::string bytes = WavOf({}, Shorts({100, 200, 300}));
  const std::string path = folder_ / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path, std::ios::binary) << bytes; });
  const auto file = SoundFile::Open(path);
  writer.join();
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::vector<float> first = ReadAll(**file, 10);
  EXPECT_EQ(first.size(), 3u);
  ASSERT_TRUE((*file)->Rewind().ok());
  EXPECT_EQ(ReadAll(**file, 10), first);
}

// A file that ends too early is read as far as it goes, and one without samples is silent.
TEST_F(SoundFiles, CutFilesAreReadAsFarAsTheyGo) {
  std::vector<int16_t> values(5000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int16_t>(i);
  const std::string whole = WavOf({}, Shorts(values));
  for (const size_t kept : {46u, 1044u, 1045u}) {
    const std::vector<float> found = SamplesOf(Write("cut", whole.substr(0, kept)));
    EXPECT_EQ(found.size(), (kept - 44) / 2) << kept;
  }
  EXPECT_TRUE(SamplesOf(Write("none", WavOf({}, ""))).empty());
}

TEST_F(SoundFiles, WhatIsNoSoundIsNamedWithTheWayToConvertIt) {
  for (const std::string& bytes : {std::string(), std::string("not a sound"), std::string("RIFF"),
                                   WavOf({}, "").substr(0, 30)}) {
    const std::string path = Write("it's.bin", bytes);
    EXPECT_THAT(ErrorOf(path), HasSubstr(path + ": libsndfile cannot read it ("));
    EXPECT_THAT(ErrorOf(path), HasSubstr("ffmpeg -i '" + (folder_ / "it'\\''s.bin") + "' -ar"));
  }
  EXPECT_THAT(ErrorOf(folder_ / "absent.wav"), HasSubstr("cannot open: No such file"));
  EXPECT_THAT(ErrorOf(folder_.path()), HasSubstr("expected a sound file, found a folder"));
  for (const WavShape& shape : {WavShape{1, 16, 1, 10}, WavShape{1, 16, 1, 4000000000}}) {
    const std::string message = ErrorOf(Write("rate", WavOf(shape, Shorts({1, 2, 3}))));
    EXPECT_THAT(message, testing::AnyOf(HasSubstr("samples a second, found 1 of"),
                                        HasSubstr("libsndfile cannot read it")));
  }
}

// libsndfile's own writer. False where this libsndfile lacks the format.
bool WriteSound(const std::string& path, int format, const std::vector<float>& samples, int rate) {
  void* const library = dlopen("libsndfile.so.1", RTLD_NOW);
  const auto open_file = reinterpret_cast<decltype(&sf_open)>(dlsym(library, "sf_open"));
  const auto write =
      reinterpret_cast<decltype(&sf_writef_short)>(dlsym(library, "sf_writef_short"));
  const auto close_file = reinterpret_cast<decltype(&sf_close)>(dlsym(library, "sf_close"));
  SF_INFO about{};
  about.samplerate = rate;
  about.channels = 1;
  about.format = format;
  SNDFILE* const file = open_file(path.c_str(), SFM_WRITE, &about);
  if (file == nullptr) return false;
  std::vector<int16_t> values;
  for (const float sample : samples) values.push_back(static_cast<int16_t>(sample * 32768));
  EXPECT_EQ(write(file, values.data(), std::ssize(values)), std::ssize(values));
  return close_file(file) == 0;
}

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(SoundFiles, FlacIsWhatWavIs) {
  std::vector<float> samples;
  for (const double value : Sine(300, 16000, 2)) {
    samples.push_back(static_cast<float>(std::round(value * 32768) / 32768));
  }
  const std::string path = folder_ / "sound.flac";
  ASSERT_TRUE(WriteSound(path, SF_FORMAT_FLAC | SF_FORMAT_PCM_16, samples, 16000));
  EXPECT_EQ(SamplesOf(path), samples);
  // A file that was cut off has the same samples as far as it goes.
  const std::string whole = BytesOf(path);
  const auto cut = SoundFile::Open(Write("cut.flac", whole.substr(0, whole.size() / 2)));
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  const std::vector<float> found = ReadAll(**cut, 1000);
  ASSERT_GT(found.size(), 4000u);
  ASSERT_LE(found.size(), samples.size());
  for (size_t i = 0; i < 4000; ++i) ASSERT_EQ(found[i], samples[i]) << i;
}

// Formats that lose something: most of a tone is there.
TEST_F(SoundFiles, OggAndMp3AreHeard) {
  std::vector<float> samples;
  for (const double value : Sine(440, 44100, 3)) samples.push_back(static_cast<float>(value));
  for (const auto& [name, format] :
       {std::pair("sound.ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS),
        std::pair("sound.mp3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III)}) {
    const std::string path = folder_ / name;
    if (!WriteSound(path, format, samples, 44100)) continue;  // MP3 came with libsndfile 1.1
    const std::vector<float> found = SamplesOf(path);
    EXPECT_NEAR(static_cast<double>(found.size()), 48000, 2000) << name;
    double in_phase = 0, across = 0, power = 0;
    for (size_t i = 8000; i < 40000; ++i) {
      const double angle = 2 * std::numbers::pi * 440 * static_cast<double>(i) / 16000;
      in_phase += double{found[i]} * std::cos(angle);
      across += double{found[i]} * std::sin(angle);
      power += double{found[i]} * double{found[i]};
    }
    const double tone = (in_phase * in_phase + across * across) * 2 / 32000;
    EXPECT_GE(tone / power, 0.999) << name;
    EXPECT_NEAR(power / 32000, 0.125, 0.01) << name;
    // Broken bytes within: some of it is read, or it is refused.
    std::string bytes = BytesOf(path);
    for (size_t i = bytes.size() / 2; i < bytes.size() / 2 + 300; ++i) bytes[i] = '\x55';
    const auto broken = SoundFile::Open(Write("broken", bytes));
    if (broken.ok()) ReadAll(**broken, 4096);
  }
}

// Whatever bytes are wrong, the file is read or refused.
TEST_F(SoundFiles, BrokenBytesAreReadOrRefused) {
  const std::string whole = WavOf({1, 16, 2, 22050}, Shorts(std::vector<int16_t>(400, 77)));
  size_t refused = 0;
  for (size_t at = 0; at < 60; ++at) {
    for (const char wrong : {'\0', '\x7f', '\xff'}) {
      std::string bytes = whole;
      bytes[at] = wrong;
      const auto file = SoundFile::Open(Write("broken", bytes));
      if (!file.ok()) {
        EXPECT_FALSE(file.error().message.empty());
        ++refused;
        continue;
      }
      for (const float sample : ReadAll(**file, 4096)) ASSERT_LE(std::abs(sample), 1.5f);
    }
  }
  EXPECT_GT(refused, 20u);
}

}  // namespace
}  // namespace kvant::test
