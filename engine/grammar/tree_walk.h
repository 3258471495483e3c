// Which tokens stay within the terminals of a state of the lexer, and where in the tree of tokens
// terminals end.
//
// Most of a vocabulary is plain text, and most states that read text soon become one that reads any
// text, such as the inside of a string. Such a state, which letters lead back to itself, is a loop:
// the walk from it is kept. Another walk is made beside that of a loop, in step with it. Below a
// node at which both are in one state, it takes what the loop's walk has found there. So the walk
// from a state that excludes a few names looks at these names only, and what it finds is kept as
// the difference from the loop. Counts do not matter below a node that no token passes by more
// bytes than they leave.
//
// Thread-safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/grammar/byte_regex.h"
#include "engine/grammar/lexer.h"
#include "engine/grammar/token_trie.h"

namespace kvant::grammar {

inline constexpr size_t kLexStatesMax = 100'000;
inline constexpr size_t kLexExprsMax = 2'000'000;

class TreeWalk {
 public:
  // All must outlive the walk.
  TreeWalk(const TokenTrie& trie, Lexer& lexer, RegexPool& pool);

  // The walk from a loop.
  struct Loop {
    LexState state = kDeadState;
    std::vector<uint64_t> tokens;  // a bit each
    std::vector<uint32_t> ends;    // nodes where the terminal ends, ascending
  };

  // The tokens of a loop, if there is one, without some and with others.
  struct Found {
    const Loop* base = nullptr;  // until Forget
    std::vector<TokenId> without = {};
    std::vector<TokenId> few = {};
    std::vector<uint64_t> bits = {};  // or all tokens as bits
    // Nodes where terminals end, with tokens below them, by the list of terminals.
    std::vector<std::pair<uint32_t, std::vector<uint32_t>>> ends = {};
  };

  // All tokens, from a state on; or those below some nodes at which the lexer is in the state.
  Found All(LexState lex);
  Found Below(std::span<const uint32_t> places, LexState lex);

  // Whether there are more states than a grammar may take. Walks then end early.
  bool is_too_large() const { return lexer_.size() > kLexStatesMax || pool_.size() > kLexExprsMax; }
  // Bytes that the kept walks take, and forgetting them.
  size_t bytes() const;
  void Forget();

 private:
  struct Range {
    uint32_t begin, end;  // nodes
  };
  // A state that reads one expression, perhaps for several terminals.
  struct Facts {
    ExprId expr = RegexPool::kNothing;  // kNothing: it reads several
    TerminalId terminal = 0;
    ExprId far = RegexPool::kNothing;  // without the count in front; kNothing: there is none
    uint32_t bytes = 0;                // up to which `far` reads the same
  };
  // Knowledge of a state is one of these, or kFar and a place in fars_.
  enum Kept : uint32_t { kNotLookedAt, kSeveral, kNear, kFar };

  Facts FactsOf(LexState state);
  uint32_t LookAt(LexState state);
  LexState LoopStateOf(LexState state, uint32_t height);
  LexState LoopStateOfExpr(TerminalId terminal, ExprId expr);
  const Loop& LoopAt(LexState state);
  std::unique_ptr<Loop> MakeLoop(LexState state);
  void ListPlainBytes();
  bool TakesPlainText(LexState state) const;
  bool VisitInLoop(uint32_t number, Loop& loop);
  enum class Borrowing : uint8_t { kNone, kAllowed };
  void Walk(Range range, uint32_t depth, LexState lex, Borrowing borrowing);
  uint32_t HeightOf(const TokenTrie::Node& node) const;
  bool TakeBase(const TokenTrie::Node& node, LexState next);
  bool Follow(const TokenTrie::Node& node, LexState next);
  void StepBase(const TokenTrie::Node& node);
  void AddEnd(uint32_t ends, uint32_t node);
  void Borrow(const Loop& loop, LexState state, Range range);
  Found TakeFound();
  Found TakeFromBase();
  void SetToken(std::span<uint64_t> bits, TokenId token) const;

  const TokenTrie& trie_;
  Lexer& lexer_;
  RegexPool& pool_;
  std::unordered_map<ExprId, LexState> loop_states_;  // kDeadState: it is no loop
  std::unordered_map<LexState, std::unique_ptr<Loop>> loops_;
  std::vector<uint32_t> kept_;                     // [LexState] Kept
  std::vector<std::pair<ExprId, uint32_t>> fars_;  // Facts::far and bytes
  size_t loop_bytes_ = 0;

  // For each state of plain text, bytes that it goes on with, one of each class, and its next one.
  std::array<std::vector<std::pair<uint8_t, PlainText::State>>, PlainText::kStates> plain_bytes_;

  // The walk under way.
  std::vector<LexState> walked_;  // by depth
  std::vector<uint8_t> path_;     // by depth, the byte that leads there
  std::vector<TokenId> found_;
  std::vector<Range> dead_;          // below which nothing is found, and the loop finds something
  const Loop* base_ = nullptr;       // beside which the walk is made
  std::vector<LexState> base_walk_;  // the states of the loop's walk, by depth
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>> ends_;
};

}  // namespace kvant::grammar
