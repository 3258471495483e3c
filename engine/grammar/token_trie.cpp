#include "engine/grammar/token_trie.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kvant/tokenizer.h"

namespace kvant::grammar {
namespace {

std::vector<std::string> TextsOf(const Tokenizer& tokenizer) {
  std::vector<std::string> texts(static_cast<size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool is_text = !tokenizer.is_control(id) && !tokenizer.is_end_of_generation(id);
    if (is_text) texts[static_cast<size_t>(id)] = tokenizer.TokenBytes(id, {});
  }
  return texts;
}

}  // namespace

PlainText::State PlainText::Next(State state, uint8_t byte) {
  const auto is_in = [byte](int first, int last) { return byte >= first && byte <= last; };
  switch (state) {
    case kBetween:
      if (is_in(0x20, 0x7e)) return byte == '"' || byte == '\\' ? kNone : kBetween;
      if (is_in(0xc2, 0xdf)) return kOne;
      if (byte == 0xe0) return kAfterE0;
      if (byte == 0xed) return kAfterEd;
      if (is_in(0xe1, 0xef)) return kTwo;
      if (byte == 0xf0) return kAfterF0;
      if (is_in(0xf1, 0xf3)) return kThree;
      return byte == 0xf4 ? kAfterF4 : kNone;
    case kOne: return is_in(0x80, 0xbf) ? kBetween : kNone;
    case kTwo: return is_in(0x80, 0xbf) ? kOne : kNone;
    case kThree: return is_in(0x80, 0xbf) ? kTwo : kNone;
    case kAfterE0: return is_in(0xa0, 0xbf) ? kOne : kNone;
    case kAfterEd: return is_in(0x80, 0x9f) ? kOne : kNone;
    case kAfterF0: return is_in(0x90, 0xbf) ? kTwo : kNone;
    case kAfterF4: return is_in(0x80, 0x8f) ? kTwo : kNone;
    case kNone: break;
  }
  return kNone;
}

void TokenTrie::FindPlainTokens() {
  plain_.bits.resize((vocab() + 63) / 64);
  plain_.between.resize((nodes_.size() + 63) / 64);
  std::vector<PlainText::State> states(size_t{bytes_max_} + 1, PlainText::kBetween);  // by depth
  std::vector<uint32_t> above;
  std::vector<bool> is_kept(nodes_.size());  // another token ends there or below
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    states[node.depth] = PlainText::Next(states[node.depth - 1u], node.byte);
    const bool is_plain = states[node.depth] == PlainText::kBetween;
    if (is_plain) plain_.between[i / 64] |= uint64_t{1} << (i % 64);
    above.resize(node.depth - 1u);
    above.push_back(i);
    if (node.token < 0) continue;
    for (TokenId token = node.token; token >= 0 && is_plain; token = NextAlike(token)) {
      plain_.bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    }
    for (size_t k = above.size(); !is_plain && k-- > 0 && !is_kept[above[k]];) {
      is_kept[above[k]] = true;
    }
  }
  std::vector<uint32_t> path;  // places that are not closed
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (!is_kept[i]) continue;
    const auto next = static_cast<uint32_t>(plain_.others.size());
    for (size_t k = nodes_[i].depth - 1u; k < path.size(); ++k) plain_.others[path[k]].end = next;
    path.resize(nodes_[i].depth - 1u);
    path.push_back(next);
    plain_.others.push_back({i, 0});
  }
  for (const uint32_t place : path) {
    plain_.others[place].end = static_cast<uint32_t>(plain_.others.size());
  }
}

TokenTrie::TokenTrie(const Tokenizer& tokenizer) : TokenTrie(TextsOf(tokenizer)) {}

TokenTrie::TokenTrie(std::vector<std::string> texts) : texts_(std::move(texts)) {
  std::vector<TokenId> order;
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (!texts_[i].empty() && texts_[i].size() <= kBytesMax) {
      order.push_back(static_cast<TokenId>(i));
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [this](TokenId a, TokenId b) { return text(a) < text(b); });
  next_alike_.assign(texts_.size(), -1);
  std::vector<uint32_t> path;  // the nodes of the text before
  std::string_view before;
  TokenId last_alike = -1;
  for (const TokenId token : order) {
    const std::string_view bytes = text(token);
    bytes_max_ = std::max(bytes_max_, static_cast<uint32_t>(bytes.size()));
    if (bytes == before) {
      next_alike_[static_cast<size_t>(last_alike)] = token;
      last_alike = token;
      continue;
    }
    const size_t shared = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), bytes.begin(), bytes.end()).first -
        before.begin());
    const auto next = static_cast<uint32_t>(nodes_.size());
    for (size_t i = shared; i < path.size(); ++i) nodes_[path[i]].end = next;
    path.resize(shared);
    for (size_t i = shared; i < bytes.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, -1, static_cast<uint16_t>(i + 1), static_cast<uint8_t>(bytes[i]), 0});
    }
    nodes_.back().token = token;
    last_alike = token;
    before = bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  // Backwards, so that what is below a node is known before it; each tells the one above.
  std::vector<uint8_t> below(size_t{bytes_max_} + 2, 0);  // by depth
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& node = nodes_[i];
    node.height = std::exchange(below[node.depth + 1u], uint8_t{0});
    const auto height = static_cast<uint8_t>(std::min(node.height + 1, 255));
    below[node.depth] = std::max(below[node.depth], height);
  }
  FindPlainTokens();
}

// Goes down the tree as far as it spells `text`. Calls `pass` with each node; returns how many.
template <class Pass>
size_t TokenTrie::Walk(std::string_view text, const Pass& pass) const {
  auto begin = uint32_t{0};
  auto end = static_cast<uint32_t>(nodes_.size());
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t node = begin;
    while (node < end && nodes_[node].byte != static_cast<uint8_t>(text[i]))
      node = nodes_[node].end;
    if (node >= end) return i;
    pass(nodes_[node]);
    begin = node + 1;
    end = nodes_[node].end;
  }
  return text.size();
}

TokenId TokenTrie::LongestIn(std::string_view text) const {
  TokenId longest = -1;
  Walk(text, [&](const Node& node) {
    if (node.token >= 0) longest = node.token;
  });
  return longest;
}

bool TokenTrie::HasLonger(std::string_view text) const {
  uint8_t height = 0;
  return Walk(text, [&](const Node& node) { height = node.height; }) == text.size() && height > 0;
}

}  // namespace kvant::grammar
