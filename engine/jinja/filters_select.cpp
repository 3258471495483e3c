// Filters that run another filter or a test on each item of a list.
#include "engine/jinja/native_code.h"
#include "engine/jinja/operators.h"

namespace kvant::jinja {
namespace {

enum class Keep : uint8_t { kHolding, kFailing };
enum class Subject : uint8_t { kItem, kAttribute };

// select, reject, selectattr and rejectattr: [attribute,] [test, its arguments ...].
Result<Value> SelectItems(Run& run, const Value& self, const Bound& arguments, Subject subject,
                          Keep keep) {
  if (!self.Truth()) return run.Make(Sequence::Kind::kGenerator, {});  // None, too
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, self));
  Arguments rest = arguments.rest;
  Value path;
  const auto take = [&rest]() {
    Value value = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return value;
  };
  if (subject == Subject::kAttribute) {
    if (rest.positional.empty()) return Wrong("the argument for the attribute is missing");
    path = take();
  }
  const Native* test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = take();
    if (!name.IsText()) return Wrong("expected the name of a test, found {}", name.TypeName());
    test = FindTest(name.text().view());
    if (test == nullptr) return Wrong("no test is called '{}'", name.text().bytes().substr(0, 60));
  }
  std::vector<Value> kept;
  for (const Value& item : items) {
    KVANT_TRY(run.Step());
    Value value = item;
    if (subject == Subject::kAttribute) {
      KVANT_ASSIGN(value, ValueAt(run, item, path));
    }
    if (test != nullptr) {
      KVANT_ASSIGN(value, CallNative(run, *test, value, rest));
    }
    if (value.Truth() == (keep == Keep::kHolding)) kept.push_back(item);
  }
  return run.Make(Sequence::Kind::kGenerator, std::move(kept));
}

}  // namespace

Result<Value> FilterSelect(Run& run, const Value& self, const Bound& arguments) {
  return SelectItems(run, self, arguments, Subject::kItem, Keep::kHolding);
}
Result<Value> FilterReject(Run& run, const Value& self, const Bound& arguments) {
  return SelectItems(run, self, arguments, Subject::kItem, Keep::kFailing);
}
Result<Value> FilterSelectAttr(Run& run, const Value& self, const Bound& arguments) {
  return SelectItems(run, self, arguments, Subject::kAttribute, Keep::kHolding);
}
Result<Value> FilterRejectAttr(Run& run, const Value& self, const Bound& arguments) {
  return SelectItems(run, self, arguments, Subject::kAttribute, Keep::kFailing);
}

// map(attribute=..., default=...) or map(filter, its arguments ...).
Result<Value> FilterMap(Run& run, const Value& self, const Bound& arguments) {
  if (!self.Truth()) return run.Make(Sequence::Kind::kGenerator, {});  // None, too
  KVANT_ASSIGN(std::vector<Value> items, Items(run, self));
  Arguments rest = arguments.rest;
  const Native* filter = nullptr;
  Value path;
  Value otherwise;
  if (!rest.positional.empty()) {
    const Value name = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    filter = name.IsText() ? FindFilter(name.text().view()) : nullptr;
    if (filter == nullptr) {
      return Wrong("no filter is called {}", Repr(name).bytes().substr(0, 60));
    }
  } else {
    for (const auto& [name, value] : rest.named) {
      if (name == "attribute") {
        path = value;
      } else if (name == "default") {
        otherwise = value;
      } else {
        return Wrong("the argument '{}' is unknown", name);
      }
    }
    if (path.IsUndefined()) return Wrong("expected the name of a filter or attribute=");
  }
  for (Value& item : items) {
    KVANT_TRY(run.Step());
    if (filter != nullptr) {
      KVANT_ASSIGN(item, CallNative(run, *filter, item, rest));
    } else {
      KVANT_ASSIGN(item, ValueAt(run, item, path, otherwise.IsUndefined() ? nullptr : &otherwise));
    }
  }
  return run.Make(Sequence::Kind::kGenerator, std::move(items));
}

}  // namespace kvant::jinja
