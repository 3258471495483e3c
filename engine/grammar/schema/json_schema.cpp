#include "engine/grammar/schema/json_schema.h"

#include "engine/grammar/schema/needs.h"
#include "engine/grammar/schema/schema_writer.h"

namespace kvant::grammar {

Result<RuleId> AddJsonSchema(GrammarBuilder& builder, std::string_view text,
                             const JsonSchemaForm& form) {
  KVANT_ASSIGN(const auto tree, JsonTree::Parse(text, "schema"));
  const JsonValue& root = tree->root();
  if (!root.is_bool() && !root.is(JsonValue::Kind::kObject)) {
    return Needs::At(root, "expected an object, true or false, found " + ShownValue(root));
  }
  Needs needs(root, form.allows_unknown ? UnknownKeywords::kAnnotations : UnknownKeywords::kErrors);
  const Goal goal = Needs::GoalOf({needs.OfSchema(root)});
  KVANT_ASSIGN(const bool nothing, needs.IsNothing(goal));
  if (nothing) return Needs::At(root, "expected a schema that some value satisfies, found none");
  SchemaWriter writer(needs, builder,
                      form.compact ? JsonText::Form::kCompact : JsonText::Form::kSpaced);
  return writer.Write(goal);
}

Result<std::unique_ptr<Grammar>> ParseJsonSchema(std::string_view text,
                                                 const JsonSchemaForm& form) {
  GrammarBuilder builder;
  KVANT_ASSIGN(const RuleId rule, AddJsonSchema(builder, text, form));
  auto grammar = builder.Build(rule);
  if (grammar.ok()) return grammar;
  return MakeError(grammar.error().code, "schema: #: {}", grammar.error().message);
}

}  // namespace kvant::grammar
