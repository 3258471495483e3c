#include "tools/serve/answer/slot_table.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace kvant::tools {

std::vector<SlotTable::Slot> SlotTable::List() const {
  const std::lock_guard lock(mutex_);
  std::vector<Slot> out;
  for (const Entry& entry : slots_) {
    out.push_back({.texts = entry.texts,
                   .tokens = std::ssize(entry.tokens),
                   .text = entry.text,
                   .fields = entry.fields,
                   .progress = entry.progress});
  }
  return out;
}

SlotTable::Place SlotTable::Take(int64_t asked, std::shared_ptr<const TextFields> fields) {
  const std::lock_guard lock(mutex_);
  auto entry = slots_.begin() + asked;
  if (asked < 0) {
    entry = std::ranges::min_element(
        slots_, {}, [](const Entry& one) { return std::tuple(one.texts, one.used); });
  }
  ++entry->texts;
  entry->used = ++tick_;
  entry->text = texts_++;
  entry->fields = std::move(fields);
  entry->progress = {};
  return {entry - slots_.begin(), entry->text};
}

void SlotTable::Show(Place place, const Progress& progress) {
  const std::lock_guard lock(mutex_);
  Entry& entry = slots_[static_cast<size_t>(place.slot)];
  if (entry.text == place.text) entry.progress = progress;
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
