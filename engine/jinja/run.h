// One rendering of a template: its limits, what it has used of them, its variables and its objects.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/jinja/object.h"
#include "engine/jinja/value.h"

namespace kvant::jinja {

// Limits of a template. The largest conversations that models can read need a hundredth of them.
struct Limits {
  int64_t steps = 20'000'000;         // expressions and statements
  int64_t bytes = int64_t{1} << 29;   // of all strings, lists and dicts that are made
  int64_t output = int64_t{1} << 26;  // of a rendered text, and of any string
  int depth = 500;                    // of expressions, statements and calls within each other
};

// The names that are visible at a place: first the names set there, then the names around it.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string, Value>> names;

  void Set(std::string_view name, Value value);
};

class Run {
 public:
  Run(const Limits& limits, int64_t now) : limits_(limits), now_(now) {}
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Status Step();                // kInvalid where there were too many
  Status Charge(size_t bytes);  // of values that will be made
  Status Read(const Value& value) { return Charge(value.weight() / 16); }
  Status Enter();  // one level deeper; kInvalid where it is too deep
  void Leave() { --depth_; }

  // A string that was made, with its bytes charged.
  Result<Value> Make(Text text);
  Result<Value> Make(Sequence::Kind kind, std::vector<Value> items);

  // Python's str of a value, with its bytes charged.
  Result<Text> TextOf(const Value& value);

  // Appends to what is being written, within the limit.
  Status Write(const Text& text, Text& out);

  template <class T, class... Args>
  Result<T*> Own(Args&&... args) {
    KVANT_TRY(Charge(sizeof(T)));
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* pointer = object.get();
    objects_.push_back(std::move(object));
    return pointer;
  }

  // The variable of this name, a function, or undefined.
  Value Find(std::string_view name) const;

  std::shared_ptr<Scope> scope = std::make_shared<Scope>();
  int line = 1;  // of the expression or statement that runs
  int64_t now() const { return now_; }

 private:
  Limits limits_;
  int64_t now_;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int depth_ = 0;
  std::vector<std::unique_ptr<Object>> objects_;
};

// A scope within the present one, for as long as this lives.
class InnerScope {
 public:
  explicit InnerScope(Run& run) : InnerScope(run, run.scope) {}
  InnerScope(Run& run, std::shared_ptr<Scope> outer) : run_(run), saved_(run.scope) {
    run.scope = std::make_shared<Scope>();
    run.scope->outer = std::move(outer);
  }
  ~InnerScope() { run_.scope = std::move(saved_); }
  InnerScope(const InnerScope&) = delete;
  InnerScope& operator=(const InnerScope&) = delete;

 private:
  Run& run_;
  std::shared_ptr<Scope> saved_;
};

template <class... Args>
[[nodiscard]] Error Wrong(fmt::format_string<Args...> format, Args&&... args) {
  return MakeError(ErrorCode::kInvalid, format, std::forward<Args>(args)...);
}

}  // namespace kvant::jinja
