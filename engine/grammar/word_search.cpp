#include "engine/grammar/word_search.h"

namespace kvant::grammar {

WordSearch::WordSearch(std::span<const std::string> words) : next_(1), words_(1, -1) {
  // The tree of the words; 0 is the root, to which nothing leads.
  for (size_t word = 0; word < words.size(); ++word) {
    State state = 0;
    for (const char letter : words[word]) {
      const auto byte = static_cast<uint8_t>(letter);
      if (next_[state][byte] == 0) {
        next_[state][byte] = static_cast<uint16_t>(next_.size());
        next_.emplace_back();
        words_.push_back(-1);
      }
      state = next_[state][byte];
    }
    if (state != 0 && words_[state] < 0) words_[state] = static_cast<int32_t>(word);
  }
  // In order of depth: where the tree ends, a state goes on as the longest proper end of its text.
  std::vector<State> suffix(next_.size(), 0);
  std::vector<State> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const State state = order[i];
    for (size_t byte = 0; byte < 256; ++byte) {
      const State child = next_[state][byte];
      const State other = state == 0 ? 0 : next_[suffix[state]][byte];
      if (child == 0) {
        next_[state][byte] = static_cast<uint16_t>(other);
        continue;
      }
      suffix[child] = other;
      if (words_[child] < 0) words_[child] = words_[other];
      order.push_back(child);
    }
  }
}

}  // namespace kvant::grammar
