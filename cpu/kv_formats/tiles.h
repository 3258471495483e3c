// How many tokens the cache keeps in a tile of keys and in a tile of values.
//
// Keys lie in tiles of kKeyTileTokens tokens, so that sixteen scores fill one vector without a
// horizontal sum; values in tiles of kValueTileTokens tokens.
#pragma once

namespace kvant::cpu {

inline constexpr int kKeyTileTokens = 16;
inline constexpr int kValueTileTokens = 4;

}  // namespace kvant::cpu
