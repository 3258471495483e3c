// Computes expressions.
#include "engine/jinja/nodes.h"

namespace kvant::jinja {

Result<Value> Expression::Evaluate(Run& run) const {
  KVANT_TRY(run.Enter());
  run.line = line_;
  auto value = ValueIn(run);
  if (value.ok()) run.line = line_;
  run.Leave();
  return value;
}

Result<Arguments> ArgumentNodes::Evaluate(Run& run) const {
  Arguments arguments;
  for (const Expression* node : positional) {
    KVANT_ASSIGN(Value value, node->Evaluate(run));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, node] : named) {
    KVANT_ASSIGN(Value value, node->Evaluate(run));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (all != nullptr) {
    KVANT_ASSIGN(const Value list, all->Evaluate(run));
    KVANT_ASSIGN(const std::vector<Value> items, Items(run, list));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  if (all_named != nullptr) {
    KVANT_ASSIGN(const Value dict, all_named->Evaluate(run));
    if (!dict.IsDict()) return Wrong("** needs a dict, found {}", dict.TypeName());
    for (const auto& [key, value] : dict.dict().items) {
      if (!key.IsText()) return Wrong("the name of an argument is a {}", key.TypeName());
      arguments.named.emplace_back(key.text().bytes(), value);
    }
  }
  return arguments;
}

Result<Value> ListNode::ValueIn(Run& run) const {
  std::vector<Value> values;
  for (const Expression* node : items) {
    KVANT_ASSIGN(Value value, node->Evaluate(run));
    values.push_back(std::move(value));
  }
  return run.Make(kind, std::move(values));
}

Result<Value> DictNode::ValueIn(Run& run) const {
  DictBuilder builder;
  for (const auto& [key_node, value_node] : items) {
    KVANT_ASSIGN(const Value key, key_node->Evaluate(run));
    KVANT_ASSIGN(Value value, value_node->Evaluate(run));
    KVANT_TRY(run.Charge(4 * sizeof(Value) + key.weight()));
    KVANT_TRY(builder.Set(key, std::move(value)));
  }
  return builder.Finish();
}

Result<Value> UnaryNode::ValueIn(Run& run) const {
  KVANT_ASSIGN(const Value value, operand->Evaluate(run));
  if (operation == UnaryOperation::kNot) return Value(!value.Truth());
  KVANT_ASSIGN(const Value negative, Negate(value));
  return operation == UnaryOperation::kMinus ? negative : Negate(negative);
}

Result<Value> ArithmeticNode::ValueIn(Run& run) const {
  KVANT_ASSIGN(const Value a, left->Evaluate(run));
  KVANT_ASSIGN(const Value b, right->Evaluate(run));
  run.line = line();
  return Compute(run, operation, a, b);
}

Result<Value> ComparisonNode::ValueIn(Run& run) const {
  KVANT_ASSIGN(Value left, first->Evaluate(run));
  for (const auto& [comparison, node] : others) {
    KVANT_ASSIGN(Value right, node->Evaluate(run));
    run.line = line();
    KVANT_ASSIGN(const bool holds, Compare(run, comparison, left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> LogicNode::ValueIn(Run& run) const {
  Value value;
  for (const Expression* node : operands) {
    KVANT_ASSIGN(value, node->Evaluate(run));
    if (value.Truth() == decides) break;
  }
  return value;
}

Result<Value> ConcatenationNode::ValueIn(Run& run) const {
  Text text;
  for (const Expression* node : operands) {
    KVANT_ASSIGN(const Value value, node->Evaluate(run));
    KVANT_ASSIGN(const Text part, run.TextOf(value));
    KVANT_TRY(run.Write(part, text));
  }
  return run.Make(std::move(text));
}

Result<Value> ConditionalNode::ValueIn(Run& run) const {
  KVANT_ASSIGN(const Value holds, condition->Evaluate(run));
  if (holds.Truth()) return then->Evaluate(run);
  if (otherwise != nullptr) return otherwise->Evaluate(run);
  return Value::Missing("an inline if without else has no value");
}

Result<Value> AttributeNode::ValueIn(Run& run) const {
  KVANT_ASSIGN(const Value value, object->Evaluate(run));
  run.line = line();
  return GetAttribute(run, value, name);
}

Result<Value> ItemNode::ValueIn(Run& run) const {
  KVANT_ASSIGN(const Value value, object->Evaluate(run));
  KVANT_ASSIGN(const Value index, key->Evaluate(run));
  run.line = line();
  return GetItem(run, value, index);
}

Result<Value> SliceNode::ValueIn(Run& run) const {
  KVANT_ASSIGN(const Value value, object->Evaluate(run));
  const Expression* const nodes[] = {from, to, step};
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (nodes[i] == nullptr) continue;
    KVANT_ASSIGN(bounds[i], nodes[i]->Evaluate(run));
    if (bounds[i].IsUndefined()) return Wrong("{}", bounds[i].UndefinedMessage());
  }
  run.line = line();
  return Slice(run, value, bounds[0], bounds[1], bounds[2]);
}

Result<Value> CallNode::ValueIn(Run& run) const { return CallWith(run, nullptr); }

Result<Value> CallNode::CallWith(Run& run, Object* caller) const {
  // A method is called at once, without becoming an object.
  const auto* attribute = dynamic_cast<const AttributeNode*>(callee);
  Value self;
  const Native* method = nullptr;
  Value called;
  if (attribute != nullptr) {
    KVANT_ASSIGN(self, attribute->object->Evaluate(run));
    method = FindMethod(self, attribute->name);
    if (method == nullptr) {
      KVANT_ASSIGN(called, GetAttribute(run, self, attribute->name));
    }
  } else {
    KVANT_ASSIGN(called, callee->Evaluate(run));
  }
  KVANT_ASSIGN(Arguments values, arguments.Evaluate(run));
  if (caller != nullptr) values.named.emplace_back("caller", caller);
  run.line = line();
  if (method != nullptr) return CallNative(run, *method, self, values);
  return CallValue(run, called, values);
}

Result<Value> FilterNode::ValueIn(Run& run) const {
  KVANT_ASSIGN(const Value value, operand->Evaluate(run));
  return Apply(run, value);
}

Result<Value> FilterNode::Apply(Run& run, const Value& value) const {
  KVANT_ASSIGN(const Arguments values, arguments.Evaluate(run));
  run.line = line();
  if (filter == nullptr) return Wrong("no filter is called '{}'", name);
  return CallNative(run, *filter, value, values);
}

Result<Value> TestNode::ValueIn(Run& run) const {
  KVANT_ASSIGN(const Value value, operand->Evaluate(run));
  KVANT_ASSIGN(const Arguments values, arguments.Evaluate(run));
  run.line = line();
  if (test == nullptr) return Wrong("no test is called '{}'", name);
  return CallNative(run, *test, value, values);
}

}  // namespace kvant::jinja
