// Finds the id of a vocabulary entry by its text: an open-addressing hash table that holds ids only
// and compares with the vocabulary itself, so that a quarter of a million entries cost 2 MB and no
// allocation each. Where entries have the same text, the lowest id is found. Thread-safety: const
// after the last Insert.
#pragma once

#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvant/tokenizer.h"

namespace kvant {

class PieceIndex {
 public:
  static constexpr TokenId kNone = -1;

  PieceIndex() = default;
  // `pieces` must outlive the index; nothing is in it yet.
  explicit PieceIndex(std::span<const std::string_view> pieces)
      : pieces_(pieces), places_(std::bit_ceil(pieces.size() * 2 + 1), kNone) {}

  // Adds pieces[id] unless an entry with this text is there already, or the text is empty.
  void Insert(TokenId id) {
    const std::string_view text = pieces_[static_cast<size_t>(id)];
    if (text.empty()) return;
    TokenId& place = places_[FindPlace(text)];
    if (place == kNone) place = id;
    if (text.size() > bytes_max_) bytes_max_ = text.size();
  }

  TokenId Find(std::string_view text) const {
    if (text.empty() || text.size() > bytes_max_) return kNone;
    return places_[FindPlace(text)];
  }

  // Bytes of the longest entry.
  size_t bytes_max() const { return bytes_max_; }

 private:
  // The place in the table that holds `text`, or the free one where it belongs. At least half of
  // the places are free.
  size_t FindPlace(std::string_view text) const {
    const size_t mask = places_.size() - 1;
    size_t place = XXH3_64bits(text.data(), text.size()) & mask;
    while (places_[place] != kNone && pieces_[static_cast<size_t>(places_[place])] != text) {
      place = (place + 1) & mask;
    }
    return place;
  }

  std::span<const std::string_view> pieces_;
  std::vector<TokenId> places_;
  size_t bytes_max_ = 0;
};

}  // namespace kvant
