// Reads the keywords of one schema into the values that satisfy it. Every keyword is enforced, an
// annotation that changes nothing, or an error.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/grammar/schema/needs.h"

namespace kvant::grammar {

class KeywordReader {
 public:
  // Both must outlive the reader.
  KeywordReader(Needs& needs, const JsonValue& schema) : needs_(needs), schema_(schema) {}

  Result<Values> Read();

 private:
  // The types that the schema allows.
  struct Types {
    bool null = true;
    bool boolean = true;
    bool number = true;
    bool integer = true;  // whole numbers only, where `number` is false
    bool string = true;
    bool array = true;
    bool object = true;
  };

  Status CheckKeywords() const;
  Result<Types> ReadTypes() const;

  // The values that the keywords of one type leave of it.
  Result<std::vector<NumberSet>> ReadNumbers(const Types& types) const;
  Result<std::vector<StringShape>> ReadStrings() const;
  Result<std::vector<ArrayShape>> ReadArrays();
  Result<std::vector<ObjectShape>> ReadObjects();
  Status ReadFormat(const Types& types, std::vector<NumberSet>& numbers,
                    std::vector<StringShape>& strings) const;
  Status ReadItems(ArrayRule& rule);
  Status ReadContains(ArrayShape& shape);
  Result<PropertyRule> ReadProperties();
  Status ReadPropertyNames(ObjectShape& shape);

  // The values that keywords for all types leave.
  Status ApplyConstants(Values& values) const;
  Status ApplyLists(Values& values);
  Result<Values> Referenced(const JsonValue& reference);
  Result<Values> Listed(std::string_view key, const JsonValue& list);
  Status ApplyConditions(Values& values);
  Status ApplyDependencies(Values& values);
  Status ApplyDependency(const std::string& name, const JsonValue& wanted, Values& values);
  Result<Values> OneOf(const JsonValue& list);
  Status ApplyNeed(NeedId need, Values& values);

  // The value of a keyword; null where it is absent. The others are errors where it is of another
  // kind.
  const JsonValue* Find(std::string_view key) const { return schema_.Find(key); }
  Result<std::optional<uint32_t>> Count(std::string_view key) const;
  Result<CountRange> Counts(std::string_view least, std::string_view most) const;
  Result<const JsonValue*> Number(std::string_view key) const;
  // "schema: #/properties/a/minLength: expected ..., found ..."
  static Error Wrong(const JsonValue& value, std::string_view expected);
  // An error of a part, with the place of the keyword in front if it has none.
  static Error Placed(const JsonValue& value, const Error& error);
  Result<NeedId> Schema(const JsonValue& value);

  Needs& needs_;
  const JsonValue& schema_;
};

}  // namespace kvant::grammar
