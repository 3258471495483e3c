// Methods of dicts, lists and tuples.
#include "engine/jinja/native_code.h"
#include "engine/jinja/operators.h"

namespace kvant::jinja {

Result<Value> DictGet(Run&, const Value& self, const Bound& arguments) {
  KVANT_ASSIGN(const std::string key, KeyOf(arguments[0]));
  if (const Value* member = self.dict().Find(key)) return *member;
  return arguments.Has(1) ? arguments[1] : Value(None{});
}

Result<Value> DictItems(Run& run, const Value& self, const Bound&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().items) {
    KVANT_ASSIGN(Value pair, run.Make(Sequence::Kind::kTuple, {key, value}));
    items.push_back(std::move(pair));
  }
  return run.Make(Sequence::Kind::kView, std::move(items));
}

Result<Value> DictKeys(Run& run, const Value& self, const Bound&) {
  KVANT_ASSIGN(std::vector<Value> items, Items(run, self));
  return run.Make(Sequence::Kind::kView, std::move(items));
}

Result<Value> DictValues(Run& run, const Value& self, const Bound&) {
  std::vector<Value> items;
  for (const auto& member : self.dict().items) items.push_back(member.second);
  return run.Make(Sequence::Kind::kView, std::move(items));
}

Result<Value> DictCopy(Run&, const Value& self, const Bound&) { return self; }

Result<Value> SequenceIndex(Run& run, const Value& self, const Bound& arguments) {
  KVANT_TRY(run.Read(self));
  const std::vector<Value>& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(items[i], arguments[0])) return Value(static_cast<int64_t>(i));
  }
  return Wrong("the list has no such item");
}

Result<Value> SequenceCount(Run& run, const Value& self, const Bound& arguments) {
  KVANT_TRY(run.Read(self));
  int64_t count = 0;
  for (const Value& item : self.sequence().items) count += Equal(item, arguments[0]) ? 1 : 0;
  return Value(count);
}

Result<Value> SequenceCopy(Run&, const Value& self, const Bound&) { return self; }

}  // namespace kvant::jinja
