// Tokens to a tree: Jinja's grammar as jinja2 3.1 reads it, with the extensions that transformers
// uses (break, continue, generation). Templates that include others are refused.
//
// Thread-safety: one parser, one thread.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/jinja/lexer.h"
#include "engine/jinja/nodes.h"

namespace kvant::jinja {

// How deeply expressions and statements may be nested.
inline constexpr int kNestingMax = 80;

class Parser {
 public:
  // Expressions go to `expressions`, which must live as long as the body.
  Parser(std::vector<Token> tokens, Expressions& expressions)
      : tokens_(std::move(tokens)), expressions_(expressions) {}

  Result<Body> Parse();
  int line() const { return Current().line; }  // where the parser is

 private:
  // Filters and tests that do not exist are errors at once, unless they stand in the branch of an
  // if, where they are errors when they are used.
  struct UnknownName {
    std::string message;
    int line = 1;
    bool hard = false;
  };
  // Says which expressions a place takes.
  enum class Attributes : uint8_t { kTaken, kNone };  // ns.x may stand there
  enum class Conditions : uint8_t { kTaken, kLeft };  // an "if" belongs to it, or comes after it

  const Token& Current() const { return tokens_[at_]; }
  const Token& Following() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  bool IsName(std::string_view name) const;
  bool IsAnyName(std::initializer_list<const char*> names) const;
  bool IsSign(std::string_view sign) const;
  void Advance();
  bool SkipName(std::string_view name);
  bool SkipSign(std::string_view sign);
  Status ExpectSign(std::string_view sign);
  Status ExpectKind(TokenKind kind);
  Result<std::string> ExpectName();
  Error Unexpected(std::string_view expected) const;

  // parse_statement.cpp
  Result<Body> TakeBody(std::initializer_list<const char*> ends);  // the end is the current name
  Result<Body> TakeBodyAndEnd(const char* end);
  Result<std::unique_ptr<Statement>> TakeStatement();
  Result<std::unique_ptr<Statement>> TakeIf();
  Result<std::unique_ptr<Statement>> TakeFor();
  Result<std::unique_ptr<Statement>> TakeSet();
  Result<std::unique_ptr<Statement>> TakeMacro();
  Result<std::unique_ptr<Statement>> TakeCallBlock();
  Result<std::unique_ptr<Statement>> TakeFilterBlock();
  Result<std::unique_ptr<Statement>> TakeWith();
  Result<std::unique_ptr<Statement>> TakeGeneration();
  Result<std::unique_ptr<Statement>> TakeLoopControl();
  Status TakeSignature(Callee& callee);
  Status TakeCalleeBody(Callee& callee, const char* end);
  Result<Target> TakeTarget(Attributes attributes);
  Result<Target> TakeOneTarget(Attributes attributes);
  Result<std::vector<const FilterNode*>> TakeFilters();
  void HardenSince(size_t begin);
  void ForgiveSince(size_t begin);

  // parse_expression.cpp
  Result<ExpressionPointer> TakeExpression(Conditions conditions = Conditions::kTaken);
  Result<ExpressionPointer> TakeTuple(Conditions conditions, std::string_view end_name = "");
  Result<ExpressionPointer> TakeOr();
  Result<ExpressionPointer> TakeAnd();
  Result<ExpressionPointer> TakeNot();
  Result<ExpressionPointer> TakeComparison();
  Result<ExpressionPointer> TakeSum();
  Result<ExpressionPointer> TakeConcatenation();
  Result<ExpressionPointer> TakeProduct();
  Result<ExpressionPointer> TakePower();
  enum class Filters : uint8_t { kTaken, kLeft };
  Result<ExpressionPointer> TakeUnary(Filters filters);
  Result<ExpressionPointer> TakePrimary();
  Result<ExpressionPointer> TakeNumber();
  Result<ExpressionPointer> TakeParentheses();
  Result<ExpressionPointer> TakeList();
  Result<ExpressionPointer> TakeDict();
  Result<ExpressionPointer> TakePostfix(ExpressionPointer node);
  Result<ExpressionPointer> TakeFilterExpression(ExpressionPointer node);
  Result<ExpressionPointer> TakeSubscript(ExpressionPointer node);
  Result<ExpressionPointer> TakeSliceOrKey(ExpressionPointer node, int line);
  Result<ExpressionPointer> TakeCall(ExpressionPointer node);
  Result<const FilterNode*> TakeFilter(ExpressionPointer node);
  Result<ExpressionPointer> TakeTest(ExpressionPointer node);
  Status TakeArguments(ArgumentNodes& arguments);
  Status TakeArgument(ArgumentNodes& arguments);
  Result<std::string> TakeDottedName();

  template <class T, class... Args>
  T* Make(Args&&... args) {
    auto node = std::make_unique<T>(std::forward<Args>(args)...);
    T* pointer = node.get();
    expressions_.push_back(std::move(node));
    return pointer;
  }

  // One level deeper, for as long as it lives; Check is kInvalid where that is too deep.
  class Nesting {
   public:
    explicit Nesting(int& nesting) : nesting_(nesting) { ++nesting_; }
    ~Nesting() { --nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    Status Check() const;

   private:
    int& nesting_;
  };

  std::vector<Token> tokens_;
  Expressions& expressions_;
  size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // around the place, within the present macro
  std::vector<UnknownName> unknown_;
  std::vector<std::string> names_;  // all variables so far
};

}  // namespace kvant::jinja
