// The made-up numbers of tests/reference/make_speech.py, and its files.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/shared_data.h"

namespace kvant::test {

// Numbers from -1 to 1: the upper 16 bits of splitmix64.
inline std::vector<float> SpeechNoise(uint64_t seed, size_t count) {
  std::vector<float> out;
  for (size_t i = 0; i < count; ++i) {
    seed += 0x9e3779b97f4a7c15;
    uint64_t x = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    x ^= x >> 31;
    out.push_back(static_cast<float>((static_cast<double>(x >> 48) - 32767.5) / 32768));
  }
  return out;
}

inline std::string SpeechReferencePath(const std::string& name) {
  return SourcePath("tests/reference/speech/" + name);
}

inline nlohmann::json SpeechReference(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(SpeechReferencePath(name)));
}

// The ids of the small vocabulary there.
inline constexpr int kSmallText = 20, kSmallEnd = 20, kSmallStart = 21, kSmallTranslate = 24,
                     kSmallTranscribe = 25, kSmallModel = 26, kSmallPrevious = 27,
                     kSmallNoSpeech = 28, kSmallNoTimes = 29, kSmallTimes = 30;

}  // namespace kvant::test
