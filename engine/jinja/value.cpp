#include "engine/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "engine/jinja/object.h"

namespace kvant::jinja {

const Value* Dict::Find(const std::string& key) const {
  const auto found = index.find(key);
  return found == index.end() ? nullptr : &items[found->second].second;
}

const Value* Dict::FindText(std::string_view name) const { return Find("s" + std::string(name)); }

Value Value::Missing(std::string what) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(what))};
  return value;
}

namespace {

// Adds an item to what is known of its container. kInvalid beyond the limits.
Status Count(const Value& item, int* depth, size_t* weight) {
  *depth = std::max(*depth, item.depth() + 1);
  *weight += item.weight() + 1;
  if (*depth > kValueDepthMax) {
    return MakeError(ErrorCode::kInvalid, "a value is nested deeper than {} levels",
                     kValueDepthMax);
  }
  if (*weight > kValueWeightMax) {
    return MakeError(ErrorCode::kInvalid, "a value has more than {} parts", kValueWeightMax);
  }
  return {};
}

}  // namespace

Result<Value> Value::Make(Sequence::Kind kind, std::vector<Value> items) {
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const Value& item : items) KVANT_TRY(Count(item, &sequence->depth, &sequence->weight));
  sequence->items = std::move(items);
  Value value;
  value.data_ = SequencePointer(std::move(sequence));
  return value;
}

Result<Value> Value::Make(Dict dict) {
  for (const auto& [key, item] : dict.items) {
    KVANT_TRY(Count(key, &dict.depth, &dict.weight));
    KVANT_TRY(Count(item, &dict.depth, &dict.weight));
  }
  Value value;
  value.data_ = DictPointer(std::make_shared<const Dict>(std::move(dict)));
  return value;
}

int64_t Value::place() const { return static_cast<int64_t>(std::min<Whole>(whole(), INT64_MAX)); }

std::string Value::UndefinedMessage() const {
  const auto* undefined = std::get_if<Undefined>(&data_);
  return undefined == nullptr || undefined->what == nullptr ? "a value is undefined"
                                                            : *undefined->what;
}

int Value::depth() const {
  if (IsSequence()) return sequence().depth;
  return IsDict() ? dict().depth : 0;
}

size_t Value::weight() const {
  if (IsText()) return text().size() + 1;
  if (IsSequence()) return sequence().weight;
  return IsDict() ? dict().weight : 1;
}

bool Value::Truth() const {
  if (IsUndefined() || IsNone()) return false;
  if (IsFloat()) return number() != 0;
  if (IsNumber()) return whole() != 0;
  if (IsText()) return text().size() > 0;
  if (IsSequence()) {
    return IsSequence(Sequence::Kind::kGenerator) || !sequence().items.empty();
  }
  return IsDict() ? !dict().items.empty() : true;
}

std::string Value::TypeName() const {
  if (IsUndefined()) return "Undefined";
  if (IsNone()) return "NoneType";
  if (IsBool()) return "bool";
  if (IsInt()) return "int";
  if (IsFloat()) return "float";
  if (IsText()) return "str";
  if (IsDict()) return "dict";
  if (IsObject()) return object()->TypeName();
  switch (sequence().kind) {
    case Sequence::Kind::kList: return "list";
    case Sequence::Kind::kTuple: return "tuple";
    case Sequence::Kind::kRange: return "range";
    case Sequence::Kind::kView: return "dict view";
    case Sequence::Kind::kGenerator: break;
  }
  return "generator";
}

void DictBuilder::SetAt(std::string index, const Value& key, Value value) {
  const auto [place, is_new] = dict_.index.emplace(std::move(index), dict_.items.size());
  if (is_new) {
    dict_.items.emplace_back(key, std::move(value));
  } else {
    dict_.items[place->second].second = std::move(value);
  }
}

Status DictBuilder::Set(const Value& key, Value value) {
  KVANT_ASSIGN(std::string index, KeyOf(key));
  SetAt(std::move(index), key, std::move(value));
  return {};
}

void DictBuilder::SetText(std::string_view name, Value value) {
  SetAt("s" + std::string(name), Value::Own(name), std::move(value));
}

Result<std::string> KeyOf(const Value& value) {
  if (value.IsText()) return "s" + value.text().bytes();
  if (value.IsWhole()) return "i" + WholeText(value.whole());
  if (value.IsFloat()) {
    const double number = value.number();
    if (const auto whole = WholeOf(number); whole.has_value() && std::floor(number) == number) {
      return "i" + WholeText(*whole);
    }
    return "f" + FloatText(number);
  }
  if (value.IsNone()) return std::string("n");
  if (value.IsUndefined()) return std::string("u");
  if (value.IsObject()) return fmt::format("o{}", static_cast<const void*>(value.object()));
  if (value.IsSequence(Sequence::Kind::kTuple)) {
    std::string key = "t";
    for (const Value& item : value.sequence().items) {
      KVANT_ASSIGN(const std::string part, KeyOf(item));
      key += fmt::format("{}:{}", part.size(), part);
    }
    return key;
  }
  return MakeError(ErrorCode::kInvalid, "a {} cannot be a key", value.TypeName());
}

namespace {

bool EqualItems(const Sequence& left, const Sequence& right) {
  return left.kind == right.kind && std::equal(left.items.begin(), left.items.end(),
                                               right.items.begin(), right.items.end(), Equal);
}

bool EqualDicts(const Dict& left, const Dict& right) {
  if (left.items.size() != right.items.size()) return false;
  return std::all_of(left.index.begin(), left.index.end(), [&](const auto& entry) {
    const Value* other = right.Find(entry.first);
    return other != nullptr && Equal(left.items[entry.second].second, *other);
  });
}

}  // namespace

bool Equal(const Value& left, const Value& right) {
  if (left.IsWhole() && right.IsWhole()) return left.whole() == right.whole();
  if (left.IsNumber() && right.IsNumber()) return left.number() == right.number();
  if (left.IsText() && right.IsText()) return left.text().bytes() == right.text().bytes();
  if (left.IsUndefined() || left.IsNone()) {
    return left.IsUndefined() ? right.IsUndefined() : right.IsNone();
  }
  if (left.IsSequence() && right.IsSequence()) {
    if (left.IsSequence(Sequence::Kind::kGenerator)) return &left.sequence() == &right.sequence();
    return EqualItems(left.sequence(), right.sequence());
  }
  if (left.IsDict() && right.IsDict()) return EqualDicts(left.dict(), right.dict());
  return left.IsObject() && right.IsObject() && left.object() == right.object();
}

}  // namespace kvant::jinja
