// The tree of a template: expressions, which have a value, and statements, which write text.
//
// Thread-safety: const after parsing; runs of several threads may share one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/jinja/natives.h"
#include "engine/jinja/operators.h"
#include "engine/jinja/run.h"

namespace kvant::jinja {

class Expression {
 public:
  explicit Expression(int line) : line_(line) {}
  virtual ~Expression() = default;
  Result<Value> Evaluate(Run& run) const;
  int line() const { return line_; }

 protected:
  virtual Result<Value> ValueIn(Run& run) const = 0;

 private:
  int line_;
};
// Expressions belong to their tree, however deep it is, and not to each other.
using ExpressionPointer = const Expression*;
using Expressions = std::vector<std::unique_ptr<Expression>>;

enum class Flow : uint8_t { kNext, kBreak, kContinue };

class Statement {
 public:
  explicit Statement(int line) : line_(line) {}
  virtual ~Statement() = default;
  Result<Flow> Execute(Run& run, Text& out) const;

 protected:
  virtual Result<Flow> ExecuteIn(Run& run, Text& out) const = 0;

 private:
  int line_;
};
using Body = std::vector<std::unique_ptr<Statement>>;
Result<Flow> ExecuteBody(const Body& body, Run& run, Text& out);

// The arguments of a call as they are written: f(a, b=c, *d, **e).
struct ArgumentNodes {
  std::vector<ExpressionPointer> positional;
  std::vector<std::pair<std::string, ExpressionPointer>> named;
  ExpressionPointer all = nullptr;        // null where there is none
  ExpressionPointer all_named = nullptr;  // null where there is none

  Result<Arguments> Evaluate(Run& run) const;
};

class Constant : public Expression {
 public:
  Constant(int line, Value value) : Expression(line), value_(std::move(value)) {}
  Result<Value> ValueIn(Run&) const override { return value_; }

 private:
  Value value_;
};

class Variable : public Expression {
 public:
  Variable(int line, std::string name) : Expression(line), name_(std::move(name)) {}
  Result<Value> ValueIn(Run& run) const override { return run.Find(name_); }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

struct ListNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  Sequence::Kind kind = Sequence::Kind::kList;
  std::vector<ExpressionPointer> items;
};

struct DictNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  std::vector<std::pair<ExpressionPointer, ExpressionPointer>> items;
};

enum class UnaryOperation : uint8_t { kNot, kMinus, kPlus };
struct UnaryNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  UnaryOperation operation = UnaryOperation::kNot;
  ExpressionPointer operand = nullptr;
};

struct ArithmeticNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  Arithmetic operation = Arithmetic::kAdd;
  ExpressionPointer left = nullptr, right = nullptr;
};

// a < b <= c
struct ComparisonNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  ExpressionPointer first = nullptr;
  std::vector<std::pair<Comparison, ExpressionPointer>> others;
};

// The first operand that decides: "or" the first true one, "and" the first false one.
struct LogicNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  bool decides = true;
  std::vector<ExpressionPointer> operands;
};

// a ~ b ~ c
struct ConcatenationNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  std::vector<ExpressionPointer> operands;
};

struct ConditionalNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  ExpressionPointer condition = nullptr, then = nullptr,
                    otherwise = nullptr;  // the last may be null: undefined
};

struct AttributeNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  ExpressionPointer object = nullptr;
  std::string name;
};

struct ItemNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  ExpressionPointer object = nullptr, key = nullptr;
};

struct SliceNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  ExpressionPointer object = nullptr, from = nullptr, to = nullptr,
                    step = nullptr;  // the last three may be null
};

struct CallNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  // The value called with one more argument, `caller`, where that is not null.
  Result<Value> CallWith(Run& run, Object* caller) const;
  ExpressionPointer callee = nullptr;
  ArgumentNodes arguments;
};

struct FilterNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  Result<Value> Apply(Run& run, const Value& value) const;
  const Native* filter = nullptr;  // null: unknown, an error when it is used
  std::string name;
  ExpressionPointer operand = nullptr;  // null in filter and set blocks, whose text it is
  ArgumentNodes arguments;
};

struct TestNode : public Expression {
  using Expression::Expression;
  Result<Value> ValueIn(Run& run) const override;
  const Native* test = nullptr;
  std::string name;
  ExpressionPointer operand = nullptr;
  ArgumentNodes arguments;
};

// The target of an assignment: a name, ns.name, or several of these.
struct Target {
  std::string name;
  std::string attribute;  // of the namespace `name`; "" for a plain name
  std::vector<Target> parts;
  bool is_tuple = false;

  Status Assign(Run& run, const Value& value) const;
};

struct OutputNode : public Statement {
  using Statement::Statement;
  Result<Flow> ExecuteIn(Run& run, Text& out) const override;
  Text data;
  ExpressionPointer expression = nullptr;  // null: data
};

struct IfNode : public Statement {
  using Statement::Statement;
  Result<Flow> ExecuteIn(Run& run, Text& out) const override;
  std::vector<std::pair<ExpressionPointer, Body>> branches;
  Body otherwise;
};

struct ForNode : public Statement {
  using Statement::Statement;
  Result<Flow> ExecuteIn(Run& run, Text& out) const override;
  Status Loop(Run& run, const Value& iterated, int64_t depth, Text& out) const;
  Target target;
  ExpressionPointer iterated = nullptr;
  ExpressionPointer condition = nullptr;  // may be null
  bool recursive = false;
  Body body;
  Body otherwise;
};

struct SetNode : public Statement {
  using Statement::Statement;
  Result<Flow> ExecuteIn(Run& run, Text& out) const override;
  Target target;
  ExpressionPointer expression = nullptr;  // null: the text of the body
  std::vector<const FilterNode*> filters;
  Body body;
};

// The parts that a macro and a call block share.
struct Callee {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPointer> defaults;  // of the last parameters
  bool uses_caller = false;                 // the body has this name
  bool uses_varargs = false;
  bool uses_kwargs = false;
  Body body;
};

struct MacroNode : public Statement {
  using Statement::Statement;
  Result<Flow> ExecuteIn(Run& run, Text& out) const override;
  Callee callee;
};

struct CallBlockNode : public Statement {
  using Statement::Statement;
  Result<Flow> ExecuteIn(Run& run, Text& out) const override;
  const CallNode* call = nullptr;
  Callee caller;
};

struct FilterBlockNode : public Statement {
  using Statement::Statement;
  Result<Flow> ExecuteIn(Run& run, Text& out) const override;
  std::vector<const FilterNode*> filters;
  Body body;
};

// with, and generation, which has no targets.
struct WithNode : public Statement {
  using Statement::Statement;
  Result<Flow> ExecuteIn(Run& run, Text& out) const override;
  std::vector<std::pair<Target, ExpressionPointer>> values;
  Body body;
};

struct LoopControlNode : public Statement {
  using Statement::Statement;
  Result<Flow> ExecuteIn(Run&, Text&) const override { return flow; }
  Flow flow = Flow::kBreak;
};

}  // namespace kvant::jinja
