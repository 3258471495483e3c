// Reads the fixtures of this folder, which tests/reference/make_quant_fixtures.py writes.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/shared_data.h"

namespace kvant::test {

inline nlohmann::json ReadQuantFixture(const std::string& name) {
  std::ifstream file(SourcePath("tests/quant/" + name));
  return nlohmann::json::parse(file);
}

// Hexadecimal bytes without separators.
inline std::vector<std::byte> ParseBytes(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Bits of float32 in hexadecimal or "nan", separated by spaces.
inline std::vector<float> ParseFloats(const std::string& text) {
  std::vector<float> values;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    values.push_back(
        word == "nan" ? std::numeric_limits<float>::quiet_NaN()
                      : std::bit_cast<float>(static_cast<uint32_t>(std::stoul(word, nullptr, 16))));
  }
  return values;
}

}  // namespace kvant::test
