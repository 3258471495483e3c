#include "engine/jinja/natives.h"

#include <algorithm>
#include <deque>
#include <span>

#include "engine/jinja/native_code.h"

namespace kvant::jinja {
namespace {

constexpr Native kFilters[] = {
#include "engine/jinja/filter_list.inl"
};
constexpr Native kTests[] = {
#include "engine/jinja/test_list.inl"
};
constexpr Native kTextMethods[] = {
#include "engine/jinja/text_method_list.inl"
};
constexpr Native kDictMethods[] = {
    {"get", DictGet, 1, {"key", "default"}},
    {"items", DictItems},
    {"keys", DictKeys},
    {"values", DictValues},
    {"copy", DictCopy},
};
constexpr Native kSequenceMethods[] = {
    {"index", SequenceIndex, 1, {"value"}},
    {"count", SequenceCount, 1, {"value"}},
    {"copy", SequenceCopy},
};
constexpr Native kFunctions[] = {
    {"range", MakeRange, 1, {"start", "stop", "step"}},
    {"namespace", MakeNamespace, 0, {"*"}},
    {"dict", MakeDict, 0, {"*"}},
    {"joiner", MakeJoiner, 0, {"sep"}},
    {"cycler", MakeCycler, 0, {"*"}},
    {"raise_exception", RaiseException, 1, {"message"}},
    {"strftime_now", StrftimeNow, 1, {"format"}},
};
constexpr std::string_view kListChangers[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictChangers[] = {"clear", "pop", "popitem", "setdefault", "update"};

const Native* FindNative(std::span<const Native> list, std::string_view name) {
  const auto found = std::find_if(list.begin(), list.end(),
                                  [name](const Native& native) { return native.name == name; });
  return found == list.end() ? nullptr : &*found;
}

class Function : public Object {
 public:
  explicit Function(const Native& native) : native_(native) {}
  std::string TypeName() const override { return "function"; }
  bool IsCallable() const override { return true; }
  Result<Value> Call(Run& run, const Arguments& arguments) override {
    return CallNative(run, native_, Value(), arguments);
  }

 private:
  const Native& native_;
};

// The arguments in the places of the parameters.
Result<Bound> Bind(const Native& native, const Arguments& arguments) {
  Bound bound;
  size_t places = 0;
  bool any_more = false;
  while (places < kParametersMax && !native.parameters[places].empty() && !any_more) {
    any_more = native.parameters[places] == "*";
    if (!any_more) ++places;
  }
  bound.values.resize(places);
  bound.given.resize(places);
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    if (i < places) {
      bound.values[i] = arguments.positional[i];
      bound.given[i] = true;
    } else if (any_more) {
      bound.rest.positional.push_back(arguments.positional[i]);
    } else {
      return Wrong("{}: expected at most {} arguments, found {}", native.name, places,
                   arguments.positional.size());
    }
  }
  for (const auto& [name, value] : arguments.named) {
    const auto place = static_cast<size_t>(
        std::find(native.parameters.begin(), native.parameters.begin() + places, name) -
        native.parameters.begin());
    if (place < places && !bound.given[place]) {
      bound.values[place] = value;
      bound.given[place] = true;
    } else if (place == places && any_more) {
      bound.rest.named.emplace_back(name, value);
    } else {
      return Wrong("{}: the argument '{}' is unknown or given twice", native.name, name);
    }
  }
  for (size_t i = 0; i < native.required; ++i) {
    if (!bound.given[i]) {
      return Wrong("{}: the argument '{}' is missing", native.name, native.parameters[i]);
    }
  }
  return bound;
}

}  // namespace

Result<Value> CallNative(Run& run, const Native& native, const Value& self,
                         const Arguments& arguments) {
  KVANT_ASSIGN(const Bound bound, Bind(native, arguments));
  auto result = native.code(run, self, bound);
  if (result.ok() || native.code == RaiseException) return result;
  return Wrong("{}: {}", native.name, result.error().message);
}

Result<int64_t> Bound::Whole(size_t i, int64_t otherwise) const {
  if (!given[i]) return otherwise;
  if (values[i].IsWhole()) return values[i].place();
  return Wrong("expected a whole number, found {}", values[i].TypeName());
}

Result<Text> Bound::String(size_t i, std::string_view otherwise) const {
  if (!given[i]) return Text(std::string(otherwise));
  if (values[i].IsText()) return values[i].text();
  return Wrong("expected a string, found {}", values[i].TypeName());
}

const Native* FindFilter(std::string_view name) { return FindNative(kFilters, name); }

const Native* FindTest(std::string_view name) { return FindNative(kTests, name); }

Object* FindFunction(std::string_view name) {
  static std::deque<Function> functions(std::begin(kFunctions), std::end(kFunctions));
  for (size_t i = 0; i < functions.size(); ++i) {
    if (kFunctions[i].name == name) return &functions[i];
  }
  return nullptr;
}

const Native* FindMethod(const Value& self, std::string_view name) {
  if (self.IsText()) return FindNative(kTextMethods, name);
  if (self.IsDict()) return FindNative(kDictMethods, name);
  if (!self.IsSequence() || self.sequence().kind >= Sequence::Kind::kView) return nullptr;
  return FindNative(kSequenceMethods, name);
}

bool IsForbiddenMethod(const Value& self, std::string_view name) {
  const auto has = [name](const auto& list) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  return (self.IsDict() && has(kDictChangers)) ||
         (self.IsSequence(Sequence::Kind::kList) && has(kListChangers));
}

}  // namespace kvant::jinja
