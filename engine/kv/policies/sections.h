// Sections of W positions: a query at position p sees [p - p % W, p]. So a row depends on nothing
// before its section, through any number of layers, and a replay begins with a section.
#pragma once

#include "engine/kv/policies/ring.h"

namespace kvant::kv {

class Sections final : public Ring {
 public:
  static constexpr std::string_view kName = "sections";
  explicit Sections(int64_t window) : Ring(window) {}

  std::string_view name() const override { return kName; }
  std::string Describe() const override;

  int64_t Needed(int64_t context, int64_t chunk) const override;
  int64_t NeededForReplay(int64_t context) const override;

  int64_t FirstVisible(int64_t position) const override { return position - position % window(); }
  int64_t DependsFrom(int64_t position, int64_t layers) const override;
  int64_t RewindLimit(const BlockTable& table) const override;

 protected:
  PositionRange FullestPass(int64_t at, int64_t piece) const override;
};

}  // namespace kvant::kv
