// The automaton: a tree of the reversed tokens (nodes_[0] is its root) with fallback links set
// breadth first, so that every node's fallback is complete before the node is.
#include "engine/tokenizer/special_tokens.h"

#include <utility>

#include "engine/tokenizer/unicode.h"

namespace kvant {
namespace {

// The last character of a text that is not empty. A lone continuation byte is one.
Utf8Char LastCharacter(std::string_view text) {
  constexpr size_t kBytesMax = 4;
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < kBytesMax &&
         (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) {
    --begin;
  }
  const Utf8Char c = DecodeUtf8(text.substr(begin));
  return begin + c.size == text.size() ? c : Utf8Char();
}

std::string_view StripRight(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = LastCharacter(text);
    if (!IsWhiteSpace(c.code_point)) break;
    text.remove_suffix(c.size);
  }
  return text;
}

bool StandsAlone(std::string_view before, std::string_view after) {
  return (before.empty() || !IsWordCharacter(LastCharacter(before).code_point)) &&
         (after.empty() || !IsWordCharacter(DecodeUtf8(after).code_point));
}

std::string_view StripLeft(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = DecodeUtf8(text);
    if (!IsWhiteSpace(c.code_point)) break;
    text.remove_prefix(c.size);
  }
  return text;
}

}  // namespace

SpecialTokenMatcher::SpecialTokenMatcher(std::vector<SpecialToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  root_children_.fill(-1);
  for (size_t i = 0; i < tokens_.size(); ++i) Insert(static_cast<int32_t>(i));
  LinkFallbacks();
}

int32_t SpecialTokenMatcher::Child(int32_t node, uint8_t byte) const {
  if (node == 0) return root_children_[byte];
  int32_t child = nodes_[static_cast<size_t>(node)].first_child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].next_sibling;
  }
  return child;
}

void SpecialTokenMatcher::Insert(int32_t token) {
  const std::string_view text = tokens_[static_cast<size_t>(token)].text;
  if (text.empty()) return;
  int32_t node = 0;
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    int32_t child = Child(node, byte);
    if (child < 0) {
      child = static_cast<int32_t>(nodes_.size());
      Node& parent = nodes_[static_cast<size_t>(node)];
      Node added;
      added.byte = byte;
      added.next_sibling = parent.first_child;
      parent.first_child = child;
      if (node == 0) root_children_[byte] = child;
      nodes_.push_back(added);
    }
    node = child;
  }
  int32_t& found = nodes_[static_cast<size_t>(node)].token;
  if (found < 0) found = token;
}

void SpecialTokenMatcher::LinkFallbacks() {
  std::vector<int32_t> queue{0};
  for (size_t next = 0; next < queue.size(); ++next) {
    const int32_t parent = queue[next];
    int32_t child = nodes_[static_cast<size_t>(parent)].first_child;
    for (; child >= 0; child = nodes_[static_cast<size_t>(child)].next_sibling) {
      Node& node = nodes_[static_cast<size_t>(child)];
      int32_t fallback = parent;
      int32_t target = -1;
      while (fallback != 0 && target < 0) {
        fallback = nodes_[static_cast<size_t>(fallback)].fallback;
        target = Child(fallback, node.byte);
      }
      node.fallback = target < 0 ? 0 : target;
      if (node.token < 0) node.token = nodes_[static_cast<size_t>(node.fallback)].token;
      queue.push_back(child);
    }
  }
}

// The longest token that begins at `begin` and may stand there; `state` is the automaton's node
// there. The first range of `plain` is the first that ends behind `begin`.
int32_t SpecialTokenMatcher::LongestAllowed(int32_t state, size_t begin,
                                            std::span<const TextRange> plain) const {
  for (; state != 0; state = nodes_[static_cast<size_t>(state)].fallback) {
    const int32_t index = nodes_[static_cast<size_t>(state)].token;
    if (index < 0) return -1;
    const SpecialToken& token = tokens_[static_cast<size_t>(index)];
    if (!token.control || plain.empty() || plain[0].begin >= begin + token.text.size()) {
      return index;
    }
  }
  return -1;
}

std::vector<TextFragment> SpecialTokenMatcher::Split(std::string_view text,
                                                     std::span<const TextRange> plain) const {
  // Longest token at each position where one starts, last position first.
  std::vector<std::pair<size_t, int32_t>> matches;
  int32_t state = 0;
  size_t range = plain.size();  // the first that ends behind the place
  for (size_t i = text.size(); i-- > 0 && nodes_.size() > 1;) {
    while (range > 0 && plain[range - 1].end > i) --range;
    const auto byte = static_cast<uint8_t>(text[i]);
    int32_t child = Child(state, byte);
    while (child < 0 && state != 0) {
      state = nodes_[static_cast<size_t>(state)].fallback;
      child = Child(state, byte);
    }
    state = child < 0 ? 0 : child;
    const int32_t token = LongestAllowed(state, i, plain.subspan(range));
    if (token >= 0) matches.emplace_back(i, token);
  }

  std::vector<TextFragment> fragments;
  const auto add_text = [&](std::string_view part) {
    if (!part.empty()) fragments.push_back({part, nullptr});
  };
  size_t begin = 0;  // of the text not yet cut
  size_t free = 0;   // behind the previous token's name
  for (size_t k = matches.size(); k-- > 0;) {
    const auto [position, index] = matches[k];
    if (position < free) continue;
    const SpecialToken& token = tokens_[static_cast<size_t>(index)];
    free = position + token.text.size();
    if (token.single_word && !StandsAlone(text.substr(0, position), text.substr(free))) continue;
    if (position > begin) {
      const std::string_view before = text.substr(begin, position - begin);
      add_text(token.strip_left ? StripRight(before) : before);
    }
    fragments.push_back({text.substr(position, token.text.size()), &token});
    begin = free;
    if (token.strip_right) begin = text.size() - StripLeft(text.substr(free)).size();
  }
  add_text(text.substr(begin));
  return fragments;
}

}  // namespace kvant
