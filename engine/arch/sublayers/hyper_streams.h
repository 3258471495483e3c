// Hyper-connections of low rank (engine/graph/rowwise/hyper_nodes.h has the formulas): several
// streams, of which each block of a layer reads a mean with gates, and to each of which it is added
// with a share of its own. They stand in place of the norms in front of blocks, and another one in
// place of the final norm, whose mean is what logits are made of.
//
// Tensors of a connection, with the beginning of its name: _norm [count * dim]; _down [count * dim
// columns, rank rows]; _up [rank columns, count * dim rows]; _inject [count * dim columns, count
// rows], which the last one lacks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/arch/metadata.h"
#include "engine/graph/builder.h"
#include "engine/graph/rowwise/stream_nodes.h"

namespace kvant::arch {

// The row that a block reads, and the value whose columns from one on say how its result is shared
// out.
struct HyperMean {
  graph::ValueId x = graph::kNoValue;
  graph::ValueId shares = graph::kNoValue;
  int64_t first_share = 0;
};

struct HyperStreams {
  graph::StreamShape shape;
  int64_t rank = 0;
  float epsilon = 0;
  std::string_view last = "output_hc";  // the connection in place of the final norm

  // The value with all streams, by the rows that enter the first layer.
  graph::ValueId AddBegin(graph::ValueId x, graph::PlanBuilder& plan) const;
  // The mean that the block behind the connection `name` reads, as the value `x`.
  Result<HyperMean> AddMean(const std::string& name, graph::ValueId streams, graph::ValueId x,
                            graph::PlanBuilder& plan) const;
  // Adds the block's result.
  void AddResult(const std::string& name, const HyperMean& mean, graph::ValueId result,
                 graph::ValueId streams, graph::PlanBuilder& plan) const;
  // The rows whose logits are wanted, by all streams.
  Status AddEnd(graph::ValueId streams, graph::ValueId selected, graph::PlanBuilder& plan) const;
};

// Reads hyper_connection.count and hyper_connection.low_rank. kCorrupt for fewer than two streams.
Result<HyperStreams> ReadHyperStreams(const Metadata& metadata, int64_t dim, float epsilon);

}  // namespace kvant::arch
