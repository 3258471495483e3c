// How vocabularies of SentencePiece's kind spell a space and a byte.
#pragma once

#include <string>
#include <string_view>

namespace kvant {

inline constexpr std::string_view kSpacePiece = "\xE2\x96\x81";  // U+2581

// The value of a byte piece such as "<0x0A>", or -1.
inline int BytePieceValue(std::string_view piece) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  const int high = digit(piece[3]);
  const int low = digit(piece[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// `piece` with spaces for U+2581.
inline std::string WithSpaces(std::string_view piece) {
  std::string bytes;
  for (size_t i = 0; i < piece.size();) {
    const bool is_space = piece.substr(i).starts_with(kSpacePiece);
    bytes += is_space ? ' ' : piece[i];
    i += is_space ? kSpacePiece.size() : 1;
  }
  return bytes;
}

}  // namespace kvant
