// The grammar of statements.
#include <algorithm>

#include "engine/jinja/parser.h"

namespace kvant::jinja {

Status Parser::Nesting::Check() const {
  if (nesting_ <= kNestingMax) return {};
  return Wrong("expressions and statements are nested deeper than {} levels", kNestingMax);
}

bool Parser::IsName(std::string_view name) const {
  return Current().kind == TokenKind::kName && Current().text == name;
}

bool Parser::IsAnyName(std::initializer_list<const char*> names) const {
  return std::any_of(names.begin(), names.end(), [this](const char* name) { return IsName(name); });
}

bool Parser::IsSign(std::string_view sign) const {
  return Current().kind == TokenKind::kOperator && Current().text == sign;
}

void Parser::Advance() {
  if (at_ + 1 < tokens_.size()) ++at_;
}

bool Parser::SkipName(std::string_view name) {
  if (!IsName(name)) return false;
  Advance();
  return true;
}

bool Parser::SkipSign(std::string_view sign) {
  if (!IsSign(sign)) return false;
  Advance();
  return true;
}

Error Parser::Unexpected(std::string_view expected) const {
  const Token& token = Current();
  switch (token.kind) {
    case TokenKind::kEnd: return Wrong("expected {}, found the end of the template", expected);
    case TokenKind::kData: return Wrong("expected {}, found text", expected);
    case TokenKind::kVariableBegin:
    case TokenKind::kBlockBegin: return Wrong("expected {}, found the begin of a tag", expected);
    case TokenKind::kVariableEnd:
    case TokenKind::kBlockEnd: return Wrong("expected {}, found the end of the tag", expected);
    default:
      return Wrong("expected {}, found {:?}", expected, std::string_view(token.text).substr(0, 60));
  }
}

Status Parser::ExpectSign(std::string_view sign) {
  if (SkipSign(sign)) return {};
  return Unexpected(fmt::format("'{}'", sign));
}

Status Parser::ExpectKind(TokenKind kind) {
  if (Current().kind != kind) return Unexpected("the end of the tag");
  Advance();
  return {};
}

Result<std::string> Parser::ExpectName() {
  if (Current().kind != TokenKind::kName) return Unexpected("a name");
  std::string name = Current().text;
  Advance();
  return name;
}

void Parser::HardenSince(size_t begin) {
  for (size_t i = begin; i < unknown_.size(); ++i) unknown_[i].hard = true;
}

void Parser::ForgiveSince(size_t begin) {
  const auto first = unknown_.begin() + static_cast<std::ptrdiff_t>(begin);
  unknown_.erase(
      std::remove_if(first, unknown_.end(), [](const UnknownName& name) { return !name.hard; }),
      unknown_.end());
}

Result<Body> Parser::Parse() {
  KVANT_ASSIGN(Body body, TakeBody({}));
  if (!unknown_.empty()) {
    // The error is shown at the name's line.
    tokens_[at_].line = unknown_.front().line;
    return Wrong("{}", unknown_.front().message);
  }
  return body;
}

Result<Body> Parser::TakeBody(std::initializer_list<const char*> ends) {
  const Nesting nesting(nesting_);
  KVANT_TRY(nesting.Check());
  Body body;
  while (Current().kind != TokenKind::kEnd) {
    const int line = Current().line;
    if (Current().kind == TokenKind::kData) {
      auto output = std::make_unique<OutputNode>(line);
      output->data = Text(Current().text);
      body.push_back(std::move(output));
      Advance();
    } else if (Current().kind == TokenKind::kVariableBegin) {
      Advance();
      auto output = std::make_unique<OutputNode>(line);
      KVANT_ASSIGN(output->expression, TakeTuple(Conditions::kTaken));
      body.push_back(std::move(output));
      KVANT_TRY(ExpectKind(TokenKind::kVariableEnd));
    } else {
      Advance();  // the lexer gives nothing else: a block begins
      if (IsAnyName(ends)) return body;
      KVANT_ASSIGN(auto statement, TakeStatement());
      body.push_back(std::move(statement));
      KVANT_TRY(ExpectKind(TokenKind::kBlockEnd));
    }
  }
  if (ends.size() > 0) return Unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
  return body;
}

Result<Body> Parser::TakeBodyAndEnd(const char* end) {
  SkipSign(":");
  KVANT_TRY(ExpectKind(TokenKind::kBlockEnd));
  KVANT_ASSIGN(Body body, TakeBody({end}));
  Advance();
  return body;
}

Result<std::unique_ptr<Statement>> Parser::TakeStatement() {
  struct Row {
    std::string_view name;
    Result<std::unique_ptr<Statement>> (Parser::*take)();
  };
  static constexpr Row kRows[] = {
      {"if", &Parser::TakeIf},
      {"for", &Parser::TakeFor},
      {"set", &Parser::TakeSet},
      {"macro", &Parser::TakeMacro},
      {"call", &Parser::TakeCallBlock},
      {"filter", &Parser::TakeFilterBlock},
      {"with", &Parser::TakeWith},
      {"generation", &Parser::TakeGeneration},
      {"break", &Parser::TakeLoopControl},
      {"continue", &Parser::TakeLoopControl},
  };
  for (const Row& row : kRows) {
    if (IsName(row.name)) return (this->*row.take)();
  }
  return Unexpected("a statement (if, for, set, macro, call, filter, with, generation, break)");
}

Result<std::unique_ptr<Statement>> Parser::TakeIf() {
  auto node = std::make_unique<IfNode>(Current().line);
  const size_t unknown = unknown_.size();
  while (IsAnyName({"if", "elif"})) {
    Advance();
    KVANT_ASSIGN(const ExpressionPointer condition, TakeTuple(Conditions::kLeft));
    SkipSign(":");
    KVANT_TRY(ExpectKind(TokenKind::kBlockEnd));
    KVANT_ASSIGN(Body body, TakeBody({"elif", "else", "endif"}));
    node->branches.emplace_back(condition, std::move(body));
  }
  if (SkipName("else")) {
    KVANT_ASSIGN(node->otherwise, TakeBodyAndEnd("endif"));
  } else {
    Advance();
  }
  ForgiveSince(unknown);
  return std::unique_ptr<Statement>(std::move(node));
}

Result<std::unique_ptr<Statement>> Parser::TakeFor() {
  auto node = std::make_unique<ForNode>(Current().line);
  Advance();
  KVANT_ASSIGN(node->target, TakeTarget(Attributes::kNone));
  if (!SkipName("in")) return Unexpected("'in'");
  KVANT_ASSIGN(node->iterated, TakeTuple(Conditions::kLeft, "recursive"));
  const size_t unknown = unknown_.size();
  if (SkipName("if")) {
    KVANT_ASSIGN(node->condition, TakeExpression());
  }
  node->recursive = SkipName("recursive");
  SkipSign(":");
  KVANT_TRY(ExpectKind(TokenKind::kBlockEnd));
  ++loops_;
  KVANT_ASSIGN(node->body, TakeBody({"endfor", "else"}));
  --loops_;
  if (SkipName("else")) {
    KVANT_ASSIGN(node->otherwise, TakeBodyAndEnd("endfor"));
  } else {
    Advance();
  }
  HardenSince(unknown);
  return std::unique_ptr<Statement>(std::move(node));
}

Result<std::unique_ptr<Statement>> Parser::TakeSet() {
  auto node = std::make_unique<SetNode>(Current().line);
  Advance();
  KVANT_ASSIGN(node->target, TakeTarget(Attributes::kTaken));
  if (SkipSign("=")) {
    KVANT_ASSIGN(node->expression, TakeTuple(Conditions::kTaken));
    return std::unique_ptr<Statement>(std::move(node));
  }
  const size_t unknown = unknown_.size();
  KVANT_ASSIGN(node->filters, TakeFilters());
  KVANT_ASSIGN(node->body, TakeBodyAndEnd("endset"));
  HardenSince(unknown);
  return std::unique_ptr<Statement>(std::move(node));
}

Result<std::vector<const FilterNode*>> Parser::TakeFilters() {
  std::vector<const FilterNode*> filters;
  while (SkipSign("|")) {
    KVANT_ASSIGN(const FilterNode* const filter, TakeFilter(nullptr));
    filters.push_back(filter);
  }
  return filters;
}

Status Parser::TakeSignature(Callee& callee) {
  KVANT_TRY(ExpectSign("("));
  while (!IsSign(")")) {
    if (!callee.parameters.empty()) KVANT_TRY(ExpectSign(","));
    KVANT_ASSIGN(std::string name, ExpectName());
    callee.parameters.push_back(std::move(name));
    if (SkipSign("=")) {
      KVANT_ASSIGN(const ExpressionPointer value, TakeExpression());
      callee.defaults.push_back(value);
    } else if (!callee.defaults.empty()) {
      return Wrong("a parameter without a default stands behind one that has one");
    }
  }
  Advance();
  return {};
}

Status Parser::TakeCalleeBody(Callee& callee, const char* end) {
  const size_t unknown = unknown_.size();
  const size_t names = names_.size();
  const int loops = std::exchange(loops_, 0);
  KVANT_ASSIGN(callee.body, TakeBodyAndEnd(end));
  loops_ = loops;
  HardenSince(unknown);
  const auto uses = [&](std::string_view name) {
    return std::find(names_.begin() + static_cast<std::ptrdiff_t>(names), names_.end(), name) !=
           names_.end();
  };
  callee.uses_caller = uses("caller");
  callee.uses_varargs = uses("varargs");
  callee.uses_kwargs = uses("kwargs");
  return {};
}

Result<std::unique_ptr<Statement>> Parser::TakeMacro() {
  auto node = std::make_unique<MacroNode>(Current().line);
  Advance();
  KVANT_ASSIGN(node->callee.name, ExpectName());
  KVANT_TRY(TakeSignature(node->callee));
  KVANT_TRY(TakeCalleeBody(node->callee, "endmacro"));
  return std::unique_ptr<Statement>(std::move(node));
}

Result<std::unique_ptr<Statement>> Parser::TakeCallBlock() {
  auto node = std::make_unique<CallBlockNode>(Current().line);
  Advance();
  node->caller.name = "caller";
  if (IsSign("(")) KVANT_TRY(TakeSignature(node->caller));
  KVANT_ASSIGN(const ExpressionPointer call, TakeExpression());
  node->call = dynamic_cast<const CallNode*>(call);
  if (node->call == nullptr) return Wrong("expected a call");
  KVANT_TRY(TakeCalleeBody(node->caller, "endcall"));
  return std::unique_ptr<Statement>(std::move(node));
}

Result<std::unique_ptr<Statement>> Parser::TakeFilterBlock() {
  auto node = std::make_unique<FilterBlockNode>(Current().line);
  const size_t unknown = unknown_.size();
  Advance();
  KVANT_ASSIGN(const FilterNode* const first, TakeFilter(nullptr));
  KVANT_ASSIGN(node->filters, TakeFilters());
  node->filters.insert(node->filters.begin(), first);
  KVANT_ASSIGN(node->body, TakeBodyAndEnd("endfilter"));
  HardenSince(unknown);
  return std::unique_ptr<Statement>(std::move(node));
}

Result<std::unique_ptr<Statement>> Parser::TakeWith() {
  auto node = std::make_unique<WithNode>(Current().line);
  const size_t unknown = unknown_.size();
  Advance();
  while (Current().kind != TokenKind::kBlockEnd) {
    if (!node->values.empty()) KVANT_TRY(ExpectSign(","));
    KVANT_ASSIGN(Target target, TakeTarget(Attributes::kNone));
    KVANT_TRY(ExpectSign("="));
    KVANT_ASSIGN(const ExpressionPointer value, TakeExpression());
    node->values.emplace_back(std::move(target), value);
  }
  KVANT_ASSIGN(node->body, TakeBodyAndEnd("endwith"));
  HardenSince(unknown);
  return std::unique_ptr<Statement>(std::move(node));
}

// The text of an assistant, which trainers look for: a scope of its own, as in jinja2.
Result<std::unique_ptr<Statement>> Parser::TakeGeneration() {
  auto node = std::make_unique<WithNode>(Current().line);
  const size_t unknown = unknown_.size();
  const int loops = std::exchange(loops_, 0);
  Advance();
  KVANT_ASSIGN(node->body, TakeBodyAndEnd("endgeneration"));
  loops_ = loops;
  HardenSince(unknown);
  return std::unique_ptr<Statement>(std::move(node));
}

Result<std::unique_ptr<Statement>> Parser::TakeLoopControl() {
  auto node = std::make_unique<LoopControlNode>(Current().line);
  node->flow = IsName("break") ? Flow::kBreak : Flow::kContinue;
  if (loops_ == 0) return Wrong("{} stands outside of a loop", Current().text);
  Advance();
  return std::unique_ptr<Statement>(std::move(node));
}

Result<Target> Parser::TakeOneTarget(Attributes attributes) {
  const Nesting nesting(nesting_);
  KVANT_TRY(nesting.Check());
  Target target;
  if (SkipSign("(")) {
    KVANT_ASSIGN(target, TakeTarget(attributes));
    KVANT_TRY(ExpectSign(")"));
    return target;
  }
  KVANT_ASSIGN(target.name, ExpectName());
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (target.name == constant) return Wrong("nothing can be assigned to {}", constant);
  }
  if (attributes == Attributes::kTaken && SkipSign(".")) {
    KVANT_ASSIGN(target.attribute, ExpectName());
  }
  return target;
}

Result<Target> Parser::TakeTarget(Attributes attributes) {
  KVANT_ASSIGN(Target first, TakeOneTarget(attributes));
  if (!IsSign(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (SkipSign(",")) {
    if (Current().kind != TokenKind::kName && !IsSign("(")) break;
    if (IsName("in")) break;
    KVANT_ASSIGN(Target part, TakeOneTarget(attributes));
    tuple.parts.push_back(std::move(part));
  }
  return tuple;
}

}  // namespace kvant::jinja
