// The group of an encoder's attention: keys and values of a source's positions, for the layer that
// is being computed; every layer writes over the keys and values of the layer before. A source
// holds them only while it is encoded; one source is encoded at a time.
#pragma once

#include "engine/kv/policies/fixed.h"

namespace kvant::kv {

class Encoder final : public Fixed {
 public:
  static constexpr std::string_view kName = "encoder";
  using Fixed::Fixed;

  std::string_view name() const override { return kName; }
  std::string Describe() const override { return "all positions of a source in its encoder"; }
  int64_t TablesAtOnce(int64_t /*sequences*/) const override { return 1; }
  void EndSource(GroupBlocks& blocks, BlockTable& table) const override { Free(blocks, table); }
};

}  // namespace kvant::kv
