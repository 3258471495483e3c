#include "engine/arch/sublayers/cross_attention.h"

#include "base/result.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/attention/attention_nodes.h"
#include "engine/graph/attention/attention_shape.h"
#include "engine/graph/rowwise/rowwise_nodes.h"

namespace kvant::arch {
namespace {

using graph::Activations;
using graph::MatMulOperand;
using graph::RowSpace;

graph::AttentionShape CrossShape(const CrossAttention& attention, int64_t query_heads) {
  graph::AttentionShape shape;
  shape.heads = query_heads;
  shape.kv_heads = attention.heads;
  shape.k_dim = attention.k_dim;
  shape.v_dim = attention.v_dim;
  shape.sees_all = true;
  return shape;
}

}  // namespace

Status CrossAttention::AddNodes(SublayerBuilder& builder) const {
  graph::PlanBuilder& plan = builder.plan();
  const StackedMatrix query_matrix[] = {{"cross_attn_q", heads * k_dim}};
  const StackedMatrix out_matrix[] = {{"cross_attn_o", builder.dim()}};
  KVANT_ASSIGN(std::vector<MatMulOperand> query_operands,
               builder.Separate(builder.dim(), query_matrix));
  KVANT_ASSIGN(std::vector<MatMulOperand> out_operands,
               builder.Separate(heads * v_dim, out_matrix));
  KVANT_ASSIGN(const Activations normed, builder.AddInput("cross_normed", query_operands));
  const std::string name = builder.Name("cross_queries");
  const graph::ValueId queries = plan.NewFloats(name, RowSpace::kPass, heads * k_dim);
  plan.AddMatMul(RowSpace::kPass, name, std::move(query_operands), normed, queries,
                 cpu::Store::kSet);
  graph::AttentionShape shape = CrossShape(*this, heads);
  shape.as_few = plan.float_gemm().as_few();
  graph::CacheLayer layer = {.kv_heads = heads, .k_dim = k_dim, .v_dim = v_dim};
  layer.keeps = graph::Keeps::kSource;
  const int cache_id = plan.plan().AddCacheLayer(layer);
  graph::HeadChanges changes;
  changes.queries_only = true;
  plan.Add(RowSpace::kPass,
           graph::MakeRopeAndStore(plan.kernels(), cache_id, shape, std::move(changes), queries));

  const std::string attended = builder.Name("cross_attended");
  Activations result = plan.NewActivations(attended, RowSpace::kPass, heads * v_dim, out_operands);
  if (result.floats == graph::kNoValue) {
    result.floats = plan.NewFloats(attended, RowSpace::kPass, result.cols);
  }
  const bool quantize_after = result.int8 != graph::kNoValue && !graph::QuantizesAttention(shape);
  Activations written = result;
  if (quantize_after) written.int8 = graph::kNoValue;
  const graph::AttentionInput input = {.queries = queries};
  plan.Add(RowSpace::kPass,
           graph::MakeAttention(plan.kernels(), cache_id, shape, scale, input, written));
  if (quantize_after) {
    plan.Add(RowSpace::kPass, graph::MakeQuantize(plan.kernels(), attended + ".int8", result));
  }
  return builder.AddToStream("cross_attn_o", std::move(out_operands), result);
}

Result<std::vector<MatMulOperand>> CrossAttention::KeysAndValues(graph::PlanBuilder& plan,
                                                                 const std::string& prefix,
                                                                 int64_t dim) const {
  std::vector<MatMulOperand> operands;
  KVANT_TRY(plan.AddOperand(operands, prefix + "cross_attn_k", dim, heads * k_dim));
  KVANT_TRY(plan.AddOperand(operands, prefix + "cross_attn_v", dim, heads * v_dim));
  return operands;
}

void CrossAttention::AddStore(graph::PlanBuilder& plan, const std::string& prefix, int cache_id,
                              std::vector<MatMulOperand> operands,
                              const Activations& encoded) const {
  const graph::AttentionShape shape = CrossShape(*this, 0);
  const std::string name = prefix + "cross_kv";
  const graph::ValueId kv = plan.NewFloats(name, RowSpace::kPass, shape.qkv_columns());
  plan.AddMatMul(RowSpace::kPass, name, std::move(operands), encoded, kv, cpu::Store::kSet);
  plan.Add(RowSpace::kPass,
           graph::MakeRopeAndStore(plan.kernels(), cache_id, shape, graph::HeadChanges(), kv));
}

}  // namespace kvant::arch
