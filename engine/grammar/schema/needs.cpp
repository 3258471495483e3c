#include "engine/grammar/schema/needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/grammar/schema/keyword_reader.h"
#include "engine/grammar/schema/pattern_set.h"

namespace kvant::grammar {
namespace {

constexpr size_t kNeedsMax = 100'000;
constexpr size_t kOpenNeedsMax = 400;  // of needs that are opened within each other
constexpr size_t kProofDepthMax = 24;
// More items than this are not looked at in proofs.
constexpr uint32_t kProofItemsMax = 64;

}  // namespace

Values AllValues() {
  Values values;
  values.has_null = values.has_false = values.has_true = true;
  values.numbers.push_back(AllNumbers());
  values.strings.emplace_back();
  values.arrays.emplace_back();
  values.objects.emplace_back();
  return values;
}

Needs::Needs(const JsonValue& schema, UnknownKeywords unknown)
    : references_(schema), unknown_(unknown) {
  needs_.push_back({Need::Kind::kAny});
  needs_.push_back({Need::Kind::kNone});
}

NeedId Needs::Add(Need::Kind kind, const JsonValue* place, NeedId other) {
  const uint64_t word = uint64_t{other} << 8 | static_cast<uint64_t>(kind);
  const auto [entry, is_new] =
      numbers_.emplace(std::pair(place, word), static_cast<NeedId>(needs_.size()));
  if (is_new) needs_.push_back({kind, place, other});
  return entry->second;
}

NeedId Needs::OfSchema(const JsonValue& schema) {
  const bool is_empty = schema.is(JsonValue::Kind::kObject) && schema.members.empty();
  if (schema.is(JsonValue::Kind::kTrue) || is_empty) return kAnything;
  if (schema.is(JsonValue::Kind::kFalse)) return kNoValue;
  return Add(Need::Kind::kSchema, &schema, 0);
}

NeedId Needs::OfConstant(const JsonValue& value) { return Add(Need::Kind::kConstant, &value, 0); }

NeedId Needs::Opposite(NeedId need) {
  if (need == kAnything) return kNoValue;
  if (need == kNoValue) return kAnything;
  if (needs_[need].kind == Need::Kind::kOpposite) return needs_[need].other;
  return Add(Need::Kind::kOpposite, needs_[need].place, need);
}

Goal Needs::GoalOf(std::vector<NeedId> needs) {
  std::ranges::sort(needs);
  needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
  if (std::ranges::binary_search(needs, kNoValue)) return {kNoValue};
  std::erase(needs, kAnything);
  return needs;
}

Error Needs::At(const JsonValue& place, std::string_view message, ErrorCode code) {
  return MakeError(code, "schema: #{}: {}", PointerTo(place), message);
}

Result<std::shared_ptr<const TextSet>> Needs::Pattern(const std::string& pattern) {
  const auto kept = patterns_.find(pattern);
  if (kept != patterns_.end()) return kept->second;
  KVANT_ASSIGN(TextSet texts, PatternSet(pattern));
  auto made = std::make_shared<const TextSet>(std::move(texts));
  patterns_.emplace(pattern, made);
  return made;
}

Error Needs::AtGoal(const Goal& goal, const Error& error) const {
  const JsonValue* place = goal.empty() ? nullptr : needs_[goal[0]].place;
  if (place == nullptr || error.message.starts_with("schema: #")) return error;
  return At(*place, error.message, error.code);
}

Result<const Values*> Needs::ValuesOf(NeedId need) {
  if (needs_[need].values.has_value()) return &*needs_[need].values;
  if (needs_[need].is_open) {
    return At(*needs_[need].place, "expected a schema, found one that refers to itself for ever");
  }
  if (needs_.size() > kNeedsMax) {
    return MakeError(ErrorCode::kNotSupported, "schema: expected at most {} parts, found more",
                     kNeedsMax);
  }
  if (open_ == kOpenNeedsMax) {
    return At(*needs_[need].place,
              fmt::format("expected at most {} schemas within each other", kOpenNeedsMax));
  }
  ++open_;
  needs_[need].is_open = true;
  Result<Values> values = Find(need);
  needs_[need].is_open = false;
  --open_;
  if (!values.ok()) return values.error();
  needs_[need].values = std::move(*values);
  return &*needs_[need].values;
}

Result<Values> Needs::Find(NeedId number) {
  const Need& need = needs_[number];
  switch (need.kind) {
    case Need::Kind::kAny: return AllValues();
    case Need::Kind::kNone: return Values{};
    case Need::Kind::kSchema: return KeywordReader(*this, *need.place).Read();
    case Need::Kind::kConstant: return ValuesOfConstant(*need.place);
    case Need::Kind::kOpposite: break;
  }
  KVANT_ASSIGN(const Values* values, ValuesOf(need.other));
  Result<Values> others = Others(*values);
  if (others.ok()) return others;
  return At(*need.place, "expected a schema that has an opposite, found " + others.error().message,
            others.error().code);
}

Result<Values> Needs::ValuesOf(const Goal& goal) {
  if (goal.empty()) return AllValues();
  KVANT_ASSIGN(const Values* first, ValuesOf(goal[0]));
  Values values = *first;
  for (size_t i = 1; i < goal.size(); ++i) {
    KVANT_ASSIGN(const Values* other, ValuesOf(goal[i]));
    KVANT_ASSIGN(values, Both(values, *other));
  }
  return values;
}

Result<Values> Needs::ValuesOfConstant(const JsonValue& value) {
  Values values;
  switch (value.kind) {
    case JsonValue::Kind::kNull: values.has_null = true; break;
    case JsonValue::Kind::kFalse: values.has_false = true; break;
    case JsonValue::Kind::kTrue: values.has_true = true; break;
    case JsonValue::Kind::kNumber: {
      KVANT_ASSIGN(NumberSet set, TheseNumbers({&value.number, 1}));
      values.numbers.push_back(std::move(set));
      break;
    }
    case JsonValue::Kind::kString: {
      StringShape shape;
      shape.list = {value.text};
      values.strings.push_back(std::move(shape));
      break;
    }
    case JsonValue::Kind::kArray: {
      ArrayShape shape;
      ArrayRule rule;
      for (const JsonValue* item : value.items) rule.first.push_back(OfConstant(*item));
      rule.rest = kNoValue;
      const auto count = static_cast<uint32_t>(value.items.size());
      shape.rules.push_back(std::move(rule));
      shape.count = {count, count};
      values.arrays.push_back(std::move(shape));
      break;
    }
    case JsonValue::Kind::kObject: {
      ObjectShape shape;
      auto rule = std::make_shared<PropertyRule>();
      for (const auto& [name, member] : value.members) {
        rule->order.push_back(name);
        rule->named.emplace(name, OfConstant(*member));
        shape.required.push_back(name);
      }
      rule->others = kNoValue;
      shape.rules.push_back(std::move(rule));
      values.objects.push_back(std::move(shape));
      break;
    }
  }
  return values;
}

Goal Needs::GoalOfItem(const ArrayShape& shape, size_t place) {
  std::vector<NeedId> needs;
  for (const ArrayRule& rule : shape.rules) {
    needs.push_back(place < rule.first.size() ? rule.first[place] : rule.rest);
  }
  return GoalOf(std::move(needs));
}

Goal Needs::GoalOfProperty(const ObjectShape& shape, std::string_view name) {
  std::vector<NeedId> needs;
  const std::string key(name);
  for (const auto& rule : shape.rules) {
    bool is_other = true;
    const auto named = rule->named.find(key);
    if (named != rule->named.end()) {
      needs.push_back(named->second);
      is_other = false;
    }
    for (const auto& [texts, need] : rule->patterns) {
      if (!texts->Has(name)) continue;
      needs.push_back(need);
      is_other = false;
    }
    if (is_other) needs.push_back(rule->others);
  }
  for (const auto& names : shape.names) {
    if (!names->Has(name)) return {kNoValue};
  }
  return GoalOf(std::move(needs));
}

// ---- Proofs that nothing satisfies --------------------------------------------------------------

Result<bool> Needs::IsNothing(const Goal& goal) {
  if (goal.empty()) return false;
  const auto known = proved_.find(goal);
  if (known != proved_.end()) return known->second;
  if (being_proved_.size() >= kProofDepthMax || being_proved_.contains(goal)) return false;
  being_proved_.insert(goal);
  const Result<Values> values = ValuesOf(goal);
  Result<bool> nothing = values.ok() ? IsNothing(*values) : Result<bool>(values.error());
  being_proved_.erase(goal);
  if (nothing.ok()) proved_[goal] = *nothing;
  return nothing;
}

Result<bool> Needs::IsNothing(const Values& values) {
  if (values.has_null || values.has_false || values.has_true) return false;
  for (const NumberSet& set : values.numbers) {
    if (!set.empty()) return false;
  }
  for (const StringShape& shape : values.strings) {
    if (!shape.is_exact) return false;
    if (shape.length.empty()) continue;
    if (shape.list.has_value() ? !shape.list->empty() : shape.texts == nullptr) return false;
    if (shape.list.has_value() || shape.texts->empty()) continue;
    const uint32_t least = shape.texts->LeastLength();
    if (least <= shape.length.most && shape.texts->GreatestLength() >= shape.length.least) {
      return false;
    }
  }
  for (const ArrayShape& shape : values.arrays) {
    KVANT_ASSIGN(const bool nothing, IsNothing(shape));
    if (!nothing) return false;
  }
  for (const ObjectShape& shape : values.objects) {
    KVANT_ASSIGN(const bool nothing, IsNothing(shape));
    if (!nothing) return false;
  }
  return true;
}

Result<bool> Needs::IsNothing(const ArrayShape& shape) {
  if (shape.count.empty()) return true;
  for (uint32_t place = 0; place < std::min(shape.count.least, kProofItemsMax); ++place) {
    KVANT_ASSIGN(const bool nothing, IsNothing(GoalOfItem(shape, place)));
    if (nothing) return true;
  }
  if (!shape.contained.has_value()) return false;
  if (shape.contained_count.empty() || shape.contained_count.least > shape.count.most) return true;
  if (shape.contained_count.least == 0) return false;
  return IsNothing(GoalOf({*shape.contained}));
}

Result<bool> Needs::IsNothing(const ObjectShape& shape) {
  if (shape.count.empty() || shape.required.size() > shape.count.most) return true;
  for (const std::string& name : shape.required) {
    KVANT_ASSIGN(const bool nothing, IsNothing(GoalOfProperty(shape, name)));
    if (nothing) return true;
  }
  if (shape.count.least <= shape.required.size()) return false;
  for (const auto& rule : shape.rules) {
    if (rule->others != kNoValue || !rule->patterns.empty()) continue;
    uint32_t possible = 0;
    for (const auto& [name, need] : rule->named) {
      KVANT_ASSIGN(const bool nothing, IsNothing(GoalOfProperty(shape, name)));
      possible += nothing ? 0 : 1;
    }
    if (possible < shape.count.least) return true;
  }
  return false;
}

}  // namespace kvant::grammar
