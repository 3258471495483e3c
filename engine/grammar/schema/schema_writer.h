// Writes the values that satisfy goals as rules of a grammar. Lists and properties are written with
// recursion on the left: the parser's rows then do not depend on how a text came there.
//
// Thread-safety: one thread at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema/json_text.h"
#include "engine/grammar/schema/needs.h"

namespace kvant::grammar {

class SchemaWriter {
 public:
  // All must outlive the writer.
  SchemaWriter(Needs& needs, GrammarBuilder& builder, JsonText::Form form);

  // The rule of the JSON texts that satisfy a goal.
  Result<RuleId> Write(const Goal& goal);

 private:
  using Part = GrammarBuilder::Part;
  using Parts = std::vector<Part>;

  RuleId RuleOf(const Goal& goal);
  Result<Part> PartOf(const Values& values);
  Result<ExprId> Number(const NumberSet& set);
  Result<ExprId> NewNumber(const NumberSet& set);
  Result<ExprId> String(const StringShape& shape);
  ExprId KeyOf(const std::string& name);
  ExprId KeysOf(const TextSet& names);
  Result<ExprId> ShortNumber(const TextSet& texts);
  Result<ExprId> NewString(const StringShape& shape);

  // ---- Arrays -----------------------------------------------------------------------------------

  Result<Part> Array(const ArrayShape& shape);
  Result<Part> UniqueArray(const ArrayShape& shape);
  // The texts of all values of a goal, if they are few constants.
  Result<std::optional<std::vector<ExprId>>> FewValues(const Goal& goal);

  // ---- Objects ----------------------------------------------------------------------------------

  struct Property {
    ExprId key;
    Goal goal;
    bool is_required;
  };
  Result<Part> Object(const ObjectShape& shape);
  Result<std::vector<Property>> NamedProperties(const ObjectShape& shape);
  Result<std::vector<Property>> AdditionalProperties(const ObjectShape& shape);
  Result<std::vector<Property>> OtherProperties(const ObjectShape& shape,
                                                std::vector<std::string> named);

  // A terminal, or what accepts nothing.
  Part Terminal(ExprId expr);
  // One of the lists between brackets, for example "[]"; the empty one, too, if it is allowed.
  enum class EmptyList : uint8_t { kRefused, kAllowed };
  Part Enclosed(std::string_view brackets, Parts lists, EmptyList empty);

  Needs& needs_;
  GrammarBuilder& builder_;
  JsonText json_;
  std::map<Goal, RuleId> rules_;
  std::vector<const Goal*> left_;
  // Strings that were written, by their texts and lengths; the texts are kept alive.
  using StringKey = std::tuple<std::shared_ptr<const TextSet>, uint32_t, uint32_t>;
  std::map<StringKey, ExprId> strings_;
  // Numbers that were written, by the hash of their texts.
  std::unordered_map<uint64_t, std::vector<std::pair<NumberSet, ExprId>>> numbers_;
  // Names with their colon, and the others than some names.
  std::unordered_map<std::string, ExprId> keys_;
  std::map<std::vector<std::string>, ExprId> other_keys_;
  Part comma_;
};

}  // namespace kvant::grammar
