// Filters, tests, methods and functions: lists with one line each, which give names, parameters and
// the code that runs.
//
// Thread-safety: the lists are constant.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "engine/jinja/run.h"

namespace kvant::jinja {

// The arguments of a call, by the places of the parameters.
struct Bound {
  std::vector<Value> values;  // undefined where nothing was given
  std::vector<bool> given;
  Arguments rest;  // of natives that take any arguments

  bool Has(size_t i) const { return given[i]; }
  const Value& operator[](size_t i) const { return values[i]; }
  // The argument as a whole number or a string, or `otherwise` where it is not given. kInvalid for
  // other types.
  Result<int64_t> Whole(size_t i, int64_t otherwise) const;
  Result<Text> String(size_t i, std::string_view otherwise) const;
  bool Flag(size_t i, bool otherwise) const { return given[i] ? values[i].Truth() : otherwise; }
};

inline constexpr size_t kParametersMax = 5;

struct Native {
  std::string_view name;
  Result<Value> (*code)(Run& run, const Value& self, const Bound& arguments);
  size_t required = 0;
  std::array<std::string_view, kParametersMax> parameters{};  // "*" as the last: any more
};

// Runs it. kInvalid, with the name, for arguments that it does not take.
Result<Value> CallNative(Run& run, const Native& native, const Value& self,
                         const Arguments& arguments);

const Native* FindFilter(std::string_view name);
const Native* FindTest(std::string_view name);
Object* FindFunction(std::string_view name);
// The method of a string, list, tuple or dict; null if there is none.
const Native* FindMethod(const Value& self, std::string_view name);
// Whether Python has a method of this name that changes its object, which no template may.
bool IsForbiddenMethod(const Value& self, std::string_view name);

// A method taken from its object without being called.
class BoundMethod : public Object {
 public:
  BoundMethod(const Native& native, Value self) : native_(native), self_(std::move(self)) {}
  std::string TypeName() const override { return "method"; }
  bool IsCallable() const override { return true; }
  Result<Value> Call(Run& run, const Arguments& arguments) override {
    return CallNative(run, native_, self_, arguments);
  }

 private:
  const Native& native_;
  Value self_;
};

}  // namespace kvant::jinja
