// Finds words in a text that is read byte by byte (Aho and Corasick, "Efficient string matching",
// 1975). Thread-safety: const.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvant::grammar {

class WordSearch {
 public:
  using State = uint32_t;                    // 0: before any text
  static constexpr size_t kBytesMax = 4096;  // of all words

  WordSearch() : WordSearch(std::span<const std::string>()) {}
  // Empty words are never found. At most kBytesMax bytes.
  explicit WordSearch(std::span<const std::string> words);

  State Next(State state, uint8_t byte) const { return next_[state][byte]; }
  // The longest word that ends here, by its number; -1: none does.
  int32_t WordAt(State state) const { return words_[state]; }

 private:
  std::vector<std::array<uint16_t, 256>> next_;  // [states]
  std::vector<int32_t> words_;                   // [states]
};

}  // namespace kvant::grammar
