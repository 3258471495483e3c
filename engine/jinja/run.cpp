#include "engine/jinja/run.h"

#include <algorithm>

#include "engine/jinja/natives.h"

namespace kvant::jinja {

Result<Value> Object::Call(Run&, const Arguments&) {
  return Wrong("a {} cannot be called", TypeName());
}

std::optional<Value> Namespace::Attribute(std::string_view name) const {
  for (const auto& [member, value] : members_) {
    if (member == name) return value;
  }
  return std::nullopt;
}

void Namespace::Set(std::string_view name, Value value) {
  for (auto& [member, old] : members_) {
    if (member != name) continue;
    old = std::move(value);
    return;
  }
  members_.emplace_back(name, std::move(value));
}

void Scope::Set(std::string_view name, Value value) {
  for (auto& [known, old] : names) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  names.emplace_back(name, std::move(value));
}

Status Run::Step() {
  if (++steps_ > limits_.steps) {
    return Wrong("the template takes more than {} steps", limits_.steps);
  }
  return {};
}

Status Run::Charge(size_t bytes) {
  if (bytes > static_cast<size_t>(limits_.bytes - bytes_)) {
    return Wrong("the template makes values of more than {} bytes", limits_.bytes);
  }
  bytes_ += static_cast<int64_t>(bytes);
  return {};
}

Status Run::Enter() {
  if (depth_ >= limits_.depth) {
    return Wrong("the template is nested deeper than {} levels", limits_.depth);
  }
  ++depth_;
  return Step();
}

Result<Value> Run::Make(Text text) {
  if (text.size() > static_cast<size_t>(limits_.output)) {
    return Wrong("a string has more than {} bytes", limits_.output);
  }
  KVANT_TRY(Charge(text.size() + sizeof(Text)));
  return Value(std::move(text));
}

Result<Value> Run::Make(Sequence::Kind kind, std::vector<Value> items) {
  KVANT_TRY(Charge((items.size() + 2) * sizeof(Value)));
  return Value::Make(kind, std::move(items));
}

Result<Text> Run::TextOf(const Value& value) {
  if (!value.IsText()) KVANT_TRY(Charge(value.weight()));
  return Str(value);
}

Status Run::Write(const Text& text, Text& out) {
  if (out.size() + text.size() > static_cast<size_t>(limits_.output)) {
    return Wrong("the text has more than {} bytes", limits_.output);
  }
  out.Append(text);
  return {};
}

Value Run::Find(std::string_view name) const {
  for (const Scope* at = scope.get(); at != nullptr; at = at->outer.get()) {
    for (const auto& [known, value] : at->names) {
      if (known == name) return value;
    }
  }
  if (Object* function = FindFunction(name)) return function;
  return Value::Missing(fmt::format("'{}' is undefined", name));
}

}  // namespace kvant::jinja
