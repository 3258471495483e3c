// The rows of an Earley parser (Earley, "An efficient context-free parsing algorithm", 1970), made
// while they are used and shared.
//
// A row is the set of items at one place of a text: how far which alternatives have come, and the
// row in which each began. Items do not know their place, only rows that they began in. So two
// places where the same items have come as far are one row, and the steps from row to row are
// remembered: a list of a thousand elements has as many rows as a list of two.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/id_table.h"
#include "engine/grammar/lexer.h"

namespace kvant::grammar {

using RowId = uint32_t;

inline constexpr RowId kNoRow = UINT32_MAX;

class Rows {
 public:
  // Both must outlive the rows.
  Rows(const Grammar& grammar, Lexer& lexer);

  // The row before any byte.
  RowId first() const { return 0; }
  // As the first one, where blanks may come before the text.
  RowId first_behind_blanks() const { return 1; }

  // The terminals that may follow a row, as a state of the lexer; kDeadState where there is none.
  LexState StartOf(RowId row) const { return rows_[row].start; }
  // Whether a text may end here.
  bool AcceptsAt(RowId row) const { return rows_[row].accepts; }
  // The sets of tokens that may follow as themselves.
  std::span<const uint32_t> TokenSetsAt(RowId row) const {
    return std::span(token_sets_).subspan(rows_[row].token_sets.begin, rows_[row].token_sets.count);
  }

  // The row behind the terminals of a list of the lexer (Lexer::EndsAt), which began at `row`.
  // kNoRow for what no row follows, which does not occur for terminals of StartOf(row).
  RowId After(RowId row, uint32_t ends);
  // The row behind one token of a set.
  RowId AfterToken(RowId row, uint32_t token_set);
  // The row of a place to which several lead; at least one.
  RowId Merge(std::span<const RowId> rows);

  size_t size() const { return rows_.size(); }
  // Bytes of memory.
  size_t bytes() const;

 private:
  // An item that began in `origin`; kSelf: in the row that has it.
  struct Item {
    ItemId place;
    RowId origin;
    auto operator<=>(const Item&) const = default;
  };
  static constexpr RowId kSelf = UINT32_MAX - 1;

  // An item that waits for a rule, reads a terminal or takes a token of a set, with its number.
  using Next = std::pair<uint32_t, Item>;
  // Where a row's part of a list begins, and how long it is.
  struct Part {
    uint32_t begin;
    uint32_t count;
  };
  struct Row {
    Part kernel = {};   // of kernels_, what the row is made from, ascending
    Part waiting = {};  // of nexts_, ascending as the two that follow
    Part reading = {};
    Part taking = {};
    Part token_sets = {};  // of token_sets_
    LexState start = kDeadState;
    bool accepts = false;
  };
  class Closure;

  std::span<const Item> KernelOf(const Row& row) const {
    return std::span(kernels_).subspan(row.kernel.begin, row.kernel.count);
  }
  std::span<const Next> Nexts(Part part) const {
    return std::span(nexts_).subspan(part.begin, part.count);
  }
  RowId RowOf(std::vector<Item> kernel);
  static Item Advanced(const Item& item, RowId row) {
    return {item.place + 1, item.origin == kSelf ? row : item.origin};
  }

  const Grammar& grammar_;
  Lexer& lexer_;
  std::vector<Row> rows_;
  // The lists of the rows, one behind the other.
  std::vector<Item> kernels_;
  std::vector<Next> nexts_;
  std::vector<uint32_t> token_sets_;
  IdTable by_kernel_;
  std::unordered_map<uint64_t, RowId> after_;
  std::unordered_map<uint64_t, RowId> after_token_;
};

}  // namespace kvant::grammar
