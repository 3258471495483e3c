// The nodes of one layer, for the plans that go through the layers of a stack one after the other.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/builder.h"
#include "engine/graph/plan.h"

namespace kvant::arch {

// One value with the cosines and sines of every rope, for all layers.
std::vector<graph::ValueId> AddRopes(const ModelSpec& spec, graph::PlanBuilder& builder);

// Norms the stream in place.
Result<StreamNorm> AddStreamNorm(const Norm& which, const std::string& prefix, const Stack& stack,
                                 graph::ValueId stream, graph::PlanBuilder& builder);

// A layer of a stack, and what its nodes change.
struct LayerPlace {
  const ModelSpec& spec;
  const Stack& stack;
  const LayerSpec& layer;
  size_t number = 0;  // in the names of its tensors
  graph::ValueId stream = graph::kNoValue;
  std::span<const graph::ValueId> cos_sin = {};  // by rope
  StackValues& shared;
  std::optional<int> cache_id =
      {};  // of its attention, where the plan has that cache layer already
  // Only the layer's first sublayer, an attention, as far as it stores keys and values.
  bool stores_only = false;
};

Status AddLayer(const LayerPlace& place, graph::PlanBuilder& builder);

}  // namespace kvant::arch
