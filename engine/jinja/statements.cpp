// Runs statements.
#include "engine/jinja/loop.h"
#include "engine/jinja/nodes.h"

namespace kvant::jinja {
namespace {

// The text of a body that has a scope of its own, through filters.
Result<Value> TextOfBody(const Body& body, const std::vector<const FilterNode*>& filters,
                         Run& run) {
  Text text;
  {
    const InnerScope inner(run);
    KVANT_ASSIGN([[maybe_unused]] const Flow flow, ExecuteBody(body, run, text));
  }
  KVANT_ASSIGN(Value value, run.Make(std::move(text)));
  for (const FilterNode* filter : filters) {
    KVANT_ASSIGN(value, filter->Apply(run, value));
  }
  return value;
}

}  // namespace

Result<Flow> Statement::Execute(Run& run, Text& out) const {
  KVANT_TRY(run.Enter());
  run.line = line_;
  auto flow = ExecuteIn(run, out);
  run.Leave();
  return flow;
}

Result<Flow> ExecuteBody(const Body& body, Run& run, Text& out) {
  for (const auto& statement : body) {
    KVANT_ASSIGN(const Flow flow, statement->Execute(run, out));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Status Target::Assign(Run& run, const Value& value) const {
  if (is_tuple) {
    if (value.IsUndefined()) return Wrong("{}", value.UndefinedMessage());
    KVANT_ASSIGN(const std::vector<Value> items, Items(run, value));
    if (items.size() != parts.size()) {
      return Wrong("expected {} values to unpack, found {}", parts.size(), items.size());
    }
    for (size_t i = 0; i < items.size(); ++i) KVANT_TRY(parts[i].Assign(run, items[i]));
    return {};
  }
  if (attribute.empty()) {
    run.scope->Set(name, value);
    return {};
  }
  const Value found = run.Find(name);
  auto* space = found.IsObject() ? dynamic_cast<Namespace*>(found.object()) : nullptr;
  if (space == nullptr) return Wrong("'{}' is no namespace, found {}", name, found.TypeName());
  KVANT_TRY(run.Charge(sizeof(Value)));
  space->Set(attribute, value);
  return {};
}

Result<Flow> OutputNode::ExecuteIn(Run& run, Text& out) const {
  if (expression == nullptr) {
    KVANT_TRY(run.Write(data, out));
    return Flow::kNext;
  }
  KVANT_ASSIGN(const Value value, expression->Evaluate(run));
  KVANT_ASSIGN(const Text text, run.TextOf(value));
  KVANT_TRY(run.Write(text, out));
  return Flow::kNext;
}

Result<Flow> IfNode::ExecuteIn(Run& run, Text& out) const {
  for (const auto& [condition, body] : branches) {
    KVANT_ASSIGN(const Value holds, condition->Evaluate(run));
    if (holds.Truth()) return ExecuteBody(body, run, out);
  }
  return ExecuteBody(otherwise, run, out);
}

Result<Flow> ForNode::ExecuteIn(Run& run, Text& out) const {
  KVANT_ASSIGN(const Value value, iterated->Evaluate(run));
  KVANT_TRY(Loop(run, value, 0, out));
  return Flow::kNext;
}

Status ForNode::Loop(Run& run, const Value& value, int64_t depth, Text& out) const {
  KVANT_ASSIGN(std::vector<Value> items, Items(run, value));
  if (condition != nullptr) {
    std::vector<Value> kept;
    for (const Value& item : items) {
      const InnerScope inner(run);
      KVANT_TRY(target.Assign(run, item));
      KVANT_ASSIGN(const Value holds, condition->Evaluate(run));
      if (holds.Truth()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  KVANT_ASSIGN(auto* const loop, run.Own<jinja::Loop>(*this, run.scope, depth, std::move(items)));
  for (size_t i = 0; i < loop->items().size(); ++i) {
    KVANT_TRY(run.Step());
    const InnerScope inner(run);
    loop->SetIndex(i);
    run.scope->Set("loop", loop);
    KVANT_TRY(target.Assign(run, loop->items()[i]));
    KVANT_ASSIGN(const Flow flow, ExecuteBody(body, run, out));
    if (flow == Flow::kBreak) break;
  }
  if (!loop->items().empty()) return {};
  const InnerScope inner(run);
  KVANT_ASSIGN([[maybe_unused]] const Flow flow, ExecuteBody(otherwise, run, out));
  return {};
}

Result<Flow> SetNode::ExecuteIn(Run& run, Text&) const {
  Value value;
  if (expression != nullptr) {
    KVANT_ASSIGN(value, expression->Evaluate(run));
  } else {
    KVANT_ASSIGN(value, TextOfBody(body, filters, run));
  }
  KVANT_TRY(target.Assign(run, value));
  return Flow::kNext;
}

Result<Flow> MacroNode::ExecuteIn(Run& run, Text&) const {
  KVANT_ASSIGN(auto* const macro, run.Own<Macro>(callee, run.scope));
  run.scope->Set(callee.name, macro);
  return Flow::kNext;
}

Result<Flow> CallBlockNode::ExecuteIn(Run& run, Text& out) const {
  KVANT_ASSIGN(auto* const macro, run.Own<Macro>(caller, run.scope));
  KVANT_ASSIGN(const Value value, call->CallWith(run, macro));
  KVANT_ASSIGN(const Text text, run.TextOf(value));
  KVANT_TRY(run.Write(text, out));
  return Flow::kNext;
}

Result<Flow> FilterBlockNode::ExecuteIn(Run& run, Text& out) const {
  KVANT_ASSIGN(const Value value, TextOfBody(body, filters, run));
  KVANT_ASSIGN(const Text text, run.TextOf(value));
  KVANT_TRY(run.Write(text, out));
  return Flow::kNext;
}

Result<Flow> WithNode::ExecuteIn(Run& run, Text& out) const {
  std::vector<Value> made;
  for (const auto& entry : values) {
    KVANT_ASSIGN(Value value, entry.second->Evaluate(run));
    made.push_back(std::move(value));
  }
  const InnerScope inner(run);
  for (size_t i = 0; i < made.size(); ++i) KVANT_TRY(values[i].first.Assign(run, made[i]));
  return ExecuteBody(body, run, out);
}

}  // namespace kvant::jinja
