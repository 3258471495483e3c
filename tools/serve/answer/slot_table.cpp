#include "tools/serve/answer/slot_table.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace kvant::tools {

std::vector<SlotTable::Slot> SlotTable::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<Slot> out;
  for (const Entry& entry : slots_) out.push_back({entry.texts, std::ssize(entry.tokens)});
  return out;
}

int64_t SlotTable::Take(int64_t asked) {
  const std::lock_guard lock(mutex_);
  auto entry = slots_.begin() + asked;
  if (asked < 0) {
    entry = std::ranges::min_element(
        slots_, {}, [](const Entry& one) { return std::tuple(one.texts, one.used); });
  }
  ++entry->texts;
  entry->used = ++tick_;
  return entry - slots_.begin();
}

void SlotTable::Leave(int64_t slot, std::vector<TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  Entry& entry = slots_[static_cast<size_t>(slot)];
  --entry.texts;
  if (!tokens.empty()) entry.tokens = std::move(tokens);
}

std::vector<TokenId> SlotTable::Tokens(int64_t slot) const {
  const std::lock_guard lock(mutex_);
  return slots_[static_cast<size_t>(slot)].tokens;
}

void SlotTable::SetTokens(int64_t slot, std::vector<TokenId> tokens) {
  const std::lock_guard lock(mutex_);
  Entry& entry = slots_[static_cast<size_t>(slot)];
  entry.tokens = std::move(tokens);
  entry.used = ++tick_;
}

}  // namespace kvant::tools
