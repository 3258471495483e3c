#include "engine/grammar/tree_walk.h"

#include <algorithm>
#include <array>
#include <utility>

namespace kvant::grammar {
namespace {

size_t WordsOf(size_t bits) { return (bits + 63) / 64; }

bool HasBit(std::span<const uint64_t> bits, uint32_t place) {
  return (bits[place / 64] >> (place % 64) & 1) != 0;
}

}  // namespace

TreeWalk::TreeWalk(const TokenTrie& trie, Lexer& lexer, RegexPool& pool)
    : trie_(trie),
      lexer_(lexer),
      pool_(pool),
      walked_(trie.bytes_max() + 1),
      path_(trie.bytes_max() + 1),
      base_walk_(trie.bytes_max() + 1) {
  ListPlainBytes();
}

// For all tokens with the same bytes.
void TreeWalk::SetToken(std::span<uint64_t> bits, TokenId token) const {
  for (; token >= 0; token = trie_.NextAlike(token)) {
    const auto place = static_cast<size_t>(token);
    bits[place / 64] |= uint64_t{1} << (place % 64);
  }
}

size_t TreeWalk::bytes() const {
  constexpr size_t kMapNode = 40;  // an entry of a map, with its bucket
  return loop_bytes_ + (loops_.size() + loop_states_.size()) * kMapNode +
         kept_.capacity() * sizeof(kept_[0]) + fars_.capacity() * sizeof(fars_[0]);
}

void TreeWalk::Forget() {
  loops_.clear();
  loop_states_.clear();
  kept_ = {};
  fars_ = {};
  loop_bytes_ = 0;
}

// ---- Loops --------------------------------------------------------------------------------------

TreeWalk::Facts TreeWalk::FactsOf(LexState state) {
  uint32_t kept = state < kept_.size() ? kept_[state] : kNotLookedAt;
  if (kept == kNotLookedAt) kept = LookAt(state);
  if (kept == kSeveral) return {};
  const auto& [terminal, expr] = lexer_.FirstReadingOf(state);
  if (kept == kNear) return {expr, terminal};
  const auto& [far, bytes] = fars_[kept - kFar];
  return {expr, terminal, far, bytes};
}

// Terminals that read the same are one.
uint32_t TreeWalk::LookAt(LexState state) {
  if (state >= kept_.size()) {
    GrowByQuarter(kept_, state + 1 - kept_.size());
    kept_.resize(size_t{state} + 1, kNotLookedAt);
  }
  const std::span readings = lexer_.ReadingsOf(state);
  const bool is_one = !readings.empty() && std::ranges::all_of(readings, [&](const auto& reading) {
    return reading.second == readings[0].second;
  });
  if (!is_one) return kept_[state] = kSeveral;
  const ExprId expr = readings[0].second;
  const uint32_t bytes = pool_.FrontCount(expr);
  const ExprId far = bytes == kNoLimit ? expr : pool_.Clamp(expr, bytes);
  if (far == expr) return kept_[state] = kNear;
  GrowByQuarter(fars_, 1);
  fars_.emplace_back(far, bytes);
  return kept_[state] = kFar + static_cast<uint32_t>(fars_.size() - 1);
}

// The state of the loop that a state is, for tokens of so many bytes; kDeadState: it is none.
LexState TreeWalk::LoopStateOf(LexState state, uint32_t height) {
  const Facts facts = FactsOf(state);
  if (facts.expr == RegexPool::kNothing) return kDeadState;
  const LexState loop = LoopStateOfExpr(facts.terminal, facts.expr);
  if (loop != kDeadState || facts.far == RegexPool::kNothing || height > facts.bytes) return loop;
  return LoopStateOfExpr(facts.terminal, facts.far);
}

LexState TreeWalk::LoopStateOfExpr(TerminalId terminal, ExprId expr) {
  const auto known = loop_states_.find(expr);
  if (known != loop_states_.end()) return known->second;
  const LexState state = lexer_.StateOf(terminal, expr);
  int letters = 0;
  for (const char byte : {'a', 'e', 'n', 't'}) {
    letters += lexer_.Next(state, static_cast<uint8_t>(byte)) == state ? 1 : 0;
  }
  return loop_states_.emplace(expr, letters >= 2 ? state : kDeadState).first->second;
}

const TreeWalk::Loop& TreeWalk::LoopAt(LexState state) {
  std::unique_ptr<Loop>& loop = loops_[state];
  if (loop == nullptr) loop = MakeLoop(state);
  return *loop;
}

void TreeWalk::ListPlainBytes() {
  for (size_t state = 0; state < PlainText::kStates; ++state) {
    std::vector<std::pair<uint8_t, PlainText::State>> seen;
    for (int byte = 0; byte < 256; ++byte) {
      const auto value = static_cast<uint8_t>(byte);
      const auto next = PlainText::Next(static_cast<PlainText::State>(state), value);
      const std::pair kind(lexer_.ClassOf(value), next);
      if (next == PlainText::kNone || std::find(seen.begin(), seen.end(), kind) != seen.end()) {
        continue;
      }
      seen.push_back(kind);
      plain_bytes_[state].emplace_back(value, next);
    }
  }
}

// Whether every plain character leads from the state back to it, and no terminal ends meanwhile.
bool TreeWalk::TakesPlainText(LexState state) const {
  std::vector<std::pair<LexState, PlainText::State>> places = {{state, PlainText::kBetween}};
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [from, plain] = places[i];
    for (const auto& [byte, next_plain] : plain_bytes_[plain]) {
      const LexState next = lexer_.Next(from, byte);
      if (next == kDeadState || lexer_.EndsAt(next) != 0) return false;
      const std::pair place(next, next_plain);
      if (next_plain == PlainText::kBetween) {
        if (next != state) return false;
      } else if (std::find(places.begin(), places.end(), place) == places.end()) {
        places.push_back(place);
      }
    }
  }
  return true;
}

// Notes what a node adds to a loop, of which the node above has been visited; false if the terminal
// does not go on to it.
bool TreeWalk::VisitInLoop(uint32_t number, Loop& loop) {
  const TokenTrie::Node& node = trie_.nodes()[number];
  const LexState next = lexer_.Next(base_walk_[node.depth - 1u], node.byte);
  if (next == kDeadState) return false;
  base_walk_[node.depth] = next;
  if (node.token >= 0) SetToken(loop.tokens, node.token);
  if (node.end > number + 1 && lexer_.EndsAt(next) != 0) loop.ends.push_back(number);
  return true;
}

std::unique_ptr<TreeWalk::Loop> TreeWalk::MakeLoop(LexState state) {
  auto loop = std::make_unique<Loop>();
  loop->state = state;
  const std::span nodes = trie_.nodes();
  base_walk_[0] = state;
  const TokenTrie::PlainTokens& plain = trie_.plain();
  if (TakesPlainText(state)) {
    loop->tokens = plain.bits;
    for (uint32_t i = 0; i < plain.others.size() && !((i % 64) == 0 && is_too_large());) {
      i = VisitInLoop(plain.others[i].node, *loop) ? i + 1 : plain.others[i].end;
    }
  } else {
    loop->tokens.resize(WordsOf(trie_.vocab()));
    for (uint32_t i = 0; i < nodes.size() && !((i % 64) == 0 && is_too_large());) {
      i = VisitInLoop(i, *loop) ? i + 1 : nodes[i].end;
    }
  }
  loop->ends.shrink_to_fit();
  loop_bytes_ +=
      sizeof(Loop) + loop->tokens.size() * sizeof(uint64_t) + loop->ends.size() * sizeof(uint32_t);
  return loop;
}

// ---- Walks --------------------------------------------------------------------------------------

void TreeWalk::AddEnd(uint32_t ends, uint32_t node) {
  size_t group = 0;
  while (group < ends_.size() && ends_[group].first != ends) ++group;
  if (group == ends_.size()) ends_.push_back({ends, {}});
  ends_[group].second.push_back(node);
}

// Takes over what the loop's walk found in a range, where the state's walk would find the like.
void TreeWalk::Borrow(const Loop& loop, LexState state, Range range) {
  const auto begin = std::ranges::lower_bound(loop.ends, range.begin);
  const auto end = std::lower_bound(begin, loop.ends.end(), range.end);
  if (begin == end) return;
  const uint32_t ends = lexer_.TerminalsOf(state);
  for (auto it = begin; it != end; ++it) AddEnd(ends, *it);
}

// Heights of nodes are counted up to 255.
uint32_t TreeWalk::HeightOf(const TokenTrie::Node& node) const {
  return node.height < UINT8_MAX ? node.height : trie_.bytes_max();
}

// Makes the step of the loop's walk to a node.
void TreeWalk::StepBase(const TokenTrie::Node& node) {
  base_walk_[node.depth] = lexer_.Next(base_walk_[node.depth - 1u], node.byte);
}

// Takes a loop as the one beside which the walk is made, if its walk is in its state here, too.
bool TreeWalk::TakeBase(const TokenTrie::Node& node, LexState next) {
  const LexState state = LoopStateOf(next, HeightOf(node));
  if (state == kDeadState) return false;
  LexState there = state;
  for (uint32_t depth = 1; depth <= node.depth; ++depth) there = lexer_.Next(there, path_[depth]);
  if (there != state) return false;
  base_ = &LoopAt(state);
  base_walk_[0] = state;
  for (uint32_t depth = 1; depth <= node.depth; ++depth) {
    base_walk_[depth] = lexer_.Next(base_walk_[depth - 1u], path_[depth]);
  }
  return true;
}

// Whether the loop's walk is at this node in the state of the walk, for the tokens below it.
bool TreeWalk::Follow(const TokenTrie::Node& node, LexState next) {
  if (base_ == nullptr) return TakeBase(node, next);
  const LexState there = base_walk_[node.depth];
  if (there == kDeadState) return false;
  const ExprId expr = FactsOf(there).expr;
  const Facts facts = FactsOf(next);
  if (facts.expr == RegexPool::kNothing) return false;
  return facts.expr == expr || (facts.far == expr && HeightOf(node) <= facts.bytes);
}

// Walks over the nodes of a range, which are below a node of this depth, as far as terminals
// go on.
void TreeWalk::Walk(Range range, uint32_t depth, LexState lex, Borrowing borrowing) {
  const bool may_borrow = borrowing == Borrowing::kAllowed;
  const std::span nodes = trie_.nodes();
  walked_[depth] = lex;
  for (uint32_t i = range.begin; i < range.end && !((i % 64) == 0 && is_too_large());) {
    const TokenTrie::Node& node = nodes[i];
    const LexState next = lexer_.Next(walked_[node.depth - 1u], node.byte);
    if (may_borrow && base_ != nullptr) StepBase(node);
    if (next == kDeadState) {
      const bool is_in_base = base_ == nullptr || base_walk_[node.depth] != kDeadState;
      if (may_borrow && is_in_base) dead_.push_back({i, node.end});
      i = node.end;
      continue;
    }
    walked_[node.depth] = next;
    path_[node.depth] = node.byte;
    if (node.token >= 0) found_.push_back(node.token);
    if (node.end == i + 1) {
      ++i;
      continue;
    }
    const uint32_t ends = lexer_.EndsAt(next);
    if (ends != 0) AddEnd(ends, i);
    if (may_borrow && Follow(node, next)) {
      Borrow(*base_, next, {i + 1, node.end});
      i = node.end;
      continue;
    }
    ++i;
  }
}

// Hands on the difference from the loop, or bits where that is large.
TreeWalk::Found TreeWalk::TakeFromBase() {
  Found out;
  out.base = base_;
  const auto add = [&](std::vector<TokenId>& list, TokenId token, bool is_in_base) {
    for (; token >= 0; token = trie_.NextAlike(token)) {
      if (HasBit(base_->tokens, static_cast<uint32_t>(token)) == is_in_base) list.push_back(token);
    }
  };
  for (const Range& range : dead_) {
    for (uint32_t i = range.begin; i < range.end; ++i)
      add(out.without, trie_.nodes()[i].token, true);
  }
  for (const TokenId token : found_) add(out.few, token, false);
  const size_t words = WordsOf(trie_.vocab());
  if ((out.without.size() + out.few.size()) * sizeof(TokenId) < words * sizeof(uint64_t)) {
    return out;
  }
  out.base = nullptr;
  out.bits = base_->tokens;
  for (const TokenId token : std::exchange(out.without, {})) {
    out.bits[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64));
  }
  for (const TokenId token : std::exchange(out.few, {})) {
    out.bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  }
  return out;
}

TreeWalk::Found TreeWalk::TakeFound() {
  Found out;
  const size_t words = WordsOf(trie_.vocab());
  if (base_ != nullptr) {
    out = TakeFromBase();
  } else if (found_.size() * sizeof(TokenId) >= words * sizeof(uint64_t)) {
    out.bits.resize(words);
    for (const TokenId token : found_) SetToken(out.bits, token);
  } else {
    for (TokenId token : found_) {
      for (; token >= 0; token = trie_.NextAlike(token)) out.few.push_back(token);
    }
  }
  out.ends = std::move(ends_);
  ends_.clear();
  return out;
}

TreeWalk::Found TreeWalk::All(LexState lex) {
  found_.clear();
  dead_.clear();
  base_ = nullptr;
  const auto end = static_cast<uint32_t>(trie_.nodes().size());
  LexState loop = LoopStateOf(lex, UINT32_MAX);
  if (loop != kDeadState) {
    base_ = &LoopAt(loop);
    Borrow(*base_, lex, {0, end});
    return TakeFound();
  }
  // A loop but for a far count is one that the whole walk can be made beside.
  loop = LoopStateOf(lex, 0);
  if (loop != kDeadState) {
    base_ = &LoopAt(loop);
    base_walk_[0] = loop;
  }
  Walk({0, end}, 0, lex, Borrowing::kAllowed);
  return TakeFound();
}

TreeWalk::Found TreeWalk::Below(std::span<const uint32_t> places, LexState lex) {
  found_.clear();
  dead_.clear();
  base_ = nullptr;
  const std::span nodes = trie_.nodes();
  for (const uint32_t place : places) {
    Walk({place + 1, nodes[place].end}, nodes[place].depth, lex, Borrowing::kNone);
  }
  return TakeFound();
}

}  // namespace kvant::grammar
