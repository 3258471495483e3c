#include "engine/jinja/template.h"

#include <algorithm>

#include "engine/jinja/nodes.h"
#include "engine/jinja/parser.h"

namespace kvant::jinja {

struct Tree {
  Expressions expressions;
  Body body;
};

namespace {

// An error's message in one line, whatever texts it repeats.
Error Placed(const std::string& name, int line, const Error& error) {
  std::string message = error.message;
  std::replace_if(
      message.begin(), message.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  return MakeError(error.code, "{}: line {}: {}", name, line, message);
}

}  // namespace

Result<Template> Template::Parse(const std::string& name, std::string_view source) {
  int line = 1;
  auto tokens = Tokenize(source, &line);
  if (!tokens.ok()) return Placed(name, line, tokens.error());
  auto tree = std::make_shared<Tree>();
  Parser parser(std::move(tokens).value(), tree->expressions);
  auto body = parser.Parse();
  if (!body.ok()) return Placed(name, parser.line(), body.error());
  tree->body = std::move(body).value();
  Template parsed;
  parsed.name_ = name;
  parsed.tree_ = std::move(tree);
  return parsed;
}

Result<Text> Template::Render(const std::vector<std::pair<std::string, Value>>& variables,
                              int64_t now, const Limits& limits) const {
  Run run(limits, now);
  for (const auto& [name, value] : variables) run.scope->Set(name, value);
  const InnerScope inner(run);
  Text out;
  const auto flow = ExecuteBody(tree_->body, run, out);
  if (!flow.ok()) return Placed(name_, run.line, flow.error());
  return out;
}

}  // namespace kvant::jinja
