// The nodes of the layers that guess tokens behind the next one (arch::Predictors): in the plan of
// a model, which keeps up their keys and values for all tokens, and in plans of their own, which
// guess.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"
#include "cpu/float_gemm.h"
#include "engine/arch/spec.h"
#include "engine/arch/sublayer_builder.h"
#include "engine/graph/plan.h"
#include "formats/gguf.h"

namespace kvant::cpu {
struct KernelTable;
}  // namespace kvant::cpu

namespace kvant::arch {

// Adds what stores the keys and values of all predictors, from the stream behind the last layer:
// the row of a position has its token and the stream's row of the position before. Makes the rows
// that predictors read Plan::encoded. kNotSupported where such a layer does not begin with an
// attention.
Status AddPredictorStores(const ModelSpec& spec, const formats::GgufTensor& embedding,
                          graph::ValueId stream, std::span<const graph::ValueId> cos_sin,
                          StackValues& shared, graph::PlanBuilder& builder);

// Builds the plan graph::kDraftPlans[number], which gives the logits and the rows (Plan::encoded)
// of predictor `number` for tokens and rows of PassContext::hidden. It has the cache layers of
// `decode`.
Result<std::unique_ptr<graph::Plan>> BuildDraftPlan(const formats::GgufFile& file,
                                                    const cpu::KernelTable& kernels,
                                                    const cpu::FloatGemm& float_gemm,
                                                    const ModelSpec& spec,
                                                    const graph::Plan& decode, size_t number);

}  // namespace kvant::arch
