#include "engine/grammar/schema/text_set.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

#include <xxhash.h>

#include "engine/grammar/text_cursor.h"

namespace kvant::grammar {
namespace {

constexpr uint32_t kDead = UINT32_MAX;

const std::vector<TextSet::Edge>& AnyCharacter() {
  static const std::vector<TextSet::Edge> edges = {{0, 0xd7ff, 0}, {0xe000, 0x10ffff, 0}};
  return edges;
}

Error TooManyStates() {
  return MakeError(ErrorCode::kNotSupported, "expected at most {} states, found more",
                   kTextSetStatesMax);
}

// Adds an edge behind the others; one that goes on where the last one ends becomes part of it.
void AddEdge(std::vector<TextSet::Edge>& edges, const TextSet::Edge& edge) {
  if (!edges.empty() && edges.back().target == edge.target && edges.back().last + 1 == edge.first) {
    edges.back().last = edge.last;
  } else {
    edges.push_back(edge);
  }
}

// The states that are in use while two automata are combined, by their pairs.
class Pairs {
 public:
  Pairs(const TextSet& first, const TextSet& second, TextSetOp op)
      : first_(first), second_(second), op_(op) {}

  Result<TextSet> Make() {
    const uint32_t a = first_.empty() ? kDead : 0;
    const uint32_t b = second_.empty() ? kDead : 0;
    TextSet out;
    if (NumberOf(a, b) == kDead) return out;
    for (size_t next = 0; next < pairs_.size(); ++next) {
      if (pairs_.size() > kTextSetStatesMax) return TooManyStates();
      const auto [left, right] = pairs_[next];
      TextSet::State state;
      const bool in_first = left != kDead && first_.states[left].accepts;
      const bool in_second = right != kDead && second_.states[right].accepts;
      switch (op_) {
        case TextSetOp::kAnd: state.accepts = in_first && in_second; break;
        case TextSetOp::kOr: state.accepts = in_first || in_second; break;
        case TextSetOp::kWithout: state.accepts = in_first && !in_second; break;
      }
      MergeEdges(left, right, state.edges);
      out.states.push_back(std::move(state));
    }
    Trim(out);
    return out;
  }

 private:
  uint32_t NumberOf(uint32_t a, uint32_t b) {
    const bool needs_first = op_ != TextSetOp::kOr;
    const bool needs_second = op_ == TextSetOp::kAnd;
    if ((a == kDead && (needs_first || b == kDead)) || (b == kDead && needs_second)) return kDead;
    const auto [place, is_new] =
        numbers_.emplace(uint64_t{a} << 32 | b, static_cast<uint32_t>(pairs_.size()));
    if (is_new) pairs_.emplace_back(a, b);
    return place->second;
  }

  static std::span<const TextSet::Edge> EdgesOf(const TextSet& set, uint32_t state) {
    return state == kDead ? std::span<const TextSet::Edge>() : set.states[state].edges;
  }

  void MergeEdges(uint32_t left, uint32_t right, std::vector<TextSet::Edge>& out) {
    const std::span a = EdgesOf(first_, left);
    const std::span b = EdgesOf(second_, right);
    size_t i = 0;
    size_t j = 0;
    uint32_t at = 0;
    while (i < a.size() || j < b.size()) {
      if (i < a.size() && a[i].last < at) {
        ++i;
        continue;
      }
      if (j < b.size() && b[j].last < at) {
        ++j;
        continue;
      }
      const uint32_t begin_a = i < a.size() ? std::max(a[i].first, at) : kDead;
      const uint32_t begin_b = j < b.size() ? std::max(b[j].first, at) : kDead;
      const uint32_t begin = std::min(begin_a, begin_b);
      const bool in_a = begin_a == begin;
      const bool in_b = begin_b == begin;
      uint32_t last = in_a ? a[i].last : begin_a - 1;
      last = std::min(last, in_b ? b[j].last : begin_b - 1);
      const uint32_t target = NumberOf(in_a ? a[i].target : kDead, in_b ? b[j].target : kDead);
      if (target != kDead) AddEdge(out, {begin, last, target});
      at = last + 1;
    }
  }

  const TextSet& first_;
  const TextSet& second_;
  TextSetOp op_;
  std::unordered_map<uint64_t, uint32_t> numbers_;
  std::vector<std::pair<uint32_t, uint32_t>> pairs_;
};

}  // namespace

bool TextSet::Has(std::string_view utf8) const {
  if (states.empty()) return false;
  uint32_t state = 0;
  for (const uint32_t code : CodePointsOf(utf8)) {
    const auto& edges = states[state].edges;
    const auto edge = std::ranges::find_if(
        edges, [code](const Edge& one) { return one.first <= code && code <= one.last; });
    if (edge == edges.end()) return false;
    state = edge->target;
  }
  return states[state].accepts;
}

bool TextSet::IsAll() const {
  return states.size() == 1 && states[0].accepts && states[0].edges == AnyCharacter();
}

uint64_t TextSet::Hash() const {
  uint64_t hash = states.size();
  for (const State& state : states) {
    const uint64_t own = state.edges.size() << 1 | (state.accepts ? 1 : 0);
    hash = XXH64(state.edges.data(), state.edges.size() * sizeof(Edge), hash ^ own);
  }
  return hash;
}

uint32_t TextSet::LeastLength() const {
  std::vector<uint32_t> now = {0};
  std::vector<bool> seen(states.size());
  for (uint32_t length = 0;; ++length) {
    std::vector<uint32_t> next;
    for (const uint32_t state : now) {
      if (states[state].accepts) return length;
      for (const Edge& edge : states[state].edges) {
        if (seen[edge.target]) continue;
        seen[edge.target] = true;
        next.push_back(edge.target);
      }
    }
    now = std::move(next);
  }
}

uint32_t TextSet::GreatestLength() const { return LengthsOf(*this).ranges[0].most; }

namespace {

// The states before each one.
struct Sources {
  std::vector<uint32_t> begins;  // [states + 1] of each one's, in `states`
  std::vector<uint32_t> states;

  std::span<const uint32_t> Of(uint32_t state) const {
    return std::span(states).subspan(begins[state], begins[state + 1] - begins[state]);
  }
};

Sources SourcesOf(const TextSet& set) {
  const size_t count = set.states.size();
  Sources out;
  out.begins.resize(count + 1);
  for (const TextSet::State& state : set.states) {
    for (const TextSet::Edge& edge : state.edges) ++out.begins[edge.target + 1];
  }
  for (size_t state = 0; state < count; ++state) out.begins[state + 1] += out.begins[state];
  out.states.resize(out.begins[count]);
  std::vector<uint32_t> place(out.begins.begin(), out.begins.end());
  for (uint32_t state = 0; state < count; ++state) {
    for (const TextSet::Edge& edge : set.states[state].edges) {
      out.states[place[edge.target]++] = state;
    }
  }
  return out;
}

// Whether the lengths behind a state, and 0 where it accepts, leave no gap.
bool HasNoGap(const TextSet::State& state, std::span<const TextLengths::Range> ranges,
              std::vector<TextLengths::Range>& scratch) {
  scratch.clear();
  if (state.accepts) scratch.push_back({0, 0});
  for (const TextSet::Edge& edge : state.edges) {
    const TextLengths::Range& behind = ranges[edge.target];
    scratch.push_back({behind.least + 1, behind.most == UINT32_MAX ? UINT32_MAX : behind.most + 1});
  }
  std::ranges::sort(scratch, {}, &TextLengths::Range::least);
  uint32_t most = scratch[0].most;
  for (const TextLengths::Range& range : scratch) {
    if (most != UINT32_MAX && range.least > most + 1) return false;
    most = std::max(most, range.most);
  }
  return true;
}

}  // namespace

// The least lengths are found from the accepting states backwards; the greatest ones where all
// that follows has one: a state that reaches a loop never does. If no state has a gap between the
// ranges behind it, every length of a range has a text, by induction on the length.
TextLengths LengthsOf(const TextSet& set) {
  const size_t count = set.states.size();
  const Sources sources = SourcesOf(set);
  TextLengths out = {std::vector<TextLengths::Range>(count, {UINT32_MAX, UINT32_MAX}), true};
  std::vector<uint32_t> left;
  std::vector<size_t> open(count);  // edges to states without a greatest length so far
  std::vector<uint32_t> bounded;
  for (uint32_t state = 0; state < count; ++state) {
    open[state] = set.states[state].edges.size();
    if (open[state] == 0) bounded.push_back(state);
    if (!set.states[state].accepts) continue;
    out.ranges[state].least = 0;
    left.push_back(state);
  }
  for (size_t i = 0; i < left.size(); ++i) {
    for (const uint32_t from : sources.Of(left[i])) {
      if (out.ranges[from].least != UINT32_MAX) continue;
      out.ranges[from].least = out.ranges[left[i]].least + 1;
      left.push_back(from);
    }
  }
  for (size_t i = 0; i < bounded.size(); ++i) {
    uint32_t most = 0;
    for (const TextSet::Edge& edge : set.states[bounded[i]].edges) {
      most = std::max(most, out.ranges[edge.target].most + 1);
    }
    out.ranges[bounded[i]].most = most;
    for (const uint32_t from : sources.Of(bounded[i])) {
      if (--open[from] == 0) bounded.push_back(from);
    }
  }
  std::vector<TextLengths::Range> scratch;
  out.are_all = std::ranges::all_of(
      set.states, [&](const auto& state) { return HasNoGap(state, out.ranges, scratch); });
  return out;
}

TextSet AllTexts() { return {{{true, AnyCharacter()}}}; }

Result<TextSet> TextsOfLength(uint32_t least, uint32_t most) {
  const size_t count = size_t{most == UINT32_MAX ? least : most} + 1;
  if (count > kTextSetStatesMax) return TooManyStates();
  TextSet set;
  for (size_t length = 0; length < count; ++length) {
    TextSet::State state = {length >= least, {}};
    const bool is_last = length + 1 == count;
    if (!is_last || most == UINT32_MAX) {
      state.edges = AnyCharacter();
      for (TextSet::Edge& edge : state.edges) {
        edge.target = static_cast<uint32_t>(is_last ? length : length + 1);
      }
    }
    set.states.push_back(std::move(state));
  }
  Trim(set);
  return set;
}

namespace {

// A tree of texts by their characters.
struct TextNode {
  bool accepts = false;
  std::map<uint32_t, uint32_t> next = {};
};

Result<std::vector<TextNode>> TreeOf(std::span<const std::string> texts) {
  std::vector<TextNode> nodes(1);
  for (const std::string& text : texts) {
    uint32_t at = 0;
    for (const uint32_t code : CodePointsOf(text)) {
      const auto [place, is_new] =
          nodes[at].next.emplace(code, static_cast<uint32_t>(nodes.size()));
      at = place->second;
      if (is_new) nodes.emplace_back();
      if (nodes.size() > kTextSetStatesMax) return TooManyStates();
    }
    nodes[at].accepts = true;
  }
  return nodes;
}

}  // namespace

Result<TextSet> TheseTexts(std::span<const std::string> texts) {
  KVANT_ASSIGN(const std::vector<TextNode> nodes, TreeOf(texts));
  TextSet set;
  for (const TextNode& node : nodes) {
    TextSet::State state = {node.accepts, {}};
    for (const auto& [code, target] : node.next) state.edges.push_back({code, code, target});
    set.states.push_back(std::move(state));
  }
  Trim(set);
  return set;
}

Result<TextSet> OtherTexts(std::span<const std::string> texts) {
  KVANT_ASSIGN(const std::vector<TextNode> nodes, TreeOf(texts));
  const auto all = static_cast<uint32_t>(nodes.size());  // the state that accepts every text
  TextSet set;
  for (const TextNode& node : nodes) {
    TextSet::State state = {!node.accepts, {}};
    for (const TextSet::Edge& any : AnyCharacter()) {
      uint32_t at = any.first;
      for (auto it = node.next.lower_bound(any.first);
           it != node.next.end() && it->first <= any.last; ++it) {
        if (it->first > at) state.edges.push_back({at, it->first - 1, all});
        state.edges.push_back({it->first, it->first, it->second});
        at = it->first + 1;
      }
      if (at <= any.last) state.edges.push_back({at, any.last, all});
    }
    set.states.push_back(std::move(state));
  }
  TextSet::State& last = set.states.emplace_back();
  last = {true, AnyCharacter()};
  for (TextSet::Edge& edge : last.edges) edge.target = all;
  return set;
}

Result<TextSet> Combine(const TextSet& first, const TextSet& second, TextSetOp op) {
  return Pairs(first, second, op).Make();
}

void Trim(TextSet& set) {
  const size_t count = set.states.size();
  const Sources sources = SourcesOf(set);
  std::vector<uint32_t> left;
  std::vector<bool> lives(count);
  for (uint32_t state = 0; state < count; ++state) {
    if (!set.states[state].accepts) continue;
    lives[state] = true;
    left.push_back(state);
  }
  while (!left.empty()) {
    const uint32_t state = left.back();
    left.pop_back();
    for (const uint32_t from : sources.Of(state)) {
      if (lives[from]) continue;
      lives[from] = true;
      left.push_back(from);
    }
  }
  if (std::ranges::find(lives, false) == lives.end()) return;
  if (count == 0 || !lives[0]) {
    set.states.clear();
    return;
  }
  std::vector<uint32_t> numbers(count, kDead);
  uint32_t next = 0;
  for (size_t state = 0; state < count; ++state) {
    if (lives[state]) numbers[state] = next++;
  }
  std::vector<TextSet::State> states;
  states.reserve(next);
  for (size_t state = 0; state < count; ++state) {
    if (!lives[state]) continue;
    TextSet::State kept = {set.states[state].accepts, {}};
    for (const TextSet::Edge& edge : set.states[state].edges) {
      if (!lives[edge.target]) continue;
      AddEdge(kept.edges, {edge.first, edge.last, numbers[edge.target]});
    }
    states.push_back(std::move(kept));
  }
  set.states = std::move(states);
}

std::vector<uint32_t> CodePointsOf(std::string_view utf8) {
  TextCursor cursor("text", utf8);
  std::vector<uint32_t> codes;
  while (!cursor.at_end()) codes.push_back(cursor.Take());
  return codes;
}

}  // namespace kvant::grammar
