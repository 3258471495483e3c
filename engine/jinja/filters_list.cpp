// Filters of lists and dicts.
#include <algorithm>

#include "engine/jinja/native_code.h"
#include "engine/jinja/operators.h"

namespace kvant::jinja {
namespace {

// Merges the sorted halves of `order`, places of keys.
Status MergeSort(Run& run, const std::vector<Value>& keys, SortOrder direction,
                 std::vector<size_t>& order) {
  std::vector<size_t> merged(order.size());
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t out = begin; out < end; ++out) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          KVANT_TRY(run.Step());
          const Value& a = keys[order[left]];
          const Value& b = keys[order[right]];
          KVANT_TRY(run.Read(a));
          KVANT_ASSIGN(take_right, direction == SortOrder::kAscending ? Less(b, a) : Less(a, b));
        }
        merged[out] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  return {};
}

// The items in runs of `size`, the last one filled up.
Result<Value> Batches(Run& run, const std::vector<Value>& items, size_t size, const Value* fill) {
  std::vector<Value> batches;
  for (size_t i = 0; i < items.size(); i += size) {
    const auto begin = items.begin() + static_cast<std::ptrdiff_t>(i);
    std::vector<Value> batch(begin,
                             begin + static_cast<std::ptrdiff_t>(std::min(size, items.size() - i)));
    if (fill != nullptr) {
      KVANT_TRY(run.Charge(size * sizeof(Value)));
      batch.resize(size, *fill);
    }
    KVANT_ASSIGN(Value list, run.Make(Sequence::Kind::kList, std::move(batch)));
    batches.push_back(std::move(list));
  }
  return run.Make(Sequence::Kind::kGenerator, std::move(batches));
}

enum class Extreme : uint8_t { kLeast, kGreatest };
Result<Value> FindExtreme(Run& run, const Value& self, const Bound& arguments, Extreme extreme) {
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, self));
  if (items.empty()) return Value::Missing("no item of an empty list is the least or greatest");
  const LetterCase letter_case =
      arguments.Flag(0, false) ? LetterCase::kMatters : LetterCase::kIgnored;
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    Value key = items[i];
    if (arguments.Has(1)) {
      KVANT_ASSIGN(key, ValueAt(run, key, arguments[1]));
    }
    key = KeyForCase(key, letter_case);
    if (i > 0) {
      KVANT_ASSIGN(const bool better,
                   extreme == Extreme::kLeast ? Less(key, best_key) : Less(best_key, key));
      if (!better) continue;
    }
    best = i;
    best_key = key;
  }
  return items[best];
}

}  // namespace

Value KeyForCase(const Value& value, LetterCase letter_case) {
  if (letter_case == LetterCase::kMatters || !value.IsText()) return value;
  return LowerText(value.text());
}

Result<Value> ValueAt(Run& run, const Value& item, const Value& path, const Value* otherwise) {
  std::vector<Value> keys;
  if (path.IsText()) {
    for (const Text& part : SplitText(path.text(), ".", -1)) {
      const bool number = part.size() > 0 && part.size() < 10 &&
                          part.bytes().find_first_not_of("0123456789") == std::string::npos;
      keys.push_back(number ? Value(int64_t{std::stol(part.bytes())}) : Value(part));
    }
  } else {
    keys.push_back(path);
  }
  Value at = item;
  for (const Value& key : keys) {
    KVANT_ASSIGN(at, GetItem(run, at, key));
    if (otherwise != nullptr && at.IsUndefined()) at = *otherwise;
  }
  return at;
}

Result<std::vector<Value>> SortedItems(Run& run, std::vector<Value> items,
                                       const std::vector<Value>& keys, SortOrder direction) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  KVANT_TRY(MergeSort(run, keys, direction, order));
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t place : order) sorted.push_back(items[place]);
  return sorted;
}

Result<Value> FilterAttr(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const Text name, arguments.String(0, ""));
  if (self.IsDict() && FindMethod(self, name.view()) == nullptr) {
    return Value::Missing(fmt::format("a dict has no attribute '{}'", name.bytes()));
  }
  return GetAttribute(run, self, name.view());
}

Result<Value> FilterLength(Run&, const Value& self, const Bound&) {
  KVANT_ASSIGN(const int64_t length, Length(self));
  return Value(length);
}

Result<Value> FilterFirst(Run& run, const Value& self, const Bound&) {
  if (self.IsSequence(Sequence::Kind::kGenerator)) {
    const Sequence& sequence = self.sequence();
    if (sequence.taken < sequence.items.size()) return sequence.items[sequence.taken++];
    return Value::Missing("the list is empty");
  }
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, self));
  return items.empty() ? Value::Missing("the list is empty") : items.front();
}

Result<Value> FilterLast(Run& run, const Value& self, const Bound&) {
  if (self.IsSequence(Sequence::Kind::kGenerator)) return Wrong("a generator has no last item");
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, self));
  return items.empty() ? Value::Missing("the list is empty") : items.back();
}

Result<Value> FilterList(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(std::vector<Value> items, Items(run, self));
  return run.Make(Sequence::Kind::kList, std::move(items));
}

Result<Value> FilterItems(Run& run, const Value& self, const Bound& arguments) {
  if (self.IsUndefined()) return run.Make(Sequence::Kind::kGenerator, {});
  if (!self.IsDict()) return Wrong("expected a dict, found {}", self.TypeName());
  KVANT_ASSIGN(const Value view, DictItems(run, self, arguments));
  return run.Make(Sequence::Kind::kGenerator, view.sequence().items);
}

Result<Value> FilterJoin(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, self));
  Text separator;
  if (arguments.Has(0)) {
    KVANT_ASSIGN(separator, run.TextOf(arguments[0]));
  }
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (arguments.Has(1) && !arguments[1].IsNone()) {
      KVANT_ASSIGN(item, ValueAt(run, item, arguments[1]));
    }
    if (i > 0) KVANT_TRY(run.Write(separator, out));
    KVANT_ASSIGN(const Text text, run.TextOf(item));
    KVANT_TRY(run.Write(text, out));
  }
  return run.Make(std::move(out));
}

Result<Value> FilterReverse(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(std::vector<Value> items, Items(run, self));
  std::reverse(items.begin(), items.end());
  if (!self.IsText()) return run.Make(Sequence::Kind::kGenerator, std::move(items));
  Text out;
  for (const Value& item : items) out.Append(item.text());
  return run.Make(std::move(out));
}

Result<Value> FilterSort(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(std::vector<Value> items, Items(run, self));
  const LetterCase letter_case =
      arguments.Flag(1, false) ? LetterCase::kMatters : LetterCase::kIgnored;
  // Several attributes, separated by commas, are compared in turn.
  std::vector<Value> paths;
  if (arguments.Has(2) && arguments[2].IsText()) {
    for (const Text& path : SplitText(arguments[2].text(), ",", -1)) paths.emplace_back(path);
  } else if (arguments.Has(2) && !arguments[2].IsNone()) {
    paths.push_back(arguments[2]);
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> parts;
    for (const Value& path : paths) {
      KVANT_ASSIGN(const Value part, ValueAt(run, item, path));
      parts.push_back(KeyForCase(part, letter_case));
    }
    if (parts.size() == 1) {
      keys.push_back(parts[0]);
    } else if (paths.empty()) {
      keys.push_back(KeyForCase(item, letter_case));
    } else {
      KVANT_ASSIGN(Value key, run.Make(Sequence::Kind::kList, std::move(parts)));
      keys.push_back(std::move(key));
    }
  }
  const SortOrder order = arguments.Flag(0, false) ? SortOrder::kDescending : SortOrder::kAscending;
  KVANT_ASSIGN(items, SortedItems(run, std::move(items), keys, order));
  return run.Make(Sequence::Kind::kList, std::move(items));
}

Result<Value> FilterDictSort(Run& run, const Value& self, const Bound& arguments) {
  if (!self.IsDict()) return Wrong("expected a dict, found {}", self.TypeName());
  KVANT_ASSIGN(const Text by, arguments.String(1, "key"));
  if (by.bytes() != "key" && by.bytes() != "value") return Wrong("expected by key or value");
  const LetterCase letter_case =
      arguments.Flag(0, false) ? LetterCase::kMatters : LetterCase::kIgnored;
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().items) {
    KVANT_ASSIGN(Value pair, run.Make(Sequence::Kind::kTuple, {key, value}));
    items.push_back(std::move(pair));
    keys.push_back(KeyForCase(by.bytes() == "key" ? key : value, letter_case));
  }
  const SortOrder order = arguments.Flag(2, false) ? SortOrder::kDescending : SortOrder::kAscending;
  KVANT_ASSIGN(items, SortedItems(run, std::move(items), keys, order));
  return run.Make(Sequence::Kind::kList, std::move(items));
}

Result<Value> FilterGroupBy(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(std::vector<Value> items, Items(run, self));
  const LetterCase letter_case =
      arguments.Flag(2, false) ? LetterCase::kMatters : LetterCase::kIgnored;
  std::vector<Value> keys;
  std::vector<Value> pairs;
  for (const Value& item : items) {
    const Value* const otherwise = arguments.Has(1) ? &arguments[1] : nullptr;
    KVANT_ASSIGN(const Value key, ValueAt(run, item, arguments[0], otherwise));
    KVANT_ASSIGN(Value pair, run.Make(Sequence::Kind::kTuple, {key, item}));
    pairs.push_back(std::move(pair));
    keys.push_back(KeyForCase(key, letter_case));
  }
  KVANT_ASSIGN(pairs, SortedItems(run, std::move(pairs), keys, SortOrder::kAscending));
  std::vector<Value> groups;
  for (size_t i = 0; i < pairs.size();) {
    const Value key = pairs[i].sequence().items[0];
    std::vector<Value> members;
    for (; i < pairs.size() && Equal(KeyForCase(pairs[i].sequence().items[0], letter_case),
                                     KeyForCase(key, letter_case));
         ++i) {
      members.push_back(pairs[i].sequence().items[1]);
    }
    KVANT_ASSIGN(const Value list, run.Make(Sequence::Kind::kList, std::move(members)));
    KVANT_ASSIGN(Value group, run.Make(Sequence::Kind::kTuple, {key, list}));
    groups.push_back(std::move(group));
  }
  return run.Make(Sequence::Kind::kList, std::move(groups));
}

Result<Value> FilterUnique(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, self));
  const LetterCase letter_case =
      arguments.Flag(0, false) ? LetterCase::kMatters : LetterCase::kIgnored;
  std::unordered_map<std::string, bool> seen;
  std::vector<Value> unique;
  for (const Value& item : items) {
    Value key = item;
    if (arguments.Has(1)) {
      KVANT_ASSIGN(key, ValueAt(run, item, arguments[1]));
    }
    KVANT_TRY(run.Charge(key.weight()));
    KVANT_ASSIGN(const std::string index, KeyOf(KeyForCase(key, letter_case)));
    if (seen.emplace(index, true).second) unique.push_back(item);
  }
  return run.Make(Sequence::Kind::kGenerator, std::move(unique));
}

Result<Value> FilterMax(Run& run, const Value& self, const Bound& arguments) {
  return FindExtreme(run, self, arguments, Extreme::kGreatest);
}
Result<Value> FilterMin(Run& run, const Value& self, const Bound& arguments) {
  return FindExtreme(run, self, arguments, Extreme::kLeast);
}

Result<Value> FilterSum(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, self));
  Value sum = arguments.Has(1) ? arguments[1] : Value(int64_t{0});
  for (Value item : items) {
    if (arguments.Has(0) && !arguments[0].IsNone()) {
      KVANT_ASSIGN(item, ValueAt(run, item, arguments[0]));
    }
    KVANT_ASSIGN(sum, Compute(run, Arithmetic::kAdd, sum, item));
  }
  return sum;
}

Result<Value> FilterBatch(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, self));
  KVANT_ASSIGN(const int64_t size, arguments.Whole(0, 0));
  if (size < 1) return Wrong("expected at least 1 item in a batch, found {}", size);
  const bool fills = arguments.Has(1) && !arguments[1].IsNone();
  return Batches(run, items, static_cast<size_t>(size), fills ? &arguments[1] : nullptr);
}

Result<Value> FilterSlice(Run& run, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const std::vector<Value> items, Items(run, self));
  KVANT_ASSIGN(const int64_t count, arguments.Whole(0, 0));
  if (count < 1 || count > 100'000) return Wrong("expected 1 to 100000 slices, found {}", count);
  const bool fills = arguments.Has(1) && !arguments[1].IsNone();
  const auto slices = static_cast<size_t>(count);
  std::vector<Value> lists;
  size_t at = 0;
  for (size_t i = 0; i < slices; ++i) {
    const bool larger = i < items.size() % slices;
    const size_t size = items.size() / slices + (larger ? 1 : 0);
    const auto begin = items.begin() + static_cast<std::ptrdiff_t>(at);
    std::vector<Value> slice(begin, begin + static_cast<std::ptrdiff_t>(size));
    if (fills && !larger) slice.push_back(arguments[1]);
    at += size;
    KVANT_ASSIGN(Value list, run.Make(Sequence::Kind::kList, std::move(slice)));
    lists.push_back(std::move(list));
  }
  return run.Make(Sequence::Kind::kGenerator, std::move(lists));
}

}  // namespace kvant::jinja
