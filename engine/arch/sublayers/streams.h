// Several streams of rows beside the one that layers compute on
// (engine/graph/rowwise/stream_nodes.h has the formulas): what a stack makes of them before its
// first layer and behind its last one, and the blocks with which a layer of such a stack begins and
// ends. The router of both blocks is
//   router = altup_router . (altup_router_norm(r) / dim)
// where r is the first stream in the one block, and the stream of the layers in the other.
//
// Tensors: altup_proj and altup_unembd_proj, [dim x dim x streams - 1]; of a layer altup_router,
// altup_router_norm, altup_predict_coef, [streams columns, streams * streams rows],
// altup_correct_coef, [streams x streams], and altup_correct_scale, [dim], which may be missing.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/arch/norm.h"
#include "engine/graph/builder.h"
#include "engine/graph/rowwise/stream_nodes.h"

namespace kvant::arch {

class SublayerBuilder;

struct Streams {
  graph::StreamShape shape;

  // The value with all streams, by the rows that enter the first layer.
  Result<graph::ValueId> AddBegin(graph::ValueId x, graph::PlanBuilder& plan) const;
  // The rows whose logits are wanted, by all streams.
  Status AddEnd(graph::ValueId streams, graph::ValueId selected, graph::PlanBuilder& plan) const;
};

struct PredictStreams {
  Norm router_norm;

  Status AddNodes(SublayerBuilder& builder) const;
};

struct CorrectStreams {
  Norm router_norm;

  Status AddNodes(SublayerBuilder& builder) const;
};

// Reads altup.num_inputs and altup.active_idx; kNotSupported where the layers compute on another
// stream than the first.
Result<Streams> ReadStreams(const Metadata& metadata, int64_t dim);

}  // namespace kvant::arch
