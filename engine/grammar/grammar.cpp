#include "engine/grammar/grammar.h"

#include <algorithm>
#include <utility>

namespace kvant::grammar {

size_t Grammar::bytes() const {
  size_t sum = pool.bytes() + terminals.capacity() * sizeof(ExprId) +
               symbols.capacity() * sizeof(Symbol) + alternatives.capacity() * sizeof(ItemId) +
               rules.capacity() * sizeof(rules[0]) + is_nullable.capacity() / 8;
  for (const TokenSet& set : token_sets) sum += sizeof(set) + set.ids.capacity() * sizeof(TokenId);
  return sum;
}

GrammarBuilder::GrammarBuilder() : grammar_(std::make_unique<Grammar>()) {}

GrammarBuilder::Part GrammarBuilder::Add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<Part>(nodes_.size() - 1);
}

GrammarBuilder::Part GrammarBuilder::Regex(ExprId expr) { return Add({Kind::kRegex, expr}); }
GrammarBuilder::Part GrammarBuilder::Terminal(ExprId expr) { return Add({Kind::kTerminal, expr}); }
GrammarBuilder::Part GrammarBuilder::Rule(RuleId rule) { return Add({Kind::kRule, rule}); }

GrammarBuilder::Part GrammarBuilder::Tokens(TokenSet set) {
  std::vector<TokenSet>& sets = grammar_->token_sets;
  const auto found = std::find(sets.begin(), sets.end(), set);
  const auto number = static_cast<uint32_t>(found - sets.begin());
  if (found == sets.end()) sets.push_back(std::move(set));
  return Add({Kind::kTokens, number});
}

GrammarBuilder::Part GrammarBuilder::Sequence(std::vector<Part> parts) {
  if (parts.size() == 1) return parts[0];
  return Add({Kind::kSequence, 0, 0, std::move(parts)});
}

GrammarBuilder::Part GrammarBuilder::Either(std::vector<Part> parts) {
  if (parts.size() == 1) return parts[0];
  return Add({Kind::kEither, 0, 0, std::move(parts)});
}

GrammarBuilder::Part GrammarBuilder::Repeat(Part part, uint32_t least, uint32_t most) {
  return Add({Kind::kRepeat, least, most, {part}});
}

RuleId GrammarBuilder::AddRule() {
  definitions_.push_back(0);
  rules_.emplace_back();
  return static_cast<RuleId>(definitions_.size() - 1);
}

void GrammarBuilder::Define(RuleId rule, Part part) { definitions_[rule] = part; }

// ---- What is regular ----------------------------------------------------------------------------

// A rule is recursive where it can reach itself: it is in a component of several rules, or uses
// itself. The components are Tarjan's ("Depth-first search and linear graph algorithms", 1972).
void GrammarBuilder::FindRecursion() {
  const size_t count = definitions_.size();
  std::vector<std::vector<RuleId>> used(count);
  for (size_t rule = 0; rule < count; ++rule) {
    std::vector<Part> left = {definitions_[rule]};
    while (!left.empty()) {
      const Node& node = nodes_[left.back()];
      left.pop_back();
      if (node.kind == Kind::kRule) used[rule].push_back(node.number);
      left.insert(left.end(), node.parts.begin(), node.parts.end());
    }
  }
  is_recursive_.assign(count, false);
  std::vector<uint32_t> number(count, 0);
  std::vector<uint32_t> low(count, 0);
  std::vector<bool> is_open(count, false);
  std::vector<RuleId> open;
  uint32_t next = 0;
  struct Frame {
    RuleId rule;
    size_t child;
  };
  for (size_t begin = 0; begin < count; ++begin) {
    if (number[begin] != 0) continue;
    std::vector<Frame> frames = {{static_cast<RuleId>(begin), 0}};
    while (!frames.empty()) {
      Frame& frame = frames.back();
      const RuleId rule = frame.rule;
      if (frame.child == 0) {
        number[rule] = low[rule] = ++next;
        open.push_back(rule);
        is_open[rule] = true;
      }
      if (frame.child < used[rule].size()) {
        const RuleId child = used[rule][frame.child++];
        if (child == rule) is_recursive_[rule] = true;
        if (number[child] == 0) {
          frames.push_back({child, 0});
        } else if (is_open[child]) {
          low[rule] = std::min(low[rule], number[child]);
        }
        continue;
      }
      if (low[rule] == number[rule]) {
        const bool alone = open.back() == rule;
        while (true) {
          const RuleId member = open.back();
          open.pop_back();
          is_open[member] = false;
          if (!alone) is_recursive_[member] = true;
          if (member == rule) break;
        }
      }
      frames.pop_back();
      if (!frames.empty()) {
        const RuleId above = frames.back().rule;
        low[above] = std::min(low[above], low[rule]);
      }
    }
  }
}

GrammarBuilder::Folded GrammarBuilder::FoldRule(RuleId rule) {
  if (is_recursive_[rule]) return {};
  if (!is_rule_folded_[rule]) {
    folded_rules_[rule] = Fold(definitions_[rule]);
    is_rule_folded_[rule] = true;
  }
  return folded_rules_[rule];
}

GrammarBuilder::Folded GrammarBuilder::Fold(Part part) {
  if (is_part_folded_[part]) return folded_parts_[part];
  const Node& node = nodes_[part];
  RegexPool& pool = grammar_->pool;
  Folded out;
  switch (node.kind) {
    case Kind::kRegex: out = {node.number, pool.LengthOf(node.number)}; break;
    case Kind::kTerminal:
    case Kind::kTokens: break;
    case Kind::kRule: out = FoldRule(node.number); break;
    case Kind::kSequence:
    case Kind::kEither: {
      std::vector<ExprId> exprs;
      uint64_t length = 0;
      for (const Part inner : node.parts) {
        const Folded folded = Fold(inner);
        length += folded.length;
        if (folded.expr == kNotRegular || length > kFoldedMax) break;
        exprs.push_back(folded.expr);
      }
      if (exprs.size() == node.parts.size()) {
        out = {node.kind == Kind::kSequence ? pool.Concat(exprs) : pool.Either(exprs), length};
      }
      break;
    }
    case Kind::kRepeat: {
      const Folded folded = Fold(node.parts[0]);
      if (folded.expr != kNotRegular) {
        out = {pool.Repeat(folded.expr, node.number, node.most), folded.length + 1};
      }
      break;
    }
  }
  folded_parts_[part] = out;
  is_part_folded_[part] = true;
  return out;
}

// ---- Rules that remain --------------------------------------------------------------------------

Symbol GrammarBuilder::TerminalSymbol(ExprId expr) {
  std::vector<ExprId>& terminals = grammar_->terminals;
  const auto [place, is_new] =
      terminal_numbers_.emplace(expr, static_cast<uint32_t>(terminals.size()));
  if (is_new) terminals.push_back(expr);
  return {Symbol::Kind::kTerminal, place->second};
}

// Makes a terminal of the regular end. One that accepts the empty text becomes a rule that may be
// left out, since a terminal has at least one byte.
void GrammarBuilder::Flush(Sequenced& out) {
  const ExprId expr = std::exchange(out.pending, RegexPool::kEmpty);
  out.pending_length = 0;
  if (expr == RegexPool::kEmpty) return;
  const Symbol terminal = TerminalSymbol(expr);
  if (!grammar_->pool.AcceptsEmpty(expr)) {
    out.symbols.push_back(terminal);
    return;
  }
  const RuleId rule = AddRule();
  is_lowered_.push_back(true);
  AddAlternative(rule, {});
  AddAlternative(rule, {{terminal}});
  out.symbols.push_back({Symbol::Kind::kRule, rule});
}

void GrammarBuilder::AddAlternative(RuleId rule, Sequenced alternative) {
  Flush(alternative);
  rules_[rule].push_back(static_cast<ItemId>(symbols_.size()));
  symbols_.insert(symbols_.end(), alternative.symbols.begin(), alternative.symbols.end());
  symbols_.push_back({Symbol::Kind::kEnd, rule});
}

// A new rule with these alternatives; what is regular among them is one alternative.
Symbol GrammarBuilder::RuleOf(std::span<const Part> alternatives) {
  const RuleId rule = AddRule();
  is_lowered_.push_back(true);
  std::vector<ExprId> regular;
  for (const Part part : alternatives) {
    const Folded folded = Fold(part);
    if (folded.expr != kNotRegular) {
      regular.push_back(folded.expr);
      continue;
    }
    Sequenced alternative;
    Lower(part, alternative);
    AddAlternative(rule, std::move(alternative));
  }
  if (!regular.empty()) {
    Sequenced alternative;
    alternative.pending = grammar_->pool.Either(regular);
    if (alternative.pending != RegexPool::kNothing) AddAlternative(rule, std::move(alternative));
  }
  return {Symbol::Kind::kRule, rule};
}

void GrammarBuilder::Lower(Part part, Sequenced& out) {
  const Folded folded = Fold(part);
  if (folded.expr != kNotRegular && folded.length + out.pending_length <= kFoldedMax) {
    out.pending = grammar_->pool.Concat(out.pending, folded.expr);
    out.pending_length += folded.length;
    return;
  }
  if (folded.expr != kNotRegular) {
    Flush(out);
    out.pending = folded.expr;
    out.pending_length = folded.length;
    return;
  }
  const Node node = nodes_[part];
  switch (node.kind) {
    case Kind::kRegex: break;  // is regular
    case Kind::kRule:
      Flush(out);
      out.symbols.push_back({Symbol::Kind::kRule, node.number});
      if (!is_lowered_[node.number]) {
        is_lowered_[node.number] = true;
        to_lower_.push_back(node.number);
      }
      break;
    case Kind::kTerminal:
      Flush(out);
      out.symbols.push_back(TerminalSymbol(node.number));
      break;
    case Kind::kTokens:
      Flush(out);
      out.symbols.push_back({Symbol::Kind::kTokens, node.number});
      break;
    case Kind::kSequence:
      for (const Part inner : node.parts) Lower(inner, out);
      break;
    case Kind::kEither:
      Flush(out);
      out.symbols.push_back(RuleOf(node.parts));
      break;
    case Kind::kRepeat:
      Flush(out);
      LowerRepeat(node, out);
      break;
  }
}

// X{m,n}: X m times, then a chain of rules that may each be left out; X{m,}: then L = "" | L X.
void GrammarBuilder::LowerRepeat(const Node& node, Sequenced& out) {
  const Symbol once = RuleOf(node.parts);
  for (uint32_t i = 0; i < node.number; ++i) out.symbols.push_back(once);
  if (node.most == kNoLimit) {
    const RuleId list = AddRule();
    is_lowered_.push_back(true);
    AddAlternative(list, {});
    AddAlternative(list, {{{Symbol::Kind::kRule, list}, once}});
    out.symbols.push_back({Symbol::Kind::kRule, list});
    return;
  }
  if (node.most == node.number) return;
  Symbol rest = {};
  for (uint32_t i = node.number; i < node.most; ++i) {
    const RuleId chain = AddRule();
    is_lowered_.push_back(true);
    AddAlternative(chain, {});
    Sequenced some;
    some.symbols.push_back(once);
    if (i > node.number) some.symbols.push_back(rest);
    AddAlternative(chain, std::move(some));
    rest = {Symbol::Kind::kRule, chain};
  }
  out.symbols.push_back(rest);
}

// Leaves out alternatives with a rule that never ends, or a terminal that accepts nothing: with
// them a text could begin what it cannot complete.
void GrammarBuilder::DropEndless() {
  Grammar& grammar = *grammar_;
  std::vector<bool> ends(rules_.size());
  const auto completes = [&](ItemId item) {
    for (;; ++item) {
      const Symbol symbol = symbols_[item];
      if (symbol.kind == Symbol::Kind::kEnd) return true;
      if (symbol.kind == Symbol::Kind::kRule && !ends[symbol.number]) return false;
      const bool is_terminal = symbol.kind == Symbol::Kind::kTerminal;
      if (is_terminal && grammar.terminals[symbol.number] == RegexPool::kNothing) return false;
    }
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t rule = 0; rule < ends.size(); ++rule) {
      if (ends[rule] || std::ranges::none_of(rules_[rule], completes)) continue;
      ends[rule] = true;
      changed = true;
    }
  }
  for (std::vector<ItemId>& alternatives : rules_) {
    std::erase_if(alternatives, [&](ItemId item) { return !completes(item); });
  }
}

void GrammarBuilder::FindNullable() {
  std::vector<bool>& is_nullable = grammar_->is_nullable;
  is_nullable.assign(rules_.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      if (is_nullable[rule]) continue;
      for (ItemId item : rules_[rule]) {
        while (symbols_[item].kind == Symbol::Kind::kRule && is_nullable[symbols_[item].number]) {
          ++item;
        }
        if (symbols_[item].kind != Symbol::Kind::kEnd) continue;
        is_nullable[rule] = true;
        changed = true;
        break;
      }
    }
  }
}

// Hands over the rules that can be reached, with new numbers, without spare room.
void GrammarBuilder::Pack() {
  Grammar& grammar = *grammar_;
  constexpr RuleId kUnused = std::numeric_limits<RuleId>::max();
  std::vector<RuleId> numbers(rules_.size(), kUnused);
  std::vector<RuleId> used;
  const auto number_of = [&](RuleId rule) {
    if (numbers[rule] == kUnused) {
      numbers[rule] = static_cast<RuleId>(used.size());
      used.push_back(rule);
    }
    return numbers[rule];
  };
  grammar.root = number_of(grammar.root);
  grammar.behind_blanks = number_of(grammar.behind_blanks);
  std::vector<bool> is_nullable;
  for (size_t i = 0; i < used.size(); ++i) {
    is_nullable.push_back(grammar.is_nullable[used[i]]);
    grammar.rules.push_back(static_cast<uint32_t>(grammar.alternatives.size()));
    for (ItemId item : rules_[used[i]]) {
      grammar.alternatives.push_back(static_cast<ItemId>(grammar.symbols.size()));
      for (bool ends = false; !ends; ++item) {
        Symbol symbol = symbols_[item];
        ends = symbol.kind == Symbol::Kind::kEnd;
        if (ends || symbol.kind == Symbol::Kind::kRule) symbol.number = number_of(symbol.number);
        grammar.symbols.push_back(symbol);
      }
    }
  }
  grammar.rules.push_back(static_cast<uint32_t>(grammar.alternatives.size()));
  grammar.is_nullable = std::move(is_nullable);
  grammar.symbols.shrink_to_fit();
  grammar.alternatives.shrink_to_fit();
  grammar.rules.shrink_to_fit();
}

// For texts behind a thought, between which models write a few blanks.
void GrammarBuilder::AddBlanks() {
  constexpr uint32_t kBlanksMax = 8;
  Grammar& grammar = *grammar_;
  ByteSet blanks;
  for (const char blank : {' ', '\t', '\r', '\n'}) blanks.Add(static_cast<uint8_t>(blank));
  const Symbol terminal =
      TerminalSymbol(grammar.pool.Repeat(grammar.pool.Bytes(blanks), 1, kBlanksMax));
  grammar.behind_blanks = AddRule();
  AddAlternative(grammar.behind_blanks, {{terminal, {Symbol::Kind::kRule, grammar.root}}});
}

Result<std::unique_ptr<Grammar>> GrammarBuilder::Build(RuleId root) {
  const size_t named = definitions_.size();
  FindRecursion();
  folded_rules_.resize(named);
  is_rule_folded_.resize(named);
  is_lowered_.resize(named);
  folded_parts_.resize(nodes_.size());
  is_part_folded_.resize(nodes_.size());
  // The root is a rule whose only alternative is what was asked for.
  const Part start = Rule(root);
  folded_parts_.resize(nodes_.size());
  is_part_folded_.resize(nodes_.size());
  grammar_->root = AddRule();
  is_lowered_.push_back(true);
  Sequenced alternative;
  Lower(start, alternative);
  AddAlternative(grammar_->root, std::move(alternative));
  while (!to_lower_.empty()) {
    const RuleId rule = to_lower_.back();
    to_lower_.pop_back();
    const Node& node = nodes_[definitions_[rule]];
    const std::vector<Part> alternatives =
        node.kind == Kind::kEither ? node.parts : std::vector<Part>{definitions_[rule]};
    const Symbol inner = RuleOf(alternatives);
    // The rule takes over the alternatives of the one just made.
    for (const ItemId item : std::exchange(rules_[inner.number], {})) {
      rules_[rule].push_back(item);
      ItemId end = item;
      while (symbols_[end].kind != Symbol::Kind::kEnd) ++end;
      symbols_[end].number = rule;
    }
    if (symbols_.size() > kGrammarItemsMax) break;
  }
  if (symbols_.size() > kGrammarItemsMax || grammar_->pool.size() > kGrammarExprsMax) {
    return MakeError(ErrorCode::kInvalid,
                     "grammar: expected at most {} places in rules and {} expressions, found {} "
                     "and {}",
                     kGrammarItemsMax, kGrammarExprsMax, symbols_.size(), grammar_->pool.size());
  }
  DropEndless();
  if (rules_[grammar_->root].empty()) {
    return MakeError(ErrorCode::kInvalid,
                     "grammar: expected a text that the root can become, found none: every way "
                     "through it goes on for ever or needs what does not exist");
  }
  AddBlanks();
  FindNullable();
  Pack();
  return std::move(grammar_);
}

}  // namespace kvant::grammar
