// Attributes, items, slices and iteration of values; calls.
#include <algorithm>

#include "engine/jinja/natives.h"
#include "engine/jinja/operators.h"
#include "engine/tokenizer/unicode.h"

namespace kvant::jinja {
namespace {

Result<Value> Method(Run& run, const Value& value, std::string_view name) {
  if (const Native* method = FindMethod(value, name)) {
    KVANT_ASSIGN(Object * bound, run.Own<BoundMethod>(*method, value));
    return Value(bound);
  }
  if (IsForbiddenMethod(value, name)) {
    return Value::Missing(
        fmt::format("{} would change a {}, which no template may", name, value.TypeName()));
  }
  return Value::Missing(fmt::format("a {} has no attribute '{}'", value.TypeName(), name));
}

// The item at a place that may count from the end; nullptr-like nothing where there is none.
bool Place(int64_t index, size_t size, size_t* place) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return false;
  *place = static_cast<size_t>(index);
  return true;
}

Value NoItem(const Value& value, const Value& key) {
  return Value::Missing(
      fmt::format("a {} has no item {}", value.TypeName(), Repr(key).bytes().substr(0, 60)));
}

}  // namespace

Result<Value> GetAttribute(Run& run, const Value& value, std::string_view name) {
  if (value.IsUndefined()) return Wrong("{}", value.UndefinedMessage());
  if (value.IsObject()) {
    auto attribute = value.object()->Attribute(name);
    if (attribute.has_value()) return *std::move(attribute);
    return Value::Missing(fmt::format("a {} has no attribute '{}'", value.TypeName(), name));
  }
  if (value.IsDict() && FindMethod(value, name) == nullptr && !IsForbiddenMethod(value, name)) {
    if (const Value* member = value.dict().FindText(name)) return *member;
  }
  return Method(run, value, name);
}

Result<Value> GetItem(Run& run, const Value& value, const Value& key) {
  if (value.IsUndefined()) return Wrong("{}", value.UndefinedMessage());
  if (value.IsDict()) {
    const auto index = KeyOf(key);
    const Value* member = index.ok() ? value.dict().Find(*index) : nullptr;
    if (member != nullptr) return *member;
  }
  if (key.IsWhole()) {
    size_t place = 0;
    if (value.IsSequence() && value.sequence().kind < Sequence::Kind::kView &&
        Place(key.place(), value.sequence().items.size(), &place)) {
      return value.sequence().items[place];
    }
    if (value.IsText()) {
      const std::vector<size_t> offsets = CharacterOffsets(value.text().view());
      KVANT_TRY(run.Charge(offsets.size()));
      if (Place(key.place(), offsets.size() - 1, &place)) {
        return run.Make(value.text().Part(offsets[place], offsets[place + 1]));
      }
    }
  }
  if (!key.IsText()) return NoItem(value, key);
  if (value.IsObject()) return GetAttribute(run, value, key.text().view());
  return Method(run, value, key.text().view());
}

Result<Value> Slice(Run& run, const Value& value, const Value& from, const Value& to,
                    const Value& step) {
  if (value.IsUndefined()) return Wrong("{}", value.UndefinedMessage());
  const bool is_sequence = value.IsSequence() && value.sequence().kind < Sequence::Kind::kView;
  for (const Value* bound : {&from, &to, &step}) {
    if (!bound->IsWhole() && !bound->IsUndefined() && !bound->IsNone())
      return NoItem(value, *bound);
  }
  if (!is_sequence && !value.IsText()) return NoItem(value, from);
  const int64_t stride = step.IsWhole() ? step.place() : 1;
  if (stride == 0) return Wrong("a slice with step 0");
  std::vector<size_t> offsets;
  if (value.IsText()) {
    offsets = CharacterOffsets(value.text().view());
    KVANT_TRY(run.Charge(offsets.size()));
  }
  const auto size =
      static_cast<int64_t>(is_sequence ? value.sequence().items.size() : offsets.size() - 1);
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? size : size - 1;
  const auto bound = [&](const Value& given, int64_t otherwise) {
    if (!given.IsWhole()) return otherwise;
    const int64_t index = given.place() < 0 ? given.place() + size : given.place();
    return std::clamp(index, low, high);
  };
  const int64_t begin = bound(from, stride > 0 ? 0 : size - 1);
  const int64_t end = bound(to, stride > 0 ? size : -1);
  if (value.IsText() && stride == 1) {
    const auto last = static_cast<size_t>(std::max(begin, end));
    return run.Make(value.text().Part(offsets[static_cast<size_t>(begin)], offsets[last]));
  }
  Text text;
  std::vector<Value> items;
  for (int64_t i = begin; stride > 0 ? i < end : i > end;) {
    const auto at = static_cast<size_t>(i);
    if (is_sequence) {
      items.push_back(value.sequence().items[at]);
    } else {
      text.AppendPart(value.text(), offsets[at], offsets[at + 1]);
    }
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  if (is_sequence) return run.Make(value.sequence().kind, std::move(items));
  return run.Make(std::move(text));
}

Result<std::vector<Value>> Items(Run& run, const Value& value) {
  std::vector<Value> items;
  if (value.IsUndefined()) return items;
  if (value.IsSequence()) {
    const Sequence& sequence = value.sequence();
    KVANT_TRY(run.Charge(sequence.items.size() * sizeof(Value)));
    if (sequence.kind != Sequence::Kind::kGenerator) return sequence.items;
    items.assign(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.taken),
                 sequence.items.end());
    sequence.taken = sequence.items.size();
    return items;
  }
  if (value.IsDict()) {
    KVANT_TRY(run.Charge(value.dict().items.size() * sizeof(Value)));
    for (const auto& member : value.dict().items) items.push_back(member.first);
    return items;
  }
  if (value.IsText()) {
    const Text& text = value.text();
    for (size_t i = 0; i < text.size();) {
      const size_t size = DecodeUtf8(text.view().substr(i)).size;
      KVANT_ASSIGN(Value character, run.Make(text.Part(i, i + size)));
      items.push_back(std::move(character));
      i += size;
    }
    return items;
  }
  return Wrong("a {} has no items to loop over", value.TypeName());
}

Result<int64_t> Length(const Value& value) {
  if (value.IsUndefined()) return 0;
  if (value.IsText()) return static_cast<int64_t>(CountCharacters(value.text().view()));
  if (value.IsDict()) return static_cast<int64_t>(value.dict().items.size());
  if (value.IsSequence() && !value.IsSequence(Sequence::Kind::kGenerator)) {
    return static_cast<int64_t>(value.sequence().items.size());
  }
  return Wrong("a {} has no length", value.TypeName());
}

Result<Value> CallValue(Run& run, const Value& callee, const Arguments& arguments) {
  if (callee.IsUndefined()) return Wrong("{}", callee.UndefinedMessage());
  if (!callee.IsObject() || !callee.object()->IsCallable()) {
    return Wrong("a {} cannot be called", callee.TypeName());
  }
  return callee.object()->Call(run, arguments);
}

}  // namespace kvant::jinja
