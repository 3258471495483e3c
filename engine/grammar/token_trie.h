// A vocabulary as a tree of bytes: tokens that begin alike share the nodes of their beginning, so
// that a walk over the tree looks at each beginning once.
//
// Nodes stand in depth-first order; the nodes below one follow it, up to its end. Tokens without
// bytes, control tokens and tokens that end a text are not in the tree.
//
// Most tokens are plain: whole characters, none of which a JSON string must escape. They are ready
// as bits, for all grammars, and so is the tree of the other tokens, which is a fraction of the
// whole. Thread-safety: const.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvant/token_id.h"

namespace kvant {
class Tokenizer;
}  // namespace kvant

namespace kvant::grammar {

class TokenTrie {
 public:
  struct Node {
    uint32_t end;    // the node behind all that are below this one
    TokenId token;   // whose last byte this is, or -1; others with the same bytes: NextAlike
    uint16_t depth;  // 1 for the first byte of tokens
    uint8_t byte;
    uint8_t height;  // bytes that the longest token below has behind this node, up to 255
  };

  // The plain tokens, and a tree of all others.
  struct PlainTokens {
    struct Place {
      uint32_t node;  // in nodes()
      uint32_t end;   // the place behind all that are below this one
    };
    std::vector<uint64_t> bits;     // [vocab / 64]
    std::vector<uint64_t> between;  // [nodes / 64] the nodes behind whole plain characters
    std::vector<Place> others;      // in depth-first order
  };

  // texts[i]: the bytes of token i, empty for a token that is not text. Longer ones than kBytesMax
  // are left out.
  explicit TokenTrie(std::vector<std::string> texts);
  // The tokens that texts are made of.
  explicit TokenTrie(const Tokenizer& tokenizer);

  static constexpr size_t kBytesMax = 1024;

  std::span<const Node> nodes() const { return nodes_; }
  std::string_view text(TokenId token) const { return texts_[static_cast<size_t>(token)]; }
  TokenId NextAlike(TokenId token) const { return next_alike_[static_cast<size_t>(token)]; }
  const PlainTokens& plain() const { return plain_; }
  size_t vocab() const { return texts_.size(); }
  // The token with the longest text that `text` begins with; -1: there is none.
  TokenId LongestIn(std::string_view text) const;
  // Whether a token's text begins with `text` and goes on.
  bool HasLonger(std::string_view text) const;
  // The longest text of a token.
  uint32_t bytes_max() const { return bytes_max_; }

 private:
  void FindPlainTokens();
  template <class Pass>
  size_t Walk(std::string_view text, const Pass& pass) const;

  std::vector<std::string> texts_;
  std::vector<Node> nodes_;
  std::vector<TokenId> next_alike_;  // [vocab] -1: none
  uint32_t bytes_max_ = 0;
  PlainTokens plain_;
};

// Reads plain text byte by byte: well-formed UTF-8 of characters that a JSON string need not
// escape.
class PlainText {
 public:
  enum State : uint8_t {
    kBetween,  // characters
    kOne,      // so many bytes of a character are to come
    kTwo,
    kThree,
    kAfterE0,  // whose next byte has a range of its own
    kAfterEd,
    kAfterF0,
    kAfterF4,
    kNone,  // no plain text
  };
  static constexpr size_t kStates = kNone;

  static State Next(State state, uint8_t byte);
};

}  // namespace kvant::grammar
