// Objects that a template sees: a loop, and a macro that it calls.
//
// Thread-safety: one run, one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/jinja/nodes.h"

namespace kvant::jinja {

// `loop` in the body of a for.
class Loop : public Object {
 public:
  Loop(const ForNode& node, std::shared_ptr<Scope> outer, int64_t depth, std::vector<Value> items)
      : node_(node),
        outer_(std::move(outer)),
        depth_(depth),
        items_(std::move(items)),
        cycle_(*this),
        changed_(*this) {}
  std::string TypeName() const override { return "LoopContext"; }
  std::optional<Value> Attribute(std::string_view name) const override;
  bool IsCallable() const override { return node_.recursive; }
  // The text of the loop over the argument's items, one level deeper.
  Result<Value> Call(Run& run, const Arguments& arguments) override;

  const std::vector<Value>& items() const { return items_; }
  void SetIndex(size_t index) { index_ = index; }

 private:
  struct Cycle : public Object {
    explicit Cycle(Loop& of) : loop(of) {}
    std::string TypeName() const override { return "method"; }
    bool IsCallable() const override { return true; }
    Result<Value> Call(Run& run, const Arguments& arguments) override;
    Loop& loop;
  };
  struct Changed : public Object {
    explicit Changed(Loop& of) : loop(of) {}
    std::string TypeName() const override { return "method"; }
    bool IsCallable() const override { return true; }
    Result<Value> Call(Run& run, const Arguments& arguments) override;
    Loop& loop;
    std::optional<std::vector<Value>> last;
  };

  const ForNode& node_;
  std::shared_ptr<Scope> outer_;
  int64_t depth_;  // 0 for a loop that is not within itself
  std::vector<Value> items_;
  size_t index_ = 0;
  Cycle cycle_;
  Changed changed_;
};

class Macro : public Object {
 public:
  Macro(const Callee& callee, std::shared_ptr<Scope> outer)
      : callee_(callee), outer_(std::move(outer)) {}
  std::string TypeName() const override { return "Macro"; }
  std::optional<Value> Attribute(std::string_view name) const override;
  bool IsCallable() const override { return true; }
  Result<Value> Call(Run& run, const Arguments& arguments) override;

 private:
  Status BindNamed(const Arguments& arguments, std::vector<Value>& values, std::vector<bool>& given,
                   DictBuilder& more, Value* caller) const;

  const Callee& callee_;
  std::shared_ptr<Scope> outer_;
};

}  // namespace kvant::jinja
