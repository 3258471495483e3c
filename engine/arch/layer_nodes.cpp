#include "engine/arch/layer_nodes.h"

#include <variant>

#include "base/result.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using graph::RowSpace;
using graph::ValueId;

// Multiplies the stream by the number of a layer, if the file has it.
Status AddOutputScale(const LayerPlace& place, const std::string& prefix,
                      graph::PlanBuilder& builder) {
  if (place.layer.output_scale.empty()) return {};
  const std::string name = prefix + std::string(place.layer.output_scale);
  KVANT_ASSIGN(const graph::WeightVector scale, builder.Scales(name + ".weight", 1));
  if (scale.empty()) return {};
  builder.Add(RowSpace::kPass,
              graph::MakeScale(name, scale.front(), place.stream, place.stack.dim));
  return {};
}

// Adds a sublayer of a layer with hyper-connections: the block reads the mean, which takes the
// place of the stream, and gives its result to a value of its own.
Status AddConnected(const LayerPlace& place, const Sublayer& sublayer,
                    SublayerBuilder::Place context, graph::PlanBuilder& builder) {
  const HyperStreams& hyper = *place.stack.hyper;
  const ValueId streams = place.shared.streams;
  const std::string name = context.prefix + std::string(sublayer.connection);
  KVANT_ASSIGN(const HyperMean mean, hyper.AddMean(name, streams, place.stream, builder));
  context.source = mean.x;
  context.stream = builder.NewFloats(name + ".block", RowSpace::kPass, place.stack.dim);
  context.store = cpu::Store::kSet;
  const ValueId result = context.stream;
  SublayerBuilder block(builder, place.spec.ropes, place.cos_sin, sublayer, std::move(context));
  KVANT_TRY(std::visit([&](const auto& one) { return one.AddNodes(block); }, sublayer.block));
  hyper.AddResult(name, mean, result, streams, builder);
  return {};
}

}  // namespace

std::vector<ValueId> AddRopes(const ModelSpec& spec, graph::PlanBuilder& builder) {
  std::vector<ValueId> cos_sin;
  for (size_t i = 0; i < spec.ropes.size(); ++i) {
    const int64_t n_rot = spec.ropes[i].n_rot;
    cos_sin.push_back(builder.NewFloats(fmt::format("cos_sin.{}", i), RowSpace::kPass, n_rot));
    builder.Add(RowSpace::kPass, graph::MakeRopeTable(i, n_rot, cos_sin.back()));
    builder.plan().AddRope(spec.ropes[i]);
  }
  return cos_sin;
}

Result<StreamNorm> AddStreamNorm(const Norm& which, const std::string& prefix, const Stack& stack,
                                 ValueId stream, graph::PlanBuilder& builder) {
  StreamNorm added = {.name = prefix + std::string(which.tensor)};
  KVANT_ASSIGN(added.norm, ReadNorm(builder, which, prefix, stack.dim));
  builder.Add(RowSpace::kPass, graph::MakeNorm(builder.kernels(), added.name, added.norm, stream,
                                               {.floats = stream, .cols = stack.dim}));
  added.nodes = builder.plan().nodes(graph::Stage::kBody).size();
  return added;
}

Status AddLayer(const LayerPlace& place, graph::PlanBuilder& builder) {
  const Stack& stack = place.stack;
  const ValueId stream = place.stream;
  const std::string prefix = fmt::format("{}.{}.", stack.layer_prefix, place.number);
  const Flow flow = place.layer.flow;
  ValueId entered = stream;
  if (flow != Flow::kSequential && !place.stores_only) {
    entered = builder.NewFloats(prefix + "in", RowSpace::kPass, stack.dim);
    builder.Add(RowSpace::kPass,
                graph::MakeNorm(builder.kernels(), prefix + "in", {.kind = NormKind::kNone}, stream,
                                {.floats = entered, .cols = stack.dim}));
  }
  for (const Sublayer& sublayer : place.layer.sublayers) {
    const bool after_others =
        flow == Flow::kParallelMixers && &sublayer == &place.layer.sublayers.back();
    SublayerBuilder::Place of_block = {.prefix = prefix,
                                       .dim = stack.dim,
                                       .source = after_others ? stream : entered,
                                       .stream = stream,
                                       .layer = place.number,
                                       .shared = &place.shared,
                                       .first_prefix = fmt::format("{}.0.", stack.layer_prefix),
                                       .cache_id = place.cache_id,
                                       .stores_only = place.stores_only};
    if (!sublayer.connection.empty()) {
      KVANT_TRY(AddConnected(place, sublayer, std::move(of_block), builder));
      continue;
    }
    SublayerBuilder context(builder, place.spec.ropes, place.cos_sin, sublayer,
                            std::move(of_block));
    KVANT_TRY(
        std::visit([&](const auto& block) { return block.AddNodes(context); }, sublayer.block));
    if (place.stores_only) return {};
    if (sublayer.norm_of_sum.has_value()) {
      KVANT_ASSIGN(place.shared.stream_norm,
                   AddStreamNorm(*sublayer.norm_of_sum, prefix, stack, stream, builder));
    }
  }
  return AddOutputScale(place, prefix, builder);
}

}  // namespace kvant::arch
