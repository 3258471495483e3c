// The rows of logits that are alive. A sequence refers to one; a fork refers to the same one until
// either has logits of its own, so forking copies none.
//
// There is memory for the rows that were alive at the same time, and for the step that replaces
// them. Thread-safety: none.
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
  // Both do nothing for kNone.
  void AddReference(Row row);
  void Release(Row row);
  // Afterwards so many rows can be taken without an allocation.
  void Reserve(size_t count);

  // [vocab]; empty for kNone.
  std::span<float> values(Row row);
  std::span<const float> values(Row row) const;

  size_t rows() const { return rows_.size(); }  // that there is memory for

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
