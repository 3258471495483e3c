// Inputs of layers that go by the token, beside the stream ("per-layer embeddings"):
//   inputs = (sqrt(width) * per_layer_token_embd[token] +
//             norm(per_layer_model_proj . x / sqrt(dim))) / sqrt(2)      [layers][width]
// where x is the row that enters the first layer, and the norm takes the values of one layer at a
// time. In a layer, with its own values:
//   out = proj . (activation(inp_gate . stream) * inputs)
// which is added to the stream, or, where there are several streams, to all but the first.
//
// Tensors: per_layer_token_embd, [layers * width columns, vocab rows]; per_layer_model_proj, with
// as many rows; per_layer_proj_norm, [width]; of a layer inp_gate, [width rows], and proj.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "cpu/kernels/activation.h"
#include "engine/arch/metadata.h"
#include "engine/arch/norm.h"
#include "engine/graph/builder.h"
#include "engine/graph/plan.h"
#include "engine/graph/rowwise/norm.h"

namespace kvant::arch {

struct ModelSpec;
struct Stack;
class SublayerBuilder;

// The inputs by the token of all layers of a stack, which are made once.
struct LayerInputs {
  int64_t width = 0;   // values of each layer
  int64_t layers = 0;  // that there are values for
  Norm norm;           // of the values of a layer

  // The value with the inputs of all layers; `stream` has the rows that enter the first layer.
  Result<graph::ValueId> AddNodes(const ModelSpec& spec, graph::ValueId stream,
                                  graph::PlanBuilder& plan) const;
};

struct LayerInput {
  int64_t width = 0;
  cpu::Activation activation = cpu::Activation::kGeluTanh;

  Status AddNodes(SublayerBuilder& builder) const;
};

// Reads embedding_length_per_layer_input; nothing where it is absent or 0.
Result<std::optional<LayerInputs>> ReadLayerInputs(const Metadata& metadata, const Stack& stack);

}  // namespace kvant::arch
