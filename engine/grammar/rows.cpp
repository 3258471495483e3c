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
  explicit Closure(const Rows& rows) : rows_(rows), grammar_(rows.grammar_) {}

  void Compute(std::span<const Item> kernel) {
    for (const Item& item : kernel) Add(item);
    for (size_t i = 0; i < items_.size(); ++i) Follow(Item(items_[i]));
    std::sort(waiting.begin(), waiting.end());
    std::sort(reading.begin(), reading.end());
    std::sort(taking.begin(), taking.end());
  }

  std::vector<Next> waiting;
  std::vector<Next> reading;
  std::vector<Next> taking;
  bool accepts = false;

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
      case Symbol::Kind::kTerminal: reading.emplace_back(symbol.number, item); break;
      case Symbol::Kind::kTokens: taking.emplace_back(symbol.number, item); break;
      case Symbol::Kind::kRule:
        waiting.emplace_back(symbol.number, item);
        for (const ItemId begin : grammar_.AlternativesOf(symbol.number)) Add({begin, kSelf});
        if (grammar_.is_nullable[symbol.number]) Add({item.place + 1, item.origin});
        break;
      case Symbol::Kind::kEnd: Complete(symbol.number, item.origin); break;
    }
  }

  void Complete(RuleId rule, RowId origin) {
    if (rule == grammar_.root) accepts = true;  // it began in the first row
    if (origin == kSelf) return;
    const std::span there = rows_.Nexts(rows_.rows_[origin].waiting);
    const auto by_rule = [](const auto& entry, RuleId number) { return entry.first < number; };
    auto it = std::lower_bound(there.begin(), there.end(), rule, by_rule);
    for (; it != there.end() && it->first == rule; ++it) Add(Advanced(it->second, origin));
  }

  const Rows& rows_;
  const Grammar& grammar_;
  std::vector<Item> items_;  // those found, in this order
  IdTable by_item_;
};

Rows::Rows(const Grammar& grammar, Lexer& lexer) : grammar_(grammar), lexer_(lexer) {
  std::vector<Item> kernel;
  for (const ItemId begin : grammar.AlternativesOf(grammar.root)) kernel.push_back({begin, kSelf});
  RowOf(kernel);
  for (const ItemId begin : grammar.AlternativesOf(grammar.behind_blanks))
    kernel.push_back({begin, kSelf});
  RowOf(std::move(kernel));
}

RowId Rows::RowOf(std::vector<Item> kernel) {
  std::sort(kernel.begin(), kernel.end());
  kernel.erase(std::unique(kernel.begin(), kernel.end()), kernel.end());
  const uint64_t hash = XXH64(kernel.data(), kernel.size() * sizeof(Item), 0);
  const uint32_t known = by_kernel_.Find(
      hash, [&](uint32_t row) { return std::ranges::equal(KernelOf(rows_[row]), kernel); });
  if (known != IdTable::kNone) return known;
  Closure closure(*this);
  closure.Compute(kernel);
  const auto append = [](auto& list, const auto& more) {
    const Part part = {static_cast<uint32_t>(list.size()), static_cast<uint32_t>(more.size())};
    GrowByQuarter(list, more.size());
    list.insert(list.end(), more.begin(), more.end());
    return part;
  };
  const auto numbers = [](const std::vector<Next>& nexts) {
    std::vector<uint32_t> out;
    for (const auto& [number, item] : nexts) {
      if (out.empty() || out.back() != number) out.push_back(number);
    }
    return out;
  };
  Row row;
  row.kernel = append(kernels_, kernel);
  row.waiting = append(nexts_, closure.waiting);
  row.reading = append(nexts_, closure.reading);
  row.taking = append(nexts_, closure.taking);
  row.token_sets = append(token_sets_, numbers(closure.taking));
  row.start = lexer_.Start(numbers(closure.reading));
  row.accepts = closure.accepts;
  const auto number = static_cast<RowId>(rows_.size());
  GrowByQuarter(rows_, 1);
  rows_.push_back(row);
  by_kernel_.Add(hash, number);
  return number;
}

RowId Rows::After(RowId row, uint32_t ends) {
  const uint64_t key = uint64_t{row} << 32 | ends;
  const auto found = after_.find(key);
  if (found != after_.end()) return found->second;
  const std::span<const TerminalId> terminals = lexer_.EndList(ends);
  std::vector<Item> kernel;
  for (const auto& [terminal, item] : Nexts(rows_[row].reading)) {
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
  for (const auto& [set, item] : Nexts(rows_[row].taking)) {
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
    const std::span items = KernelOf(rows_[row]);
    kernel.insert(kernel.end(), items.begin(), items.end());
  }
  return RowOf(std::move(kernel));
}

size_t Rows::bytes() const {
  constexpr size_t kMapNode = 40;  // an entry of after_ or after_token_, with its bucket
  return rows_.capacity() * sizeof(Row) + kernels_.capacity() * sizeof(Item) +
         nexts_.capacity() * sizeof(Next) + token_sets_.capacity() * sizeof(uint32_t) +
         by_kernel_.bytes() + (after_.size() + after_token_.size()) * kMapNode;
}

}  // namespace kvant::grammar
