// Rows of logits with reference counts. A sequence refers to one row; a fork shares the row until
// either has new logits, so forking copies none.
//
// Memory grows to the largest number of rows that were in use at the same time, and a step needs
// new rows before it releases the old ones. Thread-safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace kvant::run {

class LogitRows {
 public:
  using Row = int;
  static constexpr Row kNone = -1;

  explicit LogitRows(int32_t vocab_size) : vocab_(static_cast<size_t>(vocab_size)) {}

  // A row with one reference.
  Row Take();
  // AddReference and Release do nothing for kNone.
  void AddReference(Row row);
  void Release(Row row);
  // Allocates, so that the next `count` calls of Take do not.
  void Reserve(size_t count);

  // [vocab]; empty for kNone.
  std::span<float> values(Row row);
  std::span<const float> values(Row row) const;

  size_t rows() const { return rows_.size(); }  // rows that memory was allocated for

 private:
  struct Entry {
    std::unique_ptr<float[]> values;
    int references = 0;
  };
  size_t vocab_;
  std::vector<Entry> rows_;
  std::vector<Row> free_;
};

}  // namespace kvant::run
