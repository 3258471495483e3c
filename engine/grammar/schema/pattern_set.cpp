// The tree of the expression becomes a nondeterministic automaton (Thompson, "Regular expression
// search algorithm", 1968), whose sets of places become the states.
#include "engine/grammar/schema/pattern_set.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/grammar/regex_syntax.h"

namespace kvant::grammar {
namespace {

constexpr size_t kPatternPlacesMax = 100'000;
constexpr size_t kPatternStepsMax = 3'000'000;  // visits of places, some 50 ms
constexpr uint32_t kCodePointMax = 0x10ffff;

using CodePoints = RegexPool::CodePoints;

// The ranges sorted, joined and without surrogates; the others where they are negated.
std::vector<CodePoints> RangesOf(const RegexTree& tree) {
  std::vector<CodePoints> sorted = tree.ranges;
  std::ranges::sort(sorted, {}, &CodePoints::first);
  std::vector<CodePoints> joined;
  for (const CodePoints& range : sorted) {
    if (!joined.empty() && range.first <= joined.back().last + 1) {
      joined.back().last = std::max(joined.back().last, range.last);
    } else {
      joined.push_back(range);
    }
  }
  if (tree.negated) {
    std::vector<CodePoints> rest;
    uint32_t next = 0;
    for (const CodePoints& range : joined) {
      if (range.first > next) rest.push_back({next, range.first - 1});
      next = range.last + 1;
    }
    if (next <= kCodePointMax) rest.push_back({next, kCodePointMax});
    joined = std::move(rest);
  }
  std::vector<CodePoints> characters;
  for (const CodePoints& range : joined) {
    const uint32_t below = std::min(range.last, uint32_t{0xd7ff});
    const uint32_t above = std::max(range.first, uint32_t{0xe000});
    if (range.first <= below) characters.push_back({range.first, below});
    if (above <= range.last) characters.push_back({above, range.last});
  }
  return characters;
}

class PlaceAutomaton {
 public:
  // All texts in which the tree matches.
  Result<TextSet> SearchSet(std::span<const RegexTree> parts) {
    places_.clear();
    const uint32_t begin = NewPlace();
    AddAny(begin, begin);
    uint32_t end = NewPlace();
    places_[begin].ways.push_back({Way::kFree, end});
    for (const RegexTree& part : parts) {
      KVANT_ASSIGN(end, Build(part, end));
    }
    final_ = NewPlace();
    places_[end].ways.push_back({Way::kFree, final_});
    return Determinise(begin);
  }

 private:
  enum class Way : uint8_t { kFree, kAtBegin, kAtEnd };
  struct Place {
    std::vector<std::pair<Way, uint32_t>> ways;
    std::vector<std::pair<CodePoints, uint32_t>> steps;
  };
  using Places = std::vector<uint32_t>;

  uint32_t NewPlace() {
    places_.emplace_back();
    return static_cast<uint32_t>(places_.size() - 1);
  }

  void AddAny(uint32_t from, uint32_t to) {
    places_[from].steps.push_back({{0, 0xd7ff}, to});
    places_[from].steps.push_back({{0xe000, kCodePointMax}, to});
  }

  // Adds what the tree accepts from a place on; returns where that ends.
  Result<uint32_t> Build(const RegexTree& tree, uint32_t from) {
    if (places_.size() > kPatternPlacesMax) {
      return MakeError(ErrorCode::kNotSupported, "expected at most {} places, found more",
                       kPatternPlacesMax);
    }
    switch (tree.kind) {
      case RegexTree::Kind::kChars: {
        const uint32_t to = NewPlace();
        for (const CodePoints& range : RangesOf(tree)) places_[from].steps.push_back({range, to});
        return to;
      }
      case RegexTree::Kind::kSequence:
        for (const RegexTree& part : tree.parts) {
          KVANT_ASSIGN(from, Build(part, from));
        }
        return from;
      case RegexTree::Kind::kEither: {
        const uint32_t to = NewPlace();
        for (const RegexTree& part : tree.parts) {
          const uint32_t begin = NewPlace();
          places_[from].ways.push_back({Way::kFree, begin});
          KVANT_ASSIGN(const uint32_t end, Build(part, begin));
          places_[end].ways.push_back({Way::kFree, to});
        }
        return to;
      }
      case RegexTree::Kind::kRepeat: return BuildRepeat(tree, from);
      case RegexTree::Kind::kBegin:
      case RegexTree::Kind::kEnd: {
        const uint32_t to = NewPlace();
        const Way way = tree.kind == RegexTree::Kind::kBegin ? Way::kAtBegin : Way::kAtEnd;
        places_[from].ways.push_back({way, to});
        return to;
      }
      case RegexTree::Kind::kAhead: break;
    }
    return MakeError(ErrorCode::kInvalid,
                     "expected lookahead only behind a ^ that begins the pattern, found one "
                     "elsewhere");
  }

  Result<uint32_t> BuildRepeat(const RegexTree& tree, uint32_t from) {
    const RegexTree& part = tree.parts[0];
    for (uint32_t i = 0; i < tree.least; ++i) {
      KVANT_ASSIGN(from, Build(part, from));
    }
    if (tree.most == kNoLimit) {
      const uint32_t loop = NewPlace();
      places_[from].ways.push_back({Way::kFree, loop});
      KVANT_ASSIGN(const uint32_t end, Build(part, loop));
      places_[end].ways.push_back({Way::kFree, loop});
      return loop;
    }
    const uint32_t exit = NewPlace();
    for (uint32_t i = tree.least; i < tree.most; ++i) {
      places_[from].ways.push_back({Way::kFree, exit});
      // A place of its own: `from` may be the loop of what stands before.
      const uint32_t begin = NewPlace();
      places_[from].ways.push_back({Way::kFree, begin});
      KVANT_ASSIGN(from, Build(part, begin));
    }
    places_[from].ways.push_back({Way::kFree, exit});
    return exit;
  }

  // All places that are reached without a character; of these only the final one, if it is there.
  Places Closure(Places from, Way allowed) {
    std::vector<uint32_t> left = from;
    ++stamp_;
    stamps_.resize(places_.size());
    for (const uint32_t place : from) stamps_[place] = stamp_;
    while (!left.empty()) {
      const uint32_t place = left.back();
      left.pop_back();
      ++steps_;
      for (const auto& [way, to] : places_[place].ways) {
        if ((way != Way::kFree && way != allowed) || stamps_[to] == stamp_) continue;
        stamps_[to] = stamp_;
        from.push_back(to);
        left.push_back(to);
      }
    }
    if (stamps_[final_] == stamp_) return {final_};
    std::ranges::sort(from);
    return from;
  }

  uint32_t NumberOf(Places places) {
    const auto [entry, is_new] =
        numbers_.emplace(std::move(places), static_cast<uint32_t>(open_.size()));
    if (is_new) open_.push_back(&entry->first);
    return entry->second;
  }

  Result<TextSet> Determinise(uint32_t begin) {
    numbers_.clear();
    open_.clear();
    stamps_.clear();
    AddAny(final_, final_);
    // A place that nothing leads to: no other state is the one before the first character.
    const uint32_t before_all = NewPlace();
    NumberOf(Closure({begin, before_all}, Way::kAtBegin));
    TextSet set;
    for (size_t next = 0; next < open_.size(); ++next) {
      if (open_.size() > kTextSetStatesMax || steps_ > kPatternStepsMax) {
        return MakeError(ErrorCode::kNotSupported,
                         "expected a pattern of at most {} states, found more", kTextSetStatesMax);
      }
      const Places places = *open_[next];
      TextSet::State state;
      // At the beginning the text may end, too.
      Places at_end = Closure(places, Way::kAtEnd);
      if (next == 0) at_end = Closure(std::move(at_end), Way::kAtBegin);
      if (next == 0) at_end = Closure(std::move(at_end), Way::kAtEnd);
      state.accepts = at_end == Places{final_};
      AddEdges(places, state);
      set.states.push_back(std::move(state));
    }
    Trim(set);
    return set;
  }

  void AddEdges(const Places& places, TextSet::State& state) {
    std::vector<std::pair<CodePoints, uint32_t>> steps;
    std::vector<uint32_t> bounds;
    for (const uint32_t place : places) {
      for (const auto& step : places_[place].steps) {
        steps.push_back(step);
        bounds.push_back(step.first.first);
        bounds.push_back(step.first.last + 1);
      }
    }
    std::ranges::sort(bounds);
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    std::ranges::sort(steps, {}, [](const auto& step) { return step.first.first; });
    std::vector<std::pair<CodePoints, uint32_t>> active;
    size_t next = 0;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      std::erase_if(active, [&](const auto& step) { return step.first.last < bounds[i]; });
      while (next < steps.size() && steps[next].first.first == bounds[i]) {
        active.push_back(steps[next++]);
      }
      if (active.empty()) continue;
      Places to;
      for (const auto& step : active) to.push_back(step.second);
      std::ranges::sort(to);
      to.erase(std::unique(to.begin(), to.end()), to.end());
      steps_ += to.size();
      const uint32_t target = NumberOf(Closure(std::move(to), Way::kFree));
      const uint32_t last = bounds[i + 1] - 1;
      if (!state.edges.empty() && state.edges.back().target == target &&
          state.edges.back().last + 1 == bounds[i]) {
        state.edges.back().last = last;
      } else {
        state.edges.push_back({bounds[i], last, target});
      }
    }
  }

  std::vector<Place> places_;
  uint32_t final_ = 0;
  std::map<Places, uint32_t> numbers_;
  std::vector<const Places*> open_;  // the states by their number
  std::vector<uint32_t> stamps_;     // [places] the last closure that met it
  uint32_t stamp_ = 0;
  size_t steps_ = 0;
};

// An alternative of the whole pattern: ^, then lookahead, then the rest.
Result<TextSet> AlternativeSet(const RegexTree& sequence) {
  using Kind = RegexTree::Kind;
  PlaceAutomaton automaton;
  const std::span parts(sequence.parts);
  const auto is_ahead = [](const RegexTree& part) { return part.kind == Kind::kAhead; };
  const bool begins = !parts.empty() && parts[0].kind == Kind::kBegin;
  if (!begins || std::ranges::none_of(parts, is_ahead)) return automaton.SearchSet(parts);
  std::vector<RegexTree> rest = {parts[0]};
  size_t at = 1;
  while (at < parts.size() && is_ahead(parts[at])) ++at;
  rest.insert(rest.end(), parts.begin() + static_cast<ptrdiff_t>(at), parts.end());
  KVANT_ASSIGN(TextSet set, automaton.SearchSet(rest));
  for (size_t i = 1; i < at; ++i) {
    const std::vector<RegexTree> ahead = {parts[0], parts[i].parts[0]};
    KVANT_ASSIGN(const TextSet other, automaton.SearchSet(ahead));
    const TextSetOp op = parts[i].negated ? TextSetOp::kWithout : TextSetOp::kAnd;
    KVANT_ASSIGN(set, Combine(set, other, op));
  }
  return set;
}

}  // namespace

Result<TextSet> PatternSet(std::string_view pattern) {
  KVANT_ASSIGN(const RegexTree tree, ParseRegexTree(pattern, RegexUse::kSearch));
  PlaceAutomaton automaton;
  const auto has_ahead = [](const RegexTree& part) {
    return std::ranges::any_of(
        part.parts, [](const RegexTree& inner) { return inner.kind == RegexTree::Kind::kAhead; });
  };
  if (std::ranges::none_of(tree.parts, has_ahead)) return automaton.SearchSet({&tree, 1});
  TextSet set;
  for (const RegexTree& part : tree.parts) {
    KVANT_ASSIGN(const TextSet one, AlternativeSet(part));
    KVANT_ASSIGN(set, Combine(set, one, TextSetOp::kOr));
  }
  return set;
}

}  // namespace kvant::grammar
