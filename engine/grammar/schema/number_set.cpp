#include "engine/grammar/schema/number_set.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/grammar/schema/pattern_set.h"

namespace kvant::grammar {
namespace {

using Edges = std::vector<TextSet::Edge>;

constexpr const char* kPlainNumber = "^-?(?:0|[1-9][0-9]*)(?:[.][0-9]+)?$";
constexpr const char* kWholeNumber = "^-?(?:0|[1-9][0-9]*)(?:[.]0+)?$";
constexpr const char* kWithoutPoint = "^-?[0-9]+$";
constexpr const char* kShortest = "^(?:0|-?[1-9][0-9]*|-?[0-9]+[.][0-9]*[1-9])$";
constexpr const char* kWithoutZeros = "^-?[0-9]+(?:[.](?:0|[0-9]*[1-9]))?$";

// The value of a pattern that is a constant.
TextSet Known(const char* pattern) {
  auto set = PatternSet(pattern);
  KVANT_CHECK(set.ok());
  return std::move(*set);
}

TextSet& PlainNumbers() {
  static TextSet set = Known(kPlainNumber);
  return set;
}

enum Order : uint8_t { kLess = 1, kEqual = 2, kGreater = 4 };

// Builds the automaton of the texts without a sign whose numbers compare with a bound as `wanted`
// says, at the end of a set's states.
class Comparison {
 public:
  Comparison(TextSet& set, const Decimal& bound, uint8_t wanted)
      : set_(set), whole_(bound.Whole()), fraction_(bound.Fraction()), wanted_(wanted) {}

  // The edges with which such a text begins.
  Edges Begin() {
    less_ = Loop(kLess);
    greater_ = Loop(kGreater);
    less_dot_ = Add(false, set_.states[less_].edges);
    greater_dot_ = Add(false, set_.states[greater_].edges);
    AddFraction();
    const uint32_t longer = Add(Wants(kGreater), {});
    set_.states[longer].edges = {{'.', '.', greater_dot_}, {'0', '9', longer}};
    // The states behind the last digit come first.
    std::array<uint32_t, 3> behind = {longer, longer, longer};  // by order: less, equal, greater
    for (size_t length = whole_.size(); length >= 1; --length) {
      const bool is_whole = length == whole_.size();
      std::array<uint32_t, 3> here;
      for (size_t order = 0; order < 3; ++order) {
        const Order found = is_whole ? static_cast<Order>(1 << order) : kLess;
        const uint32_t dot = found == kLess    ? less_dot_
                             : found == kEqual ? equal_dot_
                                               : greater_dot_;
        Edges edges = {{'.', '.', dot}};
        if (is_whole) {
          edges.push_back({'0', '9', longer});
        } else {
          AddDigits(edges, order, whole_[length], behind);
        }
        here[order] = Add(Wants(AtEnd(found)), std::move(edges));
      }
      behind = here;
    }
    // A text that begins with 0 has no other digit before its point.
    const Order zero = whole_ == "0" ? kEqual : kLess;
    Edges edges = {
        {'0', '0', Add(Wants(AtEnd(zero)), {{'.', '.', zero == kEqual ? equal_dot_ : less_dot_}})}};
    Edges others;
    AddDigits(others, 1, whole_[0], behind);
    for (TextSet::Edge edge : others) {
      if (edge.last == '0') continue;
      edge.first = edge.first == '0' ? '1' : edge.first;
      edges.push_back(edge);
    }
    return edges;
  }

 private:
  bool Wants(Order order) const { return (wanted_ & order) != 0; }
  // How a text compares that ends before the point.
  Order AtEnd(Order order) const { return order == kEqual && !fraction_.empty() ? kLess : order; }

  uint32_t Add(bool accepts, Edges edges) {
    set_.states.push_back({accepts, std::move(edges)});
    return static_cast<uint32_t>(set_.states.size() - 1);
  }

  // Digits behind the point that change nothing any more.
  uint32_t Loop(Order order) {
    const uint32_t state = Add(Wants(order), {});
    set_.states[state].edges = {{'0', '9', state}};
    return state;
  }

  // The next digit, where the digits before it compare as `order` says (0, 1, 2).
  static void AddDigits(Edges& edges, size_t order, char digit,
                        const std::array<uint32_t, 3>& behind) {
    const auto code = static_cast<uint32_t>(digit);
    if (order != 1) {
      edges.push_back({'0', '9', behind[order]});
      return;
    }
    if (code > '0') edges.push_back({'0', code - 1, behind[0]});
    edges.push_back({code, code, behind[1]});
    if (code < '9') edges.push_back({code + 1, '9', behind[2]});
  }

  // The digits behind the point where the digits before it are equal.
  void AddFraction() {
    uint32_t next = Add(Wants(kEqual), {});
    set_.states[next].edges = {{'0', '0', next}, {'1', '9', greater_}};
    for (size_t i = fraction_.size(); i-- > 0;) {
      Edges edges;
      AddDigits(edges, 1, fraction_[i], {less_, next, greater_});
      next = Add(Wants(kLess), std::move(edges));
    }
    equal_dot_ = Add(false, set_.states[next].edges);
  }

  TextSet& set_;
  std::string whole_;
  std::string fraction_;
  uint8_t wanted_;
  uint32_t less_ = 0;  // states behind the point, where the order is known
  uint32_t greater_ = 0;
  uint32_t less_dot_ = 0;  // the same, but a digit must follow
  uint32_t greater_dot_ = 0;
  uint32_t equal_dot_ = 0;
};

// Residues of the numbers so far; a number is a multiple of a / 10^f.
class Multiples {
 public:
  Multiples(uint64_t a, uint64_t f) : a_(a), f_(f) {}

  Result<TextSet> Make() {
    set_.states.emplace_back();  // the beginning
    set_.states.emplace_back();  // behind the sign
    for (uint32_t begin : {0u, 1u}) {
      Edges edges;
      if (begin == 0) edges.push_back({'-', '-', 1});
      edges.push_back({'0', '0', StateOf({kZero, 0})});
      for (uint32_t digit = 1; digit <= 9; ++digit) {
        edges.push_back({'0' + digit, '0' + digit, StateOf({kWhole, digit % a_})});
      }
      set_.states[begin].edges = std::move(edges);
    }
    for (size_t next = 0; next < open_.size(); ++next) {
      if (open_.size() > kTextSetStatesMax) {
        return MakeError(ErrorCode::kNotSupported, "expected at most {} residues, found more",
                         kTextSetStatesMax);
      }
      AddState(next);
    }
    Trim(set_);
    return std::move(set_);
  }

 private:
  // kZero: one zero; kWhole: digits before the point; kPoint: the point; from kDigits on: that many
  // digits behind the point, more than f_ of them as f_ + 1.
  static constexpr uint64_t kZero = 0;
  static constexpr uint64_t kWhole = 1;
  static constexpr uint64_t kPoint = 2;
  static constexpr uint64_t kDigits = 2;
  using Key = std::pair<uint64_t, uint64_t>;  // where, residue

  uint32_t StateOf(const Key& key) {
    const auto [place, is_new] = numbers_.emplace(key, static_cast<uint32_t>(open_.size() + 2));
    if (is_new) {
      open_.push_back(key);
      set_.states.emplace_back();
    }
    return place->second;
  }

  uint64_t Times10(uint64_t residue, uint64_t times) const {
    for (uint64_t i = 0; i < times; ++i) residue = residue * 10 % a_;
    return residue;
  }

  void AddState(size_t number) {
    const auto [where, residue] = open_[number];
    const uint64_t digits = where <= kPoint ? 0 : where - kDigits;  // behind the point
    TextSet::State state;
    state.accepts = where != kPoint && Times10(residue, f_ > digits ? f_ - digits : 0) == 0;
    if (where <= kWhole) state.edges.push_back({'.', '.', StateOf({kPoint, residue})});
    if (where == kWhole) AddDigits(state.edges, kWhole, residue);
    if (where >= kPoint && digits < f_) AddDigits(state.edges, where + 1, residue);
    if (where >= kPoint && digits >= f_) {
      state.edges.push_back({'0', '0', StateOf({kDigits + f_ + 1, residue})});
    }
    set_.states[number + 2] = std::move(state);
  }

  void AddDigits(Edges& edges, uint64_t where, uint64_t residue) {
    for (uint32_t digit = 0; digit <= 9; ++digit) {
      const uint64_t next = (residue * 10 + digit) % a_;
      edges.push_back({'0' + digit, '0' + digit, StateOf({where, next})});
    }
  }

  uint64_t a_;
  uint64_t f_;
  TextSet set_;
  std::map<Key, uint32_t> numbers_;
  std::vector<Key> open_;
};

}  // namespace

NumberSet AllNumbers() { return {PlainNumbers(), true, true}; }

NumberSet WholeNumbers() {
  static const TextSet whole = Known(kWholeNumber);
  return {whole, false, false, NumberSet::Form::kWhole};
}

// Few numbers are a pattern; many are two halves.
Result<NumberSet> TheseNumbers(std::span<const Decimal> numbers) {
  constexpr size_t kInPattern = 32;
  NumberSet set = {{}, false, false, NumberSet::Form::kShort};
  if (numbers.empty()) return set;
  if (numbers.size() > kInPattern) {
    const size_t half = numbers.size() / 2;
    KVANT_ASSIGN(const NumberSet first, TheseNumbers(numbers.first(half)));
    KVANT_ASSIGN(const NumberSet second, TheseNumbers(numbers.subspan(half)));
    KVANT_ASSIGN(set.plain, Combine(first.plain, second.plain, TextSetOp::kOr));
    return set;
  }
  std::string pattern = "^(?:";
  for (const Decimal& number : numbers) {
    if (pattern.back() != ':') pattern += '|';
    pattern += number.is_zero() ? "-?" : number.negative ? "-" : "";
    const std::string fraction = number.Fraction();
    pattern += number.Whole();
    pattern += fraction.empty() ? "(?:[.]0+)?" : "[.]" + fraction + "0*";
  }
  KVANT_ASSIGN(set.plain, PatternSet(pattern + ")$"));
  return set;
}

NumberSet NumbersFrom(NumberBound bound, const Decimal& number) {
  const bool is_lower = bound == NumberBound::kLeast || bound == NumberBound::kAbove;
  const uint8_t equal =
      bound == NumberBound::kLeast || bound == NumberBound::kGreatest ? kEqual : 0;
  const auto wanted = static_cast<uint8_t>((is_lower ? kGreater : kLess) | equal);
  // The bounds of a number -x: x compares with -number the other way round.
  const auto mirrored = static_cast<uint8_t>((is_lower ? kLess : kGreater) | equal);
  constexpr uint8_t kAll = kLess | kEqual | kGreater;
  const bool above = number > Decimal{};
  const bool below = number < Decimal{};
  // A bound on the other side of 0 lets all numbers of a sign pass, or none.
  const uint8_t for_positive = below ? (is_lower ? kAll : 0) : wanted;
  const uint8_t for_negative = above ? (is_lower ? 0 : kAll) : mirrored;
  NumberSet set;
  set.plain.states.emplace_back();
  set.plain.states.emplace_back();
  Edges negative = Comparison(set.plain, number.Magnitude(), for_negative).Begin();
  set.plain.states[1].edges = std::move(negative);
  Edges edges = {{'-', '-', 1}};
  const Edges positive = Comparison(set.plain, number.Magnitude(), for_positive).Begin();
  edges.insert(edges.end(), positive.begin(), positive.end());
  set.plain.states[0].edges = std::move(edges);
  Trim(set.plain);
  const bool has_zero = !above && !below && equal != 0;
  set.has_exponents = for_positive == kAll || (is_lower && has_zero);
  set.has_negative_exponents = for_negative == kAll || (!is_lower && has_zero);
  return set;
}

Result<NumberSet> MultiplesOf(const Decimal& number) {
  const std::string fraction = number.Fraction();
  std::string digits = number.Whole() + fraction;
  digits.erase(0, digits.find_first_not_of('0'));
  if (digits.size() > 6) {
    return MakeError(ErrorCode::kNotSupported,
                     "expected a number of at most 6 digits, found {} digits", digits.size());
  }
  NumberSet set;
  KVANT_ASSIGN(set.plain, Multiples(std::stoull(digits), fraction.size()).Make());
  return set;
}

Result<NumberSet> BothNumbers(const NumberSet& first, const NumberSet& second) {
  NumberSet set;
  KVANT_ASSIGN(set.plain, Combine(first.plain, second.plain, TextSetOp::kAnd));
  set.has_exponents = first.has_exponents && second.has_exponents;
  set.has_negative_exponents = first.has_negative_exponents && second.has_negative_exponents;
  using Form = NumberSet::Form;
  const auto either = [&](Form form) { return first.form == form || second.form == form; };
  set.form = either(Form::kWhole) ? Form::kWhole : either(Form::kShort) ? Form::kShort : Form::kAny;
  return set;
}

Result<NumberSet> OtherNumbers(const NumberSet& set) {
  NumberSet others;
  KVANT_ASSIGN(others.plain, Combine(PlainNumbers(), set.plain, TextSetOp::kWithout));
  return others;
}

Result<TextSet> WrittenTexts(const NumberSet& set) {
  static const TextSet without_point = Known(kWithoutPoint);
  static const TextSet without_zeros = Known(kWithoutZeros);
  switch (set.form) {
    case NumberSet::Form::kWhole: return Combine(set.plain, without_point, TextSetOp::kAnd);
    case NumberSet::Form::kShort: return Combine(set.plain, without_zeros, TextSetOp::kAnd);
    case NumberSet::Form::kAny: break;
  }
  return set.plain;
}

Result<std::optional<std::vector<std::string>>> ListNumbers(const NumberSet& set, size_t most) {
  static const TextSet shortest = Known(kShortest);
  const std::optional<std::vector<std::string>> none;
  KVANT_ASSIGN(const TextSet texts, Combine(set.plain, shortest, TextSetOp::kAnd));
  std::vector<std::string> found;
  if (texts.empty()) return std::optional(found);
  if (texts.GreatestLength() == UINT32_MAX) return none;
  std::vector<std::pair<uint32_t, std::string>> left = {{0, ""}};
  while (!left.empty()) {
    const auto [state, text] = std::move(left.back());
    left.pop_back();
    if (texts.states[state].accepts) found.push_back(text);
    if (found.size() > most) return none;
    for (const TextSet::Edge& edge : texts.states[state].edges) {
      for (uint32_t code = edge.first; code <= edge.last; ++code) {
        left.emplace_back(edge.target, text + static_cast<char>(code));
      }
    }
  }
  return std::optional(std::move(found));
}

}  // namespace kvant::grammar
