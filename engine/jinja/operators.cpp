#include "engine/jinja/operators.h"

#include <algorithm>
#include <cmath>

namespace kvant::jinja {
namespace {

constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
constexpr std::string_view kComparisonSigns[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};

Error WrongOperands(std::string_view sign, const Value& left, const Value& right) {
  if (left.IsUndefined()) return Wrong("{}", left.UndefinedMessage());
  if (right.IsUndefined()) return Wrong("{}", right.UndefinedMessage());
  return Wrong("{} does not go with {} and {}", sign, left.TypeName(), right.TypeName());
}

Error TooLarge() { return Wrong("a whole number has more than 64 bits"); }

Whole FloorQuotient(Whole a, Whole b) {
  const Whole quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

double FloorRemainder(double a, double b) {
  const double remainder = std::fmod(a, b);
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

// The number as a value, if it has 64 bits.
Result<Value> Fitting(Whole number) {
  if (number < kWholeMin || number > kWholeMax) return TooLarge();
  return Value(number);
}

Result<Value> PowerOfWhole(Whole base, Whole exponent) {
  if (exponent < 0) {
    if (base == 0) return Wrong("0 has no negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base >= -1 && base <= 1) {
    return Value(base == 0 ? Whole{exponent == 0} : (exponent % 2 == 0 ? Whole{1} : base));
  }
  Whole result = 1;
  for (; exponent > 0; --exponent) {
    const bool fits = !__builtin_mul_overflow(result, base, &result);
    if (!fits || result < kWholeMin || result > kWholeMax) return TooLarge();
  }
  return Value(result);
}

Result<Value> ComputeWhole(Arithmetic operation, Whole a, Whole b) {
  Whole product = 0;
  const bool by_zero = b == 0;
  switch (operation) {
    case Arithmetic::kAdd: return Fitting(a + b);
    case Arithmetic::kSubtract: return Fitting(a - b);
    case Arithmetic::kMultiply:
      if (__builtin_mul_overflow(a, b, &product)) return TooLarge();
      return Fitting(product);
    case Arithmetic::kDivide:
      if (by_zero) return Wrong("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Arithmetic::kFloorDivide:
      if (by_zero) return Wrong("division by zero");
      return Fitting(FloorQuotient(a, b));
    case Arithmetic::kModulo:
      if (by_zero) return Wrong("division by zero");
      return Value(a - FloorQuotient(a, b) * b);
    case Arithmetic::kPower: break;
  }
  return PowerOfWhole(a, b);
}

Result<Value> ComputeFloat(Arithmetic operation, double a, double b) {
  switch (operation) {
    case Arithmetic::kAdd: return Value(a + b);
    case Arithmetic::kSubtract: return Value(a - b);
    case Arithmetic::kMultiply: return Value(a * b);
    case Arithmetic::kDivide:
      if (b == 0) return Wrong("division by zero");
      return Value(a / b);
    case Arithmetic::kFloorDivide:
      if (b == 0) return Wrong("division by zero");
      return Value(std::floor((a - FloorRemainder(a, b)) / b + 0.5));
    case Arithmetic::kModulo:
      if (b == 0) return Wrong("division by zero");
      return Value(FloorRemainder(a, b));
    case Arithmetic::kPower: break;
  }
  const double power = std::pow(a, b);
  if (std::isnan(power) || std::isinf(power)) return Wrong("{} ** {} is no float", a, b);
  return Value(power);
}

Result<Value> JoinTexts(Run& run, const Text& left, const Text& right) {
  const bool markup = left.markup() || right.markup();
  Text out = markup && !left.markup() ? EscapeHtml(left) : left;
  out.Append(markup && !right.markup() ? EscapeHtml(right) : right);
  out.SetMarkup(markup);
  return run.Make(std::move(out));
}

Result<Value> Repeat(Run& run, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const size_t size = value.IsText() ? value.text().size() : value.sequence().items.size();
  size_t bytes = 0;
  if (__builtin_mul_overflow(size + 1, count, &bytes)) return TooLarge();
  KVANT_TRY(run.Charge(bytes));
  if (value.IsText()) {
    Text out;
    for (size_t i = 0; i < count && size > 0; ++i) out.Append(value.text());
    return run.Make(std::move(out));
  }
  KVANT_TRY(run.Charge(bytes * sizeof(Value)));
  std::vector<Value> items;
  const std::vector<Value>& once = value.sequence().items;
  for (size_t i = 0; i < count && size > 0; ++i)
    items.insert(items.end(), once.begin(), once.end());
  return run.Make(value.sequence().kind, std::move(items));
}

bool IsListOrTuple(const Value& value) {
  return value.IsSequence(Sequence::Kind::kList) || value.IsSequence(Sequence::Kind::kTuple);
}

}  // namespace

Result<Value> Compute(Run& run, Arithmetic operation, const Value& left, const Value& right) {
  if (left.IsWhole() && right.IsWhole()) {
    return ComputeWhole(operation, left.whole(), right.whole());
  }
  if (left.IsNumber() && right.IsNumber()) {
    return ComputeFloat(operation, left.number(), right.number());
  }
  if (operation == Arithmetic::kAdd && left.IsText() && right.IsText()) {
    return JoinTexts(run, left.text(), right.text());
  }
  if (operation == Arithmetic::kAdd && IsListOrTuple(left) && IsListOrTuple(right) &&
      left.sequence().kind == right.sequence().kind) {
    std::vector<Value> items = left.sequence().items;
    const std::vector<Value>& more = right.sequence().items;
    items.insert(items.end(), more.begin(), more.end());
    return run.Make(left.sequence().kind, std::move(items));
  }
  if (operation == Arithmetic::kMultiply) {
    if ((left.IsText() || IsListOrTuple(left)) && right.IsWhole()) {
      return Repeat(run, left, right.place());
    }
    if ((right.IsText() || IsListOrTuple(right)) && left.IsWhole()) {
      return Repeat(run, right, left.place());
    }
  }
  if (operation == Arithmetic::kModulo && left.IsText()) {
    return FormatPercent(run, left.text(), right);
  }
  return WrongOperands(kSigns[static_cast<size_t>(operation)], left, right);
}

Result<Value> Negate(const Value& value) {
  if (value.IsWhole()) return Fitting(-value.whole());
  if (value.IsFloat()) return Value(-value.number());
  return WrongOperands("-", Value(int64_t{0}), value);
}

Result<bool> Less(const Value& left, const Value& right) {
  if (left.IsWhole() && right.IsWhole()) return left.whole() < right.whole();
  if (left.IsNumber() && right.IsNumber()) return left.number() < right.number();
  if (left.IsText() && right.IsText()) return left.text().bytes() < right.text().bytes();
  if (IsListOrTuple(left) && IsListOrTuple(right) &&
      left.sequence().kind == right.sequence().kind) {
    const std::vector<Value>& a = left.sequence().items;
    const std::vector<Value>& b = right.sequence().items;
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!Equal(a[i], b[i])) return Less(a[i], b[i]);
    }
    return a.size() < b.size();
  }
  return WrongOperands("<", left, right);
}

Result<bool> Contains(const Value& container, const Value& item) {
  if (container.IsText()) {
    if (!item.IsText()) return WrongOperands("in", item, container);
    return container.text().bytes().find(item.text().bytes()) != std::string::npos;
  }
  if (container.IsDict()) {
    KVANT_ASSIGN(const std::string key, KeyOf(item));
    return container.dict().Find(key) != nullptr;
  }
  if (container.IsUndefined()) return false;
  if (!container.IsSequence()) return WrongOperands("in", item, container);
  const Sequence& sequence = container.sequence();
  for (size_t i = sequence.taken; i < sequence.items.size(); ++i) {
    if (sequence.kind == Sequence::Kind::kGenerator) sequence.taken = i + 1;
    if (Equal(sequence.items[i], item)) return true;
  }
  return false;
}

Result<bool> Compare(Run& run, Comparison comparison, const Value& left, const Value& right) {
  KVANT_TRY(run.Read(right));
  switch (comparison) {
    case Comparison::kEqual: return Equal(left, right);
    case Comparison::kUnequal: return !Equal(left, right);
    case Comparison::kIn: return Contains(right, left);
    case Comparison::kNotIn: {
      KVANT_ASSIGN(const bool inside, Contains(right, left));
      return !inside;
    }
    default: break;
  }
  const bool turned = comparison == Comparison::kGreater || comparison == Comparison::kLessEqual;
  const auto less = turned ? Less(right, left) : Less(left, right);
  if (!less.ok()) {
    return WrongOperands(kComparisonSigns[static_cast<size_t>(comparison)], left, right);
  }
  if (comparison == Comparison::kLess || comparison == Comparison::kGreater) return *less;
  if (left.IsNumber() && right.IsNumber() &&
      (std::isnan(left.number()) || std::isnan(right.number()))) {
    return false;
  }
  return !*less;
}

}  // namespace kvant::jinja
