// Functions that templates may call, and what they make.
#include <algorithm>
#include <ctime>
#include <iomanip>
#include <locale>
#include <sstream>

#include "engine/jinja/native_code.h"
#include "engine/jinja/operators.h"

namespace kvant::jinja {
namespace {

constexpr int64_t kRangeMax = 100'000;  // jinja2's sandbox allows no more
constexpr size_t kTimeBytesMax = 4096;

// The separator: nothing at the first call.
class Joiner : public Object {
 public:
  explicit Joiner(Text separator) : separator_(std::move(separator)) {}
  std::string TypeName() const override { return "Joiner"; }
  bool IsCallable() const override { return true; }
  Result<Value> Call(Run& run, const Arguments&) override {
    if (used_) return run.Make(separator_);
    used_ = true;
    return run.Make(Text());
  }

 private:
  Text separator_;
  bool used_ = false;
};

// Values in turn.
class Cycler : public Object {
 public:
  explicit Cycler(std::vector<Value> items)
      : items_(std::move(items)), next_(*this), reset_(*this) {}
  std::string TypeName() const override { return "Cycler"; }
  std::optional<Value> Attribute(std::string_view name) const override {
    if (name == "current") return items_[at_];
    if (name == "next") return Value(const_cast<Next*>(&next_));
    if (name == "reset") return Value(const_cast<Reset*>(&reset_));
    return std::nullopt;
  }

 private:
  struct Next : public Object {
    explicit Next(Cycler& of) : cycler(of) {}
    std::string TypeName() const override { return "method"; }
    bool IsCallable() const override { return true; }
    Result<Value> Call(Run&, const Arguments&) override {
      const Value now = cycler.items_[cycler.at_];
      cycler.at_ = (cycler.at_ + 1) % cycler.items_.size();
      return now;
    }
    Cycler& cycler;
  };
  struct Reset : public Object {
    explicit Reset(Cycler& of) : cycler(of) {}
    std::string TypeName() const override { return "method"; }
    bool IsCallable() const override { return true; }
    Result<Value> Call(Run&, const Arguments&) override {
      cycler.at_ = 0;
      return Value(None{});
    }
    Cycler& cycler;
  };

  std::vector<Value> items_;
  size_t at_ = 0;
  Next next_;
  Reset reset_;
};

// The members that dict(...) and namespace(...) take: of a dict, of pairs, and of named arguments.
Result<std::vector<std::pair<Value, Value>>> Members(Run& run, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> members;
  if (arguments.positional.size() > 1) return Wrong("expected at most one dict");
  for (const Value& source : arguments.positional) {
    if (source.IsDict()) {
      KVANT_TRY(run.Charge(source.dict().items.size() * sizeof(Value) * 4));
      members = source.dict().items;
      continue;
    }
    KVANT_ASSIGN(const std::vector<Value> pairs, Items(run, source));
    for (const Value& pair : pairs) {
      KVANT_ASSIGN(const std::vector<Value> both, Items(run, pair));
      if (both.size() != 2) return Wrong("expected pairs, found {} values", both.size());
      members.emplace_back(both[0], both[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) members.emplace_back(Value::Own(name), value);
  return members;
}

}  // namespace

Result<Value> MakeRange(Run& run, const Value&, const Bound& arguments) {
  KVANT_ASSIGN(int64_t start, arguments.Whole(0, 0));
  KVANT_ASSIGN(int64_t stop, arguments.Whole(1, 0));
  KVANT_ASSIGN(const int64_t step, arguments.Whole(2, 1));
  if (!arguments.Has(1)) {
    stop = start;
    start = 0;
  }
  if (step == 0) return Wrong("the step is 0");
  std::vector<Value> items;
  while (step > 0 ? start < stop : start > stop) {
    if (static_cast<int64_t>(items.size()) == kRangeMax) {
      return Wrong("a range has at most {} numbers", kRangeMax);
    }
    items.emplace_back(start);
    if (__builtin_add_overflow(start, step, &start)) break;
  }
  return run.Make(Sequence::Kind::kRange, std::move(items));
}

Result<Value> MakeNamespace(Run& run, const Value&, const Bound& arguments) {
  KVANT_ASSIGN(const auto members, Members(run, arguments.rest));
  KVANT_ASSIGN(auto* const space, run.Own<Namespace>());
  for (const auto& [key, value] : members) {
    if (!key.IsText()) return Wrong("the name of a member is a {}", key.TypeName());
    space->Set(key.text().view(), value);
  }
  return Value(space);
}

Result<Value> MakeDict(Run& run, const Value&, const Bound& arguments) {
  KVANT_ASSIGN(const auto members, Members(run, arguments.rest));
  DictBuilder builder;
  for (const auto& [key, value] : members) KVANT_TRY(builder.Set(key, value));
  return builder.Finish();
}

Result<Value> MakeJoiner(Run& run, const Value&, const Bound& arguments) {
  KVANT_ASSIGN(Text separator, arguments.String(0, ", "));
  KVANT_ASSIGN(auto* const joiner, run.Own<Joiner>(std::move(separator)));
  return Value(joiner);
}

Result<Value> MakeCycler(Run& run, const Value&, const Bound& arguments) {
  if (arguments.rest.positional.empty()) return Wrong("expected at least one value");
  KVANT_ASSIGN(auto* const cycler, run.Own<Cycler>(arguments.rest.positional));
  return Value(cycler);
}

Result<Value> RaiseException(Run& run, const Value&, const Bound& arguments) {
  KVANT_ASSIGN(const Text message, run.TextOf(arguments[0]));
  return Wrong("the template refuses the conversation: {:?}", message.view().substr(0, 400));
}

Result<std::string> TimeText(std::string_view format, int64_t now) {
  constexpr std::string_view kDirectives = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%";
  const auto seconds = static_cast<std::time_t>(now);
  std::tm local{};
  if (localtime_r(&seconds, &local) == nullptr) return Wrong("{} is no time", now);
  std::ostringstream out;
  out.imbue(std::locale::classic());
  for (size_t i = 0; i < format.size() && static_cast<size_t>(out.tellp()) < kTimeBytesMax; ++i) {
    if (format[i] != '%') {
      out << format[i];
      continue;
    }
    const bool plain = i + 1 < format.size() && format[i + 1] == '-';  // without leading zeros
    const size_t letter = i + (plain ? 2 : 1);
    if (letter >= format.size() || kDirectives.find(format[letter]) == std::string_view::npos) {
      return Wrong("unknown directive at byte {} of the format of a time", i);
    }
    const std::string directive = {'%', format[letter]};
    std::ostringstream field;
    field.imbue(std::locale::classic());
    field << std::put_time(&local, directive.c_str());
    std::string text = std::move(field).str();
    if (plain)
      text.erase(0, std::min(text.find_first_not_of("0 "), std::max<size_t>(text.size(), 1) - 1));
    out << text;
    i = letter;
  }
  return std::move(out).str();
}

Result<Value> StrftimeNow(Run& run, const Value&, const Bound& arguments) {
  KVANT_ASSIGN(const Text format, arguments.String(0, ""));
  KVANT_ASSIGN(std::string text, TimeText(format.view(), run.now()));
  return run.Make(Text(std::move(text)));
}

}  // namespace kvant::jinja
