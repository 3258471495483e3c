// Attention of a decoder over the positions of a source:
//   out = output matrix . softmax(scale * q . k over all positions of the source) . v + bias
//
// Queries are made from the decoder's rows; keys and values from the encoder's output, once for a
// source, in a cache layer that all sequences of that source share.
//
// Tensors: cross_attn_q, cross_attn_k, cross_attn_v, cross_attn_o, each with an optional bias.
// There is neither a rope nor a number for distances.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/graph/activations.h"
#include "engine/graph/builder.h"
#include "engine/graph/matmul/matmul_nodes.h"
#include "engine/graph/plan.h"

namespace kvant::arch {

class SublayerBuilder;

struct CrossAttention {
  int64_t heads = 0;
  int64_t k_dim = 0;
  int64_t v_dim = 0;
  float scale = 0;  // of the products of queries and keys

  Status AddNodes(SublayerBuilder& builder) const;

  // The matrices that make keys and values from the encoder's output, [dim], in the encoder's plan.
  Result<std::vector<graph::MatMulOperand>> KeysAndValues(graph::PlanBuilder& plan,
                                                          const std::string& prefix,
                                                          int64_t dim) const;
  // Stores them.
  void AddStore(graph::PlanBuilder& plan, const std::string& prefix, int cache_id,
                std::vector<graph::MatMulOperand> operands,
                const graph::Activations& encoded) const;
};

}  // namespace kvant::arch
