// Objects of a run: they have an identity or can be called. The run owns them until it ends, so
// that no cycle among them leaks.
//
// Thread-safety: objects of one run belong to one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/jinja/value.h"

namespace kvant::jinja {

class Run;

// The arguments of a call, before it meets the names of parameters.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Object {
 public:
  virtual ~Object() = default;
  virtual std::string TypeName() const = 0;
  // The attribute of this name; nothing if there is none.
  virtual std::optional<Value> Attribute(std::string_view) const { return std::nullopt; }
  virtual bool IsCallable() const { return false; }
  virtual Result<Value> Call(Run& run, const Arguments& arguments);  // kInvalid: not callable
};

// namespace(): the only thing whose attributes a template may set.
class Namespace : public Object {
 public:
  std::string TypeName() const override { return "Namespace"; }
  std::optional<Value> Attribute(std::string_view name) const override;
  void Set(std::string_view name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> members_;
};

}  // namespace kvant::jinja
