// Counted repetitions, and automata whose steps are counted.
#include <algorithm>
#include <array>
#include <vector>

#include "engine/grammar/byte_regex.h"

namespace kvant::grammar {

ExprId RegexPool::Repeat(ExprId part, uint32_t least, uint32_t most) {
  return Repeat(part, least, most, Lent::kNo);
}

ExprId RegexPool::Repeat(ExprId part, uint32_t least, uint32_t most, Lent lent) {
  if (most == 0 || part == kEmpty) return kEmpty;
  if (part == kNothing) return least == 0 ? kEmpty : kNothing;
  if (least == 1 && most == 1) return part;
  // A part that may be empty may be left out as often as one likes.
  if (nodes_[part].accepts_empty) least = 0;
  return Intern({.kind = Kind::kRepeat,
                 .accepts_empty = least == 0,
                 .has_lent = lent == Lent::kYes,
                 .lent = lent,
                 .first = part,
                 .second = least,
                 .most = most});
}

// Without what cannot come to its end in so many steps; bounds that exclude nothing are left out.
ExprId RegexPool::StateWithin(ExprId state, uint32_t least, uint32_t most, Lent lent) {
  const Node& node = nodes_[state];
  if (node.kind == Kind::kRepeat) return Repeat(node.first, least, most, lent);
  if (node.kind != Kind::kState) return kNothing;
  const StepCounts& counts = state_counts_[node.most].counts;
  if (least > most || least > counts.most || most < counts.least) return kNothing;
  if (least <= counts.least) least = 0;
  if (most >= counts.most) most = kNoLimit;
  if (least == 0 && most == kNoLimit) return state;
  return Intern({.kind = Kind::kCounted,
                 .accepts_empty = least == 0 && node.accepts_empty,
                 .has_lent = lent == Lent::kYes,
                 .lent = lent,
                 .first = state,
                 .second = least,
                 .most = most});
}

// A repetition or counted state with other bounds.
ExprId RegexPool::Recounted(const Node& node, uint32_t least, uint32_t most, Lent lent) {
  return node.kind == Kind::kRepeat ? Repeat(node.first, least, most, lent)
                                    : StateWithin(node.first, least, most, lent);
}

// Bounds that are greater than this exclude nothing yet.
uint32_t RegexPool::FarOf(const Node& node) const {
  return node.kind == Kind::kCounted ? state_counts_[nodes_[node.first].most].far : 0;
}

// The nesting of concatenations is walked in a loop: literals may be long.
ExprId RegexPool::Clamp(ExprId expr, uint32_t bytes) {
  std::vector<ExprId> heads;
  Node node = nodes_[expr];
  while (node.kind == Kind::kConcat && heads.size() < bytes) {
    heads.push_back(Clamp(node.first, bytes));
    expr = node.second;
    node = nodes_[expr];
  }
  ExprId result = expr;
  if (node.kind == Kind::kEither) {
    std::vector<ExprId> parts;
    for (uint32_t i = 0; i < node.second; ++i) {
      parts.push_back(Clamp(lists_[node.first + i], bytes));
    }
    result = Either(parts);
  } else if (node.kind == Kind::kBoth) {
    const ExprId first = Clamp(node.first, bytes);
    result = Both(first, Clamp(node.second, bytes));
  } else if (node.kind == Kind::kRepeat || node.kind == Kind::kCounted) {
    if (node.kind == Kind::kRepeat) node.first = Clamp(node.first, bytes);
    const uint64_t enough = uint64_t{bytes} + FarOf(node);
    const uint32_t most = node.most >= enough ? kNoLimit : node.most;
    const auto least = static_cast<uint32_t>(std::min<uint64_t>(node.second, enough + 1));
    result = Recounted(node, least, most, Lent::kNo);
  }
  for (size_t i = heads.size(); i-- > 0;) result = Concat(heads[i], result);
  return result;
}

uint32_t RegexPool::FrontCount(ExprId expr, int& looks) const {
  while (--looks >= 0) {
    const Node& node = nodes_[expr];
    switch (node.kind) {
      case Kind::kConcat: {
        // Behind single bytes, as of a character under way, comes what is repeated.
        if (nodes_[node.first].kind != Kind::kBytes) {
          const uint32_t first = FrontCount(node.first, looks);
          if (first != kNoLimit || !nodes_[node.first].accepts_empty) return first;
        }
        expr = node.second;
        continue;
      }
      case Kind::kEither: {
        uint32_t least = kNoLimit;
        for (uint32_t i = 0; i < node.second && looks > 0; ++i) {
          least = std::min(least, FrontCount(lists_[node.first + i], looks));
        }
        return least;
      }
      case Kind::kBoth:
        return std::min(FrontCount(node.first, looks), FrontCount(node.second, looks));
      case Kind::kRepeat: return node.most;
      case Kind::kCounted: {
        const uint32_t far = FarOf(node);
        return node.most == kNoLimit || node.most <= far ? kNoLimit : node.most - far;
      }
      default: return kNoLimit;
    }
  }
  return kNoLimit;
}

// ---- Far counts ---------------------------------------------------------------------------------

// How far the bound that counts now is from where it excludes something; kNoLimit: there is none.
uint32_t RegexPool::WayLeft(const Node& node) const {
  const uint32_t bound = node.second > 0 ? node.second : node.most;
  if (bound == kNoLimit) return kNoLimit;
  return bound - std::min(bound, FarOf(node));
}

// The expression with change(node) in place of each count in front.
template <class Change>
ExprId RegexPool::MapFront(ExprId expr, int& looks, const Change& change) {
  if (--looks < 0) return expr;
  const Node node = nodes_[expr];  // a copy: the pool grows
  switch (node.kind) {
    case Kind::kConcat: {
      const bool is_bytes = nodes_[node.first].kind == Kind::kBytes;
      const bool may_pass = is_bytes || nodes_[node.first].accepts_empty;
      const ExprId first = is_bytes ? node.first : MapFront(node.first, looks, change);
      return Concat(first, may_pass ? MapFront(node.second, looks, change) : node.second);
    }
    case Kind::kEither: {
      std::vector<ExprId> parts;
      for (uint32_t i = 0; i < node.second; ++i) {
        parts.push_back(MapFront(lists_[node.first + i], looks, change));
      }
      return Either(parts);
    }
    case Kind::kBoth: {
      const ExprId first = MapFront(node.first, looks, change);
      return Both(first, MapFront(node.second, looks, change));
    }
    case Kind::kRepeat:
    case Kind::kCounted: return change(expr, node);
    default: return expr;
  }
}

uint32_t RegexPool::UnitsToLend(ExprId expr) {
  if (nodes_[expr].has_lent) return 0;
  uint32_t least = kNoLimit;
  int looks = kFrontLooksMax;
  MapFront(expr, looks, [&](ExprId part, const Node& node) {
    const uint32_t way = WayLeft(node);
    if (way != kNoLimit && way >= 2 * kLentUnit) least = std::min(least, way / kLentUnit - 1);
    return part;
  });
  return least == kNoLimit ? 0 : least;
}

ExprId RegexPool::Lend(ExprId expr, uint32_t units) {
  int looks = kFrontLooksMax;
  return MapFront(expr, looks, [&](ExprId part, const Node& node) {
    const uint32_t way = WayLeft(node);
    if (way == kNoLimit || way < 2 * kLentUnit) return part;
    const uint32_t least = node.second == 0 ? 0 : node.second - units * kLentUnit;
    const uint32_t most = node.most == kNoLimit ? kNoLimit : node.most - units * kLentUnit;
    return Recounted(node, least, most, Lent::kYes);
  });
}

bool RegexPool::NeedsUnit(ExprId expr) const {
  const Node& node = nodes_[expr];
  if (!node.has_lent) return false;
  switch (node.kind) {
    case Kind::kConcat:
    case Kind::kBoth: return NeedsUnit(node.first) || NeedsUnit(node.second);
    case Kind::kEither: {
      return std::ranges::any_of(PartsOf(node), [this](ExprId part) { return NeedsUnit(part); });
    }
    default: return WayLeft(node) < kLentUnit;
  }
}

// The expression with marked counts higher by `more`.
ExprId RegexPool::MapLent(ExprId expr, uint32_t more, Lent lent) {
  const Node node = nodes_[expr];
  if (!node.has_lent) return expr;
  switch (node.kind) {
    case Kind::kConcat: {
      const ExprId first = MapLent(node.first, more, lent);
      return Concat(first, MapLent(node.second, more, lent));
    }
    case Kind::kBoth: {
      const ExprId first = MapLent(node.first, more, lent);
      return Both(first, MapLent(node.second, more, lent));
    }
    case Kind::kEither: {
      std::vector<ExprId> parts;
      for (uint32_t i = 0; i < node.second; ++i) {
        parts.push_back(MapLent(lists_[node.first + i], more, lent));
      }
      return Either(parts);
    }
    default: {
      const uint32_t least = node.second == 0 ? 0 : node.second + more;
      const uint32_t most = node.most == kNoLimit ? kNoLimit : node.most + more;
      return Recounted(node, least, most, lent);
    }
  }
}

}  // namespace kvant::grammar
