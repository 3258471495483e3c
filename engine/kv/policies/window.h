// Sliding windows: a query at position p sees [p - window + 1, p].
#pragma once

#include "engine/kv/policies/ring.h"

namespace kvant::kv {

class Window final : public Ring {
 public:
  static constexpr std::string_view kName = "window";
  explicit Window(int64_t window) : Ring(window) {}

  std::string_view name() const override { return kName; }
  std::string Describe() const override;

  int64_t Needed(int64_t context, int64_t chunk) const override;
  int64_t NeededForReplay(int64_t context) const override;

  int64_t FirstVisible(int64_t position) const override;
  int64_t RewindLimit(const BlockTable& table) const override;
};

}  // namespace kvant::kv
