// Context-free grammars over terminals that are regular expressions over bytes.
//
// A GrammarBuilder takes rules as trees. Whatever is regular in them, however many rules it is
// spread over, becomes one terminal; only recursion leaves rules. So a regular grammar is one
// terminal, and what the parser does for each byte of a text is a step of an automaton.
//
// Thread-safety: one thread at a time; after Build the matcher that owns a grammar adds to its
// pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/grammar/byte_regex.h"
#include "engine/grammar/lexer.h"
#include "kvant/token_id.h"

namespace kvant::grammar {

using RuleId = uint32_t;
using ItemId = uint32_t;  // a place in an alternative of a rule

// Tokens that stand for themselves, whatever their bytes are. The list is ascending.
struct TokenSet {
  std::vector<TokenId> ids;
  bool negated = false;  // all tokens but these and those that end a text
  bool operator==(const TokenSet&) const = default;
};

struct Symbol {
  enum class Kind : uint8_t { kTerminal, kRule, kTokens, kEnd };
  Kind kind;
  uint32_t number;  // of the terminal, rule or set; kEnd: the rule whose alternative ends here
};

struct Grammar {
  RegexPool pool;
  std::vector<ExprId> terminals;
  std::vector<TokenSet> token_sets;
  std::vector<Symbol> symbols;       // [ItemId]
  std::vector<ItemId> alternatives;  // where they begin, of all rules
  std::vector<uint32_t> rules;       // [RuleId, and one more] where theirs begin
  std::vector<bool> is_nullable;     // [RuleId]
  RuleId root = 0;
  RuleId behind_blanks = 0;  // blanks, then the root

  std::span<const ItemId> AlternativesOf(RuleId rule) const {
    return std::span(alternatives).subspan(rules[rule], rules[rule + 1] - rules[rule]);
  }
  // Bytes of memory.
  size_t bytes() const;
};

// The size of what a grammar may become.
inline constexpr uint32_t kGrammarRepeatMax = 2000;    // of a counted repetition
inline constexpr size_t kGrammarItemsMax = 1'000'000;  // places in all alternatives
inline constexpr size_t kGrammarExprsMax = 1'000'000;  // expressions before the first byte
inline constexpr int kGrammarDepthMax = 200;           // of nested groups

class GrammarBuilder {
 public:
  // A part of a rule's tree.
  using Part = uint32_t;

  GrammarBuilder();

  RegexPool& pool() { return grammar_->pool; }

  Part Regex(ExprId expr);
  // An expression that stays a terminal of its own, so that all places that read it share its
  // states. It accepts no empty text.
  Part Terminal(ExprId expr);
  Part Rule(RuleId rule);
  Part Tokens(TokenSet set);
  Part Sequence(std::vector<Part> parts);
  Part Either(std::vector<Part> parts);
  Part Repeat(Part part, uint32_t least, uint32_t most);  // kNoLimit: any number

  RuleId AddRule();
  void Define(RuleId rule, Part part);

  // Alternatives that no text ever completes are left out. kInvalid where nothing is left, or where
  // the grammar has become too large. The builder is used up.
  Result<std::unique_ptr<Grammar>> Build(RuleId root);

 private:
  enum class Kind : uint8_t { kRegex, kTerminal, kRule, kTokens, kSequence, kEither, kRepeat };
  struct Node {
    Kind kind;
    uint32_t number =
        0;  // kRegex, kTerminal: expression; kRule: rule; kTokens: set; kRepeat: least
    uint32_t most = 0;
    std::vector<Part> parts = {};
  };
  static constexpr ExprId kNotRegular = std::numeric_limits<ExprId>::max();
  // Longer expressions stay rules, because concatenations are written out.
  static constexpr uint64_t kFoldedMax = 4096;

  struct Folded {
    ExprId expr = kNotRegular;
    uint64_t length = 0;
  };
  struct Sequenced {  // an alternative under way
    std::vector<Symbol> symbols;
    ExprId pending = RegexPool::kEmpty;  // the regular end of it
    uint64_t pending_length = 0;
  };

  Part Add(Node node);
  void FindRecursion();
  Folded Fold(Part part);
  Folded FoldRule(RuleId rule);
  Symbol TerminalSymbol(ExprId expr);
  void Flush(Sequenced& out);
  void Lower(Part part, Sequenced& out);
  void LowerRepeat(const Node& node, Sequenced& out);
  Symbol RuleOf(std::span<const Part> alternatives);
  void AddAlternative(RuleId rule, Sequenced alternative);
  void DropEndless();
  void FindNullable();
  void Pack();
  void AddBlanks();

  std::unique_ptr<Grammar> grammar_;
  std::vector<Symbol> symbols_;             // [ItemId]
  std::vector<std::vector<ItemId>> rules_;  // [RuleId] where their alternatives begin
  std::vector<Node> nodes_;
  std::vector<Part> definitions_;   // [RuleId]
  std::vector<bool> is_recursive_;  // [RuleId]
  std::vector<Folded> folded_rules_;
  std::vector<bool> is_rule_folded_;
  std::vector<bool> is_lowered_;  // [RuleId]
  std::vector<RuleId> to_lower_;
  std::vector<Folded> folded_parts_;
  std::vector<bool> is_part_folded_;
  std::unordered_map<ExprId, uint32_t> terminal_numbers_;
};

}  // namespace kvant::grammar
