// Which tokens may follow a text under a grammar.
//
// A Matcher has everything of a grammar and a vocabulary that texts share; it grows while it is
// used. A text has a MatchState, which is small and a plain value: to fork a text or to take tokens
// back, copy one.
//
// The tokens that stay within one terminal depend on the terminal's state alone, not on the parser:
// they are found once and kept, up to kKeptBytesMax. Where a terminal ends inside tokens, the
// places in the tree of tokens are kept by which terminals end there, so that the parser is asked
// once for all of them, and what follows is a set that is kept, too.
//
// Thread-safety: all functions of a Matcher may run concurrently; a state belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/id_table.h"
#include "engine/grammar/lexer.h"
#include "engine/grammar/rows.h"
#include "engine/grammar/token_trie.h"
#include "engine/grammar/tree_walk.h"

namespace kvant::grammar {

struct MatchState {
  struct Reading {
    LexState lex;
    RowId row;          // where the terminals began
    uint32_t lent = 0;  // units of the state's counts (Lexer::Settle)
    auto operator<=>(const Reading&) const = default;
  };
  std::vector<Reading> readings;
  RowId here = kNoRow;   // the row of this place, if a terminal has ended here
  bool accepts = false;  // whether the text may end
  bool has_ended = false;

  bool operator==(const MatchState&) const = default;
};

class Matcher {
 public:
  // `end_tokens`: those that may follow a complete text.
  Matcher(std::unique_ptr<Grammar> grammar, std::shared_ptr<const TokenTrie> trie,
          std::vector<TokenId> end_tokens);

  MatchState Begin() const { return begin_; }
  // As Begin, for a text that a few blanks may come before.
  MatchState BeginBehindBlanks() const { return begin_behind_blanks_; }

  // Whether the text may go on with these bytes, or with this token. The state moves on; after
  // false it is as it was. kNotSupported where the grammar takes too many states.
  Result<bool> AdvanceBytes(MatchState& state, std::string_view bytes);
  Result<bool> Advance(MatchState& state, TokenId token);

  // Sets a bit for each token that may follow, in words of 64, and clears the others.
  // bits: [WordsFor(vocab)]. kNotSupported as above.
  Status Mask(const MatchState& state, std::span<uint64_t> bits);
  // Sets the bits of the tokens below a node of the tree that may follow, without the bytes up to
  // the node, and clears none.
  Status AllowBelow(uint32_t node, const MatchState& state, std::span<uint64_t> bits);

  // The bytes that follow in any case, at most `most`.
  std::string ForcedBytes(MatchState state, size_t most);
  // Whether the text is complete and nothing may follow it.
  bool IsOver(const MatchState& state);

  static constexpr size_t WordsFor(size_t vocab) { return (vocab + 63) / 64; }
  size_t vocab() const { return trie_->vocab(); }
  const TokenTrie& trie() const { return *trie_; }
  std::span<const TokenId> end_tokens() const { return end_tokens_; }

  // Bytes of memory: of the grammar and its automata, and of walks that are kept. What is kept is
  // forgotten before the first mask that finds more than kKeptBytesMax.
  struct Bytes {
    size_t automata = 0;
    size_t kept = 0;
  };
  Bytes bytes();
  static constexpr size_t kKeptBytesMax = size_t{1} << 20;

 private:
  using NodeListId = uint32_t;

  // The tokens below the nodes of a list, from a state of the lexer on.
  struct Reach {
    const TreeWalk::Loop* base = nullptr;  // all tokens of a loop,
    std::vector<TokenId> without;          // but for these,
    std::vector<TokenId> few;              // and these
    std::vector<uint64_t> bits;            // or all as bits
    // Nodes where terminals end, with tokens below them, by the list of terminals.
    std::vector<std::pair<uint32_t, NodeListId>> ends;
  };
  NodeListId ListOf(std::vector<uint32_t> places);

  MatchState AtRow(RowId row) const;
  bool AdvanceByte(MatchState& state, uint8_t byte);
  int NextBytes(const MatchState& state, uint8_t& byte);
  const Reach& ReachOf(NodeListId list, LexState lex);
  void AddBase(const Reach& reach, std::span<uint64_t> bits);
  void Add(NodeListId list, LexState lex, RowId row, std::span<uint64_t> bits);
  void AddTokens(const TokenSet& set, std::span<uint64_t> bits) const;
  bool IsTooLarge() const;
  Status CheckSize() const;
  size_t KeptBytes() const;
  void MakeRoom();

  std::mutex mutex_;
  std::unique_ptr<Grammar> grammar_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<TokenId> end_tokens_;
  RegexPool& pool_;  // of the grammar
  Lexer lexer_;
  Rows rows_;
  TreeWalk walk_;
  MatchState begin_;
  MatchState begin_behind_blanks_;

  std::vector<std::vector<uint32_t>> lists_;
  IdTable by_places_;
  std::unordered_map<uint64_t, std::unique_ptr<Reach>> reaches_;
  size_t reach_bytes_ = 0;

  std::vector<std::pair<NodeListId, RowId>> visited_;  // by the mask under way
  std::vector<TokenId> cleared_;                       // scratch of AddBase
};

}  // namespace kvant::grammar
