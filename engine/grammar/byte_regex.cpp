#include "engine/grammar/byte_regex.h"

#include <algorithm>
#include <array>
#include <utility>

#include <xxhash.h>

namespace kvant::grammar {
namespace {

constexpr uint32_t kLastCodePoint = 0x10ffff;
constexpr uint32_t kFirstSurrogate = 0xd800;
constexpr uint32_t kLastSurrogate = 0xdfff;

constexpr size_t kDerivedMax = 4096;              // derivatives that are kept
constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio

// The UTF-8 form of a code point, and how long it is.
size_t EncodeUtf8(uint32_t code, std::array<uint8_t, 4>& out) {
  if (code < 0x80) {
    out[0] = static_cast<uint8_t>(code);
    return 1;
  }
  const size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = length; i-- > 1; code >>= 6) out[i] = static_cast<uint8_t>(0x80 | (code & 0x3f));
  constexpr std::array<uint8_t, 5> kLead = {0, 0, 0xc0, 0xe0, 0xf0};
  out[0] = static_cast<uint8_t>(kLead[length] | code);
  return length;
}

// Calls add(sets) with a set for each byte of the forms of the code points from first to last,
// which have one length: ranges are cut until every byte's values are independent of the others.
template <class Add>
void SplitRange(uint32_t first, uint32_t last, const Add& add) {
  std::array<uint8_t, 4> low;
  std::array<uint8_t, 4> high;
  const size_t length = EncodeUtf8(first, low);
  EncodeUtf8(last, high);
  for (size_t tail = length - 1; tail >= 1; --tail) {
    // Where the leading bytes differ, everything behind them must run from 80 to bf.
    const uint32_t mask = (uint32_t{1} << (6 * tail)) - 1;
    if ((first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      SplitRange(first, first | mask, add);
      return SplitRange((first | mask) + 1, last, add);
    }
    if ((last & mask) != mask) {
      SplitRange(first, (last & ~mask) - 1, add);
      return SplitRange(last & ~mask, last, add);
    }
  }
  std::array<ByteSet, 4> sets;
  for (size_t i = 0; i < length; ++i) sets[i] = ByteSet::Range(low[i], high[i]);
  add(std::span<const ByteSet>(sets.data(), length));
}

}  // namespace

RegexPool::RegexPool() {
  nodes_.push_back({.kind = Kind::kNothing, .accepts_empty = false});
  nodes_.push_back({.kind = Kind::kEmpty, .accepts_empty = true});
}

ExprId RegexPool::Intern(const Node& node) {
  // Two multiplications by odd numbers with many bits, the golden ratio's and XXH64's second prime.
  const uint64_t kinds = static_cast<uint64_t>(node.kind) << 1 | static_cast<uint64_t>(node.lent);
  uint64_t hash = (uint64_t{node.first} << 32 | node.second) * kSpread;
  hash = (hash ^ hash >> 29 ^ (uint64_t{node.most} << 8 | kinds)) * 0xc2b2ae3d27d4eb4f;
  hash ^= hash >> 32;
  const uint32_t known = by_node_.Find(hash, [&](uint32_t id) { return nodes_[id] == node; });
  if (known != IdTable::kNone) return known;
  const auto expr = static_cast<ExprId>(nodes_.size());
  GrowByQuarter(nodes_, 1);
  nodes_.push_back(node);
  by_node_.Add(hash, expr);
  return expr;
}

ExprId RegexPool::Bytes(const ByteSet& set) {
  if (set.empty()) return kNothing;
  const uint64_t hash = XXH64(set.words().data(), sizeof(set.words()), 0);
  uint32_t number = by_set_.Find(hash, [&](uint32_t id) { return sets_[id] == set; });
  if (number == IdTable::kNone) {
    number = static_cast<uint32_t>(sets_.size());
    sets_.push_back(set);
    by_set_.Add(hash, number);
  }
  return Intern({.kind = Kind::kBytes, .accepts_empty = false, .first = number});
}

ExprId RegexPool::Literal(std::string_view bytes) {
  ExprId expr = kEmpty;
  for (size_t i = bytes.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    ExprId& one = single_bytes_[byte];
    if (one == kNothing) one = Bytes(ByteSet::Range(byte, byte));
    expr = Concat(one, expr);
  }
  return expr;
}

ExprId RegexPool::Concat(ExprId first, ExprId second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  if (nodes_[first].kind != Kind::kConcat) return Joined(first, second);
  std::vector<ExprId> heads;
  for (; nodes_[first].kind == Kind::kConcat; first = nodes_[first].second) {
    heads.push_back(nodes_[first].first);
  }
  ExprId expr = Joined(first, second);
  for (size_t i = heads.size(); i-- > 0;) expr = Joined(heads[i], expr);
  return expr;
}

// A concatenation whose head is none.
ExprId RegexPool::Joined(ExprId head, ExprId tail) {
  return Intern({.kind = Kind::kConcat,
                 .accepts_empty = nodes_[head].accepts_empty && nodes_[tail].accepts_empty,
                 .has_lent = nodes_[head].has_lent || nodes_[tail].has_lent,
                 .first = head,
                 .second = tail});
}

ExprId RegexPool::Concat(std::span<const ExprId> parts) {
  ExprId expr = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) expr = Concat(parts[i], expr);
  return expr;
}

ExprId RegexPool::Either(std::span<const ExprId> parts) {
  if (parts.size() == 1) return parts[0];
  std::vector<ExprId> flat;
  ByteSet bytes;
  for (const ExprId part : parts) {
    const Node& node = nodes_[part];
    if (node.kind == Kind::kEither) {
      const std::span inner = PartsOf(node);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else if (part != kNothing) {
      flat.push_back(part);
    }
  }
  // Sets of single bytes become one.
  const auto is_bytes = [this](ExprId part) { return nodes_[part].kind == Kind::kBytes; };
  for (const ExprId part : flat) {
    if (is_bytes(part)) bytes |= sets_[nodes_[part].first];
  }
  if (!bytes.empty()) {
    std::erase_if(flat, is_bytes);
    flat.push_back(Bytes(bytes));
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return kNothing;
  if (flat.size() == 1) return flat[0];

  const uint64_t hash = XXH64(flat.data(), flat.size() * sizeof(ExprId), 0);
  const uint32_t known = by_parts_.Find(
      hash, [&](uint32_t id) { return std::ranges::equal(PartsOf(nodes_[id]), flat); });
  if (known != IdTable::kNone) return known;
  Node node = {.kind = Kind::kEither,
               .accepts_empty = false,
               .first = static_cast<uint32_t>(lists_.size()),
               .second = static_cast<uint32_t>(flat.size())};
  for (const ExprId part : flat) {
    node.accepts_empty = node.accepts_empty || nodes_[part].accepts_empty;
    node.has_lent = node.has_lent || nodes_[part].has_lent;
  }
  const auto expr = static_cast<ExprId>(nodes_.size());
  GrowByQuarter(nodes_, 1);
  nodes_.push_back(node);
  GrowByQuarter(lists_, flat.size());
  lists_.insert(lists_.end(), flat.begin(), flat.end());
  by_parts_.Add(hash, expr);
  return expr;
}

ExprId RegexPool::Both(ExprId first, ExprId second) {
  if (first == second) return first;
  if (first > second) std::swap(first, second);
  if (first == kNothing) return kNothing;
  if (first == kEmpty) return nodes_[second].accepts_empty ? kEmpty : kNothing;
  return Intern({.kind = Kind::kBoth,
                 .accepts_empty = nodes_[first].accepts_empty && nodes_[second].accepts_empty,
                 .has_lent = nodes_[first].has_lent || nodes_[second].has_lent,
                 .first = first,
                 .second = second});
}

ExprId RegexPool::OneOf(std::vector<std::string_view> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return OneOfSorted(texts, 0);
}

// The rests of texts that begin with the same `depth` bytes.
ExprId RegexPool::OneOfSorted(std::span<const std::string_view> texts, size_t depth) {
  if (texts.empty()) return kNothing;
  if (texts.size() == 1) return Literal(texts[0].substr(depth));
  size_t common = depth;
  const std::string_view& last = texts.back();
  while (common < texts[0].size() && common < last.size() && texts[0][common] == last[common]) {
    ++common;
  }
  std::vector<ExprId> parts;
  size_t begin = 0;
  if (texts[0].size() == common) {
    parts.push_back(kEmpty);
    begin = 1;
  }
  while (begin < texts.size()) {
    size_t end = begin + 1;
    while (end < texts.size() && texts[end][common] == texts[begin][common]) ++end;
    const ExprId rest = OneOfSorted(texts.subspan(begin, end - begin), common + 1);
    parts.push_back(Concat(Literal(texts[begin].substr(common, 1)), rest));
    begin = end;
  }
  return Concat(Literal(texts[0].substr(depth, common - depth)), Either(parts));
}

ExprId RegexPool::OneCodePoint(std::span<const CodePoints> ranges) {
  std::vector<ExprId> parts;
  const auto add = [&](std::span<const ByteSet> sets) {
    ExprId expr = kEmpty;
    for (size_t i = sets.size(); i-- > 0;) expr = Concat(Bytes(sets[i]), expr);
    parts.push_back(expr);
  };
  constexpr std::array<CodePoints, 5> kForms = {{{0, 0x7f},
                                                 {0x80, 0x7ff},
                                                 {0x800, kFirstSurrogate - 1},
                                                 {kLastSurrogate + 1, 0xffff},
                                                 {0x10000, kLastCodePoint}}};
  ByteSet ascii;
  for (const CodePoints& range : ranges) {
    for (uint32_t code = range.first; code <= std::min(range.last, kForms[0].last); ++code) {
      ascii.Add(static_cast<uint8_t>(code));
    }
  }
  if (!ascii.empty()) parts.push_back(Bytes(ascii));
  for (const CodePoints& range : ranges) {
    for (const CodePoints& form : std::span(kForms).subspan(1)) {
      const uint32_t first = std::max(range.first, form.first);
      const uint32_t last = std::min(range.last, form.last);
      if (first == form.first && last == form.last) {
        ExprId& whole = whole_forms_[&form - kForms.data()];
        if (whole == kNothing) {
          std::vector<ExprId> others = std::exchange(parts, {});
          SplitRange(first, last, add);
          whole = Either(parts);
          parts = std::move(others);
        }
        parts.push_back(whole);
      } else if (first <= last) {
        SplitRange(first, last, add);
      }
    }
  }
  return Either(parts);
}

ExprId RegexPool::NoneOfCodePoints(std::span<const CodePoints> ranges) {
  std::vector<CodePoints> sorted(ranges.begin(), ranges.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<CodePoints> rest;
  uint32_t next = 0;
  for (const CodePoints& range : sorted) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    if (range.last >= next) next = range.last + 1;
  }
  if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
  return OneCodePoint(rest);
}

ExprId RegexPool::Automaton(std::span<const AutomatonState> states, Counted counted) {
  uint32_t far = 0;
  for (const AutomatonState& state : states) {
    far = std::max(far, state.counts.least);
    if (state.counts.most != kNoLimit) far = std::max(far, state.counts.most);
  }
  // Every state is a node of its own, made before its steps are known.
  std::vector<ExprId> exprs;
  for (const AutomatonState& state : states) {
    if (state.instead != kNothing) {
      exprs.push_back(state.instead);
      continue;
    }
    exprs.push_back(static_cast<ExprId>(nodes_.size()));
    nodes_.push_back({.kind = Kind::kState,
                      .accepts_empty = state.accepts,
                      .most = static_cast<uint32_t>(state_counts_.size())});
    if (counted == Counted::kYes) state_counts_.push_back({state.counts, far});
  }
  size_t count = 0;
  for (const AutomatonState& state : states) count += state.steps.size();
  GrowByQuarter(steps_, count);
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].instead != kNothing) continue;
    Node& node = nodes_[exprs[i]];
    node.first = static_cast<uint32_t>(steps_.size());
    node.second = static_cast<uint32_t>(states[i].steps.size());
    for (const auto& [texts, target] : states[i].steps) steps_.emplace_back(texts, exprs[target]);
  }
  return states.empty() ? kNothing : exprs[0];
}

uint64_t RegexPool::LengthOf(ExprId expr) const {
  uint64_t length = 1;
  for (; nodes_[expr].kind == Kind::kConcat; expr = nodes_[expr].second) ++length;
  return length;
}

ExprId RegexPool::Derivative(ExprId expr, uint8_t byte) {
  if (expr <= kEmpty) return kNothing;
  if (nodes_[expr].kind == Kind::kBytes) {
    return sets_[nodes_[expr].first].Has(byte) ? kEmpty : kNothing;
  }
  const uint64_t key = uint64_t{expr} << 8 | byte;
  if (!derived_.empty()) {
    const Derived& kept = derived_[PlaceOf(key)];
    if (kept.key == key) return kept.result;
  }
  // The parts of a derivative must be found again while it is made: they may be shared often.
  if (deriving_ == 0 && derived_count_ > kDerivedMax) ForgetDerivatives();
  ++deriving_;
  const ExprId result = DeriveNew(expr, byte);
  --deriving_;
  Keep(key, result);
  return result;
}

void RegexPool::ForgetDerivatives() {
  derived_ = {};
  derived_count_ = 0;
}

// The place of a key, or the empty one where it belongs.
size_t RegexPool::PlaceOf(uint64_t key) const {
  const size_t mask = derived_.size() - 1;
  size_t at = (key * kSpread >> 32) & mask;
  while (derived_[at].key != 0 && derived_[at].key != key) at = (at + 1) & mask;
  return at;
}

void RegexPool::Keep(uint64_t key, ExprId result) {
  constexpr size_t kFirst = 64;
  if (2 * (derived_count_ + 1) > derived_.size()) {
    std::vector<Derived> old(derived_.empty() ? kFirst : 2 * derived_.size());
    std::swap(old, derived_);
    for (const Derived& kept : old) {
      if (kept.key != 0) derived_[PlaceOf(kept.key)] = kept;
    }
  }
  derived_[PlaceOf(key)] = {key, result};
  ++derived_count_;
}

ExprId RegexPool::DeriveNew(ExprId expr, uint8_t byte) {
  const Node node = nodes_[expr];  // a copy: the pool grows
  switch (node.kind) {
    case Kind::kNothing:
    case Kind::kEmpty:
    case Kind::kBytes: return kNothing;  // Derivative knows these
    case Kind::kConcat: {
      const ExprId inside = Concat(Derivative(node.first, byte), node.second);
      if (!nodes_[node.first].accepts_empty) return inside;
      const std::array<ExprId, 2> both = {inside, Derivative(node.second, byte)};
      return Either(both);
    }
    case Kind::kEither: {
      std::vector<ExprId> parts;
      for (uint32_t i = 0; i < node.second; ++i) {
        const ExprId part = Derivative(lists_[node.first + i], byte);
        if (part != kNothing) parts.push_back(part);
      }
      return Either(parts);
    }
    case Kind::kBoth: return Both(Derivative(node.first, byte), Derivative(node.second, byte));
    case Kind::kRepeat: {
      const ExprId inside = Derivative(node.first, byte);
      if (inside == kNothing) return kNothing;
      const uint32_t least = node.second == 0 ? 0 : node.second - 1;
      const uint32_t most = node.most == kNoLimit ? kNoLimit : node.most - 1;
      return Concat(inside, Repeat(node.first, least, most, node.lent));
    }
    case Kind::kState:
    case Kind::kCounted: {
      const bool is_counted = node.kind == Kind::kCounted;
      if (is_counted && node.most == 0) return kNothing;
      const uint32_t least = node.second == 0 ? 0 : node.second - 1;
      const uint32_t most = node.most == kNoLimit ? kNoLimit : node.most - 1;
      const Node state = is_counted ? nodes_[node.first] : node;
      std::vector<ExprId> parts;
      for (uint32_t i = 0; i < state.second; ++i) {
        const auto [texts, target] = steps_[state.first + i];
        const ExprId after = is_counted ? StateWithin(target, least, most, node.lent) : target;
        if (after == kNothing) continue;
        const ExprId inside = Derivative(texts, byte);
        if (inside != kNothing) parts.push_back(Concat(inside, after));
      }
      return Either(parts);
    }
  }
  return kNothing;
}

// Bytes, or a repetition of them, and what comes behind it.
RegexPool::FirstSets RegexPool::FirstSetsOf(ExprId expr) const {
  const auto set_of = [this](ExprId one) {
    const Node& node = nodes_[one];
    return node.kind == Kind::kBytes ? node.first : kNoSet;
  };
  const Node& node = nodes_[expr];
  const Node& head = node.kind == Kind::kConcat ? nodes_[node.first] : node;
  if (head.kind == Kind::kBytes) return {head.first};
  if (head.kind != Kind::kRepeat) return {};
  const FirstSets sets = {set_of(head.first)};
  if (sets.first == kNoSet || !head.accepts_empty || node.kind != Kind::kConcat) return sets;
  const Node& rest = nodes_[node.second];
  const uint32_t behind = set_of(rest.kind == Kind::kConcat ? rest.first : node.second);
  if (behind == kNoSet || sets_[sets.first].Meets(sets_[behind])) return {};
  return {sets.first, behind};
}

std::vector<ByteSet> RegexPool::SetsOf(std::span<const ExprId> exprs) const {
  std::vector<ByteSet> sets;
  std::vector<ExprId> left(exprs.begin(), exprs.end());
  std::vector<bool> seen(nodes_.size());
  while (!left.empty()) {
    const ExprId next = left.back();
    left.pop_back();
    if (seen[next]) continue;
    seen[next] = true;
    const Node& node = nodes_[next];
    switch (node.kind) {
      case Kind::kNothing:
      case Kind::kEmpty: break;
      case Kind::kBytes: sets.push_back(sets_[node.first]); break;
      case Kind::kConcat:
      case Kind::kBoth:
        left.push_back(node.first);
        left.push_back(node.second);
        break;
      case Kind::kEither: {
        const std::span parts = PartsOf(node);
        left.insert(left.end(), parts.begin(), parts.end());
        break;
      }
      case Kind::kRepeat:
      case Kind::kCounted: left.push_back(node.first); break;
      case Kind::kState:
        for (uint32_t i = 0; i < node.second; ++i) {
          left.push_back(steps_[node.first + i].first);
          left.push_back(steps_[node.first + i].second);
        }
        break;
    }
  }
  return sets;
}

size_t RegexPool::bytes() const {
  return nodes_.capacity() * sizeof(Node) + sets_.capacity() * sizeof(ByteSet) +
         lists_.capacity() * sizeof(ExprId) + steps_.capacity() * sizeof(steps_[0]) +
         state_counts_.capacity() * sizeof(StateCounts) + derived_.capacity() * sizeof(Derived) +
         by_node_.bytes() + by_set_.bytes() + by_parts_.bytes();
}

}  // namespace kvant::grammar
