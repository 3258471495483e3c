// The sections of a session file, found by their hashes alone, without the code of the format:
// tests change one and seal it again, as an enemy would.
#pragma once

#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kvant::test {

using SectionBytes = std::vector<std::byte>;

template <class T>
T Get(const SectionBytes& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <class T>
void Put(SectionBytes& bytes, T value) {
  const auto* data = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), data, data + sizeof value);
}

// A file's sections, found by their hashes alone.
inline std::vector<SectionBytes> Sections(const SectionBytes& file) {
  std::vector<SectionBytes> sections;
  for (size_t begin = 0; begin < file.size();) {
    size_t end = begin;
    while (end + sizeof(uint64_t) <= file.size() &&
           XXH64(file.data() + begin, end - begin, 0) != Get<uint64_t>(file, end)) {
      ++end;
    }
    EXPECT_LE(end + sizeof(uint64_t), file.size());
    sections.emplace_back(file.begin() + static_cast<std::ptrdiff_t>(begin),
                          file.begin() + static_cast<std::ptrdiff_t>(std::min(end, file.size())));
    begin = end + sizeof(uint64_t);
  }
  return sections;
}

inline SectionBytes Join(const std::vector<SectionBytes>& sections) {
  SectionBytes file;
  for (const SectionBytes& section : sections) {
    file.insert(file.end(), section.begin(), section.end());
    Put(file, uint64_t{XXH64(section.data(), section.size(), 0)});
  }
  return file;
}

}  // namespace kvant::test
