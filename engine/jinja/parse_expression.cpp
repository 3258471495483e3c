// The grammar of expressions, a function for each precedence.
#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/jinja/parser.h"

namespace kvant::jinja {
namespace {

struct ArithmeticSign {
  std::string_view sign;
  Arithmetic operation;
};
constexpr ArithmeticSign kSums[] = {{"+", Arithmetic::kAdd}, {"-", Arithmetic::kSubtract}};
constexpr ArithmeticSign kProducts[] = {{"*", Arithmetic::kMultiply},
                                        {"/", Arithmetic::kDivide},
                                        {"//", Arithmetic::kFloorDivide},
                                        {"%", Arithmetic::kModulo}};
constexpr ArithmeticSign kPowers[] = {{"**", Arithmetic::kPower}};
constexpr std::pair<std::string_view, Comparison> kComparisons[] = {
    {"==", Comparison::kEqual},  {"!=", Comparison::kUnequal},
    {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
    {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual}};

template <class List>
const ArithmeticSign* FindSign(const List& list, const Token& token) {
  const auto* const found =
      std::find_if(std::begin(list), std::end(list), [&](const ArithmeticSign& entry) {
        return token.kind == TokenKind::kOperator && entry.sign == token.text;
      });
  return found == std::end(list) ? nullptr : found;
}

}  // namespace

Result<ExpressionPointer> Parser::TakeExpression(Conditions conditions) {
  const Nesting nesting(nesting_);
  KVANT_TRY(nesting.Check());
  const size_t unknown = unknown_.size();
  int line = Current().line;
  KVANT_ASSIGN(ExpressionPointer node, TakeOr());
  while (conditions == Conditions::kTaken && SkipName("if")) {
    auto* const choice = Make<ConditionalNode>(line);
    choice->then = node;
    KVANT_ASSIGN(choice->condition, TakeOr());
    if (SkipName("else")) {
      KVANT_ASSIGN(choice->otherwise, TakeExpression());
    }
    ForgiveSince(unknown);
    node = choice;
    line = Current().line;
  }
  return node;
}

Result<ExpressionPointer> Parser::TakeTuple(Conditions conditions, std::string_view end_name) {
  const int line = Current().line;
  std::vector<ExpressionPointer> items;
  bool is_tuple = false;
  while (Current().kind != TokenKind::kVariableEnd && Current().kind != TokenKind::kBlockEnd &&
         !IsSign(")") && (end_name.empty() || !IsName(end_name))) {
    KVANT_ASSIGN(const ExpressionPointer item, TakeExpression(conditions));
    items.push_back(item);
    if (!SkipSign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.empty()) return Unexpected("an expression");
  if (!is_tuple) return items[0];
  auto* const node = Make<ListNode>(line);
  node->kind = Sequence::Kind::kTuple;
  node->items = std::move(items);
  return node;
}

Result<ExpressionPointer> Parser::TakeOr() {
  KVANT_ASSIGN(const ExpressionPointer first, TakeAnd());
  if (!IsName("or")) return first;
  auto* const node = Make<LogicNode>(first->line());
  node->operands.push_back(first);
  while (SkipName("or")) {
    KVANT_ASSIGN(const ExpressionPointer operand, TakeAnd());
    node->operands.push_back(operand);
  }
  return node;
}

Result<ExpressionPointer> Parser::TakeAnd() {
  KVANT_ASSIGN(const ExpressionPointer first, TakeNot());
  if (!IsName("and")) return first;
  auto* const node = Make<LogicNode>(first->line());
  node->decides = false;
  node->operands.push_back(first);
  while (SkipName("and")) {
    KVANT_ASSIGN(const ExpressionPointer operand, TakeNot());
    node->operands.push_back(operand);
  }
  return node;
}

Result<ExpressionPointer> Parser::TakeNot() {
  const int line = Current().line;
  if (!SkipName("not")) return TakeComparison();
  const Nesting nesting(nesting_);
  KVANT_TRY(nesting.Check());
  auto* const node = Make<UnaryNode>(line);
  KVANT_ASSIGN(node->operand, TakeNot());
  return node;
}

Result<ExpressionPointer> Parser::TakeComparison() {
  KVANT_ASSIGN(const ExpressionPointer first, TakeSum());
  std::vector<std::pair<Comparison, ExpressionPointer>> others;
  while (true) {
    const auto* const found =
        std::find_if(std::begin(kComparisons), std::end(kComparisons),
                     [this](const auto& entry) { return IsSign(entry.first); });
    Comparison comparison = Comparison::kIn;
    if (found != std::end(kComparisons)) {
      comparison = found->second;
    } else if (IsName("not") && Following().kind == TokenKind::kName && Following().text == "in") {
      Advance();
      comparison = Comparison::kNotIn;
    } else if (!IsName("in")) {
      break;
    }
    Advance();
    KVANT_ASSIGN(const ExpressionPointer operand, TakeSum());
    others.emplace_back(comparison, operand);
  }
  if (others.empty()) return first;
  auto* const node = Make<ComparisonNode>(first->line());
  node->first = first;
  node->others = std::move(others);
  return node;
}

Result<ExpressionPointer> Parser::TakeSum() {
  KVANT_ASSIGN(ExpressionPointer left, TakeConcatenation());
  while (const ArithmeticSign* sign = FindSign(kSums, Current())) {
    auto* const node = Make<ArithmeticNode>(Current().line);
    Advance();
    node->operation = sign->operation;
    node->left = left;
    KVANT_ASSIGN(node->right, TakeConcatenation());
    left = node;
  }
  return left;
}

Result<ExpressionPointer> Parser::TakeConcatenation() {
  KVANT_ASSIGN(const ExpressionPointer first, TakeProduct());
  if (!IsSign("~")) return first;
  auto* const node = Make<ConcatenationNode>(first->line());
  node->operands.push_back(first);
  while (SkipSign("~")) {
    KVANT_ASSIGN(const ExpressionPointer operand, TakeProduct());
    node->operands.push_back(operand);
  }
  return node;
}

Result<ExpressionPointer> Parser::TakeProduct() {
  KVANT_ASSIGN(ExpressionPointer left, TakePower());
  while (const ArithmeticSign* sign = FindSign(kProducts, Current())) {
    auto* const node = Make<ArithmeticNode>(Current().line);
    Advance();
    node->operation = sign->operation;
    node->left = left;
    KVANT_ASSIGN(node->right, TakePower());
    left = node;
  }
  return left;
}

Result<ExpressionPointer> Parser::TakePower() {
  KVANT_ASSIGN(ExpressionPointer left, TakeUnary(Filters::kTaken));
  while (const ArithmeticSign* sign = FindSign(kPowers, Current())) {
    auto* const node = Make<ArithmeticNode>(Current().line);
    Advance();
    node->operation = sign->operation;
    node->left = left;
    KVANT_ASSIGN(node->right, TakeUnary(Filters::kTaken));
    left = node;
  }
  return left;
}

Result<ExpressionPointer> Parser::TakeUnary(Filters filters) {
  const Nesting nesting(nesting_);
  KVANT_TRY(nesting.Check());
  ExpressionPointer node = nullptr;
  if (IsSign("-") || IsSign("+")) {
    auto* const unary = Make<UnaryNode>(Current().line);
    unary->operation = IsSign("-") ? UnaryOperation::kMinus : UnaryOperation::kPlus;
    Advance();
    KVANT_ASSIGN(unary->operand, TakeUnary(Filters::kLeft));
    node = unary;
  } else {
    KVANT_ASSIGN(node, TakePrimary());
  }
  KVANT_ASSIGN(node, TakePostfix(node));
  return filters == Filters::kTaken ? TakeFilterExpression(node) : node;
}

Result<ExpressionPointer> Parser::TakePrimary() {
  const Token token = Current();
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kFloat) return TakeNumber();
  if (token.kind == TokenKind::kName) {
    Advance();
    if (token.text == "true" || token.text == "True") return Make<Constant>(token.line, true);
    if (token.text == "false" || token.text == "False") return Make<Constant>(token.line, false);
    if (token.text == "none" || token.text == "None") return Make<Constant>(token.line, None{});
    names_.push_back(token.text);
    return Make<Variable>(token.line, token.text);
  }
  if (token.kind == TokenKind::kString) {
    std::string text;
    for (; Current().kind == TokenKind::kString; Advance()) text += Current().text;
    return Make<Constant>(token.line, Text(std::move(text)));
  }
  if (IsSign("(")) return TakeParentheses();
  if (IsSign("[")) return TakeList();
  if (IsSign("{")) return TakeDict();
  return Unexpected("an expression");
}

Result<ExpressionPointer> Parser::TakeNumber() {
  const Token token = Current();
  const char* const begin = token.text.data();
  const char* const end = begin + token.text.size();
  Advance();
  if (token.kind == TokenKind::kFloat) {
    double value = 0;
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (error != std::errc() || stop != end) return Wrong("{} is no float", token.text);
    return Make<Constant>(token.line, value);
  }
  int64_t value = 0;
  const char letter = token.text.size() > 2 ? token.text[1] : ' ';
  const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  const auto [stop, error] = std::from_chars(base == 10 ? begin : begin + 2, end, value, base);
  if (error != std::errc() || stop != end) {
    return Wrong("the number {} has more than 64 bits", token.text.substr(0, 40));
  }
  return Make<Constant>(token.line, value);
}

Result<ExpressionPointer> Parser::TakeParentheses() {
  const int line = Current().line;
  Advance();
  if (SkipSign(")")) {
    auto* const empty = Make<ListNode>(line);
    empty->kind = Sequence::Kind::kTuple;
    return empty;
  }
  KVANT_ASSIGN(const ExpressionPointer node, TakeTuple(Conditions::kTaken));
  KVANT_TRY(ExpectSign(")"));
  return node;
}

Result<ExpressionPointer> Parser::TakeList() {
  auto* const node = Make<ListNode>(Current().line);
  Advance();
  while (!IsSign("]")) {
    if (!node->items.empty()) KVANT_TRY(ExpectSign(","));
    if (IsSign("]")) break;
    KVANT_ASSIGN(const ExpressionPointer item, TakeExpression());
    node->items.push_back(item);
  }
  Advance();
  return node;
}

Result<ExpressionPointer> Parser::TakeDict() {
  auto* const node = Make<DictNode>(Current().line);
  Advance();
  while (!IsSign("}")) {
    if (!node->items.empty()) KVANT_TRY(ExpectSign(","));
    if (IsSign("}")) break;
    KVANT_ASSIGN(const ExpressionPointer key, TakeExpression());
    KVANT_TRY(ExpectSign(":"));
    KVANT_ASSIGN(const ExpressionPointer value, TakeExpression());
    node->items.emplace_back(key, value);
  }
  Advance();
  return node;
}

Result<ExpressionPointer> Parser::TakePostfix(ExpressionPointer node) {
  while (true) {
    if (IsSign(".") || IsSign("[")) {
      KVANT_ASSIGN(node, TakeSubscript(node));
    } else if (IsSign("(")) {
      KVANT_ASSIGN(node, TakeCall(node));
    } else {
      return node;
    }
  }
}

Result<ExpressionPointer> Parser::TakeFilterExpression(ExpressionPointer node) {
  while (true) {
    if (SkipSign("|")) {
      KVANT_ASSIGN(node, TakeFilter(node));
    } else if (SkipName("is")) {
      KVANT_ASSIGN(node, TakeTest(node));
    } else if (IsSign("(")) {
      KVANT_ASSIGN(node, TakeCall(node));
    } else {
      return node;
    }
  }
}

Result<ExpressionPointer> Parser::TakeSubscript(ExpressionPointer node) {
  const int line = Current().line;
  if (!SkipSign(".")) {
    Advance();
    return TakeSliceOrKey(node, line);
  }
  if (Current().kind == TokenKind::kInteger) {
    auto* const item = Make<ItemNode>(line);
    item->object = node;
    KVANT_ASSIGN(item->key, TakeNumber());
    return item;
  }
  auto* const attribute = Make<AttributeNode>(line);
  attribute->object = node;
  KVANT_ASSIGN(attribute->name, ExpectName());
  return attribute;
}

Result<ExpressionPointer> Parser::TakeSliceOrKey(ExpressionPointer node, int line) {
  ExpressionPointer parts[3] = {};
  size_t count = 0;  // of colons
  while (count < 3) {
    if (!IsSign(":") && !IsSign("]")) {
      KVANT_ASSIGN(parts[count], TakeExpression());
    }
    if (count == 2 || !SkipSign(":")) break;
    ++count;
  }
  KVANT_TRY(ExpectSign("]"));
  if (count == 0) {
    if (parts[0] == nullptr) return Wrong("expected a key between [ and ]");
    auto* const item = Make<ItemNode>(line);
    item->object = node;
    item->key = parts[0];
    return item;
  }
  auto* const slice = Make<SliceNode>(line);
  slice->object = node;
  slice->from = parts[0];
  slice->to = parts[1];
  slice->step = parts[2];
  return slice;
}

Result<ExpressionPointer> Parser::TakeCall(ExpressionPointer node) {
  auto* const call = Make<CallNode>(Current().line);
  call->callee = node;
  KVANT_TRY(TakeArguments(call->arguments));
  return call;
}

Status Parser::TakeArguments(ArgumentNodes& arguments) {
  KVANT_TRY(ExpectSign("("));
  bool first = true;
  while (!IsSign(")")) {
    if (!first) {
      KVANT_TRY(ExpectSign(","));
      if (IsSign(")")) break;
    }
    first = false;
    KVANT_TRY(TakeArgument(arguments));
  }
  Advance();
  return {};
}

Status Parser::TakeArgument(ArgumentNodes& arguments) {
  const bool has_all = arguments.all != nullptr;
  const bool has_all_named = arguments.all_named != nullptr;
  const Error misplaced = Wrong("an argument stands behind one that must be the last");
  if (SkipSign("*")) {
    if (has_all || has_all_named) return misplaced;
    KVANT_ASSIGN(arguments.all, TakeExpression());
  } else if (SkipSign("**")) {
    if (has_all_named) return misplaced;
    KVANT_ASSIGN(arguments.all_named, TakeExpression());
  } else if (Current().kind == TokenKind::kName && Following().kind == TokenKind::kOperator &&
             Following().text == "=") {
    if (has_all_named) return misplaced;
    std::string name = Current().text;
    Advance();
    Advance();
    KVANT_ASSIGN(const ExpressionPointer value, TakeExpression());
    arguments.named.emplace_back(std::move(name), value);
  } else {
    if (has_all || has_all_named || !arguments.named.empty()) return misplaced;
    KVANT_ASSIGN(const ExpressionPointer value, TakeExpression());
    arguments.positional.push_back(value);
  }
  return {};
}

Result<std::string> Parser::TakeDottedName() {
  KVANT_ASSIGN(std::string name, ExpectName());
  while (SkipSign(".")) {
    KVANT_ASSIGN(const std::string more, ExpectName());
    name += "." + more;
  }
  return name;
}

Result<const FilterNode*> Parser::TakeFilter(ExpressionPointer node) {
  auto* const filter = Make<FilterNode>(Current().line);
  filter->operand = node;
  KVANT_ASSIGN(filter->name, TakeDottedName());
  filter->filter = FindFilter(filter->name);
  if (filter->filter == nullptr) {
    unknown_.push_back({fmt::format("no filter is called '{}'", filter->name), filter->line()});
  }
  if (IsSign("(")) KVANT_TRY(TakeArguments(filter->arguments));
  return filter;
}

Result<ExpressionPointer> Parser::TakeTest(ExpressionPointer node) {
  auto* const test = Make<TestNode>(Current().line);
  const bool negated = SkipName("not");
  test->operand = node;
  KVANT_ASSIGN(test->name, TakeDottedName());
  test->test = FindTest(test->name);
  if (test->test == nullptr) {
    unknown_.push_back({fmt::format("no test is called '{}'", test->name), test->line()});
  }
  const TokenKind next = Current().kind;
  if (IsSign("(")) {
    KVANT_TRY(TakeArguments(test->arguments));
  } else if (next == TokenKind::kString || next == TokenKind::kInteger ||
             next == TokenKind::kFloat || IsSign("[") || IsSign("{") ||
             (next == TokenKind::kName && !IsAnyName({"else", "or", "and"}))) {
    if (IsName("is")) return Wrong("tests cannot be chained with is");
    KVANT_ASSIGN(ExpressionPointer argument, TakePrimary());
    KVANT_ASSIGN(argument, TakePostfix(argument));
    test->arguments.positional.push_back(argument);
  }
  if (!negated) return test;
  auto* const negation = Make<UnaryNode>(test->line());
  negation->operand = test;
  return negation;
}

}  // namespace kvant::jinja
