// The needs of a schema and the values that satisfy them. Everything that a schema says is read
// here, when a need is opened for the first time; errors name the place by its JSON pointer.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/grammar/schema/json_value.h"
#include "engine/grammar/schema/references.h"
#include "engine/grammar/schema/shapes.h"

namespace kvant::grammar {

// How a keyword counts that no specification knows.
enum class UnknownKeywords : uint8_t { kErrors, kAnnotations };

class Needs {
 public:
  Needs(const JsonValue& schema, UnknownKeywords unknown);

  // The need of a schema, or of being equal to a constant.
  NeedId OfSchema(const JsonValue& schema);
  NeedId OfConstant(const JsonValue& value);
  // The need of not satisfying another one.
  NeedId Opposite(NeedId need);

  // Their union as a goal, normalised.
  static Goal GoalOf(std::vector<NeedId> needs);

  // The values that satisfy a need, or all needs of a goal. The result of the first stays valid.
  Result<const Values*> ValuesOf(NeedId need);
  Result<Values> ValuesOf(const Goal& goal);

  // Whether it is proved that nothing satisfies the goal.
  Result<bool> IsNothing(const Goal& goal);

  // The texts that match a pattern, made once.
  Result<std::shared_ptr<const TextSet>> Pattern(const std::string& pattern);

  // ---- Operations on values ---------------------------------------------------------------------

  static Result<Values> Both(const Values& first, const Values& second);
  static Values Either(Values first, const Values& second);
  // kNotSupported where the opposite has no such form.
  Result<Values> Others(const Values& values);
  Result<bool> IsNothing(const Values& values);

  // "schema /properties/a: ..."
  static Error At(const JsonValue& place, std::string_view message,
                  ErrorCode code = ErrorCode::kInvalid);

  // An error of a goal, with its place in front if it has none.
  Error AtGoal(const Goal& goal, const Error& error) const;

  // Goals that properties and items of a shape must satisfy.
  static Goal GoalOfProperty(const ObjectShape& shape, std::string_view name);
  static Goal GoalOfItem(const ArrayShape& shape, size_t place);

 private:
  friend class KeywordReader;
  struct Need {
    enum class Kind : uint8_t { kAny, kNone, kSchema, kConstant, kOpposite };
    Kind kind;
    const JsonValue* place = nullptr;
    NeedId other = 0;
    bool is_open = false;  // its values are being found
    std::optional<Values> values = {};
  };

  NeedId Add(Need::Kind kind, const JsonValue* place, NeedId other);
  Result<Values> Find(NeedId need);
  Result<Values> ValuesOfConstant(const JsonValue& value);
  Result<std::vector<StringShape>> OtherStrings(const StringShape& shape);
  Result<std::vector<ArrayShape>> OtherArrays(const ArrayShape& shape);
  Result<std::vector<ObjectShape>> OtherObjects(const ObjectShape& shape);
  Result<bool> IsNothing(const ArrayShape& shape);
  Result<bool> IsNothing(const ObjectShape& shape);

  References references_;
  UnknownKeywords unknown_;
  std::deque<Need> needs_;
  std::map<std::pair<const JsonValue*, uint64_t>, NeedId> numbers_;
  size_t open_ = 0;
  std::map<std::string, std::shared_ptr<const TextSet>> patterns_;
  std::set<Goal> being_proved_;
  std::map<Goal, bool> proved_;
};

// All values, and none.
Values AllValues();

}  // namespace kvant::grammar
