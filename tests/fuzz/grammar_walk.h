// A walk through a grammar for fuzz targets: every token that a mask allows can be taken, and there
// is always one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/matcher.h"
#include "engine/grammar/token_trie.h"

namespace kvant::test {

inline std::shared_ptr<const grammar::TokenTrie> FuzzTrie() {
  static const auto trie = [] {
    std::vector<std::string> texts = {"", "ab", "abc", "aa", "\"}", "\":", "  ", "\xc3\xa9x"};
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    return std::make_shared<const grammar::TokenTrie>(std::move(texts));
  }();
  return trie;
}

// Takes up to 20 tokens, which `choice` chooses among those that are allowed.
inline void WalkThrough(std::unique_ptr<grammar::Grammar> built, size_t choice) {
  grammar::Matcher matcher(std::move(built), FuzzTrie(), {0});
  std::vector<uint64_t> bits(grammar::Matcher::WordsFor(matcher.vocab()));
  grammar::MatchState state = matcher.Begin();
  for (size_t step = 0; step < 20 && !state.has_ended; ++step) {
    if (!matcher.Mask(state, bits).ok()) return;
    std::vector<TokenId> allowed;
    for (size_t token = 0; token < matcher.vocab(); ++token) {
      if ((bits[token / 64] >> (token % 64) & 1) != 0) {
        allowed.push_back(static_cast<TokenId>(token));
      }
    }
    // A grammar that is built has a text: there is always a way on, or an end.
    if (allowed.empty()) __builtin_trap();
    const auto taken = matcher.Advance(state, allowed[(choice + step * 7) % allowed.size()]);
    if (!taken.ok()) return;
    if (!*taken) __builtin_trap();
  }
}

}  // namespace kvant::test
