#include "engine/jinja/loop.h"

#include <algorithm>

namespace kvant::jinja {

std::optional<Value> Loop::Attribute(std::string_view name) const {
  const auto index = static_cast<int64_t>(index_);
  const auto size = static_cast<int64_t>(items_.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(size - index);
  if (name == "revindex0") return Value(size - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == size);
  if (name == "length") return Value(size);
  if (name == "depth") return Value(depth_ + 1);
  if (name == "depth0") return Value(depth_);
  if (name == "previtem") {
    return index == 0 ? Value::Missing("there is no previous item") : items_[index_ - 1];
  }
  if (name == "nextitem") {
    return index + 1 == size ? Value::Missing("there is no next item") : items_[index_ + 1];
  }
  if (name == "cycle") return Value(const_cast<Cycle*>(&cycle_));
  if (name == "changed") return Value(const_cast<Changed*>(&changed_));
  return std::nullopt;
}

Result<Value> Loop::Call(Run& run, const Arguments& arguments) {
  if (!node_.recursive) return Wrong("only a recursive loop can be called");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    return Wrong("a recursive loop takes one argument");
  }
  KVANT_TRY(run.Enter());
  Text out;
  {
    const InnerScope inner(run, outer_);
    KVANT_TRY(node_.Loop(run, arguments.positional[0], depth_ + 1, out));
  }
  run.Leave();
  return run.Make(std::move(out));
}

Result<Value> Loop::Cycle::Call(Run&, const Arguments& arguments) {
  if (arguments.positional.empty()) return Wrong("cycle: expected at least one value");
  return arguments.positional[loop.index_ % arguments.positional.size()];
}

Result<Value> Loop::Changed::Call(Run&, const Arguments& arguments) {
  const std::vector<Value>& now = arguments.positional;
  const bool same =
      last.has_value() && std::equal(last->begin(), last->end(), now.begin(), now.end(), Equal);
  last = now;
  return Value(!same);
}

std::optional<Value> Macro::Attribute(std::string_view name) const {
  if (name == "name") return Value::Own(callee_.name);
  return std::nullopt;
}

Status Macro::BindNamed(const Arguments& arguments, std::vector<Value>& values,
                        std::vector<bool>& given, DictBuilder& more, Value* caller) const {
  for (const auto& [name, value] : arguments.named) {
    const auto place =
        static_cast<size_t>(std::find(callee_.parameters.begin(), callee_.parameters.end(), name) -
                            callee_.parameters.begin());
    if (place < given.size() && !given[place]) {
      values[place] = value;
      given[place] = true;
    } else if (place == given.size() && name == "caller" && callee_.uses_caller) {
      *caller = value;
    } else if (place == given.size() && callee_.uses_kwargs) {
      KVANT_TRY(more.Set(Value::Own(name), value));
    } else {
      return Wrong("macro {}: the argument '{}' is unknown or given twice", callee_.name, name);
    }
  }
  return {};
}

Result<Value> Macro::Call(Run& run, const Arguments& arguments) {
  const size_t count = callee_.parameters.size();
  std::vector<Value> values(count);
  std::vector<bool> given(count);
  const size_t places = std::min(count, arguments.positional.size());
  for (size_t i = 0; i < places; ++i) {
    values[i] = arguments.positional[i];
    given[i] = true;
  }
  if (arguments.positional.size() > count && !callee_.uses_varargs) {
    return Wrong("macro {}: expected at most {} arguments, found {}", callee_.name, count,
                 arguments.positional.size());
  }
  DictBuilder more;
  Value caller = Value::Missing("the macro was not called by a call block");
  KVANT_TRY(BindNamed(arguments, values, given, more, &caller));

  KVANT_TRY(run.Enter());
  const InnerScope inner(run, outer_);
  if (callee_.uses_varargs) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<std::ptrdiff_t>(places),
                            arguments.positional.end());
    KVANT_ASSIGN(Value tuple, run.Make(Sequence::Kind::kTuple, std::move(rest)));
    run.scope->Set("varargs", std::move(tuple));
  }
  if (callee_.uses_kwargs) {
    KVANT_ASSIGN(Value dict, more.Finish());
    run.scope->Set("kwargs", std::move(dict));
  }
  if (callee_.uses_caller) run.scope->Set("caller", caller);
  const size_t without_default = count - callee_.defaults.size();
  for (size_t i = 0; i < count; ++i) {
    if (!given[i] && i >= without_default) {
      KVANT_ASSIGN(values[i], callee_.defaults[i - without_default]->Evaluate(run));
    } else if (!given[i]) {
      values[i] =
          Value::Missing(fmt::format("parameter '{}' was not provided", callee_.parameters[i]));
    }
    run.scope->Set(callee_.parameters[i], values[i]);
  }
  Text out;
  KVANT_ASSIGN([[maybe_unused]] const Flow flow, ExecuteBody(callee_.body, run, out));
  run.Leave();
  return run.Make(std::move(out));
}

}  // namespace kvant::jinja
