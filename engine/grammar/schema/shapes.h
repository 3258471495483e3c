// A JSON schema's demands on a value, type by type, in a form that has intersections, unions and
// mostly complements.
//
// A Need is one thing that a value must satisfy: a schema at its place, a constant, or the opposite
// of another need. A Goal is a set of needs that hold together. Needs of items and properties stay
// unopened, so that recursive schemas are finite: there are no more goals than sets of places.
//
// Thread-safety: values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/grammar/schema/number_set.h"
#include "engine/grammar/schema/text_set.h"

namespace kvant::grammar {

using NeedId = uint32_t;
using Goal = std::vector<NeedId>;  // ascending; none: any value

inline constexpr NeedId kAnything = 0;
inline constexpr NeedId kNoValue = 1;

inline constexpr uint32_t kNoCountLimit = UINT32_MAX;

// Numbers from `least` to `most`, both included.
struct CountRange {
  uint32_t least = 0;
  uint32_t most = kNoCountLimit;
  bool empty() const { return least > most; }
  bool is_all() const { return least == 0 && most == kNoCountLimit; }
};

// Either one of a list of texts, or the texts of an automaton that have some length.
struct StringShape {
  std::optional<std::vector<std::string>> list = {};
  std::shared_ptr<const TextSet> texts = nullptr;  // null: all
  CountRange length = {};                          // code points
  bool is_exact = true;                            // else there may be more such texts
};

struct ArrayRule {
  std::vector<NeedId> first = {};  // of the first items
  NeedId rest = kAnything;         // of those behind them
};

struct ArrayShape {
  std::vector<ArrayRule> rules = {};  // all hold
  CountRange count = {};
  std::optional<NeedId> contained = {};  // of some items,
  CountRange contained_count = {1};      // this many
  bool is_unique = false;
};

// One schema's demands on properties.
struct PropertyRule {
  std::vector<std::string> order = {};  // of the names below that have one
  std::unordered_map<std::string, NeedId> named = {};
  std::vector<std::pair<std::shared_ptr<const TextSet>, NeedId>> patterns = {};
  NeedId others = kAnything;  // of those that neither has
};

struct ObjectShape {
  std::vector<std::shared_ptr<const PropertyRule>> rules = {};  // all hold
  std::vector<std::string> required = {};
  CountRange count = {};
  std::vector<std::shared_ptr<const TextSet>> names = {};  // all names are in all of these
};

// The union of what each type allows. Lists are alternatives.
struct Values {
  bool has_null = false;
  bool has_false = false;
  bool has_true = false;
  std::vector<NumberSet> numbers = {};
  std::vector<StringShape> strings = {};
  std::vector<ArrayShape> arrays = {};
  std::vector<ObjectShape> objects = {};
};

}  // namespace kvant::grammar
