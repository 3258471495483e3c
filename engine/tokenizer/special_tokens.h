// Finds the tokens that are matched as a whole before anything else is done to a text: control
// tokens such as <|im_end|> (only where the caller asks for them) and user-defined tokens (always).
//
// Where several match, the leftmost wins, and of those the longest, as in Hugging Face's added
// tokens. (llama.cpp takes the longest of the whole text first; the two differ only for tokens that
// overlap partly, such as "ab" and "bcd" in "abcd".) A token that must stand alone and does not is
// text, and no shorter token is looked for within it. The white space that a token takes along may
// hold tokens that are made of white space. Both are so in the tokenizers library.
//
// The search is an Aho-Corasick automaton over the reversed tokens that reads the text backwards:
// after reading back to position i it knows the longest token that starts at i. Time is linear in
// the text, whatever the tokens are.
// Thread-safety: const after construction.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvant/text_range.h"
#include "kvant/tokenizer.h"

namespace kvant {

struct SpecialToken {
  TokenId id = 0;
  std::string_view text;
  bool strip_left = false;   // white space before it belongs to it
  bool strip_right = false;  // white space after it belongs to it
  bool single_word = false;  // not found beside a letter, digit or mark
  bool control = false;      // not found in what the caller calls plain text
};

// A piece of a text: a special token, or text (`token` null) to be tokenized in the ordinary way.
struct TextFragment {
  std::string_view text;
  const SpecialToken* token = nullptr;
};

class SpecialTokenMatcher {
 public:
  SpecialTokenMatcher() : SpecialTokenMatcher(std::vector<SpecialToken>{}) {}

  // Where tokens have the same text, the first is found; a token without text never is. The texts
  // must outlive the matcher.
  explicit SpecialTokenMatcher(std::vector<SpecialToken> tokens);

  // The pieces of `text` in order, none empty. They refer to `text` and to this matcher. No control
  // token has a byte in the ranges of `plain`, which are ascending and disjoint.
  std::vector<TextFragment> Split(std::string_view text,
                                  std::span<const TextRange> plain = {}) const;

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t fallback = 0;  // the node of the longest proper suffix that is in the tree
    int32_t token = -1;    // index of the longest token that ends here, fallbacks included
    uint8_t byte = 0;
  };
  int32_t LongestAllowed(int32_t state, size_t begin, std::span<const TextRange> plain) const;
  int32_t Child(int32_t node, uint8_t byte) const;
  void Insert(int32_t token);
  void LinkFallbacks();

  std::vector<SpecialToken> tokens_;
  std::vector<Node> nodes_;
  std::array<int32_t, 256> root_children_;
};

}  // namespace kvant
