#include "engine/grammar/rows.h"

#include <algorithm>

#include <xxhash.h>

#include "base/check.h"

namespace kvant::grammar {

// All items that follow from the kernel of a row: what they predict, and what completed ones let go
// on. A rule that accepts the empty text is passed at once where it is predicted (Aycock and
// Horspool, "Practical Earley parsing", 2002), so that nothing need be completed within its own
// row.
class Rows::Closure {
 public:
  Closure(const Rows& rows, Row& row) : rows_(rows), grammar_(rows.grammar_), row_(row) {}

  void Compute() {
    for (const Item& item : row_.kernel) Add(item);
    for (size_t i = 0; i < items_.size(); ++i) Follow(Item(items_[i]));
    row_.waiting.shrink_to_fit();
    row_.reading.shrink_to_fit();
    row_.taking.shrink_to_fit();
    std::sort(row_.waiting.begin(), row_.waiting.end());
    std::sort(row_.reading.begin(), row_.reading.end());
    std::sort(row_.taking.begin(), row_.taking.end());
  }

 private:
  void Add(const Item& item) {
    constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    const uint64_t key = (uint64_t{item.place} << 32 | item.origin) * kSpread;
    const uint64_t hash = key ^ key >> 32;
    const auto is_it = [&](uint32_t number) { return items_[number] == item; };
    if (by_item_.Find(hash, is_it) != IdTable::kNone) return;
    by_item_.Add(hash, static_cast<uint32_t>(items_.size()));
    items_.push_back(item);
  }

  void Follow(const Item& item) {
    const Symbol symbol = grammar_.symbols[item.place];
    switch (symbol.kind) {
      case Symbol::Kind::kTerminal: row_.reading.emplace_back(symbol.number, item); break;
      case Symbol::Kind::kTokens: row_.taking.emplace_back(symbol.number, item); break;
      case Symbol::Kind::kRule:
        row_.waiting.emplace_back(symbol.number, item);
        for (const ItemId begin : grammar_.rules[symbol.number]) Add({begin, kSelf});
        if (grammar_.is_nullable[symbol.number]) Add({item.place + 1, item.origin});
        break;
      case Symbol::Kind::kEnd: Complete(symbol.number, item.origin); break;
    }
  }

  void Complete(RuleId rule, RowId origin) {
    if (rule == grammar_.root) row_.accepts = true;  // it began in the first row
    if (origin == kSelf) return;
    const auto& waiting = rows_.rows_[origin].waiting;
    const auto by_rule = [](const auto& entry, RuleId number) { return entry.first < number; };
    auto it = std::lower_bound(waiting.begin(), waiting.end(), rule, by_rule);
    for (; it != waiting.end() && it->first == rule; ++it) Add(Advanced(it->second, origin));
  }

  const Rows& rows_;
  const Grammar& grammar_;
  Row& row_;
  std::vector<Item> items_;  // those found, in this order
  IdTable by_item_;
};

Rows::Rows(const Grammar& grammar, Lexer& lexer) : grammar_(grammar), lexer_(lexer) {
  std::vector<Item> kernel;
  for (const ItemId begin : grammar.rules[grammar.root]) kernel.push_back({begin, kSelf});
  RowOf(kernel);
  for (const ItemId begin : grammar.rules[grammar.behind_blanks]) kernel.push_back({begin, kSelf});
  RowOf(std::move(kernel));
}

RowId Rows::RowOf(std::vector<Item> kernel) {
  std::sort(kernel.begin(), kernel.end());
  kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
  const uint64_t hash = XXH64(kernel.data(), kernel.size() * sizeof(Item), 0);
  const uint32_t known =
      by_kernel_.Find(hash, [&](uint32_t row) { return rows_[row].kernel == kernel; });
  if (known != IdTable::kNone) return known;
  Row row;
  row.kernel = std::move(kernel);
  Closure(*this, row).Compute();
  std::vector<TerminalId> terminals;
  for (const auto& [terminal, item] : row.reading) {
    if (terminals.empty() || terminals.back() != terminal) terminals.push_back(terminal);
  }
  for (const auto& [set, item] : row.taking) {
    if (row.token_sets.empty() || row.token_sets.back() != set) row.token_sets.push_back(set);
  }
  row.start = lexer_.Start(terminals);
  const auto number = static_cast<RowId>(rows_.size());
  item_bytes_ += row.kernel.capacity() * sizeof(Item) + row.token_sets.capacity() * 4 +
                 (row.waiting.capacity() + row.reading.capacity() + row.taking.capacity()) *
                     sizeof(row.reading[0]);
  rows_.push_back(std::move(row));
  by_kernel_.Add(hash, number);
  return number;
}

RowId Rows::After(RowId row, uint32_t ends) {
  const uint64_t key = uint64_t{row} << 32 | ends;
  const auto found = after_.find(key);
  if (found != after_.end()) return found->second;
  const std::span<const TerminalId> terminals = lexer_.EndList(ends);
  std::vector<Item> kernel;
  for (const auto& [terminal, item] : rows_[row].reading) {
    if (std::binary_search(terminals.begin(), terminals.end(), terminal)) {
      kernel.push_back(Advanced(item, row));
    }
  }
  const RowId next = kernel.empty() ? kNoRow : RowOf(std::move(kernel));
  after_.emplace(key, next);
  return next;
}

RowId Rows::AfterToken(RowId row, uint32_t token_set) {
  const uint64_t key = uint64_t{row} << 32 | token_set;
  const auto found = after_token_.find(key);
  if (found != after_token_.end()) return found->second;
  std::vector<Item> kernel;
  for (const auto& [set, item] : rows_[row].taking) {
    if (set == token_set) kernel.push_back(Advanced(item, row));
  }
  const RowId next = kernel.empty() ? kNoRow : RowOf(std::move(kernel));
  after_token_.emplace(key, next);
  return next;
}

RowId Rows::Merge(std::span<const RowId> rows) {
  if (rows.size() == 1) return rows[0];
  std::vector<Item> kernel;
  for (const RowId row : rows) {
    // The items of these are no ends of terminals.
    KVANT_CHECK(row != first() && row != first_behind_blanks());
    kernel.insert(kernel.end(), rows_[row].kernel.begin(), rows_[row].kernel.end());
  }
  return RowOf(std::move(kernel));
}

size_t Rows::bytes() const {
  constexpr size_t kMapNode = 40;  // an entry of after_ or after_token_, with its bucket
  return rows_.capacity() * sizeof(Row) + item_bytes_ + by_kernel_.bytes() +
         (after_.size() + after_token_.size()) * kMapNode;
}

}  // namespace kvant::grammar
