#include "engine/run/logit_rows.h"

namespace kvant::run {

void LogitRows::Reserve(size_t count) {
  while (free_.size() < count) {
    rows_.push_back({std::make_unique<float[]>(vocab_), 0});
    free_.reserve(rows_.capacity());
    free_.push_back(static_cast<Row>(rows_.size() - 1));
  }
}

LogitRows::Row LogitRows::Take() {
  Reserve(1);
  const Row row = free_.back();
  free_.pop_back();
  rows_[static_cast<size_t>(row)].references = 1;
  return row;
}

void LogitRows::AddReference(Row row) {
  if (row != kNone) ++rows_[static_cast<size_t>(row)].references;
}

void LogitRows::Release(Row row) {
  if (row != kNone && --rows_[static_cast<size_t>(row)].references == 0) free_.push_back(row);
}

std::span<float> LogitRows::values(Row row) {
  if (row == kNone) return {};
  return {rows_[static_cast<size_t>(row)].values.get(), vocab_};
}

std::span<const float> LogitRows::values(Row row) const {
  if (row == kNone) return {};
  return {rows_[static_cast<size_t>(row)].values.get(), vocab_};
}

}  // namespace kvant::run
