// Rules for a list whose elements depend on a state: each state has a rule for the beginnings of
// the list that lead to it, from a state before and one more element.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"

namespace kvant::grammar {

template <class State>
class RuleStates {
 public:
  using Part = GrammarBuilder::Part;

  // `comma` stands between elements.
  RuleStates(GrammarBuilder& builder, Part comma) : builder_(builder), comma_(comma) {}

  // The element leads from the empty list, or from a state, to a state.
  void Begin(const State& to, Part element) { rules_[to].ways.push_back(element); }
  void Step(const State& from, const State& to, Part element) {
    const Part before = builder_.Rule(RuleOf(from));
    rules_[to].ways.push_back(builder_.Sequence({before, comma_, element}));
  }
  // A state is reached without another element.
  void Pass(const State& from, const State& to) {
    const Part before = builder_.Rule(RuleOf(from));
    rules_[to].ways.push_back(before);
  }

  bool Has(const State& state) const { return rules_.contains(state); }
  size_t size() const { return rules_.size(); }

  // Defines the rules; then calls accept(state), and returns the lists that end in a state for
  // which it is true. Beginnings that lead nowhere are harmless: nothing refers to their rules.
  template <class Accept>
  std::vector<Part> Finish(const Accept& accept) {
    std::vector<Part> lists;
    for (auto& [state, entry] : rules_) {
      builder_.Define(RuleOf(state), builder_.Either(entry.ways));
      if (accept(state)) lists.push_back(builder_.Rule(entry.rule));
    }
    return lists;
  }

 private:
  struct Entry {
    bool has_rule = false;
    RuleId rule = 0;
    std::vector<Part> ways = {};
  };

  RuleId RuleOf(const State& state) {
    Entry& entry = rules_[state];
    if (!entry.has_rule) entry = {true, builder_.AddRule(), std::move(entry.ways)};
    return entry.rule;
  }

  GrammarBuilder& builder_;
  Part comma_;
  std::map<State, Entry> rules_;
};

}  // namespace kvant::grammar
