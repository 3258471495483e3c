// The tests behind "is".
#include "engine/jinja/native_code.h"
#include "engine/jinja/operators.h"

namespace kvant::jinja {
namespace {

Result<Value> TestComparison(Run& run, Comparison comparison, const Value& self,
                             const Bound& arguments) {
  KVANT_ASSIGN(const bool holds, Compare(run, comparison, self, arguments[0]));
  return Value(holds);
}

Result<Value> TestRemainder(Run& run, const Value& self, const Value& divisor, int64_t expected) {
  KVANT_ASSIGN(const Value rest, Compute(run, Arithmetic::kModulo, self, divisor));
  return Value(Equal(rest, Value(expected)));
}

}  // namespace

Result<Value> TestEqual(Run& run, const Value& self, const Bound& arguments) {
  return TestComparison(run, Comparison::kEqual, self, arguments);
}
Result<Value> TestUnequal(Run& run, const Value& self, const Bound& arguments) {
  return TestComparison(run, Comparison::kUnequal, self, arguments);
}
Result<Value> TestLess(Run& run, const Value& self, const Bound& arguments) {
  return TestComparison(run, Comparison::kLess, self, arguments);
}
Result<Value> TestLessEqual(Run& run, const Value& self, const Bound& arguments) {
  return TestComparison(run, Comparison::kLessEqual, self, arguments);
}
Result<Value> TestGreater(Run& run, const Value& self, const Bound& arguments) {
  return TestComparison(run, Comparison::kGreater, self, arguments);
}
Result<Value> TestGreaterEqual(Run& run, const Value& self, const Bound& arguments) {
  return TestComparison(run, Comparison::kGreaterEqual, self, arguments);
}
Result<Value> TestIn(Run& run, const Value& self, const Bound& arguments) {
  return TestComparison(run, Comparison::kIn, self, arguments);
}

Result<Value> TestBoolean(Run&, const Value& self, const Bound&) { return Value(self.IsBool()); }
Result<Value> TestCallable(Run&, const Value& self, const Bound&) {
  // jinja2's undefined values have a method that makes Python take them for callable.
  return Value(self.IsUndefined() || (self.IsObject() && self.object()->IsCallable()));
}
Result<Value> TestDefined(Run&, const Value& self, const Bound&) {
  return Value(!self.IsUndefined());
}
Result<Value> TestUndefined(Run&, const Value& self, const Bound&) {
  return Value(self.IsUndefined());
}
Result<Value> TestDivisibleBy(Run& run, const Value& self, const Bound& arguments) {
  return TestRemainder(run, self, arguments[0], 0);
}
Result<Value> TestEven(Run& run, const Value& self, const Bound&) {
  return TestRemainder(run, self, Value(int64_t{2}), 0);
}
Result<Value> TestOdd(Run& run, const Value& self, const Bound&) {
  return TestRemainder(run, self, Value(int64_t{2}), 1);
}
Result<Value> TestEscaped(Run&, const Value& self, const Bound&) {
  return Value(self.IsText() && self.text().markup());
}
Result<Value> TestFalse(Run&, const Value& self, const Bound&) {
  return Value(self.IsBool() && !self.boolean());
}
Result<Value> TestTrue(Run&, const Value& self, const Bound&) {
  return Value(self.IsBool() && self.boolean());
}
Result<Value> TestFilter(Run&, const Value& self, const Bound&) {
  return Value(self.IsText() && FindFilter(self.text().view()) != nullptr);
}
Result<Value> TestTest(Run&, const Value& self, const Bound&) {
  return Value(self.IsText() && FindTest(self.text().view()) != nullptr);
}
Result<Value> TestFloat(Run&, const Value& self, const Bound&) { return Value(self.IsFloat()); }
Result<Value> TestInteger(Run&, const Value& self, const Bound&) { return Value(self.IsInt()); }
Result<Value> TestNumber(Run&, const Value& self, const Bound&) { return Value(self.IsNumber()); }
Result<Value> TestNone(Run&, const Value& self, const Bound&) { return Value(self.IsNone()); }
Result<Value> TestString(Run&, const Value& self, const Bound&) { return Value(self.IsText()); }
Result<Value> TestMapping(Run&, const Value& self, const Bound&) { return Value(self.IsDict()); }
Result<Value> TestIterable(Run&, const Value& self, const Bound&) {
  return Value(self.IsUndefined() || self.IsText() || self.IsSequence() || self.IsDict());
}
// True for values with a length and items: views of a dict have no items by number.
Result<Value> TestSequence(Run&, const Value& self, const Bound&) {
  return Value(self.IsUndefined() || self.IsText() || self.IsDict() ||
               (self.IsSequence() && self.sequence().kind < Sequence::Kind::kView));
}
Result<Value> TestSameAs(Run&, const Value& self, const Bound& arguments) {
  return Value(self.TypeName() == arguments[0].TypeName() && Equal(self, arguments[0]));
}
Result<Value> TestLower(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(Text text, run.TextOf(self));
  return TextIsLower(run, Value(std::move(text)), arguments);
}
Result<Value> TestUpper(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(Text text, run.TextOf(self));
  return TextIsUpper(run, Value(std::move(text)), arguments);
}

}  // namespace kvant::jinja
